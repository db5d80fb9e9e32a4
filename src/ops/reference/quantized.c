// Numbers of few bits with a scale for each group of a row, and layers whose weights are such.
//
// Quantising is symmetric: scale = max|x| / limit, q = x / scale rounded to nearest even, with the
// limits 127 (i8), 7 (i4: -8 is not used), 448 (f8e4m3) and 57344 (f8e5m2). A group of zeros has
// the scale 1. A group that holds an infinity or a NaN has that for a scale and q = 0, so that all
// of it dequantises to NaN: nothing is hidden.
#include <math.h>

#include "ops/reference/layer.h"
#include "ops/reference/scratch.h"
#include "ops/reference/slices.h"

static double limit_of(hy_dtype dtype) {
  switch (dtype) {
    case HY_I8: return 127;
    case HY_I4: return 7;
    case HY_F8E4M3: return 448;
    default: return 57344;
  }
}

static int64_t row_count(const hy_tensor* t) {
  int64_t rows = 1;
  for (int d = 0; d < t->ndim - 1; d++) rows *= t->shape[d];
  return rows;
}

static int64_t row_size(const hy_tensor* t) {
  return t->shape[t->ndim - 1];
}

// Row `row` of a quantised tensor, as the numbers it stores.
static void load_row(const hy_tensor* q, int64_t row, double* values) {
  int64_t n = row_size(q);
  if (q->layout != HY_LAYOUT_PACKED_I4) {
    hy__load_row_f(q->dtype, hy__row_address(q, row), q->stride[q->ndim - 1], n, values);
    return;
  }
  const uint8_t* bytes = (const uint8_t*)q->data + row * n / 2;
  for (int64_t i = 0; i < n; i++) {
    int nibble = bytes[i / 2] >> (i % 2 * 4) & 15;
    values[i] = nibble < 8 ? nibble : nibble - 16;
  }
}

static void store_row(const hy_tensor* q, int64_t row, const double* values) {
  int64_t n = row_size(q);
  if (q->layout != HY_LAYOUT_PACKED_I4) {
    hy__store_row_f(q->dtype, hy__row_address(q, row), q->stride[q->ndim - 1], n, values);
    return;
  }
  uint8_t* bytes = (uint8_t*)q->data + row * n / 2;
  for (int64_t i = 0; i < n; i += 2)
    bytes[i / 2] = (uint8_t)(((int)values[i] & 15) | ((int)values[i + 1] & 15) << 4);
}

static double scale_at(const hy_tensor* scale, int64_t row, int64_t group) {
  const char* at = hy__row_address(scale, row);
  return hy__load_f(scale->dtype, at + group * scale->stride[scale->ndim - 1] *
                                           (int64_t)hy_dtype_size(scale->dtype));
}

static void load_scaled_row(const hy_tensor* q, const hy_tensor* scale, int64_t row,
                            double* values) {
  int64_t n = row_size(q), groups = row_size(scale), group = groups > 0 ? n / groups : 0;
  load_row(q, row, values);
  for (int64_t g = 0; g < groups; g++) {
    double factor = scale_at(scale, row, g);
    for (int64_t i = g * group; i < (g + 1) * group; i++) values[i] *= factor;
  }
}

// Replaces the n values by their quantised form and returns the scale.
static double quantize_group(hy_dtype dtype, int64_t n, double* values) {
  double largest = 0, limit = limit_of(dtype);
  bool has_nan = false;
  for (int64_t i = 0; i < n; i++) {
    has_nan = has_nan || isnan(values[i]);
    largest = fmax(largest, fabs(values[i]));
  }
  double scale = (float)((has_nan ? NAN : largest) / limit);
  if (scale == 0) scale = 1;
  for (int64_t i = 0; i < n; i++) {
    double q = isfinite(scale) ? fmin(fmax(values[i] / scale, -limit), limit) : 0;
    values[i] = dtype == HY_I8 || dtype == HY_I4 ? rint(q) : q;
  }
  return scale;
}

hy_status hy__ref_quantize(const hy_call* call) {
  const hy_tensor *x = &call->in[0], *q = &call->out[0], *scale = &call->out[1];
  int64_t rows = row_count(x), n = row_size(x), groups = row_size(scale);
  double* values = hy__scratch(call, n, 1);
  if (!values) return HY_OUT_OF_MEMORY;
  for (int64_t r = 0; r < rows; r++) {
    hy__load_row_f(x->dtype, hy__row_address(x, r), x->stride[x->ndim - 1], n, values);
    for (int64_t g = 0; g < groups; g++) {
      double s = quantize_group(q->dtype, n / groups, values + g * (n / groups));
      hy__store_f(scale->dtype, hy__element(scale, r * groups + g), s);
    }
    store_row(q, r, values);
  }
  hy__mfree(values);
  return HY_OK;
}

