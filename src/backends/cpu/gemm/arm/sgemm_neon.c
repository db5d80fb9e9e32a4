// The sgemm microkernel in NEON: MR x NR = 6 x 16, 24 accumulators.
#include "backends/cpu/family.h"

#if defined(__aarch64__)
#include <arm_neon.h>

#include "backends/cpu/runtime/target.h"

enum { MR = 6, NR = 16, PARTS = NR / 4 };
#include "backends/cpu/gemm/pack_generic.h"

HY__INLINE void tile(int m, int depth, const float* a, const float* b, float* c, int64_t stride,
                     int n, bool accumulate) {
  float32x4_t sums[MR][PARTS];
  for (int i = 0; i < m; i++) {
    for (int p = 0; p < PARTS; p++) sums[i][p] = vdupq_n_f32(0);
  }
  for (int k = 0; k < depth; k++) {
    float32x4_t columns[PARTS];
#pragma GCC unroll 4
    for (int p = 0; p < PARTS; p++) columns[p] = vld1q_f32(b + k * NR + 4 * p);
#pragma GCC unroll 6
    for (int i = 0; i < m; i++) {
      float32x4_t x = vdupq_n_f32(a[k * MR + i]);
#pragma GCC unroll 4
      for (int p = 0; p < PARTS; p++) sums[i][p] = vfmaq_f32(sums[i][p], x, columns[p]);
    }
  }
#pragma GCC unroll 6
  for (int i = 0; i < m; i++) {
    float line[NR], *row = c + i * stride;
    for (int p = 0; p < PARTS; p++) vst1q_f32(line + 4 * p, sums[i][p]);
    for (int j = 0; j < n; j++) row[j] = accumulate ? row[j] + line[j] : line[j];
  }
}

static void multiply(int depth, const float* a, const float* b, float* c, int64_t stride, int m,
                     int n, bool accumulate) {
  switch (m) {
    case 1: tile(1, depth, a, b, c, stride, n, accumulate); return;
    case 2: tile(2, depth, a, b, c, stride, n, accumulate); return;
    case 3: tile(3, depth, a, b, c, stride, n, accumulate); return;
    case 4: tile(4, depth, a, b, c, stride, n, accumulate); return;
    case 5: tile(5, depth, a, b, c, stride, n, accumulate); return;
    default: tile(6, depth, a, b, c, stride, n, accumulate); return;
  }
}

const hy__gemm_kernel hy__sgemm_neon = {.mr = MR,
                                        .nr = NR,
                                        .kc = 384,
                                        .unit = 1,
                                        .align = 1,
                                        .pack_a = pack_a,
                                        .pack_b = pack_b,
                                        .multiply = multiply};
#endif
