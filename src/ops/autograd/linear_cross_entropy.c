// Cross-entropy of a linear layer in parts, so that the logits of one part are all that is held.
#include "ops/autograd/grad.h"

// y = CE(x weight')                          dx, dweight: computed with the loss, times dy
HY__RULE(linear_cross_entropy, 0, 0, NO_GRADIENT) {
  if (g_wants(g, 0)) g_give(g, 0, g_mul(g, g_out(g, 0), g->dy));
  if (g_wants(g, 1)) g_give(g, 1, g_mul(g, g_out(g, 1), g->dy));
}

typedef struct loss_job {
  hy_tape* tape;
  hy_array *x, *weight, *target;
  int64_t ignore;  // the target that does not count
  hy_dtype loss_dtype;
  hy_array* loss;          // the sum so far
  hy_array *dx, *dweight;  // NULL where not wanted; dweight in the type of the loss
} loss_job;

static hy_array* cast(hy_scope* s, hy_array* x, hy_dtype dtype) {
  return !x || x->view.dtype == dtype ? x : hy_s_cast(s, x, dtype);
}

// The rows [start, stop): adds to the loss, fills in dx, adds to dweight.
static void add_rows(hy_scope* s, const loss_job* job, int64_t start, int64_t stop) {
  hy_array* x = hy_s_slice(s, job->x, 0, start, stop, 1);
  hy_array* target = hy_s_slice(s, job->target, 0, start, stop, 1);
  hy_array* logits = hy_s_linear(s, x, job->weight, NULL);
  hy_s_add_into(s, job->loss,
                hy_s_cross_entropy(s, logits, target, NULL, job->ignore, HY_REDUCTION_SUM, 0,
                                   job->loss_dtype));
  if (!job->dx && !job->dweight) return;
  hy_dtype dtype = job->x->view.dtype;
  hy_array* one = hy_s_fill(s, hy_s_empty(s, dtype, 0, NULL), hy_int(1));
  // The logits are not needed any more: their gradient takes their memory.
  const hy_attrs sum = {.cross_entropy = {job->ignore, HY_REDUCTION_SUM, 0, HY_NONE}};
  hy_s_apply_into(s, HY_OP_cross_entropy_backward, (hy_array*[]){logits, target, NULL, one}, 4,
                  &sum, logits);
  if (job->dx)
    hy_s_copy_into(s, hy_s_slice(s, job->dx, 0, start, stop, 1), hy_s_mm(s, logits, job->weight));
  if (job->dweight) hy_s_add_into(s, job->dweight, hy_s_mm(s, hy_s_transpose(s, logits, 0, 1), x));
}

// Divides the sum and its gradients by the number of targets that count.
static void take_mean(hy_scope* s, const loss_job* job) {
  hy_array* counts = hy_s_ne_scalar(s, job->target, hy_int(job->ignore));
  hy_array* count = cast(s, hy_s_sum(s, counts, hy_all_dims(), false), job->loss_dtype);
  hy_array* parts[] = {job->loss, job->dx, job->dweight};
  const hy_attrs plain = {.rounding = {HY_ROUND_NONE}};
  for (int i = 0; i < 3; i++) {
    if (parts[i])
      hy_s_apply_into(s, HY_OP_div, (hy_array*[]){parts[i], count}, 2, &plain, parts[i]);
  }
}

static hy_status check(const loss_job* job, hy_array** loss, hy_reduction reduction,
                       int64_t chunk_rows) {
  const char* what = "hy_array_linear_cross_entropy";
  if (!job->tape || !loss || !job->x || !job->weight || !job->target)
    return hy_fail(HY_INVALID_ARGUMENT, "%s: an argument is NULL", what);
  const hy_tensor *x = &job->x->view, *w = &job->weight->view, *t = &job->target->view;
  if (x->ndim != 2 || w->ndim != 2 || t->ndim != 1 || x->shape[1] != w->shape[1] ||
      t->shape[0] != x->shape[0])
    return hy_fail(HY_SHAPE, "%s: x is [n, k], weight [classes, k] and target [n], not %s, %s, %s",
                   what, hy_tensor_describe(x, (char[160]){0}, 160),
                   hy_tensor_describe(w, (char[160]){0}, 160),
                   hy_tensor_describe(t, (char[160]){0}, 160));
  if (reduction == HY_REDUCTION_NONE)
    return hy_fail(HY_INVALID_ARGUMENT, "%s: the reduction is a mean or a sum", what);
  if (chunk_rows < 1)
    return hy_fail(HY_INVALID_ARGUMENT, "%s: a part has at least 1 row, not %lld", what,
                   (long long)chunk_rows);
  HY_TRY(hy__array_check_on(job->tape, what, job->x));
  HY_TRY(hy__array_check_on(job->tape, what, job->weight));
  return hy__array_check_on(job->tape, what, job->target);
}

static hy_status record(const loss_job* job) {
  hy__node* node;
  hy_array* inputs[] = {job->x, job->weight, job->target};
  HY_TRY(hy__node_new(job->tape, &hy__grad_linear_cross_entropy, inputs, 3, &node));
  if (job->dx) hy__node_save(&node->saved_out[0], job->dx);
  if (job->dweight) hy__node_save(&node->saved_out[1], job->dweight);
  hy_status status = hy__node_attach(node, 0, job->loss);
  hy__node_release(node);
  return status;
}

hy_status hy_array_linear_cross_entropy(hy_tape* tape, hy_array** loss, hy_array* x,
                                        hy_array* weight, hy_array* target, int64_t ignore_index,
                                        hy_reduction reduction, int64_t chunk_rows) {
  if (loss) *loss = NULL;
  loss_job job = {.tape = tape, .x = x, .weight = weight, .target = target, .ignore = ignore_index};
  HY_TRY(check(&job, loss, reduction, chunk_rows));
  job.loss_dtype = x->view.dtype == HY_F64 ? HY_F64 : HY_F32;
  bool recorded = hy__tape_wants(tape, (hy_array*[]){x, weight}, 2);
  bool was = hy_tape_set_recording(tape, false);
  hy_scope s;
  hy_scope_begin(&s, tape);
  job.loss = hy_s_zeros(&s, job.loss_dtype, 0, NULL);
  if (recorded && x->slot) job.dx = hy_s_empty(&s, x->view.dtype, 2, x->view.shape);
  if (recorded && weight->slot) job.dweight = hy_s_zeros(&s, job.loss_dtype, 2, weight->view.shape);
  int64_t rows = x->view.shape[0];
  for (int64_t start = 0; start < rows && s.status == HY_OK; start += chunk_rows) {
    int mark = hy_scope_mark(&s);
    add_rows(&s, &job, start, start + chunk_rows < rows ? start + chunk_rows : rows);
    hy_scope_pop(&s, mark, NULL);
  }
  if (reduction == HY_REDUCTION_MEAN && s.status == HY_OK) take_mean(&s, &job);
  hy_tape_set_recording(tape, was);
  if (recorded) HY_SCOPE_TRY(&s, record(&job));
  *loss = hy_scope_give(&s, job.loss);
  return hy_scope_end(&s);
}
