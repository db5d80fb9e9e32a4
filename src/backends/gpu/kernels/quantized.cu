// Symmetric quantisation by groups: scale = max|x| / limit, q = x / scale to the nearest, even on
// ties. A group of zeros has the scale 1; one that holds a NaN or an infinity has that for a scale
// and q = 0. Options: T (of x and of dequantised numbers), Q (of q).
//
// options: -DT=f32 -DQ=i8
// options: -DT=bf16 -DQ=i4
// options: -DT=f16 -DQ=f8e4m3
// options: -DT=f64 -DQ=f8e5m2
#include "dependent.cuh"
#include "params.h"
#include "quantized_types.cuh"

typedef traits<T>::math math;

DEVICE bool is_finite(f32 v) { return v - v == 0; }

// A warp for each group.
KERNEL void quantize_scales(hy_quantize p) {
  const int lane = threadIdx.x % HY_WARP, warps = blockDim.x / HY_WARP;
  for (i64 g = (i64)blockIdx.x * warps + threadIdx.x / HY_WARP; g < p.groups;
       g += (i64)gridDim.x * warps) {
    const T* x = (const T*)p.x + g * p.group;
    math largest = 0;
    for (int i = lane; i < p.group; i += HY_WARP) {
      math value = to<math>(x[i]);
      largest = max_op::of(largest, value < 0 ? -value : value);
    }
    largest = warp_reduce<max_op>(largest);  // NaN wins
    f32 scale = (f32)(largest / (math)limit_of(Q()));
    if (lane == 0) p.scale[g] = scale == 0 ? 1 : scale;
  }
}

DEVICE f32 nearest_even(f32 v) { return rintf(v); }
DEVICE f64 nearest_even(f64 v) { return rint(v); }

// x / scale, inside the limits.
DEVICE math scaled(const hy_quantize& p, i64 i) {
  f32 scale = p.scale[i / p.group], limit = limit_of(Q());
  if (!is_finite(scale)) return 0;
  math v = to<math>(((const T*)p.x)[i]) / (math)scale;
  return v < (math)-limit ? (math)-limit : v > (math)limit ? (math)limit : v;
}

DEVICE void store(i8* q, const hy_quantize& p, i64 i) { q[i] = (i8)nearest_even(scaled(p, i)); }
template <class F8>
DEVICE void store(F8* q, const hy_quantize& p, i64 i) {
  q[i] = from<F8>(scaled(p, i));
}
DEVICE void store(i4* q, const hy_quantize& p, i64 i) {
  int low = (int)nearest_even(scaled(p, 2 * i)), high = (int)nearest_even(scaled(p, 2 * i + 1));
  q[i].pair = (u8)((low & 15) | (high & 15) << 4);
}

// A thread for each byte of q.
KERNEL void quantize_values(hy_quantize p) {
  const i64 bytes = p.groups * p.group / (same<Q, i4>::value ? 2 : 1);
  GRID_STRIDE(i, bytes) store((Q*)p.q, p, i);
}

// Eight numbers as they are stored.
template <class Q>
struct eight {
  vec<Q, 8> q;
};
template <>
struct eight<i4> {
  vec<i4, 4> q;
};

// Where eight neighbours share a scale: AHEAD times eight are under way at once, the first of them
// while the kernel before this one runs.
KERNEL void __launch_bounds__(256) dequantize_eights(hy_quantize p) {
  enum { AHEAD = 4 };
  const u32 per = (u32)p.group / 8, eights = (u32)p.groups * per, tile = AHEAD * blockDim.x;
  if (!p.early) wait_for_previous();
  for (u32 first = blockIdx.x * tile; first < eights; first += gridDim.x * tile) {
    eight<Q> held[AHEAD];
    f32 scale[AHEAD];
#pragma unroll
    for (int u = 0; u < AHEAD; u++) {
      u32 i = first + u * blockDim.x + threadIdx.x;
      if (i >= eights) break;
      held[u] = ((const eight<Q>*)p.q)[i];
      scale[u] = p.scale[i / per];
    }
    wait_for_previous();
#pragma unroll
    for (int u = 0; u < AHEAD; u++) {
      u32 i = first + u * blockDim.x + threadIdx.x;
      if (i >= eights) break;
      vec<T, 8> out;
#pragma unroll
      for (int k = 0; k < 8; k++)
        out.at[k] = from<T>(quantized_at<math>(held[u].q.at, k) * (math)scale[u]);
      ((vec<T, 8>*)p.out)[i] = out;
    }
  }
  wait_for_previous();
}

KERNEL void dequantize(hy_quantize p) {
  GRID_STRIDE(i, p.groups * p.group) {
    math q = quantized_at<math>((const Q*)p.q, i);
    ((T*)p.out)[i] = from<T>(q * (math)p.scale[i / p.group]);
  }
}
