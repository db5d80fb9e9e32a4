// echo_npu_pe_row - one row of the matrix array: N multiply-accumulate lanes that share the operand a, and
// their accumulators: 2^SL words in each of two banks. One bank computes; the other is written out and,
// for ACCUMULATE, loaded.
/* verilator tracing_off */
module echo_npu_pe_row #(
    parameter N = 16,
    parameter SL = 4
) (
    input wire clk,
    // Accumulator read, one cycle before the operands
    input wire read,
    input wire read_bank,
    input wire [SL-1:0] read_slot,
    // Operands
    input wire valid,
    input wire integers,
    input wire zero,  // start from zero instead of the accumulator
    input wire [31:0] a,
    input wire [32*N-1:0] b,
    // Where the result goes, four cycles after the operands
    input wire write_bank,
    input wire [SL-1:0] write_slot,
    // Unloading and loading of the bank that does not compute
    input wire unload,
    input wire unload_bank,
    input wire [SL-1:0] unload_slot,
    output wire [32*N-1:0] unload_data,
    input wire load,
    input wire load_bank,
    input wire [SL-1:0] load_slot,
    input wire [32*N-1:0] load_data
);
  wire [32*N-1:0] acc0, acc1, z;
  wire z_valid;
  reg from_bank, out_bank;
  wire [32*N-1:0] c = zero ? {32 * N{1'b0}} : from_bank ? acc1 : acc0;
  assign unload_data = out_bank ? acc1 : acc0;
  always @(posedge clk) begin
    if (read) from_bank <= read_bank;
    if (unload) out_bank <= unload_bank;
  end

  wire z0 = z_valid && !write_bank, z1 = z_valid && write_bank;
  wire r0 = read && !read_bank, r1 = read && read_bank;
  echo_npu_ram #(.WIDTH(32 * N), .DEPTH(1 << SL), .ABITS(SL)) bank0 (
      .clk(clk), .we(z0 || (load && !load_bank)), .waddr(z0 ? write_slot : load_slot),
      .wdata(z0 ? z : load_data), .re(r0 || (unload && !unload_bank)), .raddr(r0 ? read_slot : unload_slot),
      .rdata(acc0));
  echo_npu_ram #(.WIDTH(32 * N), .DEPTH(1 << SL), .ABITS(SL)) bank1 (
      .clk(clk), .we(z1 || (load && load_bank)), .waddr(z1 ? write_slot : load_slot),
      .wdata(z1 ? z : load_data), .re(r1 || (unload && unload_bank)), .raddr(r1 ? read_slot : unload_slot),
      .rdata(acc1));

  // The product has 16 bits; synthesis would build a 32-bit multiplier for wider operands.
  function automatic [31:0] multiply(input signed [7:0] x, input signed [7:0] y);
    reg signed [15:0] p;
    begin
      p = x * y;
      multiply = {{16{p[15]}}, p};
    end
  endfunction

  reg [32*N-1:0] sums;
  reg [31:0] lane;
  always @* begin
    sums = 0;
    if (valid && integers)
      for (lane = 0; lane < N; lane = lane + 1)
        sums[32*lane+:32] = c[32*lane+:32] + multiply(a[7:0], b[32*lane+:8]);
  end

  echo_npu_fma #(.W(N), .AW(1)) fma (
      .clk(clk), .valid(valid), .a(a), .b(b), .c(c), .bypass(integers), .bypass_value(sums),
      .z_valid(z_valid), .z(z));
endmodule
