// fused_moe, mixture of experts: the tokens of each expert are gathered, go through its two layers
// as GEMM, and are added to their rows with their weights, expert after expert.
#include <string.h>

#include "backends/cpu/family.h"
#include "backends/cpu/rows/rows.h"
#include "backends/cpu/runtime/thread_pool.h"
#include "backends/cpu/simd/half.h"
#include "base/memory.h"

typedef struct moe {
  const hy__cpu_kernels* kernels;
  const hy_tensor *x, *gate_up, *down, *weight, *id;
  int64_t tokens, size, hidden, experts, choices, per_token;
  int64_t* chosen;          // the choices of the expert at hand
  float* sums;              // [tokens, size]
  float *in, *inner, *out;  // of the expert's tokens: [n, size], [n, 2 hidden], [n, size]
} moe;

static int64_t expert_of(const moe* m, int64_t choice) {
  const hy_tensor* t = m->id;
  int64_t at = choice / m->per_token * t->stride[0] + choice % m->per_token * t->stride[1];
  switch (t->dtype) {
    case HY_I64: return ((const int64_t*)t->data)[at];
    case HY_I32: return ((const int32_t*)t->data)[at];
    default: return -1;
  }
}

static float weight_of(const moe* m, int64_t choice) {
  const hy_tensor* t = m->weight;
  int64_t at = choice / m->per_token * t->stride[0] + choice % m->per_token * t->stride[1];
  const char* p = (const char*)t->data + at * (int64_t)hy_dtype_size(t->dtype);
  return t->dtype == HY_F64 ? (float)*(const double*)p : hy__load1(p, t->dtype);
}

// Expert number `index` of weights [experts, n, k], as the second operand: transposed.
static hy__matrix expert_weights(const hy_tensor* t, int64_t index) {
  int64_t offset = index * t->stride[0] * (int64_t)hy_dtype_size(t->dtype);
  return (hy__matrix){(char*)t->data + offset, t->dtype, t->stride[2], t->stride[1]};
}

static bool layer(const moe* m, int64_t rows, int64_t n, int64_t k, float* x, int64_t x_row,
                  hy__matrix w, float* out) {
  hy__gemm g = {.m = rows, .n = n, .k = k, .a = {x, HY_F32, x_row, 1}, .b = w};
  g.c = out;
  g.ldc = n;
  return hy__gemm_any(&m->kernels->gemm, &g);
}

// silu(gate) * up, in the place of the gate.
static void gate(void* context, int64_t i) {
  const moe* m = context;
  float* row = m->inner + i * 2 * m->hidden;
  const hy__rows* rows = m->kernels->rows;
  enum { PIECE = 256 };
  float part[PIECE];
  for (int64_t at = 0; at < m->hidden; at += PIECE) {
    int64_t n = m->hidden - at < PIECE ? m->hidden - at : PIECE;
    rows->silu[HY__ROW_F32](n, (const void*[]){row + at}, 0, 0, part, false);
    rows->mul[HY__ROW_F32](n, (const void*[]){part, row + m->hidden + at}, 0, 0, row + at, false);
  }
}

static bool run_expert(moe* m, int64_t expert) {
  int64_t n = 0;
  for (int64_t i = 0; i < m->choices; i++) {
    if (expert_of(m, i) != expert) continue;
    const hy_tensor* x = m->x;
    int64_t at = i / m->per_token * x->stride[0] * (int64_t)hy_dtype_size(x->dtype);
    m->kernels->gemm.widen(m->size, (const char*)x->data + at, x->stride[1], x->dtype,
                           m->in + n * m->size);
    m->chosen[n++] = i;
  }
  if (n == 0) return true;
  if (!layer(m, n, 2 * m->hidden, m->size, m->in, m->size, expert_weights(m->gate_up, expert),
             m->inner))
    return false;
  hy__pool_run(gate, m, n);
  if (!layer(m, n, m->size, m->hidden, m->inner, 2 * m->hidden, expert_weights(m->down, expert),
             m->out))
    return false;
  for (int64_t r = 0; r < n; r++) {
    float* to = m->sums + m->chosen[r] / m->per_token * m->size;
    const void* in[2] = {to, m->out + r * m->size};
    m->kernels->rows->add[HY__ROW_F32](m->size, in, weight_of(m, m->chosen[r]), 0, to, false);
  }
  return true;
}

static bool ids_are_right(const moe* m) {
  for (int64_t i = 0; i < m->choices; i++) {
    int64_t e = expert_of(m, i);
    if (e < 0 || e >= m->experts) return false;
  }
  return true;
}

static hy_status run(const hy__cpu_kernels* kernels, const hy_call* call) {
  moe m = {.kernels = kernels, .x = &call->in[0], .gate_up = &call->in[1], .down = &call->in[2]};
  m.weight = &call->in[3];
  m.id = &call->in[4];
  m.tokens = m.x->shape[0];
  m.size = m.x->shape[1];
  m.experts = m.gate_up->shape[0];
  m.hidden = m.down->shape[2];
  m.per_token = m.id->shape[1];
  m.choices = m.tokens * m.per_token;
  // The reference has the words for a wrong number.
  if (!ids_are_right(&m)) return hy__backend_host->reference(call);
  int64_t each = 2 * m.size + 2 * m.hidden;
  m.chosen = hy__malloc((size_t)(m.choices + 1) * sizeof *m.chosen);
  m.sums = hy__calloc((size_t)(m.tokens * m.size + m.choices * each + 1), sizeof *m.sums);
  bool done = m.chosen && m.sums;
  if (done) {
    m.in = m.sums + m.tokens * m.size;
    m.inner = m.in + m.choices * m.size;
    m.out = m.inner + m.choices * 2 * m.hidden;
  }
  for (int64_t e = 0; done && e < m.experts; e++) done = run_expert(&m, e);
  const hy_tensor* out = &call->out[0];
  for (int64_t t = 0; done && t < m.tokens; t++)
    kernels->gemm.epilogue(
        m.size, m.sums + t * m.size, 1, 0, NULL, 0,
        (char*)out->data + t * out->stride[0] * (int64_t)hy_dtype_size(out->dtype), out->stride[1],
        out->dtype);
  hy__mfree(m.sums);
  hy__mfree(m.chosen);
  return done ? HY_OK : hy__cpu_no_memory(call);
}

static hy_support supports(const hy_call* call) {
  return call->in[4].dtype == HY_I64 || call->in[4].dtype == HY_I32 ? HY_SUPPORT_YES
                                                                    : HY_SUPPORT_NO_DTYPE;
}

const hy__cpu_family hy__cpu_moe = {supports, run};
