// echo_npu_fma - W fused multiply-add lanes, z = a * b + c, four cycles, one result a cycle.
//
// binary32, round to nearest even; subnormals read as zero, results below 2^-126 after rounding become
// zero; the only NaN produced is 0x7fc00000. With `bypass` the lanes carry `bypass_value` through the
// same pipeline instead, so that operations of other units retire in order with these.
//
// The exact sum is never wider than 64 bits: the operand with the larger exponent is placed with its
// leading one at bit 60 or 61, the other is shifted right into a sticky bit. A shift that loses bits is
// longer than 13, and then at most one leading bit cancels, so the sticky bit stays below the guard bit.
//
// Each stage is a loop over the lanes in one clocked block, last stage first: a stage reads what the one
// before it left in the previous cycle. The arrays are private to the block, so blocking assignment
// makes them plain registers, and a simulator runs a loop instead of W copies of the code.
/* verilator tracing_off */
module echo_npu_fma #(
    parameter W = 16
) (
    input wire clk,
    input wire valid,
    input wire [32*W-1:0] a,
    input wire [32*W-1:0] b,
    input wire [32*W-1:0] c,
    input wire bypass,
    input wire [32*W-1:0] bypass_value,
    output reg z_valid,
    output reg [32*W-1:0] z
);
  localparam [31:0] QNAN = 32'h7fc00000;

  reg s1_valid, s2_valid, s3_valid;

  // Normalises so that the leading one is bit 62, rounds, packs.
  function automatic [31:0] finish(input [62:0] sum, input [9:0] exponent, input sign);
    reg [62:0] n;
    reg [5:0] lz;
    reg [9:0] e;
    reg [33:0] r;
    begin
      n = sum;
      lz[5] = n[62:31] == 0;
      n = n << {lz[5], 5'd0};
      lz[4] = n[62:47] == 0;
      n = n << {lz[4], 4'd0};
      lz[3] = n[62:55] == 0;
      n = n << {lz[3], 3'd0};
      lz[2] = n[62:59] == 0;
      n = n << {lz[2], 2'd0};
      lz[1] = n[62:61] == 0;
      n = n << {lz[1], 1'd0};
      lz[0] = !n[62];
      n = n << lz[0];
      e = exponent + 10'd2 - {4'd0, lz};
      r = {e[9], e, n[61:39]} + {33'd0, n[38] & (n[39] | (n[37:0] != 0))};
      if (!n[62] || r[33] || r[32:23] == 0) finish = {sign, 31'd0};
      else if (r[32:23] >= 10'd255) finish = {sign, 8'hff, 23'd0};
      else finish = {sign, r[30:0]};
    end
  endfunction

  // verilator lint_off BLKSEQ
  // Stage 1: product, exponents, special values.
  reg [47:0] s1_product[0:W-1];
  reg [23:0] s1_addend[0:W-1];
  reg [9:0] s1_exp_p[0:W-1];  // biased exponent of the product, two's complement
  reg [7:0] s1_exp_c[0:W-1];
  reg [1:0] s1_sign[0:W-1];  // of product, of addend
  reg s1_special[0:W-1];
  reg [31:0] s1_value[0:W-1];
  // Stage 2: aligned operands.
  reg [63:0] s2_big[0:W-1];
  reg [63:0] s2_small[0:W-1];
  reg [9:0] s2_exp[0:W-1];
  reg [1:0] s2_sign[0:W-1];  // of a zero result, of the larger operand
  reg s2_subtract[0:W-1];
  reg s2_special[0:W-1];
  reg [31:0] s2_value[0:W-1];
  // Stage 3: magnitude of the sum.
  reg [62:0] s3_sum[0:W-1];
  reg [9:0] s3_exp[0:W-1];
  reg s3_sign[0:W-1];
  reg s3_special[0:W-1];
  reg [31:0] s3_value[0:W-1];

  integer i;
  reg [31:0] va, vb, vc;
  reg za, zb, zc, xa, xb, xc, nan, inf_p;
  reg sign_p;
  reg [9:0] diff;
  reg [5:0] shift;
  reg [63:0] moved, sum, lost;
  reg p_big;

  always @(posedge clk) begin
    s1_valid <= valid;
    s2_valid <= s1_valid;
    s3_valid <= s2_valid;
    z_valid <= s3_valid;

    // Stage 4: normalise so that the leading one is bit 62, round, pack.
    if (s3_valid)
      for (i = 0; i < W; i = i + 1) begin
        z[32*i+:32] <= s3_special[i] ? s3_value[i] : finish(s3_sum[i], s3_exp[i], s3_sign[i]);
      end

    // Stage 3: add or subtract. A negative difference arises only when no bit was lost.
    if (s2_valid)
      for (i = 0; i < W; i = i + 1) begin
        sum = s2_subtract[i] ? s2_big[i] - s2_small[i] : s2_big[i] + s2_small[i];
        s3_sign[i] = sum == 0 ? s2_sign[i][1] : s2_sign[i][0] ^ sum[63];
        s3_sum[i] = (sum[62:0] ^ {63{sum[63]}}) + {62'd0, sum[63]};
        s3_exp[i] = s2_exp[i];
        s3_special[i] = s2_special[i];
        s3_value[i] = s2_value[i];
      end

    // Stage 2: shift the operand with the smaller exponent.
    if (s1_valid)
      for (i = 0; i < W; i = i + 1) begin
        diff = s1_exp_p[i] - {2'd0, s1_exp_c[i]};
        p_big = s1_addend[i] == 0 || (!diff[9] && s1_product[i] != 0);
        diff = (diff ^ {10{diff[9]}}) + {9'd0, diff[9]};
        shift = diff > 10'd63 ? 6'd63 : diff[5:0];
        moved = p_big ? {3'd0, s1_addend[i], 37'd0} : {2'd0, s1_product[i], 14'd0};
        s2_big[i] = p_big ? {2'd0, s1_product[i], 14'd0} : {3'd0, s1_addend[i], 37'd0};
        lost = moved & ~(64'hffffffffffffffff << shift);
        s2_small[i] = (moved >> shift) | {63'd0, lost != 0};
        s2_exp[i] = p_big ? s1_exp_p[i] : {2'd0, s1_exp_c[i]};
        s2_subtract[i] = s1_sign[i][1] ^ s1_sign[i][0];
        s2_sign[i] = {s1_sign[i][1] & s1_sign[i][0], p_big ? s1_sign[i][1] : s1_sign[i][0]};
        s2_special[i] = s1_special[i];
        s2_value[i] = s1_value[i];
      end

    // Stage 1: unpack and multiply.
    if (valid)
      if (bypass)
        for (i = 0; i < W; i = i + 1) begin
          s1_special[i] = 1'b1;
          s1_value[i] = bypass_value[32*i+:32];
        end
      else
        for (i = 0; i < W; i = i + 1) begin
          va = a[32*i+:32];
          vb = b[32*i+:32];
          vc = c[32*i+:32];
          za = va[30:23] == 0;
          zb = vb[30:23] == 0;
          zc = vc[30:23] == 0;
          xa = va[30:23] == 8'hff;
          xb = vb[30:23] == 8'hff;
          xc = vc[30:23] == 8'hff;
          sign_p = va[31] ^ vb[31];
          inf_p = xa | xb;
          nan = (xa & va[22:0] != 0) | (xb & vb[22:0] != 0) | (xc & vc[22:0] != 0) |
              (xa & zb) | (xb & za) | (inf_p & xc & (sign_p ^ vc[31]));
          s1_special[i] = inf_p | xc;
          s1_value[i] = nan ? QNAN : {inf_p ? sign_p : vc[31], 8'hff, 23'd0};
          s1_product[i] = za | zb ? 48'd0 : {24'd0, 1'b1, va[22:0]} * {24'd0, 1'b1, vb[22:0]};
          s1_addend[i] = zc ? 24'd0 : {1'b1, vc[22:0]};
          s1_exp_p[i] = {2'd0, va[30:23]} + {2'd0, vb[30:23]} - 10'd127;
          s1_exp_c[i] = vc[30:23];
          s1_sign[i] = {sign_p, vc[31]};
        end
  end
  // verilator lint_on BLKSEQ
endmodule
