// AdamW and SGD on a GPU.
#include <math.h>
#include <stdint.h>
#include <stdio.h>

#include "backends/gpu/gpu.h"

static const char* option(hy_dtype param) {
  return param == HY_F64 ? "-DT=f64" : "-DT=f32";
}

// Whether all seven are contiguous, in whole vectors of 16 bytes of the smallest type, and the
// states and what replaces each of one type.
static bool in_vectors(const hy_gpu_walk* w) {
  bool fits = w->ndim == 1 && w->dtype[0] == w->dtype[3];
  for (int k = 1; k < 6; k++) fits = fits && (k == 3 || w->dtype[k] == w->dtype[1]);
  size_t smallest = 8;
  for (int k = 0; k < 7; k++) {
    size_t size = hy_dtype_size((hy_dtype)w->dtype[k]);
    if (size < smallest) smallest = size;
    fits = fits && w->stride[k][0] == 1 && ((uintptr_t)w->data[k] & 15) == 0;
  }
  return fits && w->n % (long long)(16 / smallest) == 0;
}

hy_support hy__gpu_adamw(hy__gpu_task* task, const hy_call* call) {
  hy_attrs_adamw attrs = call->attrs.adamw;
  const hy_tensor *in = call->in, *out = call->out;
  hy_gpu_walk w = hy__gpu_walk(
      &out[0], 7, (const hy_tensor*[]){&out[0], &out[1], &out[2], &in[0], &in[1], &in[2], &in[3]});
  if (!task->stream || w.n == 0) return HY_SUPPORT_YES;
  hy_gpu_adamw a = {.lr = attrs.lr,
                    .beta1 = attrs.beta1,
                    .beta2 = attrs.beta2,
                    .eps = attrs.eps,
                    .weight_decay = attrs.weight_decay,
                    .step_size = attrs.lr / (1 - pow(attrs.beta1, (double)attrs.step)),
                    .root_correction = sqrt(1 - pow(attrs.beta2, (double)attrs.step)),
                    .maximize = attrs.maximize};
  enum { EACH = 4 };  // elements of a thread, or some more
  char options[96];
  bool vectors = in_vectors(&w), alike = in[0].dtype == in[1].dtype && in[0].dtype == in[3].dtype;
  snprintf(options, sizeof options, "%s", option(in[0].dtype));
  if (vectors && !(alike && hy_dtype_size(in[0].dtype) >= 4))
    snprintf(options, sizeof options, "%s -DPARAM=%s -DSTATE=%s -DGRAD=%s", option(in[0].dtype),
             hy__gpu_type_name(in[0].dtype), hy__gpu_type_name(in[1].dtype),
             hy__gpu_type_name(in[3].dtype));
  hy__gpu_launch(task,
                 hy__gpu_kernel(task, "optimizer", vectors ? "adamw_vectors" : "adamw", options),
                 hy__gpu_1d(hy__gpu_blocks(task, w.n, 256, vectors ? EACH : 1)), hy__gpu_1d(256), 0,
                 HY__GPU_ARGS(&w, &a));
  return HY_SUPPORT_YES;
}

hy_support hy__gpu_sgd(hy__gpu_task* task, const hy_call* call) {
  hy_attrs_sgd attrs = call->attrs.sgd;
  const hy_tensor *param = &call->in[0], *velocity = &call->in[1], *grad = &call->in[2];
  bool has = hy__gpu_present(velocity), keeps = hy__gpu_present(&call->out[1]);
  // An absent velocity is walked as a stand-in without data.
  hy_gpu_walk w = hy__gpu_walk(&call->out[0], 5,
                               (const hy_tensor*[]){&call->out[0], keeps ? &call->out[1] : param,
                                                    param, has ? velocity : param, grad});
  if (!keeps) w.data[1] = NULL;
  if (!has) w.data[3] = NULL;
  if (!task->stream || w.n == 0) return HY_SUPPORT_YES;
  hy_gpu_sgd a = {attrs.lr,       attrs.momentum, attrs.dampening, attrs.weight_decay,
                  attrs.nesterov, attrs.first,    attrs.maximize};
  hy__gpu_launch(task, hy__gpu_kernel(task, "optimizer", "sgd", option(param->dtype)),
                 hy__gpu_1d(hy__gpu_blocks(task, w.n, 256, 1)), hy__gpu_1d(256), 0,
                 HY__GPU_ARGS(&w, &a));
  return HY_SUPPORT_YES;
}
