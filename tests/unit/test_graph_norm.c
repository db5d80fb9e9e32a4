// Norm, linear layer and epilogue as one fused_linear: random layers on the guarded device, which
// has a kernel for it, and on the cpu, which has none.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "halyard/halyard.h"
#include "support/check.h"

enum { MOST = 1 << 12 };
typedef enum kind { BARE, RESIDUAL, GATED, KINDS } kind;

static hy_device* device;
static hy_stream* stream;
static hy_graph* graph;
static uint64_t random_state;

static int draw(int below) {
  random_state = random_state * 6364136223846793005u + 1442695040888963407u;
  return (int)((random_state >> 33) % (uint64_t)below);
}

static void open_device(const char* selector) {
  CHECK_OK(hy_load_plugin(HALYARD_GUARDED_PLUGIN));
  CHECK_OK(hy_device_get(selector, &device));
  CHECK_OK(hy_stream_create(device, &stream));
}

static int tear_down(void** state) {
  (void)state;
  hy_stream_destroy(stream);
  hy_shutdown();
  return 0;
}

static hy_tensor constant(int ndim, int64_t rows, int64_t columns) {
  static float values[MOST];
  hy_tensor host, value;
  for (int i = 0; i < MOST; i++) values[i] = (float)draw(2001) / 1000 - 1;
  CHECK_OK(hy_tensor_init(&host, values, HY_F32, ndim, (const int64_t[]){rows, columns}));
  CHECK_OK(hy_graph_constant(graph, &host, &value));
  return value;
}

static hy_tensor call(hy_op op, int n, const hy_tensor* in, hy_attrs attrs) {
  hy_tensor out[2] = {{0}};
  hy_call c = {.op = op, .n_in = n, .n_out = 1, .in = in, .out = out, .attrs = attrs};
  c.n_out += op == HY_OP_rms_norm;  // rstd, which nobody wants
  CHECK_OK(hy_graph_add(graph, &c));
  return out[0];
}

static hy_tensor columns_of(const hy_tensor* t, int64_t first, int64_t count) {
  hy_tensor part = *t;
  part.shape[1] = count;
  part.data = (char*)t->data + first * (int64_t)sizeof(float);
  return part;
}

// x [rows, k] -> [rows, n]
static hy_tensor layer(kind what, hy_tensor x, int64_t n) {
  int64_t rows = x.shape[0], k = x.shape[1];
  hy_tensor normed = call(HY_OP_rms_norm, 2, (hy_tensor[]){x, constant(1, k, 0)},
                          (hy_attrs){.norm = {.norm_dims = 1, .eps = 1e-6}});
  int64_t outs = what == GATED ? 2 * n : n;
  hy_tensor bias = draw(2) ? constant(1, outs, 0) : hy_tensor_absent();
  hy_tensor y =
      call(HY_OP_linear, 3, (hy_tensor[]){normed, constant(2, outs, k), bias}, (hy_attrs){0});
  bool swapped = draw(2);
  if (what == RESIDUAL) {
    hy_tensor residual = constant(2, rows, n);
    return call(HY_OP_add, 2, (hy_tensor[]){swapped ? residual : y, swapped ? y : residual},
                (hy_attrs){.alpha = {hy_int(1)}});
  }
  if (what == BARE) return y;
  hy_tensor first = columns_of(&y, 0, n), second = columns_of(&y, n, n);
  hy_tensor silu = call(HY_OP_silu, 1, &first, (hy_attrs){0});
  return call(HY_OP_mul, 2, (hy_tensor[]){swapped ? second : silu, swapped ? silu : second},
              (hy_attrs){0});
}

static float input[MOST], before[MOST], after[MOST];

static void launch(void* to, float* host, size_t bytes) {
  CHECK_OK(hy_graph_launch(graph, stream));
  CHECK_OK(hy_memcpy(stream, host, to, bytes, HY_COPY_DEVICE_TO_HOST));
  CHECK_OK(hy_stream_sync(stream));
}

static int count_fused(void) {
  int fused = 0;
  for (int i = 0; i < hy_graph_node_count(graph); i++) {
    hy_graph_node node;
    CHECK_OK(hy_graph_node_at(graph, i, &node));
    fused += node.call->op == HY_OP_fused_linear;
  }
  return fused;
}

