// Every kind of product that a provider over a vendor's BLASLt takes: types, transpositions,
// batches, scales, a bias, two streams and graphs. Elements are -1, 0 and 1, so that every type and
// every order of summation gives the same numbers: the results must be exact.
//
//   library_products [--backend cuda:0] [--f64]
//
// Prints how many products there were; the library is to have seen as many.
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "halyard/halyard.h"

enum { BATCH = 3, M = 40, N = 48, K = 64 };

static hy_device* device;
static hy_stream* streams[2];
static int products, failures;

static void must(hy_status status, const char* what) {
  if (status == HY_OK) return;
  fprintf(stderr, "%s: %s\n", what, hy_last_error());
  exit(2);
}

// ---- matrices: numbers on the host, memory on the device ----

typedef struct matrix {
  int rows, columns, batch;
  bool turned;  // stored by columns
  int* at;      // by rows
  hy_tensor tensor;
} matrix;

static size_t put(hy_dtype dtype, char* at, size_t i, int value) {
  float f = (float)value;
  double d = value;
  _Float16 half = (_Float16)value;
  int8_t byte = (int8_t)value;
  size_t size = hy_dtype_size(dtype);
  // The upper half of an f32 is a bf16.
  const void* from = dtype == HY_F32    ? (void*)&f
                     : dtype == HY_F64  ? (void*)&d
                     : dtype == HY_F16  ? (void*)&half
                     : dtype == HY_BF16 ? (void*)((char*)&f + 2)
                     : dtype == HY_I8   ? (void*)&byte
                                        : (void*)&value;
  memcpy(at + i * size, from, size);
  return size;
}

static void place(matrix* m, hy_dtype dtype) {
  static unsigned state = 1;
  int64_t shape[3] = {m->batch, m->turned ? m->columns : m->rows, m->turned ? m->rows : m->columns};
  size_t count = (size_t)(m->batch * m->rows * m->columns), size = hy_dtype_size(dtype);
  bool one = m->batch == 1;
  must(hy_tensor_init(&m->tensor, NULL, dtype, one ? 2 : 3, one ? shape + 1 : shape), "a shape");
  must(hy_alloc(streams[0], count * size, &m->tensor.data), "memory");
  m->at = calloc(count, sizeof *m->at);
  char* stored = calloc(count, size);
  for (int b = 0; b < m->batch; b++)
    for (int r = 0; r < m->rows; r++)
      for (int c = 0; c < m->columns; c++) {
        int at = (b * m->rows + r) * m->columns + c;
        state = state * 1664525 + 1013904223;
        m->at[at] = (int)(state >> 16) % 3 - 1;
        put(dtype, stored, (size_t)(m->turned ? (b * m->columns + c) * m->rows + r : at),
            m->at[at]);
      }
  must(hy_memcpy(streams[0], m->tensor.data, stored, count * size, HY_COPY_HOST_TO_DEVICE), "copy");
  must(hy_stream_sync(streams[0]), "copy");
  free(stored);
  if (m->turned) hy_transpose(&m->tensor, &m->tensor, one ? 0 : 1, one ? 1 : 2);
}

static void release(matrix* m) {
  hy_free(device, m->tensor.data);
  free(m->at);
}

// ---- one product ----

typedef struct product {
  hy_op op;
  hy_dtype dtype;
  int batch;
  bool turn_a, turn_b, bias;
  int alpha, beta;
  enum { EAGER, SECOND_STREAM, GRAPH } how;
} product;

static void run(const product* p, const hy_call* call, const char* name) {
  hy_stream* stream = streams[p->how == SECOND_STREAM];
  hy_graph* graph = NULL;
  if (p->how == GRAPH) must(hy_capture_begin(stream), name);
  must(hy_run(stream, call), name);
  if (p->how == GRAPH) {
    must(hy_capture_end(stream, &graph), name);
    must(hy_graph_launch(graph, streams[1]), name);
  }
  must(hy_stream_sync(streams[p->how != EAGER]), name);
  hy_graph_destroy(graph);
}

static void check(const product* p, const matrix* a, const matrix* b, const matrix* x,
                  const matrix* out, const char* name) {
  const hy_dtype dtype = out->tensor.dtype;
  size_t size = hy_dtype_size(dtype), bytes = (size_t)(p->batch * M * N) * size;
  char *got = malloc(bytes), *want = malloc(bytes);
  for (int o = 0; o < p->batch; o++)
    for (int r = 0; r < M; r++)
      for (int c = 0; c < N; c++) {
        int sum = 0, at = (o * M + r) * N + c;
        for (int k = 0; k < K; k++) sum += a->at[(o * M + r) * K + k] * b->at[(o * K + k) * N + c];
        sum = p->alpha * sum + (x ? p->beta * x->at[p->bias ? c : at] : 0);
        put(dtype, want, (size_t)at, sum);
      }
  must(hy_memcpy(streams[0], got, out->tensor.data, bytes, HY_COPY_DEVICE_TO_HOST), name);
  must(hy_stream_sync(streams[0]), name);
  for (size_t i = 0; i < bytes; i += size) {
    if (memcmp(got + i, want + i, size) == 0) continue;
    printf("%s: element %zu is wrong\n", name, i / size);
    failures++;
    break;
  }
  free(got);
  free(want);
}

