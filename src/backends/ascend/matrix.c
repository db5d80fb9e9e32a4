// Matrix products of the ascend backend: plain, with a bias, and with weights that are packed in
// FRACTAL_NZ or quantised.
#include <string.h>

#include "backends/ascend/ascend.h"

enum { KEEP_DTYPE = 0 };  // cubeMathType: f32 is multiplied in f32

// Products in f32 keep their precision on some chips only.
static bool multiplies(const hy__task* task, hy_dtype dtype) {
  return dtype != HY_F32 || ASCEND_CHIP(task)->fp32_products;
}

// Types that differ meet in f32.
hy_support hy__ascend_mm(hy__task* task, const hy_call* call) {
  const hy_tensor* out = &call->out[0];
  hy_tensor a = call->in[0], b = call->in[1], to = *out;
  TASK_NEED(hy__is_half_or_f32(&a) && hy__is_half_or_f32(&b) && hy__is_half_or_f32(out), NO_DTYPE);
  if (hy_tensor_numel(&a) == 0) {
    hy__task_fill(task, out, hy_float(0));
    return task->answer;
  }
  bool mixed = !hy__same_types(call);
  TASK_NEED(multiplies(task, mixed ? HY_F32 : a.dtype), NO_HARDWARE);
  if (mixed) {
    a = hy__task_as(task, &a, HY_F32);
    b = hy__task_as(task, &b, HY_F32);
    if (to.dtype != HY_F32) to = hy__task_temporary(task, HY_F32, out->ndim, out->shape);
  }
  if (call->op == HY_OP_mm)
    ASCEND_RUN(task, Mm, ASCEND_T(&a), ASCEND_T(&b), ASCEND_T(&to), KEEP_DTYPE);
  else
    ASCEND_RUN(task, BatchMatMul, ASCEND_T(&a), ASCEND_T(&b), ASCEND_T(&to), KEEP_DTYPE);
  if (to.dtype != out->dtype) hy__task_copy(task, out, &to);
  return task->answer;
}

// A factor of 0 leaves x out, NaN or not.
hy_support hy__ascend_addmm(hy__task* task, const hy_call* call) {
  hy_attrs_addmm a = call->attrs.addmm;
  const hy_tensor *m1 = &call->in[1], *out = &call->out[0];
  TASK_NEED(hy__is_half_or_f32(m1) && hy__same_types(call), NO_DTYPE);
  TASK_NEED(multiplies(task, m1->dtype), NO_HARDWARE);
  hy_tensor x = call->in[0];
  if (hy_tensor_numel(m1) == 0) {  // no products to add
    if (hy_scalar_f(a.beta) == 0) {
      hy__task_fill(task, out, hy_float(0));
    } else {
      if (x.data != out->data || !task->stream) hy__task_copy(task, out, &x);
      hy__task_scale(task, out, hy_scalar_f(a.beta));
    }
    return task->answer;
  }
  if (hy_scalar_f(a.beta) == 0) {
    x = hy__task_filled(task, out->dtype, 1, (const int64_t[]){1}, 0);
  } else if (x.data == out->data && task->stream) {
    // In place, the product could overwrite what is still to be added.
    hy_tensor copy = hy__task_temporary(task, x.dtype, x.ndim, x.shape);
    hy__task_copy(task, &copy, &x);
    x = copy;
  }
  ASCEND_RUN(task, Addmm, ASCEND_T(&x), ASCEND_IN(1), ASCEND_IN(2), hy__ascend_scalar(task, a.beta),
             hy__ascend_scalar(task, a.alpha), ASCEND_OUT(0), KEEP_DTYPE);
  return task->answer;
}

// [..., K] as [M, K].
static hy_tensor as_rows(hy__task* task, const hy_tensor* t, hy_dtype dtype) {
  int64_t k = t->shape[t->ndim - 1], shape[2] = {1, k};
  for (int d = 0; d < t->ndim - 1; d++) shape[0] *= t->shape[d];
  if (t->ndim == 2 && t->dtype == dtype) return *t;
  hy_tensor whole = hy__task_contiguous(task, t, dtype);
  return hy__view(&whole, 2, shape);
}

