// Pooling over planes, one thread an element. The gradients gather: an input element looks at the
// windows that can hold it, in a fixed order, so that nothing is added by atomics. Option: T; of
// integers max_pool alone is used.
//
// types: f32 f64 f16 bf16 i8 i16 i32 i64 u8
#include "params.h"

typedef traits<T>::math math;

// Windows start <= i <= end along one dimension that can reach place `at`.
struct reach {
  int first, last;
};
DEVICE reach windows_over(int at, int kernel, int stride, int padding, int dilation, int count) {
  int high = at + padding, low = high - (kernel - 1) * dilation;
  reach r = {low > 0 ? (low + stride - 1) / stride : 0, high / stride};
  if (r.last > count - 1) r.last = count - 1;
  return r;
}

DEVICE bool above(math x, math best) { return x > best || x != x; }

// Below every element of the type.
DEVICE T lowest(T) {
  if (traits<T>::is_float) return from<T>(-INF_F32);
  return from<T>(same<T, u8>::value ? (i64)0 : -((i64)1 << (sizeof(T) * 8 - 2)) * 2);
}

KERNEL void max_pool(hy_pool p) {
  const T* x = (const T*)p.x;
  GRID_STRIDE(i, p.planes * p.out_h * p.out_w) {
    int column = (int)(i % p.out_w), row = (int)(i / p.out_w % p.out_h);
    i64 plane = i / p.out_w / p.out_h * p.h * p.w, best = -1;
    math largest = 0;
    for (int r = 0; r < p.kernel_h; r++) {
      int y = row * p.stride_h - p.padding_h + r * p.dilation_h;
      if (y < 0 || y >= p.h) continue;
      for (int c = 0; c < p.kernel_w; c++) {
        int at = column * p.stride_w - p.padding_w + c * p.dilation_w;
        if (at < 0 || at >= p.w) continue;
        math value = to<math>(x[plane + (i64)y * p.w + at]);
        if (best >= 0 && !above(value, largest)) continue;
        best = (i64)y * p.w + at;
        largest = value;
      }
    }
    if (best >= 0)
      ((T*)p.out)[i] = x[plane + best];
    else
      ((T*)p.out)[i] = lowest(T());
    if (p.index) p.index[i] = best;
  }
}

// An index must be in its own window, as max_pool leaves it.
KERNEL void max_pool_check(hy_pool p, hy_gpu_fault* where, int op) {
  GRID_STRIDE(i, p.planes * p.out_h * p.out_w) {
    i64 place = p.index_in[i];
    if (place == -1) continue;
    int column = (int)(i % p.out_w), row = (int)(i / p.out_w % p.out_h);
    i64 r = place / p.w - (row * p.stride_h - p.padding_h);
    i64 c = place % p.w - (column * p.stride_w - p.padding_w);
    bool inside = place >= 0 && place < (i64)p.h * p.w && r >= 0 && c >= 0 &&
                  r % p.dilation_h == 0 && r / p.dilation_h < p.kernel_h &&
                  c % p.dilation_w == 0 && c / p.dilation_w < p.kernel_w;
    if (!inside) fault(where, HY_GPU_FAULT_INDEX, op, place, 0, (i64)p.h * p.w);
  }
}

KERNEL void max_pool_backward(hy_pool p) {
  const T* dy = (const T*)p.dy;
  GRID_STRIDE(i, p.planes * p.h * p.w) {
    int column = (int)(i % p.w), row = (int)(i / p.w % p.h);
    i64 plane = i / p.w / p.h * p.out_h * p.out_w, place = (i64)row * p.w + column;
    reach v = windows_over(row, p.kernel_h, p.stride_h, p.padding_h, p.dilation_h, p.out_h);
    reach u = windows_over(column, p.kernel_w, p.stride_w, p.padding_w, p.dilation_w, p.out_w);
    math sum = 0;
    for (int r = v.first; r <= v.last; r++)
      for (int c = u.first; c <= u.last; c++) {
        i64 at = plane + (i64)r * p.out_w + c;
        if (p.index_in[at] == place) sum += to<math>(dy[at]);
      }
    ((T*)p.dx)[i] = from<T>(sum);
  }
}

// A window clipped to the plane, and what its sum is divided by.
struct area {
  int top, bottom, left, right;
  math divisor;
};
DEVICE area area_at(const hy_pool& p, int row, int column) {
  int top = row * p.stride_h - p.padding_h, left = column * p.stride_w - p.padding_w;
  int bottom = min(top + p.kernel_h, p.h + p.padding_h);
  int right = min(left + p.kernel_w, p.w + p.padding_w);
  i64 padded = (i64)(bottom - top) * (right - left);
  area a = {max(top, 0), min(bottom, p.h), max(left, 0), min(right, p.w), 0};
  i64 inside = (i64)(a.bottom - a.top) * (a.right - a.left);
  a.divisor = (math)(p.divisor != 0 ? p.divisor : p.count_padding ? padded : inside);
  return a;
}

KERNEL void avg_pool(hy_pool p) {
  const T* x = (const T*)p.x;
  GRID_STRIDE(i, p.planes * p.out_h * p.out_w) {
    area a = area_at(p, (int)(i / p.out_w % p.out_h), (int)(i % p.out_w));
    i64 plane = i / p.out_w / p.out_h * p.h * p.w;
    math sum = 0;
    for (int r = a.top; r < a.bottom; r++)
      for (int c = a.left; c < a.right; c++) sum += to<math>(x[plane + (i64)r * p.w + c]);
    bool empty = a.top >= a.bottom || a.left >= a.right;
    ((T*)p.out)[i] = from<T>(empty ? (math)0 : sum / a.divisor);
  }
}

KERNEL void avg_pool_backward(hy_pool p) {
  const T* dy = (const T*)p.dy;
  GRID_STRIDE(i, p.planes * p.h * p.w) {
    int column = (int)(i % p.w), row = (int)(i / p.w % p.h);
    i64 plane = i / p.w / p.h * p.out_h * p.out_w;
    reach v = windows_over(row, p.kernel_h, p.stride_h, p.padding_h, 1, p.out_h);
    reach u = windows_over(column, p.kernel_w, p.stride_w, p.padding_w, 1, p.out_w);
    math sum = 0;
    for (int r = v.first; r <= v.last; r++)
      for (int c = u.first; c <= u.last; c++) {
        area a = area_at(p, r, c);
        sum += to<math>(dy[plane + (i64)r * p.out_w + c]) / a.divisor;
      }
    ((T*)p.dx)[i] = from<T>(sum);
  }
}
