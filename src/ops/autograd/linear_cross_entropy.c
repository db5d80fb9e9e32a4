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
  hy_attrs attrs;  // of cross_entropy, as a sum
  hy_dtype loss_dtype;
  hy_array* loss;          // the sum so far
  hy_array *dx, *dweight;  // NULL where not wanted; dweight in the type of the loss
} loss_job;

// The rows [start, stop): adds to the loss, fills in dx, adds to dweight.
static void add_rows(hy__grad* g, const loss_job* job, int64_t start, int64_t stop) {
  hy_array* x = g_slice(g, job->x, 0, start, stop, 1);
  hy_array* target = g_slice(g, job->target, 0, start, stop, 1);
  hy_array* logits = g_op(g, HY_OP_linear, NULL, G_LIST(x, job->weight, NULL), 0);
  logits = g_cast(g, logits, job->loss_dtype);
  hy_array* loss = g_op(g, HY_OP_cross_entropy, &job->attrs, G_LIST(logits, target, NULL), 0);
  g_add_into(g, job->loss, loss);
  if (!job->dx && !job->dweight) return;
  hy_array* one = g_full(g, job->loss_dtype, 0, NULL, 1);
  // The logits are not needed any more: their gradient takes their memory.
  g_in_place(g, HY_OP_cross_entropy_backward, &job->attrs, G_LIST(logits, target, NULL, one));
  hy_array* dlogits = g_cast(g, logits, job->x->view.dtype);
  if (job->dx)
    g_copy_into(g, g_slice(g, job->dx, 0, start, stop, 1), g_mm(g, dlogits, job->weight));
  if (job->dweight) g_add_into(g, job->dweight, g_mm(g, g_transpose(g, dlogits), x));
}

static hy_status add_all_rows(const loss_job* job, int64_t chunk_rows) {
  int64_t rows = job->x->view.shape[0];
  for (int64_t start = 0; start < rows; start += chunk_rows) {
    hy__grad g;
    hy__grad_begin(&g, job->tape, NULL);
    add_rows(&g, job, start, start + chunk_rows < rows ? start + chunk_rows : rows);
    HY_TRY(hy__grad_end(&g));
  }
  return HY_OK;
}

// Divides the sum and its gradients by the number of targets that count.
static void take_mean(hy__grad* g, const loss_job* job) {
  hy_dims all = hy_all_dims();
  hy_array* counts =
      g_compare_int(g, HY_OP_ne_scalar, job->target, job->attrs.cross_entropy.ignore_index);
  hy_array* count = g_cast(g, g_sum(g, counts, &all, false), job->loss_dtype);
  hy_array* parts[] = {job->loss, job->dx, job->dweight};
  for (int i = 0; i < 3; i++) {
    if (parts[i]) g_div_into(g, parts[i], count);
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
  loss_job job = {.tape = tape, .x = x, .weight = weight, .target = target};
  HY_TRY(check(&job, loss, reduction, chunk_rows));
  job.attrs.cross_entropy = (hy_attrs_cross_entropy){ignore_index, HY_REDUCTION_SUM, 0};
  job.loss_dtype = x->view.dtype == HY_F64 ? HY_F64 : HY_F32;
  bool recorded = hy__tape_wants(tape, (hy_array*[]){x, weight}, 2);
  bool was = hy_tape_set_recording(tape, false);
  hy_stream* stream = tape->stream;
  hy_status status = hy_array_zeros(stream, &job.loss, job.loss_dtype, 0, NULL);
  if (status == HY_OK && recorded && x->slot) status = hy__array_new(stream, &job.dx, &x->view);
  if (status == HY_OK && recorded && weight->slot)
    status = hy_array_zeros(stream, &job.dweight, job.loss_dtype, 2, weight->view.shape);
  if (status == HY_OK) status = add_all_rows(&job, chunk_rows);
  if (status == HY_OK && reduction == HY_REDUCTION_MEAN) {
    hy__grad g;
    hy__grad_begin(&g, tape, NULL);
    take_mean(&g, &job);
    status = hy__grad_end(&g);
  }
  hy_tape_set_recording(tape, was);
  if (status == HY_OK && recorded) status = record(&job);
  hy_array_release(job.dx);
  hy_array_release(job.dweight);
  if (status == HY_OK) {
    *loss = job.loss;
  } else {
    hy_array_release(job.loss);
  }
  return status;
}
