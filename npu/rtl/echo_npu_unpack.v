// echo_npu_unpack - takes up to 16 elements from the byte stream of the reader and widens them to 32-bit lanes
// (isa.md section 4, Load). With `raw` integers stay integers. The lanes are valid in the next cycle.
module echo_npu_unpack (
    input wire clk,
    input wire en,
    input wire [1:0] dtype,
    input wire raw,
    input wire [511:0] data,
    output reg [511:0] lanes
);
  `include "echo_npu_convert.vh"

  reg [31:0] i;
  always @(posedge clk)
    if (en)
      case (dtype)
        2'd0: lanes <= data;
        2'd1: for (i = 0; i < 16; i = i + 1) lanes[32*i+:32] <= {data[16*i+:16], 16'd0};
        2'd2:
          for (i = 0; i < 16; i = i + 1)
            lanes[32*i+:32] <= raw ? {{24{data[8*i+7]}}, data[8*i+:8]} :
                i2f({{24{data[8*i+7]}}, data[8*i+:8]});
        2'd3: for (i = 0; i < 16; i = i + 1) lanes[32*i+:32] <= raw ? data[32*i+:32] : i2f(data[32*i+:32]);
      endcase
endmodule
