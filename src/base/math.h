// Integer arithmetic that loops over tiles and blocks need everywhere.
#ifndef HALYARD_BASE_MATH_H_
#define HALYARD_BASE_MATH_H_

#include <stdint.h>

static inline int64_t min_i64(int64_t a, int64_t b) {
  return a < b ? a : b;
}

static inline int64_t max_i64(int64_t a, int64_t b) {
  return a > b ? a : b;
}

static inline int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

static inline int64_t round_up(int64_t n, int64_t unit) {
  return ceil_div(n, unit) * unit;
}

#endif  // HALYARD_BASE_MATH_H_
