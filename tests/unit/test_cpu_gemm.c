// The GEMM kernels of instruction sets that not every processor has, each by itself against a plain
// loop. What this processor lacks is named as not run.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backends/cpu/simd/half.h"
#include "support/close.h"
#include "support/isa_levels.h"

enum { MAX_A = 70 * 2100 * 2, MAX_B = 2100 * 70 * 2 };
static unsigned char a_memory[MAX_A * 4], b_memory[MAX_B * 4];
static float sums[70 * 80];
static uint32_t random_state = 7;

static uint32_t draw(void) {
  random_state = random_state * 1664525 + 1013904223;
  return random_state >> 8;
}

// A float's upper half is a bfloat16; any lower half only adds digits.
static void fill(unsigned char* data, hy_dtype dtype, int count) {
  if (dtype == HY_F32) count *= 2;
  for (int i = 0; i < count; i++) {
    if (dtype == HY_I8)
      data[i] = (unsigned char)draw();
    else
      ((uint16_t*)data)[i] = hy__float_to_bf16((float)((int)(draw() % 2001) - 1000) * 1e-3f);
  }
}

static double number(const hy__matrix* m, int64_t i, int64_t j) {
  const char* at = hy__matrix_at(m, i, j);
  return m->dtype == HY_I8 ? (double)*(const signed char*)at : (double)hy__load1(at, m->dtype);
}

static void check(const hy__gemm_kernel* kernel, hy_dtype dtype, int64_t m, int64_t n, int64_t k,
                  int how) {
  hy__matrix a = {a_memory, dtype, k, 1}, b = {b_memory, dtype, n, 1};
  if (how == 1) b = (hy__matrix){b_memory, dtype, 1, k};
  if (how == 2) a = (hy__matrix){a_memory, dtype, 1, m};
  if (how == 3) {
    a = (hy__matrix){a_memory, dtype, 2 * k, 2};
    b = (hy__matrix){b_memory, dtype, 2, 2 * k};
  }
  hy__gemm g = {.m = m, .n = n, .k = k, .a = a, .b = b, .c = sums, .ldc = n + 1};
  memset(sums, 0xff, sizeof sums);
  assert_true(hy__gemm_run(kernel, &g));
  for (int64_t i = 0; i < m; i++) {
    for (int64_t j = 0; j < n; j++) {
      double want = 0, got;
      for (int64_t p = 0; p < k; p++) want += number(&a, i, p) * number(&b, p, j);
      int32_t whole;
      memcpy(&whole, &sums[i * (n + 1) + j], sizeof whole);
      got = dtype == HY_I8 ? whole : (double)sums[i * (n + 1) + j];
      double allowed = dtype == HY_I8 ? 0 : 1e-6 * (double)k;
      if (!is_close(got, want, (tolerance){0, allowed}))
        fail_msg("%lldx%lldx%lld, strides %d: [%lld, %lld] is %.9g and should be %.9g",
                 (long long)m, (long long)n, (long long)k, how, (long long)i, (long long)j, got,
                 want);
    }
    uint32_t behind;
    memcpy(&behind, &sums[i * (n + 1) + n], sizeof behind);
    assert_int_equal(behind, 0xffffffff);
  }
}

static void check_kernel(const hy__gemm_kernel* kernel, hy_dtype dtype) {
  static const int64_t sizes[][3] = {{1, 1, 1},      {14, 32, 64},  {15, 33, 65},
                                     {32, 32, 128},  {33, 31, 63},  {5, 70, 3},
                                     {40, 64, 2100}, {70, 5, 2051}, {29, 47, 130}};
  fill(a_memory, dtype, MAX_A);
  fill(b_memory, dtype, MAX_B);
  for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
    for (int how = 0; how < 4; how++)
      check(kernel, dtype, sizes[s][0], sizes[s][1], sizes[s][2], how);
  }
  if (dtype != HY_I8) return;
  // The least numbers: two of their products do not fit into 16 bits.
  memset(a_memory, 0x80, sizeof a_memory);
  memset(b_memory, 0x80, sizeof b_memory);
  check(kernel, dtype, 29, 47, 2051, 0);
}

// A product so deep that it takes several passes, whose sums are kept aside for `finish`.
enum { DEEP = 9000, DEEP_ROWS = 17, DEEP_COLUMNS = 35 };

