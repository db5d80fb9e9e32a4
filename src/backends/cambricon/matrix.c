// Matrix products of the cambricon backend. Operands that are transposed in memory are multiplied
// as they are; f32 is multiplied in f32, not in TF32.
#include "backends/cambricon/cambricon.h"

// The last two dimensions as they are, or swapped; else a copy.
static hy_tensor operand(hy__task* task, const hy_tensor* t, hy_dtype dtype, int32_t* transposed) {
  hy_tensor turned = hy__transposed(t);
  *transposed = 0;
  if (t->dtype == dtype && !hy_tensor_is_contiguous(t) && hy_tensor_is_contiguous(&turned)) {
    *transposed = 1;
    return hy__view(&turned, turned.ndim, turned.shape);
  }
  return hy__task_contiguous(task, t, dtype);
}

static bool set_attribute(hy__task* task, void* d, int attribute, int32_t value) {
  return hy__cambricon_done(task, "cnnlSetMatMulDescAttr",
                            hy__cnnl.SetMatMulDescAttr(d, attribute, &value, sizeof value));
}

static void* description(hy__task* task, int32_t turn_a, int32_t turn_b, bool adds) {
  void* d = hy__cambricon_keep(task, "cnnlMatMulDescCreate", hy__cnnl.MatMulDescCreate,
                               hy__cnnl.MatMulDescDestroy);
  bool good = d && set_attribute(task, d, CNNL_E(CNNL_MATMUL_DESC_TRANSA), turn_a) &&
              set_attribute(task, d, CNNL_E(CNNL_MATMUL_DESC_TRANSB), turn_b) &&
              set_attribute(task, d, CNNL_E(CNNL_MATMUL_ALLOW_TF32), 0);
  if (good && adds) set_attribute(task, d, CNNL_E(CNNL_MATMUL_USE_BETA), 1);
  return d;
}

// CNNL proposes an algorithm, which says what workspace it wants.
static bool proposed(hy__task* task, const char* name, int error, int found) {
  if (!hy__cambricon_done(task, name, error)) return false;
  if (found < 1)
    task->status = hy__backend_host->fail(HY_DEVICE_FAILED, "cambricon: %s: no algorithm", name);
  return found >= 1;
}

static void* result_handle(hy__task* task) {
  return hy__cambricon_keep(task, "cnnlCreateMatMulHeuristicResult",
                            hy__cnnl.CreateMatMulHeuristicResult,
                            hy__cnnl.DestroyMatMulHeuristicResult);
}

// out = alpha a b + beta c, all contiguous but for the turns of a and b; c is absent or like out.
static void run_matmul(hy__task* task, const hy_tensor* a, int32_t turn_a, const hy_tensor* b,
                       int32_t turn_b, double alpha, double beta, const hy_tensor* c,
                       const hy_tensor* out) {
  float times = (float)alpha, plus = hy__present(c) ? (float)beta : 0;
  const hy_tensor* added = hy__present(c) ? c : out;
  int found = 0;
  if (!hy__cnnl.MatMul_v2 || !hy__cnnl.GetMatMulAlgoHeuristic) task->answer = HY_SUPPORT_NO_OP;
  if (!hy__task_runs(task)) return;
  void* d = description(task, turn_a, turn_b, hy__present(c));
  void* algo = hy__cambricon_keep(task, "cnnlMatMulAlgoCreate", hy__cnnl.MatMulAlgoCreate,
                                  hy__cnnl.MatMulAlgoDestroy);
  void* result = result_handle(task);
  if (!hy__task_runs(task) ||
      !hy__cambricon_created(task, CNNL_D(a), CNNL_D(b), CNNL_D(added), CNNL_D(out)))
    return;
  int error = hy__cnnl.GetMatMulAlgoHeuristic(hy__cambricon_handle(task), d, CNNL_D(a), CNNL_D(b),
                                              CNNL_D(added), CNNL_D(out), NULL, 1, &result, &found);
  if (!proposed(task, "cnnlGetMatMulAlgoHeuristic", error, found)) return;
  size_t bytes = 0;
  error = hy__cnnl.GetMatMulHeuristicResult(result, algo, &bytes);
  hy__cambricon_planned(task, "cnnlGetMatMulHeuristicResult", error, bytes);
  CNNL_RUN(task, MatMul_v2, d, algo, &times, CNNL_T(a), CNNL_T(b), &plus, CNNL_T(added),
           CNNL_WORKSPACE, CNNL_T(out));
}

