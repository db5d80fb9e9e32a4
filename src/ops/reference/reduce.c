// Reductions. Sums run in row-major order of the reduced dimensions.
#include <math.h>

#include "ops/reference/arithmetic.h"
#include "ops/reference/slices.h"
#include "ops/rules/common.h"

#define EACH_ROW(w, slice)                                   \
  hy__walk w;                                                \
  hy__walk_begin(&w, slice, 1, (const hy_tensor*[]){slice}); \
  while (hy__walk_next(&w))

static double reduce_f(hy_op op, const hy_tensor* slice) {
  double total = op == HY_OP_prod || op == HY_OP_all ? 1
                 : op == HY_OP_max                   ? -INFINITY
                 : op == HY_OP_min                   ? INFINITY
                                                     : 0;
  EACH_ROW(w, slice) {
    double row[HY__ROW];
    hy__load_row_f(slice->dtype, w.at[0], w.step[0], w.n, row);
    for (int64_t i = 0; i < w.n; i++) {
      double v = row[i];
      switch (op) {
        case HY_OP_prod: total *= v; break;
        case HY_OP_max: total = isnan(v) || v > total ? v : total; break;
        case HY_OP_min: total = isnan(v) || v < total ? v : total; break;
        case HY_OP_any: total = total != 0 || v != 0; break;
        case HY_OP_all: total = total != 0 && v != 0; break;
        default: total += v;
      }
    }
  }
  return op == HY_OP_mean ? total / (double)hy_tensor_numel(slice) : total;
}

static int64_t reduce_i(hy_op op, const hy_tensor* slice) {
  int64_t total = op == HY_OP_prod || op == HY_OP_all ? 1
                  : op == HY_OP_max                   ? INT64_MIN
                  : op == HY_OP_min                   ? INT64_MAX
                                                      : 0;
  EACH_ROW(w, slice) {
    int64_t row[HY__ROW];
    hy__load_row_i(slice->dtype, w.at[0], w.step[0], w.n, row);
    for (int64_t i = 0; i < w.n; i++) {
      int64_t v = row[i];
      switch (op) {
        case HY_OP_prod: total = hy__mul_i(total, v); break;
        case HY_OP_max: total = v > total ? v : total; break;
        case HY_OP_min: total = v < total ? v : total; break;
        case HY_OP_any: total = total != 0 || v != 0; break;
        case HY_OP_all: total = total != 0 && v != 0; break;
        default: total = hy__add_i(total, v);
      }
    }
  }
  return total;
}

hy_status hy__ref_reduce(const hy_call* call) {
  const hy_tensor* x = &call->in[0];
  uint32_t mask;
  HY_TRY(hy__dims_mask(call, &call->attrs.reduce.dims, x->ndim, &mask));
  hy_tensor out = hy__keep_dims(&call->out[0], x->ndim, mask);
  hy__ref_slices l;
  hy__ref_slices_begin(&l, mask, 2, (const hy_tensor*[]){x, &out});
  while (hy__ref_slices_next(&l)) {
    if (hy__in_double(x->dtype))
      hy__store_f(out.dtype, l.slice[1].data, reduce_f(call->op, &l.slice[0]));
    else
      hy__store_i(out.dtype, l.slice[1].data, reduce_i(call->op, &l.slice[0]));
  }
  return HY_OK;
}

// In two passes: the mean, then the squares around it. A correction that leaves no degree of
// freedom divides by 0.
hy_status hy__ref_var(const hy_call* call) {
  const hy_tensor* x = &call->in[0];
  uint32_t mask;
  HY_TRY(hy__dims_mask(call, &call->attrs.var.dims, x->ndim, &mask));
  hy_tensor out = hy__keep_dims(&call->out[0], x->ndim, mask);
  hy__ref_slices l;
  hy__ref_slices_begin(&l, mask, 2, (const hy_tensor*[]){x, &out});
  while (hy__ref_slices_next(&l)) {
    const hy_tensor* slice = &l.slice[0];
    double mean = reduce_f(HY_OP_mean, slice), squares = 0;
    EACH_ROW(w, slice) {
      double row[HY__ROW];
      hy__load_row_f(slice->dtype, w.at[0], w.step[0], w.n, row);
      for (int64_t i = 0; i < w.n; i++) squares += (row[i] - mean) * (row[i] - mean);
    }
    double freedom = fmax(0, (double)hy_tensor_numel(slice) - call->attrs.var.correction);
    hy__store_f(out.dtype, l.slice[1].data, squares / freedom);
  }
  return HY_OK;
}

