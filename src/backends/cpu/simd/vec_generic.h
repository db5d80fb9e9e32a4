// Vectors of WIDTH floats by the compiler's own vector types, for AVX2 (8) and for every processor
// (4). The includer defines WIDTH_OF_VEC and, where there are instructions for them,
// FUSED_MULTIPLY_ADD, LARGER_OF and SMALLER_OF.
#include <math.h>
#include <string.h>

#include "backends/cpu/runtime/target.h"
#include "backends/cpu/simd/half.h"

typedef float vec __attribute__((vector_size(4 * WIDTH_OF_VEC)));
typedef int32_t ints __attribute__((vector_size(4 * WIDTH_OF_VEC)));
typedef uint32_t words __attribute__((vector_size(4 * WIDTH_OF_VEC)));  // wrap around
typedef ints flags;                                                     // all ones, or 0
enum { WIDTH = WIDTH_OF_VEC, LOOKUP = 0 };
#ifdef FUSED_MULTIPLY_ADD
enum { FUSED = 1 };
#else
enum { FUSED = 0 };
#define FUSED_MULTIPLY_ADD(a, b, c) ((a) * (b) + (c))
#endif
#ifndef LARGER_OF
#define LARGER_OF(a, b) choose((a) > (b), a, b)
#define SMALLER_OF(a, b) choose((a) < (b), a, b)
#endif

HY__INLINE vec splat(float x) {
  return x - (vec){0};
}

HY__INLINE vec load(const float* p) {
  vec x;
  memcpy(&x, p, sizeof x);
  return x;
}

HY__INLINE void store(float* p, vec x) {
  memcpy(p, &x, sizeof x);
}

HY__INLINE void stream(void* p, vec x) {
  memcpy(p, &x, sizeof x);
}

HY__INLINE void store_fence(void) {}

HY__INLINE vec fma_(vec a, vec b, vec c) {
  return FUSED_MULTIPLY_ADD(a, b, c);
}

HY__INLINE vec root(vec x) {
  for (int i = 0; i < WIDTH; i++) x[i] = __builtin_sqrtf(x[i]);
  return x;
}

HY__INLINE vec choose(flags f, vec yes, vec no) {
  return (vec)((f & (ints)yes) | (~f & (ints)no));
}

HY__INLINE flags below(vec a, vec b) {
  return a < b;
}

HY__INLINE flags at_most(vec a, vec b) {
  return a <= b;
}

HY__INLINE flags same(vec a, vec b) {
  return a == b;
}

HY__INLINE flags is_nan(vec a) {
  return ~same(a, a);
}

HY__INLINE flags either_nan(vec a, vec b) {
  return is_nan(a) | is_nan(b);
}

HY__INLINE flags odd(ints n) {
  return (n & 1) != 0;
}

HY__INLINE bool any(flags f) {
  int32_t found = 0;
  for (int i = 0; i < WIDTH; i++) found |= f[i];
  return found != 0;
}

HY__INLINE vec larger(vec a, vec b) {
  return LARGER_OF(a, b);
}

HY__INLINE vec smaller(vec a, vec b) {
  return SMALLER_OF(a, b);
}

HY__INLINE void store_flags(uint8_t* p, flags f) {
  for (int i = 0; i < WIDTH; i++) p[i] = f[i] != 0;
}

HY__INLINE ints to_ints(vec x) {
  return __builtin_convertvector(x, ints);
}

HY__INLINE vec lookup16(const float table[16], ints i) {
  vec x;
  for (int k = 0; k < WIDTH; k++) x[k] = table[i[k] & 15];
  return x;
}

// From 2^23 on, every float is whole.
HY__INLINE vec nearest(vec x) {
  vec size = (vec)((ints)x & 0x7fffffff), whole = (size + 0x1p23f) - 0x1p23f;
  whole = (vec)((ints)whole | ((ints)x & (int32_t)0x80000000));
  return choose(size < 0x1p23f, whole, x);
}

HY__INLINE vec downward(vec x) {
  vec n = nearest(x);
  return choose(n > x, n - 1, n);
}

