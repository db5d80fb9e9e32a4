// The cpu's layers with weights in forms of their own, on shapes that reach every path of every
// level of instructions, against the reference.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "backends/cpu/simd/half.h"
#include "support/every_level.h"

static uint32_t random_state = 1;

static uint32_t draw(void) {
  random_state = random_state * 1664525 + 1013904223;
  return random_state >> 8;
}

static float draw_float(void) {
  return (float)((int32_t)draw() - (1 << 23)) * 0x1p-23f;
}

static void fill(void* data, hy_dtype dtype, int64_t count) {
  for (int64_t i = 0; i < count; i++)
    hy__store1((char*)data + i * (int64_t)hy_dtype_size(dtype), dtype, draw_float());
}

// Within a few units of the type, and of f32 for each term summed.
static void layer_agrees(const hy__cpu_family* family, const hy_call* call, int64_t terms,
                         const char* what) {
  double unit = unit_of(call->out[0].dtype);
  tolerance limit = {unit, 2 * unit + 0x1p-22 * (double)terms};
  agree(family, *call, limit, limit, what);
}

enum { MAX_M = 40, MAX_N = 70, MAX_K = 2304 };
static unsigned char x_memory[MAX_M * MAX_K * 4], weights[MAX_N * MAX_K * 4];
static float scales[MAX_N * MAX_K], bias_memory[MAX_N];
static unsigned char out_memory[MAX_M * MAX_N * 4];

static void quantised(hy_dtype weight, int64_t m, int64_t n, int64_t k, int64_t group) {
  static const hy_dtype dtypes[] = {HY_F32, HY_BF16, HY_F16};
  for (int d = 0; d < 3; d++) {
    fill(x_memory, dtypes[d], m * k);
    fill(bias_memory, dtypes[d], n);
    fill(scales, HY_F32, n * (k / group));
    // No NaN among the 8-bit floats, and none of the largest exponents.
    for (int64_t i = 0; i < n * k; i++)
      weights[i] = (unsigned char)(draw() & (weight == HY_I8 || weight == HY_I4 ? 0xff : 0xbf));
    hy_tensor in[4] = {tensor(x_memory, dtypes[d], m, k), tensor(weights, weight, n, k),
                       tensor(scales, HY_F32, n, k / group), tensor(bias_memory, dtypes[d], n)};
    if (weight == HY_I4) in[1].layout = HY_LAYOUT_PACKED_I4;
    hy_tensor out = tensor(out_memory, dtypes[d], m, n);
    hy_call call = {.op = HY_OP_linear_quantized, .n_in = 4, .n_out = 1, .in = in, .out = &out};
    char what[96];
    snprintf(what, sizeof what, "%lldx%lldx%lld %s groups of %lld, %s", (long long)m, (long long)n,
             (long long)k, hy_dtype_name(weight), (long long)group, hy_dtype_name(dtypes[d]));
    layer_agrees(&hy__cpu_linear_quantized, &call, k * (weight == HY_I8 ? 128 : 8), what);
  }
}

static void quantised_weights_agree(void** state) {
  (void)state;
  static const hy_dtype types[] = {HY_I8, HY_I4, HY_F8E4M3, HY_F8E5M2};
  static const int64_t rows[] = {1, 3, 16, 40};
  static const int64_t sizes[][2] = {{896, 128},  {896, 896}, {896, 32},  {448, 64}, {200, 40},
                                     {96, 2},     {36, 12},   {160, 32},  {30, 10},  {42, 3},
                                     {1536, 512}, {2080, 32}, {2304, 128}};
  for (int t = 0; t < 4; t++) {
    for (int r = 0; r < 4; r++) {
      for (int s = 0; s < 13; s++)
        quantised(types[t], rows[r], r % 2 ? 70 : 35, sizes[s][0], sizes[s][1]);
    }
  }
}

// A NaN among the weights makes its own row NaN, wherever in the row it is, and no other.
static void a_nan_stays_in_its_row(void** state) {
  (void)state;
  static const hy_dtype types[] = {HY_F8E4M3, HY_F8E5M2};
  static const int at[] = {0, 63, 64, 127, 128, 150, 171};
  enum { N = 9, K = 172, ROW = 4 };
  for (int i = 0; i < 28; i++) {
    int position = at[i % 7];
    fill(x_memory, HY_F32, K);
    fill(scales, HY_F32, N);
    for (int k = 0; k < N * K; k++) weights[k] = (unsigned char)(draw() & 0xbf);
    weights[ROW * K + position] = i / 14 ? 0x7f : 0xff;
    ((float*)x_memory)[position] = 0;
    hy_tensor in[4] = {tensor(x_memory, HY_F32, 1, K), tensor(weights, types[i / 7 % 2], N, K),
                       tensor(scales, HY_F32, N, 1), hy_tensor_absent()};
    hy_tensor out = tensor(out_memory, HY_F32, 1, N);
    hy_call call = {.op = HY_OP_linear_quantized, .n_in = 4, .n_out = 1, .in = in, .out = &out};
    char what[64];
    snprintf(what, sizeof what, "%s with NaN at %d", hy_dtype_name(types[i / 7 % 2]), position);
    layer_agrees(&hy__cpu_linear_quantized, &call, K * 8, what);
  }
}

