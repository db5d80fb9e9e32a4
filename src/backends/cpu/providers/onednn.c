// The provider `mkldnn`: products in float32 and bfloat16 by oneDNN, of version 2 (as Debian has
// it) or 3, bound at run time.
//
// The two versions describe memory and operations differently: version 2 by structs that the caller
// holds, version 3 by handles. Formats are given by strides alone, whose meaning did not change.
// The sums' order is the library's own and may change with the number of threads.
#include <stdio.h>
#include <string.h>

#include "backends/common/dlsym.h"
#include "backends/cpu/gemm/matmul.h"
#include "backends/cpu/provider.h"
#include "backends/cpu/runtime/thread_pool.h"
#include "backends/cpu/simd/nonfinite.h"

enum { CPU = 1, IN_ORDER = 1, BF16 = 2, F32 = 3, SRC = 1, DST = 17, WEIGHTS = 33, BIAS = 41 };
enum { MAX_DIMS = 12, MAX_DESC = 16384 };  // the largest struct of version 2 takes some 5 KiB

typedef struct version {
  int major, minor, patch;
} version;

typedef struct argument {
  int id;
  void* memory;
} argument;

#define COMMON_FUNCTIONS(X)                                                               \
  X(const version*, dnnl_version, (void))                                                 \
  X(int, dnnl_engine_create, (void** engine, int kind, size_t index))                     \
  X(int, dnnl_stream_create, (void** stream, void* engine, unsigned flags))               \
  X(int, dnnl_stream_destroy, (void* stream))                                             \
  X(int, dnnl_stream_wait, (void* stream))                                                \
  X(int, dnnl_memory_create, (void** memory, const void* desc, void* engine, void* data)) \
  X(int, dnnl_memory_destroy, (void* memory))                                             \
  X(int, dnnl_primitive_create, (void** primitive, const void* desc))                     \
  X(int, dnnl_primitive_destroy, (void* primitive))                                       \
  X(int, dnnl_primitive_desc_destroy, (void* desc))                                       \
  X(int, dnnl_primitive_execute,                                                          \
    (const void* primitive, void* stream, int count, const argument* arguments))

#define VERSION_2_FUNCTIONS(X)                                                             \
  X(int, dnnl_memory_desc_init_by_strides,                                                 \
    (void* desc, int ndims, const int64_t* dims, int dtype, const int64_t* strides))       \
  X(int, dnnl_matmul_desc_init,                                                            \
    (void* desc, const void* src, const void* weights, const void* bias, const void* dst)) \
  X(int, dnnl_primitive_desc_create,                                                       \
    (void** out, const void* desc, const void* attr, void* engine, const void* hint))

#define VERSION_3_FUNCTIONS(X)                                                         \
  X(int, dnnl_memory_desc_create_with_strides,                                         \
    (void** desc, int ndims, const int64_t* dims, int dtype, const int64_t* strides))  \
  X(int, dnnl_memory_desc_destroy, (void* desc))                                       \
  X(int, dnnl_matmul_primitive_desc_create,                                            \
    (void** out, void* engine, const void* src, const void* weights, const void* bias, \
     const void* dst, const void* attr))

static struct functions {
  COMMON_FUNCTIONS(HY__AS_POINTER)
  VERSION_2_FUNCTIONS(HY__AS_POINTER)
  VERSION_3_FUNCTIONS(HY__AS_POINTER)
  void (*omp_set_num_threads)(int n);  // of the library's OpenMP, if it uses one
  void* engine;
  int major;
} dnnl;

#define AS_SYMBOL(type, name, arguments) {#name, offsetof(struct functions, name)},
static const hy__symbol common_symbols[] = {COMMON_FUNCTIONS(AS_SYMBOL)};
static const hy__symbol version_2_symbols[] = {VERSION_2_FUNCTIONS(AS_SYMBOL)};
static const hy__symbol version_3_symbols[] = {VERSION_3_FUNCTIONS(AS_SYMBOL)};
#undef AS_SYMBOL
#define COUNT(array) ((int)(sizeof(array) / sizeof(array)[0]))

// ---- what it runs ----

static hy_support describe(const hy_call* call, hy__matmul* p) {
  if (call->op != HY_OP_mm && call->op != HY_OP_bmm && call->op != HY_OP_linear)
    return HY_SUPPORT_NO_OP;
  if (call->in[0].dtype != HY_F32 && call->in[0].dtype != HY_BF16) return HY_SUPPORT_NO_DTYPE;
  hy_support answer = hy__matmul_describe(call, p);
  if (answer != HY_SUPPORT_YES) return answer;
  bool transposed;
  int64_t lead;
  bool fits = hy__matrix_lead(&p->a, p->m, p->k, &transposed, &lead) &&
              hy__matrix_lead(&p->b, p->k, p->n, &transposed, &lead) &&
              hy__matrix_lead(&p->out, p->m, p->n, &transposed, &lead) && !transposed;
  if (p->batches > 1 && (p->a_batch <= 0 || p->b_batch <= 0 || p->out_batch <= 0)) fits = false;
  if (p->addend.data && p->addend.column != 1) fits = false;
  return fits ? HY_SUPPORT_YES : HY_SUPPORT_NO_LAYOUT;
}

