// Ops bound by memory at the sizes of models: tensors beyond 2^31 elements, rows of a vocabulary,
// long sorts, checked by what is known of the result; with --time, how many bytes a second they
// move.
//
//   large_tensors [--backend cuda:0] [--time]
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "halyard/halyard.h"

static hy_device* device;
static hy_stream* stream;
static int failures;

static void must(hy_status status, const char* what) {
  if (status == HY_OK) return;
  fprintf(stderr, "%s: %s\n", what, hy_last_error());
  exit(2);
}

static void check(bool right, const char* what) {
  printf("%s %s\n", right ? "ok    " : "FAILED", what);
  failures += !right;
}

static hy_tensor make(hy_dtype dtype, int ndim, const int64_t* shape) {
  hy_tensor t;
  must(hy_tensor_init(&t, NULL, dtype, ndim, shape), "shape");
  must(hy_alloc(stream, hy_tensor_bytes(&t) + 64, &t.data), "memory");
  return t;
}
#define MAKE(dtype, ...) \
  make(dtype, (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]){__VA_ARGS__})

static void drop(hy_tensor* t) {
  must(hy_free(device, t->data), "free");
}

static void run(hy_op op, int n_in, hy_tensor* in, int n_out, hy_tensor* out,
                const hy_attrs* attrs) {
  hy_call call = {.op = op, .n_in = n_in, .n_out = n_out, .in = in, .out = out};
  if (attrs) call.attrs = *attrs;
  must(hy_run(stream, &call), hy_op_name(op));
}

static void fill(hy_tensor* t, double value) {
  hy_attrs attrs = {.value = {hy_float(value)}};
  run(HY_OP_fill, 0, NULL, 1, t, &attrs);
}

static void normal(hy_tensor* t, uint64_t seed) {
  hy_attrs attrs = {.random = {seed, 0, 0, 1}};
  run(HY_OP_normal, 0, NULL, 1, t, &attrs);
}

static void fetch(const hy_tensor* t, void* to) {
  must(hy_memcpy(stream, to, t->data, hy_tensor_bytes(t), HY_COPY_DEVICE_TO_HOST), "download");
  must(hy_stream_sync(stream), "download");
}

static void poke(const hy_tensor* t, int64_t at, const void* value) {
  size_t size = hy_dtype_size(t->dtype);
  must(hy_memcpy(stream, (char*)t->data + (size_t)at * size, value, size, HY_COPY_HOST_TO_DEVICE),
       "poke");
  must(hy_stream_sync(stream), "poke");
}

// ---- Beyond 2^31 elements ----

static void beyond_int32(void) {
  int64_t n = ((int64_t)1 << 31) + 4099, at = n - 3;
  hy_tensor x = MAKE(HY_I8, n), y = MAKE(HY_I8, n), total = make(HY_I64, 0, NULL);
  int8_t seven = 7;
  int64_t answer = 0;
  hy_attrs all = {.reduce = {hy_all_dims(), false}}, alpha = {.alpha = {hy_int(1)}};
  fill(&x, 1);
  poke(&x, at, &seven);
  run(HY_OP_sum, 1, &x, 1, &total, &all);
  fetch(&total, &answer);
  check(answer == n + 6, "sum of 2^31 + 4099 bytes");
  run(HY_OP_argmax, 1, &x, 1, &total, &all);
  fetch(&total, &answer);
  check(answer == at, "argmax of 2^31 + 4099 bytes");
  run(HY_OP_add, 2, (hy_tensor[]){x, x}, 1, &y, &alpha);
  run(HY_OP_sum, 1, &y, 1, &total, &all);
  fetch(&total, &answer);
  check(answer == 2 * (n + 6), "add of 2^31 + 4099 bytes");
  hy_tensor backwards = x;  // strides keep it from the contiguous kernel
  backwards.data = (char*)x.data + n - 1;
  backwards.stride[0] = -1;
  run(HY_OP_copy, 1, &backwards, 1, &y, NULL);
  run(HY_OP_argmax, 1, &y, 1, &total, &all);
  fetch(&total, &answer);
  check(answer == 2, "copy of 2^31 + 4099 bytes backwards");
  drop(&x);
  drop(&y);
  drop(&total);
}

