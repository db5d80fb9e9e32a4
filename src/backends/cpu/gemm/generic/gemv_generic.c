// Dot products and conversions of lines, and the softmax of attention, in plain C.
#include <math.h>

#include "backends/cpu/family.h"
#include "backends/cpu/simd/half.h"

void hy__dot_scalar(const hy__matrix* w, int64_t first, int rows, int64_t k, const float* x,
                    int64_t x_line, int lines, float* out, int64_t out_line) {
  enum { PARTS = 8 };  // sums that a compiler may hold in one vector
  int64_t size = (int64_t)hy_dtype_size(w->dtype);
  for (int r = 0; r < rows; r++) {
    const char* row = hy__matrix_at(w, first + r, 0);
    for (int l = 0; l < lines; l++) {
      const float* line = x + l * x_line;
      float sums[PARTS] = {0}, sum = 0;
      int64_t i = 0;
      for (; i + PARTS <= k; i += PARTS) {
        for (int p = 0; p < PARTS; p++)
          sums[p] += line[i + p] * hy__load1(row + (i + p) * size, w->dtype);
      }
      for (; i < k; i++) sum += line[i] * hy__load1(row + i * size, w->dtype);
      for (int p = 0; p < PARTS; p++) sum += sums[p];
      out[l * out_line + r] = sum;
    }
  }
}

void hy__finish_scalar(int64_t n, const float* sums, float alpha, float beta, const void* addend,
                       int64_t addend_step, void* out, int64_t out_step, hy_dtype dtype) {
  int64_t size = (int64_t)hy_dtype_size(dtype);
  for (int64_t i = 0; i < n; i++) {
    float value = alpha * sums[i];
    if (addend) value += beta * hy__load1((const char*)addend + i * addend_step * size, dtype);
    hy__store1((char*)out + i * out_step * size, dtype, value);
  }
}

void hy__widen_scalar(int64_t n, const void* from, int64_t step, hy_dtype dtype, float* x) {
  int64_t size = (int64_t)hy_dtype_size(dtype);
  for (int64_t i = 0; i < n; i++) x[i] = hy__load1((const char*)from + i * step * size, dtype);
}

void hy__soften_scalar(float* scores, const int* seen, int keys, int panel, float* largest,
                       float* total, float* sums, int64_t rows) {
  for (int q = 0; q < panel; q++) {
    int visible = seen[q / HY__QUERY_GROUP];
    float most = largest[q], sum = 0;
    for (int s = 0; s < visible; s++) {
      float score = scores[s * panel + q];
      most = score > most ? score : most;
    }
    // Where nothing is visible yet, every weight is 0 and there is nothing to shrink.
    float base = most == -INFINITY ? 0 : most;
    float factor = largest[q] == most ? 1 : expf(largest[q] - base);
    for (int64_t r = 0; r < rows && factor != 1; r++) sums[r * panel + q] *= factor;
    for (int s = 0; s < visible; s++)
      sum += scores[s * panel + q] = expf(scores[s * panel + q] - base);
    for (int s = visible; s < keys; s++) scores[s * panel + q] = 0;
    total[q] = total[q] * factor + sum;
    largest[q] = most;
  }
}

void hy__exp_columns_scalar(float* scores, int keys, int panel, const float* base) {
  for (int s = 0; s < keys; s++) {
    for (int q = 0; q < panel; q++) {
      float* score = &scores[s * panel + q];
      *score = base[q] == -INFINITY ? 0 : expf(*score - base[q]);
    }
  }
}

void hy__mix_scalar(const hy__matrix* v, int rows, int64_t n, const float* p, int64_t p_line,
                    int lines, float* out, int64_t out_line) {
  for (int l = 0; l < lines; l++) {
    for (int r = 0; r < rows; r++) {
      float weight = p[l * p_line + r];
      for (int64_t c = 0; c < n; c++)
        out[l * out_line + c] += weight * hy__load1(hy__matrix_at(v, r, c), v->dtype);
    }
  }
}
