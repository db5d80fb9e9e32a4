// Rotary positions along the last dimension.
#include <stdatomic.h>

#include "backends/cpu/scratch.h"
#include "backends/cpu/strips.h"

typedef struct job {
  const hy__cpu_kernels* kernels;
  float direction;  // -1: the inverse
  bool interleaved;
  hy_tensor angles[2];  // cosines and sines, broadcast
  hy__strips x, out, cosine, sine;
  atomic_bool no_memory;
} job;

static void turn(void* context, int64_t first, int64_t last) {
  job* j = context;
  int64_t n = j->x.n;
  float* row = hy__scratch_get(HY__SCRATCH_ROWS, (size_t)n * 3 * sizeof *row);
  if (!row) {
    atomic_store(&j->no_memory, true);
    return;
  }
  const hy__rows* rows = j->kernels->rows;
  for (int64_t i = first; i < last; i++) {
    const float* x = hy__strip_read(j->kernels, &j->x, i, row);
    const float* c = hy__strip_read(j->kernels, &j->cosine, i, row + 2 * n);
    const float* s = hy__strip_read(j->kernels, &j->sine, i, row + 2 * n + n / 2);
    float* out = hy__strip_target(&j->out, i, row + n);
    (j->interleaved ? rows->turn_pairs : rows->turn_halves)(n / 2, x, c, s, j->direction, out);
    hy__strip_write(j->kernels, &j->out, i, out);
  }
}

static hy_status run(const hy__cpu_kernels* kernels, const hy_call* call) {
  const hy_tensor* x = &call->in[0];
  int last = x->ndim - 1;
  job j = {.kernels = kernels, .interleaved = call->attrs.rope.interleaved};
  j.direction = call->attrs.rope.inverse ? -1 : 1;
  int64_t shape[HY_MAX_DIMS];
  for (int d = 0; d < last; d++) shape[d] = x->shape[d];
  shape[last] = x->shape[last] / 2;
  for (int k = 0; k < 2; k++) HY_TRY(hy_expand(&j.angles[k], &call->in[1 + k], x->ndim, shape));
  hy__strips_init(&j.x, x, last, 1);
  hy__strips_init(&j.out, &call->out[0], last, 1);
  hy__strips_init(&j.cosine, &j.angles[0], last, 1);
  hy__strips_init(&j.sine, &j.angles[1], last, 1);
  hy__each_range(j.x.count, j.x.n, turn, &j);
  return atomic_load(&j.no_memory) ? hy__cpu_no_memory(call) : HY_OK;
}

// The angles have the type of x, or f32.
static hy_support supports(const hy_call* call) {
  return call->out[0].dtype == call->in[0].dtype ? HY_SUPPORT_YES : HY_SUPPORT_NO_DTYPE;
}

const hy__cpu_family hy__cpu_rope = {supports, run};
