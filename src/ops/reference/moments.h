// Mean and variance in two passes.
#ifndef HALYARD_REFERENCE_MOMENTS_H_
#define HALYARD_REFERENCE_MOMENTS_H_

#include <stdint.h>

typedef struct hy__moments {
  double mean, var;  // the variance divides by n
} hy__moments;

static inline hy__moments hy__measure(const double* v, int64_t n) {
  hy__moments m = {0, 0};
  for (int64_t i = 0; i < n; i++) m.mean += v[i];
  m.mean /= (double)n;
  for (int64_t i = 0; i < n; i++) m.var += (v[i] - m.mean) * (v[i] - m.mean);
  m.var /= (double)n;
  return m;
}

#endif  // HALYARD_REFERENCE_MOMENTS_H_
