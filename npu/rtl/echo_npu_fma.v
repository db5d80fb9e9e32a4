// echo_npu_fma - W fused multiply-add lanes, z = a * b + c, four cycles, one result a cycle.
//
// binary32, round to nearest even; subnormals read as zero, results below 2^-126 after rounding become
// zero; the only NaN produced is 0x7fc00000. With `bypass` the lanes carry `bypass_value` through the
// same pipeline instead, so that operations of other units retire in order with these.
//
// Lanes are alike and do not meet: a simulator runs them as one loop, synthesis makes one and places it W times.
/* verilator tracing_off */
module echo_npu_fma #(
    parameter W = 16,
    parameter AW = W  // lanes of a: W, or 1 that all share
) (
    input wire clk,
    input wire valid,
    input wire [32*AW-1:0] a,
    input wire [32*W-1:0] b,
    input wire [32*W-1:0] c,
    input wire bypass,
    input wire [32*W-1:0] bypass_value,
    output wire z_valid,
    output wire [32*W-1:0] z
);
`ifdef SYNTHESIS
  localparam L = 1;
`else
  localparam L = W;
`endif
  localparam AL = AW == 1 ? 1 : L;

  reg [4:1] steps;
  always @(posedge clk) steps <= {steps[3:1], valid};
  assign z_valid = steps[4];

  genvar i;
  generate
    for (i = 0; i < W; i = i + L) begin : lane
      echo_npu_fma_lanes #(.W(L), .AW(AL)) fma (
          .clk(clk), .step({steps[3:1], valid}), .a(a[AW==1?0 : 32*i+:32*AL]), .b(b[32*i+:32*L]), .c(c[32*i+:32*L]),
          .bypass(bypass), .bypass_value(bypass_value[32*i+:32*L]), .z(z[32*i+:32*L]));
    end
  endgenerate
endmodule
