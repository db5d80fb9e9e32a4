// Vectors of sixteen floats, in AVX-512. The same names as vec_generic.h.
#include <immintrin.h>
#include <math.h>

#include "backends/cpu/runtime/target.h"
#include "backends/cpu/simd/avx512.h"
#include "backends/cpu/simd/half.h"

typedef __m512 vec;
typedef __mmask16 flags;
typedef int32_t ints __attribute__((vector_size(64)));
enum { WIDTH = 16, FUSED = 1, LOOKUP = 1 };  // LOOKUP: that lookup16 is quick

HY__INLINE vec splat(float x) {
  return _mm512_set1_ps(x);
}

HY__INLINE vec load(const float* p) {
  return _mm512_loadu_ps(p);
}

HY__INLINE void store(float* p, vec x) {
  _mm512_storeu_ps(p, x);
}

// The first n lanes, and `fill` in the others; n may be outside 0 .. 16. Neither touches memory
// beyond them.
HY__INLINE vec load_first(const float* p, int64_t n, vec fill) {
  return _mm512_mask_loadu_ps(fill, hy__first16(n), p);
}

HY__INLINE void store_first(float* p, int64_t n, vec x) {
  _mm512_mask_storeu_ps(p, hy__first16(n), x);
}

// The same of up to 32 halves of lanes.
HY__INLINE ints load_first_halves(const uint16_t* p, int64_t n, ints fill) {
  return (ints)_mm512_mask_loadu_epi16((__m512i)fill, (__mmask32)((1ull << n) - 1), p);
}

HY__INLINE void store_first_halves(uint16_t* p, int64_t n, ints x) {
  _mm512_mask_storeu_epi16(p, (__mmask32)((1ull << n) - 1), (__m512i)x);
}

// Past the caches; p is aligned to 64 bytes.
HY__INLINE void stream(void* p, vec x) {
  _mm512_stream_ps(p, x);
}

HY__INLINE void store_fence(void) {
  _mm_sfence();
}

HY__INLINE vec fma_(vec a, vec b, vec c) {
  return _mm512_fmadd_ps(a, b, c);
}

HY__INLINE vec root(vec x) {
  return _mm512_sqrt_ps(x);
}

// The second of both where one is NaN.
HY__INLINE vec larger(vec a, vec b) {
  return _mm512_max_ps(a, b);
}

HY__INLINE vec smaller(vec a, vec b) {
  return _mm512_min_ps(a, b);
}

HY__INLINE flags below(vec a, vec b) {
  return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ);
}

HY__INLINE flags at_most(vec a, vec b) {
  return _mm512_cmp_ps_mask(a, b, _CMP_LE_OQ);
}

HY__INLINE flags same(vec a, vec b) {
  return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ);
}

HY__INLINE flags is_nan(vec a) {
  return _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q);
}

HY__INLINE flags either_nan(vec a, vec b) {
  return _mm512_cmp_ps_mask(a, b, _CMP_UNORD_Q);
}

HY__INLINE flags odd(ints n) {
  return _mm512_test_epi32_mask((__m512i)n, _mm512_set1_epi32(1));
}

HY__INLINE bool any(flags f) {
  return f != 0;
}

HY__INLINE vec choose(flags f, vec yes, vec no) {
  return _mm512_mask_mov_ps(no, f, yes);
}

// One byte for each lane: 1 where the flag is set.
HY__INLINE void store_flags(uint8_t* p, flags f) {
  _mm_storeu_si128((__m128i*)p, _mm_maskz_set1_epi8(f, 1));
}

HY__INLINE ints to_ints(vec x) {
  return (ints)_mm512_cvtps_epi32(x);
}

// table[i % 16]
HY__INLINE vec lookup16(const float table[16], ints i) {
  return _mm512_permutexvar_ps((__m512i)i, _mm512_loadu_ps(table));
}

HY__INLINE vec nearest(vec x) {
  return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

HY__INLINE vec downward(vec x) {
  return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
}

HY__INLINE vec upward(vec x) {
  return _mm512_roundscale_ps(x, _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC);
}

HY__INLINE vec toward_0(vec x) {
  return _mm512_roundscale_ps(x, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
}

// p 2^n for whole n.
HY__INLINE vec scale_by_power(vec p, vec n) {
  return _mm512_scalef_ps(p, n);
}

// x = m 2^e with m in [1, 2), for positive finite x.
HY__INLINE vec split_power(vec x, vec* e) {
  *e = _mm512_getexp_ps(x);
  return _mm512_getmant_ps(x, _MM_MANT_NORM_1_2, _MM_MANT_SIGN_src);
}

// 1 / x within 1 unit, or 2^-14 of itself where bf16, for x of 1 or more, below 2^126.
HY__INLINE vec invert(vec x, bool bf16) {
  vec r = _mm512_rcp14_ps(x);
  if (bf16) return r;
  return _mm512_fmadd_ps(r, _mm512_fnmadd_ps(x, r, splat(1)), r);
}

// 1 / sqrt(x) within 2^-14 of itself.
HY__INLINE vec inverse_root_bf16(vec x) {
  return _mm512_rsqrt14_ps(x);
}

// x - floor(x); scale_by_power takes the floor of its power.
HY__INLINE vec fraction_of(vec x, vec* whole) {
  *whole = x;
  return _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
}

HY__INLINE float add_up(vec x) {
  return _mm512_reduce_add_ps(x);
}

// A bfloat16 in the upper half of each lane, rounded to even. A NaN stays one where its lower half
// is 0: so are all that come of bfloat16, and those that the processor makes.
HY__INLINE ints round_to_bf16(vec x) {
  __m512i bits = _mm512_castps_si512(x);
  __mmask16 up = _mm512_test_epi32_mask(bits, _mm512_set1_epi32(0x10000));
  __m512i sum = _mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff));
  return (ints)_mm512_mask_add_epi32(sum, up, sum, _mm512_set1_epi32(1));
}

// The same with ties away from 0: for what is inexact anyway, since that takes a third of the time.
HY__INLINE ints round_to_bf16_ties_away(vec x) {
  return (ints)_mm512_add_epi32(_mm512_castps_si512(x), _mm512_set1_epi32(0x8000));
}

// As many bfloat16 as there are lanes, in their order.
HY__INLINE vec load_bf16(const uint16_t* p) {
  __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i*)p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}

// Two vectors as the low and the high halves of lanes.
HY__INLINE ints join_halves(ints low, ints high) {
  return (ints)_mm512_mask_blend_epi16(0x55555555, (__m512i)high,
                                       _mm512_srli_epi32((__m512i)low, 16));
}

// The upper halves of the lanes of both, one after the other.
HY__INLINE ints pack_upper_halves(ints a, ints b) {
  __m256i low = _mm512_cvtepi32_epi16(_mm512_srli_epi32((__m512i)a, 16));
  __m256i high = _mm512_cvtepi32_epi16(_mm512_srli_epi32((__m512i)b, 16));
  return (ints)_mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

// The greater of each half of a lane, as signed integers.
HY__INLINE ints larger_halves(ints a, ints b) {
  return (ints)_mm512_max_epi16((__m512i)a, (__m512i)b);
}

HY__INLINE ints larger_unsigned_halves(ints a, ints b) {
  return (ints)_mm512_max_epu16((__m512i)a, (__m512i)b);
}
