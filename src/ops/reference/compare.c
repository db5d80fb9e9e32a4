// Comparisons and logic: any types in, bool out.
#include "ops/reference/operand.h"
#include "ops/rules/promote.h"

// Written once for both domains; NaN compares unequal to everything, as C does.
#define COMPARE(op, a, b)                                               \
  ((op) == HY_OP_eq || (op) == HY_OP_eq_scalar   ? (a) == (b)           \
   : (op) == HY_OP_ne || (op) == HY_OP_ne_scalar ? (a) != (b)           \
   : (op) == HY_OP_lt || (op) == HY_OP_lt_scalar ? (a) < (b)            \
   : (op) == HY_OP_le || (op) == HY_OP_le_scalar ? (a) <= (b)           \
   : (op) == HY_OP_gt || (op) == HY_OP_gt_scalar ? (a) > (b)            \
   : (op) == HY_OP_ge || (op) == HY_OP_ge_scalar ? (a) >= (b)           \
   : (op) == HY_OP_logical_and                   ? (a) != 0 && (b) != 0 \
   : (op) == HY_OP_logical_or                    ? (a) != 0 || (b) != 0 \
                                                 : ((a) != 0) != ((b) != 0))

hy_status hy__ref_compare(const hy_call* call) {
  const hy_tensor *a = &call->in[0], *b = &call->in[1], *out = &call->out[0];
  hy_dtype type = hy__compute_dtype(call);
  hy__walk w;
  hy__walk_begin(&w, out, 3, (const hy_tensor*[]){out, a, b});
  while (hy__walk_next(&w)) {
    int64_t result[HY__ROW];
    if (hy__in_double(type)) {
      double x[HY__ROW], y[HY__ROW];
      hy__operand_f(&w, 1, a->dtype, type, x);
      hy__operand_f(&w, 2, b->dtype, type, y);
      for (int64_t i = 0; i < w.n; i++) result[i] = COMPARE(call->op, x[i], y[i]);
    } else {
      int64_t x[HY__ROW], y[HY__ROW];
      hy__operand_i(&w, 1, a->dtype, type, x);
      hy__operand_i(&w, 2, b->dtype, type, y);
      for (int64_t i = 0; i < w.n; i++) result[i] = COMPARE(call->op, x[i], y[i]);
    }
    hy__store_row_i(out->dtype, w.at[0], w.step[0], w.n, result);
  }
  return HY_OK;
}

hy_status hy__ref_compare_scalar(const hy_call* call) {
  const hy_tensor *x = &call->in[0], *out = &call->out[0];
  hy_dtype type = hy__compute_dtype(call);
  hy_scalar value = call->attrs.value.value;
  hy__walk w;
  hy__walk_begin(&w, out, 2, (const hy_tensor*[]){out, x});
  while (hy__walk_next(&w)) {
    int64_t result[HY__ROW];
    if (hy__in_double(type)) {
      double row[HY__ROW], number = hy__round_to(type, hy_scalar_f(value));
      hy__operand_f(&w, 1, x->dtype, type, row);
      for (int64_t i = 0; i < w.n; i++) result[i] = COMPARE(call->op, row[i], number);
    } else {
      int64_t row[HY__ROW], number = hy__number_i(value, type);
      hy__operand_i(&w, 1, x->dtype, type, row);
      for (int64_t i = 0; i < w.n; i++) result[i] = COMPARE(call->op, row[i], number);
    }
    hy__store_row_i(out->dtype, w.at[0], w.step[0], w.n, result);
  }
  return HY_OK;
}
