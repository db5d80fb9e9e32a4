// Symmetric quantisation by groups: scale = max|x| / limit, q = x / scale to the nearest, even on
// ties. A group of zeros has the scale 1; one that holds a NaN or an infinity has that for a scale
// and q = 0. Options: T (of x and of dequantised numbers), Q (of q).
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

DEVICE math nearest_even(math v) { return sizeof(math) == 8 ? (math)rint((f64)v) : (math)rintf((f32)v); }

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

KERNEL void dequantize(hy_quantize p) {
  GRID_STRIDE(i, p.groups * p.group) {
    math q = quantized_at<math>((const Q*)p.q, i);
    ((T*)p.out)[i] = from<T>(q * (math)p.scale[i / p.group]);
  }
}
