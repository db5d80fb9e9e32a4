// Matrix products as GEMM: mm, bmm, addmm, linear.
#include <limits.h>
#include <stdatomic.h>

#include "backends/cpu/gemm/matmul.h"
#include "backends/cpu/runtime/thread_pool.h"

bool hy__collapse(const hy_tensor* t, int64_t* rows, int64_t* step) {
  *rows = 1;
  *step = 0;
  for (int d = t->ndim - 2; d >= 0; d--) {
    if (t->shape[d] == 1) continue;
    if (*rows > 1 && t->stride[d] != *rows * *step) return false;
    if (*rows == 1) *step = t->stride[d];
    *rows *= t->shape[d];
  }
  return true;
}

static hy__matrix matrix(const hy_tensor* t, int64_t row, int64_t column) {
  return (hy__matrix){t->data, t->dtype, row, column};
}

static hy_support describe_linear(const hy_call* call, hy__matmul* p) {
  const hy_tensor *x = &call->in[0], *weight = &call->in[1], *bias = &call->in[2];
  hy_tensor* out = &call->out[0];
  int64_t x_row, out_row, rows;
  if (!hy__collapse(x, &p->m, &x_row) || !hy__collapse(out, &rows, &out_row))
    return HY_SUPPORT_NO_LAYOUT;
  p->n = weight->shape[0];
  p->k = weight->shape[1];
  p->a = matrix(x, x_row, x->stride[x->ndim - 1]);
  p->b = matrix(weight, weight->stride[1], weight->stride[0]);
  p->out = matrix(out, out_row, out->stride[out->ndim - 1]);
  if (bias->dtype != HY_NONE) p->addend = matrix(bias, 0, bias->stride[0]);
  return HY_SUPPORT_YES;
}

static void describe_addend(const hy_call* call, hy__matmul* p) {
  const hy_tensor* t = &call->in[0];
  p->alpha = (float)hy_scalar_f(call->attrs.addmm.alpha);
  p->beta = (float)hy_scalar_f(call->attrs.addmm.beta);
  // As in BLAS, a beta of 0 means that the addend is not read.
  if (p->beta == 0) return;
  int n = t->ndim;
  p->addend = matrix(t, n > 1 && t->shape[n - 2] > 1 ? t->stride[n - 2] : 0,
                     n > 0 && t->shape[n - 1] > 1 ? t->stride[n - 1] : 0);
}

hy_support hy__matmul_describe(const hy_call* call, hy__matmul* p) {
  *p = (hy__matmul){.batches = 1, .alpha = 1, .beta = 1};
  if (call->op == HY_OP_linear) return describe_linear(call, p);
  const hy_tensor* a = call->op == HY_OP_addmm ? &call->in[1] : &call->in[0];
  const hy_tensor *b = a + 1, *out = &call->out[0];
  int d = a->ndim - 2;
  p->m = a->shape[d];
  p->k = a->shape[d + 1];
  p->n = b->shape[d + 1];
  p->a = matrix(a, a->stride[d], a->stride[d + 1]);
  p->b = matrix(b, b->stride[d], b->stride[d + 1]);
  p->out = matrix(out, out->stride[d], out->stride[d + 1]);
  if (call->op == HY_OP_addmm) describe_addend(call, p);
  if (call->op == HY_OP_bmm) {
    p->batches = a->shape[0];
    p->a_batch = a->stride[0];
    p->b_batch = b->stride[0];
    p->out_batch = out->stride[0];
  }
  return HY_SUPPORT_YES;
}

bool hy__matrix_lead(const hy__matrix* m, int64_t rows, int64_t columns, bool* transposed,
                     int64_t* lead) {
  *transposed = !(m->column == 1 || columns == 1);
  if (*transposed && m->row != 1 && rows != 1) return false;
  int64_t length = *transposed ? rows : columns, lines = *transposed ? columns : rows;
  int64_t step = *transposed ? m->column : m->row;
  *lead = lines > 1 ? step : length;
  if (*lead < 1) *lead = 1;
  return *lead >= length && (lines == 1 || step > 0);
}

// One product of the batch, and where its tiles go.
typedef struct target {
  const hy__cpu_kernels* kernels;
  const hy__matmul* p;
  hy__matrix out;
} target;

static void finish(const void* context, int64_t i, int64_t j, int m, int n, float* tile,
                   int64_t stride) {
  const target* t = context;
  const hy__matrix* addend = &t->p->addend;
  for (int r = 0; r < m; r++)
    t->kernels->gemm.epilogue(n, tile + r * stride, t->p->alpha, t->p->beta,
                              addend->data ? hy__matrix_at(addend, i + r, j) : NULL, addend->column,
                              hy__matrix_at(&t->out, i + r, j), t->out.column, t->out.dtype);
}

