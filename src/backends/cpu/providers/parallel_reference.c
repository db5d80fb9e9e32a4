// The provider `reference_mt`, for what has no kernel: the reference, split over the threads.
//
// A call is split along a dimension that the op's row in the op table allows: each part is the same
// op on views of the same tensors, computed by the same code, so that the result has the
// reference's very bits for any number of threads. Random numbers are split along their counter,
// and what reduces everything to one element in two steps.
#include <stdatomic.h>
#include <stdlib.h>

#include "backends/cpu/family.h"
#include "backends/cpu/provider.h"
#include "backends/cpu/runtime/thread_pool.h"

enum { GRAIN = 8192, MOST_PARTS = 64, MOST_INPUTS = 8, WHOLE = -1, IMPOSSIBLE = -2 };

// How the dimensions of a call's tensors belong together: the split column of the op table.
typedef enum split {
  NONE,      // on one thread, by the reference itself
  ELEMENTS,  // elementwise, with broadcasting
  SLICES,    // along one dimension, which is not cut
  KEPT,      // a reduction: dimensions that stay
  PLANES,    // the last two dimensions stay together
  CHANNELS,  // the second dimension of images, the only one of vectors
  ROWS,      // the first dimension of the first input and of the outputs
  BATCH,     // the first dimension of everything
  COUNTER,   // random numbers, by their counter
} split;

static const split splits[HY_OP_END] = {
#define HY_OP(id, name, outputs, inputs, attrs, dtypes, dtype_rule, shape_rule, alias, kernel, \
              split, ...)                                                                      \
  [id] = split,
#include "halyard/ops.def"
};

// The tensor whose dimensions are numbered: the one with all of them.
static const hy_tensor* model_of(const hy_call* call, split s) {
  if (s == KEPT || s == ROWS) return &call->in[0];
  if (call->op == HY_OP_batch_norm_update) return &call->in[2];
  if (s == CHANNELS) return &call->in[call->op == HY_OP_batch_norm_backward];
  return &call->out[0];
}

static uint32_t reduced(const hy_call* call) {
  const hy_dims* dims = &call->attrs.reduce.dims;  // the first field of both kinds
  int ndim = call->in[0].ndim;
  uint32_t mask = dims->n == 0 ? ~0u : 0;
  for (int64_t i = 0; i < dims->n; i++)
    mask |= 1u << (dims->dim[i] < 0 ? dims->dim[i] + ndim : dims->dim[i]);
  return mask;
}

// The dimension of a tensor that is cut where dimension d of the model is: WHOLE, or IMPOSSIBLE.
static int cut_of(const hy_call* call, split s, const hy_tensor* t, bool is_output, int d) {
  const hy_tensor* model = model_of(call, s);
  int own = d;
  switch (s) {
    case ELEMENTS:
      own = d - (model->ndim - t->ndim);
      if (own < 0 || t->shape[own] == 1) return WHOLE;
      break;
    case SLICES:
      if (t->ndim != model->ndim) return WHOLE;
      break;
    case KEPT:
      if (is_output && !call->attrs.reduce.keepdim) {
        for (int k = 0; k < d; k++) own -= (int)(reduced(call) >> k & 1);
      }
      break;
    case CHANNELS: own = t->ndim == 1 ? 0 : d; break;
    case ROWS:
      if (!is_output && t != &call->in[0]) return WHOLE;
      break;
    default: break;
  }
  return own < t->ndim && t->shape[own] == model->shape[d] ? own : IMPOSSIBLE;
}

