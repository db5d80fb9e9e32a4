// Indexing on a GPU: every op of the family as index tensors over some dimensions and a rest.
#include <stdio.h>

#include "backends/gpu/ops/sort.h"
#include "backends/gpu/rules.h"

enum { THREADS = 256, FEW = 512 };  // FEW as in index.cu

static bool strided(const hy_tensor* t) {
  return t->layout == HY_LAYOUT_STRIDED && hy_dtype_size(t->dtype) > 0;
}

static hy_tensor at_least_1d(const hy_tensor* t) {
  hy_tensor view = *t;
  if (view.ndim > 0) return view;
  view.ndim = 1;
  view.shape[0] = 1;
  view.stride[0] = 0;
  return view;
}

static hy_gpu_index begin(const hy__gpu_task* task, const hy_call* call, const hy_tensor* out,
                          const hy_tensor* x) {
  return (hy_gpu_index){
      .out = out->data,
      .x = x->data,
      .dtype = (int)out->dtype,
      .op = (int)call->op,
      .padding = -1,
      .n_indexed = 1,
      .fault = (hy_gpu_fault*)(uintptr_t)task->stream->use.faults->address,
  };
}

// The shape that index tensors are broadcast to.
static void set_shape(hy_gpu_index* g, int ndim, const int64_t* shape) {
  g->ndim = ndim;
  for (int d = 0; d < ndim; d++) {
    g->shape[d] = shape[d];
    g->n_indexed *= shape[d];
  }
}

// One more index tensor: over dimension `dim`, of that size and stride in what is indexed.
static void add_index(hy_gpu_index* g, const hy_tensor* index, int dim, int64_t size,
                      int64_t stride) {
  int k = g->count++;
  g->index[k] = index->data;
  g->index_dtype[k] = (int)index->dtype;
  g->dim[k] = dim;
  g->size[k] = size;
  g->x_stride[k] = stride;
  for (int d = 0; d < g->ndim; d++) {
    int own = d - (g->ndim - index->ndim);
    g->index_stride[k][d] = own < 0 || index->shape[own] == 1 ? 0 : index->stride[own];
  }
}

// Dimensions of `t` outside the mask.
static hy_tensor without(const hy_tensor* t, uint32_t mask) {
  hy_tensor view = *t;
  view.ndim = 0;
  for (int d = 0; d < t->ndim; d++) {
    if (mask >> d & 1) continue;
    view.shape[view.ndim] = t->shape[d];
    view.stride[view.ndim++] = t->stride[d];
  }
  return view;
}

// The rest: dimensions outside the masks, `shape_of` giving their sizes.
static void set_rest(hy_gpu_index* g, const hy_tensor* shape_of, const hy_tensor* out,
                     const hy_tensor* x) {
  g->rest = hy__gpu_walk(shape_of, 2, (const hy_tensor*[]){out, x});
  // Neighbouring threads take neighbours of the side whose elements are closer.
  g->rest_inner = g->rest.n > 1 && g->rest.stride[0][g->rest.ndim - 1] == 1;
}

static void gather(hy__gpu_task* task, hy_gpu_index* g) {
  char entry[16];
  snprintf(entry, sizeof entry, "gather_%zu", hy_dtype_size((hy_dtype)g->dtype));
  hy__gpu_launch(task, hy__gpu_kernel(task, "index", entry, ""),
                 hy__gpu_1d(hy__gpu_blocks(task, g->n_indexed * g->rest.n, THREADS, 1)),
                 hy__gpu_1d(THREADS), 0, HY__GPU_ARGS(g));
}

