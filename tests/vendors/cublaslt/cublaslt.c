// libcublasLt.so.13 for tests on the emulated GPU: the functions of cublasLt.h (12 and 13) for a
// product with a bias, summed in double. What the documents forbid ends the process with code 86:
// numbers that are none, sizes of attributes that are wrong, types that do not go together, shapes,
// strides and addresses that do not fit, an algorithm that was found for another product.
//
// CUBLASLT_TEST_ALGORITHMS=none: the heuristics find nothing; unfit: what they find has a bad
// status. CUBLASLT_TEST_REPORT: says at the end how many products there were.
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OK = 0, NOT_SUPPORTED = 15 };
enum { F32 = 0, F64 = 1, F16 = 2, I8 = 3, I32 = 10, BF16 = 14 };
enum { COMPUTE_F32 = 68, COMPUTE_F64 = 70, COMPUTE_I32 = 72 };
enum { MAGIC = 0x1b1a50, WORKSPACE = 4096 };

int emu_enqueue(void* stream, void (*work)(void*), void* context);  // of the emulator

static void need(bool condition, const char* what) {
  if (condition) return;
  fprintf(stderr, "cublaslt: %s\n", what);
  _exit(86);
}

static int products;
__attribute__((destructor)) static void report(void) {
  if (getenv("CUBLASLT_TEST_REPORT")) fprintf(stderr, "cublaslt: %d products\n", products);
}

// ---- objects ----

typedef enum { HANDLE = 1, LAYOUT, DESC, PREFERENCE } kind;
typedef struct {
  int magic;
  kind kind;
} object;
typedef struct {
  object is;
  int type;
  int64_t rows, columns, ld, stride;
  int32_t batch;
} layout;
typedef struct {
  object is;
  int compute, scale;
  int32_t transpose_a, transpose_b, epilogue;
  const void* bias;
} desc;
typedef struct {
  object is;
  uint64_t workspace;
} preference;

static void* make(kind k, size_t size) {
  object* o = calloc(1, size);
  *o = (object){MAGIC, k};
  return o;
}
static void is(const void* o, kind k) {
  need(o && (uintptr_t)o % 8 == 0 && ((const object*)o)->magic == MAGIC &&
           ((const object*)o)->kind == k,
       "an object of another kind, or of none");
}
static int destroy(void* o, kind k) {
  is(o, k);
  memset(o, 0, sizeof(object));
  free(o);
  return OK;
}

int cublasLtCreate(void** handle);
int cublasLtCreate(void** handle) {
  return *handle = make(HANDLE, sizeof(object)), OK;
}
int cublasLtDestroy(void* handle);
int cublasLtDestroy(void* handle) {
  return destroy(handle, HANDLE);
}

static int size_of(int type) {
  return type == F64 ? 8 : type == F32 || type == I32 ? 4 : type == I8 ? 1 : 2;
}

int cublasLtMatrixLayoutCreate(void** to, int type, uint64_t rows, uint64_t columns, int64_t ld);
int cublasLtMatrixLayoutCreate(void** to, int type, uint64_t rows, uint64_t columns, int64_t ld) {
  need(type == F32 || type == F64 || type == F16 || type == I8 || type == I32 || type == BF16,
       "no type of a matrix");
  need(rows > 0 && columns > 0 && rows < INT32_MAX && columns < INT32_MAX, "a shape");
  need(ld >= (int64_t)rows, "a leading dimension that is too small");
  layout* l = make(LAYOUT, sizeof *l);
  l->type = type;
  l->rows = (int64_t)rows;
  l->columns = (int64_t)columns;
  l->ld = ld;
  l->batch = 1;
  return *to = l, OK;
}
int cublasLtMatrixLayoutSetAttribute(void* to, int attribute, const void* value, size_t size);
int cublasLtMatrixLayoutSetAttribute(void* to, int attribute, const void* value, size_t size) {
  layout* l = to;
  is(to, LAYOUT);
  need(attribute == 5 || attribute == 6, "an attribute of a layout that these tests do not use");
  need(size == (attribute == 5 ? 4 : 8), "an attribute's size");
  memcpy(attribute == 5 ? (void*)&l->batch : (void*)&l->stride, value, size);
  need(l->batch > 0, "a number of matrices");
  return OK;
}
int cublasLtMatrixLayoutDestroy(void* l);
int cublasLtMatrixLayoutDestroy(void* l) {
  return destroy(l, LAYOUT);
}