// out [M, N] = x [M, K] times weight [N, K] transposed, and bias [N].
static void product(hy__task* task, const hy_tensor* x, const hy_tensor* weight,
                    const hy_tensor* bias, const hy_tensor* out) {
  hy_tensor w = hy__transposed(weight);
  if (hy_tensor_numel(out) == 0) return;
  if (x->shape[1] == 0) {
    if (hy__present(bias))
      hy__task_copy(task, out, bias);
    else
      hy__task_fill(task, out, hy_float(0));
  } else if (hy__present(bias)) {
    ASCEND_RUN(task, Addmm, ASCEND_T(bias), ASCEND_T(x), ASCEND_T(&w), ASCEND_F(1), ASCEND_F(1),
               ASCEND_T(out), KEEP_DTYPE);
  } else {
    ASCEND_RUN(task, Mm, ASCEND_T(x), ASCEND_T(&w), ASCEND_T(out), KEEP_DTYPE);
  }
}

// Gives `run` a contiguous [M, N] to write, and brings it to where it belongs.
static hy_tensor out_rows(hy__task* task, const hy_tensor* out, hy_dtype dtype) {
  int64_t n = out->shape[out->ndim - 1], shape[2] = {1, n};
  for (int d = 0; d < out->ndim - 1; d++) shape[0] *= out->shape[d];
  if (out->dtype == dtype && hy_tensor_is_contiguous(out)) return hy__view(out, 2, shape);
  return hy__task_temporary(task, dtype, 2, shape);
}

static void out_done(hy__task* task, const hy_tensor* out, const hy_tensor* rows) {
  hy_tensor whole = hy__view(rows, out->ndim, out->shape);
  if (rows->data != out->data || !task->stream) hy__task_copy(task, out, &whole);
}

hy_support hy__ascend_linear(hy__task* task, const hy_call* call) {
  const hy_tensor *x = &call->in[0], *out = &call->out[0];
  TASK_NEED(hy__is_half_or_f32(x) && hy__same_types(call), NO_DTYPE);
  TASK_NEED(multiplies(task, x->dtype), NO_HARDWARE);
  hy_tensor rows = as_rows(task, x, x->dtype), to = out_rows(task, out, out->dtype);
  product(task, &rows, &call->in[1], &call->in[2], &to);
  out_done(task, out, &to);
  return task->answer;
}

// ---- Weights in Ascend's own format ----

hy_support hy__ascend_pack_fractal_nz(hy__task* task, const hy_call* call) {
  TASK_NEED(ASCEND_CHIP(task)->fractal_nz, NO_HARDWARE);
  hy_tensor weight = hy__task_contiguous(task, &call->in[0], call->in[0].dtype);
  if (hy_tensor_numel(&weight) > 0)
    ASCEND_RUN(task, NpuFormatCast, ASCEND_T(&weight), ASCEND_OUT(0));
  return task->answer;
}

// The op has no bias: with one, it is added in f32.
hy_support hy__ascend_linear_fractal_nz(hy__task* task, const hy_call* call) {
  const hy_tensor *x = &call->in[0], *bias = &call->in[2], *out = &call->out[0];
  TASK_NEED(ASCEND_CHIP(task)->fractal_nz, NO_HARDWARE);
  hy_dtype sums = hy__present(bias) ? HY_F32 : out->dtype;
  hy_tensor rows = as_rows(task, x, x->dtype), to = out_rows(task, out, sums);
  hy_tensor weight = hy__transposed(&call->in[1]);
  if (hy_tensor_numel(&to) == 0) return task->answer;
  if (x->shape[x->ndim - 1] == 0)
    hy__task_fill(task, &to, hy_float(0));
  else
    ASCEND_RUN(task, MatmulWeightNz, ASCEND_T(&rows), ASCEND_T(&weight), ASCEND_T(&to), KEEP_DTYPE);
  if (hy__present(bias)) {
    hy_tensor wide = hy__task_as(task, bias, HY_F32);
    hy__task_binary_to(task, HY_OP_add, &to, &wide, &to);
  }
  out_done(task, out, &to);
  return task->answer;
}

// ---- Quantised weights ----

static bool is_quantized(hy_dtype dtype) {
  return dtype == HY_I8 || dtype == HY_I4 || dtype == HY_F8E4M3 || dtype == HY_F8E5M2;
}

