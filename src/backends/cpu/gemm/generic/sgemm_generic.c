// The sgemm microkernel in plain C: small enough that a compiler keeps its tile in whatever
// registers there are.
enum { MR = 4, NR = 8 };
#include "backends/cpu/gemm/pack_generic.h"

static void multiply(int depth, const float* a, const float* b, float* c, int64_t stride, int m,
                     int n, bool accumulate) {
  float sums[MR][NR] = {{0}};
  for (int k = 0; k < depth; k++) {
    for (int i = 0; i < MR; i++) {
      for (int j = 0; j < NR; j++) sums[i][j] += a[k * MR + i] * b[k * NR + j];
    }
  }
  for (int i = 0; i < m; i++) {
    for (int j = 0; j < n; j++)
      c[i * stride + j] = accumulate ? c[i * stride + j] + sums[i][j] : sums[i][j];
  }
}

const hy__gemm_kernel hy__sgemm_generic = {.mr = MR,
                                           .nr = NR,
                                           .kc = 384,
                                           .unit = 1,
                                           .align = 1,
                                           .pack_a = pack_a,
                                           .pack_b = pack_b,
                                           .multiply = multiply};
