// hipBLASLt over cuBLASLt, for tests: a libhipblaslt.so whose entry points translate hipBLASLt's
// numbers and structs and call cuBLASLt's, NVIDIA's own or the one of the emulated GPU
// (tests/vendors/cublaslt). Signatures and numbers are those of hipblaslt.h 0.6 to 1.x (ROCm 6.0 to
// 7), written by hand. What the header or the documents forbid ends the process with code 86:
// numbers that are none, sizes of attributes that are wrong, types that no table lists, a bias
// without its type, a handle on two streams, an algorithm of another description.
//
// Environment: HIP_ON_CUDA_CUBLASLT, the file of cuBLASLt. HIPBLASLT_TEST_VERSION, the version to
// report. HIPBLASLT_TEST_REPORT: says at the end how many products there were.
#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define API __attribute__((visibility("default"))) int
enum { OK = 0, NOT_INITIALIZED = 1, NOT_SUPPORTED = 7 };
enum { F32 = 0, F16 = 2, I8 = 3, I32 = 10, BF16 = 14 };  // as CUDA's
enum { OP_N = 111, OP_T = 112, COMPUTE_32F = 2, COMPUTE_32I = 9, EPILOGUE_BIAS = 4 };
enum { TRANSA = 0, TRANSB = 1, EPILOGUE = 2, BIAS_POINTER = 3, BIAS_DATA_TYPE = 4 };
enum { BATCH_COUNT = 0, STRIDED_BATCH_OFFSET = 1, MAX_WORKSPACE_BYTES = 1 };

static void need(bool condition, const char* what) {
  if (condition) return;
  fprintf(stderr, "hipblaslt on cuda: %s\n", what);
  _exit(86);
}

static void* below(const char* name) {
  static void* library;
  const char* file = getenv("HIP_ON_CUDA_CUBLASLT");
  if (!library) library = dlopen(file ? file : "libcublasLt.so.13", RTLD_NOW | RTLD_LOCAL);
  void* symbol = library ? dlsym(library, name) : NULL;
  need(symbol != NULL, name);
  return symbol;
}
#define CALL(symbol, parameters, ...) (((int(*) parameters)below(symbol))(__VA_ARGS__))

static int products;
__attribute__((destructor)) static void report(void) {
  if (getenv("HIPBLASLT_TEST_REPORT"))
    fprintf(stderr, "hipblaslt on cuda: %d products\n", products);
}

// ---- objects: hipBLASLt's, each with cuBLASLt's below it ----

typedef enum { HANDLE = 0x4b1a5, LAYOUT, DESC, PREFERENCE } kind;
typedef struct {
  kind kind;
  void* cuda;
  void* stream;  // of a handle: the one that it serves
  bool served;
  int type, compute, bias_type;  // of a layout; of a description
  int32_t epilogue;
  const void* bias;
} object;

static object* make(kind k) {
  object* o = calloc(1, sizeof *o);
  o->kind = k;
  o->bias_type = -1;
  o->epilogue = 1;
  return o;
}
static object* is(void* o, kind k) {
  need(o && (uintptr_t)o % 8 == 0 && ((object*)o)->kind == k, "an object of another kind");
  return o;
}
static int destroy(void* o, kind k, const char* symbol) {
  int error = CALL(symbol, (void*), is(o, k)->cuda);
  memset(o, 0, sizeof(object));
  free(o);
  return error;
}

API hipblasLtCreate(object** handle) {
  *handle = make(HANDLE);
  return CALL("cublasLtCreate", (void**), &(*handle)->cuda);
}
API hipblasLtDestroy(void* handle) {
  return destroy(handle, HANDLE, "cublasLtDestroy");
}
API hipblasLtGetVersion(void* handle, int* version) {
  const char* asked = getenv("HIPBLASLT_TEST_VERSION");
  if (!handle) return NOT_INITIALIZED;
  is(handle, HANDLE);
  return *version = asked ? atoi(asked) : 1000, OK;
}

