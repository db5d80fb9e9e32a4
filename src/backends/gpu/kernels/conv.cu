// Convolution as implicit GEMM, and its gradients, without an im2col matrix in memory. A block of
// 256 threads computes 64 channels x 64 pixels of one group. Taps are the outer loop: for one tap,
// a pixel either meets an input pixel or is in the padding, and then it adds nothing, not even a
// NaN times 0. Sums run in a fixed order. Option: T.
//
// types: f32 f64 f16 bf16
#include "params.h"
#include "simt_gemm.cuh"

typedef traits<T>::math acc;
#define TILE 64
#define DEPTH 16
#define EACH 4  // rows and columns of a thread

// For pixel `at` of the result and one tap: where the other image is read; -1 in the padding.
DEVICE int forward_place(int at, int tap, int stride, int padding, int dilation, int size) {
  int place = at * stride - padding + tap * dilation;
  return place >= 0 && place < size ? place : -1;
}

DEVICE int backward_place(int at, int tap, int stride, int padding, int dilation, int size) {
  int place = at + padding - tap * dilation;
  if (place < 0 || place % stride != 0) return -1;
  place /= stride;
  return place < size ? place : -1;
}

// One result image [channels_m, h, w] of a group from another [channels_k, other_h, other_w].
struct side {
  int channels_m, channels_k;      // of one group
  int all_m, all_k;                // of all groups
  int h, w, other_h, other_w;
};

template <bool is_forward>
DEVICE void conv_tile(const hy_conv& c, const side& s, const T* from_image, T* to_image,
                      const T* bias) {
  __shared__ acc weight_tile[DEPTH][TILE + 4];
  __shared__ acc image_tile[DEPTH][TILE + 4];
  __shared__ i64 place_of[TILE];  // of the tap in hand: offset in the other image, -1: padding
  const T* weight = (const T*)c.weight;
  const int group = blockIdx.z, m0 = blockIdx.y * TILE, taps = c.kernel_h * c.kernel_w;
  const int pixels = c.images * s.h * s.w, pixel0 = blockIdx.x * TILE;
  const int ty = threadIdx.x / 16 * EACH, tx = threadIdx.x % 16 * EACH;
  acc sum[EACH][EACH];
#pragma unroll
  for (int i = 0; i < EACH; i++)
#pragma unroll
    for (int j = 0; j < EACH; j++) sum[i][j] = (acc)0;

  for (int tap = 0; tap < taps; tap++) {
    __syncthreads();
    if (threadIdx.x < TILE) {
      int pixel = pixel0 + threadIdx.x, y = -1, x = -1;
      if (pixel < pixels) {
        int row = pixel / s.w % s.h, column = pixel % s.w;
        int v = tap / c.kernel_w, u = tap % c.kernel_w;
        y = is_forward
                ? forward_place(row, v, c.stride_h, c.padding_h, c.dilation_h, s.other_h)
                : backward_place(row, v, c.stride_h, c.padding_h, c.dilation_h, s.other_h);
        x = is_forward
                ? forward_place(column, u, c.stride_w, c.padding_w, c.dilation_w, s.other_w)
                : backward_place(column, u, c.stride_w, c.padding_w, c.dilation_w, s.other_w);
      }
      i64 image = pixel / (s.h * s.w);
      place_of[threadIdx.x] =
          y < 0 || x < 0 ? -1
                         : (image * s.all_k + (i64)group * s.channels_k) * s.other_h * s.other_w +
                               (i64)y * s.other_w + x;
    }
    __syncthreads();
    bool meets[EACH];
#pragma unroll
    for (int j = 0; j < EACH; j++) meets[j] = place_of[tx + j] >= 0;
    for (int k0 = 0; k0 < s.channels_k; k0 += DEPTH) {
      __syncthreads();
      for (int e = threadIdx.x; e < DEPTH * TILE; e += SIMT_THREADS) {
        int k = k0 + e / TILE, at = e % TILE, m = m0 + at;
        acc w = 0, x = 0;
        if (k < s.channels_k && m < s.channels_m) {
          i64 out = is_forward ? m : k, in = is_forward ? k : m;
          w = to<acc>(weight[((group * c.group_out + out) * c.group_in + in) * taps + tap]);
        }
        if (k < s.channels_k && place_of[at] >= 0)
          x = to<acc>(from_image[place_of[at] + (i64)k * s.other_h * s.other_w]);
        weight_tile[e / TILE][at] = w;
        image_tile[e / TILE][at] = x;
      }
      __syncthreads();
#pragma unroll
      for (int k = 0; k < DEPTH; k++) {
        acc a[EACH], b[EACH];
#pragma unroll
        for (int i = 0; i < EACH; i++) a[i] = weight_tile[k][ty + i];
#pragma unroll
        for (int j = 0; j < EACH; j++) b[j] = image_tile[k][tx + j];
#pragma unroll
        for (int i = 0; i < EACH; i++)
#pragma unroll
          for (int j = 0; j < EACH; j++)
            if (meets[j]) sum[i][j] += a[i] * b[j];
      }
    }
  }
#pragma unroll
  for (int i = 0; i < EACH; i++)
#pragma unroll
    for (int j = 0; j < EACH; j++) {
      int m = m0 + ty + i, pixel = pixel0 + tx + j;
      if (m >= s.channels_m || pixel >= pixels) continue;
      i64 plane = s.h * s.w, channel = group * s.channels_m + m;
      acc value = sum[i][j] + (bias ? to<acc>(bias[channel]) : (acc)0);
      to_image[((i64)(pixel / plane) * s.all_m + channel) * plane + pixel % plane] =
          from<T>(value);
    }
}