// What is above -1 and below 0 gives -0.
HY__INLINE vec upward(vec x) {
  vec n = nearest(x), up = choose(n < x, n + 1, n);
  return (vec)((ints)up | ((ints)x & (int32_t)0x80000000));
}

HY__INLINE vec toward_0(vec x) {
  return choose(x < 0, upward(x), downward(x));
}

// In two factors, so that results below the least normal number and overflow come out right.
HY__INLINE vec scale_by_power(vec p, vec n) {
  ints whole = to_ints(n), half = whole >> 1;
  return p * (vec)((half + 127) << 23) * (vec)((whole - half + 127) << 23);
}

HY__INLINE vec split_power(vec x, vec* e) {
  flags tiny = x < 0x1p-126f;
  ints bits = (ints)choose(tiny, x * 0x1p23f, x);
  *e = __builtin_convertvector((bits >> 23) - 127, vec);
  *e = choose(tiny, *e - 23, *e);
  return (vec)((bits & 0x7fffff) | 0x3f800000);
}

HY__INLINE vec invert(vec x, bool bf16) {
  (void)bf16;
  return 1 / x;
}

HY__INLINE vec inverse_root_bf16(vec x) {
  return 1 / root(x);
}

HY__INLINE vec fraction_of(vec x, vec* whole) {
  x = larger(splat(-150), smaller(splat(130), x));
  *whole = downward(x);
  return x - *whole;
}

HY__INLINE float add_up(vec x) {
  float sum = 0;
  for (int i = 0; i < WIDTH; i++) sum += x[i];
  return sum;
}

HY__INLINE ints round_to_bf16(vec x) {
  words bits = (words)x;
  return (ints)(bits + 0x7fff + ((bits >> 16) & 1));
}

HY__INLINE ints round_to_bf16_ties_away(vec x) {
  return (ints)((words)x + 0x8000);
}

HY__INLINE vec load_bf16(const uint16_t* p) {
  ints wide;
  for (int i = 0; i < WIDTH; i++) wide[i] = (int32_t)((uint32_t)p[i] << 16);
  return (vec)wide;
}

HY__INLINE vec load_first(const float* p, int64_t n, vec fill) {
  if (n > 0) memcpy(&fill, p, (size_t)(n < WIDTH ? n : WIDTH) * sizeof *p);
  return fill;
}

HY__INLINE void store_first(float* p, int64_t n, vec x) {
  if (n > 0) memcpy(p, &x, (size_t)(n < WIDTH ? n : WIDTH) * sizeof *p);
}

HY__INLINE ints load_first_halves(const uint16_t* p, int64_t n, ints fill) {
  memcpy(&fill, p, (size_t)n * sizeof *p);
  return fill;
}

HY__INLINE void store_first_halves(uint16_t* p, int64_t n, ints x) {
  memcpy(p, &x, (size_t)n * sizeof *p);
}

HY__INLINE ints join_halves(ints low, ints high) {
  return ((low >> 16) & 0xffff) | (high & (int32_t)0xffff0000);
}

HY__INLINE ints pack_upper_halves(ints a, ints b) {
  int16_t halves[2 * WIDTH];
  for (int i = 0; i < WIDTH; i++) {
    halves[i] = (int16_t)(a[i] >> 16);
    halves[WIDTH + i] = (int16_t)(b[i] >> 16);
  }
  ints packed;
  memcpy(&packed, halves, sizeof packed);
  return packed;
}

HY__INLINE ints larger_halves(ints a, ints b) {
  typedef int16_t shorts __attribute__((vector_size(4 * WIDTH_OF_VEC)));
  shorts x = (shorts)a, y = (shorts)b, more = x > y;
  return (ints)((more & x) | (~more & y));
}

HY__INLINE ints larger_unsigned_halves(ints a, ints b) {
  typedef uint16_t shorts __attribute__((vector_size(4 * WIDTH_OF_VEC)));
  shorts x = (shorts)a, y = (shorts)b, more = (shorts)(x > y);
  return (ints)((more & x) | (~more & y));
}
