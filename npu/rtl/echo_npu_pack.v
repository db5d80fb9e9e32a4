// echo_npu_pack - narrows up to 16 lanes to their memory type (isa.md section 4, Store) and hands the bytes to
// the writer. With `raw` integers are stored as they are.
module echo_npu_pack (
    input wire clk,
    input wire clear,
    input wire valid,  // only with ready
    output wire ready,
    input wire [1:0] dtype,
    input wire raw,
    input wire [4:0] count,  // lanes, 1 to 16
    input wire [511:0] lanes,
    output reg push,
    input wire push_ready,
    output reg [6:0] push_bytes,
    output reg [511:0] push_data
);
  `include "echo_npu_convert.vh"

  assign ready = !push || push_ready;

  // verilator lint_off BLKSEQ
  integer i;
  reg [31:0] v;
  reg [511:0] bytes;
  always @(posedge clk)
    if (clear) push <= 0;
    else begin
      if (push_ready) push <= 0;
      if (valid) begin
        push <= 1;
        bytes = 0;
        for (i = 0; i < 16; i = i + 1)
          if (i < {27'd0, count}) begin
            v = lanes[32*i+:32];
            case (dtype)
              2'd0: bytes[32*i+:32] = v;
              2'd1: bytes[16*i+:16] = to_bf16(v);
              2'd2: bytes[8*i+:8] = to_i8(f2i(v));
              2'd3: bytes[32*i+:32] = raw ? v : f2i(v);
            endcase
          end
        push_data <= bytes;
        push_bytes <= dtype == 2'd1 ? {1'b0, count, 1'b0} : dtype == 2'd2 ? {2'b0, count} : {count, 2'b0};
      end
    end
  // verilator lint_on BLKSEQ
endmodule
