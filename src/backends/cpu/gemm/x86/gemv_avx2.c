// GEMV and skinny GEMM, epilogue and conversion of rows in AVX2.
#include "backends/cpu/family.h"

#if defined(__x86_64__)
#include "backends/cpu/simd/avx2.h"
#include "backends/cpu/simd/half.h"

HY__TARGET_AVX2

enum { NR = 4, MR = 2 };  // of one block: their sums stay in registers

HY__INLINE __m128i to_bf16(__m256 x) {
  __m256i bits = _mm256_castps_si256(x);
  __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  __m256i rounded = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  rounded = _mm256_blendv_epi8(rounded, _mm256_set1_epi32(0x7fc00000), nan);
  rounded = _mm256_srli_epi32(rounded, 16);
  return _mm_packus_epi32(_mm256_castsi256_si128(rounded), _mm256_extracti128_si256(rounded, 1));
}

HY__INLINE void block(int n, int m, hy_dtype dtype, const char* const w[NR], int64_t k,
                      const float* x, int64_t ldx, float* out, int64_t ldo) {
  int64_t size = dtype == HY_F32 ? 4 : 2, whole = k / 8 * 8;
  __m256 sums[MR][NR];
  for (int l = 0; l < m; l++) {
    for (int r = 0; r < n; r++) sums[l][r] = _mm256_setzero_ps();
  }
  for (int64_t at = 0; at < whole; at += 8) {
#pragma GCC unroll 4
    for (int r = 0; r < n; r++) {
      __m256 weights = hy__load8(w[r] + at * size, dtype);
#pragma GCC unroll 2
      for (int l = 0; l < m; l++)
        sums[l][r] = _mm256_fmadd_ps(_mm256_loadu_ps(x + l * ldx + at), weights, sums[l][r]);
    }
  }
  for (int l = 0; l < m; l++) {
    for (int r = 0; r < n; r++) {
      float sum = hy__sum_of_lanes(sums[l][r]);
      for (int64_t at = whole; at < k; at++)
        sum += x[l * ldx + at] * hy__load1(w[r] + at * size, dtype);
      out[l * ldo + r] = sum;
    }
  }
}

#include "backends/cpu/gemm/gemv_tmpl.h"

void hy__gemv_avx2(const hy__matrix* w, int64_t first, int n, int64_t k, const float* x,
                   int64_t ldx, int m, float* out, int64_t ldo) {
  switch (w->dtype) {
    case HY_F32: gemv_of(HY_F32, w, first, n, k, x, ldx, m, out, ldo); return;
    case HY_BF16: gemv_of(HY_BF16, w, first, n, k, x, ldx, m, out, ldo); return;
    default: gemv_of(HY_F16, w, first, n, k, x, ldx, m, out, ldo); return;
  }
}

void hy__epilogue_avx2(int64_t n, const float* sums, float alpha, float beta, const void* addend,
                       int64_t addend_step, void* out, int64_t out_step, hy_dtype dtype) {
  int64_t size = dtype == HY_F32 ? 4 : 2;
  bool lined_up = out_step == 1 && (!addend || addend_step == 1);
  int64_t whole = lined_up ? n / 8 * 8 : 0;
  const char* from = addend;
  char* to = out;
  for (int64_t i = 0; i < whole; i += 8) {
    __m256 value = _mm256_mul_ps(_mm256_set1_ps(alpha), _mm256_loadu_ps(sums + i));
    if (addend)
      value = _mm256_fmadd_ps(_mm256_set1_ps(beta), hy__load8(from + i * size, dtype), value);
    if (dtype == HY_F32)
      _mm256_storeu_ps((float*)(to + i * size), value);
    else if (dtype == HY_F16)
      _mm_storeu_si128((__m128i*)(to + i * size),
                       _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT));
    else
      _mm_storeu_si128((__m128i*)(to + i * size), to_bf16(value));
  }
  hy__epilogue_generic(n - whole, sums + whole, alpha, beta,
                       addend ? from + whole * addend_step * size : NULL, addend_step,
                       to + whole * out_step * size, out_step, dtype);
}

void hy__widen_avx2(int64_t n, const void* from, int64_t step, hy_dtype dtype, float* x) {
  int64_t size = dtype == HY_F32 ? 4 : 2, whole = step == 1 ? n / 8 * 8 : 0;
  const char* p = from;
  for (int64_t i = 0; i < whole; i += 8) _mm256_storeu_ps(x + i, hy__load8(p + i * size, dtype));
  hy__widen_generic(n - whole, p + whole * step * size, step, dtype, x + whole);
}

HY__TARGET_END
#endif
