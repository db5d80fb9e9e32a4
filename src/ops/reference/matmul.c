// Matrix products of strided tensors: alpha * (a b) + beta * addend, rounded once.
#include "ops/reference/element.h"
#include "ops/reference/operand.h"
#include "ops/reference/product.h"
#include "ops/reference/walk.h"

// The rows of a are all its dimensions but the last, and likewise of the addend and the output,
// which have the same shape.
typedef struct matmul {
  hy_tensor a, b, addend, out;
  hy_scalar alpha, beta;
} matmul;

static char* address(const hy_tensor* t, int64_t row, int64_t column) {
  return hy__row_address(t, row) +
         column * t->stride[t->ndim - 1] * (int64_t)hy_dtype_size(t->dtype);
}

static int64_t last_stride(const hy_tensor* t) {
  return t->stride[t->ndim - 1];
}

static const char* column_address(const hy_tensor* b, int64_t column) {
  return (const char*)b->data + column * b->stride[1] * (int64_t)hy_dtype_size(b->dtype);
}

static void row_f(const void* context, int64_t i, double* values) {
  const matmul* m = context;
  hy__load_row_f(m->a.dtype, hy__row_address(&m->a, i), last_stride(&m->a), m->b.shape[0], values);
}

static void row_i(const void* context, int64_t i, int64_t* values) {
  const matmul* m = context;
  hy__load_row_i(m->a.dtype, hy__row_address(&m->a, i), last_stride(&m->a), m->b.shape[0], values);
}

static void column_f(const void* context, int64_t j, double* values) {
  const matmul* m = context;
  hy__load_row_f(m->b.dtype, column_address(&m->b, j), m->b.stride[0], m->b.shape[0], values);
}

static void column_i(const void* context, int64_t j, int64_t* values) {
  const matmul* m = context;
  hy__load_row_i(m->b.dtype, column_address(&m->b, j), m->b.stride[0], m->b.shape[0], values);
}

static void put_f(const void* context, int64_t i, int64_t j, int64_t n, double* sums) {
  const matmul* m = context;
  double alpha = hy__number_f(m->alpha, m->out.dtype), beta = hy__number_f(m->beta, m->out.dtype);
  const char* addend = hy__present(&m->addend) ? address(&m->addend, i, j) : NULL;
  int64_t step = addend ? last_stride(&m->addend) * (int64_t)hy_dtype_size(m->addend.dtype) : 0;
  for (int64_t c = 0; c < n; c++) {
    sums[c] *= alpha;
    if (addend) sums[c] += beta * hy__load_f(m->addend.dtype, addend + c * step);
  }
  hy__store_row_f(m->out.dtype, address(&m->out, i, j), last_stride(&m->out), n, sums);
}

static void put_i(const void* context, int64_t i, int64_t j, int64_t n, int64_t* sums) {
  const matmul* m = context;
  uint64_t alpha = (uint64_t)hy_scalar_i(m->alpha), beta = (uint64_t)hy_scalar_i(m->beta);
  const char* addend = hy__present(&m->addend) ? address(&m->addend, i, j) : NULL;
  int64_t step = addend ? last_stride(&m->addend) * (int64_t)hy_dtype_size(m->addend.dtype) : 0;
  for (int64_t c = 0; c < n; c++) {
    uint64_t sum = (uint64_t)sums[c] * alpha;
    if (addend) sum += beta * (uint64_t)hy__load_i(m->addend.dtype, addend + c * step);
    sums[c] = (int64_t)sum;
  }
  hy__store_row_i(m->out.dtype, address(&m->out, i, j), last_stride(&m->out), n, sums);
}

static hy_status multiply(const hy_call* call, const matmul* m) {
  int64_t k = m->b.shape[0], n = m->b.shape[1], rows = 1;
  for (int d = 0; d < m->out.ndim - 1; d++) rows *= m->out.shape[d];
  if (hy__in_double(m->a.dtype))
    return hy__multiply_f(call, &(hy__product_f){rows, n, k, m, row_f, column_f, put_f});
  return hy__multiply_i(call, &(hy__product_i){rows, n, k, m, row_i, column_i, put_i});
}

hy_status hy__ref_mm(const hy_call* call) {
  matmul m = {.a = call->in[0], .b = call->in[1], .out = call->out[0]};
  m.alpha = hy_int(1);
  if (call->op != HY_OP_bmm) return multiply(call, &m);
  int64_t batches = call->in[0].shape[0];
  for (int64_t i = 0; i < batches; i++) {
    HY_TRY(hy_select(&m.a, &call->in[0], 0, i));
    HY_TRY(hy_select(&m.b, &call->in[1], 0, i));
    HY_TRY(hy_select(&m.out, &call->out[0], 0, i));
    HY_TRY(multiply(call, &m));
  }
  return HY_OK;
}

hy_status hy__ref_addmm(const hy_call* call) {
  matmul m = {.a = call->in[1], .b = call->in[2], .out = call->out[0]};
  m.alpha = call->attrs.addmm.alpha;
  m.beta = call->attrs.addmm.beta;
  // As in BLAS, a beta of 0 means that the addend is not read: its NaNs do not spread.
  if (hy_scalar_f(m.beta) != 0) HY_TRY(hy_expand(&m.addend, &call->in[0], m.out.ndim, m.out.shape));
  return multiply(call, &m);
}

hy_status hy__ref_linear(const hy_call* call) {
  matmul m = {.a = call->in[0], .out = call->out[0], .alpha = hy_int(1), .beta = hy_int(1)};
  HY_TRY(hy_transpose(&m.b, &call->in[1], 0, 1));
  if (hy__present(&call->in[2]))
    HY_TRY(hy_expand(&m.addend, &call->in[2], m.out.ndim, m.out.shape));
  return multiply(call, &m);
}