// ---- Long sorts, scans and rows ----

static void long_lanes(void) {
  enum { N = 5000011 };
  hy_tensor x = MAKE(HY_F32, N), out = MAKE(HY_F32, N), index = MAKE(HY_I64, N);
  float *before = malloc(N * sizeof *before), *after = malloc(N * sizeof *after);
  int64_t* places = malloc(N * sizeof *places);
  normal(&x, 3);
  hy_attrs sort = {.sort = {0, true}};
  run(HY_OP_sort, 1, &x, 2, (hy_tensor[]){out, index}, &sort);
  fetch(&x, before);
  fetch(&out, after);
  fetch(&index, places);
  bool right = true;
  for (int64_t i = 0; i < N; i++) {
    right = right && places[i] >= 0 && places[i] < N && after[i] == before[places[i]];
    right = right && (i == 0 || after[i - 1] > after[i] ||
                      (after[i - 1] == after[i] && places[i - 1] < places[i]));
  }
  check(right, "sort of 5000011 numbers, downwards");
  hy_tensor ones = MAKE(HY_I32, N), sums = MAKE(HY_I64, N);
  fill(&ones, 1);
  hy_attrs scan = {.scan = {0, false}};
  run(HY_OP_cumsum, 1, &ones, 1, &sums, &scan);
  fetch(&sums, places);
  right = true;
  for (int64_t i = 0; i < N; i++) right = right && places[i] == i + 1;
  check(right, "cumsum of 5000011 ones");
  hy_tensor* all[] = {&x, &out, &index, &ones, &sums};
  for (int i = 0; i < 5; i++) drop(all[i]);
  free(before);
  free(after);
  free(places);
}

static void vocabulary(void) {
  enum { ROWS = 64, CLASSES = 151936 };
  hy_tensor logits = MAKE(HY_F32, ROWS, CLASSES), target = MAKE(HY_I64, ROWS);
  hy_tensor loss = make(HY_F32, 0, NULL), p = MAKE(HY_F32, ROWS, CLASSES),
            sums = MAKE(HY_F32, ROWS);
  float value = 0, each[ROWS];
  hy_attrs zero = {.value = {hy_int(5)}}, rows = {.reduce = {hy_one_dim(1), false}};
  hy_attrs mean = {.cross_entropy = {-100, HY_REDUCTION_MEAN, 0, HY_NONE}}, last = {.dim = {-1}};
  run(HY_OP_fill, 0, NULL, 1, &target, &zero);
  fill(&logits, 0.5);
  run(HY_OP_cross_entropy, 3, (hy_tensor[]){logits, target, hy_tensor_absent()}, 1, &loss, &mean);
  fetch(&loss, &value);
  check(fabs((double)value - log(CLASSES)) < 1e-4, "cross entropy of 151936 equal classes");
  normal(&logits, 9);
  run(HY_OP_softmax, 1, &logits, 1, &p, &last);
  run(HY_OP_sum, 1, &p, 1, &sums, &rows);
  fetch(&sums, each);
  bool right = true;
  for (int r = 0; r < ROWS; r++) right = right && fabsf(each[r] - 1) < 1e-4f;
  check(right, "softmax of 151936 classes sums to 1");
  hy_tensor* all[] = {&logits, &target, &loss, &p, &sums};
  for (int i = 0; i < 5; i++) drop(all[i]);
}

// ---- Bytes a second ----