static hy_support supports(void* device, const hy_call* call) {
  (void)device;
  hy__matmul p;
  return describe(call, &p);
}

// ---- running it ----

// The memory of one argument: a batch of matrices. In version 2 the description is in `bytes`.
typedef struct operand {
  _Alignas(16) unsigned char bytes[1024];
  void *desc, *memory;
} operand;

static bool describe_operand(operand* o, const hy__matrix* m, int64_t batches, int64_t step,
                             int64_t rows, int64_t columns) {
  int dtype = m->dtype == HY_F32 ? F32 : BF16;
  bool transposed;
  int64_t lead, dims[MAX_DIMS] = {batches, rows, columns}, strides[MAX_DIMS];
  hy__matrix_lead(m, rows, columns, &transposed, &lead);
  strides[0] = batches > 1 ? step : lead * (transposed ? columns : rows);
  strides[1] = transposed ? 1 : lead;
  strides[2] = transposed ? lead : 1;
  int failed;
  if (dnnl.major >= 3) {
    failed = dnnl.dnnl_memory_desc_create_with_strides(&o->desc, 3, dims, dtype, strides);
  } else {
    o->desc = o->bytes;
    failed = dnnl.dnnl_memory_desc_init_by_strides(o->desc, 3, dims, dtype, strides);
  }
  return !failed && !dnnl.dnnl_memory_create(&o->memory, o->desc, dnnl.engine, m->data);
}

static void release_operand(operand* o) {
  if (o->memory) dnnl.dnnl_memory_destroy(o->memory);
  if (dnnl.major >= 3 && o->desc) dnnl.dnnl_memory_desc_destroy(o->desc);
}

static int create_primitive(const operand* src, const operand* weights, const operand* bias,
                            const operand* dst, void** primitive) {
  void* desc = NULL;
  int failed;
  if (dnnl.major >= 3) {
    failed = dnnl.dnnl_matmul_primitive_desc_create(&desc, dnnl.engine, src->desc, weights->desc,
                                                    bias->desc, dst->desc, NULL);
  } else {
    _Alignas(16) unsigned char op[MAX_DESC];
    failed = dnnl.dnnl_matmul_desc_init(op, src->desc, weights->desc, bias->desc, dst->desc);
    if (!failed) failed = dnnl.dnnl_primitive_desc_create(&desc, op, NULL, dnnl.engine, NULL);
  }
  if (failed) return failed;
  failed = dnnl.dnnl_primitive_create(primitive, desc);
  dnnl.dnnl_primitive_desc_destroy(desc);
  return failed;
}

static int execute(void* primitive, const operand* o, bool has_bias) {
  argument arguments[4] = {
      {SRC, o[0].memory}, {WEIGHTS, o[1].memory}, {DST, o[2].memory}, {BIAS, o[3].memory}};
  void* stream;
  int failed = dnnl.dnnl_stream_create(&stream, dnnl.engine, IN_ORDER);
  if (failed) return failed;
  failed = dnnl.dnnl_primitive_execute(primitive, stream, has_bias ? 4 : 3, arguments);
  if (!failed) failed = dnnl.dnnl_stream_wait(stream);
  dnnl.dnnl_stream_destroy(stream);
  return failed;
}

static bool multiply(const hy__matmul* p) {
  operand o[4];  // src, weights, dst, bias
  void* primitive = NULL;
  for (int i = 0; i < 4; i++) o[i].desc = o[i].memory = NULL;
  if (dnnl.omp_set_num_threads) dnnl.omp_set_num_threads(hy__pool_threads());
  bool done = describe_operand(&o[0], &p->a, p->batches, p->a_batch, p->m, p->k) &&
              describe_operand(&o[1], &p->b, p->batches, p->b_batch, p->k, p->n) &&
              describe_operand(&o[2], &p->out, p->batches, p->out_batch, p->m, p->n) &&
              (!p->addend.data || describe_operand(&o[3], &p->addend, 1, 0, 1, p->n)) &&
              !create_primitive(&o[0], &o[1], &o[3], &o[2], &primitive) &&
              !execute(primitive, o, p->addend.data);
  if (primitive) dnnl.dnnl_primitive_destroy(primitive);
  for (int i = 0; i < 4; i++) release_operand(&o[i]);
  return done;
}

