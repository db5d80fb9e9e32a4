// Along slices: reductions, softmax, norms, rotary positions. A slice that is not the last
// dimension, or not consecutive, is first copied into one that is.
#include <math.h>

#include "backends/echo/packets.h"

static hy_support rows(hy__echo_batch* batch, uint32_t function, float alpha, float beta,
                       const hy__echo_operand* dst, const hy__echo_operand* x,
                       const hy__echo_operand* y) {
  hy__echo_row_function f = {.function = function, .alpha = alpha, .beta = beta};
  return hy__echo_rows(batch, &f, dst, x, y);
}

// ---- Reductions ----

// Without the dimensions of `mask`, which are there with size 1 where they were kept.
static hy__echo_operand without(const hy__echo_operand* t, uint32_t mask, bool kept) {
  hy__echo_operand rest = *t;
  for (int d = t->ndim - 1; d >= 0 && kept; d--)
    if (mask >> d & 1) rest = hy__echo_select(&rest, d, 0);
  return rest;
}

hy_support hy__echo_reduce(hy__echo_batch* batch, const hy_call* call) {
  hy__echo_operand out, x, slices;
  const hy_dims* dims = &call->attrs.reduce.dims;
  HY__ECHO_NEED(hy__echo_float(batch, &call->out[0], &out));
  HY__ECHO_NEED(hy__echo_float(batch, &call->in[0], &x));
  uint32_t mask = dims->n ? 0 : (1u << x.ndim) - 1;
  for (int64_t i = 0; i < dims->n; i++)
    if (x.ndim) mask |= 1u << (dims->dim[i] < 0 ? dims->dim[i] + x.ndim : dims->dim[i]);
  hy__echo_operand result = without(&out, mask, call->attrs.reduce.keepdim);
  if (hy__echo_numel(&out) == 0) return HY_SUPPORT_YES;
  if (hy__echo_numel(&x) == 0) {
    uint32_t zero = 0, nan = out.type == ECHO_NPU_F32 ? 0x7fc00000 : 0x7fc0;
    return hy__echo_fill(batch, &result, call->op == HY_OP_mean ? nan : zero);
  }
  HY__ECHO_NEED(hy__echo_pack_slices(batch, &x, mask, &slices));
  float share = 1 / (float)slices.shape[slices.ndim - 1];
  switch (call->op) {
    case HY_OP_sum: return rows(batch, ECHO_NPU_FN_ROW_SUM, 0, 0, &result, &slices, NULL);
    case HY_OP_mean: return rows(batch, ECHO_NPU_FN_ROW_MEAN, 0, share, &result, &slices, NULL);
    case HY_OP_max: return rows(batch, ECHO_NPU_FN_ROW_MAX, 0, 0, &result, &slices, NULL);
    default: return rows(batch, ECHO_NPU_FN_ROW_MIN, 0, 0, &result, &slices, NULL);
  }
}

// ---- Softmax ----

// Lines to write the result to: those of the output, or temporary ones that `deliver` copies there.
static hy__echo_operand result_lines(hy__echo_batch* batch, const hy__echo_operand* out,
                                     uint32_t mask, const hy__echo_operand* like, bool* direct) {
  hy__echo_operand slices;
  *direct = hy__echo_slices(out, mask, &slices);
  return *direct ? slices : hy__echo_temporary(batch, out->type, like->ndim, like->shape);
}

// Back from slices to the dimension they were taken along.
static hy_support deliver(hy__echo_batch* batch, const hy__echo_operand* out, int dim,
                          const hy__echo_operand* slices) {
  hy__echo_operand moved = *out;
  for (int d = dim; d < out->ndim - 1; d++) {
    moved.shape[d] = out->shape[d + 1];
    moved.stride[d] = out->stride[d + 1];
  }
  moved.shape[out->ndim - 1] = out->shape[dim];
  moved.stride[out->ndim - 1] = out->stride[dim];
  return hy__echo_copy(batch, &moved, slices);
}

static int dim_of(const hy_call* call) {
  int ndim = call->in[0].ndim, dim = (int)call->attrs.dim.dim;
  return ndim == 0 ? 0 : dim < 0 ? dim + ndim : dim;
}

// A number alone is a slice of one.
static void at_least_one_dim(hy__echo_operand* t) {
  if (t->ndim > 0) return;
  t->ndim = 1;
  t->shape[0] = 1;
  t->stride[0] = 0;
}

