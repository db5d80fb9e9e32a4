// Softmax and cross entropy on a GPU.
#include "backends/gpu/gpu.h"
#include "backends/gpu/ops/rows.h"
#include "backends/gpu/rules.h"

// As in softmax.cu.
enum { WARP_LANE = 1024, HELD = 4, HELD_BACKWARD = 2, LOSS_THREADS = 512 };

static bool strided(const hy_tensor* t) {
  return t->layout == HY_LAYOUT_STRIDED && hy_dtype_size(t->dtype) > 0;
}

// Lanes of a contiguous tensor along `dim`.
typedef struct lanes {
  long long count, length, inner;
} lanes;

static lanes lanes_along(const hy_tensor* t, int dim) {
  lanes l = {hy_tensor_numel(t), t->ndim > 0 ? t->shape[dim] : 1, 1};
  for (int d = dim + 1; d < t->ndim; d++) l.inner *= t->shape[d];
  if (l.length > 0) l.count /= l.length;
  return l;
}

static unsigned threads_for(const hy__gpu_task* task, long long length) {
  unsigned threads = (unsigned)task->device->warp_size;
  while (threads < 1024 && (long long)threads * 16 < length) threads *= 2;
  return threads;
}

static long long vectors_of(hy_dtype dtype, const lanes* l) {
  return l->length / (16 / (long long)hy_dtype_size(dtype));
}

static bool takes_vectors(hy_dtype dtype, const lanes* l, const void* a, const void* b) {
  return l->inner == 1 && l->length % (16 / (long long)hy_dtype_size(dtype)) == 0 &&
         vectors_of(dtype, l) < INT32_MAX / 2 && (((uintptr_t)a | (uintptr_t)b) & 15) == 0;
}

// A block for each lane.
static hy__gpu_dim3 lane_blocks(const hy__gpu_task* task, const lanes* l, unsigned threads) {
  return hy__gpu_1d(hy__gpu_blocks(task, l->count * threads, (int)threads, 1));
}

hy_support hy__gpu_softmax(hy__gpu_task* task, const hy_call* call) {
  HY__GPU_NEED(strided(&call->in[0]), NO_LAYOUT);
  if (!task->stream || hy_tensor_numel(&call->in[0]) == 0) return HY_SUPPORT_YES;
  hy_tensor x = hy__gpu_contiguous(task, &call->in[0]);
  hy_tensor out = hy__gpu_out_begin(task, &call->out[0]);
  lanes l = lanes_along(&x, hy__gpu_wrap_dim(call->attrs.dim.dim, x.ndim));
  int log_form = call->op == HY_OP_log_softmax;
  const char* option = hy__gpu_option(x.dtype);
  int vectors = takes_vectors(x.dtype, &l, x.data, out.data);
  hy__gpu_lines lines;
  if (vectors && hy__gpu_hold_rows(task, l.count, vectors_of(x.dtype, &l), HELD, &lines)) {
    hy__gpu_launch(task, hy__gpu_kernel(task, "softmax", "softmax_held", option), lines.grid,
                   lines.block, 0,
                   HY__GPU_ARGS(&out.data, &x.data, &l.count, &l.length, &log_form));
  } else if (l.inner == 1 && l.length <= WARP_LANE) {
    hy__gpu_launch(task, hy__gpu_kernel(task, "softmax", "softmax_warp", option),
                   hy__gpu_1d(hy__gpu_blocks(task, l.count * 32, 128, 1)), hy__gpu_1d(128), 0,
                   HY__GPU_ARGS(&out.data, &x.data, &l.count, &l.length, &log_form));
  } else if (l.inner > 1 && l.count >= 4096) {
    hy__gpu_launch(task, hy__gpu_kernel(task, "softmax", "softmax_thread", option),
                   hy__gpu_1d(hy__gpu_blocks(task, l.count, 128, 1)), hy__gpu_1d(128), 0,
                   HY__GPU_ARGS(&out.data, &x.data, &l.count, &l.length, &l.inner, &log_form));
  } else {
    unsigned threads = threads_for(task, l.length);
    hy__gpu_launch(
        task, hy__gpu_kernel(task, "softmax", "softmax_block", option),
        lane_blocks(task, &l, threads), hy__gpu_1d(threads), 0,
        HY__GPU_ARGS(&out.data, &x.data, &l.count, &l.length, &l.inner, &log_form, &vectors));
  }
  hy__gpu_out_end(task, &call->out[0], &out);
  return HY_SUPPORT_YES;
}

