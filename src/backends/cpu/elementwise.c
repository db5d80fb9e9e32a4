// Arithmetic and functions of elements, on f32, bf16 and f16, with broadcasting.
#include "backends/cpu/kernels.h"
#include "backends/cpu/loop.h"

enum { ROW = 512 };  // floats of a widened row: three of them fit in the nearest cache

// How an op maps to a row. A number takes the place of the second operand, or of the first.
typedef struct mapping {
  hy__map* map;
  bool has_number, number_first;
  float number, p;
  int cost;  // of an element, in additions
} mapping;

static float scalar(hy_scalar s) {
  return (float)hy_scalar_f(s);
}

static void map_op(const hy__rows* rows, const hy_call* call, mapping* m) {
  const hy_attrs* attrs = &call->attrs;
  *m = (mapping){.p = 1, .cost = 1};
  switch (call->op) {
    case HY_OP_add:
    case HY_OP_sub: m->p = scalar(attrs->alpha.alpha); break;
    case HY_OP_add_scalar:
    case HY_OP_sub_scalar:
    case HY_OP_rsub_scalar:
      m->p = scalar(attrs->value_alpha.alpha);
      m->has_number = true;
      m->number_first = call->op == HY_OP_rsub_scalar;
      m->number = scalar(attrs->value_alpha.value);
      break;
    case HY_OP_mul_scalar:
    case HY_OP_div_scalar:
      m->has_number = true;
      m->number = scalar(attrs->value.value);  // the first field of both kinds
      break;
    case HY_OP_exp:
    case HY_OP_tanh:
    case HY_OP_sigmoid:
    case HY_OP_erf:
    case HY_OP_silu:
    case HY_OP_gelu:
    case HY_OP_silu_backward:
    case HY_OP_gelu_backward: m->cost = 4; break;
    default: break;
  }
  switch (call->op) {
    case HY_OP_add_scalar: m->map = rows->add; break;
    case HY_OP_sub_scalar:
    case HY_OP_rsub_scalar: m->map = rows->sub; break;
    case HY_OP_mul_scalar: m->map = rows->mul; break;
    case HY_OP_div_scalar: m->map = rows->div; break;
    case HY_OP_gelu: m->map = attrs->gelu.approximate ? rows->gelu_tanh : rows->gelu; break;
    case HY_OP_gelu_backward:
      m->map = attrs->gelu.approximate ? rows->gelu_tanh_backward : rows->gelu_backward;
      break;
#define SAME(name) \
  case HY_OP_##name: m->map = rows->name; break;
      SAME(add)
      SAME(sub)
      SAME(mul)
      SAME(div)
      SAME(maximum)
      SAME(minimum)
      SAME(neg)
      SAME(abs)
      SAME(relu)
      SAME(sqrt)
      SAME(rsqrt)
      SAME(reciprocal)
      SAME(exp)
      SAME(tanh)
      SAME(sigmoid)
      SAME(erf)
      SAME(silu)
      SAME(sigmoid_backward)
      SAME(tanh_backward)
      SAME(relu_backward)
      SAME(silu_backward)
#undef SAME
    default: break;
  }
}

typedef struct job {
  const hy__cpu_kernels* kernels;
  mapping m;
  int n_in;
  hy_dtype dtype[3];  // of the output and the inputs
  int64_t size[3];
} job;

// Elements of an operand from `from` on as contiguous floats: in place, or widened into `row`.
static const float* operand(const job* j, int k, int64_t n, const char* from, int64_t step,
                            bool is_first, float* row) {
  if (step == 0) {
    // Every piece of a row repeats the same number.
    if (is_first) {
      j->kernels->widen(1, from, 1, j->dtype[k], row);
      for (int64_t i = 1; i < n; i++) row[i] = row[0];
    }
    return row;
  }
  if (j->dtype[k] == HY_F32 && step == 4) return (const float*)from;
  j->kernels->widen(n, from, step / j->size[k], j->dtype[k], row);
  return row;
}

static void map_row(const void* context, int64_t n, char* const* at, const int64_t* step) {
  const job* j = context;
  bool direct = j->dtype[0] == HY_F32 && step[0] == 4;
  bool a_direct = j->dtype[1] == HY_F32 && step[1] == 4;
  bool b_direct = j->n_in < 2 || (j->dtype[2] == HY_F32 && step[2] == 4);
  if (direct && a_direct && b_direct) {
    j->m.map(n, (float*)at[1], (float*)at[j->n_in], j->m.p, (float*)at[0]);
    return;
  }
  float rows[3][ROW];
  for (int64_t i = 0; i < n; i += ROW) {
    int64_t count = n - i < ROW ? n - i : ROW;
    const float* a = operand(j, 1, count, at[1] + i * step[1], step[1], i == 0, rows[1]);
    const float* b =
        j->n_in < 2 ? a : operand(j, 2, count, at[2] + i * step[2], step[2], i == 0, rows[2]);
    char* to = at[0] + i * step[0];
    j->m.map(count, a, b, j->m.p, direct ? (float*)to : rows[0]);
    if (!direct)
      j->kernels->finish(count, rows[0], 1, 0, NULL, 0, to, step[0] / j->size[0], j->dtype[0]);
  }
}

static hy_status run(const hy__cpu_kernels* kernels, const hy_call* call) {
  job j = {.kernels = kernels, .n_in = call->n_in};
  map_op(kernels->rows, call, &j.m);
  hy_tensor number = {.data = &j.m.number, .dtype = HY_F32};
  const hy_tensor* tensors[3] = {&call->out[0], &call->in[0], &call->in[call->n_in - 1]};
  if (j.m.has_number) {
    j.n_in = 2;
    tensors[2] = &number;
    if (j.m.number_first) {
      tensors[1] = &number;
      tensors[2] = &call->in[0];
    }
  }
  for (int k = 0; k <= j.n_in && k < 3; k++) {
    j.dtype[k] = tensors[k]->dtype;
    j.size[k] = j.dtype[k] == HY_F32 ? 4 : 2;
  }
  hy__loop loop;
  hy__loop_init(&loop, j.n_in + 1, tensors);
  hy__loop_run(&loop, map_row, &j, j.m.cost);
  return HY_OK;
}

static hy_support supports(const hy_call* call) {
  hy_dtype dtype = call->out[0].dtype;
  for (int i = 0; i < call->n_in; i++) {
    if (call->in[i].dtype != dtype) return HY_SUPPORT_NO_DTYPE;
  }
  bool rounds =
      (call->op == HY_OP_div && call->attrs.rounding.rounding != HY_ROUND_NONE) ||
      (call->op == HY_OP_div_scalar && call->attrs.value_rounding.rounding != HY_ROUND_NONE);
  return rounds ? HY_SUPPORT_NO_ATTRIBUTE : HY_SUPPORT_YES;
}

const hy__cpu_family hy__cpu_elementwise = {supports, run};