static void scatter(hy__gpu_task* task, hy_gpu_index* g, int adds) {
  if (g->n_indexed == 0 || g->rest.n == 0) return;
  // Keys are not negative, whichever way the output runs.
  for (int d = 0; d < g->ndim; d++)
    if (g->out_stride[d] < 0) g->bias -= (g->shape[d] - 1) * g->out_stride[d];
  for (int k = 0; k < g->count; k++)
    if (g->x_stride[k] < 0) g->bias -= (g->size[k] - 1) * g->x_stride[k];
  if (!adds && g->n_indexed <= FEW) {
    hy__gpu_launch(task, hy__gpu_kernel(task, "index", "scatter_few", ""),
                   hy__gpu_1d(hy__gpu_blocks(task, g->n_indexed * g->rest.n, THREADS, 1)),
                   hy__gpu_1d(THREADS), 0, HY__GPU_ARGS(g));
    return;
  }
  hy__gpu_pairs pairs = hy__gpu_pairs_take(task, g->n_indexed);
  hy__gpu_launch(task, hy__gpu_kernel(task, "index", "scatter_keys", ""),
                 hy__gpu_1d(hy__gpu_blocks(task, g->n_indexed, THREADS, 1)), hy__gpu_1d(THREADS), 0,
                 HY__GPU_ARGS(g, &pairs.keys, &pairs.places));
  hy__gpu_sort_pairs(task, &pairs, 1, g->n_indexed);
  hy__gpu_launch(task, hy__gpu_kernel(task, "index", "scatter_runs", ""),
                 hy__gpu_1d(hy__gpu_blocks(task, g->n_indexed * g->rest.n, THREADS, 1)),
                 hy__gpu_1d(THREADS), 0, HY__GPU_ARGS(g, &pairs.keys, &pairs.places, &adds));
}

static bool same_place(const hy_tensor* a, const hy_tensor* b) {
  return a->data == b->data;
}

// ---- The ops ----

hy_support hy__gpu_embedding(hy__gpu_task* task, const hy_call* call) {
  const hy_tensor *weight = &call->in[0], *ids = &call->in[1], *out = &call->out[0];
  HY__GPU_NEED(strided(weight) && strided(out), NO_LAYOUT);
  if (!task->stream || hy_tensor_numel(out) == 0) return HY_SUPPORT_YES;
  hy__gpu_expect_model(task, weight->dtype);
  hy_gpu_index g = begin(task, call, out, weight);
  long long bytes = weight->shape[1] * (long long)hy_dtype_size(weight->dtype);
  if (hy_tensor_is_contiguous(weight) && hy_tensor_is_contiguous(out) &&
      hy_tensor_is_contiguous(ids)) {
    bool wide = ((uintptr_t)weight->data | (uintptr_t)out->data | (uintptr_t)bytes) % 16 == 0;
    long long n = hy_tensor_numel(ids), words = wide ? bytes / 16 : bytes, rows = weight->shape[0];
    int id_dtype = (int)ids->dtype;
    unsigned threads = words >= 256 ? 256 : words >= 128 ? 128 : words >= 64 ? 64 : 32;
    hy__gpu_launch_dependent(task, hy__gpu_kernel(task, "index", wide ? "rows_16" : "rows_1", ""),
                             hy__gpu_1d(hy__gpu_blocks(task, n * threads, (int)threads, 1)),
                             hy__gpu_1d(threads), 0,
                             HY__GPU_ARGS(&g.out, &g.x, (void*)&ids->data, &id_dtype, &n, &words,
                                          &rows, &g.fault, &g.op));
    return HY_SUPPORT_YES;
  }
  set_shape(&g, ids->ndim, ids->shape);
  for (int d = 0; d < ids->ndim; d++) g.out_stride[d] = out->stride[d];
  add_index(&g, ids, 0, weight->shape[0], weight->stride[0]);
  hy_tensor columns = without(weight, 1), to = without(out, (1u << (out->ndim - 1)) - 1);
  set_rest(&g, &columns, &to, &columns);
  gather(task, &g);
  return HY_SUPPORT_YES;
}

hy_support hy__gpu_embedding_backward(hy__gpu_task* task, const hy_call* call) {
  const hy_tensor *dy = &call->in[0], *ids = &call->in[1], *out = &call->out[0];
  HY__GPU_NEED(strided(dy) && strided(out), NO_LAYOUT);
  HY__GPU_NEED(hy_tensor_numel(ids) < (1ll << 32), NO_SHAPE);
  if (!task->stream || hy_tensor_numel(out) == 0) return HY_SUPPORT_YES;
  hy_call zero = {.op = HY_OP_fill, .n_out = 1, .out = call->out};
  zero.attrs.value.value = hy_float(0);
  hy__gpu_fill(task, &zero);
  hy_gpu_index g = begin(task, call, out, dy);
  if (call->attrs.rows.padding_index >= 0) g.padding = call->attrs.rows.padding_index;
  set_shape(&g, ids->ndim, ids->shape);
  for (int d = 0; d < ids->ndim; d++) g.src_stride[d] = dy->stride[d];
  add_index(&g, ids, 0, out->shape[0], out->stride[0]);
  hy_tensor columns = without(out, 1), from = without(dy, (1u << (dy->ndim - 1)) - 1);
  set_rest(&g, &columns, &columns, &from);
  scatter(task, &g, true);
  return HY_SUPPORT_YES;
}