// Every byte of every type, from columns and to ends of all kinds, has the bits that portable C
// gives it.
static void dequantises_alike(void** state) {
  (void)state;
  static const hy_dtype types[] = {HY_I8, HY_I4, HY_F8E4M3, HY_F8E5M2};
  static const int64_t groups[] = {14, 21, 64, 1344};
  enum { K = 1344 };
  static float want[K], got[K];
  for (int i = 0; i < K; i++) weights[i] = (unsigned char)i;
  fill(scales, HY_F32, K);
  for (int c = 0; c < 16; c++) {
    hy__quantized w = {weights, types[c / 4], 1, K, K, scales, K, groups[c % 4]};
    for (int64_t first = 0; first < 48; first += 8) {
      int64_t count = K - 3 * first;
      memset(want, UNWRITTEN, sizeof want);
      kernels_up_to(ISA_SCALAR)->quant.dequantize(&w, 0, first, count, want);
      for (isa_level level = ISA_AVX2; level < ISA_LEVELS; level++) {
        memset(got, UNWRITTEN, sizeof got);
        kernels_up_to(level)->quant.dequantize(&w, 0, first, count, got);
        for (int64_t i = 0; i < K; i++) {
          bool same = memcmp(&got[i], &want[i], sizeof *got) == 0;
          if (!same && !(isnan(got[i]) && isnan(want[i])))
            fail_msg("%s in groups of %lld, %s: number %lld from %lld is %.9g and should be %.9g",
                     hy_dtype_name(types[c / 4]), (long long)groups[c % 4],
                     hy__isa_name(isa_up_to(level)), (long long)i, (long long)first, (double)got[i],
                     (double)want[i]);
        }
      }
    }
  }
}

// The op, into rows with gaps and columns of every step.
static void dequantised_rows_agree(void** state) {
  (void)state;
  static const hy_dtype types[] = {HY_I8, HY_I4, HY_F8E4M3, HY_F8E5M2};
  static const hy_dtype to[] = {HY_F32, HY_BF16, HY_F16};
  static const int64_t sizes[][3] = {{40, 896, 128}, {3, 70, 14}, {1, 2304, 32}, {30, 1344, 1344}};
  for (int c = 0; c < 96; c++) {
    hy_dtype type = types[c % 4], result = to[c / 4 % 3];
    const int64_t* size = sizes[c / 12 % 4];
    int64_t m = size[0], k = size[1], groups = k / size[2];
    for (int64_t i = 0; i < m * k; i++)
      weights[i] = (unsigned char)(draw() & (type == HY_I8 || type == HY_I4 ? 0xff : 0xbf));
    fill(scales, HY_F32, m * groups);
    hy_tensor in[2] = {tensor(weights, type, m, k), tensor(scales, HY_F32, m, groups)};
    if (type == HY_I4) in[0].layout = HY_LAYOUT_PACKED_I4;
    hy_tensor out = tensor(x_memory, result, m, k);
    if (c >= 48) out.stride[1] = m, out.stride[0] = 1;
    hy_call call = {.op = HY_OP_dequantize, .n_in = 2, .n_out = 1, .in = in, .out = &out};
    call.attrs.cast.dtype = result;
    char what[96];
    snprintf(what, sizeof what, "%lldx%lld %s in groups of %lld to %s", (long long)m, (long long)k,
             hy_dtype_name(type), (long long)size[2], hy_dtype_name(result));
    tolerance limit = {unit_of(result), 0x1p-24};
    agree(&hy__cpu_dequantize, call, limit, limit, what);
  }
}

