// Optimizer steps, AdamW and SGD, fused: one pass over parameter, state and gradient.
#include <math.h>
#include <string.h>

#include "backends/cpu/family.h"
#include "backends/cpu/rows/nditer.h"

enum { ROW = 512 };

// ---- AdamW ----

typedef struct job {
  const hy__cpu_kernels* kernels;
  hy__adamw step;
  hy_dtype dtype[7];  // of three outputs and four inputs
  int64_t size[7];
} job;

// Whether everything is contiguous and of one type that kernels take in place.
static bool lined_up(const job* j, const int64_t* step) {
  for (int k = 0; k < 7; k++) {
    if (j->dtype[k] != j->dtype[0] || step[k] != j->size[k]) return false;
  }
  return j->dtype[0] != HY_F16;
}

static void step_row(const void* context, int64_t n, char* const* at, const int64_t* step) {
  const job* j = context;
  if (lined_up(j, step)) {
    const void* in[4] = {at[3], at[4], at[5], at[6]};
    j->kernels->rows->adamw(n, &j->step, j->dtype[0], in, (void* const*)at);
    return;
  }
  float rows[4][ROW];
  const void* in[4] = {rows[0], rows[1], rows[2], rows[3]};
  void* out[3] = {rows[0], rows[1], rows[2]};
  for (int64_t i = 0; i < n; i += ROW) {
    int64_t count = n - i < ROW ? n - i : ROW;
    for (int k = 0; k < 4; k++)
      j->kernels->gemm.widen(count, at[3 + k] + i * step[3 + k], step[3 + k] / j->size[3 + k],
                             j->dtype[3 + k], rows[k]);
    j->kernels->rows->adamw(count, &j->step, HY_F32, in, out);
    for (int k = 0; k < 3; k++)
      j->kernels->gemm.epilogue(count, rows[k], 1, 0, NULL, 0, at[k] + i * step[k],
                                step[k] / j->size[k], j->dtype[k]);
  }
}

static hy_status run_adamw(const hy__cpu_kernels* kernels, const hy_call* call) {
  const hy_attrs_adamw* a = &call->attrs.adamw;
  job j = {.kernels = kernels};
  j.step = (hy__adamw){
      .keep = (float)(1 - a->lr * a->weight_decay),
      .step_size = (float)(a->lr / (1 - pow(a->beta1, (double)a->step))),
      .inverse_root = (float)(1 / sqrt(1 - pow(a->beta2, (double)a->step))),
      .beta1 = (float)a->beta1,
      .beta2 = (float)a->beta2,
      .rest1 = (float)(a->maximize ? a->beta1 - 1 : 1 - a->beta1),
      .rest2 = (float)(1 - a->beta2),
      .eps = (float)a->eps,
  };
  const hy_tensor* tensors[7];
  for (int k = 0; k < 7; k++) {
    tensors[k] = k < 3 ? &call->out[k] : &call->in[k - 3];
    j.dtype[k] = tensors[k]->dtype;
    j.size[k] = (int64_t)hy_dtype_size(j.dtype[k]);
  }
  hy__nditer loop;
  hy__nditer_init(&loop, 7, tensors);
  hy__nditer_run(&loop, step_row, &j, 4);
  return HY_OK;
}

// ---- SGD ----

// An absent velocity is walked as a stand-in that is neither read nor written.
typedef struct sgd_job {
  const hy__cpu_kernels* kernels;
  hy__sgd step;
  hy_dtype dtype[5];  // of two outputs and three inputs
  int64_t size[5];
  bool reads, writes;  // the velocity
} sgd_job;

static void sgd_row(const void* context, int64_t n, char* const* at, const int64_t* step) {
  const sgd_job* j = context;
  float rows[3][ROW];
  for (int64_t i = 0; i < n; i += ROW) {
    int64_t count = n - i < ROW ? n - i : ROW;
    if (!j->reads) memset(rows[1], 0, sizeof rows[1]);
    for (int k = 0; k < 3; k++) {
      if (k == 1 && !j->reads) continue;
      j->kernels->gemm.widen(count, at[2 + k] + i * step[2 + k], step[2 + k] / j->size[2 + k],
                             j->dtype[2 + k], rows[k]);
    }
    j->kernels->rows->sgd(count, &j->step, rows[0], rows[1], rows[2]);
    for (int k = 0; k < 1 + j->writes; k++)
      j->kernels->gemm.epilogue(count, rows[k], 1, 0, NULL, 0, at[k] + i * step[k],
                                step[k] / j->size[k], j->dtype[k]);
  }
}

static hy_status run_sgd(const hy__cpu_kernels* kernels, const hy_call* call) {
  const hy_attrs_sgd* a = &call->attrs.sgd;
  const hy_tensor* param = &call->in[0];
  sgd_job j = {.kernels = kernels};
  j.reads = call->in[1].dtype != HY_NONE;
  j.writes = call->out[1].dtype != HY_NONE;
  j.step = (hy__sgd){.lr = (float)a->lr,
                     .sign = a->maximize ? -1 : 1,
                     .decay = (float)a->weight_decay,
                     .momentum = (float)a->momentum,
                     .rest = (float)(1 - a->dampening),
                     .has_momentum = a->momentum != 0,
                     .nesterov = a->nesterov,
                     .first = a->first};
  const hy_tensor* tensors[5] = {&call->out[0], j.writes ? &call->out[1] : param, param,
                                 j.reads ? &call->in[1] : param, &call->in[2]};
  for (int k = 0; k < 5; k++) {
    j.dtype[k] = tensors[k]->dtype;
    j.size[k] = (int64_t)hy_dtype_size(j.dtype[k]);
  }
  hy__nditer loop;
  hy__nditer_init(&loop, 5, tensors);
  hy__nditer_run(&loop, sgd_row, &j, 4);
  return HY_OK;
}

// The op table lets through only f32 beside the parameter's type.
static hy_support supports(const hy_call* call) {
  (void)call;
  return HY_SUPPORT_YES;
}

const hy__cpu_family hy__cpu_adamw = {supports, run_adamw}, hy__cpu_sgd = {supports, run_sgd};
