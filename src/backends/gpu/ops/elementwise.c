// Elementwise arithmetic on a GPU: contiguous tensors of one type through a kernel of the op's own,
// all else through one that reads types and strides.
#include <stdio.h>
#include <string.h>

#include "backends/gpu/gpu.h"
#include "backends/gpu/rules.h"

enum { THREADS = 256 };

static bool strided(const hy_call* call) {
  for (int i = 0; i < call->n_in; i++)
    if (call->in[i].layout != HY_LAYOUT_STRIDED || hy_dtype_size(call->in[i].dtype) == 0)
      return false;
  return call->out[0].layout == HY_LAYOUT_STRIDED && hy_dtype_size(call->out[0].dtype) > 0;
}

// The call's tensors, the output first. `type` is what the op computes in.
static hy_gpu_elementwise begin(hy__gpu_task* task, const hy_call* call) {
  const hy_tensor* tensors[4] = {&call->out[0]};
  for (int i = 0; i < call->n_in; i++) tensors[1 + i] = &call->in[i];
  hy_gpu_elementwise e = {
      .walk = hy__gpu_walk(&call->out[0], 1 + call->n_in, tensors),
      .op = (int)call->op,
      .which = (int)call->op,
      .fault = task->stream ? (hy_gpu_fault*)(uintptr_t)task->stream->use.faults->address : NULL,
  };
  return e;
}

// Whether every tensor is contiguous, aligned, and of that type, the output of `out_type`.
static bool is_plain(const hy_gpu_elementwise* e, hy_dtype type, hy_dtype out_type) {
  if (!hy__gpu_walk_is_linear(&e->walk) || e->walk.dtype[0] != (int)out_type) return false;
  for (int k = 0; k < e->walk.count; k++) {
    if (k > 0 && e->walk.dtype[k] != (int)type) return false;
    if ((uintptr_t)e->walk.data[k] & 15) return false;
  }
  return true;
}

// An f64 enters as it is where the op's type is narrower, so that f32 will not do to compute in.
static const char* any_option(const hy_gpu_elementwise* e, hy_dtype type, char* text, size_t size) {
  bool wide = false;
  for (int k = 1; k < e->walk.count; k++) wide = wide || e->walk.dtype[k] == (int)HY_F64;
  wide = wide && hy_dtype_is_float(type) && type != HY_F64;
  snprintf(text, size, "%s%s", hy__gpu_option(type), wide ? " -DWIDE" : "");
  return text;
}

static void launch_any(hy__gpu_task* task, const char* file, hy_gpu_elementwise* e, hy_dtype type) {
  char option[48];
  hy__gpu_launch(task,
                 hy__gpu_kernel(task, file, "any", any_option(e, type, option, sizeof option)),
                 hy__gpu_1d(hy__gpu_blocks(task, e->walk.n, THREADS, 1)), hy__gpu_1d(THREADS), 0,
                 HY__GPU_ARGS(e));
}

static unsigned vector_blocks(hy__gpu_task* task, int64_t n, hy_dtype type) {
  int size = (int)hy_dtype_size(type);
  return hy__gpu_blocks(task, n, THREADS, size > 0 ? 16 / size : 1);
}

// Whether all tensors are of that type and their innermost dimension falls into vectors of 16
// bytes, in which an input may stand still.
static bool has_rows(const hy_gpu_elementwise* e, hy_dtype type) {
  const hy_gpu_walk* w = &e->walk;
  int last = w->ndim - 1;
  long long n = 16 / (long long)hy_dtype_size(type);
  if (w->shape[last] % n != 0 || w->stride[0][last] != 1) return false;
  for (int k = 0; k < w->count; k++) {
    bool still = k > 0 && w->stride[k][last] == 0;
    if (w->dtype[k] != (int)type || (!still && w->stride[k][last] != 1)) return false;
    if (!still && ((uintptr_t)w->data[k] & 15)) return false;
    for (int d = 0; d < last && !still; d++)
      if (w->stride[k][d] % n != 0) return false;
  }
  return true;
}

static void launch_rows(hy__gpu_task* task, const char* file, hy_gpu_elementwise* e,
                        hy_dtype type) {
  hy__gpu_launch(task, hy__gpu_kernel(task, file, "rows", hy__gpu_option(type)),
                 hy__gpu_1d(vector_blocks(task, e->walk.n, type)), hy__gpu_1d(THREADS), 0,
                 HY__GPU_ARGS(e));
}

// ---- One input, and gradients ----

// A float type that holds what either of two does.
static hy_dtype wider(hy_dtype a, hy_dtype b) {
  if (a == b) return a;
  return a == HY_F64 || b == HY_F64 ? HY_F64 : HY_F32;
}

