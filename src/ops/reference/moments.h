// Mean and variance in two passes.
#ifndef HALYARD_REFERENCE_MOMENTS_H_
#define HALYARD_REFERENCE_MOMENTS_H_

#include <stdint.h>

// The mean is wider than what it is taken from: numbers far from 0 would show how it was rounded.
typedef struct hy__moments {
  long double mean;
  double var;  // divides by n
} hy__moments;

static inline hy__moments hy__measure(const double* v, int64_t n) {
  hy__moments m = {0, 0};
  for (int64_t i = 0; i < n; i++) m.mean += v[i];
  m.mean /= (double)n;
  for (int64_t i = 0; i < n; i++) {
    double distance = (double)(v[i] - m.mean);
    m.var += distance * distance;
  }
  m.var /= (double)n;
  return m;
}

#endif  // HALYARD_REFERENCE_MOMENTS_H_