hy_support hy__gpu_softmax_backward(hy__gpu_task* task, const hy_call* call) {
  HY__GPU_NEED(strided(&call->in[0]) && strided(&call->in[1]), NO_LAYOUT);
  if (!task->stream || hy_tensor_numel(&call->in[0]) == 0) return HY_SUPPORT_YES;
  hy_tensor dy = hy__gpu_contiguous(task, &call->in[0]), y = hy__gpu_contiguous(task, &call->in[1]);
  hy_tensor dx = hy__gpu_out_begin(task, &call->out[0]);
  lanes l = lanes_along(&y, hy__gpu_wrap_dim(call->attrs.dim.dim, y.ndim));
  int log_form = call->op == HY_OP_log_softmax_backward;
  const char* option = hy__gpu_option(y.dtype);
  hy__gpu_lines lines;
  if (takes_vectors(y.dtype, &l, y.data, dy.data) && ((uintptr_t)dx.data & 15) == 0 &&
      hy__gpu_hold_rows(task, l.count, vectors_of(y.dtype, &l), HELD_BACKWARD, &lines)) {
    hy__gpu_launch(task, hy__gpu_kernel(task, "softmax", "softmax_backward_held", option),
                   lines.grid, lines.block, 0,
                   HY__GPU_ARGS(&dx.data, &dy.data, &y.data, &l.count, &l.length, &log_form));
  } else {
    unsigned threads = threads_for(task, l.length);
    hy__gpu_launch(
        task, hy__gpu_kernel(task, "softmax", "softmax_backward", option),
        lane_blocks(task, &l, threads), hy__gpu_1d(threads), 0,
        HY__GPU_ARGS(&dx.data, &dy.data, &y.data, &l.count, &l.length, &l.inner, &log_form));
  }
  hy__gpu_out_end(task, &call->out[0], &dx);
  return HY_SUPPORT_YES;
}

// ---- Cross entropy ----

typedef struct loss {
  hy_gpu_cross_entropy e;
  lanes l;
  unsigned threads;
  hy__gpu_dim3 grid;
  const char* option;
  hy_dtype math;
} loss;

static loss loss_begin(hy__gpu_task* task, const hy_call* call) {
  const hy_tensor *target = &call->in[1], *weight = &call->in[2];
  hy_tensor logits = hy__gpu_contiguous(task, &call->in[0]);
  hy_tensor targets = hy__gpu_contiguous(task, target);
  loss s = {.l = lanes_along(&logits, logits.ndim > 1),
            .option = hy__gpu_option(logits.dtype),
            .math = logits.dtype == HY_F64 ? HY_F64 : HY_F32};
  s.threads = threads_for(task, s.l.length);
  if (s.threads > LOSS_THREADS) s.threads = LOSS_THREADS;
  s.grid = lane_blocks(task, &s.l, s.threads);
  s.e = (hy_gpu_cross_entropy){
      .logits = logits.data,
      .target = targets.data,
      .target_dtype = (int)targets.dtype,
      .op = (int)call->op,
      .lanes = s.l.count,
      .classes = s.l.length,
      .inner = s.l.inner,
      .ignore_index = call->attrs.cross_entropy.ignore_index,
      .smoothing = call->attrs.cross_entropy.label_smoothing,
      .vectors = takes_vectors(logits.dtype, &s.l, logits.data, logits.data),
      .fault = (hy_gpu_fault*)(uintptr_t)task->stream->use.faults->address,
  };
  if (hy__gpu_present(weight)) s.e.weight = hy__gpu_contiguous(task, weight).data;
  size_t bytes = (size_t)s.l.count * hy_dtype_size(s.math);
  s.e.lane_weight = (char*)(uintptr_t)hy__gpu_workspace(task, bytes);
  return s;
}

// The sum of a contiguous vector of the type of computation (or of another), in the workspace.
static char* sum(hy__gpu_task* task, const void* data, hy_dtype dtype, int64_t n, hy_dtype math) {
  hy_tensor vector, total = hy__gpu_temporary(task, math, 0, NULL);
  hy_tensor_init(&vector, (void*)data, dtype, 1, &n);
  hy__gpu_reduce(task, "sum", &vector, 1, &total, NULL, NULL);
  return total.data;
}

// The sum or the mean of the lanes' losses.
static void total_loss(hy__gpu_task* task, const loss* s, const hy_tensor* out, bool is_mean) {
  int dtype = (int)out->dtype, mean = is_mean;
  void *to = out->data, *losses = s->e.lane_loss, *weights = s->e.lane_weight;
  long long lanes = s->l.count, blocks = (lanes + HY_GPU_TOTAL_LANES - 1) / HY_GPU_TOTAL_LANES;
  if (blocks < 1) blocks = 1;
  uint64_t parts = hy__gpu_workspace(task, (size_t)blocks * 2 * hy_dtype_size(s->math));
  uint64_t counter = hy__gpu_counters(task);
  hy__gpu_launch_dependent(
      task, hy__gpu_kernel(task, "softmax", "cross_entropy_total", s->option),
      hy__gpu_1d((unsigned)blocks), hy__gpu_1d(HY_GPU_TOTAL_THREADS), 0,
      HY__GPU_ARGS(&to, &dtype, &losses, &weights, &lanes, &mean, &parts, &counter));
}

