// The indirect bf16 GEMM microkernel in AVX-512 BF16: MR x NR = 14 x 32, as the packed one.
#include "backends/cpu/family.h"

#if defined(__x86_64__)
#include <string.h>

#include "backends/cpu/simd/avx512.h"

HY__TARGET_BF16

enum { MR = 14, VECTORS = 2 };

HY__INLINE __m512 multiply_add(__m512 sum, __m512 a, __m512 b) {
  return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
}

#include "backends/cpu/gemm/x86/indirect_tmpl.h"

static void multiply(int words, const char* a, int64_t a_row, const float* b, const int64_t* rows,
                     float* c, int64_t ldc, int m, int n, bool accumulate) {
  // clang-format off
#define TILE_CASES(m) TILE_CASE(m, 1) TILE_CASE(m, 2)
  switch (m * VECTORS + (n + 15) / 16) {
    TILE_CASES(1) TILE_CASES(2) TILE_CASES(3) TILE_CASES(4) TILE_CASES(5) TILE_CASES(6)
    TILE_CASES(7) TILE_CASES(8) TILE_CASES(9) TILE_CASES(10) TILE_CASES(11) TILE_CASES(12)
    TILE_CASES(13) TILE_CASES(14)
    default: return;
  }
  // clang-format on
}

HY__TARGET_END

const hy__indirect_kernel hy__indirect_bf16_avx512 = {
    .mr = MR, .nr = VECTORS * HY__INDIRECT_VECTOR, .unit = 2, .multiply = multiply};
#endif
