// GEMV, epilogue and conversion of rows in plain C.
#include "backends/cpu/family.h"
#include "backends/cpu/simd/half.h"

void hy__gemv_generic(const hy__matrix* w, int64_t first, int n, int64_t k, const float* x,
                      int64_t ldx, int m, float* out, int64_t ldo) {
  enum { PARTS = 8 };  // sums that a compiler may hold in one vector
  int64_t size = (int64_t)hy_dtype_size(w->dtype);
  for (int r = 0; r < n; r++) {
    const char* row = hy__matrix_at(w, first + r, 0);
    for (int l = 0; l < m; l++) {
      const float* line = x + l * ldx;
      float sums[PARTS] = {0}, sum = 0;
      int64_t i = 0;
      for (; i + PARTS <= k; i += PARTS) {
        for (int p = 0; p < PARTS; p++)
          sums[p] += line[i + p] * hy__load1(row + (i + p) * size, w->dtype);
      }
      for (; i < k; i++) sum += line[i] * hy__load1(row + i * size, w->dtype);
      for (int p = 0; p < PARTS; p++) sum += sums[p];
      out[l * ldo + r] = sum;
    }
  }
}

void hy__epilogue_generic(int64_t n, const float* sums, float alpha, float beta, const void* addend,
                          int64_t addend_step, void* out, int64_t out_step, hy_dtype dtype) {
  int64_t size = (int64_t)hy_dtype_size(dtype);
  for (int64_t i = 0; i < n; i++) {
    float value = alpha * sums[i];
    if (addend) value += beta * hy__load1((const char*)addend + i * addend_step * size, dtype);
    hy__store1((char*)out + i * out_step * size, dtype, value);
  }
}

void hy__widen_generic(int64_t n, const void* from, int64_t step, hy_dtype dtype, float* x) {
  int64_t size = (int64_t)hy_dtype_size(dtype);
  for (int64_t i = 0; i < n; i++) x[i] = hy__load1((const char*)from + i * step * size, dtype);
}
