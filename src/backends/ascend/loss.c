// Cross entropy of the ascend backend, of plain ops in f32. aclnnCrossEntropyLoss would do the
// forward pass in one, but a label that is ignore_index and lies outside the classes makes its
// kernel fault; here such labels are clamped first, and what they gave is masked.
#include <math.h>
#include <string.h>

#include "backends/ascend/ascend.h"

typedef struct problem {
  int64_t classes;
  hy_tensor log_p;       // f32 [rows, classes]
  hy_tensor ids;         // i64 [rows], inside the classes
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
  return hy__ascend_permuted(t, dims);
}

static bool is_float(const hy_tensor* t) {
  return t->dtype == HY_F32 || t->dtype == HY_F16 || t->dtype == HY_BF16;
}

static problem begin(hy__ascend_task* task, const hy_call* call) {
  hy_attrs_cross_entropy a = call->attrs.cross_entropy;
  hy_tensor view = classes_last(&call->in[0]);
  problem p = {.classes = view.shape[view.ndim - 1]};
  hy_tensor logits = hy__ascend_contiguous(task, &view, HY_F32);
  int64_t rows = hy_tensor_numel(&call->in[1]);
  const int64_t shape[2] = {rows, p.classes};
  logits = hy__ascend_view(&logits, 2, shape);
  p.log_p = hy__ascend_temporary(task, HY_F32, 2, shape);
  ASCEND_RUN(task, LogSoftmax, ASCEND_T(&logits), 1, ASCEND_T(&p.log_p));
  hy_tensor target = hy__ascend_contiguous(task, &call->in[1], HY_I64);
  target = hy__ascend_view(&target, 1, &rows);
  p.ignored = hy__ascend_compare_to(task, ASCEND_EQ, &target, (double)a.ignore_index);
  p.ids = hy__ascend_temporary(task, HY_I64, 1, &rows);
  ASCEND_RUN(task, Clamp, ASCEND_T(&target), ASCEND_I(0), ASCEND_I(p.classes - 1),
             ASCEND_T(&p.ids));
  hy_tensor outside = hy__ascend_compare(task, ASCEND_NE, &p.ids, &target);
  hy_tensor counts = hy__ascend_not(task, &p.ignored);
  hy_tensor bad = hy__ascend_compare(task, ASCEND_AND, &outside, &counts);
  hy__ascend_check(task, &bad);
  p.weight = hy_tensor_absent();
  if (hy__ascend_present(&call->in[2])) {
    p.weight = hy__ascend_contiguous(task, &call->in[2], HY_F32);
    p.row_weight = hy__ascend_temporary(task, HY_F32, 1, &rows);
    ASCEND_RUN(task, IndexSelect, ASCEND_T(&p.weight), 0, ASCEND_T(&p.ids),
               ASCEND_T(&p.row_weight));
  } else {
    p.row_weight = hy__ascend_filled(task, HY_F32, 1, &rows, 1);
  }
  hy__ascend_masked_fill(task, &p.row_weight, &p.ignored, 0);
  return p;
}

static hy_tensor as_column(const hy_tensor* t) {
  return hy__ascend_view(t, 2, (const int64_t[]){t->shape[0], 1});
}

static hy_tensor as_row(const hy_tensor* t) {
  return hy__ascend_view(t, 2, (const int64_t[]){1, t->shape[0]});
}

static hy_support check(hy__ascend_task* task, const hy_call* call) {
  (void)task;
  for (int i = 0; i < call->n_in; i++)
    ASCEND_NEED(i == 1 || call->in[i].dtype == HY_NONE || is_float(&call->in[i]), NO_DTYPE);
  ASCEND_NEED(hy_dtype_is_int(call->in[1].dtype) && is_float(&call->out[0]), NO_DTYPE);
  return HY_SUPPORT_YES;
}

#define CHECK                                      \
  do {                                             \
    hy_support answer_ = check(task, call);        \
    if (answer_ != HY_SUPPORT_YES) return answer_; \
  } while (0)

// The loss of each row, [rows].
static hy_tensor row_losses(hy__ascend_task* task, const hy_call* call, const problem* p) {
  double smoothing = call->attrs.cross_entropy.label_smoothing;
  int64_t rows = p->ids.shape[0];
  hy_tensor ids = as_column(&p->ids);
  hy_tensor picked = hy__ascend_temporary(task, HY_F32, 2, ids.shape);
  ASCEND_RUN(task, Gather, ASCEND_T(&p->log_p), 1, ASCEND_T(&ids), ASCEND_T(&picked));
  hy_tensor weight = as_column(&p->row_weight);
  hy_tensor loss = hy__ascend_binary(task, ASCEND_MUL, &picked, &weight);
  hy__ascend_scale(task, &loss, -(1 - smoothing));
  if (smoothing > 0) {
    hy_tensor weighted = p->log_p;
    if (hy__ascend_present(&p->weight)) {
      hy_tensor row = as_row(&p->weight);
      weighted = hy__ascend_binary(task, ASCEND_MUL, &p->log_p, &row);
    }
    hy_tensor sum = hy__ascend_row_sum(task, &weighted);
    hy__ascend_scale(task, &sum, -smoothing / (double)p->classes);
    loss = hy__ascend_binary(task, ASCEND_ADD, &loss, &sum);
  }
  loss = hy__ascend_view(&loss, 1, &rows);
  hy__ascend_masked_fill(task, &loss, &p->ignored, 0);
  return loss;
}

