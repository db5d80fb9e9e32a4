// libcusparseLt.so.0 for tests on the emulated GPU: the functions of cusparseLt.h (0.8 and 0.10)
// for a product of a 2:4 sparse matrix and a dense one, summed in double. What the documents forbid
// ends the process with code 86: structs that were not initialised, sizes off the alignment, a
// matrix that has more than two of four, another order of calls.
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OK = 0, NOT_SUPPORTED = 10 };
enum { F16 = 2, BF16 = 14, COLUMN = 1, ROW = 2, BUFFER = 256, WORKSPACE = 512 };

int emu_enqueue(void* stream, void (*work)(void*), void* context);  // of the emulator

static void need(bool condition, const char* what) {
  if (condition) return;
  fprintf(stderr, "cusparselt: %s\n", what);
  _exit(86);
}

// ---- opaque structs of 512 bytes ----

enum { HANDLE = 0x73701, DENSE, STRUCTURED, MATMUL, ALGORITHM, PLAN };
typedef struct {
  int magic, type, order;
  int64_t rows, columns, ld;
} matrix;
typedef struct {
  int magic;
  matrix a, b, d;
  const void* bias;
} matmul;
typedef struct {
  int magic;
  const matmul* of;
} algorithm;
_Static_assert(sizeof(matmul) <= 512, "fits what the caller has");

static void is(const void* object, int magic) {
  need(object && (uintptr_t)object % 16 == 0 && *(const int*)object == magic,
       "a struct that was not initialised for this");
}

int cusparseLtGetProperty(int which, int* value);
int cusparseLtGetProperty(int which, int* value) {
  const char* asked = getenv("CUSPARSELT_TEST_MINOR");
  return *value = which == 1 ? asked ? atoi(asked) : 10 : 0, OK;
}
int cusparseLtInit(void* handle);
int cusparseLtInit(void* handle) {
  return memset(handle, 0, 512), *(int*)handle = HANDLE, OK;
}

static int describe(const void* handle, void* to, int magic, int64_t rows, int64_t columns,
                    int64_t ld, uint32_t alignment, int type, int order) {
  is(handle, HANDLE);
  need(type == F16 || type == BF16, "no type of this library's tests");
  need(order == ROW || order == COLUMN, "no order");
  need(alignment == 16 && rows > 0 && columns > 0 && rows % 8 == 0 && columns % 8 == 0 &&
           ld % 8 == 0,
       "a size that 16 bytes do not divide");
  need(ld >= (order == ROW ? columns : rows), "a leading dimension that is too small");
  memset(to, 0, 512);
  *(matrix*)to = (matrix){magic, type, order, rows, columns, ld};
  return OK;
}
int cusparseLtDenseDescriptorInit(const void* handle, void* to, int64_t rows, int64_t columns,
                                  int64_t ld, uint32_t alignment, int type, int order);
int cusparseLtDenseDescriptorInit(const void* handle, void* to, int64_t rows, int64_t columns,
                                  int64_t ld, uint32_t alignment, int type, int order) {
  return describe(handle, to, DENSE, rows, columns, ld, alignment, type, order);
}
int cusparseLtStructuredDescriptorInit(const void* handle, void* to, int64_t rows, int64_t columns,
                                       int64_t ld, uint32_t alignment, int type, int order,
                                       int sparsity);
int cusparseLtStructuredDescriptorInit(const void* handle, void* to, int64_t rows, int64_t columns,
                                       int64_t ld, uint32_t alignment, int type, int order,
                                       int sparsity) {
  need(sparsity == 0 && rows % 16 == 0 && columns % 16 == 0, "no shape of a sparse matrix");
  return describe(handle, to, STRUCTURED, rows, columns, ld, alignment, type, order);
}
int cusparseLtMatDescriptorDestroy(const void* m);
int cusparseLtMatDescriptorDestroy(const void* m) {
  need(m && (*(const int*)m == DENSE || *(const int*)m == STRUCTURED), "not a matrix");
  return *(int*)m = 0, OK;
}
int cusparseLtMatmulDescriptorInit(const void* handle, void* to, int op_a, int op_b, const void* a,
                                   const void* b, const void* c, const void* d, int compute);
