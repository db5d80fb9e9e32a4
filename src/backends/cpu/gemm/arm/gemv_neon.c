// GEMV and skinny GEMM, epilogue and conversion of rows in NEON.
#include "backends/cpu/family.h"

#if defined(__aarch64__)
#include <arm_neon.h>

#include "backends/cpu/runtime/target.h"
#include "backends/cpu/simd/half.h"

enum { NR = 4, MR = 2, WIDTH = 8 };  // of one block: their sums stay in registers

typedef struct eight {
  float32x4_t low, high;
} eight;

HY__INLINE eight load8(const char* p, hy_dtype dtype) {
  if (dtype == HY_F32) {
    const float* x = (const float*)p;
    return (eight){vld1q_f32(x), vld1q_f32(x + 4)};
  }
  uint16x8_t half = vld1q_u16((const uint16_t*)p);
  if (dtype == HY_F16) {
    float16x8_t x = vreinterpretq_f16_u16(half);
    return (eight){vcvt_f32_f16(vget_low_f16(x)), vcvt_high_f32_f16(x)};
  }
  return (eight){vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(half), 16)),
                 vreinterpretq_f32_u32(vshll_high_n_u16(half, 16))};
}

// The same rounding as hy__float_to_bf16.
HY__INLINE uint16x4_t to_bf16(float32x4_t x) {
  uint32x4_t bits = vreinterpretq_u32_f32(x);
  uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
  uint32x4_t rounded = vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7fff)));
  rounded = vbslq_u32(vceqq_f32(x, x), rounded, vdupq_n_u32(0x7fc00000));
  return vshrn_n_u32(rounded, 16);
}

HY__INLINE void store8(char* p, hy_dtype dtype, eight x) {
  if (dtype == HY_F32) {
    vst1q_f32((float*)p, x.low);
    vst1q_f32((float*)p + 4, x.high);
    return;
  }
  uint16x8_t half = dtype == HY_F16
                        ? vreinterpretq_u16_f16(vcvt_high_f16_f32(vcvt_f16_f32(x.low), x.high))
                        : vcombine_u16(to_bf16(x.low), to_bf16(x.high));
  vst1q_u16((uint16_t*)p, half);
}

HY__INLINE void block(int n, int m, hy_dtype dtype, const char* const w[NR], int64_t k,
                      const float* x, int64_t ldx, float* out, int64_t ldo) {
  int64_t size = dtype == HY_F32 ? 4 : 2, whole = k / WIDTH * WIDTH;
  eight sums[MR][NR];
  for (int l = 0; l < m; l++) {
    for (int r = 0; r < n; r++) sums[l][r] = (eight){vdupq_n_f32(0), vdupq_n_f32(0)};
  }
  for (int64_t at = 0; at < whole; at += WIDTH) {
#pragma GCC unroll 4
    for (int r = 0; r < n; r++) {
      eight weights = load8(w[r] + at * size, dtype);
#pragma GCC unroll 2
      for (int l = 0; l < m; l++) {
        eight* sum = &sums[l][r];
        const float* line = x + l * ldx + at;
        sum->low = vfmaq_f32(sum->low, vld1q_f32(line), weights.low);
        sum->high = vfmaq_f32(sum->high, vld1q_f32(line + 4), weights.high);
      }
    }
  }
  for (int l = 0; l < m; l++) {
    for (int r = 0; r < n; r++) {
      float sum = vaddvq_f32(vaddq_f32(sums[l][r].low, sums[l][r].high));
      for (int64_t at = whole; at < k; at++)
        sum += x[l * ldx + at] * hy__load1(w[r] + at * size, dtype);
      out[l * ldo + r] = sum;
    }
  }
}

#include "backends/cpu/gemm/gemv_tmpl.h"

void hy__gemv_neon(const hy__matrix* w, int64_t first, int n, int64_t k, const float* x,
                   int64_t ldx, int m, float* out, int64_t ldo) {
  switch (w->dtype) {
    case HY_F32: gemv_of(HY_F32, w, first, n, k, x, ldx, m, out, ldo); return;
    case HY_BF16: gemv_of(HY_BF16, w, first, n, k, x, ldx, m, out, ldo); return;
    default: gemv_of(HY_F16, w, first, n, k, x, ldx, m, out, ldo); return;
  }
}

void hy__epilogue_neon(int64_t n, const float* sums, float alpha, float beta, const void* addend,
                       int64_t addend_step, void* out, int64_t out_step, hy_dtype dtype) {
  int64_t size = dtype == HY_F32 ? 4 : 2;
  bool lined_up = out_step == 1 && (!addend || addend_step == 1);
  int64_t whole = lined_up ? n / WIDTH * WIDTH : 0;
  const char* from = addend;
  char* to = out;
  for (int64_t i = 0; i < whole; i += WIDTH) {
    eight x = {vmulq_n_f32(vld1q_f32(sums + i), alpha),
               vmulq_n_f32(vld1q_f32(sums + i + 4), alpha)};
    if (addend) {
      eight more = load8(from + i * size, dtype);
      x.low = vfmaq_n_f32(x.low, more.low, beta);
      x.high = vfmaq_n_f32(x.high, more.high, beta);
    }
    store8(to + i * size, dtype, x);
  }
  hy__epilogue_generic(n - whole, sums + whole, alpha, beta,
                       addend ? from + whole * addend_step * size : NULL, addend_step,
                       to + whole * out_step * size, out_step, dtype);
}

void hy__widen_neon(int64_t n, const void* from, int64_t step, hy_dtype dtype, float* x) {
  int64_t size = dtype == HY_F32 ? 4 : 2, whole = step == 1 ? n / WIDTH * WIDTH : 0;
  const char* p = from;
  for (int64_t i = 0; i < whole; i += WIDTH)
    store8((char*)(x + i), HY_F32, load8(p + i * size, dtype));
  hy__widen_generic(n - whole, p + whole * step * size, step, dtype, x + whole);
}
#endif
