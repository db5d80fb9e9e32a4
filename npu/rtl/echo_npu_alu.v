// echo_npu_alu - the micro-operations of the vector unit other than FMA, MUL and ADD: 16 lanes, one cycle.
/* verilator tracing_off */
module echo_npu_alu (
    input wire clk,
    input wire en,
    input wire [4:0] op,
    input wire [511:0] a,
    input wire [511:0] b,
    input wire [511:0] c,
    output reg [511:0] z
);
  `include "echo_npu_defs.vh"
  `include "echo_npu_convert.vh"

  function automatic [31:0] lane(input [4:0] f, input [31:0] x, input [31:0] y, input [31:0] w);
    reg nan, less, same;
    reg [31:0] kx, ky, fx, fy;
    begin
      // Keys order the patterns as unsigned numbers, -0 < +0.
      kx = x ^ {1'b1, {31{x[31]}}};
      ky = y ^ {1'b1, {31{y[31]}}};
      nan = x[30:0] > 31'h7f800000 || y[30:0] > 31'h7f800000;
      // Comparisons read subnormals as zero.
      fx = x[30:23] == 0 ? 32'h80000000 : kx;
      fy = y[30:23] == 0 ? 32'h80000000 : ky;
      less = !nan && fx < fy;
      same = !nan && fx == fy;
      case ({27'd0, f})
        `ECHO_NPU_UOP_MAX: lane = nan ? 32'h7fc00000 : kx < ky ? y : x;
        `ECHO_NPU_UOP_MIN: lane = nan ? 32'h7fc00000 : kx < ky ? x : y;
        `ECHO_NPU_UOP_F2I: lane = f2i(x);
        `ECHO_NPU_UOP_I2F: lane = i2f(x);
        `ECHO_NPU_UOP_IADD: lane = x + y;
        `ECHO_NPU_UOP_ISUB: lane = x - y;
        `ECHO_NPU_UOP_AND: lane = x & y;
        `ECHO_NPU_UOP_OR: lane = x | y;
        `ECHO_NPU_UOP_XOR: lane = x ^ y;
        `ECHO_NPU_UOP_SHL: lane = x << y[4:0];
        `ECHO_NPU_UOP_SHR: lane = x >> y[4:0];
        `ECHO_NPU_UOP_SAR: lane = $unsigned($signed(x) >>> y[4:0]);
        `ECHO_NPU_UOP_CLT: lane = {32{less}};
        `ECHO_NPU_UOP_CLE: lane = {32{less | same}};
        `ECHO_NPU_UOP_CEQ: lane = {32{same}};
        `ECHO_NPU_UOP_SEL: lane = x[31] ? y : w;
        default: lane = x;  // MOV
      endcase
    end
  endfunction

  reg [31:0] i;
  always @(posedge clk)
    if (en)
      for (i = 0; i < 16; i = i + 1) z[32*i+:32] <= lane(op, a[32*i+:32], b[32*i+:32], c[32*i+:32]);
endmodule
