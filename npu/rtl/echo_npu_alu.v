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

  function automatic [31:0] key(input [31:0] x);
    key = x ^ {1'b1, {31{x[31]}}};  // unsigned order of the patterns, -0 < +0
  endfunction

  function automatic is_nan(input [31:0] x);
    is_nan = x[30:0] > 31'h7f800000;
  endfunction

  function automatic [31:0] flush(input [31:0] x);
    flush = x[30:23] == 0 ? 32'd0 : x;
  endfunction

  function automatic [31:0] extreme(input [31:0] x, input [31:0] y, input smallest);
    if (is_nan(x) || is_nan(y)) extreme = 32'h7fc00000;
    else extreme = (key(x) < key(y)) ^ smallest ? y : x;
  endfunction

  function automatic [31:0] compare(input [31:0] x, input [31:0] y, input less, input equal);
    reg [31:0] fx, fy;
    begin
      fx = flush(x);
      fy = flush(y);
      compare = {32{!is_nan(x) && !is_nan(y) && ((less && key(fx) < key(fy)) || (equal && fx == fy))}};
    end
  endfunction

  integer i;
  always @(posedge clk)
    if (en)
      case ({27'd0, op})
        `ECHO_NPU_UOP_MOV: z <= a;
        `ECHO_NPU_UOP_MAX: for (i = 0; i < 16; i = i + 1) z[32*i+:32] <= extreme(a[32*i+:32], b[32*i+:32], 1'b0);
        `ECHO_NPU_UOP_MIN: for (i = 0; i < 16; i = i + 1) z[32*i+:32] <= extreme(a[32*i+:32], b[32*i+:32], 1'b1);
        `ECHO_NPU_UOP_F2I: for (i = 0; i < 16; i = i + 1) z[32*i+:32] <= f2i(a[32*i+:32]);
        `ECHO_NPU_UOP_I2F: for (i = 0; i < 16; i = i + 1) z[32*i+:32] <= i2f(a[32*i+:32]);
        `ECHO_NPU_UOP_IADD: for (i = 0; i < 16; i = i + 1) z[32*i+:32] <= a[32*i+:32] + b[32*i+:32];
        `ECHO_NPU_UOP_ISUB: for (i = 0; i < 16; i = i + 1) z[32*i+:32] <= a[32*i+:32] - b[32*i+:32];
        `ECHO_NPU_UOP_AND: z <= a & b;
        `ECHO_NPU_UOP_OR: z <= a | b;
        `ECHO_NPU_UOP_XOR: z <= a ^ b;
        `ECHO_NPU_UOP_SHL: for (i = 0; i < 16; i = i + 1) z[32*i+:32] <= a[32*i+:32] << b[32*i+:5];
        `ECHO_NPU_UOP_SHR: for (i = 0; i < 16; i = i + 1) z[32*i+:32] <= a[32*i+:32] >> b[32*i+:5];
        `ECHO_NPU_UOP_SAR:
        for (i = 0; i < 16; i = i + 1) z[32*i+:32] <= $unsigned($signed(a[32*i+:32]) >>> b[32*i+:5]);
        `ECHO_NPU_UOP_CLT:
        for (i = 0; i < 16; i = i + 1) z[32*i+:32] <= compare(a[32*i+:32], b[32*i+:32], 1'b1, 1'b0);
        `ECHO_NPU_UOP_CLE:
        for (i = 0; i < 16; i = i + 1) z[32*i+:32] <= compare(a[32*i+:32], b[32*i+:32], 1'b1, 1'b1);
        `ECHO_NPU_UOP_CEQ:
        for (i = 0; i < 16; i = i + 1) z[32*i+:32] <= compare(a[32*i+:32], b[32*i+:32], 1'b0, 1'b1);
        `ECHO_NPU_UOP_SEL:
        for (i = 0; i < 16; i = i + 1) z[32*i+:32] <= a[32*i+31] ? b[32*i+:32] : c[32*i+:32];
        default: z <= a;
      endcase
endmodule
