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

  // The elements of each size side by side; one of them goes to the writer, cut to the lanes that are there.
  function automatic [31:0] narrow(input [1:0] t, input keep, input [31:0] v);
    case (t)
      2'd0: narrow = v;
      2'd1: narrow = {16'd0, to_bf16(v)};
      2'd2: narrow = {24'd0, to_i8(f2i(v))};
      2'd3: narrow = keep ? v : f2i(v);
    endcase
  endfunction

  reg [31:0] i;
  reg [31:0] v;
  always @(posedge clk)
    if (clear) push <= 0;
    else begin
      if (push_ready) push <= 0;
      if (valid) begin
        push <= 1;
        push_bytes <= dtype == 2'd1 ? {1'b0, count, 1'b0} : dtype == 2'd2 ? {2'b0, count} : {count, 2'b0};
        push_data <= 0;
        for (i = 0; i < 16; i = i + 1)
          if (i < {27'd0, count}) begin
            /* verilator lint_off BLKSEQ */
            v = narrow(dtype, raw, lanes[32*i+:32]);
            /* verilator lint_on BLKSEQ */
            case (dtype)
              2'd1: push_data[16*i+:16] <= v[15:0];
              2'd2: push_data[8*i+:8] <= v[7:0];
              default: push_data[32*i+:32] <= v;
            endcase
          end
      end
    end
endmodule
