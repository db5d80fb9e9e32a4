// Layer norm and RMS norm composed of plain ops in f32, with their gradients.
#include "backends/common/composed.h"

// x as f32 [n, size]: a row is what is normalised together.
typedef struct rows {
  int64_t n, size;
  hy_tensor x;
} rows;

static bool types_fit(const hy_call* call, hy_dtype dtype) {
  for (int i = 0; i < call->n_in + call->n_out; i++) {
    const hy_tensor* t = i < call->n_in ? &call->in[i] : &call->out[i - call->n_in];
    if (t->dtype != HY_NONE && t->dtype != dtype && t->dtype != HY_F32) return false;
  }
  return true;
}

static hy_tensor flat(hy__task* task, const hy_tensor* t, int64_t n, int64_t size) {
  hy_tensor whole = hy__task_contiguous(task, t, HY_F32);
  return hy__view(&whole, 2, (const int64_t[]){n, size});
}

static rows rows_of(hy__task* task, const hy_call* call, const hy_tensor* x) {
  rows r = {.n = 1, .size = 1};
  int split = x->ndim - (int)call->attrs.norm.norm_dims;
  for (int d = 0; d < x->ndim; d++) *(d < split ? &r.n : &r.size) *= x->shape[d];
  r.x = flat(task, x, r.n, r.size);
  return r;
}

static void give(hy__task* task, const hy_tensor* out, const hy_tensor* t) {
  if (!hy__present(out)) return;
  hy_tensor shaped = hy__view(t, out->ndim, out->shape);
  hy__task_copy(task, out, &shaped);
}

static hy_tensor row_mean(hy__task* task, const hy_tensor* t) {
  hy_tensor mean = hy__task_row_sum(task, t);
  hy__task_scale(task, &mean, 1 / (double)t->shape[1]);
  return mean;
}

// 1 / sqrt(mean(t^2) + eps), [rows, 1]
static hy_tensor rstd_of(hy__task* task, const hy_tensor* t, double eps) {
  hy_tensor square = hy__task_binary(task, HY_OP_mul, t, t), rstd = row_mean(task, &square);
  hy__task_shift(task, &rstd, eps);
  hy__task_unary(task, HY_OP_rsqrt, &rstd, &rstd);
  return rstd;
}

static hy_tensor weighted(hy__task* task, const rows* r, const hy_tensor* t,
                          const hy_tensor* weight) {
  if (!hy__present(weight)) return *t;
  hy_tensor row = flat(task, weight, 1, r->size);
  return hy__task_binary(task, HY_OP_mul, t, &row);
}

// Nothing to normalise: sums over no rows are 0, and nothing else has an element.
static bool is_empty(hy__task* task, const hy_call* call, const hy_tensor* x) {
  if (hy_tensor_numel(x) > 0) return false;
  for (int i = 0; i < call->n_out; i++)
    if (hy__present(&call->out[i])) hy__task_fill(task, &call->out[i], hy_float(0));
  return true;
}

hy_support hy__composed_layer_norm(hy__task* task, const hy_call* call) {
  const hy_tensor* x = &call->in[0];
  TASK_NEED(hy__is_half_or_f32(x) && types_fit(call, x->dtype), NO_DTYPE);
  TASK_NEED(hy_tensor_numel(x) > 0, NO_SHAPE);
  rows r = rows_of(task, call, x);
  hy_tensor mean = row_mean(task, &r.x);
  hy_tensor y = hy__task_binary(task, HY_OP_sub, &r.x, &mean);
  hy_tensor rstd = rstd_of(task, &y, call->attrs.norm.eps);
  y = hy__task_binary(task, HY_OP_mul, &y, &rstd);
  y = weighted(task, &r, &y, &call->in[1]);
  if (hy__present(&call->in[2])) {
    hy_tensor bias = flat(task, &call->in[2], 1, r.size);
    y = hy__task_binary(task, HY_OP_add, &y, &bias);
  }
  give(task, &call->out[0], &y);
  give(task, &call->out[1], &mean);
  give(task, &call->out[2], &rstd);
  return task->answer;
}