hy_support hy__gpu_gather(hy__gpu_task* task, const hy_call* call) {
  hy_tensor x = at_least_1d(&call->in[0]), index = at_least_1d(&call->in[1]);
  hy_tensor out = at_least_1d(&call->out[0]), nothing = {.ndim = 0};
  HY__GPU_NEED(strided(&x) && strided(&out), NO_LAYOUT);
  if (!task->stream || hy_tensor_numel(&index) == 0) return HY_SUPPORT_YES;
  int dim = hy__gpu_wrap_dim(call->attrs.dim.dim, x.ndim);
  hy_gpu_index g = begin(task, call, &out, &x);
  set_shape(&g, index.ndim, index.shape);
  for (int d = 0; d < index.ndim; d++) {
    g.out_stride[d] = out.stride[d];
    g.src_stride[d] = d == dim ? 0 : x.stride[d];
  }
  add_index(&g, &index, dim, x.shape[dim], x.stride[dim]);
  set_rest(&g, &nothing, &nothing, &nothing);
  gather(task, &g);
  return HY_SUPPORT_YES;
}

hy_support hy__gpu_scatter(hy__gpu_task* task, const hy_call* call) {
  hy_tensor x = at_least_1d(&call->in[0]), index = at_least_1d(&call->in[1]);
  hy_tensor src = at_least_1d(&call->in[2]), out = at_least_1d(&call->out[0]),
            nothing = {.ndim = 0};
  HY__GPU_NEED(strided(&x) && strided(&out), NO_LAYOUT);
  HY__GPU_NEED(hy_tensor_numel(&index) < (1ll << 32), NO_SHAPE);
  if (!task->stream) return HY_SUPPORT_YES;
  int dim = hy__gpu_wrap_dim(call->attrs.scatter.dim, x.ndim);
  if (!same_place(&out, &x)) hy__gpu_copy(task, &out, &x);
  hy_gpu_index g = begin(task, call, &out, &src);
  g.adds_to_out = true;
  set_shape(&g, index.ndim, index.shape);
  for (int d = 0; d < index.ndim; d++) {
    g.out_stride[d] = d == dim ? 0 : out.stride[d];
    g.src_stride[d] = src.stride[d];
  }
  add_index(&g, &index, dim, out.shape[dim], out.stride[dim]);
  set_rest(&g, &nothing, &nothing, &nothing);
  scatter(task, &g, call->attrs.scatter.mode == HY_SCATTER_ADD);
  return HY_SUPPORT_YES;
}

hy_support hy__gpu_index_select(hy__gpu_task* task, const hy_call* call) {
  hy_tensor x = at_least_1d(&call->in[0]), index = at_least_1d(&call->in[1]);
  hy_tensor out = at_least_1d(&call->out[0]);
  HY__GPU_NEED(strided(&x) && strided(&out), NO_LAYOUT);
  if (!task->stream || hy_tensor_numel(&out) == 0) return HY_SUPPORT_YES;
  int dim = hy__gpu_wrap_dim(call->attrs.dim.dim, x.ndim);
  hy_gpu_index g = begin(task, call, &out, &x);
  set_shape(&g, 1, index.shape);
  g.out_stride[0] = out.stride[dim];
  add_index(&g, &index, dim, x.shape[dim], x.stride[dim]);
  hy_tensor to = without(&out, 1u << dim), from = without(&x, 1u << dim);
  set_rest(&g, &from, &to, &from);
  gather(task, &g);
  return HY_SUPPORT_YES;
}