static float float8_value(int bits, bool e5m2) {
  int mantissa_bits = e5m2 ? 2 : 3, bias = e5m2 ? 15 : 7;
  int exponent = (bits & 127) >> mantissa_bits, mantissa = bits & ((1 << mantissa_bits) - 1);
  float sign = bits & 128 ? -1.0f : 1.0f;
  if (e5m2 ? exponent == 31 : (bits & 127) == 127)
    return e5m2 && mantissa == 0 ? sign * __builtin_inff() : __builtin_nanf("");
  float value = (float)(exponent ? mantissa | 1 << mantissa_bits : mantissa);
  int power = (exponent ? exponent : 1) - bias - mantissa_bits;
  for (; power > 0; power--) value *= 2;
  for (; power < 0; power++) value /= 2;
  return sign * value;
}

// The chips before 950 have no 8-bit floats: their values come from a table.
static hy_tensor float8_table(hy__task* task, hy_dtype dtype) {
  hy_tensor t = {.dtype = HY_F32, .ndim = 1, .shape = {256}, .stride = {1}};
  hy__ascend_device* d = (hy__ascend_device*)task->device;
  if (!task->stream || task->status != HY_OK) return t;
  pthread_mutex_lock(&d->mutex);
  if (!d->float8) {
    float values[2][256];
    for (int i = 0; i < 256; i++) {
      values[0][i] = float8_value(i, false);
      values[1][i] = float8_value(i, true);
    }
    void* memory = NULL;
    task->status = hy__vendor_memory_alloc(d, sizeof values, &memory);
    int error = task->status == HY_OK ? task->device->vendor->copy(memory, values, sizeof values,
                                                                   HY_COPY_HOST_TO_DEVICE)
                                      : 0;
    if (error) {
      task->status = hy__ascend_fail(error, "the values of 8-bit floats");
      hy__vendor_memory_free(d, memory);
    } else if (task->status == HY_OK) {
      d->float8 = memory;
    }
  }
  if (d->float8) t.data = (float*)d->float8 + (dtype == HY_F8E5M2 ? 256 : 0);
  pthread_mutex_unlock(&d->mutex);
  return t;
}

// The numbers of a quantised tensor, before their scales, in f32.
static hy_tensor numbers_of(hy__task* task, const hy_tensor* q) {
  if (q->dtype == HY_I8) return hy__task_contiguous(task, q, HY_F32);
  if (q->dtype == HY_I4) {
    // Through f16, which holds them all.
    hy_tensor one = hy__task_filled(task, HY_F32, 1, (const int64_t[]){1}, 1);
    hy_tensor half = hy__task_temporary(task, HY_F16, q->ndim, q->shape);
    const hy_tensor none = hy_tensor_absent();
    if (hy_tensor_numel(q) > 0)
      ASCEND_RUN(task, AscendAntiQuant, ASCEND_T(q), ASCEND_T(&one), ASCEND_T(&none),
                 ACL_TYPE_FLOAT16, false, ASCEND_T(&half));
    return hy__task_as(task, &half, HY_F32);
  }
  hy_tensor bits = *q, table = float8_table(task, q->dtype);
  bits.dtype = HY_U8;
  hy_tensor index = hy__task_contiguous(task, &bits, HY_I32);
  const int64_t n = hy_tensor_numel(q);
  hy_tensor flat = hy__view(&index, 1, &n);
  hy_tensor values = hy__task_temporary(task, HY_F32, 1, &n);
  if (n > 0) ASCEND_RUN(task, IndexSelect, ASCEND_T(&table), 0, ASCEND_T(&flat), ASCEND_T(&values));
  return hy__view(&values, q->ndim, q->shape);
}

// q [..., K] times scale [..., K / group], in f32.
static hy_tensor dequantized(hy__task* task, const hy_tensor* q, const hy_tensor* scale) {
  hy_tensor values = numbers_of(task, q);
  int last = q->ndim - 1;
  int64_t groups = scale->shape[last], shape[HY_MAX_DIMS];
  memcpy(shape, q->shape, sizeof shape);
  if (hy_tensor_numel(q) == 0) return values;
  shape[last] = groups;
  shape[last + 1] = q->shape[last] / groups;
  hy_tensor grouped = hy__view(&values, q->ndim + 1, shape), factor = *scale;
  factor.ndim++;
  factor.shape[last + 1] = 1;
  factor.stride[last + 1] = 0;
  ASCEND_RUN(task, Mul, ASCEND_T(&grouped), ASCEND_T(&factor), ASCEND_T(&grouped));
  return values;
}

