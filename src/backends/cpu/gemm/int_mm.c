// int_mm: int8 GEMM into int32, exact.
#include <string.h>

#include "backends/cpu/family.h"

typedef struct target {
  char* data;
  int64_t row, column;
} target;

static void finish(const void* context, int64_t i, int64_t j, int m, int n, float* tile,
                   int64_t stride) {
  const target* t = context;
  for (int r = 0; r < m; r++) {
    for (int c = 0; c < n; c++)
      memcpy(t->data + ((i + r) * t->row + (j + c) * t->column) * 4, tile + r * stride + c, 4);
  }
}

static hy_status run(const hy__cpu_kernels* kernels, const hy_call* call) {
  const hy_tensor *a = &call->in[0], *b = &call->in[1], *out = &call->out[0];
  target t = {out->data, out->stride[0], out->stride[1]};
  hy__gemm g = {.m = a->shape[0], .n = b->shape[1], .k = a->shape[1]};
  g.a = (hy__matrix){a->data, HY_I8, a->stride[0], a->stride[1]};
  g.b = (hy__matrix){b->data, HY_I8, b->stride[0], b->stride[1]};
  if (out->stride[1] == 1) {
    g.c = out->data;
    g.ldc = out->stride[0];
  } else {
    g.epilogue = finish;
    g.context = &t;
  }
  return hy__gemm_run(kernels->gemm.int8, &g) ? HY_OK : hy__cpu_no_memory(call);
}

static hy_support supports(const hy_call* call) {
  (void)call;
  return HY_SUPPORT_YES;
}

const hy__cpu_family hy__cpu_int_mm = {supports, run};