int cusparseLtMatmulDescriptorInit(const void* handle, void* to, int op_a, int op_b, const void* a,
                                   const void* b, const void* c, const void* d, int compute) {
  const matrix *left = a, *right = b, *out = d;
  is(handle, HANDLE), is(a, STRUCTURED), is(b, DENSE), is(c, DENSE), is(d, DENSE);
  need(op_a == 0 && op_b == 1 && compute == 2, "a product that these tests do not use");
  need(left->type == right->type && left->type == out->type, "types that differ");
  need(right->columns == left->columns && out->rows == left->rows && out->columns == right->rows,
       "shapes that do not go together");
  memset(to, 0, 512);
  *(matmul*)to = (matmul){MATMUL, *left, *right, *out, NULL};
  return OK;
}
int cusparseLtMatmulDescSetAttribute(const void* handle, void* m, int attribute, const void* data,
                                     size_t size);
int cusparseLtMatmulDescSetAttribute(const void* handle, void* m, int attribute, const void* data,
                                     size_t size) {
  is(handle, HANDLE), is(m, MATMUL);
  need(attribute == 8 && size == sizeof(void*), "an attribute that these tests do not use");
  memcpy(&((matmul*)m)->bias, data, size);
  need((uintptr_t)((matmul*)m)->bias % 16 == 0, "a misaligned bias");
  return OK;
}
int cusparseLtMatmulAlgSelectionInit(const void* handle, void* algo, const void* m, int which);
int cusparseLtMatmulAlgSelectionInit(const void* handle, void* algo, const void* m, int which) {
  is(handle, HANDLE), is(m, MATMUL);
  need(which == 0, "no such algorithm");
  memset(algo, 0, 512);
  return *(algorithm*)algo = (algorithm){ALGORITHM, m}, OK;
}
int cusparseLtMatmulAlgSelectionDestroy(const void* algo);
int cusparseLtMatmulAlgSelectionDestroy(const void* algo) {
  is(algo, ALGORITHM);
  return *(int*)algo = 0, OK;
}
int cusparseLtMatmulPlanInit(const void* handle, void* plan, const void* m, const void* algo);
int cusparseLtMatmulPlanInit(const void* handle, void* plan, const void* m, const void* algo) {
  is(handle, HANDLE), is(m, MATMUL), is(algo, ALGORITHM);
  need(((const algorithm*)algo)->of == m, "another product's algorithm");
  memset(plan, 0, 512);
  *(matmul*)plan = *(const matmul*)m;
  return *(int*)plan = PLAN, OK;
}
int cusparseLtMatmulPlanDestroy(const void* plan);
int cusparseLtMatmulPlanDestroy(const void* plan) {
  is(plan, PLAN);
  return *(int*)plan = 0, OK;
}
int cusparseLtMatmulGetWorkspace(const void* handle, const void* plan, size_t* bytes);
int cusparseLtMatmulGetWorkspace(const void* handle, const void* plan, size_t* bytes) {
  is(handle, HANDLE), is(plan, PLAN);
  return *bytes = WORKSPACE, OK;
}
int cusparseLtSpMMACompressedSize(const void* handle, const void* plan, size_t* bytes,
                                  size_t* buffer);
int cusparseLtSpMMACompressedSize(const void* handle, const void* plan, size_t* bytes,
                                  size_t* buffer) {
  is(handle, HANDLE), is(plan, PLAN);
  const matrix* a = &((const matmul*)plan)->a;
  // Two values of each four, and a byte with their places.
  *bytes = (size_t)(a->rows * a->columns / 4 * 5);
  return *buffer = BUFFER, OK;
}

// ---- numbers ----

static double load(int type, uint16_t bits) {
  if (type == F16) {
    _Float16 half;
    memcpy(&half, &bits, 2);
    return (double)half;
  }
  uint32_t wide = (uint32_t)bits << 16;
  float value;
  memcpy(&value, &wide, 4);
  return (double)value;
}