hy_support hy__gpu_unary(hy__gpu_task* task, const hy_call* call) {
  hy_op op = call->op;
  bool makes_float = op >= HY_OP_sqrt && op <= HY_OP_erf;
  hy_dtype type = makes_float ? hy__gpu_to_float(call->in[0].dtype) : call->in[0].dtype;
  if (op >= HY_OP_sigmoid_backward && op <= HY_OP_gelu_backward)
    type = wider(call->out[0].dtype, wider(call->in[0].dtype, call->in[1].dtype));
  HY__GPU_NEED(strided(call), NO_LAYOUT);
  hy_gpu_elementwise e = begin(task, call);
  if (!task->stream || e.walk.n == 0) return HY_SUPPORT_YES;
  bool gelu = op == HY_OP_gelu || op == HY_OP_gelu_backward;
  e.attribute = gelu && call->attrs.gelu.approximate;
  if (!is_plain(&e, type, type)) {
    bool still = e.walk.count == 2 && e.walk.stride[1][e.walk.ndim - 1] == 0;
    bool activation =
        hy_dtype_is_float(type) && (op == HY_OP_silu || op == HY_OP_gelu || op == HY_OP_relu);
    if (activation && !still && has_rows(&e, type))
      launch_rows(task, "unary", &e, type);
    else
      launch_any(task, "unary", &e, type);
    return HY_SUPPORT_YES;
  }
  char entry[48];
  snprintf(entry, sizeof entry, "linear_%s", hy__backend_host->op_name(op));
  hy__gpu_function* kernel = hy__gpu_kernel(task, "unary", entry, hy__gpu_option(type));
  hy__gpu_dim3 grid = hy__gpu_1d(vector_blocks(task, e.walk.n, type)), block = hy__gpu_1d(THREADS);
  if (e.walk.count == 2)
    hy__gpu_launch(task, kernel, grid, block, 0,
                   HY__GPU_ARGS(&e.walk.data[0], &e.walk.data[1], &e.walk.n, &e.attribute));
  else
    hy__gpu_launch(
        task, kernel, grid, block, 0,
        HY__GPU_ARGS(&e.walk.data[0], &e.walk.data[1], &e.walk.data[2], &e.walk.n, &e.attribute));
  return HY_SUPPORT_YES;
}

// ---- Two inputs, or one and a number ----

static void launch_binary(hy__gpu_task* task, hy_gpu_elementwise* e, hy_dtype type,
                          hy_dtype out_type, const char* name) {
  bool arithmetic = e->walk.count == 3 &&
                    (e->which == HY_OP_add || e->which == HY_OP_sub || e->which == HY_OP_mul ||
                     e->which == HY_OP_maximum || e->which == HY_OP_minimum);
  if (!is_plain(e, type, out_type)) {
    if (arithmetic && has_rows(e, type))
      launch_rows(task, "binary", e, type);
    else
      launch_any(task, "binary", e, type);
    return;
  }
  char entry[48];
  snprintf(entry, sizeof entry, "linear_%s", name);
  hy__gpu_launch_dependent(task, hy__gpu_kernel(task, "binary", entry, hy__gpu_option(type)),
                           hy__gpu_1d(vector_blocks(task, e->walk.n, type)), hy__gpu_1d(THREADS), 0,
                           HY__GPU_ARGS(e));
}

hy_support hy__gpu_binary(hy__gpu_task* task, const hy_call* call) {
  hy_op op = call->op;
  bool compares = op >= HY_OP_eq, has_alpha = op == HY_OP_add || op == HY_OP_sub;
  hy_dtype type = hy__gpu_compute_dtype(call);
  hy_scalar alpha = has_alpha ? call->attrs.alpha.alpha : hy_int(1);
  HY__GPU_NEED(strided(call), NO_LAYOUT);
  HY__GPU_NEED(hy_dtype_is_float(type) || alpha.kind != HY_F64, NO_ATTRIBUTE);
  hy_gpu_elementwise e = begin(task, call);
  if (!task->stream || e.walk.n == 0) return HY_SUPPORT_YES;
  e.attribute = op == HY_OP_div ? (int)call->attrs.rounding.rounding : 0;
  e.f[1] = hy__gpu_number_f(alpha, type);
  e.i[1] = hy_dtype_is_float(type) ? 0 : hy__gpu_number_i(alpha, type);
  launch_binary(task, &e, type, compares ? HY_BOOL : type, hy__backend_host->op_name(op));
  return HY_SUPPORT_YES;
}

// The op between two tensors that one with a number stands for; rsub and rpow have none.
static hy_op between_tensors(hy_op op) {
  switch (op) {
    case HY_OP_add_scalar: return HY_OP_add;
    case HY_OP_sub_scalar: return HY_OP_sub;
    case HY_OP_mul_scalar: return HY_OP_mul;
    case HY_OP_div_scalar: return HY_OP_div;
    case HY_OP_pow_scalar: return HY_OP_pow;
    case HY_OP_eq_scalar: return HY_OP_eq;
    case HY_OP_ne_scalar: return HY_OP_ne;
    case HY_OP_lt_scalar: return HY_OP_lt;
    case HY_OP_le_scalar: return HY_OP_le;
    case HY_OP_gt_scalar: return HY_OP_gt;
    case HY_OP_ge_scalar: return HY_OP_ge;
    default: return op;
  }
}

