// Chains of elementwise calls as one kernel: the gate of an MLP, silu(x) y, and its two gradients,
// silu'(x) (dy y) and dy silu(x). Only where tensors are so large that one kernel is worth
// compiling for a chain.
#include <stdio.h>

#include "backends/gpu/gpu.h"
#include "backends/gpu/kernels/params.h"

enum { LEAST_ELEMENTS = 1 << 16, MOST_STEPS = 4 };

// Whether a tensor has the chain's shape and is one row of vectors, or rows of them: *row is how
// many vectors apart these begin, 0 where the tensor is contiguous.
static bool is_plain(const hy_chain* chain, const hy_tensor* t, hy_dtype dtype, long long* row) {
  int64_t each = 16 / (int64_t)hy_dtype_size(dtype);
  if (t->dtype != dtype || t->ndim != chain->ndim || (uintptr_t)t->data % 16 != 0) return false;
  for (int d = 0; d < t->ndim; d++) {
    if (t->shape[d] != chain->shape[d]) return false;
  }
  *row = 0;
  if (hy_tensor_is_contiguous(t)) return true;
  if (t->ndim != 2 || t->stride[1] != 1 || t->shape[1] % each != 0 || t->stride[0] % each != 0)
    return false;
  *row = t->stride[0] / each;
  return *row > 0;
}

hy_support hy__gpu_supports_chain(void* device, const hy_chain* chain) {
  (void)device;
  HY__GPU_NEED(chain->n_steps <= MOST_STEPS && chain->n_in <= HY_CHAIN_INPUTS && chain->n_in > 0 &&
                   chain->n_out <= HY_CHAIN_OUTPUTS,
               NO_SHAPE);
  hy_dtype dtype = chain->in[0].dtype;
  int64_t n = hy_tensor_numel(&chain->in[0]);
  HY__GPU_NEED(dtype == HY_BF16 || dtype == HY_F16 || dtype == HY_F32, NO_DTYPE);
  HY__GPU_NEED(n >= LEAST_ELEMENTS && n % 8 == 0, NO_SHAPE);
  for (int i = 0; i < chain->n_steps; i++) {
    hy_op op = chain->steps[i].op;
    HY__GPU_NEED(op == HY_OP_mul || op == HY_OP_silu || op == HY_OP_silu_backward, NO_OP);
    HY__GPU_NEED(chain->steps[i].dtype == dtype, NO_DTYPE);
  }
  long long row;
  for (int i = 0; i < chain->n_in; i++)
    HY__GPU_NEED(is_plain(chain, &chain->in[i], dtype, &row), NO_LAYOUT);
  for (int i = 0; i < chain->n_out; i++)
    HY__GPU_NEED(is_plain(chain, &chain->out[i], dtype, &row), NO_LAYOUT);
  return HY_SUPPORT_YES;
}

static void describe(const hy_chain* chain, bool strided, char* text, int size) {
  int at = snprintf(text, (size_t)size, "-DT=%s -DSTRIDED=%d -DINPUTS=%d -DSTEPS=%d",
                    hy__gpu_type_name(chain->in[0].dtype), strided, chain->n_in, chain->n_steps);
  for (int i = 0; i < chain->n_steps; i++) {
    const hy_chain_step* s = &chain->steps[i];
    int x = s->in[0], y = s->n_in > 1 ? s->in[1] : x;
    at += snprintf(text + at, (size_t)(size - at), " -DSTEP%d=%d%d%d%d", i, (int)s->op, x + 4,
                   y + 4, s->out + 1);
  }
}

static hy_support launch(hy__gpu_task* task, const hy_chain* chain) {
  hy_chain_tensors c = {.n = hy_tensor_numel(&chain->in[0])};
  hy_dtype dtype = chain->in[0].dtype;
  int each = 16 / (int)hy_dtype_size(dtype);
  bool strided = false;
  for (int i = 0; i < chain->n_in; i++) {
    c.in[i] = chain->in[i].data;
    is_plain(chain, &chain->in[i], dtype, &c.in_row[i]);
    strided |= c.in_row[i] > 0;
  }
  for (int i = 0; i < chain->n_out; i++) {
    c.out[i] = chain->out[i].data;
    is_plain(chain, &chain->out[i], dtype, &c.out_row[i]);
    strided |= c.out_row[i] > 0;
  }
  if (strided) c.columns = chain->shape[1] / each;
  for (int i = 0; strided && i < chain->n_in; i++)
    if (c.in_row[i] == 0) c.in_row[i] = c.columns;
  for (int i = 0; strided && i < chain->n_out; i++)
    if (c.out_row[i] == 0) c.out_row[i] = c.columns;
  char options[128];
  describe(chain, strided, options, sizeof options);
  hy__gpu_launch(task, hy__gpu_kernel(task, "chain", "chain", options),
                 hy__gpu_1d(hy__gpu_blocks(task, c.n, 256, each)), hy__gpu_1d(256), 0,
                 HY__GPU_ARGS(&c));
  return HY_SUPPORT_YES;
}

hy_status hy__gpu_run_chain(void* device, void* stream, const hy_chain* chain) {
  hy_op op = chain->steps[chain->n_steps - 1].op;
  hy__gpu_task task = {.device = device, .stream = stream, .op = op};
  if (task.device->lost) return hy__gpu_fail(task.device, -1, hy__backend_host->op_name(op));
  bool entered = hy__gpu_enter(task.device);
  task.stream->last_op = op;
  task.status = hy__gpu_workspace_begin(stream);
  if (task.status == HY_OK) launch(&task, chain);
  hy_call written = {.op = op, .n_out = chain->n_out, .out = chain->out};
  hy__gpu_note_written(&task, &written);
  hy__gpu_leave(task.device, entered);
  return task.status;
}
