// Matrix products of doubles and int64, for the reference.
#include "ops/reference/product.h"

#include "ops/reference/scratch.h"

#define STRIP 64

// A panel of columns is transposed in `panel`, so that the inner loop runs over neighbours and
// needs no reordering of sums to be fast. Integers multiply unsigned, where overflow wraps.
#define DEFINE(suffix, number, arithmetic)                                              \
  hy_status hy__multiply_##suffix(const hy_call* call, const hy__product_##suffix* p) { \
    number* line = hy__scratch(call, p->k, 1);                                          \
    arithmetic* panel = line ? hy__scratch(call, p->k, STRIP) : NULL;                   \
    if (!panel) {                                                                       \
      hy__mfree(line);                                                                  \
      return HY_OUT_OF_MEMORY;                                                          \
    }                                                                                   \
    for (int64_t first = 0; first < p->n; first += STRIP) {                             \
      int64_t width = p->n - first < STRIP ? p->n - first : STRIP;                      \
      for (int64_t j = 0; j < width; j++) {                                             \
        p->column(p->context, first + j, line);                                         \
        for (int64_t k = 0; k < p->k; k++) panel[k * width + j] = (arithmetic)line[k];  \
      }                                                                                 \
      for (int64_t i = 0; i < p->m; i++) {                                              \
        arithmetic sums[STRIP] = {0};                                                   \
        p->row(p->context, i, line);                                                    \
        for (int64_t k = 0; k < p->k; k++) {                                            \
          arithmetic a = (arithmetic)line[k];                                           \
          const arithmetic* b = panel + k * width;                                      \
          for (int64_t j = 0; j < width; j++) sums[j] += a * b[j];                      \
        }                                                                               \
        p->put(p->context, i, first, width, (number*)sums);                             \
      }                                                                                 \
    }                                                                                   \
    hy__mfree(panel);                                                                   \
    hy__mfree(line);                                                                    \
    return HY_OK;                                                                       \
  }

DEFINE(f, double, double)
DEFINE(i, int64_t, uint64_t)
