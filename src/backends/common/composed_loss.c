// Cross entropy composed of plain ops in f32. A label that is ignore_index may be outside the
// classes: it is clamped first, and what it gave is masked.
#include <math.h>

#include "backends/common/composed.h"

typedef struct problem {
  int64_t classes;
  hy_tensor log_p;       // f32 [rows, classes]
  hy_tensor ids;         // [rows], inside the classes
  hy_tensor ignored;     // bool [rows]
  hy_tensor weight;      // f32 [classes]; absent: 1 each
  hy_tensor row_weight;  // f32 [rows], 0 where ignored
} problem;

// The dimension of the classes moved to the end.
static hy_tensor classes_last(const hy_tensor* t) {
  int dims[HY_MAX_DIMS], n = 0, class_dim = t->ndim > 1;
  for (int d = 0; d < t->ndim; d++)
    if (d != class_dim) dims[n++] = d;
  dims[n] = class_dim;
  return hy__permuted(t, dims);
}

static problem begin(hy__task* task, const hy_call* call) {
  hy_attrs_cross_entropy a = call->attrs.cross_entropy;
  hy_tensor view = classes_last(&call->in[0]);
  problem p = {.classes = view.shape[view.ndim - 1]};
  hy_tensor logits = hy__task_contiguous(task, &view, HY_F32);
  int64_t rows = hy_tensor_numel(&call->in[1]);
  const int64_t shape[2] = {rows, p.classes};
  logits = hy__view(&logits, 2, shape);
  p.log_p = hy__task_softmax(task, HY_OP_log_softmax, &logits);
  hy_tensor target = hy__task_contiguous(task, &call->in[1], task->rules->index);
  target = hy__view(&target, 1, &rows);
  p.ignored = hy__task_compare_to(task, HY_OP_eq_scalar, &target, (double)a.ignore_index);
  p.ids = hy__task_temporary(task, task->rules->index, 1, &rows);
  hy__task_clamp(task, &target, hy_int(0), hy_int(p.classes - 1), &p.ids);
  hy_tensor outside = hy__task_compare(task, HY_OP_ne, &p.ids, &target);
  hy_tensor counts = hy__task_not(task, &p.ignored);
  hy_tensor bad = hy__task_compare(task, HY_OP_logical_and, &outside, &counts);
  hy__task_check(task, &bad);
  task->trusts = true;
  p.weight = hy_tensor_absent();
  if (hy__present(&call->in[2])) {
    p.weight = hy__task_contiguous(task, &call->in[2], HY_F32);
    p.row_weight = hy__task_temporary(task, HY_F32, 1, &rows);
    const hy_tensor in[] = {p.weight, p.ids};
    hy__task_call(task, HY_OP_index_select, 2, in, &p.row_weight, (hy_attrs){.dim = {0}});
  } else {
    p.row_weight = hy__task_filled(task, HY_F32, 1, &rows, 1);
  }
  hy__task_masked_fill(task, &p.row_weight, &p.ignored, 0);
  return p;
}

static hy_tensor as_column(const hy_tensor* t) {
  return hy__view(t, 2, (const int64_t[]){t->shape[0], 1});
}

static hy_tensor as_row(const hy_tensor* t) {
  return hy__view(t, 2, (const int64_t[]){1, t->shape[0]});
}

static hy_support check(hy__task* task, const hy_call* call) {
  (void)task;
  for (int i = 0; i < call->n_in; i++)
    TASK_NEED(i == 1 || call->in[i].dtype == HY_NONE || hy__is_half_or_f32(&call->in[i]), NO_DTYPE);
  TASK_NEED(hy_dtype_is_int(call->in[1].dtype) && hy__is_half_or_f32(&call->out[0]), NO_DTYPE);
  return HY_SUPPORT_YES;
}

#define CHECK                                      \
  do {                                             \
    hy_support answer_ = check(task, call);        \
    if (answer_ != HY_SUPPORT_YES) return answer_; \
  } while (0)