// A graph of two layers; gives how many of them the pass made one node, and nothing beside it.
static int fused_layers(kind what, int64_t rows, uint64_t seed) {
  random_state = seed;
  int64_t k = 1 + draw(40), middle = 1 + draw(20), n = 1 + draw(20);
  hy_tensor x;
  void *from, *to;
  CHECK_OK(hy_graph_create(device, &graph));
  CHECK_OK(hy_graph_input(graph, "x", HY_F32, 2, (int64_t[]){rows, k}, &x));
  hy_tensor y = layer(what, layer(what, x, middle), n);
  CHECK_OK(hy_graph_output(graph, "y", &y));
  CHECK_OK(hy_graph_finish(graph));
  size_t in_bytes = hy_tensor_bytes(&x), out_bytes = hy_tensor_bytes(&y);
  for (int i = 0; i < MOST; i++) input[i] = (float)draw(2001) / 1000 - 1;
  CHECK_OK(hy_alloc(stream, in_bytes, &from));
  CHECK_OK(hy_alloc(stream, out_bytes, &to));
  CHECK_OK(hy_memcpy(stream, from, input, in_bytes, HY_COPY_HOST_TO_DEVICE));
  CHECK_OK(hy_graph_set(graph, "x", from));
  CHECK_OK(hy_graph_set(graph, "y", to));
  launch(to, before, out_bytes);
  CHECK_OK(hy_graph_run_passes(graph, HY_PASS_EPILOGUE, NULL));
  launch(to, after, out_bytes);
  for (size_t i = 0; i < out_bytes / sizeof(float); i++)
    assert_true(fabsf(before[i] - after[i]) <= 1e-4f * (1 + fabsf(before[i])));
  int fused = count_fused();
  assert_true(fused == 0 || fused == hy_graph_node_count(graph));
  hy_graph_destroy(graph);
  CHECK_OK(hy_free(device, from));
  CHECK_OK(hy_free(device, to));
  return fused;
}

static void test_fused_where_there_is_a_kernel(void** state) {
  (void)state;
  open_device("guarded");
  for (int what = 0; what < KINDS; what++) {
    for (uint64_t seed = 1; seed <= 40; seed++)
      assert_int_equal(fused_layers((kind)what, 1 + (int64_t)seed % 4, seed), 2);
  }
}

// Many rows, and a device without a kernel.
static void test_left_alone(void** state) {
  (void)state;
  open_device("guarded");
  for (int what = 0; what < KINDS; what++) assert_int_equal(fused_layers((kind)what, 5, 7), 0);
  hy_stream_destroy(stream);
  CHECK_OK(hy_device_get("cpu", &device));
  CHECK_OK(hy_stream_create(device, &stream));
  for (int what = 0; what < KINDS; what++) assert_int_equal(fused_layers((kind)what, 1, 7), 0);
}

// A norm that something else reads, and an input that changes behind the norm.
static void test_other_readers(void** state) {
  (void)state;
  open_device("guarded");
  for (int changed = 0; changed < 2; changed++) {
    hy_tensor x;
    void *from, *to;
    CHECK_OK(hy_graph_create(device, &graph));
    CHECK_OK(hy_graph_input(graph, "x", HY_F32, 2, (int64_t[]){2, 8}, &x));
    hy_tensor normed = call(HY_OP_rms_norm, 2, (hy_tensor[]){x, constant(1, 8, 0)},
                            (hy_attrs){.norm = {.norm_dims = 1, .eps = 1e-6}});
    if (changed) {
      hy_tensor here = x;
      hy_call c = {.op = HY_OP_neg, .n_in = 1, .n_out = 1, .in = &x, .out = &here};
      CHECK_OK(hy_graph_add(graph, &c));
    }
    hy_tensor y = call(HY_OP_linear, 3,
                       (hy_tensor[]){normed, constant(2, 8, 8), hy_tensor_absent()}, (hy_attrs){0});
    if (!changed) y = call(HY_OP_mul, 2, (hy_tensor[]){y, normed}, (hy_attrs){0});
    CHECK_OK(hy_graph_output(graph, "y", &y));
    CHECK_OK(hy_graph_finish(graph));
    CHECK_OK(hy_alloc(stream, 64, &from));
    CHECK_OK(hy_alloc(stream, 64, &to));
    CHECK_OK(hy_graph_set(graph, "x", from));
    CHECK_OK(hy_graph_set(graph, "y", to));
    CHECK_OK(hy_graph_run_passes(graph, HY_PASS_EPILOGUE, NULL));
    assert_int_equal(hy_graph_node_count(graph), 3);
    hy_graph_destroy(graph);
    CHECK_OK(hy_free(device, from));
    CHECK_OK(hy_free(device, to));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_teardown(test_fused_where_there_is_a_kernel, tear_down),
      cmocka_unit_test_teardown(test_left_alone, tear_down),
      cmocka_unit_test_teardown(test_other_readers, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