int cublasLtMatmulDescCreate(void** to, int compute, int scale);
int cublasLtMatmulDescCreate(void** to, int compute, int scale) {
  need((compute == COMPUTE_F32 && scale == F32) || (compute == COMPUTE_F64 && scale == F64) ||
           (compute == COMPUTE_I32 && scale == I32),
       "a computation and a type of scales that do not go together");
  desc* d = make(DESC, sizeof *d);
  d->compute = compute;
  d->scale = scale;
  d->epilogue = 1;
  return *to = d, OK;
}
int cublasLtMatmulDescSetAttribute(void* to, int attribute, const void* value, size_t size);
int cublasLtMatmulDescSetAttribute(void* to, int attribute, const void* value, size_t size) {
  desc* d = to;
  is(to, DESC);
  void* field = attribute == 3   ? (void*)&d->transpose_a
                : attribute == 4 ? (void*)&d->transpose_b
                : attribute == 7 ? (void*)&d->epilogue
                : attribute == 8 ? (void*)&d->bias
                                 : NULL;
  need(field != NULL, "an attribute of a product that these tests do not use");
  need(size == (attribute == 8 ? sizeof(void*) : 4), "an attribute's size");
  memcpy(field, value, size);
  need(d->transpose_a >> 1 == 0 && d->transpose_b >> 1 == 0, "a transposition");
  need(d->epilogue == 1 || d->epilogue == 4, "an epilogue that these tests do not use");
  return OK;
}
int cublasLtMatmulDescDestroy(void* d);
int cublasLtMatmulDescDestroy(void* d) {
  return destroy(d, DESC);
}

int cublasLtMatmulPreferenceCreate(void** to);
int cublasLtMatmulPreferenceCreate(void** to) {
  return *to = make(PREFERENCE, sizeof(preference)), OK;
}
int cublasLtMatmulPreferenceSetAttribute(void* to, int attribute, const void* value, size_t size);
int cublasLtMatmulPreferenceSetAttribute(void* to, int attribute, const void* value, size_t size) {
  is(to, PREFERENCE);
  need(attribute == 1 && size == 8, "a preference that these tests do not use");
  memcpy(&((preference*)to)->workspace, value, size);
  return OK;
}
int cublasLtMatmulPreferenceDestroy(void* p);
int cublasLtMatmulPreferenceDestroy(void* p) {
  return destroy(p, PREFERENCE);
}

// ---- the product ----

typedef struct {
  desc d;
  layout a, b, c, out;
  int64_t m, n, k;
} product;

static product describe(void* d, void* a, void* b, void* c, void* out) {
  is(d, DESC), is(a, LAYOUT), is(b, LAYOUT), is(c, LAYOUT), is(out, LAYOUT);
  product p = {*(desc*)d, *(layout*)a, *(layout*)b, *(layout*)c, *(layout*)out, 0, 0, 0};
  p.m = p.d.transpose_a ? p.a.columns : p.a.rows;
  p.k = p.d.transpose_a ? p.a.rows : p.a.columns;
  p.n = p.d.transpose_b ? p.b.rows : p.b.columns;
  need(p.k == (p.d.transpose_b ? p.b.columns : p.b.rows), "inner dimensions that differ");
  need(p.out.rows == p.m && p.out.columns == p.n, "an output of another shape");
  need(p.c.rows == p.m && p.c.columns == p.n && p.c.type == p.out.type, "another C than D");
  need(p.a.batch == p.out.batch && p.b.batch == p.out.batch && p.c.batch == p.out.batch,
       "numbers of matrices that differ");
  need(p.a.type == p.b.type, "types that differ");
  need(p.out.type == (p.a.type == I8 ? I32 : p.a.type), "an output of another type");
  need(p.d.compute == (p.a.type == I8    ? COMPUTE_I32
                       : p.a.type == F64 ? COMPUTE_F64
                                         : COMPUTE_F32),
       "a computation that is not for this type");
  if (p.a.type == I8)
    need(p.d.transpose_a && !p.d.transpose_b && p.a.ld % 4 == 0 && p.b.ld % 4 == 0 &&
             p.m % 4 == 0 && p.k % 4 == 0,
         "bytes that are not along k, or in no fours");
  need(p.d.epilogue == 1 || p.a.type != F64, "a bias of f64");
  return p;
}

// The 64 bytes of an algorithm hold what it was found for.
typedef struct {
  int magic, type, bias;
  int64_t m, n, k, batch;
} algorithm;
_Static_assert(sizeof(algorithm) <= 64, "fits cublasLtMatmulAlgo_t");
typedef struct {
  union {
    algorithm found;
    uint64_t words[8];
  } algo;
  size_t workspace;
  int state;
  float waves;
  int reserved[4];
} result;

int cublasLtMatmulAlgoGetHeuristic(void* handle, void* d, void* a, void* b, void* c, void* out,
                                   void* prefers, int wanted, result* results, int* found);
int cublasLtMatmulAlgoGetHeuristic(void* handle, void* d, void* a, void* b, void* c, void* out,
                                   void* prefers, int wanted, result* results, int* found) {
  is(handle, HANDLE), is(prefers, PREFERENCE);
  need(wanted >= 1 && results && found, "no place for a result");
  product p = describe(d, a, b, c, out);
  const char* algorithms = getenv("CUBLASLT_TEST_ALGORITHMS");
  if (!algorithms) algorithms = "";
  if (!strcmp(algorithms, "none") || ((preference*)prefers)->workspace < WORKSPACE)
    return *found = 0, NOT_SUPPORTED;
  memset(results, 0, sizeof *results);
  if (!strcmp(algorithms, "unfit")) return results->state = NOT_SUPPORTED, *found = 1, OK;
  results->algo.found = (algorithm){MAGIC, p.a.type, p.d.epilogue == 4, p.m, p.n, p.k, p.out.batch};
  results->workspace = WORKSPACE;
  results->waves = 1;
  return *found = 1, OK;
}