// Kernels that turn x into integers keep its digits whatever its size, and what is not finite.
static void nibbles_meet_any_number(void** state) {
  (void)state;
  static const float factors[] = {0x1p-110f, 1, 0x1p90f}, odd[] = {0, INFINITY, NAN};
  enum { N = 35, K = 2080, GROUP = 32 };
  float* x = (float*)x_memory;
  for (int i = 0; i < 9; i++) {
    float factor = factors[i / 3];
    fill(x, HY_F32, K);
    fill(scales, HY_F32, N * (K / GROUP));
    for (int k = 0; k < K; k++) x[k] *= factor;
    if (i % 3 > 0) x[K - 7] = odd[i % 3];
    for (int k = 0; k < N * K / 2; k++) weights[k] = (unsigned char)(draw() | 0x11);  // no zeros
    hy_tensor in[4] = {tensor(x, HY_F32, 1, K), tensor(weights, HY_I4, N, K),
                       tensor(scales, HY_F32, N, K / GROUP), hy_tensor_absent()};
    in[1].layout = HY_LAYOUT_PACKED_I4;
    hy_tensor out = tensor(out_memory, HY_F32, 1, N);
    hy_call call = {.op = HY_OP_linear_quantized, .n_in = 4, .n_out = 1, .in = in, .out = &out};
    char what[96];
    snprintf(what, sizeof what, "int4 times numbers of %g, one of them %g", (double)factor,
             (double)x[K - 7]);
    tolerance limit = {unit_of(HY_F32), (double)factor * 0x1p-22 * K};
    agree(&hy__cpu_linear_quantized, call, limit, limit, what);
  }
}

static void int8(hy_dtype weight, hy_dtype to, int64_t m, int64_t n, int64_t k, int64_t x_group,
                 int64_t w_group) {
  static float x_scales[MAX_M * MAX_K];
  fill(bias_memory, to, n);
  fill(scales, HY_F32, n * (k / w_group));
  fill(x_scales, HY_F32, m * (k / x_group));
  for (int64_t i = 0; i < n * k; i++) weights[i] = (unsigned char)draw();
  for (int64_t i = 0; i < m * k; i++) x_memory[i] = (unsigned char)draw();
  // The least numbers, whose negatives a byte does not hold.
  memset(weights, weight == HY_I4 ? 0x88 : 0x80, (size_t)(weight == HY_I4 ? k / 2 : k));
  memset(x_memory, 0x80, (size_t)k);
  for (int64_t i = 0; i < n * (k / w_group); i++) scales[i] *= 0x1p-7f;
  for (int64_t i = 0; i < m * (k / x_group); i++) x_scales[i] *= 0x1p-7f;
  hy_tensor in[5] = {tensor(x_memory, HY_I8, m, k), tensor(x_scales, HY_F32, m, k / x_group),
                     tensor(weights, weight, n, k), tensor(scales, HY_F32, n, k / w_group),
                     tensor(bias_memory, to, n)};
  hy_tensor out = tensor(out_memory, to, m, n);
  hy_call call = {.op = HY_OP_linear_int8,
                  .n_in = 5,
                  .n_out = 1,
                  .in = in,
                  .out = &out,
                  .attrs = {.cast = {to}}};
  char what[96];
  snprintf(what, sizeof what, "%lldx%lldx%lld int8 times %s, groups of %lld and %lld, %s",
           (long long)m, (long long)n, (long long)k, hy_dtype_name(weight), (long long)x_group,
           (long long)w_group, hy_dtype_name(to));
  layer_agrees(&hy__cpu_linear_int8, &call, k, what);
}

static void integer_products_agree(void** state) {
  (void)state;
  static const int64_t rows[] = {1, 2, 3, 4, 5, 14, 16, 33, 40};
  static const int64_t sizes[][3] = {
      {896, 128, 128}, {896, 896, 32}, {896, 32, 896}, {448, 64, 64}, {448, 448, 448},
      {200, 40, 40},   {96, 2, 2},     {36, 12, 36},   {160, 32, 32}, {160, 16, 32},
      {30, 10, 30},    {384, 128, 32}, {384, 32, 64},  {96, 24, 32},  {1536, 512, 512},
      {576, 192, 192}, {896, 32, 32},  {640, 32, 64},  {896, 32, 128}};
  for (int r = 0; r < 9; r++) {
    for (int s = 0; s < 19; s++) {
      int64_t n = r % 2 ? 70 : 35;
      int8(HY_I8, s % 2 ? HY_F32 : HY_BF16, rows[r], n, sizes[s][0], sizes[s][1], sizes[s][2]);
      int8(HY_I4, s % 2 ? HY_F16 : HY_F32, rows[r], n, sizes[s][0], sizes[s][1], sizes[s][2]);
    }
  }
}