static void keep_tile(const void* context, int64_t i, int64_t j, int m, int n, float* tile,
                      int64_t stride) {
  (void)context;
  for (int r = 0; r < m; r++)
    memcpy(&sums[(i + r) * DEEP_COLUMNS + j], tile + r * stride, (size_t)n * sizeof *sums);
}

static void sums_of_several_passes(void** state) {
  (void)state;
  const hy__gemm_kernel* kernel = kernels_up_to(ISA_AVX512)->gemm.f32;
  hy__matrix a = {a_memory, HY_BF16, 1, DEEP_ROWS}, b = {b_memory, HY_BF16, 3, 1};
  hy__gemm g = {.m = DEEP_ROWS, .n = DEEP_COLUMNS, .k = DEEP, .a = a, .b = b};
  g.epilogue = keep_tile;
  memset(sums, 0xff, sizeof sums);
  fill(a_memory, HY_BF16, MAX_A);
  fill(b_memory, HY_BF16, MAX_B);
  assert_true(hy__gemm_run(kernel, &g));
  for (int i = 0; i < DEEP_ROWS; i++) {
    for (int j = 0; j < DEEP_COLUMNS; j++) {
      double want = 0;
      for (int p = 0; p < DEEP; p++) want += number(&a, i, p) * number(&b, p, j);
      assert_true(is_close((double)sums[i * DEEP_COLUMNS + j], want, (tolerance){0, 1e-6 * DEEP}));
    }
  }
}

static void plain(void** state) {
  (void)state;
  check_kernel(&hy__sgemm_generic, HY_F32);
  check_kernel(&hy__sgemm_generic, HY_BF16);
}

static void plain_int8(void** state) {
  (void)state;
  check_kernel(&hy__gemm_int8_generic, HY_I8);
}

#if defined(__x86_64__)
static void run_or_skip(bool available, const char* what, const hy__gemm_kernel* kernel,
                        hy_dtype dtype) {
  if (!available) {
    print_message("compiled, not run: this processor has no %s\n", what);
    skip();
  }
  check_kernel(kernel, dtype);
}

static void avx2(void** state) {
  (void)state;
  bool available = hy__cpu_isa() & HY__ISA_AVX2;
  run_or_skip(available, "AVX2", &hy__sgemm_avx2, HY_F32);
  run_or_skip(available, "AVX2", &hy__sgemm_avx2, HY_BF16);
}

static void avx2_int8(void** state) {
  (void)state;
  run_or_skip(hy__cpu_isa() & HY__ISA_AVX2, "AVX2", &hy__gemm_int8_avx2, HY_I8);
}

static void avx512(void** state) {
  (void)state;
  bool available = hy__cpu_isa() & HY__ISA_AVX512;
  run_or_skip(available, "AVX-512", &hy__sgemm_avx512, HY_F32);
  run_or_skip(available, "AVX-512", &hy__sgemm_avx512, HY_BF16);
}

static void vnni(void** state) {
  (void)state;
  run_or_skip(hy__cpu_isa() & HY__ISA_AVX512_VNNI, "AVX-512 VNNI", &hy__gemm_int8_vnni, HY_I8);
}

static void avx512_bf16(void** state) {
  (void)state;
  run_or_skip(hy__cpu_isa() & HY__ISA_AVX512_BF16, "AVX-512 BF16", &hy__gemm_bf16_avx512, HY_BF16);
}

static void amx_int8(void** state) {
  (void)state;
  run_or_skip(hy__cpu_isa() & HY__ISA_AMX_INT8, "AMX INT8", &hy__gemm_int8_amx, HY_I8);
}

static void amx_bf16(void** state) {
  (void)state;
  run_or_skip(hy__cpu_isa() & HY__ISA_AMX_BF16, "AMX BF16", &hy__gemm_bf16_amx, HY_BF16);
}
#endif

int main(void) {
  const struct CMUnitTest tests[] = {
    cmocka_unit_test(sums_of_several_passes),
    cmocka_unit_test(plain),
    cmocka_unit_test(plain_int8),
#if defined(__x86_64__)
    cmocka_unit_test(avx2),
    cmocka_unit_test(avx2_int8),
    cmocka_unit_test(avx512),
    cmocka_unit_test(vnni),
    cmocka_unit_test(avx512_bf16),
    cmocka_unit_test(amx_int8),
    cmocka_unit_test(amx_bf16),
#endif
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