hy_support hy__echo_softmax(hy__echo_batch* batch, const hy_call* call) {
  hy__echo_operand out, x, slices;
  HY__ECHO_NEED(hy__echo_float(batch, &call->out[0], &out));
  HY__ECHO_NEED(hy__echo_float(batch, &call->in[0], &x));
  if (hy__echo_numel(&out) == 0) return HY_SUPPORT_YES;
  at_least_one_dim(&out);
  at_least_one_dim(&x);
  int dim = dim_of(call);
  bool direct;
  HY__ECHO_NEED(hy__echo_pack_slices(batch, &x, 1u << dim, &slices));
  hy__echo_operand result = result_lines(batch, &out, 1u << dim, &slices, &direct);
  uint32_t function = call->op == HY_OP_softmax ? ECHO_NPU_FN_SOFTMAX : ECHO_NPU_FN_LOG_SOFTMAX;
  HY__ECHO_NEED(rows(batch, function, 1, 0, &result, &slices, NULL));
  return direct ? HY_SUPPORT_YES : deliver(batch, &out, dim, &result);
}

hy_support hy__echo_softmax_backward(hy__echo_batch* batch, const hy_call* call) {
  hy__echo_operand dx, dy, y, slices, y_lines;
  HY__ECHO_NEED(hy__echo_float(batch, &call->out[0], &dx));
  HY__ECHO_NEED(hy__echo_float(batch, &call->in[0], &dy));
  HY__ECHO_NEED(hy__echo_float(batch, &call->in[1], &y));
  if (hy__echo_numel(&dx) == 0) return HY_SUPPORT_YES;
  at_least_one_dim(&dx);
  at_least_one_dim(&dy);
  at_least_one_dim(&y);
  int dim = dim_of(call);
  uint32_t mask = 1u << dim;
  bool direct;
  HY__ECHO_NEED(hy__echo_pack_slices(batch, &dy, mask, &slices));
  HY__ECHO_NEED(hy__echo_pack_slices(batch, &y, mask, &y_lines));
  hy__echo_operand result = result_lines(batch, &dx, mask, &slices, &direct);
  if (call->op == HY_OP_softmax_backward) {
    HY__ECHO_NEED(rows(batch, ECHO_NPU_FN_SOFTMAX_BWD, 1, 0, &result, &slices, &y_lines));
  } else {
    // dy - exp(y) * sum(dy)
    int64_t shape[HY_MAX_DIMS + 1];
    for (int d = 0; d < slices.ndim; d++) shape[d] = slices.shape[d];
    hy__echo_operand p = hy__echo_temporary(batch, ECHO_NPU_F32, slices.ndim, shape);
    shape[slices.ndim - 1] = 1;
    hy__echo_operand sums = hy__echo_temporary(batch, ECHO_NPU_F32, slices.ndim, shape);
    HY__ECHO_NEED(rows(batch, ECHO_NPU_FN_ROW_SUM, 0, 0, &sums, &slices, NULL));
    HY__ECHO_NEED(hy__echo_map(batch, ECHO_NPU_FN_EXP, 0, 0, &p, &y_lines, NULL));
    HY__ECHO_NEED(hy__echo_map(batch, ECHO_NPU_FN_MUL, 0, 0, &p, &p, &sums));
    HY__ECHO_NEED(hy__echo_map(batch, ECHO_NPU_FN_SUB, 0, 0, &result, &slices, &p));
  }
  return direct ? HY_SUPPORT_YES : deliver(batch, &dx, dim, &result);
}

// ---- Norms ----

static uint32_t last_dims(int ndim, int64_t n) {
  return ((1u << ndim) - 1) & ~((1u << (ndim - (int)n)) - 1);
}

// A parameter as one slice, or a slice of ones.
static hy_support parameter(hy__echo_batch* batch, const hy_tensor* t, int64_t n,
                            hy__echo_operand* slice) {
  if (!hy_tensor_is_absent(t)) {
    hy__echo_operand whole;
    HY__ECHO_NEED(hy__echo_float(batch, t, &whole));
    return hy__echo_pack_slices(batch, &whole, last_dims(whole.ndim, whole.ndim), slice);
  }
  *slice = hy__echo_temporary(batch, ECHO_NPU_F32, 1, &n);
  return hy__echo_fill(batch, slice, 0x3f800000);
}