// The loss of each row, [rows].
static hy_tensor row_losses(hy__task* task, const hy_call* call, const problem* p) {
  double smoothing = call->attrs.cross_entropy.label_smoothing;
  int64_t rows = p->ids.shape[0];
  hy_tensor ids = as_column(&p->ids);
  hy_tensor picked = hy__task_temporary(task, HY_F32, 2, ids.shape);
  const hy_tensor in[] = {p->log_p, ids};
  hy__task_call(task, HY_OP_gather, 2, in, &picked, (hy_attrs){.dim = {1}});
  hy_tensor weight = as_column(&p->row_weight);
  hy_tensor loss = hy__task_binary(task, HY_OP_mul, &picked, &weight);
  hy__task_scale(task, &loss, -(1 - smoothing));
  if (smoothing > 0) {
    hy_tensor weighted = p->log_p;
    if (hy__present(&p->weight)) {
      hy_tensor row = as_row(&p->weight);
      weighted = hy__task_binary(task, HY_OP_mul, &p->log_p, &row);
    }
    hy_tensor sum = hy__task_row_sum(task, &weighted);
    hy__task_scale(task, &sum, -smoothing / (double)p->classes);
    loss = hy__task_binary(task, HY_OP_add, &loss, &sum);
  }
  loss = hy__view(&loss, 1, &rows);
  hy__task_masked_fill(task, &loss, &p->ignored, 0);
  return loss;
}

hy_support hy__composed_cross_entropy(hy__task* task, const hy_call* call) {
  const hy_tensor* out = &call->out[0];
  hy_reduction reduction = call->attrs.cross_entropy.reduction;
  CHECK;
  if (hy_tensor_numel(&call->in[1]) == 0) {
    hy__task_fill(task, out, hy_float(reduction == HY_REDUCTION_MEAN ? NAN : 0));
    return task->answer;
  }
  problem p = begin(task, call);
  hy_tensor loss = row_losses(task, call, &p);
  if (reduction == HY_REDUCTION_NONE) {
    loss = hy__view(&loss, out->ndim, out->shape);
  } else {
    loss = hy__task_row_sum(task, &loss);
    if (reduction == HY_REDUCTION_MEAN) {
      hy_tensor total = hy__task_row_sum(task, &p.row_weight);
      loss = hy__task_binary(task, HY_OP_div, &loss, &total);
    }
    loss = hy__view(&loss, 0, NULL);
  }
  hy__task_copy(task, out, &loss);
  return task->answer;
}

// dlogits = g (hard w[t] (p - [c = t]) + soft (W p - w[c])), with g the gradient over the total.
hy_support hy__composed_cross_entropy_backward(hy__task* task, const hy_call* call) {
  const hy_tensor* dloss = &call->in[3];
  hy_attrs_cross_entropy a = call->attrs.cross_entropy;
  CHECK;
  if (hy_tensor_numel(&call->in[0]) == 0) return task->answer;
  problem p = begin(task, call);
  hy_tensor probability = hy__task_temporary(task, HY_F32, 2, p.log_p.shape);
  hy__task_unary(task, HY_OP_exp, &p.log_p, &probability);
  hy_tensor classes = hy__task_range(task, task->rules->index, p.classes), ids = as_column(&p.ids);
  hy_tensor row = as_row(&classes);
  hy_tensor is_target = hy__task_compare(task, HY_OP_eq, &row, &ids);
  hy_tensor one_hot = hy__task_as(task, &is_target, HY_F32);
  hy_tensor grad = hy__task_binary(task, HY_OP_sub, &probability, &one_hot);
  hy_tensor weight = as_column(&p.row_weight);
  grad = hy__task_binary(task, HY_OP_mul, &grad, &weight);
  hy__task_scale(task, &grad, 1 - a.label_smoothing);
  if (a.label_smoothing > 0) {
    hy_tensor ones =
        hy__present(&p.weight) ? p.weight : hy__task_filled(task, HY_F32, 1, &p.classes, 1);
    hy_tensor sum = hy__task_row_sum(task, &ones), each = as_row(&ones);
    hy_tensor soft = hy__task_binary(task, HY_OP_mul, &probability, &sum);
    soft = hy__task_binary(task, HY_OP_sub, &soft, &each);
    hy__task_scale(task, &soft, a.label_smoothing / (double)p.classes);
    grad = hy__task_binary(task, HY_OP_add, &grad, &soft);
  }
  hy_tensor g = hy__task_contiguous(task, dloss, HY_F32);
  const int64_t n = hy_tensor_numel(dloss);
  g = hy__view(&g, 2, (const int64_t[]){n, 1});
  if (a.reduction == HY_REDUCTION_MEAN) {
    hy_tensor total = hy__task_row_sum(task, &p.row_weight);
    g = hy__task_binary(task, HY_OP_div, &g, &total);
  }
  grad = hy__task_binary(task, HY_OP_mul, &grad, &g);
  hy_tensor ignored = as_column(&p.ignored);
  hy__task_masked_fill(task, &grad, &ignored, 0);
  hy_tensor to = classes_last(&call->out[0]);
  grad = hy__view(&grad, to.ndim, to.shape);
  hy__task_copy(task, &to, &grad);
  return task->answer;
}
