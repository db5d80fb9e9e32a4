// rope_cache: what comes before a prompt's attention, in one kernel.
#include "backends/gpu/gpu.h"
#include "backends/gpu/kernels/params.h"
#include "backends/gpu/ops/held.h"

enum { K_CACHE, V_CACHE, QKV, COSINE, SINE, POSITION, SLOT };

// Whether half a head is whole vectors of 16 bytes in all that is read and written.
static bool in_vectors(const hy_rope_cache* p, int64_t element) {
  uintptr_t addresses = (uintptr_t)p->qkv | (uintptr_t)p->k | (uintptr_t)p->v | (uintptr_t)p->qk |
                        (uintptr_t)p->cosine | (uintptr_t)p->sine;
  return p->angle_dtype == HY_F32 && element <= 4 && p->size / 2 * element % 16 == 0 &&
         addresses % 16 == 0;
}

hy_support hy__gpu_rope_cache(hy__gpu_task* task, const hy_call* call) {
  const hy_tensor *in = call->in, *cache = &in[K_CACHE];
  int64_t most = INT32_MAX / 2, size = cache->shape[3], kv_heads = cache->shape[2];
  HY__GPU_NEED(size < most && in[QKV].shape[1] < most, NO_SHAPE);
  if (!task->stream) return HY_SUPPORT_YES;
  hy_tensor caches[2], read[5];
  for (int i = 0; i < 2; i++) caches[i] = hy__gpu_cache_begin(task, &in[i], &call->out[i]);
  for (int i = 0; i < 5; i++) read[i] = hy__gpu_contiguous(task, &in[QKV + i]);
  hy_tensor qk = hy__gpu_out_begin(task, &call->out[2]);
  hy_rope_cache p = {.qkv = read[0].data,
                     .cosine = read[1].data,
                     .sine = read[2].data,
                     .position = read[3].data,
                     .slot = read[4].data,
                     .k = caches[0].data,
                     .v = caches[1].data,
                     .qk = qk.data,
                     .tokens = in[QKV].shape[0],
                     .slots = cache->shape[0] * cache->shape[1],
                     .positions = in[COSINE].shape[0],
                     .heads = (int)(in[QKV].shape[1] - 2 * kv_heads),
                     .kv_heads = (int)kv_heads,
                     .size = (int)size,
                     .position_dtype = read[3].dtype,
                     .slot_dtype = read[4].dtype,
                     .angle_dtype = read[1].dtype};
  int64_t element = (int64_t)hy_dtype_size(qk.dtype), n = hy_tensor_numel(&in[QKV]) / 2;
  bool wide = in_vectors(&p, element);
  int op = task->op;
  if (wide) n /= 16 / element;
  if (n > 0)
    hy__gpu_launch(task,
                   hy__gpu_kernel(task, "rope_cache", wide ? "rope_cache_vectors" : "rope_cache",
                                  hy__gpu_option(qk.dtype)),
                   hy__gpu_1d(hy__gpu_blocks(task, n, 256, 1)), hy__gpu_1d(256), 0,
                   HY__GPU_ARGS(&p, &task->stream->use.faults->address, &op));
  for (int i = 0; i < 2; i++) hy__gpu_out_end(task, &call->out[i], &caches[i]);
  hy__gpu_out_end(task, &call->out[2], &qk);
  return HY_SUPPORT_YES;
}