hy_support hy__gpu_index_add(hy__gpu_task* task, const hy_call* call) {
  hy_tensor x = at_least_1d(&call->in[0]), index = at_least_1d(&call->in[1]);
  hy_tensor src = at_least_1d(&call->in[2]), out = at_least_1d(&call->out[0]);
  HY__GPU_NEED(strided(&x) && strided(&out), NO_LAYOUT);
  if (!task->stream) return HY_SUPPORT_YES;
  int dim = hy__gpu_wrap_dim(call->attrs.dim.dim, x.ndim);
  if (!same_place(&out, &x)) hy__gpu_copy(task, &out, &x);
  hy_gpu_index g = begin(task, call, &out, &src);
  g.adds_to_out = true;
  set_shape(&g, 1, index.shape);
  g.src_stride[0] = src.stride[dim];
  add_index(&g, &index, dim, out.shape[dim], out.stride[dim]);
  hy_tensor to = without(&out, 1u << dim), from = without(&src, 1u << dim);
  set_rest(&g, &to, &to, &from);
  scatter(task, &g, true);
  return HY_SUPPORT_YES;
}

// ---- Lists of indices ----

static bool has_room(const hy_call* call, int first) {
  int count = 0;
  for (int i = first; i < call->n_in; i++) count += hy__gpu_present(&call->in[i]);
  return count <= HY_GPU_DIMS;
}

// The plan's dimensions of `result`, a tensor of the plan's shape: those of the indices into
// `stride`, the others into `rest`, and beside them the dimensions of `x` into `x_rest`.
static void split_result(const hy__gpu_index_plan* plan, const hy_tensor* result,
                         const hy_tensor* x, long long* stride, hy_tensor* rest,
                         hy_tensor* x_rest) {
  *rest = *result;
  *x_rest = *x;
  rest->ndim = x_rest->ndim = 0;
  for (int d = 0, i = 0; d < result->ndim; d++) {
    int own = plan->dim_of[d];
    if (own < 0) {
      stride[i++] = result->stride[d];
      continue;
    }
    rest->shape[rest->ndim] = x_rest->shape[rest->ndim] = result->shape[d];
    rest->stride[rest->ndim++] = result->stride[d];
    x_rest->stride[x_rest->ndim++] = x->stride[own];
  }
}

static void add_indices(hy_gpu_index* g, const hy_call* call, int first, const hy_tensor* x) {
  g->wraps = true;
  for (int i = first; i < call->n_in; i++)
    if (hy__gpu_present(&call->in[i]))
      add_index(g, &call->in[i], i - first, x->shape[i - first], x->stride[i - first]);
}

hy_support hy__gpu_index_list(hy__gpu_task* task, const hy_call* call) {
  const hy_tensor *x = &call->in[0], *out = &call->out[0];
  hy__gpu_index_plan plan = hy__gpu_plan_index(call, 1);
  HY__GPU_NEED(strided(x) && strided(out) && has_room(call, 1), NO_LAYOUT);
  if (!task->stream || hy_tensor_numel(out) == 0) return HY_SUPPORT_YES;
  hy_gpu_index g = begin(task, call, out, x);
  hy_tensor to, from;
  set_shape(&g, plan.indexed.ndim, plan.indexed.shape);
  split_result(&plan, out, x, g.out_stride, &to, &from);
  add_indices(&g, call, 1, x);
  set_rest(&g, &to, &to, &from);
  gather(task, &g);
  return HY_SUPPORT_YES;
}

hy_support hy__gpu_index_put(hy__gpu_task* task, const hy_call* call) {
  const hy_tensor *x = &call->in[0], *out = &call->out[0];
  hy__gpu_index_plan plan = hy__gpu_plan_index(call, 2);
  hy_tensor values = call->in[1];
  HY__GPU_NEED(strided(x) && strided(out) && has_room(call, 2), NO_LAYOUT);
  HY__GPU_NEED(hy_tensor_numel(&plan.indexed) < (1ll << 32), NO_SHAPE);
  HY__GPU_NEED(hy_expand(&values, &values, plan.result.ndim, plan.result.shape) == HY_OK, NO_SHAPE);
  if (!task->stream) return HY_SUPPORT_YES;
  if (!same_place(out, x)) hy__gpu_copy(task, out, x);
  hy_gpu_index g = begin(task, call, out, &values);
  g.adds_to_out = true;
  hy_tensor to, from;
  set_shape(&g, plan.indexed.ndim, plan.indexed.shape);
  split_result(&plan, &values, out, g.src_stride, &from, &to);
  add_indices(&g, call, 2, out);
  set_rest(&g, &to, &to, &from);
  scatter(task, &g, call->attrs.accumulate.accumulate);
  return HY_SUPPORT_YES;
}