static void run_batched(hy__task* task, const hy_tensor* a, int32_t turn_a, const hy_tensor* b,
                        int32_t turn_b, const hy_tensor* out) {
  const float one = 1, zero = 0;
  int found = 0;
  if (!hy__cnnl.BatchMatMulBCast_v2 || !hy__cnnl.GetBatchMatMulAlgoHeuristic)
    task->answer = HY_SUPPORT_NO_OP;
  if (!hy__task_runs(task)) return;
  void* d = description(task, turn_a, turn_b, false);
  void* algo = hy__cambricon_keep(task, "cnnlBatchMatMulAlgoCreate", hy__cnnl.BatchMatMulAlgoCreate,
                                  hy__cnnl.BatchMatMulAlgoDestroy);
  void* result = result_handle(task);
  if (!hy__task_runs(task) || !hy__cambricon_created(task, CNNL_D(a), CNNL_D(b), CNNL_D(out)))
    return;
  int error = hy__cnnl.GetBatchMatMulAlgoHeuristic(
      hy__cambricon_handle(task), d, CNNL_D(a), CNNL_D(b), CNNL_D(out), NULL, 1, &result, &found);
  if (!proposed(task, "cnnlGetBatchMatMulAlgoHeuristic", error, found)) return;
  size_t bytes = 0;
  error = hy__cnnl.GetBatchMatMulHeuristicResult(result, algo, &bytes);
  hy__cambricon_planned(task, "cnnlGetBatchMatMulHeuristicResult", error, bytes);
  CNNL_RUN(task, BatchMatMulBCast_v2, d, algo, &one, CNNL_T(a), CNNL_T(b), &zero, CNNL_T(out),
           CNNL_WORKSPACE);
}

#define PRODUCTS_KNOWN                 \
  CNNL_KNOWN(CNNL_MATMUL_DESC_TRANSA); \
  CNNL_KNOWN(CNNL_MATMUL_DESC_TRANSB); \
  CNNL_KNOWN(CNNL_MATMUL_ALLOW_TF32);  \
  CNNL_KNOWN(CNNL_MATMUL_USE_BETA)

// Types that differ meet in f32.
hy_support hy__cambricon_mm(hy__task* task, const hy_call* call) {
  const hy_tensor *a = &call->in[0], *b = &call->in[1], *out = &call->out[0];
  TASK_NEED(hy__is_half_or_f32(a) && hy__is_half_or_f32(b) && hy__is_half_or_f32(out), NO_DTYPE);
  PRODUCTS_KNOWN;
  if (hy_tensor_numel(a) == 0) {
    hy__task_fill(task, out, hy_float(0));
    return task->answer;
  }
  hy_dtype dtype = hy__same_types(call) ? a->dtype : HY_F32;
  int32_t turn_a, turn_b;
  hy_tensor x = operand(task, a, dtype, &turn_a), y = operand(task, b, dtype, &turn_b);
  hy_tensor to =
      out->dtype == dtype ? CNNL_OUT(0) : hy__task_temporary(task, dtype, out->ndim, out->shape);
  const hy_tensor none = hy_tensor_absent();
  if (call->op == HY_OP_mm)
    run_matmul(task, &x, turn_a, &y, turn_b, 1, 0, &none, &to);
  else
    run_batched(task, &x, turn_a, &y, turn_b, &to);
  CNNL_GIVE(0, to);
  return task->answer;
}

