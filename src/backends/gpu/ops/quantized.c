// Quantisation by groups, and layers whose weights are quantised: linear_quantized and linear_int8.
#include <stdio.h>

#include "backends/gpu/gpu.h"
#include "backends/gpu/kernels/params.h"
#include "backends/gpu/ops/gemm_skinny.h"
#include "backends/gpu/ops/held.h"

static const char* options_of(hy_dtype x, hy_dtype q, char* text, size_t size) {
  snprintf(text, size, "-DT=%s -DQ=%s", hy__gpu_type_name(x), hy__gpu_type_name(q));
  return text;
}
#define OPTIONS(x, q) options_of(x, q, (char[64]){0}, 64)

static void launch(hy__gpu_task* task, const char* entry, const char* options, int64_t n, int each,
                   hy_quantize* p) {
  hy__gpu_function* kernel = hy__gpu_kernel(task, "quantized", entry, options);
  hy__gpu_launch(task, kernel, (hy__gpu_dim3){hy__gpu_blocks(task, n, 256, each), 1, 1},
                 (hy__gpu_dim3){256, 1, 1}, 0, HY__GPU_ARGS(p));
}

hy_support hy__gpu_quantize(hy__gpu_task* task, const hy_call* call) {
  const hy_tensor *q = &call->out[0], *scale = &call->out[1];
  int64_t numbers = hy_tensor_numel(&call->in[0]), groups = hy_tensor_numel(scale);
  HY__GPU_NEED(groups == 0 || numbers / groups <= INT32_MAX, NO_SHAPE);
  if (!task->stream || groups == 0) return HY_SUPPORT_YES;
  hy_tensor x = hy__gpu_contiguous(task, &call->in[0]);
  hy_tensor held_q = hy__gpu_held(task, q), held_scale = hy__gpu_held(task, scale);
  hy_quantize p = {.x = x.data, .q = held_q.data, .scale = held_scale.data, .groups = groups};
  p.group = (int)(numbers / groups);
  const char* options = OPTIONS(x.dtype, q->dtype);
  launch(task, "quantize_scales", options, groups * 32, 1, &p);
  launch(task, "quantize_values", options, numbers, 1, &p);
  hy__gpu_finish(task, q, &held_q);
  hy__gpu_finish(task, scale, &held_scale);
  return HY_SUPPORT_YES;
}

// By eight numbers at a time, which takes groups of whole eights and memory that begins at one.
static bool run_eights(hy__gpu_task* task, hy_quantize* p, hy_dtype to, hy_dtype q) {
  enum { THREADS = 256, EACH = 4 };  // as in quantized.cu
  int64_t eights = p->groups * (p->group / 8);
  if (p->group % 8 != 0 || eights > INT32_MAX || (uintptr_t)p->q % 8 != 0 ||
      (uintptr_t)p->out % (8 * hy_dtype_size(to)) != 0)
    return false;
  hy__gpu_function* kernel = hy__gpu_kernel(task, "quantized", "dequantize_eights", OPTIONS(to, q));
  hy__gpu_launch_dependent(task, kernel, hy__gpu_1d(hy__gpu_blocks(task, eights, THREADS, EACH)),
                           hy__gpu_1d(THREADS), 0, HY__GPU_ARGS(p));
  return true;
}

hy_support hy__gpu_dequantize(hy__gpu_task* task, const hy_call* call) {
  const hy_tensor* out = &call->out[0];
  int64_t numbers = hy_tensor_numel(out), groups = hy_tensor_numel(&call->in[1]);
  HY__GPU_NEED(groups == 0 || numbers / groups <= INT32_MAX, NO_SHAPE);
  if (!task->stream || numbers == 0) return HY_SUPPORT_YES;
  hy_tensor q = hy__gpu_contiguous(task, &call->in[0]);
  hy_tensor scale = hy__gpu_contiguous(task, &call->in[1]), held = hy__gpu_held(task, out);
  hy_quantize p = {.q = q.data, .scale = scale.data, .out = held.data, .groups = groups};
  p.group = (int)(numbers / groups);
  p.early = hy__gpu_readable_early(task, (const hy_tensor*[]){&q, &scale}, 2);
  if (!run_eights(task, &p, out->dtype, q.dtype))
    launch(task, "dequantize", OPTIONS(out->dtype, q.dtype), numbers, 1, &p);
  hy__gpu_finish(task, out, &held);
  return HY_SUPPORT_YES;
}