// How a call is to be run.
typedef struct choice {
  int tiles;
  const float* packed_b;  // NULL: b is read
} choice;

static bool multiply(const hy__cpu_kernels* kernels, const hy__matmul* p, choice how,
                     int64_t batch) {
  hy__gemm g = {.m = p->m,
                .n = p->n,
                .k = p->k,
                .a = p->a,
                .b = p->b,
                .tiles = how.tiles,
                .packed_b = how.packed_b};
  target t = {kernels, p, p->out};
  g.a.data = hy__matrix_at(&p->a, 0, 0) + batch * p->a_batch * (int64_t)hy_dtype_size(p->a.dtype);
  g.b.data = hy__matrix_at(&p->b, 0, 0) + batch * p->b_batch * (int64_t)hy_dtype_size(p->b.dtype);
  t.out.data =
      hy__matrix_at(&p->out, 0, 0) + batch * p->out_batch * (int64_t)hy_dtype_size(p->out.dtype);
  if (p->out.dtype == HY_F32 && p->out.column == 1 && p->alpha == 1 && !p->addend.data) {
    g.c = t.out.data;
    g.ldc = p->out.row;
  } else {
    g.epilogue = finish;
    g.context = &t;
  }
  return hy__gemm_any(&kernels->gemm, &g);
}

typedef struct batch {
  const hy__cpu_kernels* kernels;
  const hy__matmul* p;
  choice how;
  atomic_bool failed;
} batch;

static void multiply_one(void* context, int64_t i) {
  batch* b = context;
  if (!multiply(b->kernels, b->p, b->how, i)) atomic_store(&b->failed, true);
}

static hy_status run_as(const hy__cpu_kernels* kernels, const hy_call* call, choice how) {
  hy__matmul p;
  hy__matmul_describe(call, &p);
  batch b = {.kernels = kernels, .p = &p, .how = how};
  // Many products are spread over the threads whole; a few are each divided among them.
  if (p.batches >= 2 * (int64_t)hy__pool_threads()) {
    hy__pool_run(multiply_one, &b, p.batches);
  } else {
    for (int64_t i = 0; i < p.batches; i++) multiply_one(&b, i);
  }
  return atomic_load(&b.failed) ? hy__cpu_no_memory(call) : HY_OK;
}

hy_status hy__matmul_tiled(const hy__cpu_kernels* kernels, const hy_call* call, int tiles) {
  return run_as(kernels, call, (choice){.tiles = tiles});
}

static hy_status run(const hy__cpu_kernels* kernels, const hy_call* call) {
  return run_as(kernels, call, (choice){0});
}

// ---- packed weights ----

// With more rows packing is less than a fiftieth of a product.
enum { PACKED_ROWS = 512 };

// Operands of one type alone, so that the form depends on the matrix.
uint64_t hy__matmul_packed_bytes(const hy__cpu_kernels* kernels, const hy_call* call,
                                 hy_tensor* matrix) {
  hy__matmul p;
  hy__matmul_describe(call, &p);
  const hy__gemm g = {.m = p.m, .n = p.n, .k = p.k, .a = p.a, .b = p.b};
  if (call->op == HY_OP_bmm || p.a.dtype != p.b.dtype || p.a.dtype == HY_F16 || p.m == 0 ||
      p.m > PACKED_ROWS || p.k == 0 || p.k > INT_MAX)
    return 0;
  const hy__gemm_kernel* kernel = hy__gemm_packing_kernel(&kernels->gemm, &g);
  if (!kernel) return 0;
  *matrix = (hy_tensor){.data = p.b.data,
                        .dtype = p.b.dtype,
                        .ndim = 2,
                        .shape = {p.k, p.n},
                        .stride = {p.b.row, p.b.column}};
  return hy__gemm_packed_bytes(kernel, p.k, p.n);
}

void hy__matmul_pack(const hy__cpu_kernels* kernels, const hy_tensor* matrix, void* packed) {
  hy__matrix b = {matrix->data, matrix->dtype, matrix->stride[0], matrix->stride[1]};
  bool halves = matrix->dtype == HY_BF16 && kernels->gemm.bf16;
  hy__gemm_pack_b(halves ? kernels->gemm.bf16 : kernels->gemm.f32, &b, matrix->shape[0],
                  matrix->shape[1], packed);
}

hy_status hy__matmul_packed(const hy__cpu_kernels* kernels, const hy_call* call,
                            const void* packed) {
  return run_as(kernels, call, (choice){.packed_b = packed});
}

static hy_support supports(const hy_call* call) {
  hy__matmul p;
  return hy__matmul_describe(call, &p);
}

const hy__cpu_family hy__cpu_matmul = {supports, run};