// A factor of 0 leaves x out, NaN or not.
hy_support hy__cambricon_addmm(hy__task* task, const hy_call* call) {
  hy_attrs_addmm a = call->attrs.addmm;
  const hy_tensor *m1 = &call->in[1], *out = &call->out[0];
  TASK_NEED(hy__is_half_or_f32(m1) && hy__same_types(call), NO_DTYPE);
  PRODUCTS_KNOWN;
  bool adds = hy_scalar_f(a.beta) != 0;
  hy_tensor x = hy_tensor_absent();
  if (adds) {
    // A copy: in place, the product could overwrite what is still to be added.
    x = hy__task_temporary(task, out->dtype, out->ndim, out->shape);
    hy__task_copy(task, &x, &call->in[0]);
  }
  if (hy_tensor_numel(m1) == 0) {  // no products to add
    if (adds) {
      hy__task_scale(task, &x, hy_scalar_f(a.beta));
      hy__task_copy(task, out, &x);
    } else {
      hy__task_fill(task, out, hy_float(0));
    }
    return task->answer;
  }
  int32_t turn_a, turn_b;
  hy_tensor l = operand(task, m1, m1->dtype, &turn_a);
  hy_tensor r = operand(task, &call->in[2], m1->dtype, &turn_b), to = CNNL_OUT(0);
  run_matmul(task, &l, turn_a, &r, turn_b, hy_scalar_f(a.alpha), hy_scalar_f(a.beta), &x, &to);
  CNNL_GIVE(0, to);
  return task->answer;
}

// [..., K] as [M, K].
static hy_tensor as_rows(hy__task* task, const hy_tensor* t, hy_dtype dtype) {
  int64_t k = t->shape[t->ndim - 1], shape[2] = {1, k};
  for (int d = 0; d < t->ndim - 1; d++) shape[0] *= t->shape[d];
  hy_tensor whole = hy__task_contiguous(task, t, dtype);
  return hy__view(&whole, 2, shape);
}

// x [..., K] times weight [N, K] transposed, and bias [N], in one type.
static void linear(hy__task* task, const hy_tensor* x, const hy_tensor* weight,
                   const hy_tensor* bias, const hy_tensor* out) {
  hy_tensor rows = as_rows(task, x, weight->dtype), turned = hy__transposed(weight);
  const int64_t shape[2] = {rows.shape[0], weight->shape[0]};
  hy_tensor to = hy__task_temporary(task, weight->dtype, 2, shape), added = hy_tensor_absent();
  if (hy__present(bias)) {
    added = hy__task_temporary(task, weight->dtype, 2, shape);
    hy__task_copy(task, &added, bias);
  }
  if (out->dtype == weight->dtype && hy_tensor_is_contiguous(out)) to = hy__view(out, 2, shape);
  int32_t turn;
  hy_tensor w = operand(task, &turned, weight->dtype, &turn);
  if (hy_tensor_numel(&to) == 0) return;
  if (rows.shape[1] > 0)
    run_matmul(task, &rows, 0, &w, turn, 1, 1, &added, &to);
  else if (hy__present(bias))
    hy__task_copy(task, &to, &added);
  else
    hy__task_fill(task, &to, hy_float(0));
  if (to.data == out->data && task->stream) return;
  to = hy__view(&to, out->ndim, out->shape);
  hy__task_copy(task, out, &to);
}

hy_support hy__cambricon_linear(hy__task* task, const hy_call* call) {
  TASK_NEED(hy__is_half_or_f32(&call->in[0]) && hy__same_types(call), NO_DTYPE);
  PRODUCTS_KNOWN;
  linear(task, &call->in[0], &call->in[1], &call->in[2], &call->out[0]);
  return task->answer;
}

// ---- Weights of i8 and i4: made whole in f32 ----

// floor(t / by), of whole numbers by a power of two.
static hy_tensor divided(hy__task* task, const hy_tensor* t, double by) {
  hy_tensor quotient = hy__task_temporary(task, HY_F32, t->ndim, t->shape);
  hy__task_copy(task, &quotient, t);
  hy__task_scale(task, &quotient, 1 / by);
  hy__task_unary(task, HY_OP_floor, &quotient, &quotient);
  return quotient;
}

