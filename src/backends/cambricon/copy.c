// Copies and conversions of the cambricon backend: strided, broadcast, and from type to type.
#include "backends/cambricon/cambricon.h"

// Dimensions that repeat (stride 0) are left to cnnlExpand.
static void copy_repeated(hy__task* task, const hy_tensor* from, const hy_tensor* to) {
  hy_tensor once = *from;
  for (int d = 0; d < once.ndim; d++)
    if (once.stride[d] == 0) once.shape[d] = 1;
  once = hy__task_contiguous(task, &once, once.dtype);
  hy_tensor whole = hy__cambricon_out(task, to);
  CNNL_RUN(task, Expand, CNNL_T(&once), CNNL_T(&whole));
  hy__cambricon_give(task, to, &whole);
}

static void copy_same(hy__task* task, const hy_tensor* from, const hy_tensor* to) {
  for (int d = 0; d < from->ndim; d++) {
    if (from->stride[d] == 0 && from->shape[d] > 1) {
      copy_repeated(task, from, to);
      return;
    }
  }
  CNNL_PLAN(task, GetCopyWorkspaceSize, CNNL_D(from), CNNL_D(to));
  CNNL_RUN(task, Copy_v2, CNNL_T(from), CNNL_T(to), CNNL_WORKSPACE);
}

// The casts that keep a value, or round it once.
static int direct_cast(hy_dtype from, hy_dtype to) {
#define CAST(a, b, name) \
  if (from == HY_##a && to == HY_##b) return CNNL_E(CNNL_CAST_##name);
  CAST(F32, F16, FLOAT_TO_HALF)
  CAST(F32, BF16, FLOAT_TO_BFLOAT16)
  CAST(F32, BOOL, FLOAT_TO_BOOL)
  CAST(F32, I32, FLOAT_TO_INT32)
  CAST(F16, F32, HALF_TO_FLOAT)
  CAST(F16, BOOL, HALF_TO_BOOL)
  CAST(BF16, F32, BFLOAT16_TO_FLOAT)
  CAST(BF16, BOOL, BFLOAT16_TO_BOOL)
  CAST(I32, F32, INT32_TO_FLOAT)
  CAST(I32, I64, INT32_TO_INT64)
  CAST(I32, BOOL, INT32_TO_BOOL)
  CAST(I64, I32, INT64_TO_INT32)
  CAST(I8, F32, INT8_TO_FLOAT)
  CAST(I8, I32, INT8_TO_INT32)
  CAST(U8, F32, UINT8_TO_FLOAT)
  CAST(U8, I32, UINT8_TO_INT32)
  CAST(BOOL, F32, BOOL_TO_FLOAT)
  CAST(BOOL, I32, BOOL_TO_INT32)
#undef CAST
  return CNNL_UNKNOWN;
}

// The type between, for what has no cast of its own: one that holds every value of the first.
static hy_dtype way_of(hy_dtype from, hy_dtype to) {
  if (to == HY_I64) return HY_I32;
  if (from == HY_F16 || from == HY_BF16 || from == HY_I8 || from == HY_U8 || from == HY_BOOL)
    return HY_F32;
  return HY_NONE;
}

static void run_cast(hy__task* task, const hy_tensor* from, const hy_tensor* to) {
  hy_tensor x = hy__cambricon_in(task, from, to), y = hy__cambricon_out(task, to);
  CNNL_RUN(task, CastDataType, CNNL_T(&x), direct_cast(x.dtype, y.dtype), CNNL_T(&y));
  hy__cambricon_give(task, to, &y);
}

hy_support hy__cambricon_cast(hy__task* task, const hy_call* call) {
  const hy_tensor* out = &call->out[0];
  hy_tensor x = call->in[0];
  // A cast by way of another type rounds there.
  TASK_NEED(hy__cambricon_dtype(x.dtype) >= 0 && hy__cambricon_dtype(out->dtype) >= 0, NO_DTYPE);
  TASK_NEED(call->op != HY_OP_cast || call->attrs.cast.dtype == out->dtype, NO_DTYPE);
  if (x.dtype == out->dtype) {
    hy_tensor wide = hy__widened(&x, out);
    copy_same(task, &wide, out);
    return task->answer;
  }
  // From a float to integers, and to narrower ones, CNNL's documents do not say what overflows to.
  bool narrows = (hy_dtype_is_float(x.dtype) && hy_dtype_is_int(out->dtype)) ||
                 (x.dtype == HY_I64 && out->dtype == HY_I32);
  bool own_index = task->op != HY_OP_cast && task->op != HY_OP_copy && task->op != HY_OP_clone;
  TASK_NEED(!narrows || task->whole || (own_index && x.dtype == HY_I64), NO_DTYPE);
  if (direct_cast(x.dtype, out->dtype) == CNNL_UNKNOWN) {
    hy_dtype way = way_of(x.dtype, out->dtype);
    TASK_NEED(way != HY_NONE && direct_cast(x.dtype, way) != CNNL_UNKNOWN &&
                  direct_cast(way, out->dtype) != CNNL_UNKNOWN,
              NO_DTYPE);
    hy_tensor between = hy__task_temporary(task, way, x.ndim, x.shape);
    run_cast(task, &x, &between);
    x = between;
  }
  run_cast(task, &x, out);
  return task->answer;
}
