// echo_npu_fma_lanes - the arithmetic of W fused multiply-add lanes, z = a * b + c, in four stages.
//
// The exact sum is never wider than 64 bits: the operand with the larger exponent is placed with its
// leading one at bit 60 or 61, the other is shifted right into a sticky bit. A shift that loses bits is
// longer than 13, and then at most one leading bit cancels, so the sticky bit stays below the guard bit.
// A result that is known at once (NaN, infinity, bypass) travels as a product to which nothing is added.
//
// Each stage is a loop over the lanes, called from one clocked block, last stage first: a stage reads what
// the one before it left in the previous cycle. The arrays are private to the block, so blocking assignment
// makes them plain registers. Everything in a loop is a 64-bit word, and bits are taken with masks, because
// then the compiler of a simulator runs eight lanes in one vector; synthesis drops the bits that stay zero.
/* verilator tracing_off */
module echo_npu_fma_lanes #(
    parameter W = 16,
    parameter AW = W  // lanes of a: W, or 1 that all share
) (
    input wire clk,
    input wire [3:0] step,  // which stages have work, the first in bit 0
    input wire [32*AW-1:0] a,
    input wire [32*W-1:0] b,
    input wire [32*W-1:0] c,
    input wire bypass,
    input wire [32*W-1:0] bypass_value,
    output reg [32*W-1:0] z
);
  localparam [63:0] QNAN = 64'h7fc00000, SIGN = 64'h80000000, MAGNITUDE = 64'h7fffffff, INF = 64'h7f800000,
      FRACTION = 64'h007fffff, ONE = 64'h00800000;

  // verilator lint_off BLKSEQ
  // What goes with the numbers of a stage: 31 the sign of the product, of the larger operand, of the sum; 30 the
  // result is known; 9..0 the exponent; in stage 2 also 29 subtract, 28 the sign if the sum is zero.
  localparam [63:0] KNOWN = 64'h40000000, RANGE = 64'h3ff;
  reg [63:0] s1_product[0:W-1], s1_addend[0:W-1], s1_info[0:W-1];
  reg [63:0] s2_big[0:W-1], s2_small[0:W-1], s2_info[0:W-1];
  reg [63:0] s3_sum[0:W-1], s3_info[0:W-1];

  // Unpack and multiply.
  task automatic multiply;
    reg [31:0] i;
    reg [63:0] va, vb, vc, ea, eb, ec, sign, value;
    reg known, nan;
    for (i = 0; i < W; i = i + 1) begin
      va = {32'd0, a[AW==1?0 : 32*i+:32]};
      vb = {32'd0, b[32*i+:32]};
      vc = {32'd0, c[32*i+:32]};
      ea = va & INF;
      eb = vb & INF;
      ec = vc & INF;
      sign = (va ^ vb) & SIGN;
      known = ea == INF || eb == INF || ec == INF;
      nan = (va & MAGNITUDE) > INF || (vb & MAGNITUDE) > INF || (vc & MAGNITUDE) > INF || (ea == INF && eb == 0) ||
          (eb == INF && ea == 0) || ((ea == INF || eb == INF) && vc == (INF | (sign ^ SIGN)));
      value = nan ? QNAN : ec == INF ? vc : sign | INF;
      s1_product[i] = known ? value : ea == 0 || eb == 0 ? 64'd0 : ((va & FRACTION) | ONE) * ((vb & FRACTION) | ONE);
      s1_addend[i] = known ? 64'd0 : ec == 0 ? vc & SIGN : vc;
      s1_info[i] = known ? KNOWN : sign | (((ea >> 23) + (eb >> 23) - 64'd127) & RANGE);
    end
  endtask

  task automatic carry;
    reg [31:0] i;
    for (i = 0; i < W; i = i + 1) begin
      s1_product[i] = {32'd0, bypass_value[32*i+:32]};
      s1_addend[i] = 0;
      s1_info[i] = KNOWN;
    end
  endtask

  // Shift the operand with the smaller exponent.
  task automatic align;
    reg [31:0] i, s;
    reg [63:0] info, vc, ec, product, addend, distance, shift, moved, lost;
    reg p_big;
    for (i = 0; i < W; i = i + 1) begin
      info = s1_info[i];
      vc = s1_addend[i];
      ec = (vc & INF) >> 23;
      product = s1_product[i] << 14;
      addend = ((vc & FRACTION) | (ec == 0 ? 64'd0 : ONE)) << 37;
      distance = (info - ec) & RANGE;
      p_big = addend == 0 || (distance < 64'd512 && product != 0);
      distance = distance < 64'd512 ? distance : 64'd1024 - distance;
      shift = distance > 64'd63 ? 64'd63 : distance;
      moved = p_big ? addend : product;
      lost = 0;
      for (s = 32; s != 0; s = s >> 1)
        if ((shift & {32'd0, s}) != 0) begin
          lost = lost | (moved & ~(~64'd0 << s[5:0]));
          moved = moved >> s[5:0];
        end
      s2_small[i] = moved | (lost != 0 ? 64'd1 : 64'd0);
      s2_big[i] = p_big ? product : addend;
      s2_info[i] = (p_big ? info & (SIGN | RANGE) : (vc & SIGN) | ec) | (info & KNOWN) | ((info ^ vc) & SIGN) >> 2 |
          (info & vc & SIGN) >> 3;
    end
  endtask

  // Add or subtract. A negative difference arises only when no bit was lost.
  task automatic add;
    reg [31:0] i;
    reg [63:0] info, subtract, sum, negative;
    for (i = 0; i < W; i = i + 1) begin
      info = s2_info[i];
      subtract = info >> 29 & 64'd1;
      sum = s2_big[i] + (s2_small[i] ^ (64'd0 - subtract)) + subtract;
      negative = sum >> 63;
      s3_sum[i] = ((sum ^ (64'd0 - negative)) + negative) & ~(64'd1 << 63);
      s3_info[i] = (info & (KNOWN | RANGE)) | ((sum == 0 ? info << 3 : info ^ negative << 31) & SIGN);
    end
  endtask

  // Normalise so that the leading one is bit 62, round, pack.
  task automatic finish;
    reg [31:0] i, s;
    reg [63:0] info, n, zeros, e, r;
    for (i = 0; i < W; i = i + 1) begin
      info = s3_info[i];
      n = s3_sum[i];
      zeros = 0;
      for (s = 32; s != 0; s = s >> 1)
        if (n < 64'd1 << (6'd63 - s[5:0])) begin
          n = n << s[5:0];
          zeros = zeros | {32'd0, s};
        end
      e = ((info & RANGE) + 64'd2 - zeros) & RANGE;
      r = (e << 23 | (n >> 39 & FRACTION)) + (n >> 38 & ((n & 64'hbfffffffff) != 0 ? 64'd1 : 64'd0));
      r = n < 64'd1 << 62 || e >= 64'd512 || r < ONE ? 64'd0 : r > INF ? INF : r;
      r = (info & KNOWN) != 0 ? s3_sum[i] >> 14 : (info & SIGN) | r;
      z[32*i+:32] <= r[31:0];
    end
  endtask

  always @(posedge clk) begin
    if (step[3]) finish;
    if (step[2]) add;
    if (step[1]) align;
    if (step[0]) begin
      if (bypass) carry;
      else multiply;
    end
  end
  // verilator lint_on BLKSEQ
endmodule