static void time_call(const char* name, hy_op op, int n_in, hy_tensor* in, int n_out,
                      hy_tensor* out, const hy_attrs* attrs, double bytes) {
  enum { TIMES = 10 };
  hy_event *start, *stop;
  must(hy_event_create(device, &start), "event");
  must(hy_event_create(device, &stop), "event");
  double best = 1e30;
  for (int i = 0; i < TIMES; i++) {
    double ms = 0;
    must(hy_event_record(start, stream), "event");
    run(op, n_in, in, n_out, out, attrs);
    must(hy_event_record(stop, stream), "event");
    must(hy_event_sync(stop), name);
    must(hy_event_elapsed(start, stop, &ms), "event");
    if (i > 1 && ms < best) best = ms;
  }
  printf("%-34s %9.3f ms %8.0f GB/s\n", name, best, bytes / best / 1e6);
  hy_event_destroy(start);
  hy_event_destroy(stop);
}

static void time_type(hy_dtype dtype) {
  enum { ROWS = 16384, COLUMNS = 4096 };
  double n = (double)ROWS * COLUMNS, b = (double)hy_dtype_size(dtype);
  hy_tensor x = MAKE(dtype, ROWS, COLUMNS), y = MAKE(dtype, ROWS, COLUMNS),
            z = MAKE(dtype, ROWS, COLUMNS), w = MAKE(dtype, COLUMNS), column = MAKE(dtype, COLUMNS),
            r = MAKE(dtype, ROWS), none = hy_tensor_absent(), turned = x;
  hy_tensor rstd = MAKE(HY_F32, ROWS, 1);
  normal(&x, 1);
  normal(&y, 2);
  normal(&w, 3);
  turned.shape[0] = COLUMNS;
  turned.shape[1] = ROWS;
  turned.stride[0] = 1;
  turned.stride[1] = COLUMNS;
  hy_tensor to_turned = z;
  to_turned.shape[0] = COLUMNS;
  to_turned.shape[1] = ROWS;
  to_turned.stride[0] = ROWS;
  to_turned.stride[1] = 1;
  hy_attrs alpha = {.alpha = {hy_int(1)}}, last = {.dim = {-1}}, norm = {.norm = {1, 1e-6}};
  hy_attrs rows = {.reduce = {hy_one_dim(1), false}}, columns = {.reduce = {hy_one_dim(0), false}};
  hy_attrs all = {.reduce = {hy_all_dims(), false}}, gelu = {.gelu = {true}};
  hy_tensor one = make(dtype, 0, NULL);
  printf("-- %s [%d, %d]\n", hy_dtype_name(dtype), ROWS, COLUMNS);
  time_call("copy", HY_OP_copy, 1, &x, 1, &z, NULL, 2 * n * b);
  time_call("copy, transposed", HY_OP_copy, 1, &turned, 1, &to_turned, NULL, 2 * n * b);
  time_call("add", HY_OP_add, 2, (hy_tensor[]){x, y}, 1, &z, &alpha, 3 * n * b);
  time_call("add, a row to all", HY_OP_add, 2, (hy_tensor[]){x, w}, 1, &z, &alpha, 2 * n * b);
  time_call("silu", HY_OP_silu, 1, &x, 1, &z, NULL, 2 * n * b);
  time_call("gelu", HY_OP_gelu, 1, &x, 1, &z, &gelu, 2 * n * b);
  time_call("softmax", HY_OP_softmax, 1, &x, 1, &z, &last, 2 * n * b);
  time_call("rms_norm", HY_OP_rms_norm, 2, (hy_tensor[]){x, w}, 2, (hy_tensor[]){z, none}, &norm,
            2 * n * b);
  time_call("layer_norm", HY_OP_layer_norm, 3, (hy_tensor[]){x, w, w}, 3,
            (hy_tensor[]){z, none, none}, &norm, 2 * n * b);
  fill(&rstd, 1);
  time_call("rms_norm_backward", HY_OP_rms_norm_backward, 4, (hy_tensor[]){y, x, rstd, w}, 2,
            (hy_tensor[]){z, column}, &norm, 5 * n * b);
  time_call("sum of rows", HY_OP_sum, 1, &x, 1, &r, &rows, n * b);
  time_call("sum of columns", HY_OP_sum, 1, &x, 1, &column, &columns, n * b);
  time_call("sum of all", HY_OP_sum, 1, &x, 1, &one, &all, n * b);
  hy_attrs adamw = {.adamw = {1e-3, 0.9, 0.999, 1e-8, 0.01, 1, false}};
  hy_tensor m = MAKE(HY_F32, ROWS, COLUMNS), v = MAKE(HY_F32, ROWS, COLUMNS);
  fill(&m, 0);
  fill(&v, 0);
  time_call("adamw", HY_OP_adamw, 4, (hy_tensor[]){x, m, v, y}, 3, (hy_tensor[]){x, m, v}, &adamw,
            n * (3 * b + 16));
  hy_tensor* taken[] = {&x, &y, &z, &w, &column, &r, &rstd, &one, &m, &v};
  for (int i = 0; i < 10; i++) drop(taken[i]);
}

