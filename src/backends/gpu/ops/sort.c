// sort and topk on a GPU: lanes in batches that the workspace holds.
#include "backends/gpu/ops/sort.h"

#include "backends/gpu/rules.h"

enum { THREADS = 256, TILE = 1024, MERGE_EACH = 8 };  // as in sort.cu
enum { BATCH = 1 << 26 };  // pairs sorted at once, unless a lane is longer

hy__gpu_pairs hy__gpu_pairs_take(hy__gpu_task* task, int64_t n) {
  size_t keys = (size_t)n * sizeof(uint64_t), places = (size_t)n * sizeof(uint32_t);
  return (hy__gpu_pairs){hy__gpu_workspace(task, keys), hy__gpu_workspace(task, places),
                         hy__gpu_workspace(task, keys), hy__gpu_workspace(task, places)};
}

static void swap(uint64_t* a, uint64_t* b) {
  uint64_t held = *a;
  *a = *b;
  *b = held;
}

void hy__gpu_sort_pairs(hy__gpu_task* task, hy__gpu_pairs* pairs, long long lanes,
                        long long length) {
  long long tiles = lanes * ((length + TILE - 1) / TILE);
  hy__gpu_launch(task, hy__gpu_kernel(task, "sort", "sort_tiles", ""),
                 hy__gpu_1d(hy__gpu_blocks(task, tiles * THREADS, THREADS, 1)), hy__gpu_1d(THREADS),
                 0, HY__GPU_ARGS(&pairs->keys, &pairs->places, &lanes, &length));
  long long groups = lanes * ((length + MERGE_EACH - 1) / MERGE_EACH);
  for (long long run = TILE; run < length; run *= 2) {
    hy__gpu_launch(task, hy__gpu_kernel(task, "sort", "sort_merge", ""),
                   hy__gpu_1d(hy__gpu_blocks(task, groups, THREADS, 1)), hy__gpu_1d(THREADS), 0,
                   HY__GPU_ARGS(&pairs->keys, &pairs->places, &pairs->spare_keys,
                                &pairs->spare_places, &lanes, &length, &run));
    swap(&pairs->keys, &pairs->spare_keys);
    swap(&pairs->places, &pairs->spare_places);
  }
}

hy_support hy__gpu_sort(hy__gpu_task* task, const hy_call* call) {
  const hy_tensor* in = &call->in[0];
  bool top = call->op == HY_OP_topk;
  int dim = hy__gpu_wrap_dim(top ? call->attrs.topk.dim : call->attrs.sort.dim, in->ndim);
  int descending = top ? call->attrs.topk.largest : call->attrs.sort.descending;
  HY__GPU_NEED(in->layout == HY_LAYOUT_STRIDED && hy_dtype_size(in->dtype) > 0, NO_LAYOUT);
  long long length = in->ndim > 0 ? in->shape[dim] : 1, inner = 1;
  HY__GPU_NEED(length < (1ll << 32), NO_SHAPE);
  long long n = hy_tensor_numel(in), kept = in->ndim > 0 ? call->out[0].shape[dim] : 1;
  if (!task->stream || n == 0 || kept == 0) return HY_SUPPORT_YES;
  for (int d = dim + 1; d < in->ndim; d++) inner *= in->shape[d];
  hy_tensor x = hy__gpu_contiguous(task, in);
  hy_tensor out = hy__gpu_out_begin(task, &call->out[0]);
  hy_tensor index = hy__gpu_out_begin(task, &call->out[1]);
  long long all = n / length, batch = BATCH / length < 1 ? 1 : BATCH / length;
  if (batch > all) batch = all;
  hy__gpu_pairs pairs = hy__gpu_pairs_take(task, batch * length);
  int dtype = (int)x.dtype;
  for (long long first = 0; first < all; first += batch) {
    long long lanes = all - first < batch ? all - first : batch;
    hy__gpu_launch(task, hy__gpu_kernel(task, "sort", "sort_keys", ""),
                   hy__gpu_1d(hy__gpu_blocks(task, lanes * length, THREADS, 1)),
                   hy__gpu_1d(THREADS), 0,
                   HY__GPU_ARGS(&x.data, &dtype, &pairs.keys, &pairs.places, &first, &lanes,
                                &length, &inner, &descending));
    hy__gpu_sort_pairs(task, &pairs, lanes, length);
    hy__gpu_launch(task, hy__gpu_kernel(task, "sort", "sort_write", ""),
                   hy__gpu_1d(hy__gpu_blocks(task, lanes * kept, THREADS, 1)), hy__gpu_1d(THREADS),
                   0,
                   HY__GPU_ARGS(&x.data, &dtype, &pairs.places, &out.data, &index.data, &first,
                                &lanes, &length, &inner, &kept));
  }
  hy__gpu_out_end(task, &call->out[0], &out);
  hy__gpu_out_end(task, &call->out[1], &index);
  return HY_SUPPORT_YES;
}