hy_support hy__ascend_cross_entropy(hy__ascend_task* task, const hy_call* call) {
  const hy_tensor* out = &call->out[0];
  hy_reduction reduction = call->attrs.cross_entropy.reduction;
  CHECK;
  if (hy_tensor_numel(&call->in[1]) == 0) {
    hy__ascend_fill(task, out, hy_float(reduction == HY_REDUCTION_MEAN ? NAN : 0));
    return task->answer;
  }
  problem p = begin(task, call);
  hy_tensor loss = row_losses(task, call, &p);
  if (reduction == HY_REDUCTION_NONE) {
    loss = hy__ascend_view(&loss, out->ndim, out->shape);
  } else {
    loss = hy__ascend_row_sum(task, &loss);
    if (reduction == HY_REDUCTION_MEAN) {
      hy_tensor total = hy__ascend_row_sum(task, &p.row_weight);
      loss = hy__ascend_binary(task, ASCEND_DIV, &loss, &total);
    }
    loss = hy__ascend_view(&loss, 0, NULL);
  }
  hy__ascend_copy(task, out, &loss);
  return task->answer;
}

// dlogits = g (hard w[t] (p - [c = t]) + soft (W p - w[c])), with g the gradient over the total.
hy_support hy__ascend_cross_entropy_backward(hy__ascend_task* task, const hy_call* call) {
  const hy_tensor* dloss = &call->in[3];
  hy_attrs_cross_entropy a = call->attrs.cross_entropy;
  CHECK;
  if (hy_tensor_numel(&call->in[0]) == 0) return task->answer;
  problem p = begin(task, call);
  hy_tensor probability = hy__ascend_temporary(task, HY_F32, 2, p.log_p.shape);
  ASCEND_RUN(task, Exp, ASCEND_T(&p.log_p), ASCEND_T(&probability));
  hy_tensor classes = hy__ascend_range(task, HY_I64, p.classes), ids = as_column(&p.ids);
  hy_tensor row = as_row(&classes);
  hy_tensor is_target = hy__ascend_compare(task, ASCEND_EQ, &row, &ids);
  hy_tensor one_hot = hy__ascend_as(task, &is_target, HY_F32);
  hy_tensor grad = hy__ascend_binary(task, ASCEND_SUB, &probability, &one_hot);
  hy_tensor weight = as_column(&p.row_weight);
  grad = hy__ascend_binary(task, ASCEND_MUL, &grad, &weight);
  hy__ascend_scale(task, &grad, 1 - a.label_smoothing);
  if (a.label_smoothing > 0) {
    hy_tensor ones = hy__ascend_present(&p.weight)
                         ? p.weight
                         : hy__ascend_filled(task, HY_F32, 1, &p.classes, 1);
    hy_tensor sum = hy__ascend_row_sum(task, &ones), each = as_row(&ones);
    hy_tensor soft = hy__ascend_binary(task, ASCEND_MUL, &probability, &sum);
    soft = hy__ascend_binary(task, ASCEND_SUB, &soft, &each);
    hy__ascend_scale(task, &soft, a.label_smoothing / (double)p.classes);
    grad = hy__ascend_binary(task, ASCEND_ADD, &grad, &soft);
  }
  hy_tensor g = hy__ascend_contiguous(task, dloss, HY_F32);
  const int64_t n = hy_tensor_numel(dloss);
  g = hy__ascend_view(&g, 2, (const int64_t[]){n, 1});
  if (a.reduction == HY_REDUCTION_MEAN) {
    hy_tensor total = hy__ascend_row_sum(task, &p.row_weight);
    g = hy__ascend_binary(task, ASCEND_DIV, &g, &total);
  }
  grad = hy__ascend_binary(task, ASCEND_MUL, &grad, &g);
  hy_tensor ignored = as_column(&p.ignored);
  hy__ascend_masked_fill(task, &grad, &ignored, 0);
  hy_tensor to = classes_last(&call->out[0]);
  grad = hy__ascend_view(&grad, to.ndim, to.shape);
  hy__ascend_copy(task, &to, &grad);
  return task->answer;
}
