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
// Each stage is a loop over the lanes, called from one clocked block, last stage first: a stage reads what
// the one before it left in the previous cycle. The arrays are private to the block, so blocking assignment
// makes them plain registers, and a simulator runs a loop instead of W copies of the code.
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
    output reg z_valid,
    output reg [32*W-1:0] z
);
  localparam [31:0] QNAN = 32'h7fc00000;

  reg s1_valid, s2_valid, s3_valid;

  // verilator lint_off BLKSEQ
  // Stage 1: product, exponents, special values.
  reg [47:0] s1_product[0:W-1];
  reg [23:0] s1_addend[0:W-1];
  reg [20:0] s1_info[0:W-1];  // special, signs of product and addend, exponents of both (10 and 8 bits)
  reg [31:0] s1_value[0:W-1];
  // Stage 2: aligned operands.
  reg [63:0] s2_big[0:W-1];
  reg [63:0] s2_small[0:W-1];
  reg [13:0] s2_info[0:W-1];  // special, subtract, sign of a zero result, sign of the larger operand, exponent
  reg [31:0] s2_value[0:W-1];
  // Stage 3: magnitude of the sum.
  reg [62:0] s3_sum[0:W-1];
  reg [11:0] s3_info[0:W-1];  // special, sign, exponent
  reg [31:0] s3_value[0:W-1];

  // Unpack and multiply.
  task automatic multiply;
    integer i;
    reg [31:0] va, vb, vc;
    reg za, zb, xa, xb, xc, nan, inf_p, sign_p;
    reg [9:0] exponent;
    for (i = 0; i < W; i = i + 1) begin
      va = a[32*(AW==1?0 : i)+:32];
      vb = b[32*i+:32];
      vc = c[32*i+:32];
      za = va[30:23] == 0;
      zb = vb[30:23] == 0;
      xa = va[30:23] == 8'hff;
      xb = vb[30:23] == 8'hff;
      xc = vc[30:23] == 8'hff;
      sign_p = va[31] ^ vb[31];
      inf_p = xa | xb;
      exponent = {2'd0, va[30:23]} + {2'd0, vb[30:23]} - 10'd127;
      s1_product[i] = {48{!(za | zb)}} & ({24'd0, 1'b1, va[22:0]} * {24'd0, 1'b1, vb[22:0]});
      s1_addend[i] = {24{vc[30:23] != 0}} & {1'b1, vc[22:0]};
      s1_info[i] = {inf_p | xc, sign_p, vc[31], exponent, vc[30:23]};
      if (inf_p | xc) begin
        nan = (xa & va[22:0] != 0) | (xb & vb[22:0] != 0) | (xc & vc[22:0] != 0) |
            (xa & zb) | (xb & za) | (inf_p & xc & (sign_p ^ vc[31]));
        s1_value[i] = nan ? QNAN : {inf_p ? sign_p : vc[31], 8'hff, 23'd0};
      end
    end
  endtask

  task automatic carry;
    integer i;
    for (i = 0; i < W; i = i + 1) begin
      s1_info[i] = {1'b1, 20'd0};
      s1_value[i] = bypass_value[32*i+:32];
    end
  endtask

  // Shift the operand with the smaller exponent.
  task automatic align;
    integer i;
    reg [20:0] info;
    reg [9:0] diff;
    reg [5:0] shift;
    reg [63:0] product, addend, moved, lost;
    reg p_big;
    for (i = 0; i < W; i = i + 1) begin
      info = s1_info[i];
      product = {2'd0, s1_product[i], 14'd0};
      addend = {3'd0, s1_addend[i], 37'd0};
      diff = info[17:8] - {2'd0, info[7:0]};
      p_big = addend == 0 || (!diff[9] && product != 0);
      diff = (diff ^ {10{diff[9]}}) + {9'd0, diff[9]};
      shift = diff > 10'd63 ? 6'd63 : diff[5:0];
      moved = p_big ? addend : product;
      lost = moved & ~(64'hffffffffffffffff << shift);
      s2_big[i] = p_big ? product : addend;
      s2_small[i] = (moved >> shift) | {63'd0, lost != 0};
      s2_info[i] = {info[20], info[19] ^ info[18], info[19] & info[18], p_big ? info[19] : info[18],
          p_big ? info[17:8] : {2'd0, info[7:0]}};
      if (info[20]) s2_value[i] = s1_value[i];
    end
  endtask

  // Add or subtract. A negative difference arises only when no bit was lost.
  task automatic add;
    integer i;
    reg [13:0] info;
    reg [63:0] sum;
    for (i = 0; i < W; i = i + 1) begin
      info = s2_info[i];
      sum = s2_big[i] + (s2_small[i] ^ {64{info[12]}}) + {63'd0, info[12]};
      s3_sum[i] = (sum[62:0] ^ {63{sum[63]}}) + {62'd0, sum[63]};
      s3_info[i] = {info[13], sum == 0 ? info[11] : info[10] ^ sum[63], info[9:0]};
      if (info[13]) s3_value[i] = s2_value[i];
    end
  endtask

  // Normalise so that the leading one is bit 62, round, pack.
  task automatic finish;
    integer i;
    reg [11:0] info;
    reg [62:0] n;
    reg l5, l4, l3, l2, l1, l0;
    reg [9:0] e;
    reg [33:0] r;
    reg [31:0] result;
    for (i = 0; i < W; i = i + 1) begin
      info = s3_info[i];
      n = s3_sum[i];
      l5 = n[62:31] == 0;
      n = n << {l5, 5'd0};
      l4 = n[62:47] == 0;
      n = n << {l4, 4'd0};
      l3 = n[62:55] == 0;
      n = n << {l3, 3'd0};
      l2 = n[62:59] == 0;
      n = n << {l2, 2'd0};
      l1 = n[62:61] == 0;
      n = n << {l1, 1'd0};
      l0 = !n[62];
      n = n << l0;
      e = info[9:0] + 10'd2 - {4'd0, l5, l4, l3, l2, l1, l0};
      r = {e[9], e, n[61:39]} + {33'd0, n[38] & (n[39] | (n[37:0] != 0))};
      if (info[11]) result = s3_value[i];
      else if (!n[62] || r[33] || r[32:23] == 0) result = {info[10], 31'd0};
      else if (r[32:23] >= 10'd255) result = {info[10], 8'hff, 23'd0};
      else result = {info[10], r[30:0]};
      z[32*i+:32] <= result;
    end
  endtask

  always @(posedge clk) begin
    s1_valid <= valid;
    s2_valid <= s1_valid;
    s3_valid <= s2_valid;
    z_valid <= s3_valid;
    if (s3_valid) finish;
    if (s2_valid) add;
    if (s1_valid) align;
    if (valid) begin
      if (bypass) carry;
      else multiply;
    end
  end
  // verilator lint_on BLKSEQ
endmodule