static bool may_cut(const hy_call* call, split s, int d) {
  int ndim = model_of(call, s)->ndim;
  if (s == SLICES) {
    int64_t dim = call->op == HY_OP_topk ? call->attrs.topk.dim : call->attrs.dim.dim;
    if (d == dim || d == dim + ndim) return false;
  }
  if (s == KEPT && reduced(call) >> d & 1) return false;
  if (s == PLANES && d >= ndim - 2) return false;
  if (s == CHANNELS && d != 1) return false;
  if ((s == ROWS || s == BATCH) && d != 0) return false;
  bool is_norm = call->op == HY_OP_layer_norm || call->op == HY_OP_rms_norm;
  if (is_norm && call->attrs.norm.norm_dims >= ndim) return false;
  if (call->op == HY_OP_linear && ndim < 2) return false;
  for (int i = 0; i < call->n_in; i++) {
    const hy_tensor* t = &call->in[i];
    if (t->dtype != HY_NONE && cut_of(call, s, t, false, d) == IMPOSSIBLE) return false;
  }
  for (int i = 0; i < call->n_out; i++) {
    const hy_tensor* t = &call->out[i];
    if (t->dtype != HY_NONE && cut_of(call, s, t, true, d) == IMPOSSIBLE) return false;
  }
  return true;
}

typedef struct job {
  const hy_call* call;
  split split;
  int dim;
  int64_t size, parts;  // indices of the dimension, and pieces of it
  int64_t unit;         // a part begins at a multiple of it
  hy_tensor* partial;   // of a reduction in two steps: an element for each part
  atomic_bool failed;
} job;

// The outermost dimension that has something for many threads, else the longest.
static bool choose(const hy_call* call, job* j) {
  const hy_tensor* model = model_of(call, j->split);
  j->size = 0;
  for (int d = 0; d < model->ndim && j->size < MOST_PARTS; d++) {
    if (model->shape[d] <= j->size || !may_cut(call, j->split, d)) continue;
    j->dim = d;
    j->size = model->shape[d];
  }
  return j->size > 1;
}

static bool reduces_all(const hy_call* call) {
  switch (call->op) {
    case HY_OP_sum:
    case HY_OP_prod:
    case HY_OP_max:
    case HY_OP_min:
    case HY_OP_any:
    case HY_OP_all: break;
    default: return false;
  }
  // A part's result is not to be rounded more than the whole's.
  if (call->out[0].dtype == HY_BF16 || call->out[0].dtype == HY_F16) return false;
  const hy_tensor* x = &call->in[0];
  uint32_t all = (1u << x->ndim) - 1;
  return (reduced(call) & all) == all && hy_tensor_is_contiguous(x) && hy_tensor_numel(x) > 1;
}

static bool drawn_in_order(const hy_call* call) {
  for (int i = 0; i < call->n_in; i++) {
    if (!hy_tensor_is_contiguous(&call->in[i])) return false;
  }
  for (int i = 0; i < call->n_out; i++) {
    if (!hy_tensor_is_contiguous(&call->out[i])) return false;
  }
  return hy_tensor_numel(&call->out[0]) > 4;
}

// ---- parts ----

static hy_tensor narrow(const hy_tensor* t, int dim, int64_t first, int64_t n) {
  hy_tensor part = *t;
  part.data = (char*)t->data + first * t->stride[dim] * (int64_t)hy_dtype_size(t->dtype);
  part.shape[dim] = n;
  return part;
}

// Elements first .. first + n - 1 of a contiguous tensor.
static hy_tensor stretch(const hy_tensor* t, int64_t first, int64_t n) {
  hy_tensor part = {.data = t->data, .dtype = t->dtype, .ndim = 1, .shape = {n}, .stride = {1}};
  part.data = (char*)t->data + first * (int64_t)hy_dtype_size(t->dtype);
  return part;
}

static hy_tensor part_of(const job* j, const hy_tensor* t, bool is_output, int64_t first,
                         int64_t n) {
  if (t->dtype == HY_NONE) return *t;
  if (j->split == COUNTER || j->partial) return stretch(t, first, n);
  int dim = cut_of(j->call, j->split, t, is_output, j->dim);
  return dim == WHOLE ? *t : narrow(t, dim, first, n);
}