API hipblasLtMatrixLayoutCreate(object** to, int type, uint64_t rows, uint64_t columns,
                                int64_t ld) {
  need(type == F32 || type == F16 || type == BF16 || type == I8 || type == I32,
       "a type that hipBLASLt does not list");
  *to = make(LAYOUT);
  (*to)->type = type;
  return CALL("cublasLtMatrixLayoutCreate", (void**, int, uint64_t, uint64_t, int64_t),
              &(*to)->cuda, type, rows, columns, ld);
}
API hipblasLtMatrixLayoutSetAttribute(void* to, int attribute, const void* value, size_t size) {
  enum { CUDA_BATCH = 5, CUDA_STRIDE = 6 };
  is(to, LAYOUT);
  need(attribute == BATCH_COUNT || attribute == STRIDED_BATCH_OFFSET,
       "an attribute of a layout that these tests do not use");
  need(size == (attribute == BATCH_COUNT ? 4 : 8), "the size of a layout's attribute");
  return CALL("cublasLtMatrixLayoutSetAttribute", (void*, int, const void*, size_t),
              ((object*)to)->cuda, attribute == BATCH_COUNT ? CUDA_BATCH : CUDA_STRIDE, value,
              size);
}
API hipblasLtMatrixLayoutDestroy(void* l) {
  return destroy(l, LAYOUT, "cublasLtMatrixLayoutDestroy");
}

API hipblasLtMatmulDescCreate(object** to, int compute, int scale) {
  enum { CUDA_32F = 68, CUDA_32I = 72 };
  need((compute == COMPUTE_32F && scale == F32) || (compute == COMPUTE_32I && scale == I32),
       "a computation that hipBLASLt does not list");
  *to = make(DESC);
  (*to)->compute = compute;
  return CALL("cublasLtMatmulDescCreate", (void**, int, int), &(*to)->cuda,
              compute == COMPUTE_32F ? CUDA_32F : CUDA_32I, scale);
}
API hipblasLtMatmulDescSetAttribute(void* to, int attribute, const void* value, size_t size) {
  static const int cuda[] = {[TRANSA] = 3, [TRANSB] = 4, [EPILOGUE] = 7, [BIAS_POINTER] = 8};
  object* o = is(to, DESC);
  int32_t word = 0;
  need(attribute >= TRANSA && attribute <= BIAS_DATA_TYPE, "no attribute of these tests");
  need(size == (attribute == BIAS_POINTER ? sizeof(void*) : 4), "the size of an attribute");
  if (attribute == BIAS_POINTER) {
    memcpy(&o->bias, value, size);
  } else {
    memcpy(&word, value, size);
    value = &word;
  }
  if (attribute == EPILOGUE) {
    need(word == EPILOGUE_BIAS, "an epilogue that these tests do not use");
    o->epilogue = word;
  } else if (attribute == BIAS_DATA_TYPE) {
    o->bias_type = word;
    return OK;  // cuBLASLt's bias has the output's type, as this one is found to have
  } else if (attribute == TRANSA || attribute == TRANSB) {
    need(word == OP_N || word == OP_T, "no operation");
    word = word == OP_T;
  }
  return CALL("cublasLtMatmulDescSetAttribute", (void*, int, const void*, size_t), o->cuda,
              cuda[attribute], value, size);
}
API hipblasLtMatmulDescDestroy(void* d) {
  return destroy(d, DESC, "cublasLtMatmulDescDestroy");
}

API hipblasLtMatmulPreferenceCreate(object** to) {
  *to = make(PREFERENCE);
  return CALL("cublasLtMatmulPreferenceCreate", (void**), &(*to)->cuda);
}
API hipblasLtMatmulPreferenceSetAttribute(void* to, int attribute, const void* value, size_t size) {
  enum { CUDA_WORKSPACE = 1 };
  need(attribute == MAX_WORKSPACE_BYTES && size == 8, "a preference that these tests do not use");
  return CALL("cublasLtMatmulPreferenceSetAttribute", (void*, int, const void*, size_t),
              is(to, PREFERENCE)->cuda, CUDA_WORKSPACE, value, size);
}
API hipblasLtMatmulPreferenceDestroy(void* p) {
  return destroy(p, PREFERENCE, "cublasLtMatmulPreferenceDestroy");
}