hy_status hy__ref_dequantize(const hy_call* call) {
  const hy_tensor *q = &call->in[0], *scale = &call->in[1], *out = &call->out[0];
  int64_t rows = row_count(q), n = row_size(q);
  double* values = hy__scratch(call, n, 1);
  if (!values) return HY_OUT_OF_MEMORY;
  for (int64_t r = 0; r < rows; r++) {
    load_scaled_row(q, scale, r, values);
    hy__store_row_f(out->dtype, hy__row_address(out, r), out->stride[out->ndim - 1], n, values);
  }
  hy__mfree(values);
  return HY_OK;
}

static void weight_row(const hy_call* call, int64_t row, double* values) {
  load_scaled_row(&call->in[1], &call->in[2], row, values);
}

hy_status hy__ref_linear_quantized(const hy_call* call) {
  return hy__layer(call, &call->in[3], NULL, weight_row);
}

static void int8_x_row(const hy_call* call, int64_t row, double* values) {
  load_scaled_row(&call->in[0], &call->in[1], row, values);
}

static void int8_weight_row(const hy_call* call, int64_t row, double* values) {
  load_scaled_row(&call->in[2], &call->in[3], row, values);
}

// A double holds the products of 24 bits of scale and 7 of number, so that the sums of a group lose
// nothing that f32 could show.
hy_status hy__ref_linear_int8(const hy_call* call) {
  return hy__layer(call, &call->in[4], int8_x_row, int8_weight_row);
}

// ---- fused_linear ----

typedef struct fused {
  const hy_call* call;
  double *x, *weight, *sums;  // [K], [K], [N]
} fused;

// Row `row` of x, normed where there is a norm.
static void fused_x(const fused* f, int64_t row) {
  const hy_tensor *x = &f->call->in[0], *norm = &f->call->in[1];
  int64_t k = row_size(x);
  hy__load_row_f(x->dtype, hy__row_address(x, row), x->stride[x->ndim - 1], k, f->x);
  if (!hy__present(norm)) return;
  double square = 0;
  for (int64_t i = 0; i < k; i++) square += f->x[i] * f->x[i];
  double factor = 1 / sqrt(square / (double)k + f->call->attrs.fused_linear.eps);
  for (int64_t i = 0; i < k; i++) f->x[i] *= factor * hy__load_f(norm->dtype, hy__element(norm, i));
}

static void fused_row(const fused* f, int64_t row) {
  const hy_tensor *in = f->call->in, *weight = &in[2], *bias = &in[4], *residual = &in[5];
  const hy_tensor* out = &f->call->out[0];
  int64_t n = weight->shape[0], k = weight->shape[1], outs = row_size(out);
  fused_x(f, row);
  for (int64_t j = 0; j < n; j++) {
    if (hy__present(&in[3]))
      load_scaled_row(weight, &in[3], j, f->weight);
    else
      load_row(weight, j, f->weight);
    double sum = 0;
    for (int64_t i = 0; i < k; i++) sum += f->x[i] * f->weight[i];
    if (hy__present(bias)) sum += hy__load_f(bias->dtype, hy__element(bias, j));
    f->sums[j] = sum;
  }
  for (int64_t j = 0; j < outs; j++) {
    double y = f->sums[j];
    if (f->call->attrs.fused_linear.gated) y = y / (1 + exp(-y)) * f->sums[outs + j];
    if (hy__present(residual))
      y += hy__load_f(residual->dtype, hy__element(residual, row * outs + j));
    hy__store_f(out->dtype, hy__element(out, row * outs + j), y);
  }
}

hy_status hy__ref_fused_linear(const hy_call* call) {
  int64_t rows = row_count(&call->in[0]), n = call->in[2].shape[0], k = call->in[2].shape[1];
  double* memory = hy__scratch(call, 2 * k + n, 1);
  if (!memory) return HY_OUT_OF_MEMORY;
  fused f = {call, memory, memory + k, memory + 2 * k};
  for (int64_t r = 0; r < rows; r++) fused_row(&f, r);
  hy__mfree(memory);
  return HY_OK;
}
