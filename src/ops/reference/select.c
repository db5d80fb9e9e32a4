// Copies, conversions, choices by mask, and tensors made from a number.
#include "ops/reference/operand.h"
#include "ops/rules/promote.h"

static void convert(hy_dtype from, const void* x, int64_t x_step, hy_dtype to, void* out,
                    int64_t out_step, int64_t n) {
  if (hy__in_double(from)) {
    double row[HY__ROW];
    hy__load_row_f(from, x, x_step, n, row);
    hy__store_row_f(to, out, out_step, n, row);
  } else {
    int64_t row[HY__ROW];
    hy__load_row_i(from, x, x_step, n, row);
    hy__store_row_i(to, out, out_step, n, row);
  }
}

hy_status hy__ref_copy(const hy_call* call) {
  const hy_tensor *x = &call->in[0], *out = &call->out[0];
  hy_dtype type = call->op == HY_OP_cast ? call->attrs.cast.dtype : x->dtype;
  hy__walk w;
  hy__walk_begin(&w, out, 2, (const hy_tensor*[]){out, x});
  while (hy__walk_next(&w)) {
    int64_t held[HY__ROW];  // room for a row of any type
    convert(x->dtype, w.at[1], w.step[1], type, held, 1, w.n);
    convert(type, held, 1, out->dtype, w.at[0], w.step[0], w.n);
  }
  return HY_OK;
}

hy_status hy__ref_where(const hy_call* call) {
  const hy_tensor *condition = &call->in[0], *a = &call->in[1], *b = &call->in[2],
                  *out = &call->out[0];
  hy_dtype type = hy__promote_tensors(call->in + 1, 2);
  hy__walk w;
  hy__walk_begin(&w, out, 4, (const hy_tensor*[]){out, condition, a, b});
  while (hy__walk_next(&w)) {
    int64_t chosen[HY__ROW];
    hy__operand_i(&w, 1, condition->dtype, condition->dtype, chosen);
    if (hy__in_double(type)) {
      double x[HY__ROW], y[HY__ROW];
      hy__operand_f(&w, 2, a->dtype, type, x);
      hy__operand_f(&w, 3, b->dtype, type, y);
      for (int64_t i = 0; i < w.n; i++) x[i] = chosen[i] ? x[i] : y[i];
      hy__result_f(&w, type, out->dtype, x);
    } else {
      int64_t x[HY__ROW], y[HY__ROW];
      hy__operand_i(&w, 2, a->dtype, type, x);
      hy__operand_i(&w, 3, b->dtype, type, y);
      for (int64_t i = 0; i < w.n; i++) x[i] = chosen[i] ? x[i] : y[i];
      hy__result_i(&w, type, out->dtype, x);
    }
  }
  return HY_OK;
}

hy_status hy__ref_masked_fill(const hy_call* call) {
  const hy_tensor *x = &call->in[0], *mask = &call->in[1], *out = &call->out[0];
  hy_scalar value = call->attrs.value.value;
  hy_dtype type = x->dtype;
  hy__walk w;
  hy__walk_begin(&w, out, 3, (const hy_tensor*[]){out, x, mask});
  while (hy__walk_next(&w)) {
    int64_t masked[HY__ROW];
    hy__operand_i(&w, 2, mask->dtype, mask->dtype, masked);
    if (hy__in_double(type)) {
      double row[HY__ROW], number = hy_scalar_f(value);
      hy__operand_f(&w, 1, x->dtype, type, row);
      for (int64_t i = 0; i < w.n; i++) row[i] = masked[i] ? number : row[i];
      hy__result_f(&w, type, out->dtype, row);
    } else {
      int64_t row[HY__ROW], number = hy__number_i(value, type);
      hy__operand_i(&w, 1, x->dtype, type, row);
      for (int64_t i = 0; i < w.n; i++) row[i] = masked[i] ? number : row[i];
      hy__result_i(&w, type, out->dtype, row);
    }
  }
  return HY_OK;
}

