// echo_npu_pad - a scratchpad of the matrix engine: an operand tile of up to N * 2^s rows by K, two buffers.
//
// A word is N elements of one k, from N neighbouring rows: rows 16r..16r+N-1 of k are at address k * 2^s + r.
// Element (row, k) is kept in bank (row + k) mod N, so that N neighbours in either direction are always in
// different banks: a group that runs along k (a row-major A) and one that runs along the rows (a transposed
// A) are both written in one cycle, and reading needs only a rotation.
/* verilator tracing_off */
module echo_npu_pad #(
    parameter N = 16,
    parameter NL = 4,
    parameter G = 16,  // elements in a group, at most N
    parameter GL = 4,
    parameter DL = 9   // log2 of the words in one buffer
) (
    input wire clk,
    input wire [2:0] shift,  // s
    input wire we,
    input wire wbuf,
    input wire along_k,
    input wire [4:0] wcount,
    input wire [8:0] wrow,  // of the first element of the group
    input wire [DL-1:0] wk,
    input wire [32*G-1:0] wdata,
    input wire re,
    input wire rbuf,
    input wire [DL-1:0] rk,
    input wire [3:0] rslot,
    output wire [32*N-1:0] rdata  // in the cycle after the next
);
  wire [NL-1:0] base = wrow[NL-1:0] + wk[NL-1:0];
  wire [DL-1:0] raddr = (rk << shift) + {{(DL - 4) {1'b0}}, rslot};
  reg [NL-1:0] turn;
  reg turn_valid;
  wire [32*N-1:0] banks;
  reg [32*N-1:0] turned;

  always @(posedge clk) begin
    turn_valid <= re;
    if (re) turn <= rk[NL-1:0];
    if (turn_valid) turned <= (banks >> {turn, 5'd0}) | (banks << {~turn + {{(NL - 1) {1'b0}}, 1'b1}, 5'd0});
  end
  assign rdata = turned;

  genvar b;
  generate
    for (b = 0; b < N; b = b + 1) begin : bank
      wire [NL-1:0] j = b[NL-1:0] - base;  // element of the group that belongs here
      wire [8:0] row = along_k ? wrow : wrow + {{(9 - NL) {1'b0}}, j};
      wire [DL-1:0] k = along_k ? wk + {{(DL - NL) {1'b0}}, j} : wk;
      wire [8:0] slot = row >> NL;
      wire [DL-1:0] waddr = (k << shift) + {{(DL - 4) {1'b0}}, slot[3:0]};
      wire mine = {{(6 - NL) {1'b0}}, j} < {1'b0, wcount};
      wire [31:0] value = wdata[32*j[GL-1:0]+:32];
      echo_npu_ram #(.WIDTH(32), .DEPTH(2 << DL), .ABITS(DL + 1)) ram (
          .clk(clk), .we(we && mine), .waddr({wbuf, waddr}), .wdata(value), .re(re), .raddr({rbuf, raddr}),
          .rdata(banks[32*b+:32]));
    end
  endgenerate
endmodule