// ---- layers ----

static int64_t row_count(const hy_tensor* t) {
  int64_t rows = 1;
  for (int d = 0; d < t->ndim - 1; d++) rows *= t->shape[d];
  return rows;
}

static int group_size(const hy_tensor* q, const hy_tensor* scale) {
  int64_t groups = scale->shape[scale->ndim - 1];
  return groups > 0 ? (int)(q->shape[q->ndim - 1] / groups) : 1;
}

typedef struct layer {
  const hy_tensor *x, *x_scale, *weight, *scale, *bias, *out;  // x_scale NULL: x is of floats
} layer;

static hy_support run_layer(hy__gpu_task* task, const layer* l) {
  int64_t m = row_count(l->x), n = l->weight->shape[0], k = l->weight->shape[1];
  HY__GPU_NEED(m <= 65535 * 64 && n < INT32_MAX && k < INT32_MAX, NO_SHAPE);
  if (!task->stream || m == 0 || n == 0) return HY_SUPPORT_YES;
  hy_tensor x = hy__gpu_contiguous(task, l->x), weight = hy__gpu_contiguous(task, l->weight);
  hy_tensor scale = hy__gpu_contiguous(task, l->scale), held = hy__gpu_held(task, l->out), x_scale;
  hy_quantized_linear p = {.m = (int)m, .n = (int)n, .k = (int)k};
  p.x = x.data;
  p.q = weight.data;
  p.scale = scale.data;
  p.out = held.data;
  p.x_row = p.q_row = k;
  p.out_row = n;
  p.out_column = 1;
  p.group = group_size(&weight, &scale);
  p.scale_row = scale.shape[1];
  if (l->x_scale) {
    x_scale = hy__gpu_contiguous(task, l->x_scale);
    p.x_scale = x_scale.data;
    p.x_group = group_size(&x, &x_scale);
    p.x_scale_row = x_scale.shape[x_scale.ndim - 1];
  }
  if (hy__gpu_present(l->bias)) {
    p.bias = l->bias->data;
    p.bias_step = l->bias->stride[0];
  }
  if (hy__gpu_mma_sync(task) && hy__gpu_skinny_takes(&p, x.dtype, weight.dtype)) {
    hy__gpu_skinny(task, &p, x.dtype, weight.dtype, l->out->dtype);
    hy__gpu_finish(task, l->out, &held);
    return HY_SUPPORT_YES;
  }
  char options[64];
  snprintf(options, sizeof options, "-DT=%s -DX=%s -DQ=%s", hy__gpu_type_name(l->out->dtype),
           hy__gpu_type_name(x.dtype), hy__gpu_type_name(weight.dtype));
  hy__gpu_function* kernel = hy__gpu_kernel(task, "quantized_linear", "quantized_linear", options);
  hy__gpu_launch(task, kernel,
                 (hy__gpu_dim3){(unsigned)((n + 63) / 64), (unsigned)((m + 63) / 64), 1},
                 (hy__gpu_dim3){256, 1, 1}, 0, HY__GPU_ARGS(&p));
  hy__gpu_finish(task, l->out, &held);
  return HY_SUPPORT_YES;
}

hy_support hy__gpu_linear_quantized(hy__gpu_task* task, const hy_call* call) {
  const hy_tensor* in = call->in;
  return run_layer(task, &(layer){&in[0], NULL, &in[1], &in[2], &in[3], &call->out[0]});
}

hy_support hy__gpu_linear_int8(hy__gpu_task* task, const hy_call* call) {
  const hy_tensor* in = call->in;
  return run_layer(task, &(layer){&in[0], &in[1], &in[2], &in[3], &in[4], &call->out[0]});
}
