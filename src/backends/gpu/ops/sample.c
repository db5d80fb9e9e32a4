// Sampling the next token on a GPU: the logits stay there.
#include "backends/gpu/ops/sort.h"

// GREEDY_EACH: logits that a thread has at least; parts of a row, and blocks of a multiprocessor.
enum { THREADS = 256, GREEDY_EACH = 8, GREEDY_PARTS = 128, GREEDY_BLOCKS = 5 };

// The largest logit of every row: blocks share a row, as many as run at once, and the last of them
// to finish decides.
static void run_greedy(hy__gpu_task* task, hy_gpu_sample* s) {
  long long parts = (s->tokens + THREADS * GREEDY_EACH - 1) / (THREADS * GREEDY_EACH);
  long long at_once = GREEDY_BLOCKS * (long long)task->device->multiprocessors / s->rows;
  if (parts > at_once) parts = at_once > 0 ? at_once : 1;
  if (parts > GREEDY_PARTS) parts = GREEDY_PARTS;
  if (s->rows > HY__GPU_COUNTERS) parts = 1;
  uint64_t best = hy__gpu_workspace(task, (size_t)(s->rows * parts) * 16);
  uint64_t counters = hy__gpu_counters(task);
  hy__gpu_launch_dependent(task, hy__gpu_kernel(task, "sample", "sample_greedy", ""),
                           (hy__gpu_dim3){(unsigned)parts, (unsigned)s->rows, 1},
                           hy__gpu_1d(THREADS), 0, HY__GPU_ARGS(s, &best, &counters));
}

hy_support hy__gpu_sample(hy__gpu_task* task, const hy_call* call) {
  const hy_tensor *logits = &call->in[0], *seen = &call->in[3], *ids = &call->out[0];
  HY__GPU_NEED(ids->dtype == HY_I64 && logits->shape[1] < (1ll << 32), NO_DTYPE);
  HY__GPU_NEED(logits->shape[1] > 0 && logits->shape[0] <= 65535, NO_SHAPE);
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
  if (!hy__gpu_present(&call->in[1])) {
    s.seen.data = NULL;
    run_greedy(task, &s);
    return HY_SUPPORT_YES;
  }
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