KERNEL void __launch_bounds__(SIMT_THREADS) conv_forward(hy_conv c) {
  side s = {c.group_out, c.group_in, c.out_channels, c.in_channels, c.out_h, c.out_w, c.h, c.w};
  conv_tile<true>(c, s, (const T*)c.x, (T*)c.out, (const T*)c.bias);
}

KERNEL void __launch_bounds__(SIMT_THREADS) conv_backward_input(hy_conv c) {
  side s = {c.group_in, c.group_out, c.in_channels, c.out_channels, c.h, c.w, c.out_h, c.out_w};
  conv_tile<false>(c, s, (const T*)c.dy, (T*)c.dx, (const T*)0);
}

// dweight[out, (in, tap)] = sum over images and pixels of dy[out, pixel] x[in, pixel's tap]: a GEMM
// whose k is long, split among blocks.
struct dy_rows {
  const hy_conv& c;
  int group;
  __device__ __forceinline__ acc operator()(int m, int k) const {
    int plane = c.out_h * c.out_w;
    i64 channel = (i64)(k / plane) * c.out_channels + group * c.group_out + m;
    return to<acc>(((const T*)c.dy)[channel * plane + k % plane]);
  }
};

struct x_taps {
  const hy_conv& c;
  int group;
  __device__ __forceinline__ acc operator()(int n, int k) const {
    int taps = c.kernel_h * c.kernel_w, tap = n % taps, plane = c.out_h * c.out_w;
    int y = forward_place(k % plane / c.out_w, tap / c.kernel_w, c.stride_h, c.padding_h,
                          c.dilation_h, c.h);
    int x = forward_place(k % c.out_w, tap % c.kernel_w, c.stride_w, c.padding_w, c.dilation_w,
                          c.w);
    if (y < 0 || x < 0) return (acc)0;
    i64 channel = (i64)(k / plane) * c.in_channels + group * c.group_in + n / taps;
    return to<acc>(((const T*)c.x)[(channel * c.h + y) * c.w + x]);
  }
};

KERNEL void __launch_bounds__(SIMT_THREADS) conv_backward_weight(hy_conv c) {
  const int group = blockIdx.z / c.splits, split = blockIdx.z % c.splits;
  const int columns = c.group_in * c.kernel_h * c.kernel_w;
  const int depth = c.images * c.out_h * c.out_w, part = (depth + c.splits - 1) / c.splits;
  const int begin = min(split * part, depth), end = min(begin + part, depth);
  acc* partial = (acc*)c.partial + ((i64)split * c.out_channels + group * c.group_out) * columns;
  dy_rows a = {c, group};
  x_taps b = {c, group};
  simt_gemm<acc, TILE, TILE, DEPTH, true, true>(
      (int)blockIdx.x * TILE, c.group_out, (int)blockIdx.y * TILE, columns, begin, end, a, b,
      [&](int m, int n, acc sum) { partial[(i64)m * columns + n] = sum; });
}

KERNEL void conv_weight_sum(hy_conv c) {
  const i64 n = (i64)c.out_channels * c.group_in * c.kernel_h * c.kernel_w;
  GRID_STRIDE(i, n) {
    acc sum = 0;
    for (int s = 0; s < c.splits; s++) sum += ((const acc*)c.partial)[s * n + i];
    ((T*)c.dweight)[i] = from<T>(sum);
  }
}

// A block for each channel.
KERNEL void conv_backward_bias(hy_conv c) {
  __shared__ acc partial[32];
  const i64 plane = (i64)c.out_h * c.out_w;
  acc sum = 0;
  for (i64 i = threadIdx.x; i < c.images * plane; i += blockDim.x)
    sum += to<acc>(((const T*)c.dy)[(i / plane * c.out_channels + blockIdx.x) * plane + i % plane]);
  sum = block_reduce<add_op>(sum, partial);
  if (threadIdx.x == 0) ((T*)c.dbias)[blockIdx.x] = from<T>(sum);
}