// What a statistic is written to: the output in the shape of `column`, or `column` itself.
static hy_support statistic(hy__echo_batch* batch, const hy_tensor* t,
                            const hy__echo_operand* column, hy__echo_operand* to) {
  *to = *column;
  if (hy_tensor_is_absent(t)) return HY_SUPPORT_YES;
  HY__ECHO_NEED(hy__echo_float(batch, t, to));
  // [lead..., 1...]: keep the lead, and one dimension of size 1.
  for (int d = column->ndim - 1; d < to->ndim; d++)
    if (to->shape[d] != 1) return HY_SUPPORT_NO_SHAPE;
  if (to->ndim < column->ndim - 1) return HY_SUPPORT_NO_SHAPE;
  to->ndim = column->ndim;
  to->shape[to->ndim - 1] = 1;
  to->stride[to->ndim - 1] = 0;
  return HY_SUPPORT_YES;
}

// The statistics of slices that have no element.
static hy_support fill_nan(hy__echo_batch* batch, const hy_tensor* t) {
  hy__echo_operand to;
  if (hy_tensor_is_absent(t)) return HY_SUPPORT_YES;
  HY__ECHO_NEED(hy__echo_float(batch, t, &to));
  return hy__echo_fill(batch, &to, to.type == ECHO_NPU_F32 ? 0x7fc00000 : 0x7fc0);
}

hy_support hy__echo_norm(hy__echo_batch* batch, const hy_call* call) {
  hy__echo_operand out, x, slices, result, weight;
  bool centred = call->op == HY_OP_layer_norm;
  const hy_tensor* mean = centred ? &call->out[1] : NULL;
  const hy_tensor* rstd = centred ? &call->out[2] : &call->out[1];
  HY__ECHO_NEED(hy__echo_float(batch, &call->out[0], &out));
  HY__ECHO_NEED(hy__echo_float(batch, &call->in[0], &x));
  uint32_t mask = last_dims(x.ndim, call->attrs.norm.norm_dims);
  if (hy__echo_numel(&x) == 0) {
    if (mean) HY__ECHO_NEED(fill_nan(batch, mean));
    return fill_nan(batch, rstd);
  }
  HY__ECHO_NEED(hy__echo_pack_slices(batch, &x, mask, &slices));
  if (!hy__echo_slices(&out, mask, &result)) return HY_SUPPORT_NO_LAYOUT;
  int last = slices.ndim - 1;
  int64_t n = slices.shape[last], shape[HY_MAX_DIMS + 1];
  for (int d = 0; d < last; d++) shape[d] = slices.shape[d];
  shape[last] = 1;
  float eps = (float)call->attrs.norm.eps, share = 1 / (float)n;
  HY__ECHO_NEED(parameter(batch, &call->in[1], n, &weight));

  bool wants_mean = mean && !hy_tensor_is_absent(mean), wants_rstd = !hy_tensor_is_absent(rstd);
  if (wants_mean || wants_rstd) {
    hy__echo_operand column = hy__echo_temporary(batch, ECHO_NPU_F32, slices.ndim, shape), to;
    hy__echo_operand squared = slices;
    if (centred) {
      HY__ECHO_NEED(rows(batch, ECHO_NPU_FN_ROW_MEAN, 0, share, &column, &slices, NULL));
      if (wants_mean) {
        HY__ECHO_NEED(statistic(batch, mean, &column, &to));
        HY__ECHO_NEED(hy__echo_map(batch, ECHO_NPU_FN_MOVE, 0, 0, &to, &column, NULL));
      }
      squared = hy__echo_temporary(batch, ECHO_NPU_F32, slices.ndim, slices.shape);
      HY__ECHO_NEED(hy__echo_map(batch, ECHO_NPU_FN_SUB, 0, 0, &squared, &slices, &column));
    }
    if (wants_rstd) {
      HY__ECHO_NEED(rows(batch, ECHO_NPU_FN_ROW_SUMSQ, 0, 0, &column, &squared, NULL));
      HY__ECHO_NEED(hy__echo_map(batch, ECHO_NPU_FN_SCALE, share, eps, &column, &column, NULL));
      HY__ECHO_NEED(statistic(batch, rstd, &column, &to));
      HY__ECHO_NEED(hy__echo_map(batch, ECHO_NPU_FN_RSQRT, 0, 0, &to, &column, NULL));
    }
  }

  if (!centred) return rows(batch, ECHO_NPU_FN_RMS_NORM, eps, share, &result, &slices, &weight);
  if (hy_tensor_is_absent(&call->in[2]))
    return rows(batch, ECHO_NPU_FN_LAYER_NORM, eps, share, &result, &slices, &weight);
  hy__echo_operand bias, scaled = result;
  HY__ECHO_NEED(parameter(batch, &call->in[2], n, &bias));
  // Rounded once, at the end.
  if (result.type != ECHO_NPU_F32)
    scaled = hy__echo_temporary(batch, ECHO_NPU_F32, slices.ndim, slices.shape);
  HY__ECHO_NEED(rows(batch, ECHO_NPU_FN_LAYER_NORM, eps, share, &scaled, &slices, &weight));
  return hy__echo_map(batch, ECHO_NPU_FN_ADD, 0, 0, &result, &scaled, &bias);
}