hy_support hy__gpu_scalar(hy__gpu_task* task, const hy_call* call) {
  hy_op op = call->op;
  bool compares = op >= HY_OP_eq_scalar;
  bool has_alpha = op >= HY_OP_add_scalar && op <= HY_OP_rsub_scalar;
  hy_dtype type = hy__gpu_compute_dtype(call);
  hy_scalar value = call->attrs.value.value;  // the first field of each of these kinds
  hy_scalar alpha = has_alpha ? call->attrs.value_alpha.alpha : hy_int(1);
  HY__GPU_NEED(strided(call), NO_LAYOUT);
  if (!hy_dtype_is_float(type)) {  // what the reference refuses is left to it
    HY__GPU_NEED(alpha.kind != HY_F64, NO_ATTRIBUTE);
    HY__GPU_NEED(op != HY_OP_div_scalar || hy__gpu_number_i(value, type) != 0, NO_ATTRIBUTE);
    HY__GPU_NEED(op != HY_OP_pow_scalar || hy_scalar_i(value) >= 0, NO_ATTRIBUTE);
  }
  hy_gpu_elementwise e = begin(task, call);
  if (!task->stream || e.walk.n == 0) return HY_SUPPORT_YES;
  e.which = (int)between_tensors(op);
  e.attribute = op == HY_OP_div_scalar ? (int)call->attrs.value_rounding.rounding : 0;
  bool in_float = hy_dtype_is_float(type);
  e.f[0] = compares ? hy_scalar_f(value) : hy__gpu_number_f(value, type);
  e.rounds = compares;
  e.i[0] = in_float ? 0 : hy__gpu_number_i(value, type);
  e.f[1] = hy__gpu_number_f(alpha, type);
  e.i[1] = in_float ? 0 : hy__gpu_number_i(alpha, type);
  launch_binary(task, &e, type, compares ? HY_BOOL : type, hy__backend_host->op_name(op));
  return HY_SUPPORT_YES;
}

// ---- Choices by mask, bounds, products added ----

hy_support hy__gpu_choose(hy__gpu_task* task, const hy_call* call) {
  hy_op op = call->op;
  hy_dtype type;
  switch (op) {
    case HY_OP_where: type = hy__gpu_promote_tensors(call->in + 1, 2); break;
    case HY_OP_addcmul:
    case HY_OP_addcdiv:
    case HY_OP_clamp: type = hy__gpu_compute_dtype(call); break;
    default: type = call->in[0].dtype;  // masked_fill, tril, triu and the predicates
  }
  HY__GPU_NEED(strided(call), NO_LAYOUT);
  bool in_float = hy_dtype_is_float(type), adds = op == HY_OP_addcmul || op == HY_OP_addcdiv;
  HY__GPU_NEED(!adds || in_float || call->attrs.value.value.kind != HY_F64, NO_ATTRIBUTE);
  hy_gpu_elementwise e = begin(task, call);
  if (!task->stream || e.walk.n == 0) return HY_SUPPORT_YES;
  long long rows = 0, columns = 0;
  switch (op) {
    case HY_OP_clamp: {
      hy_scalar low = call->attrs.clamp.low, high = call->attrs.clamp.high;
      e.attribute = (low.kind != HY_NONE) | (high.kind != HY_NONE) << 1;
      e.f[0] = hy__gpu_number_f(low, type);
      e.f[1] = hy__gpu_number_f(high, type);
      e.i[0] = in_float ? 0 : hy__gpu_number_i(low, type);
      e.i[1] = in_float ? 0 : hy__gpu_number_i(high, type);
      break;
    }
    case HY_OP_masked_fill:
      e.f[0] = hy_scalar_f(call->attrs.value.value);
      e.i[0] = in_float ? 0 : hy__gpu_number_i(call->attrs.value.value, type);
      break;
    case HY_OP_addcmul:
    case HY_OP_addcdiv:
      e.f[0] = hy__gpu_number_f(call->attrs.value.value, type);
      e.i[0] = hy_scalar_i(call->attrs.value.value);
      break;
    case HY_OP_tril:
    case HY_OP_triu:
      rows = call->in[0].shape[call->in[0].ndim - 2];
      columns = call->in[0].shape[call->in[0].ndim - 1];
      e.i[0] = call->attrs.tri.diagonal;
      break;
    default: break;
  }
  char option[48];
  hy__gpu_launch(
      task, hy__gpu_kernel(task, "choose", "choose", any_option(&e, type, option, sizeof option)),
      hy__gpu_1d(hy__gpu_blocks(task, e.walk.n, THREADS, 1)), hy__gpu_1d(THREADS), 0,
      HY__GPU_ARGS(&e, &rows, &columns));
  return HY_SUPPORT_YES;
}