static void run_part(void* context, int64_t i) {
  job* j = context;
  int64_t units = (j->size + j->unit - 1) / j->unit;
  int64_t first = units * i / j->parts * j->unit, last = units * (i + 1) / j->parts * j->unit;
  int64_t n = (last < j->size ? last : j->size) - first;
  hy_tensor in[MOST_INPUTS], out[HY_MAX_OUTPUTS];
  hy_call part = *j->call;
  for (int k = 0; k < part.n_in; k++) in[k] = part_of(j, &part.in[k], false, first, n);
  for (int k = 0; k < part.n_out; k++)
    out[k] = j->partial ? narrow(j->partial, 0, i, 1) : part_of(j, &part.out[k], true, first, n);
  if (j->partial) {
    part.attrs.reduce.keepdim = true;
    part.attrs.reduce.dims = hy_all_dims();
  }
  if (part.op == HY_OP_dropout)
    part.attrs.dropout.offset += (uint64_t)first / 4;
  else if (j->split == COUNTER)
    part.attrs.random.offset += (uint64_t)first / 4;
  part.in = in;
  part.out = out;
  if (hy__backend_host->reference(&part) != HY_OK) atomic_store(&j->failed, true);
}

static int64_t work_of(const hy_call* call) {
  int64_t most = 0;
  for (int i = 0; i < call->n_in + call->n_out; i++) {
    const hy_tensor* t = i < call->n_in ? &call->in[i] : &call->out[i - call->n_in];
    int64_t n = t->dtype == HY_NONE ? 0 : hy_tensor_numel(t);
    if (n > most) most = n;
  }
  return most;
}

static hy_status reduce_in_two_steps(job* j) {
  const hy_call* call = j->call;
  uint64_t memory[MOST_PARTS];
  hy_tensor partial = {.data = memory, .dtype = call->out[0].dtype, .ndim = 1, .stride = {1}};
  partial.shape[0] = j->parts;
  j->partial = &partial;
  j->size = hy_tensor_numel(&call->in[0]);
  hy__pool_run(run_part, j, j->parts);
  hy_call last = *call;
  hy_tensor out = call->out[0];
  last.in = &partial;
  out.ndim = 0;
  last.out = &out;
  last.attrs.reduce = (hy_attrs_reduce){hy_all_dims(), false};
  return hy__backend_host->reference(atomic_load(&j->failed) ? call : &last);
}

// Where a part fails, the whole call fails again on this thread, which is the one to have the
// message.
static hy_status run(void* device, void* stream, const hy_call* call) {
  (void)device;
  (void)stream;
  job j = {.call = call, .split = splits[call->op], .unit = 1};
  int64_t work = work_of(call);
  j.parts = work / GRAIN < MOST_PARTS ? work / GRAIN : MOST_PARTS;
  if (j.parts < 2) return hy__backend_host->reference(call);
  if (j.split == KEPT && reduces_all(call)) return reduce_in_two_steps(&j);
  if (j.split == COUNTER) {
    j.size = hy_tensor_numel(&call->out[0]);
    j.unit = 4;
  } else {
    choose(call, &j);
  }
  if (j.parts > j.size) j.parts = j.size;
  hy__pool_run(run_part, &j, j.parts);
  return atomic_load(&j.failed) ? hy__backend_host->reference(call) : HY_OK;
}

static hy_support supports(void* device, const hy_call* call) {
  (void)device;
  job j = {.call = call, .split = splits[call->op]};
  if (j.split == NONE) return HY_SUPPORT_NO_OP;
  if (j.split == COUNTER) return drawn_in_order(call) ? HY_SUPPORT_YES : HY_SUPPORT_NO_LAYOUT;
  bool cuts = (j.split == KEPT && reduces_all(call)) || choose(call, &j);
  return cuts ? HY_SUPPORT_YES : HY_SUPPORT_NO_SHAPE;
}

const hy_provider hy__cpu_reference_mt = {
    .size = sizeof(hy_provider),
    .name = "reference_mt",
    .version = HY_VERSION_STRING,
    .supports = supports,
    .run = run,
};
