// The comparison by which kernels are tested, itself tested: kernels that are wrong in the ways
// that kernels are wrong in do not pass.
#include "support/every_level.h"

static void nothing_unwritten_is_close(void** state) {
  (void)state;
  tolerance loose = {1, 1e30};
  assert_true(is_close(1.5, 1, (tolerance){0.5, 0}));
  assert_true(is_close(1.5, 1, (tolerance){0, 0.5}));
  assert_false(is_close(1.5, 1, (tolerance){0.4, 0}));
  assert_false(is_close(NAN, 1, loose));
  assert_false(is_close(1, NAN, loose));
  assert_true(is_close(NAN, NAN, (tolerance){0, 0}));
  assert_false(is_close(INFINITY, 1, loose));
  assert_false(is_close(1, INFINITY, loose));
  assert_false(is_close(-INFINITY, INFINITY, loose));
  assert_true(is_close(INFINITY, INFINITY, (tolerance){0, 0}));
}

static void values_of_every_type(void** state) {
  (void)state;
  assert_true(value_of((uint16_t[]){0x3c00}, HY_F16) == 1);
  assert_true(value_of((uint16_t[]){0xc100}, HY_F16) == -2.5);
  assert_true(value_of((uint16_t[]){1}, HY_F16) == 0x1p-24);
  assert_true(value_of((uint16_t[]){0xfc00}, HY_F16) == -INFINITY);
  assert_true(isnan(value_of((uint16_t[]){UNWRITTEN * 0x101}, HY_F16)));
  assert_true(value_of((uint16_t[]){0xbf80}, HY_BF16) == -1);
  assert_true(isnan(value_of((uint16_t[]){UNWRITTEN * 0x101}, HY_BF16)));
  assert_true(value_of((float[]){0.5f}, HY_F32) == 0.5);
  assert_true(value_of((double[]){0.1}, HY_F64) == 0.1);
  assert_true(value_of((int64_t[]){-7}, HY_I64) == -7);
  assert_true(value_of((int32_t[]){-7}, HY_I32) == -7);
  assert_true(value_of((int8_t[]){-7}, HY_I8) == -7);
  assert_true(value_of((uint8_t[]){200}, HY_U8) == 200);
}

// ---- families that multiply matrices, each in its own way ----

enum { N = 6 };
static float a[N * N], b[N * N], memory[N * (N + 1)];

static hy_support takes_all(const hy_call* call) {
  (void)call;
  return HY_SUPPORT_YES;
}
static hy_support takes_nothing(const hy_call* call) {
  (void)call;
  return HY_SUPPORT_NO_SHAPE;
}

static float* element(const hy_call* call, int64_t i) {
  return (float*)call->out[0].data + offset_of(&call->out[0], i);
}

static hy_status run_right(const hy__cpu_kernels* kernels, const hy_call* call) {
  (void)kernels;
  return hy__reference(call);
}
static hy_status run_nothing(const hy__cpu_kernels* kernels, const hy_call* call) {
  (void)kernels, (void)call;
  return HY_OK;
}
static hy_status run_nan(const hy__cpu_kernels* kernels, const hy_call* call) {
  HY_TRY(run_right(kernels, call));
  *element(call, 5) = NAN;
  return HY_OK;
}
static hy_status run_without_the_last(const hy__cpu_kernels* kernels, const hy_call* call) {
  HY_TRY(run_right(kernels, call));
  memset(element(call, N * N - 1), UNWRITTEN, sizeof(float));
  return HY_OK;
}
static hy_status run_a_bit_off(const hy__cpu_kernels* kernels, const hy_call* call) {
  HY_TRY(run_right(kernels, call));
  *element(call, 7) *= 1.001f;
  return HY_OK;
}
static hy_status run_over_the_edge(const hy__cpu_kernels* kernels, const hy_call* call) {
  HY_TRY(run_right(kernels, call));
  element(call, N - 1)[1] = 0;
  return HY_OK;
}
static hy_status run_by_threads(const hy__cpu_kernels* kernels, const hy_call* call) {
  HY_TRY(run_right(kernels, call));
  if (hy__pool_threads() > 1) *element(call, 3) = nextafterf(*element(call, 3), 100);
  return HY_OK;
}
static hy_status run_wrong_in_avx512(const hy__cpu_kernels* kernels, const hy_call* call) {
  HY_TRY(run_right(kernels, call));
  if (kernels == kernels_up_to(ISA_AVX512)) *element(call, 0) = 0;
  return HY_OK;
}
static hy_status run_and_fail(const hy__cpu_kernels* kernels, const hy_call* call) {
  (void)kernels, (void)call;
  return hy_fail(HY_INTERNAL, "it does not want to");
}

static const char* judge(hy_support (*supports)(const hy_call*),
                         hy_status (*run)(const hy__cpu_kernels*, const hy_call*)) {
  hy__cpu_family family = {supports, run};
  hy_tensor in[2] = {tensor(a, HY_F32, N, N), tensor(b, HY_F32, N, N)};
  hy_tensor out = tensor(memory, HY_F32, N, N);
  out.stride[0] = N + 1;
  hy_call call = {.op = HY_OP_mm, .n_in = 2, .n_out = 1, .in = in, .out = &out};
  return disagreement(&family, call, (tolerance){0, 0}, (tolerance){1e-5, 1e-5});
}

static void wrong_kernels_do_not_pass(void** state) {
  (void)state;
  for (int i = 0; i < N * N; i++) {
    a[i] = (float)(i % 5) + 1;
    b[i] = (float)(i % 7) + 1;
  }
  assert_null(judge(takes_all, run_right));
  assert_non_null(strstr(judge(takes_nothing, run_right), "not supported"));
  assert_non_null(strstr(judge(takes_all, run_nothing), "element 0 of output 0"));
  assert_non_null(strstr(judge(takes_all, run_nan), "element 5 of output 0"));
  assert_non_null(strstr(judge(takes_all, run_without_the_last), "element 35 of output 0"));
  assert_non_null(strstr(judge(takes_all, run_a_bit_off), "element 7 of output 0"));
  assert_non_null(strstr(judge(takes_all, run_over_the_edge), "between its elements"));
  assert_non_null(strstr(judge(takes_all, run_by_threads), "one thread and three"));
  assert_non_null(strstr(judge(takes_all, run_wrong_in_avx512), "element 0 of output 0"));
  assert_non_null(strstr(judge(takes_all, run_and_fail), "it does not want to"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(nothing_unwritten_is_close),
      cmocka_unit_test(values_of_every_type),
      cmocka_unit_test(wrong_kernels_do_not_pass),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