// ---- Rotary positions ----

// Even and odd elements of the last dimension as two halves of it.
static hy__echo_operand paired(const hy__echo_operand* t) {
  hy__echo_operand p = *t;
  int last = t->ndim - 1;
  p.ndim++;
  p.shape[last] = 2;
  p.stride[last] = t->stride[last];
  p.shape[last + 1] = t->shape[last] / 2;
  p.stride[last + 1] = 2 * t->stride[last];
  return p;
}

static hy__echo_operand halved(const hy__echo_operand* t) {
  hy__echo_operand h = *t;
  int last = t->ndim - 1;
  h.ndim++;
  h.shape[last] = 2;
  h.stride[last] = t->shape[last] / 2 * t->stride[last];
  h.shape[last + 1] = t->shape[last] / 2;
  h.stride[last + 1] = t->stride[last];
  return h;
}

// Cosines and sines as the hardware wants them, a row of one and then the other. False where they
// are not next to each other.
static bool are_joined(const hy_tensor* cosine, const hy_tensor* sine, int64_t half) {
  if (cosine->dtype != HY_F32 || !hy_tensor_is_contiguous(cosine) ||
      !hy_tensor_is_contiguous(sine) || hy_tensor_numel(cosine) != half)
    return false;
  return hy_tensor_numel(sine) == half &&
         (const float*)sine->data == (const float*)cosine->data + half;
}

// Those of one position that are not are joined for the positions there are, not for all of x.
hy_support hy__echo_rope(hy__echo_batch* batch, const hy_call* call) {
  hy__echo_operand out, x, part[2];
  HY__ECHO_NEED(hy__echo_float(batch, &call->out[0], &out));
  HY__ECHO_NEED(hy__echo_float(batch, &call->in[0], &x));
  HY__ECHO_NEED(hy__echo_float(batch, &call->in[1], &part[0]));
  HY__ECHO_NEED(hy__echo_float(batch, &call->in[2], &part[1]));
  if (hy__echo_numel(&out) == 0) return HY_SUPPORT_YES;
  int last = x.ndim - 1;
  int64_t half = x.shape[last] / 2, shape[HY_MAX_DIMS];
  for (int d = 0; d <= last; d++) {
    shape[d] = 1;
    for (int k = 0; k < 2; k++) {
      int at = d - (x.ndim - part[k].ndim);
      if (at >= 0 && part[k].shape[at] > shape[d]) shape[d] = part[k].shape[at];
    }
  }
  shape[last] = 2 * half;
  hy__echo_operand turns;
  if (are_joined(&call->in[1], &call->in[2], half)) {
    turns = hy__echo_expand(&part[0], x.ndim, shape);
    turns.stride[last] = 1;
  } else {
    turns = hy__echo_temporary(batch, ECHO_NPU_F32, x.ndim, shape);
    shape[last] = half;
    for (int k = 0; k < 2; k++) {
      hy__echo_operand to = hy__echo_slice(&turns, last, k * half, half);
      HY__ECHO_NEED(hy__echo_map(batch, ECHO_NPU_FN_MOVE, 0, 0, &to, &part[k], NULL));
    }
  }
  uint32_t function = call->attrs.rope.inverse ? ECHO_NPU_FN_ROPE_BWD : ECHO_NPU_FN_ROPE;
  bool interleaved = call->attrs.rope.interleaved;
  hy__echo_operand from = x, to = out;
  if (interleaved || x.stride[last] != 1) {
    from = hy__echo_temporary(batch, ECHO_NPU_F32, x.ndim, x.shape);
    hy__echo_operand halves = halved(&from), source = interleaved ? paired(&x) : halved(&x);
    HY__ECHO_NEED(hy__echo_map(batch, ECHO_NPU_FN_MOVE, 0, 0, &halves, &source, NULL));
  }
  bool direct = !interleaved && out.stride[last] == 1;
  if (!direct) to = hy__echo_temporary(batch, ECHO_NPU_F32, x.ndim, x.shape);
  HY__ECHO_NEED(rows(batch, function, 0, 0, &to, &from, &turns));
  if (direct) return HY_SUPPORT_YES;
  hy__echo_operand halves = halved(&to), target = interleaved ? paired(&out) : halved(&out);
  return hy__echo_map(batch, ECHO_NPU_FN_MOVE, 0, 0, &target, &halves, NULL);
}