// ---- products ----

// cublasLtMatmulHeuristicResult_t and hipblasLtMatmulHeuristicResult_t.
typedef struct {
  uint64_t algo[8];
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
} cuda_result;
typedef struct {
  cuda_result* found;  // 16 bytes that are the library's
  const object* desc;
  size_t max_workspace_bytes;
} hip_algo;
typedef struct {
  hip_algo algo;
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
} hip_result;
_Static_assert(sizeof(hip_algo) == 24 && sizeof(hip_result) == 56, "as in hipblaslt.h");

static void check_types(const object* desc, const object* a, const object* b, const object* c,
                        const object* d) {
  need(a->type == b->type && c->type == d->type, "types that differ");
  need(d->type == (a->type == I8 ? I32 : a->type), "an output of a type that is not listed");
  need(desc->compute == (a->type == I8 ? COMPUTE_32I : COMPUTE_32F), "another computation");
  need(desc->epilogue == 1 || (desc->bias && desc->bias_type == d->type),
       "a bias that is not there, or of another type than the output");
}

API hipblasLtMatmulAlgoGetHeuristic(void* handle, void* desc, void* a, void* b, void* c, void* d,
                                    void* preference, int wanted, hip_result* results, int* found) {
  need(wanted >= 1 && results && found, "no place for a result");
  check_types(is(desc, DESC), is(a, LAYOUT), is(b, LAYOUT), is(c, LAYOUT), is(d, LAYOUT));
  cuda_result* best = calloc(1, sizeof *best);
  int error = CALL("cublasLtMatmulAlgoGetHeuristic",
                   (void*, void*, void*, void*, void*, void*, void*, int, void*, int*),
                   is(handle, HANDLE)->cuda, ((object*)desc)->cuda, ((object*)a)->cuda,
                   ((object*)b)->cuda, ((object*)c)->cuda, ((object*)d)->cuda,
                   is(preference, PREFERENCE)->cuda, 1, best, found);
  if (error || *found == 0) {
    free(best);
    return *found = 0, error ? NOT_SUPPORTED : OK;
  }
  results[0] = (hip_result){{best, desc, best->workspace},
                            best->workspace,
                            best->state ? NOT_SUPPORTED : OK,
                            best->waves,
                            {0}};
  return OK;
}

API hipblasLtMatmul(void* handle, void* desc, const void* alpha, const void* a, void* a_layout,
                    const void* b, void* b_layout, const void* beta, const void* c, void* c_layout,
                    void* d, void* d_layout, const hip_algo* algo, void* workspace,
                    size_t workspace_bytes, void* stream) {
  object* h = is(handle, HANDLE);
  check_types(is(desc, DESC), is(a_layout, LAYOUT), is(b_layout, LAYOUT), is(c_layout, LAYOUT),
              is(d_layout, LAYOUT));
  need(alpha && beta && a && b && c && d && algo && workspace, "an argument that is missing");
  need(algo->desc == desc && algo->max_workspace_bytes == algo->found->workspace,
       "an algorithm that was found for another description");
  need(workspace_bytes >= algo->max_workspace_bytes, "a workspace that is too small");
  need(!h->served || h->stream == stream, "a handle on two streams");
  h->stream = stream;
  h->served = true;
  __atomic_add_fetch(&products, 1, __ATOMIC_RELAXED);
  return CALL("cublasLtMatmul",
              (void*, void*, const void*, const void*, void*, const void*, void*, const void*,
               const void*, void*, void*, void*, const void*, void*, size_t, void*),
              h->cuda, ((object*)desc)->cuda, alpha, a, ((object*)a_layout)->cuda, b,
              ((object*)b_layout)->cuda, beta, c, ((object*)c_layout)->cuda, d,
              ((object*)d_layout)->cuda, algo->found->algo, workspace, workspace_bytes, stream);
}
