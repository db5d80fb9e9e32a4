// The matrix product of the reference, on numbers that callbacks bring and take: every op that
// multiplies matrices, of whatever storage, is this loop.
#ifndef HALYARD_REFERENCE_PRODUCT_H_
#define HALYARD_REFERENCE_PRODUCT_H_

#include "ops/internal.h"

// [m, k] times [k, n]. `row` and `column` fill k numbers; `put` takes the n finished sums of row i
// from column j on and may overwrite them. Each column is asked for once, each row once per 64
// columns.
#define HY__PRODUCT(suffix, number)                                                  \
  typedef struct hy__product_##suffix {                                              \
    int64_t m, n, k;                                                                 \
    const void* context;                                                             \
    void (*row)(const void* context, int64_t i, number* values);                     \
    void (*column)(const void* context, int64_t j, number* values);                  \
    void (*put)(const void* context, int64_t i, int64_t j, int64_t n, number* sums); \
  } hy__product_##suffix;                                                            \
  hy_status hy__multiply_##suffix(const hy_call* call, const hy__product_##suffix* product);

HY__PRODUCT(f, double)
HY__PRODUCT(i, int64_t)  // wraps
#undef HY__PRODUCT

#endif  // HALYARD_REFERENCE_PRODUCT_H_
