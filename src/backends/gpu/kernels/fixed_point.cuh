// x in fixed point for weights of 8 and 4 bits: numbers of two signed bytes, 256 high + low, with a
// factor for 16 neighbours. Half a dp4a for a weight, where unpacking it to floats takes three
// instructions. Integers cannot tell what is not finite: who uses this must.
#ifndef HALYARD_BACKENDS_GPU_KERNELS_FIXED_POINT_CUH_
#define HALYARD_BACKENDS_GPU_KERNELS_FIXED_POINT_CUH_

#include "quantized_types.cuh"

// ---- 16 weights ----

template <class Weight>
struct sixteen;
template <>
struct sixteen<i8> {
  vec<u32, 4> word;
};
template <>
struct sixteen<i4> {
  vec<u32, 2> word;
};

// As signed bytes; those of 4 bits are 16 times as large, and of each 8 the even ones come first.
DEVICE vec<u32, 4> as_bytes(const sixteen<i8>& w) { return w.word; }
DEVICE vec<u32, 4> as_bytes(const sixteen<i4>& w) {
  const u32 upper = 0xf0f0f0f0u;
  return {{w.word.at[0] << 4 & upper, w.word.at[0] & upper, w.word.at[1] << 4 & upper,
           w.word.at[1] & upper}};
}

// ---- x ----

// Bytes of eight numbers, in the order in which weights meet them.
struct fixed_eight {
  vec<u32, 2> high, low;
};

DEVICE u32 low_bytes(const int (&v)[4]) {
  u32 front = __byte_perm((u32)v[0], (u32)v[1], 0x0040);
  u32 back = __byte_perm((u32)v[2], (u32)v[3], 0x0040);
  return __byte_perm(front, back, 0x5410);
}

#define FIXED_LIMIT 32639.0f  // of a number of two signed bytes

DEVICE f32 largest_of(const f32 (&v)[8]) {
  f32 most = 0;
#pragma unroll
  for (int e = 0; e < 8; e++) most = fmaxf(most, fabsf(v[e]));
  return most;
}

// Eight numbers of sixteen whose magnitudes are at most `most`.
template <class Weight>
DEVICE fixed_eight fix(const f32 (&v)[8], f32 most) {
  // Less is as good as 0, and would overflow. An exact quotient would bring branches for its rare cases.
  const f32 scale = most > 1e-30f ? __fdividef(FIXED_LIMIT, most) : 0;
  fixed_eight fixed;
#pragma unroll
  for (int word = 0; word < 2; word++) {
    int low[4], high[4];
#pragma unroll
    for (int e = 0; e < 4; e++) {
      const int number = __float2int_rn(v[same<Weight, i4>::value ? 2 * e + word : 4 * word + e] * scale);
      low[e] = (int)(i8)number;
      high[e] = (number - low[e]) >> 8;
    }
    fixed.low.at[word] = low_bytes(low);
    fixed.high.at[word] = low_bytes(high);
  }
  return fixed;
}

// Sixteen numbers, and what undoes their scale and the 16 of weights of 4 bits.
struct fixed_sixteen {
  vec<u32, 4> high, low;
  f32 factor;
};
template <class Weight>
DEVICE fixed_sixteen fix(const f32 (&v)[2][8]) {
  const f32 most = fmaxf(largest_of(v[0]), largest_of(v[1]));
  const fixed_eight front = fix<Weight>(v[0], most), back = fix<Weight>(v[1], most);
  return {{front.high.at[0], front.high.at[1], back.high.at[0], back.high.at[1]},
          {front.low.at[0], front.low.at[1], back.low.at[0], back.low.at[1]},
          most * (same<Weight, i4>::value ? 1 / (16 * FIXED_LIMIT) : 1 / FIXED_LIMIT)};
}

// ---- Sixteen of both ----

// Without x's factor.
template <class Weight>
DEVICE int fixed_dot(const sixteen<Weight>& weights, const fixed_sixteen& x) {
  const vec<u32, 4> w = as_bytes(weights);
  int dot = 0;
#pragma unroll
  for (int i = 0; i < 4; i++) dot = __dp4a((int)w.at[i], (int)x.high.at[i], dot);
  dot *= 256;
#pragma unroll
  for (int i = 0; i < 4; i++) dot = __dp4a((int)w.at[i], (int)x.low.at[i], dot);
  return dot;
}

#endif  // HALYARD_BACKENDS_GPU_KERNELS_FIXED_POINT_CUH_
