// Online softmax and weighted sum of attention in plain C.
#include <math.h>

#include "backends/cpu/attention/kernels.h"
#include "backends/cpu/simd/half.h"

void hy__online_softmax_generic(float* scores, const int* seen, int keys, int nr, float* max,
                                float* total, float* sums, int64_t rows) {
  for (int q = 0; q < nr; q++) {
    int visible = seen[q / HY__QUERY_GROUP];
    float now = max[q], sum = 0;
    for (int s = 0; s < visible; s++) {
      float score = scores[s * nr + q];
      now = score > now ? score : now;
    }
    // Where nothing is visible yet, every weight is 0 and there is nothing to shrink.
    float base = now == -INFINITY ? 0 : now;
    float factor = max[q] == now ? 1 : expf(max[q] - base);
    for (int64_t r = 0; r < rows && factor != 1; r++) sums[r * nr + q] *= factor;
    for (int s = 0; s < visible; s++) sum += scores[s * nr + q] = expf(scores[s * nr + q] - base);
    for (int s = visible; s < keys; s++) scores[s * nr + q] = 0;
    total[q] = total[q] * factor + sum;
    max[q] = now;
  }
}

void hy__exp_columns_generic(float* scores, int keys, int nr, const float* base) {
  for (int s = 0; s < keys; s++) {
    for (int q = 0; q < nr; q++) {
      float* score = &scores[s * nr + q];
      *score = base[q] == -INFINITY ? 0 : expf(*score - base[q]);
    }
  }
}

void hy__weighted_sum_generic(const hy__matrix* v, int rows, int64_t n, const float* p, int64_t ldp,
                              int m, float* out, int64_t ldo) {
  for (int i = 0; i < m; i++) {
    for (int r = 0; r < rows; r++) {
      float weight = p[i * ldp + r];
      for (int64_t c = 0; c < n; c++)
        out[i * ldo + c] += weight * hy__load1(hy__matrix_at(v, r, c), v->dtype);
    }
  }
}