static hy_status run(void* device, void* stream, const hy_call* call) {
  if (hy__dlsym_forked()) return hy__cpu_run_without_library(device, stream, call);
  hy__matmul p = {0};
  describe(call, &p);
  if (p.k == 0) return hy__backend_host->reference(call);  // oneDNN would leave the output
  // Where it has no bf16 instructions, version 2 makes NaN of infinities.
  if (call->in[0].dtype == HY_BF16 &&
      !(hy__tensor_is_finite(&call->in[0]) && hy__tensor_is_finite(&call->in[1])))
    return hy__backend_host->reference(call);
  if (multiply(&p)) return HY_OK;
  return hy__backend_host->fail(HY_DEVICE_FAILED, "%s: oneDNN %d could not run it",
                                hy__backend_host->op_name(call->op), dnnl.major);
}

// ---- finding it ----

static hy_status check_version(hy_probe* report) {
  const version* v = dnnl.dnnl_version();
  dnnl.major = v->major;
  if (v->major < 2)
    return hy__backend_host->fail(HY_UNAVAILABLE, "oneDNN %d.%d.%d is too old; 2 is the least",
                                  v->major, v->minor, v->patch);
  report->stage = HY_STAGE_VERSION;
  return HY_OK;
}

static hy_status smoke_test(hy_probe* report) {
  float a[4] = {1, 2, 3, 4}, b[4] = {5, 6, 7, 8}, c[4] = {0};
  hy__matmul p = {.batches = 1, .m = 2, .n = 2, .k = 2};
  p.a = (hy__matrix){a, HY_F32, 2, 1};
  p.b = (hy__matrix){b, HY_F32, 1, 2};
  p.out = (hy__matrix){c, HY_F32, 2, 1};
  if (!multiply(&p) || c[0] != 17 || c[1] != 23 || c[2] != 39 || c[3] != 53)
    return hy__backend_host->fail(HY_UNAVAILABLE, "%s does not multiply 2 x 2 matrices",
                                  report->library);
  report->stage = HY_STAGE_READY;
  return HY_OK;
}

static hy_status bind(void* library, hy_probe* report) {
  HY_TRY(hy__dlsym_bind(library, common_symbols, COUNT(common_symbols), &dnnl, report));
  HY_TRY(check_version(report));
  if (dnnl.major >= 3)
    HY_TRY(hy__dlsym_bind(library, version_3_symbols, COUNT(version_3_symbols), &dnnl, report));
  else
    HY_TRY(hy__dlsym_bind(library, version_2_symbols, COUNT(version_2_symbols), &dnnl, report));
  *(void**)&dnnl.omp_set_num_threads = hy__dlsym_optional(library, "omp_set_num_threads");
  return HY_OK;
}

static hy_status probe(hy_probe* report) {
  void* library;
  snprintf(report->remedy, sizeof report->remedy,
           "install it, as with apt-get install libdnnl2, or set HALYARD_DNNL_FOLDER to where "
           "libdnnl.so.3 or libdnnl.so.2 is");
  HY_TRY(hy__dlsym_open("libdnnl.so.3 libdnnl.so.2", "HALYARD_DNNL_FOLDER",
                        "$VIRTUAL_ENV/lib $CONDA_PREFIX/lib /opt/intel/oneapi/dnnl/latest/lib",
                        report, &library));
  HY_TRY(bind(library, report));
  if (dnnl.dnnl_engine_create(&dnnl.engine, CPU, 0) != 0)
    return hy__backend_host->fail(HY_UNAVAILABLE, "%s offers no engine for the processor",
                                  report->library);
  report->stage = HY_STAGE_DEVICES;
  HY_TRY(smoke_test(report));
  report->remedy[0] = 0;
  return HY_OK;
}

static const hy_declaration declarations[] = {
    {HY_OP_mm, HY_DTYPE_BIT(HY_F32) | HY_DTYPE_BIT(HY_BF16)},
    {HY_OP_bmm, HY_DTYPE_BIT(HY_F32) | HY_DTYPE_BIT(HY_BF16)},
    {HY_OP_linear, HY_DTYPE_BIT(HY_F32) | HY_DTYPE_BIT(HY_BF16)},
};

const hy_provider hy__cpu_mkldnn = {
    .size = sizeof(hy_provider),
    .name = "mkldnn",
    .version = HY_VERSION_STRING,
    .probe = probe,
    .declares = declarations,
    .n_declares = COUNT(declarations),
    .flags = HY_PROVIDER_BY_NAME | HY_PROVIDER_VARIES,
    .supports = supports,
    .run = run,
};