hy_support hy__ascend_dequantize(hy__task* task, const hy_call* call) {
  const hy_tensor *q = &call->in[0], *scale = &call->in[1], *out = &call->out[0];
  TASK_NEED(is_quantized(q->dtype) && scale->dtype == HY_F32 && hy__is_half_or_f32(out), NO_DTYPE);
  TASK_NEED(q->ndim < HY_MAX_DIMS && q->ndim > 0, NO_SHAPE);
  // i8 and i4 are the caller's to copy; a copy is scaled in place.
  hy_tensor values = dequantized(task, q, scale);
  hy__task_copy(task, out, &values);
  return task->answer;
}

// Scales in the type of x: one a row of the weight, or one for each group of 32, 64, ... of it.
static bool suits_fused(const hy_call* call) {
  const hy_tensor *x = &call->in[0], *w = &call->in[1], *scale = &call->in[2];
  enum { ALIGNED = 64, GROUPS_OF = 32, MAX_SIZE = 65535 };
  if (hy_tensor_numel(w) == 0) return false;
  int64_t groups = scale->shape[1], group = w->shape[1] / groups;
  return (x->dtype == HY_F16 || x->dtype == HY_BF16) && (w->dtype == HY_I8 || w->dtype == HY_I4) &&
         !hy__present(&call->in[3]) && (groups == 1 || group % GROUPS_OF == 0) &&
         hy_tensor_is_contiguous(w) && w->shape[0] % ALIGNED == 0 && w->shape[1] % ALIGNED == 0 &&
         w->shape[0] <= MAX_SIZE && w->shape[1] <= MAX_SIZE;
}

// What rounding takes of one scale a row is given back on the result: y * (scale / rounded scale).
// Of groups it stays.
static void run_fused(hy__task* task, const hy_call* call) {
  const hy_tensor *x = &call->in[0], *w = &call->in[1], *out = &call->out[0];
  const hy_tensor none = hy_tensor_absent();
  int64_t n = w->shape[0], groups = call->in[2].shape[1];
  int group = groups == 1 ? 0 : (int)(w->shape[1] / groups);
  hy_tensor rows = as_rows(task, x, x->dtype), weight = hy__transposed(w);
  hy_tensor rounded = hy__task_contiguous(task, &call->in[2], x->dtype);
  hy_tensor scale = hy__transposed(&rounded);  // as the weight is
  hy_tensor y = hy__task_temporary(task, x->dtype, 2, (const int64_t[]){rows.shape[0], n});
  if (rows.shape[0] > 0)
    ASCEND_RUN(task, WeightQuantBatchMatmulV2, ASCEND_T(&rows), ASCEND_T(&weight), ASCEND_T(&scale),
               ASCEND_T(&none), ASCEND_T(&none), ASCEND_T(&none), ASCEND_T(&none), group,
               ASCEND_T(&y));
  if (groups == 1) {
    hy_tensor exact = hy__task_contiguous(task, &call->in[2], HY_F32);
    hy_tensor back = hy__task_as(task, &rounded, HY_F32);
    hy_tensor correction = hy__task_binary(task, HY_OP_div, &exact, &back);
    correction = hy__view(&correction, 1, &n);
    hy_tensor wide = hy__task_as(task, &y, HY_F32);
    y = hy__task_binary(task, HY_OP_mul, &wide, &correction);
  }
  hy_tensor shaped = hy__view(&y, out->ndim, out->shape);
  hy__task_copy(task, out, &shaped);
}

// Otherwise the weight is made whole in f32 and multiplied: right for every type, group and shape,
// and as slow and large as that sounds.
hy_support hy__ascend_linear_quantized(hy__task* task, const hy_call* call) {
  const hy_tensor *x = &call->in[0], *w = &call->in[1], *out = &call->out[0];
  TASK_NEED(hy__is_half_or_f32(x) && out->dtype == x->dtype && is_quantized(w->dtype), NO_DTYPE);
  TASK_NEED(call->in[2].dtype == HY_F32, NO_DTYPE);
  TASK_NEED(ASCEND_CHIP(task)->fp32_products, NO_HARDWARE);
  if (suits_fused(call)) {
    run_fused(task, call);
    return task->answer;
  }
  hy_tensor weight = dequantized(task, w, &call->in[2]);
  hy_tensor rows = as_rows(task, x, HY_F32), to = out_rows(task, out, HY_F32);
  hy_tensor bias =
      hy__present(&call->in[3]) ? hy__task_as(task, &call->in[3], HY_F32) : hy_tensor_absent();
  product(task, &rows, &weight, &bias, &to);
  out_done(task, out, &to);
  return task->answer;
}
