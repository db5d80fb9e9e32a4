// Elementwise arithmetic, functions and comparisons on f32, bf16 and f16, with broadcasting.
#include "backends/cpu/ops/elementwise.h"

#include <math.h>

#include "backends/cpu/rows/nditer.h"
#include "backends/cpu/simd/half.h"

enum { ROW = 512, MOST = 4 };  // floats of a widened row; an output and three inputs

static float scalar(hy_scalar s) {
  return (float)hy_scalar_f(s);
}

static float rounded(hy_scalar s, hy_dtype dtype) {
  uint32_t place;
  hy__store1(&place, dtype, scalar(s));
  return hy__load1(&place, dtype);
}

#define HY__AS_COST(name, inputs, cost, ties, value) COST_##name = cost,
enum { HY__MAPS(HY__AS_COST) };
#undef HY__AS_COST
#define USE(m, rows, name) ((m)->map = (rows)->name, (m)->cost = COST_##name)

static void map_power(const hy__rows* rows, double exponent, hy__mapping* m) {
  if (exponent == 1)
    USE(m, rows, scale);  // by 1
  else if (exponent == 2)
    USE(m, rows, square);
  else if (exponent == 3)
    USE(m, rows, cube);
  else
    USE(m, rows, to_power);
}

static void map_numbers(const hy__rows* rows, const hy_call* call, hy__mapping* m) {
  const hy_attrs* attrs = &call->attrs;
  hy_attrs_value_alpha both = attrs->value_alpha;
  double value = hy_scalar_f(both.value);  // the first field of each of these kinds
  switch (call->op) {
    case HY_OP_add_scalar: m->q = (float)(hy_scalar_f(both.alpha) * value); break;
    case HY_OP_sub_scalar: m->q = (float)(hy_scalar_f(both.alpha) * -value); break;
    case HY_OP_rsub_scalar:
      m->p = -scalar(both.alpha);
      m->q = (float)value;
      break;
    case HY_OP_clamp:
      m->p = attrs->clamp.low.kind == HY_NONE ? -INFINITY
                                              : rounded(attrs->clamp.low, call->in[0].dtype);
      m->q = attrs->clamp.high.kind == HY_NONE ? INFINITY
                                               : rounded(attrs->clamp.high, call->in[0].dtype);
      break;
    case HY_OP_add:
    case HY_OP_sub: m->p = scalar(attrs->alpha.alpha); break;
    default: m->p = (float)value;
  }
  switch (call->op) {
    case HY_OP_add_scalar:
    case HY_OP_sub_scalar:
    case HY_OP_rsub_scalar: USE(m, rows, affine); break;
    case HY_OP_mul_scalar: USE(m, rows, scale); break;
    case HY_OP_div_scalar: USE(m, rows, divide_by); break;
    case HY_OP_pow_scalar: map_power(rows, value, m); break;
    case HY_OP_rpow_scalar: USE(m, rows, power_from); break;
    default: break;
  }
}

void hy__map_op(const hy__rows* rows, const hy_call* call, hy__mapping* m) {
  *m = (hy__mapping){.p = 1, .cost = 1};
  switch (call->op) {
#define MAPS(name, inputs, cost, ties, value) \
  case HY_OP_##name: USE(m, rows, name); break;
    HY__OP_MAPS(MAPS)
#undef MAPS
#define TESTS(name, inputs, flags) \
  case HY_OP_##name: m->test = rows->name; break;
    HY__TESTS(TESTS)
#undef TESTS
#define TESTS(name, inputs, flags) \
  case HY_OP_##name##_scalar:      \
    m->test = rows->name;          \
    m->has_number = true;          \
    break;
    HY__COMPARISONS(TESTS)
#undef TESTS
    default: break;
  }
  if (call->op == HY_OP_gelu && call->attrs.gelu.approximate) USE(m, rows, gelu_tanh);
  if (call->op == HY_OP_gelu_backward && call->attrs.gelu.approximate)
    USE(m, rows, gelu_tanh_backward);
  map_numbers(rows, call, m);
  if (m->has_number) m->p = rounded(call->attrs.value.value, call->in[0].dtype);
  // The plainest NaN: rows of bf16 keep no other.
  if (isnan(m->p)) m->p = NAN;
  if (isnan(m->q)) m->q = NAN;
}

typedef struct job {
  const hy__cpu_kernels* kernels;
  hy__mapping m;
  int n_in;
  hy_dtype dtype;  // of the inputs
  int64_t size;
  bool nontemporal;
} job;

// Elements of an operand as contiguous floats: in place, or widened into `row`.
static const float* operand(const job* j, int64_t n, const char* from, int64_t step, bool is_first,
                            float* row) {
  if (step == 0) {
    // Every piece of a row repeats the same number.
    if (is_first) {
      j->kernels->gemm.widen(1, from, 1, j->dtype, row);
      for (int64_t i = 1; i < n; i++) row[i] = row[0];
    }
    return row;
  }
  if (j->dtype == HY_F32 && step == 4) return (const float*)from;
  j->kernels->gemm.widen(n, from, step / j->size, j->dtype, row);
  return row;
}