// The gate of an MLP and its gradient, call by call or captured and fused: silu(x) y, silu'(x) (d
// y).
static void run_gate(hy_tensor* x, hy_tensor* y, hy_tensor* d, hy_tensor* half, hy_tensor* out) {
  run(HY_OP_silu, 1, x, 1, half, NULL);
  run(HY_OP_mul, 2, (hy_tensor[]){*half, *y}, 1, &out[0], NULL);
  run(HY_OP_mul, 2, (hy_tensor[]){*d, *y}, 1, &half[1], NULL);
  run(HY_OP_silu_backward, 2, (hy_tensor[]){half[1], *x}, 1, &out[1], NULL);
}

static void check_chain(hy_dtype dtype) {
  enum { ROWS = 1024, COLUMNS = 1032 };
  const size_t bytes = (size_t)ROWS * COLUMNS * hy_dtype_size(dtype);
  hy_tensor t[9];
  for (int i = 0; i < 9; i++) t[i] = MAKE(dtype, ROWS, COLUMNS);
  for (int i = 0; i < 3; i++) normal(&t[i], (uint64_t)i + 1);
  run_gate(&t[0], &t[1], &t[2], &t[3], &t[5]);
  hy_graph* graph;
  must(hy_capture_begin(stream), "capture");
  run_gate(&t[0], &t[1], &t[2], &t[3], &t[7]);
  must(hy_capture_end(stream, &graph), "capture");
  must(hy_graph_run_passes(graph, HY_PASS_FUSE, NULL), "passes");
  int nodes = hy_graph_node_count(graph);
  must(hy_graph_launch(graph, stream), "launch");
  char *called = malloc(bytes), *fused = malloc(bytes), name[96];
  bool same = called && fused;
  for (int i = 0; i < 2 && same; i++) {
    fetch(&t[5 + i], called);
    fetch(&t[7 + i], fused);
    same = !memcmp(called, fused, bytes);
  }
  snprintf(name, sizeof name, "%s: a gate as %d chains has the bits of its 4 calls",
           hy_dtype_name(dtype), nodes);
  check(same && nodes == 2, name);
  free(called);
  free(fused);
  hy_graph_destroy(graph);
  for (int i = 0; i < 9; i++) drop(&t[i]);
}

int main(int argc, char** argv) {
  const char* backend = "cuda:0";
  bool timing = false;
  for (int i = 1; i < argc; i++) {
    if (!strcmp(argv[i], "--time"))
      timing = true;
    else if (!strcmp(argv[i], "--backend") && i + 1 < argc)
      backend = argv[++i];
  }
  must(hy_device_get(backend, &device), backend);
  must(hy_stream_create(device, &stream), "stream");
  if (timing) {
    time_type(HY_BF16);
    time_type(HY_F32);
  } else {
    beyond_int32();
    long_lanes();
    vocabulary();
    check_chain(HY_BF16);
    check_chain(HY_F32);
  }
  hy_stream_destroy(stream);
  hy_shutdown();
  return failures != 0;
}
