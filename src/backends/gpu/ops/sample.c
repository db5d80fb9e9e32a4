// Sampling the next token on a GPU: the logits stay there.
#include "backends/gpu/ops/sort.h"

enum { THREADS = 256 };

hy_support hy__gpu_sample(hy__gpu_task* task, const hy_call* call) {
  const hy_tensor *logits = &call->in[0], *seen = &call->in[3], *ids = &call->out[0];
  HY__GPU_NEED(ids->dtype == HY_I64 && logits->shape[1] < (1ll << 32), NO_DTYPE);
  HY__GPU_NEED(logits->shape[1] > 0, NO_SHAPE);
  if (!task->stream || logits->shape[0] == 0) return HY_SUPPORT_YES;
  hy_gpu_sample s = {.logits = hy__gpu_view(logits),
                     .settings = hy__gpu_view(&call->in[1]),
                     .draw = hy__gpu_view(&call->in[2]),
                     .seen = hy__gpu_view(seen),
                     .ids = ids->data,
                     .ids_stride = ids->stride[0],
                     .rows = logits->shape[0],
                     .tokens = logits->shape[1]};
  if (!hy__gpu_present(seen)) s.seen.data = NULL;
  hy__gpu_pairs pairs = hy__gpu_pairs_take(task, s.rows * s.tokens);
  hy__gpu_launch(task, hy__gpu_kernel(task, "sample", "sample_keys", ""),
                 hy__gpu_1d(hy__gpu_blocks(task, s.rows * s.tokens, THREADS, 1)),
                 hy__gpu_1d(THREADS), 0, HY__GPU_ARGS(&s, &pairs.keys, &pairs.places));
  hy__gpu_sort_pairs(task, &pairs, s.rows, s.tokens);
  hy__gpu_launch(task, hy__gpu_kernel(task, "sample", "sample_choose", ""),
                 hy__gpu_1d((unsigned)s.rows), hy__gpu_1d(THREADS), 0,
                 HY__GPU_ARGS(&s, &pairs.keys, &pairs.places));
  return HY_SUPPORT_YES;
}
