// Exponentials and maxima of the online softmax in AVX-512, for weights of f32 and of bf16.
#ifndef HALYARD_CPU_ATTENTION_X86_SOFTMAX_AVX512_H_
#define HALYARD_CPU_ATTENTION_X86_SOFTMAX_AVX512_H_

#include "backends/cpu/simd/avx512.h"

HY__TARGET_AVX512

enum { AT_ONCE = 4 };  // exponentials side by side: one alone waits for itself most of the time

#define LOG2_E _mm512_set1_ps(0x1.715476p+0f)

// 2^t of several, within 2 units in the last place: the fraction's polynomial, whose constant is 1,
// scaled by the whole part. -inf gives 0, NaN stays NaN.
HY__INLINE void exp2_side_by_side(__m512* t, int n) {
  static const float factor[] = {0x1.2778540p-7f, 0x1.c91ce60p-5f, 0x1.ebdb560p-3f, 0x1.62e4ba0p-1f,
                                 1};
  __m512 x[AT_ONCE], p[AT_ONCE];
#define EACH _Pragma("GCC unroll 4") for (int i = 0; i < n; i++)
  EACH x[i] = _mm512_reduce_ps(t[i], _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
  EACH p[i] = _mm512_set1_ps(0x1.e974fe0p-10f);
#pragma GCC unroll 5
  for (int k = 0; k < 5; k++) {
    EACH p[i] = _mm512_fmadd_ps(p[i], x[i], _mm512_set1_ps(factor[k]));
  }
  EACH t[i] = _mm512_scalef_ps(p[i], t[i]);
#undef EACH
}

HY__INLINE __m512 most_of_column(const float* scores, int keys, int panel, __m512 most) {
  __m512 also = most;
  int s = 0;
  for (; s + 2 <= keys; s += 2) {
    most = _mm512_max_ps(most, _mm512_loadu_ps(scores + s * panel));
    also = _mm512_max_ps(also, _mm512_loadu_ps(scores + (s + 1) * panel));
  }
  if (s < keys) most = _mm512_max_ps(most, _mm512_loadu_ps(scores + s * panel));
  return _mm512_max_ps(most, also);
}

HY__TARGET_END

#endif  // HALYARD_CPU_ATTENTION_X86_SOFTMAX_AVX512_H_