// x + value * a * b, or x + value * a / b.
hy_status hy__ref_addc(const hy_call* call) {
  const hy_tensor *x = &call->in[0], *a = &call->in[1], *b = &call->in[2], *out = &call->out[0];
  hy_scalar value = call->attrs.value.value;
  hy_dtype type = hy__compute_dtype(call);
  if (!hy__in_double(type) && value.kind == HY_F64)
    return hy__call_fail(call, HY_DTYPE, "integer inputs need an integer value");
  hy__walk w;
  hy__walk_begin(&w, out, 4, (const hy_tensor*[]){out, x, a, b});
  while (hy__walk_next(&w)) {
    if (hy__in_double(type)) {
      double p[HY__ROW], q[HY__ROW], r[HY__ROW], number = hy__number_f(value, type);
      hy__operand_f(&w, 1, x->dtype, type, p);
      hy__operand_f(&w, 2, a->dtype, type, q);
      hy__operand_f(&w, 3, b->dtype, type, r);
      for (int64_t i = 0; i < w.n; i++)
        p[i] += call->op == HY_OP_addcmul ? number * q[i] * r[i] : number * q[i] / r[i];
      hy__result_f(&w, type, out->dtype, p);
    } else {
      int64_t p[HY__ROW], q[HY__ROW], r[HY__ROW];
      hy__operand_i(&w, 1, x->dtype, type, p);
      hy__operand_i(&w, 2, a->dtype, type, q);
      hy__operand_i(&w, 3, b->dtype, type, r);
      for (int64_t i = 0; i < w.n; i++)
        p[i] = (int64_t)((uint64_t)p[i] +
                         (uint64_t)hy_scalar_i(value) * (uint64_t)q[i] * (uint64_t)r[i]);
      hy__result_i(&w, type, out->dtype, p);
    }
  }
  return HY_OK;
}

hy_status hy__ref_tri(const hy_call* call) {
  const hy_tensor *x = &call->in[0], *out = &call->out[0];
  int64_t rows = x->shape[x->ndim - 2], columns = x->shape[x->ndim - 1], n = hy_tensor_numel(x);
  int64_t diagonal = call->attrs.tri.diagonal;
  for (int64_t i = 0; i < n; i++) {
    int64_t row = i / columns % rows, column = i % columns;
    bool keep = call->op == HY_OP_tril ? column - row <= diagonal : column - row >= diagonal;
    char* to = hy__element(out, i);
    if (hy__in_double(x->dtype))
      hy__store_f(out->dtype, to, keep ? hy__load_f(x->dtype, hy__element(x, i)) : 0);
    else
      hy__store_i(out->dtype, to, keep ? hy__load_i(x->dtype, hy__element(x, i)) : 0);
  }
  return HY_OK;
}

hy_status hy__ref_fill(const hy_call* call) {
  const hy_tensor* out = &call->out[0];
  hy_scalar value = call->attrs.value.value;
  hy__walk w;
  hy__walk_begin(&w, out, 1, (const hy_tensor*[]){out});
  while (hy__walk_next(&w)) {
    for (int64_t i = 0; i < w.n; i++) {
      char* to = w.at[0] + i * w.step[0] * w.size[0];
      if (hy__in_double(out->dtype) || value.kind == HY_F64)
        hy__store_f(out->dtype, to, hy_scalar_f(value));
      else
        hy__store_i(out->dtype, to, hy_scalar_i(value));
    }
  }
  return HY_OK;
}

hy_status hy__ref_arange(const hy_call* call) {
  const hy_tensor* out = &call->out[0];
  hy_scalar start = call->attrs.arange.start, step = call->attrs.arange.step;
  bool in_double = hy__in_double(out->dtype);
  for (int64_t i = 0; i < out->shape[0]; i++) {
    char* to = hy__element(out, i);
    if (in_double)
      hy__store_f(out->dtype, to, hy_scalar_f(start) + (double)i * hy_scalar_f(step));
    else
      hy__store_i(
          out->dtype, to,
          (int64_t)((uint64_t)hy_scalar_i(start) + (uint64_t)i * (uint64_t)hy_scalar_i(step)));
  }
  return HY_OK;
}