static uint16_t round_to(int type, double value) {
  uint16_t bits16;
  if (type == F16) {
    _Float16 half = (_Float16)value;
    memcpy(&bits16, &half, 2);
    return bits16;
  }
  float rounded = (float)value;
  uint32_t bits;
  memcpy(&bits, &rounded, 4);
  if (rounded == rounded) bits += 0x7fff + (bits >> 16 & 1);
  return (uint16_t)(bits >> 16);
}

// ---- running ----

typedef struct {
  matmul m;
  const void *from, *x;
  void *to, *scratch;
} job;

// Values first, places behind them.
static void compress(void* context) {
  job* j = context;
  int64_t groups = j->m.a.rows * j->m.a.columns / 4;
  const uint16_t* dense = j->from;
  uint16_t* values = j->to;
  uint8_t* places = (uint8_t*)(values + 2 * groups);
  memset(j->scratch, 0xff, BUFFER);
  for (int64_t g = 0; g < groups; g++) {
    int count = 0;
    places[g] = 1 << 2;
    values[2 * g] = values[2 * g + 1] = 0;
    for (int i = 0; i < 4; i++) {
      uint16_t bits = dense[4 * g + i];
      if ((bits & 0x7fff) == 0) continue;
      need(count < 2, "more than two of four are not zero");
      values[2 * g + count] = bits;
      places[g] = (uint8_t)(count ? (places[g] & 3) | i << 2 : i | (i == 1 ? 2 : 1) << 2);
      count++;
    }
  }
}

int cusparseLtSpMMACompress(const void* handle, const void* plan, const void* dense,
                            void* compressed, void* buffer, void* stream);
int cusparseLtSpMMACompress(const void* handle, const void* plan, const void* dense,
                            void* compressed, void* buffer, void* stream) {
  is(handle, HANDLE), is(plan, PLAN);
  need(dense && compressed && buffer, "no memory for a compression");
  need(((uintptr_t)dense | (uintptr_t)compressed) % 16 == 0, "misaligned data");
  job* j = malloc(sizeof *j);
  *j = (job){*(const matmul*)plan, dense, NULL, compressed, buffer};
  return emu_enqueue(stream, compress, j);
}

static void multiply(void* context) {
  job* j = context;
  const matmul* m = &j->m;
  int64_t n = m->a.rows, k = m->a.columns, rows = m->b.rows;
  const uint16_t *values = j->from, *x = j->x;
  const uint8_t* places = (const uint8_t*)(values + n * k / 2);
  memset(j->scratch, 0xff, WORKSPACE);
  for (int64_t r = 0; r < rows; r++)
    for (int64_t f = 0; f < n; f++) {
      double sum = m->bias ? load(m->a.type, ((const uint16_t*)m->bias)[f]) : 0;
      for (int64_t g = f * k / 4; g < (f + 1) * k / 4; g++) {
        const uint16_t* four = x + r * m->b.ld + (g - f * k / 4) * 4;
        sum += load(m->a.type, values[2 * g]) * load(m->a.type, four[places[g] & 3]);
        sum += load(m->a.type, values[2 * g + 1]) * load(m->a.type, four[places[g] >> 2]);
      }
      ((uint16_t*)j->to)[r * m->d.ld + f] = round_to(m->a.type, sum);
    }
}

int cusparseLtMatmul(const void* handle, const void* plan, const void* alpha, const void* a,
                     const void* b, const void* beta, const void* c, void* d, void* workspace,
                     void** streams, int32_t n_streams);
int cusparseLtMatmul(const void* handle, const void* plan, const void* alpha, const void* a,
                     const void* b, const void* beta, const void* c, void* d, void* workspace,
                     void** streams, int32_t n_streams) {
  is(handle, HANDLE), is(plan, PLAN);
  const matmul* m = plan;
  need(*(const float*)alpha == 1 && *(const float*)beta == 0, "scales that these tests do not use");
  need(m->a.order == ROW && m->b.order == ROW && m->d.order == COLUMN,
       "orders that these tests do not use");
  need(a && b && c && d && workspace && streams && n_streams == 1, "an argument that is missing");
  need(((uintptr_t)a | (uintptr_t)b | (uintptr_t)d) % 16 == 0, "misaligned data");
  job* j = malloc(sizeof *j);
  *j = (job){*m, a, b, d, workspace};
  return emu_enqueue(streams[0], multiply, j);
}
