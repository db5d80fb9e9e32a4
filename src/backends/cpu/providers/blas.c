// The providers `openblas` and `mkl`: float32 products by the cblas interface of a library that is
// bound at run time.
//
// The sums' order is the library's own and may change with the number of threads.
#include <stdatomic.h>
#include <stdio.h>

#include "backends/common/dlsym.h"
#include "backends/cpu/gemm/matmul.h"
#include "backends/cpu/provider.h"
#include "backends/cpu/runtime/thread_pool.h"

enum { ROW_MAJOR = 101, NO_TRANSPOSE = 111, TRANSPOSE = 112 };

#define CBLAS_FUNCTIONS(X)                                                          \
  X(void, cblas_sgemm,                                                              \
    (int order, int transpose_a, int transpose_b, int m, int n, int k, float alpha, \
     const float* a, int lda, const float* b, int ldb, float beta, float* c, int ldc))

typedef struct blas {
  CBLAS_FUNCTIONS(HY__AS_POINTER)
  void (*set_threads)(int n);
  atomic_int threads;  // last given to set_threads
} blas;

static const hy__symbol symbols[] = {
#define AS_SYMBOL(type, name, arguments) {#name, offsetof(blas, name)},
    CBLAS_FUNCTIONS(AS_SYMBOL)
#undef AS_SYMBOL
};

// ---- what it runs ----

typedef struct gemm {
  bool transpose_a, transpose_b;
  int64_t lda, ldb, ldc;
} gemm;

static hy_support describe(const hy_call* call, hy__matmul* p, gemm* g) {
  switch (call->op) {
    case HY_OP_mm:
    case HY_OP_bmm:
    case HY_OP_addmm:
    case HY_OP_linear: break;
    default: return HY_SUPPORT_NO_OP;
  }
  if (call->in[0].dtype != HY_F32) return HY_SUPPORT_NO_DTYPE;
  *g = (gemm){0};
  hy_support answer = hy__matmul_describe(call, p);
  if (answer != HY_SUPPORT_YES) return answer;
  // With an alpha of 0, cblas does not look at the matrices, and NaN in them is lost.
  if (p->alpha == 0) return HY_SUPPORT_NO_ATTRIBUTE;
  if (p->m > INT32_MAX || p->n > INT32_MAX || p->k > INT32_MAX) return HY_SUPPORT_NO_SHAPE;
  bool transpose_c;
  bool fits = hy__matrix_lead(&p->a, p->m, p->k, &g->transpose_a, &g->lda) &&
              hy__matrix_lead(&p->b, p->k, p->n, &g->transpose_b, &g->ldb) &&
              hy__matrix_lead(&p->out, p->m, p->n, &transpose_c, &g->ldc) && !transpose_c;
  if (g->lda > INT32_MAX || g->ldb > INT32_MAX || g->ldc > INT32_MAX) return HY_SUPPORT_NO_SHAPE;
  return fits ? HY_SUPPORT_YES : HY_SUPPORT_NO_LAYOUT;
}

static hy_support supports(void* device, const hy_call* call) {
  (void)device;
  hy__matmul p;
  gemm g;
  return describe(call, &p, &g);
}

// ---- running it ----

// The addend is what cblas adds to: it goes into the output first.
static void place_addend(const hy__matmul* p) {
  for (int64_t i = 0; i < p->m; i++) {
    for (int64_t j = 0; j < p->n; j++)
      *(float*)hy__matrix_at(&p->out, i, j) = *(float*)hy__matrix_at(&p->addend, i, j);
  }
}

static hy_status run(blas* library, const hy_call* call) {
  hy__matmul p;
  gemm g;
  describe(call, &p, &g);
  int threads = hy__pool_threads();
  if (library->set_threads && atomic_exchange(&library->threads, threads) != threads)
    library->set_threads(threads);
  if (p.addend.data) place_addend(&p);
  int how_a = g.transpose_a ? TRANSPOSE : NO_TRANSPOSE;
  int how_b = g.transpose_b ? TRANSPOSE : NO_TRANSPOSE;
  for (int64_t i = 0; i < p.batches; i++)
    library->cblas_sgemm(
        ROW_MAJOR, how_a, how_b, (int)p.m, (int)p.n, (int)p.k, p.alpha,
        (const float*)p.a.data + i * p.a_batch, (int)g.lda, (const float*)p.b.data + i * p.b_batch,
        (int)g.ldb, p.addend.data ? p.beta : 0, (float*)p.out.data + i * p.out_batch, (int)g.ldc);
  return HY_OK;
}