hy_support hy__gpu_cross_entropy(hy__gpu_task* task, const hy_call* call) {
  hy_reduction reduction = call->attrs.cross_entropy.reduction;
  HY__GPU_NEED(strided(&call->in[0]), NO_LAYOUT);
  HY__GPU_NEED(call->in[0].shape[call->in[0].ndim > 1] > 0, NO_SHAPE);
  if (!task->stream) return HY_SUPPORT_YES;
  const hy_tensor* out = &call->out[0];
  loss s = loss_begin(task, call);
  hy_tensor each = hy__gpu_temporary(task, s.math, 1, (int64_t[]){s.l.count});
  s.e.lane_loss = each.data;
  hy__gpu_lines lines = {s.grid, hy__gpu_1d(s.threads)};
  bool held = s.e.vectors && !(s.e.smoothing > 0) && s.l.count > 0 &&
              hy__gpu_hold_rows(task, s.l.count, vectors_of(call->in[0].dtype, &s.l), HELD, &lines);
  const char* entry = held ? "cross_entropy_held" : "cross_entropy_lanes";
  hy__gpu_launch(task, hy__gpu_kernel(task, "softmax", entry, s.option), lines.grid, lines.block, 0,
                 HY__GPU_ARGS(&s.e));
  if (reduction == HY_REDUCTION_NONE) {
    hy_tensor shaped;  // with the dimensions of the output
    hy_tensor_init(&shaped, each.data, s.math, out->ndim, out->shape);
    hy__gpu_copy(task, out, &shaped);
    return HY_SUPPORT_YES;
  }
  total_loss(task, &s, out, reduction == HY_REDUCTION_MEAN);
  return HY_SUPPORT_YES;
}

hy_support hy__gpu_cross_entropy_backward(hy__gpu_task* task, const hy_call* call) {
  hy_attrs_cross_entropy attrs = call->attrs.cross_entropy;
  HY__GPU_NEED(strided(&call->in[0]), NO_LAYOUT);
  if (!task->stream || hy_tensor_numel(&call->in[0]) == 0) return HY_SUPPORT_YES;
  loss s = loss_begin(task, call);
  hy_tensor dlogits = hy__gpu_out_begin(task, &call->out[0]);
  hy_tensor dloss = hy__gpu_contiguous(task, &call->in[3]);
  s.e.dlogits = dlogits.data;
  s.e.dloss = dloss.data;
  s.e.dloss_dtype = (int)dloss.dtype;
  s.e.dloss_step = attrs.reduction == HY_REDUCTION_NONE;
  if (attrs.reduction == HY_REDUCTION_MEAN) {
    hy__gpu_launch(task, hy__gpu_kernel(task, "softmax", "cross_entropy_weights", s.option),
                   hy__gpu_1d(hy__gpu_blocks(task, s.l.count, 128, 1)), hy__gpu_1d(128), 0,
                   HY__GPU_ARGS(&s.e));
    s.e.total_weight = sum(task, s.e.lane_weight, s.math, s.l.count, s.math);
  }
  bool by_class = s.e.weight && attrs.label_smoothing > 0;  // one class at a time
  if (by_class) s.e.weight_sum = sum(task, s.e.weight, call->in[2].dtype, s.l.length, s.math);
  s.e.vectors = s.e.vectors && !by_class && ((uintptr_t)dlogits.data & 15) == 0;
  if (s.e.vectors) {
    enum { STATIC_SHARED = 1024 };  // at most what the kernel has besides
    int threads = (int)s.threads, room = (task->device->max_shared - STATIC_SHARED) / 16;
    s.e.kept = (int)vectors_of(dlogits.dtype, &s.l);
    if (s.e.kept > room) s.e.kept = room / threads * threads;
    // Blocks that run at once: each goes on to its next lane.
    int blocks = task->device->max_shared / (s.e.kept * 16 + STATIC_SHARED);
    if (blocks > 2048 / threads) blocks = 2048 / threads;
    long long at_once = (long long)(blocks > 0 ? blocks : 1) * task->device->multiprocessors;
    if (at_once < s.grid.x) s.grid.x = (unsigned)at_once;
  }
  hy__gpu_launch(task, hy__gpu_kernel(task, "softmax", "cross_entropy_backward", s.option), s.grid,
                 hy__gpu_1d(s.threads), (size_t)s.e.kept * 16, HY__GPU_ARGS(&s.e));
  hy__gpu_out_end(task, &call->out[0], &dlogits);
  return HY_SUPPORT_YES;
}