// Where the greatest (or least) element of a slice is: the first of equals; NaN beats every
// number.
static int64_t find_extreme(const hy_tensor* slice, bool greatest) {
  int64_t best = 0;
  if (hy__in_double(slice->dtype)) {
    double value = NAN;
    EACH_ROW(w, slice) {
      double row[HY__ROW];
      hy__load_row_f(slice->dtype, w.at[0], w.step[0], w.n, row);
      for (int64_t i = 0; i < w.n; i++) {
        bool first = w.first + i == 0;
        bool beats = greatest ? row[i] > value : row[i] < value;
        if (first || beats || (isnan(row[i]) && !isnan(value))) {
          value = row[i];
          best = w.first + i;
        }
      }
    }
  } else {
    int64_t value = 0;
    EACH_ROW(w, slice) {
      int64_t row[HY__ROW];
      hy__load_row_i(slice->dtype, w.at[0], w.step[0], w.n, row);
      for (int64_t i = 0; i < w.n; i++) {
        bool first = w.first + i == 0;
        if (first || (greatest ? row[i] > value : row[i] < value)) {
          value = row[i];
          best = w.first + i;
        }
      }
    }
  }
  return best;
}

hy_status hy__ref_argmax(const hy_call* call) {
  const hy_tensor* x = &call->in[0];
  uint32_t mask;
  HY_TRY(hy__dims_mask(call, &call->attrs.reduce.dims, x->ndim, &mask));
  hy_tensor index = hy__keep_dims(&call->out[0], x->ndim, mask);
  hy__ref_slices l;
  hy__ref_slices_begin(&l, mask, 2, (const hy_tensor*[]){x, &index});
  while (hy__ref_slices_next(&l))
    hy__store_i(HY_I64, l.slice[1].data, find_extreme(&l.slice[0], call->op == HY_OP_argmax));
  return HY_OK;
}

hy_status hy__ref_max_dim(const hy_call* call) {
  const hy_tensor* x = &call->in[0];
  uint32_t mask;
  HY_TRY(hy__dims_mask(call, &call->attrs.reduce.dims, x->ndim, &mask));
  hy_tensor out = hy__keep_dims(&call->out[0], x->ndim, mask);
  hy_tensor index = hy__keep_dims(&call->out[1], x->ndim, mask);
  hy__ref_slices l;
  hy__ref_slices_begin(&l, mask, 3, (const hy_tensor*[]){x, &out, &index});
  while (hy__ref_slices_next(&l)) {
    int64_t best = find_extreme(&l.slice[0], call->op == HY_OP_max_dim);
    const char* from = hy__ref_slice_element(&l.slice[0], best);
    if (hy__in_double(x->dtype))
      hy__store_f(x->dtype, l.slice[1].data, hy__load_f(x->dtype, from));
    else
      hy__store_i(x->dtype, l.slice[1].data, hy__load_i(x->dtype, from));
    hy__store_i(HY_I64, l.slice[2].data, best);
  }
  return HY_OK;
}

// Runs from the front, or from the back with `reverse`.
hy_status hy__ref_cumsum(const hy_call* call) {
  const hy_tensor *x = &call->in[0], *out = &call->out[0];
  uint32_t mask = x->ndim > 0 ? 1u << hy__wrap_dim(call->attrs.scan.dim, x->ndim) : 0;
  hy__ref_slices l;
  hy__ref_slices_begin(&l, mask, 2, (const hy_tensor*[]){x, out});
  while (hy__ref_slices_next(&l)) {
    const hy_tensor *from = &l.slice[0], *to = &l.slice[1];
    int64_t n = hy_tensor_numel(from);
    double total_f = 0;
    int64_t total_i = 0;
    for (int64_t i = 0; i < n; i++) {
      int64_t at = call->attrs.scan.reverse ? n - 1 - i : i;
      if (hy__in_double(x->dtype)) {
        total_f += hy__load_f(x->dtype, hy__ref_slice_element(from, at));
        hy__store_f(out->dtype, hy__ref_slice_element(to, at), total_f);
      } else {
        total_i = hy__add_i(total_i, hy__load_i(x->dtype, hy__ref_slice_element(from, at)));
        hy__store_i(out->dtype, hy__ref_slice_element(to, at), total_i);
      }
    }
  }
  return HY_OK;
}