// A product that only a right library gets right.
static hy_status smoke_test(blas* library, hy_probe* report) {
  float a[4] = {1, 2, 3, 4}, b[4] = {5, 6, 7, 8}, c[4] = {0};
  library->cblas_sgemm(ROW_MAJOR, NO_TRANSPOSE, TRANSPOSE, 2, 2, 2, 1, a, 2, b, 2, 0, c, 2);
  if (c[0] != 17 || c[1] != 23 || c[2] != 39 || c[3] != 53)
    return hy__backend_host->fail(HY_UNAVAILABLE, "%s multiplies wrongly: [%g %g %g %g]",
                                  report->library, (double)c[0], (double)c[1], (double)c[2],
                                  (double)c[3]);
  report->stage = HY_STAGE_READY;
  return HY_OK;
}

static const hy_declaration declarations[] = {
    {HY_OP_mm, HY_DTYPE_BIT(HY_F32)},
    {HY_OP_bmm, HY_DTYPE_BIT(HY_F32)},
    {HY_OP_linear, HY_DTYPE_BIT(HY_F32)},
};

// ---- openblas ----

static blas openblas;

static hy_status probe_openblas(hy_probe* report) {
  void* library;
  snprintf(report->remedy, sizeof report->remedy,
           "install it, as with apt-get install libopenblas0-pthread, or set "
           "HALYARD_OPENBLAS_FOLDER to where libopenblas.so.0 is");
  HY_TRY(hy__dlsym_open("libopenblas.so.0 libopenblas.so", "HALYARD_OPENBLAS_FOLDER", NULL, report,
                        &library));
  HY_TRY(hy__dlsym_bind(library, symbols, (int)(sizeof symbols / sizeof symbols[0]), &openblas,
                        report));
  *(void**)&openblas.set_threads = hy__dlsym_optional(library, "openblas_set_num_threads");
  report->stage = HY_STAGE_DEVICES;
  HY_TRY(smoke_test(&openblas, report));
  report->remedy[0] = 0;
  return HY_OK;
}

static hy_status run_openblas(void* device, void* stream, const hy_call* call) {
  (void)device;
  (void)stream;
  return run(&openblas, call);
}

const hy_provider hy__cpu_openblas = {
    .size = sizeof(hy_provider),
    .name = "openblas",
    .version = HY_VERSION_STRING,
    .probe = probe_openblas,
    .declares = declarations,
    .n_declares = (int)(sizeof declarations / sizeof declarations[0]),
    .flags = HY_PROVIDER_BY_NAME | HY_PROVIDER_VARIES,
    .supports = supports,
    .run = run_openblas,
};

// ---- mkl ----

static blas mkl;

// 32-bit sizes, and GNU's threads where they are to be had: the library is only told before its
// first product.
static void choose_layers(void* library) {
  enum { LP64 = 0, GNU_THREADS = 3 };
  int (*set_interface)(int), (*set_threading)(int);
  *(void**)&set_interface = hy__dlsym_optional(library, "MKL_Set_Interface_Layer");
  *(void**)&set_threading = hy__dlsym_optional(library, "MKL_Set_Threading_Layer");
  if (set_interface) set_interface(LP64);
  if (set_threading) set_threading(GNU_THREADS);
}

static hy_status probe_mkl(hy_probe* report) {
  void* library;
  snprintf(
      report->remedy, sizeof report->remedy,
      "install Intel MKL (Python's mkl package carries it) and set HALYARD_MKL_FOLDER to where "
      "libmkl_rt.so.3 or libmkl_rt.so.2 is");
  HY_TRY(hy__dlsym_open("libmkl_rt.so.3 libmkl_rt.so.2 libmkl_rt.so", "HALYARD_MKL_FOLDER",
                        "$MKLROOT/lib $MKLROOT/lib/intel64 $VIRTUAL_ENV/lib $CONDA_PREFIX/lib "
                        "/opt/intel/oneapi/mkl/latest/lib",
                        report, &library));
  HY_TRY(hy__dlsym_bind(library, symbols, (int)(sizeof symbols / sizeof symbols[0]), &mkl, report));
  *(void**)&mkl.set_threads = hy__dlsym_optional(library, "MKL_Set_Num_Threads");
  choose_layers(library);
  report->stage = HY_STAGE_DEVICES;
  HY_TRY(smoke_test(&mkl, report));
  report->remedy[0] = 0;
  return HY_OK;
}

static hy_status run_mkl(void* device, void* stream, const hy_call* call) {
  if (hy__dlsym_forked()) return hy__cpu_run_without_library(device, stream, call);
  return run(&mkl, call);
}

const hy_provider hy__cpu_mkl = {
    .size = sizeof(hy_provider),
    .name = "mkl",
    .version = HY_VERSION_STRING,
    .probe = probe_mkl,
    .declares = declarations,
    .n_declares = (int)(sizeof declarations / sizeof declarations[0]),
    .flags = HY_PROVIDER_BY_NAME | HY_PROVIDER_VARIES,
    .supports = supports,
    .run = run_mkl,
};