// A product long enough to be cut for cores that are not equally fast: parts of x and panels in any
// order on many threads, the bits of one.
static void many_threads_agree(void** state) {
  (void)state;
  enum { M = 500, N = 200, K = 1536, X_GROUP = 32, W_GROUP = 128, THREADS = 12 };
  static unsigned char x[M * K], w[N * K], want[M * N * 2], got[M * N * 2];
  static float x_scales[M * (K / X_GROUP)], w_scales[N * (K / W_GROUP)];
  for (int i = 0; i < M * K; i++) x[i] = (unsigned char)draw();
  for (int i = 0; i < N * K; i++) w[i] = (unsigned char)draw();
  fill(x_scales, HY_F32, M * (K / X_GROUP));
  fill(w_scales, HY_F32, N * (K / W_GROUP));
  hy_tensor in[5] = {tensor(x, HY_I8, M, K), tensor(x_scales, HY_F32, M, K / X_GROUP),
                     tensor(w, HY_I8, N, K), tensor(w_scales, HY_F32, N, K / W_GROUP)};
  hy_tensor out = tensor(want, HY_BF16, M, N);
  hy_call call = {.op = HY_OP_linear_int8,
                  .n_in = 5,
                  .n_out = 1,
                  .in = in,
                  .out = &out,
                  .attrs = {.cast = {HY_BF16}}};
  int threads = hy__pool_threads();
  for (isa_level level = ISA_SCALAR; level < ISA_LEVELS; level++) {
    for (int several = 0; several < 2; several++) {
      hy__pool_set_threads(several ? THREADS : 1);
      out.data = several ? got : want;
      memset(out.data, UNWRITTEN, sizeof want);
      assert_int_equal((hy__cpu_linear_int8.run)(kernels_up_to(level), &call), HY_OK);
    }
    assert_memory_equal(got, want, sizeof want);
  }
  hy__pool_set_threads(threads);
}

// Numbers are equal or, where a quotient is on the border, one apart; scales are equal. Every level
// gives the same bytes.
static void quantises_alike(void** state) {
  (void)state;
  static const int64_t sizes[][3] = {{1, 896, 128}, {3, 70, 70}, {5, 96, 32}, {2, 36, 6}};
  static const hy_dtype from[] = {HY_F32, HY_BF16, HY_F16}, to[] = {HY_I8, HY_I4};
  static unsigned char want[MAX_M * MAX_K], got[MAX_M * MAX_K], scalar[MAX_M * MAX_K];
  float want_scale[600], got_scale[600];
  for (int c = 0; c < 24; c++) {
    const int64_t* size = sizes[c % 4];
    int64_t m = size[0], k = size[1], groups = k / size[2];
    hy_dtype x_type = from[c / 4 % 3], q_type = to[c / 12];
    fill(x_memory, x_type, m * k);
    if (c % 2) hy__store1(x_memory, x_type, c % 3 ? NAN : INFINITY);
    hy_tensor in = tensor(x_memory, x_type, m, k);
    hy_tensor out[2] = {tensor(want, q_type, m, k), tensor(want_scale, HY_F32, m, groups)};
    hy_call call = {.op = HY_OP_quantize, .n_in = 1, .n_out = 2, .in = &in, .out = out};
    call.attrs.quantize = (hy_attrs_quantize){.dtype = q_type, .group = size[2]};
    if (q_type == HY_I4) out[0].layout = HY_LAYOUT_PACKED_I4;
    assert_int_equal(hy__reference(&call), HY_OK);
    out[0].data = got;
    out[1].data = got_scale;
    for (isa_level level = ISA_SCALAR; level < ISA_LEVELS; level++) {
      memset(got, 0x55, sizeof got);
      memset(got_scale, UNWRITTEN, sizeof got_scale);
      assert_int_equal(hy__cpu_quantize.supports(&call), HY_SUPPORT_YES);
      assert_int_equal((hy__cpu_quantize.run)(kernels_up_to(level), &call), HY_OK);
      if (level == ISA_SCALAR) memcpy(scalar, got, sizeof got);
      assert_memory_equal(got, scalar, sizeof got);
      for (int64_t i = 0; i < m * groups; i++)
        assert_true(is_close(got_scale[i], want_scale[i], (tolerance){0, 0}));
      for (int64_t i = 0; i < m * k; i++) {
        int shift = q_type == HY_I4 ? (int)(i % 2) * 4 : 0;
        int64_t at = q_type == HY_I4 ? i / 2 : i;
        int left = q_type == HY_I4 ? (((want[at] >> shift) & 15) ^ 8) - 8 : (int8_t)want[at];
        int right = q_type == HY_I4 ? (((got[at] >> shift) & 15) ^ 8) - 8 : (int8_t)got[at];
        if (left - right > 1 || right - left > 1)
          fail_msg("case %d, %s: number %lld is %d and should be %d", c,
                   hy__isa_name(isa_up_to(level)), (long long)i, right, left);
      }
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(quantised_weights_agree), cmocka_unit_test(a_nan_stays_in_its_row),
      cmocka_unit_test(dequantises_alike),       cmocka_unit_test(nibbles_meet_any_number),
      cmocka_unit_test(integer_products_agree),  cmocka_unit_test(quantises_alike),
      cmocka_unit_test(dequantised_rows_agree),  cmocka_unit_test(many_threads_agree),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
