// nditer: loops over tensors that broadcast together, dimensions collapsed, chunks spread over
// the threads.
#include "backends/cpu/rows/nditer.h"

#include "backends/cpu/runtime/thread_pool.h"

// Additions that are worth a task, and that are where there are tasks anyway.
enum { GRAIN = 32768, LEAST_GRAIN = 4096, PAST_BYTES = 8 << 20 };
// Elements: tasks begin at a cache line of every type, as nontemporal stores want.
enum { LINE = 64 };

bool hy__use_nontemporal(const hy_call* call) {
  if (call->out[0].dtype == HY_NONE) return false;
  for (int i = 0; i < call->n_in; i++) {
    if (call->in[i].dtype != HY_NONE && call->in[i].data == call->out[0].data) return false;
  }
  return hy_tensor_bytes(&call->out[0]) >= PAST_BYTES;
}

void hy__nditer_init(hy__nditer* loop, int count, const hy_tensor* const* tensors) {
  const hy_tensor* first = tensors[0];
  int64_t size[HY__NDITER_TENSORS];
  loop->count = count;
  loop->ndim = 0;
  for (int k = 0; k < count; k++) {
    loop->data[k] = tensors[k]->data;
    size[k] = (int64_t)hy_dtype_size(tensors[k]->dtype);
  }
  for (int d = 0; d < first->ndim; d++) {
    int64_t n = first->shape[d], stride[HY__NDITER_TENSORS];
    if (n == 1) continue;
    bool merges = loop->ndim > 0;
    for (int k = 0; k < count; k++) {
      const hy_tensor* t = tensors[k];
      int own = d - (first->ndim - t->ndim);
      stride[k] = own < 0 || t->shape[own] == 1 ? 0 : t->stride[own] * size[k];
      merges = merges && loop->stride[k][loop->ndim - 1] == stride[k] * n;
    }
    int at = merges ? loop->ndim - 1 : loop->ndim++;
    loop->shape[at] = merges ? loop->shape[at] * n : n;
    for (int k = 0; k < count; k++) loop->stride[k][at] = stride[k];
  }
  if (loop->ndim > 0) return;
  loop->ndim = 1;
  loop->shape[0] = 1;
  for (int k = 0; k < count; k++) loop->stride[k][0] = size[k];
}

typedef struct work {
  const hy__nditer* loop;
  hy__nditer_body* body;
  const void* context;
  int64_t total, grain;
} work;

// Elements first .. last - 1 in row-major order.
static void run_range(const work* w, int64_t first, int64_t last) {
  const hy__nditer* loop = w->loop;
  int inner = loop->ndim - 1;
  int64_t index[HY_MAX_DIMS], step[HY__NDITER_TENSORS], rest = first;
  char* at[HY__NDITER_TENSORS];
  for (int k = 0; k < loop->count; k++) {
    at[k] = loop->data[k];
    step[k] = loop->stride[k][inner];
  }
  for (int d = inner; d >= 0; d--) {
    index[d] = rest % loop->shape[d];
    rest /= loop->shape[d];
    for (int k = 0; k < loop->count; k++) at[k] += index[d] * loop->stride[k][d];
  }
  for (;;) {
    int64_t n = loop->shape[inner] - index[inner];
    if (n > last - first) n = last - first;
    w->body(w->context, n, at, step);
    first += n;
    if (first == last) return;
    for (int k = 0; k < loop->count; k++) at[k] -= index[inner] * step[k];
    index[inner] = 0;
    for (int d = inner - 1; d >= 0; d--) {
      for (int k = 0; k < loop->count; k++) at[k] += loop->stride[k][d];
      if (++index[d] < loop->shape[d]) break;
      for (int k = 0; k < loop->count; k++) at[k] -= index[d] * loop->stride[k][d];
      index[d] = 0;
    }
  }
}

static void run_task(void* context, int64_t i) {
  const work* w = context;
  int64_t first = i * w->grain, last = first + w->grain;
  run_range(w, first, last < w->total ? last : w->total);
}

void hy__nditer_run(const hy__nditer* loop, hy__nditer_body* body, const void* context, int cost) {
  work w = {loop, body, context, 1, cost < GRAIN ? GRAIN / cost : 1};
  for (int d = 0; d < loop->ndim; d++) w.total *= loop->shape[d];
  bool alone = w.total <= 2 * w.grain;
  w.grain = hy__pool_grain(w.total, cost < LEAST_GRAIN ? LEAST_GRAIN / cost : 1, w.grain);
  if (w.grain > LINE) w.grain = w.grain / LINE * LINE;
  if (alone)
    run_range(&w, 0, w.total);
  else
    hy__pool_run(run_task, &w, (w.total + w.grain - 1) / w.grain);
}