static bool lined_up(const job* j, const int64_t* step) {
  for (int k = 0; k <= j->n_in; k++) {
    if (step[k] != j->size) return false;
  }
  return j->m.map && j->dtype != HY_F16;
}

static void store_tests(const job* j, int64_t n, const float* const* in, char* to, int64_t step) {
  uint8_t bytes[ROW];
  if (step == 1) {
    j->m.test(n, in, (uint8_t*)to);
    return;
  }
  j->m.test(n, in, bytes);
  for (int64_t i = 0; i < n; i++) to[i * step] = (char)bytes[i];
}

static void map_row(const void* context, int64_t n, char* const* at, const int64_t* step) {
  const job* j = context;
  if (lined_up(j, step)) {
    const void* in[3] = {at[1], at[2], at[3]};
    bool nontemporal = j->nontemporal && (uintptr_t)at[0] % 64 == 0;
    j->m.map[j->dtype == HY_BF16 ? HY__ROW_BF16 : HY__ROW_F32](n, in, j->m.p, j->m.q, at[0],
                                                               nontemporal);
    return;
  }
  float rows[MOST][ROW];
  if (j->m.has_number) {
    for (int i = 0; i < ROW; i++) rows[2][i] = j->m.p;
  }
  for (int64_t i = 0; i < n; i += ROW) {
    int64_t count = n - i < ROW ? n - i : ROW;
    const float* in[3] = {rows[1], rows[2], rows[3]};
    for (int k = 1; k <= j->n_in; k++)
      in[k - 1] = operand(j, count, at[k] + i * step[k], step[k], i == 0, rows[k]);
    char* to = at[0] + i * step[0];
    if (j->m.test) {
      store_tests(j, count, in, to, step[0]);
      continue;
    }
    bool direct = j->dtype == HY_F32 && step[0] == 4;
    void* out = direct ? (void*)to : rows[0];
    j->m.map[HY__ROW_F32](count, (const void* const*)in, j->m.p, j->m.q, out, false);
    if (!direct)
      j->kernels->gemm.epilogue(count, rows[0], 1, 0, NULL, 0, to, step[0] / j->size, j->dtype);
  }
}

static hy_status run(const hy__cpu_kernels* kernels, const hy_call* call) {
  job j = {.kernels = kernels, .n_in = call->n_in, .dtype = call->in[0].dtype};
  j.size = (int64_t)hy_dtype_size(j.dtype);
  j.nontemporal = hy__use_nontemporal(call);
  hy__map_op(kernels->rows, call, &j.m);
  const hy_tensor* tensors[MOST] = {&call->out[0]};
  for (int k = 0; k < call->n_in; k++) tensors[k + 1] = &call->in[k];
  hy__nditer loop;
  hy__nditer_init(&loop, j.n_in + 1, tensors);
  hy__nditer_run(&loop, map_row, &j, j.m.cost);
  return HY_OK;
}

static bool is_test(hy_op op) {
  switch (op) {
#define TESTS(name, inputs, flags) case HY_OP_##name:
    HY__TESTS(TESTS)
#undef TESTS
#define TESTS(name, inputs, flags) case HY_OP_##name##_scalar:
    HY__COMPARISONS(TESTS)
#undef TESTS
    return true;
    default: return false;
  }
}

static hy_support supports(const hy_call* call) {
  hy_dtype dtype = call->in[0].dtype;
  for (int i = 1; i < call->n_in; i++) {
    if (call->in[i].dtype != dtype) return HY_SUPPORT_NO_DTYPE;
  }
  if (call->out[0].dtype != (is_test(call->op) ? HY_BOOL : dtype)) return HY_SUPPORT_NO_DTYPE;
  const hy_attrs* attrs = &call->attrs;
  switch (call->op) {
    case HY_OP_div:
      return attrs->rounding.rounding == HY_ROUND_NONE ? HY_SUPPORT_YES : HY_SUPPORT_NO_ATTRIBUTE;
    case HY_OP_div_scalar:
      return attrs->value_rounding.rounding == HY_ROUND_NONE ? HY_SUPPORT_YES
                                                             : HY_SUPPORT_NO_ATTRIBUTE;
    case HY_OP_clamp: {
      bool nan = isnan(hy_scalar_f(attrs->clamp.low)) || isnan(hy_scalar_f(attrs->clamp.high));
      return nan ? HY_SUPPORT_NO_ATTRIBUTE : HY_SUPPORT_YES;
    }
    default: return HY_SUPPORT_YES;
  }
}

const hy__cpu_family hy__cpu_elementwise = {supports, run};