// t - factor * of, to `out`; `of` is scaled in place.
static void subtract(hy__task* task, const hy_tensor* t, double factor, const hy_tensor* of,
                     const hy_tensor* out) {
  hy__task_scale(task, of, factor);
  hy__task_binary_to(task, HY_OP_sub, t, of, out);
}

// The numbers of packed i4, two a byte and the even one low, in f32: CNNL's type for them is not
// public. A nibble v stands for v - 16 * floor(v / 8).
static void unpack(hy__task* task, const hy_tensor* q, const hy_tensor* values) {
  int last = q->ndim - 1;
  int64_t shape[HY_MAX_DIMS];
  for (int d = 0; d < last; d++) shape[d] = q->shape[d];
  shape[last] = q->shape[last] / 2;
  shape[last + 1] = 2;
  hy_tensor packed = {.data = q->data, .dtype = HY_U8};
  hy_tensor bytes = hy__view(&packed, q->ndim, shape), pairs = hy__view(values, q->ndim + 1, shape);
  hy_tensor whole = hy__task_as(task, &bytes, HY_F32), high = divided(task, &whole, 16);
  hy_tensor times16 = hy__task_temporary(task, HY_F32, high.ndim, high.shape);
  hy__task_copy(task, &times16, &high);
  subtract(task, &whole, 16, &times16, &whole);  // the low ones
  for (int odd = 0; odd < 2; odd++) {
    const hy_tensor* nibbles = odd ? &high : &whole;
    hy_tensor negative = divided(task, nibbles, 8), place = hy__slice(&pairs, last + 1, odd, 1);
    subtract(task, nibbles, 16, &negative, nibbles);
    place.ndim = q->ndim;
    hy__task_copy(task, &place, nibbles);
  }
}

// q [..., K] times scale [..., K / group].
static hy_tensor dequantized(hy__task* task, const hy_tensor* q, const hy_tensor* scale) {
  hy_tensor values = hy__task_temporary(task, HY_F32, q->ndim, q->shape);
  int last = q->ndim - 1;
  int64_t shape[HY_MAX_DIMS];
  if (q->dtype == HY_I4 && hy_tensor_numel(q) > 0)
    unpack(task, q, &values);
  else if (q->dtype == HY_I8)
    hy__task_copy(task, &values, q);
  if (hy_tensor_numel(q) == 0) return values;
  for (int d = 0; d < last; d++) shape[d] = q->shape[d];
  shape[last] = scale->shape[last];
  shape[last + 1] = q->shape[last] / scale->shape[last];
  hy_tensor grouped = hy__view(&values, q->ndim + 1, shape), factor = *scale;
  factor.ndim++;
  factor.shape[last + 1] = 1;
  factor.stride[last + 1] = 1;
  hy__task_binary_to(task, HY_OP_mul, &grouped, &factor, &grouped);
  return values;
}

static bool is_quantized(const hy_tensor* t) {
  return t->dtype == HY_I8 || t->dtype == HY_I4;
}

hy_support hy__cambricon_dequantize(hy__task* task, const hy_call* call) {
  const hy_tensor *q = &call->in[0], *scale = &call->in[1], *out = &call->out[0];
  TASK_NEED(is_quantized(q) && scale->dtype == HY_F32 && hy__is_half_or_f32(out), NO_DTYPE);
  TASK_NEED(q->ndim < HY_MAX_DIMS && q->ndim > 0, NO_SHAPE);
  hy_tensor values = dequantized(task, q, scale);
  hy__task_copy(task, out, &values);
  return task->answer;
}

hy_support hy__cambricon_linear_quantized(hy__task* task, const hy_call* call) {
  const hy_tensor *x = &call->in[0], *w = &call->in[1], *out = &call->out[0];
  TASK_NEED(hy__is_half_or_f32(x) && out->dtype == x->dtype && is_quantized(w), NO_DTYPE);
  TASK_NEED(call->in[2].dtype == HY_F32, NO_DTYPE);
  PRODUCTS_KNOWN;
  hy_tensor weight = dequantized(task, w, &call->in[2]);
  linear(task, x, &weight, &call->in[3], out);
  return task->answer;
}