static void try(product p) {
  char name[96];
  if (!p.alpha) p.alpha = 1;
  if (!p.beta) p.beta = 1;
  if (!p.batch) p.batch = 1;
  snprintf(name, sizeof name, "%s %s %c%c%s, way %d", hy_op_name(p.op), hy_dtype_name(p.dtype),
           p.turn_a ? 'T' : 'N', p.turn_b ? 'T' : 'N', p.bias ? " bias" : "", p.how);
  matrix a = {M, K, p.batch, p.turn_a, NULL, {0}}, b = {K, N, p.batch, p.turn_b, NULL, {0}};
  matrix x = {p.bias ? 1 : M, N, 1, false, NULL, {0}}, out = {M, N, p.batch, false, NULL, {0}};
  const bool has_x = p.bias || p.op == HY_OP_addmm;
  place(&a, p.dtype);
  place(&b, p.dtype);
  place(&out, p.dtype == HY_I8 ? HY_I32 : p.dtype);
  if (has_x) place(&x, p.dtype);
  hy_tensor in[3] = {a.tensor, b.tensor};
  hy_call call = {.op = p.op, .n_in = 2, .in = in, .n_out = 1, .out = &out.tensor};
  if (p.op == HY_OP_addmm) {
    in[0] = x.tensor, in[1] = a.tensor, in[2] = b.tensor;
    call.n_in = 3;
    call.attrs.addmm.alpha = hy_int(p.alpha);
    call.attrs.addmm.beta = hy_int(p.beta);
  } else if (p.op == HY_OP_linear) {
    hy_transpose(&in[1], &in[1], 0, 1);  // a weight is [out, in]
    if (p.bias) must(hy_tensor_init(&in[2], x.tensor.data, p.dtype, 1, (int64_t[]){N}), name);
    call.n_in = 3;
  }
  run(&p, &call, name);
  products++;
  check(&p, &a, &b, has_x ? &x : NULL, &out, name);
  release(&a);
  release(&b);
  release(&out);
  if (has_x) release(&x);
}

int main(int argc, char** argv) {
  const char* backend = "cuda:0";
  bool f64 = false;
  for (int i = 1; i < argc; i++) {
    if (!strcmp(argv[i], "--backend") && i + 1 < argc)
      backend = argv[++i];
    else if (!strcmp(argv[i], "--f64"))
      f64 = true;
  }
  must(hy_init(), "init");
  must(hy_device_get(backend, &device), backend);
  for (int i = 0; i < 2; i++) must(hy_stream_create(device, &streams[i]), "a stream");
  hy_set_strict(true);
  static const hy_dtype types[] = {HY_F32, HY_F16, HY_BF16, HY_F64};
  for (int i = 0; i < (f64 ? 4 : 3); i++) {
    hy_dtype t = types[i];
    for (int turns = 0; turns < 4; turns++) {
      bool a = turns & 1, b = turns & 2;
      try((product){.op = HY_OP_mm, .dtype = t, .turn_a = a, .turn_b = b});
      try((product){.op = HY_OP_bmm, .dtype = t, .batch = BATCH, .turn_a = a, .turn_b = b});
      try((product){
          .op = HY_OP_addmm, .dtype = t, .turn_a = a, .turn_b = b, .alpha = 2, .beta = -1});
    }
    try((product){.op = HY_OP_linear, .dtype = t, .turn_b = true});
    try((product){.op = HY_OP_mm, .dtype = t, .how = SECOND_STREAM});
    try((product){.op = HY_OP_mm, .dtype = t, .how = GRAPH});
    for (int how = EAGER; how <= GRAPH && t != HY_F64; how++)
      try((product){.op = HY_OP_linear, .dtype = t, .turn_b = true, .bias = true, .how = how});
  }
  try((product){.op = HY_OP_int_mm, .dtype = HY_I8});
  try((product){.op = HY_OP_int_mm, .dtype = HY_I8, .turn_b = true});
  for (int i = 0; i < 2; i++) hy_stream_destroy(streams[i]);
  hy_shutdown();
  printf("%d products, %d wrong\n", products, failures);
  return failures != 0;
}
