// The indirect sgemm microkernel in AVX-512: MR x NR = 6 x 64, as the packed one.
#include "backends/cpu/family.h"

#if defined(__x86_64__)
#include <string.h>

#include "backends/cpu/simd/avx512.h"

HY__TARGET_AVX512

enum { MR = 6, VECTORS = 4 };

HY__INLINE __m512 multiply_add(__m512 sum, __m512 a, __m512 b) {
  return _mm512_fmadd_ps(a, b, sum);
}

#include "backends/cpu/gemm/x86/indirect_tmpl.h"

static void multiply(int words, const char* a, int64_t a_row, const float* b, const int64_t* rows,
                     float* c, int64_t ldc, int m, int n, bool accumulate) {
  // clang-format off
#define TILE_CASES(m) TILE_CASE(m, 1) TILE_CASE(m, 2) TILE_CASE(m, 3) TILE_CASE(m, 4)
  switch (m * VECTORS + (n + 15) / 16) {
    TILE_CASES(1) TILE_CASES(2) TILE_CASES(3) TILE_CASES(4) TILE_CASES(5) TILE_CASES(6)
    default: return;
  }
  // clang-format on
}

HY__TARGET_END

const hy__indirect_kernel hy__indirect_f32_avx512 = {
    .mr = MR, .nr = VECTORS * HY__INDIRECT_VECTOR, .unit = 1, .multiply = multiply};
#endif
