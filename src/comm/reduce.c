// Reductions over the parts of several ranks, element by element in the order of ranks, so that
// results repeat and equal a serial sum. f16 and bf16 are reduced in f32 and rounded once; integers
// wrap. A NaN stays one.
#include <string.h>

#include "comm/mpi.h"
#include "ops/reference/element.h"

enum { BLOCK = 1024 };  // elements: the accumulators stay in the first cache

#define MIN(a, b) ((a) < (b) || (a) != (a) ? (a) : (b))
#define MAX(a, b) ((a) > (b) || (a) != (a) ? (a) : (b))

// a[i] = a[i] op b[i].
#define COMBINE(name, type)                                             \
  static void name(hy_reduce_op op, type* a, const type* b, size_t n) { \
    switch (op) {                                                       \
      case HY_REDUCE_PROD:                                              \
        for (size_t i = 0; i < n; i++) a[i] = (type)(a[i] * b[i]);      \
        break;                                                          \
      case HY_REDUCE_MIN:                                               \
        for (size_t i = 0; i < n; i++) a[i] = MIN(a[i], b[i]);          \
        break;                                                          \
      case HY_REDUCE_MAX:                                               \
        for (size_t i = 0; i < n; i++) a[i] = MAX(a[i], b[i]);          \
        break;                                                          \
      default:                                                          \
        for (size_t i = 0; i < n; i++) a[i] = (type)(a[i] + b[i]);      \
    }                                                                   \
  }
COMBINE(combine_f32, float)
COMBINE(combine_f64, double)

// Sums and products of integers wrap, which only unsigned ones may; comparison needs the sign.
#define COMBINE_INT(name, type, wide)                                          \
  static void name(hy_reduce_op op, type* a, const type* b, size_t n) {        \
    switch (op) {                                                              \
      case HY_REDUCE_PROD:                                                     \
        for (size_t i = 0; i < n; i++) a[i] = (type)((wide)a[i] * (wide)b[i]); \
        break;                                                                 \
      case HY_REDUCE_MIN:                                                      \
        for (size_t i = 0; i < n; i++) a[i] = a[i] < b[i] ? a[i] : b[i];       \
        break;                                                                 \
      case HY_REDUCE_MAX:                                                      \
        for (size_t i = 0; i < n; i++) a[i] = a[i] > b[i] ? a[i] : b[i];       \
        break;                                                                 \
      default:                                                                 \
        for (size_t i = 0; i < n; i++) a[i] = (type)((wide)a[i] + (wide)b[i]); \
    }                                                                          \
  }
COMBINE_INT(combine_i8, int8_t, uint32_t)
COMBINE_INT(combine_u8, uint8_t, uint32_t)
COMBINE_INT(combine_i16, int16_t, uint32_t)
COMBINE_INT(combine_i32, int32_t, uint32_t)
COMBINE_INT(combine_i64, int64_t, uint64_t)

// ---- 16-bit types in f32 ----

static void load_bf16(const char* from, size_t n, float* to) {
  for (size_t i = 0; i < n; i++) {
    uint16_t bits;
    memcpy(&bits, from + 2 * i, sizeof bits);
    uint32_t wide = (uint32_t)bits << 16;
    memcpy(&to[i], &wide, sizeof wide);
  }
}

static void store_bf16(const float* from, size_t n, char* to) {
  for (size_t i = 0; i < n; i++) {
    uint32_t bits;
    memcpy(&bits, &from[i], sizeof bits);
    uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    bool nan = (bits & 0x7fffffff) > 0x7f800000;
    uint16_t half = (uint16_t)(nan ? bits >> 16 | 0x40 : rounded);
    memcpy(to + 2 * i, &half, sizeof half);
  }
}

static void load_half(hy_dtype dtype, const char* from, size_t n, float* to) {
  if (dtype == HY_BF16) {
    load_bf16(from, n, to);
    return;
  }
  double row[BLOCK];
  hy__load_row_f(dtype, from, 1, (int64_t)n, row);
  for (size_t i = 0; i < n; i++) to[i] = (float)row[i];
}

static void store_half(hy_dtype dtype, const float* from, size_t n, char* to) {
  if (dtype == HY_BF16) {
    store_bf16(from, n, to);
    return;
  }
  double row[BLOCK];
  for (size_t i = 0; i < n; i++) row[i] = from[i];
  hy__store_row_f(dtype, to, 1, (int64_t)n, row);
}

// ---- blocks ----

static void reduce_half(hy_dtype dtype, hy_reduce_op op, const char* const* parts, int n_parts,
                        size_t at, size_t n, char* out) {
  float sum[BLOCK], next[BLOCK];
  load_half(dtype, parts[0] + at, n, sum);
  for (int r = 1; r < n_parts; r++) {
    load_half(dtype, parts[r] + at, n, next);
    combine_f32(op, sum, next, n);
  }
  if (op == HY_REDUCE_AVG)
    for (size_t i = 0; i < n; i++) sum[i] /= (float)n_parts;
  store_half(dtype, sum, n, out + at);
}

// Buffers of a user's need no alignment: each part goes through the block.
#define REDUCE(name, type, combine, average)                                                    \
  static void name(hy_reduce_op op, const char* const* parts, int n_parts, size_t at, size_t n, \
                   char* out) {                                                                 \
    type sum[BLOCK], next[BLOCK];                                                               \
    memcpy(sum, parts[0] + at, n * sizeof *sum);                                                \
    for (int r = 1; r < n_parts; r++) {                                                         \
      memcpy(next, parts[r] + at, n * sizeof *next);                                            \
      combine(op, sum, next, n);                                                                \
    }                                                                                           \
    if (op == HY_REDUCE_AVG)                                                                    \
      for (size_t i = 0; i < n; i++) sum[i] = (type)(average);                                  \
    memcpy(out + at, sum, n * sizeof *sum);                                                     \
  }
REDUCE(reduce_f32, float, combine_f32, sum[i] / (float)n_parts)
REDUCE(reduce_f64, double, combine_f64, sum[i] / n_parts)
REDUCE(reduce_i8, int8_t, combine_i8, sum[i])
REDUCE(reduce_u8, uint8_t, combine_u8, sum[i])
REDUCE(reduce_i16, int16_t, combine_i16, sum[i])
REDUCE(reduce_i32, int32_t, combine_i32, sum[i])
REDUCE(reduce_i64, int64_t, combine_i64, sum[i])

void hy__reduce_parts(hy_dtype dtype, hy_reduce_op op, const char* const* parts, int n_parts,
                      size_t count, char* out) {
  size_t size = (size_t)hy_dtype_size(dtype);
  for (size_t first = 0; first < count; first += BLOCK) {
    size_t n = count - first < BLOCK ? count - first : BLOCK, at = first * size;
    switch (dtype) {
      case HY_F32: reduce_f32(op, parts, n_parts, at, n, out); break;
      case HY_F64: reduce_f64(op, parts, n_parts, at, n, out); break;
      case HY_I8: reduce_i8(op, parts, n_parts, at, n, out); break;
      case HY_U8: reduce_u8(op, parts, n_parts, at, n, out); break;
      case HY_I16: reduce_i16(op, parts, n_parts, at, n, out); break;
      case HY_I32: reduce_i32(op, parts, n_parts, at, n, out); break;
      case HY_I64: reduce_i64(op, parts, n_parts, at, n, out); break;
      default: reduce_half(dtype, op, parts, n_parts, at, n, out);
    }
  }
}
