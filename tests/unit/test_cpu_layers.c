// The cpu's layers with weights in forms of their own, on shapes that reach every path of every
// level of instructions, against the reference.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "backends/cpu/half.h"
#include "backends/cpu/kernels.h"
#include "reference_call.h"

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

// Every level's result against the reference's: within a few units of the type, and of f32 for each
// term summed.
static void agree(const hy__cpu_family* family, const hy_call* call, int64_t terms,
                  const char* what) {
  static unsigned char want[1 << 18], got[1 << 18];
  hy_tensor out = call->out[0];
  int64_t count = hy_tensor_numel(&out), size = (int64_t)hy_dtype_size(out.dtype);
  assert_true((size_t)(count * size) <= sizeof want);
  hy_call again = *call;
  again.out = &out;
  out.data = want;
  assert_int_equal(hy__reference(&again), HY_OK);
  out.data = got;
  double unit = out.dtype == HY_F32 ? 0x1p-23 : out.dtype == HY_F16 ? 0x1p-10 : 0x1p-7;
  for (int level = HY__ISA_SCALAR; level <= HY__ISA_AVX512; level++) {
    memset(got, 0xff, sizeof got);
    assert_int_equal(family->supports(&again), HY_SUPPORT_YES);
    assert_int_equal((family->run)(hy__cpu_kernels_up_to((hy__isa_level)level), &again), HY_OK);
    for (int64_t i = 0; i < count; i++) {
      double x = (double)hy__load1(want + i * size, out.dtype);
      double y = (double)hy__load1(got + i * size, out.dtype);
      if (fabs(x - y) > unit * (2 + fabs(x)) + 0x1p-22 * (double)terms)
        fail_msg("%s, %s: element %lld is %g and should be %g", what,
                 hy__isa_name((hy__isa_level)level), (long long)i, y, x);
    }
  }
}

enum { MAX_M = 40, MAX_N = 70, MAX_K = 896 };
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
    agree(&hy__cpu_quantized, &call, k * (weight == HY_I8 ? 128 : 8), what);
  }
}

static void quantised_weights_agree(void** state) {
  (void)state;
  static const hy_dtype types[] = {HY_I8, HY_I4, HY_F8E4M3, HY_F8E5M2};
  static const int64_t rows[] = {1, 3, 16, 40};
  static const int64_t sizes[][2] = {{896, 128}, {896, 896}, {896, 32}, {448, 64}, {200, 40},
                                     {96, 2},    {36, 12},   {160, 32}, {30, 10},  {42, 3}};
  for (int t = 0; t < 4; t++) {
    for (int r = 0; r < 4; r++) {
      for (int s = 0; s < 10; s++)
        quantised(types[t], rows[r], r % 2 ? 70 : 35, sizes[s][0], sizes[s][1]);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(quantised_weights_agree),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