hy_support hy__composed_rms_norm(hy__task* task, const hy_call* call) {
  const hy_tensor* x = &call->in[0];
  TASK_NEED(hy__is_half_or_f32(x) && types_fit(call, x->dtype), NO_DTYPE);
  TASK_NEED(hy_tensor_numel(x) > 0, NO_SHAPE);
  rows r = rows_of(task, call, x);
  hy_tensor rstd = rstd_of(task, &r.x, call->attrs.norm.eps);
  hy_tensor y = hy__task_binary(task, HY_OP_mul, &r.x, &rstd);
  y = weighted(task, &r, &y, &call->in[1]);
  give(task, &call->out[0], &y);
  give(task, &call->out[1], &rstd);
  return task->answer;
}

// With y = (x - mean) rstd and g = dy weight: dx = rstd (g - mean(g) - y mean(g y)), where RMS norm
// has no mean(g); dweight is the sum of dy y over the rows.
static void backward(hy__task* task, const hy_call* call, const rows* r, const hy_tensor* y,
                     const hy_tensor* rstd, const hy_tensor* weight, bool centred) {
  hy_tensor dy = flat(task, &call->in[0], r->n, r->size);
  hy_tensor g = weighted(task, r, &dy, weight);
  if (hy__present(&call->out[0])) {
    hy_tensor gy = hy__task_binary(task, HY_OP_mul, &g, y), share = row_mean(task, &gy);
    hy_tensor along = hy__task_binary(task, HY_OP_mul, y, &share);
    hy_tensor dx = hy__task_binary(task, HY_OP_sub, &g, &along);
    if (centred) {
      hy_tensor mean = row_mean(task, &g);
      dx = hy__task_binary(task, HY_OP_sub, &dx, &mean);
    }
    dx = hy__task_binary(task, HY_OP_mul, &dx, rstd);
    give(task, &call->out[0], &dx);
  }
  if (hy__present(&call->out[1])) {
    hy_tensor each = hy__task_binary(task, HY_OP_mul, &dy, y);
    hy_tensor sum = hy__task_column_sum(task, &each);
    give(task, &call->out[1], &sum);
  }
  if (call->n_out > 2 && hy__present(&call->out[2])) {
    hy_tensor sum = hy__task_column_sum(task, &dy);
    give(task, &call->out[2], &sum);
  }
}

hy_support hy__composed_layer_norm_backward(hy__task* task, const hy_call* call) {
  const hy_tensor* x = &call->in[1];
  TASK_NEED(hy__is_half_or_f32(x) && types_fit(call, x->dtype), NO_DTYPE);
  if (is_empty(task, call, x)) return task->answer;
  rows r = rows_of(task, call, x);
  hy_tensor mean = flat(task, &call->in[2], r.n, 1), rstd = flat(task, &call->in[3], r.n, 1);
  hy_tensor y = hy__task_binary(task, HY_OP_sub, &r.x, &mean);
  y = hy__task_binary(task, HY_OP_mul, &y, &rstd);
  backward(task, call, &r, &y, &rstd, &call->in[4], true);
  return task->answer;
}

hy_support hy__composed_rms_norm_backward(hy__task* task, const hy_call* call) {
  const hy_tensor* x = &call->in[1];
  TASK_NEED(hy__is_half_or_f32(x) && types_fit(call, x->dtype), NO_DTYPE);
  if (is_empty(task, call, x)) return task->answer;
  rows r = rows_of(task, call, x);
  hy_tensor rstd = flat(task, &call->in[2], r.n, 1);
  hy_tensor y = hy__task_binary(task, HY_OP_mul, &r.x, &rstd);
  backward(task, call, &r, &y, &rstd, &call->in[3], false);
  return task->answer;
}
