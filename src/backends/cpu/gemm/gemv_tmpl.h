// GEMV for any number of rows, for a file that defines MR, NR and `block`, which takes up to MR
// rows of x and NR rows of weights at once.
#ifndef HALYARD_CPU_GEMM_GEMV_TMPL_H_
#define HALYARD_CPU_GEMM_GEMV_TMPL_H_

#include "backends/cpu/family.h"
#include "backends/cpu/runtime/target.h"

HY__INLINE void gemv_of(hy_dtype dtype, const hy__matrix* w, int64_t first, int n, int64_t k,
                        const float* x, int64_t ldx, int m, float* out, int64_t ldo) {
  for (int r = 0; r < n; r += n - r < NR ? 1 : NR) {
    bool whole = n - r >= NR;
    const char* four[NR];
    for (int i = 0; i < NR; i++) four[i] = hy__matrix_at(w, first + r + (whole ? i : 0), 0);
    for (int l = 0; l < m; l += MR) {
      const float* from = x + l * ldx;
      float* to = out + l * ldo + r;
      bool both = m - l >= MR;
      if (whole && both)
        block(NR, MR, dtype, four, k, from, ldx, to, ldo);
      else if (whole)
        block(NR, 1, dtype, four, k, from, ldx, to, ldo);
      else if (both)
        block(1, MR, dtype, four, k, from, ldx, to, ldo);
      else
        block(1, 1, dtype, four, k, from, ldx, to, ldo);
    }
  }
}

#endif  // HALYARD_CPU_GEMM_GEMV_TMPL_H_