// ---- numbers ----

static double load(int type, const void* from, int64_t i) {
  if (type == F64) return ((const double*)from)[i];
  if (type == F32) return (double)((const float*)from)[i];
  if (type == I8) return ((const int8_t*)from)[i];
  if (type == I32) return ((const int32_t*)from)[i];
  if (type == F16) return (double)((const _Float16*)from)[i];
  uint32_t wide = (uint32_t)((const uint16_t*)from)[i] << 16;
  float value;
  memcpy(&value, &wide, 4);
  return (double)value;
}

static void store(int type, void* to, int64_t i, double value) {
  if (type == F64) {
    ((double*)to)[i] = value;
  } else if (type == F32) {
    ((float*)to)[i] = (float)value;
  } else if (type == I32) {
    ((int32_t*)to)[i] = (int32_t)(uint32_t)(int64_t)value;  // sums of bytes are exact, and wrap
  } else if (type == F16) {
    ((_Float16*)to)[i] = (_Float16)value;
  } else {
    float rounded = (float)value;
    uint32_t bits;
    memcpy(&bits, &rounded, 4);
    if (rounded == rounded) bits += 0x7fff + (bits >> 16 & 1);
    ((uint16_t*)to)[i] = (uint16_t)(bits >> 16);
  }
}

typedef struct {
  product p;
  double alpha, beta;
  const void *a, *b, *c;
  void *out, *workspace;
} job;

static void multiply(void* context) {
  const job* j = context;
  const product* p = &j->p;
  memset(j->workspace, 0xff, WORKSPACE);
  for (int64_t of = 0; of < p->out.batch; of++)
    for (int64_t y = 0; y < p->n; y++)
      for (int64_t x = 0; x < p->m; x++) {
        double sum = 0;
        int64_t a = of * p->a.stride + (p->d.transpose_a ? x * p->a.ld : x);
        int64_t b = of * p->b.stride + (p->d.transpose_b ? y : y * p->b.ld);
        int64_t along_a = p->d.transpose_a ? 1 : p->a.ld, along_b = p->d.transpose_b ? p->b.ld : 1;
        for (int64_t k = 0; k < p->k; k++)
          sum += load(p->a.type, j->a, a + k * along_a) * load(p->b.type, j->b, b + k * along_b);
        sum *= j->alpha;
        if (j->beta != 0)
          sum += j->beta * load(p->c.type, j->c, of * p->c.stride + y * p->c.ld + x);
        if (p->d.epilogue == 4) sum += load(p->out.type, p->d.bias, x);
        store(p->out.type, j->out, of * p->out.stride + y * p->out.ld + x, sum);
      }
}

int cublasLtMatmul(void* handle, void* d, const void* alpha, const void* a, void* a_layout,
                   const void* b, void* b_layout, const void* beta, const void* c, void* c_layout,
                   void* out, void* out_layout, const algorithm* algo, void* workspace,
                   size_t workspace_bytes, void* stream);
int cublasLtMatmul(void* handle, void* d, const void* alpha, const void* a, void* a_layout,
                   const void* b, void* b_layout, const void* beta, const void* c, void* c_layout,
                   void* out, void* out_layout, const algorithm* algo, void* workspace,
                   size_t workspace_bytes, void* stream) {
  is(handle, HANDLE);
  product p = describe(d, a_layout, b_layout, c_layout, out_layout);
  need(alpha && beta && a && b && c && out && algo && workspace, "an argument that is missing");
  need(algo->magic == MAGIC && algo->type == p.a.type && algo->bias == (p.d.epilogue == 4) &&
           algo->m == p.m && algo->n == p.n && algo->k == p.k && algo->batch == p.out.batch,
       "an algorithm for another product");
  need(workspace_bytes >= WORKSPACE && (uintptr_t)workspace % 16 == 0, "a workspace");
  need(((uintptr_t)a | (uintptr_t)b | (uintptr_t)out) % 16 == 0, "misaligned matrices");
  need((uintptr_t)c % (uintptr_t)size_of(p.c.type) == 0, "a misaligned C");
  need(p.d.epilogue == 1 || (p.d.bias && (uintptr_t)p.d.bias % 16 == 0), "a bias");
  __atomic_add_fetch(&products, 1, __ATOMIC_RELAXED);
  job* j = malloc(sizeof *j);
  *j = (job){p, load(p.d.scale, alpha, 0), load(p.d.scale, beta, 0), a, b, c, out, workspace};
  return emu_enqueue(stream, multiply, j);
}
