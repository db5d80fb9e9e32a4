// Packed weights: products of a graph read them as their kernels would pack them, to the bit, and
// anew once the contents are said to be others.
#include <stdlib.h>

#include "halyard/halyard.h"
#include "support/check.h"
#include "support/stub.h"

static hy_device* device;
static hy_stream* stream;

static int set_up(void** state) {
  (void)state;
  CHECK_OK(hy_device_get("cpu", &device));
  CHECK_OK(hy_stream_create(device, &stream));
  return 0;
}

static int tear_down(void** state) {
  (void)state;
  hy_stream_destroy(stream);
  hy_shutdown();
  return 0;
}

static hy_tensor filled(hy_dtype dtype, int64_t rows, int64_t columns, uint64_t seed) {
  static const float low = -1, high = 1;
  hy_tensor t;
  void* data;
  CHECK_OK(hy_tensor_init(&t, NULL, dtype, 2, (const int64_t[]){rows, columns}));
  CHECK_OK(hy_alloc(stream, hy_tensor_bytes(&t), &data));
  t.data = data;
  uint64_t x = seed * 2654435761u + 1;
  for (int64_t i = 0; i < rows * columns; i++) {
    x = x * 6364136223846793005u + 1442695040888963407u;
    float f = low + (high - low) * (float)(x >> 40) / (float)(1 << 24);
    if (dtype == HY_F32) {
      ((float*)data)[i] = f;
      continue;
    }
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    ((uint16_t*)data)[i] = (uint16_t)(bits >> 16);
  }
  return t;
}

typedef struct product {
  hy_tensor x, w, addend, y;  // w: what is packed, of any strides
  hy_op op;
  hy_graph* graph;
  hy_tensor owned;  // the memory of w
} product;

typedef enum form { LINEAR, MM, MM_TRANSPOSED, ADDMM, FORMS } form;

static product capture(form f, hy_dtype dtype, int64_t m, int64_t n, int64_t k) {
  bool by_rows = f == LINEAR || f == MM_TRANSPOSED;  // w is [n, k] in memory
  product p = {.x = filled(dtype, m, k, 1),
               .owned = filled(dtype, by_rows ? n : k, by_rows ? k : n, 2),
               .addend = filled(dtype, m, n, 3),
               .y = filled(dtype, m, n, 4)};
  p.w = p.owned;
  if (f == MM_TRANSPOSED) CHECK_OK(hy_transpose(&p.w, &p.owned, 0, 1));
  CHECK_OK(hy_capture_begin(stream));
  if (f == LINEAR) {
    hy_tensor bias = p.addend;
    bias.ndim = 1;
    bias.shape[0] = n;
    bias.stride[0] = 1;
    CHECK_OK(hy_linear(stream, &p.y, &p.x, &p.w, &bias));
  } else if (f == ADDMM) {
    CHECK_OK(hy_addmm(stream, &p.y, &p.addend, &p.x, &p.w, hy_float(0.5), hy_float(2)));
  } else {
    CHECK_OK(hy_mm(stream, &p.y, &p.x, &p.w));
  }
  CHECK_OK(hy_capture_end(stream, &p.graph));
  return p;
}

static void drop(product* p) {
  hy_graph_destroy(p->graph);
  hy_free(device, p->x.data);
  hy_free(device, p->owned.data);
  hy_free(device, p->addend.data);
  hy_free(device, p->y.data);
}

static hy_status pack(const product* p, uint64_t contents, uint64_t* bytes) {
  return hy_graph_pack(p->graph, p->owned.data, hy_tensor_bytes(&p->owned), contents, bytes);
}

static bool is_packed(const hy_graph* graph) {
  char text[1024];
  hy_graph_describe(graph, text, sizeof text);
  return strstr(text, ", packed") != NULL;
}

static void* launched(const product* p) {
  size_t bytes = hy_tensor_bytes(&p->y);
  void* copy = malloc(bytes);
  memset(p->y.data, 0x7f, bytes);
  CHECK_OK(hy_graph_launch(p->graph, stream));
  memcpy(copy, p->y.data, bytes);
  return copy;
}

static void check_same(const product* p, void* a, void* b, bool same) {
  assert_int_equal(memcmp(a, b, hy_tensor_bytes(&p->y)) == 0, same);
  free(a);
  free(b);
}

static void test_the_bits_stay(void** state) {
  (void)state;
  static const int64_t sizes[][3] = {{70, 33, 41},   {100, 64, 96}, {65, 200, 1031},
                                     {128, 31, 513}, {500, 5, 70},  {77, 160, 2100}};
  static const hy_dtype dtypes[] = {HY_F32, HY_BF16};
  for (int s = 0; s < 6; s++) {
    for (int d = 0; d < 2; d++) {
      for (form f = 0; f < FORMS; f++) {
        product p = capture(f, dtypes[d], sizes[s][0], sizes[s][1], sizes[s][2]);
        void* before = launched(&p);
        uint64_t would, bytes;
        CHECK_OK(pack(&p, 0, &would));
        assert_false(is_packed(p.graph));
        CHECK_OK(pack(&p, 7, &bytes));
        assert_true(is_packed(p.graph));
        assert_true(bytes == would && bytes >= hy_tensor_bytes(&p.w));
        check_same(&p, before, launched(&p), true);
        drop(&p);
      }
    }
  }
}

// That the old copy is read until then shows that there is one.
static void test_other_contents(void** state) {
  (void)state;
  product p = capture(LINEAR, HY_BF16, 100, 64, 96);
  CHECK_OK(pack(&p, 1, NULL));
  void* old = launched(&p);
  memset(p.owned.data, 0, 64);
  check_same(&p, old, launched(&p), true);
  CHECK_OK(pack(&p, 2, NULL));
  void* packed = launched(&p);
  CHECK_OK(pack(&p, 0, NULL));
  assert_false(is_packed(p.graph));
  check_same(&p, packed, launched(&p), true);
  drop(&p);
}

static uint64_t allocated(void) {
  hy_memory_stats stats;
  CHECK_OK(hy_memory_get_stats(device, &stats));
  return stats.allocated;
}

static void test_graphs_share_equal_contents(void** state) {
  (void)state;
  product p = capture(LINEAR, HY_BF16, 100, 64, 96), q;
  q = p;
  CHECK_OK(hy_capture_begin(stream));
  CHECK_OK(hy_linear(stream, &q.y, &q.x, &q.w, NULL));
  CHECK_OK(hy_capture_end(stream, &q.graph));
  uint64_t bytes, none = allocated();
  CHECK_OK(pack(&p, 1, &bytes));
  assert_true(allocated() - none >= bytes);
  uint64_t one = allocated();
  CHECK_OK(pack(&q, 1, NULL));
  assert_int_equal(allocated(), one);
  CHECK_OK(pack(&p, 0, NULL));
  assert_int_equal(allocated(), one);
  CHECK_OK(pack(&p, 2, NULL));
  assert_true(allocated() > one);
  hy_graph_destroy(q.graph);
  assert_int_equal(allocated(), one);
  CHECK_OK(pack(&p, 0, NULL));
  assert_int_equal(allocated(), none);
  drop(&p);
}

static void test_bound_elsewhere(void** state) {
  (void)state;
  product p = capture(LINEAR, HY_BF16, 100, 64, 96);
  hy_tensor other = filled(HY_BF16, 64, 96, 9), x = filled(HY_BF16, 100, 96, 10);
  size_t bytes = hy_tensor_bytes(&other);
  CHECK_OK(pack(&p, 1, NULL));
  CHECK_OK(hy_graph_bind(p.graph, &(hy_binding){p.x.data, hy_tensor_bytes(&x), x.data}, 1));
  assert_true(is_packed(p.graph));
  CHECK_OK(hy_graph_bind(p.graph, &(hy_binding){p.owned.data, bytes, other.data}, 1));
  assert_false(is_packed(p.graph));
  void* plain = launched(&p);
  CHECK_OK(pack(&p, 1, NULL));
  assert_true(is_packed(p.graph));
  check_same(&p, plain, launched(&p), true);
  drop(&p);
  hy_free(device, other.data);
  hy_free(device, x.data);
}

static void test_what_is_not_packed(void** state) {
  (void)state;
  static const int64_t rows[] = {1, 16, 513};  // read in place, and rows enough to pay for packing
  for (int i = 0; i < 3; i++) {
    product p = capture(LINEAR, HY_BF16, rows[i], 64, 96);
    uint64_t bytes = 1;
    CHECK_OK(pack(&p, 1, &bytes));
    assert_int_equal(bytes, 0);
    assert_false(is_packed(p.graph));
    drop(&p);
  }
  product p = capture(LINEAR, HY_BF16, 100, 64, 96);
  CHECK_FAILS(HY_INVALID_ARGUMENT, "node 0 writes there",
              hy_graph_pack(p.graph, p.y.data, hy_tensor_bytes(&p.y), 1, NULL));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "graph is NULL", hy_graph_pack(NULL, p.y.data, 1, 1, NULL));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "range is empty",
              hy_graph_pack(p.graph, p.owned.data, 0, 1, NULL));
  uint64_t bytes = 1;  // half of the matrix says nothing of the rest
  CHECK_OK(hy_graph_pack(p.graph, p.owned.data, hy_tensor_bytes(&p.owned) / 2, 1, &bytes));
  assert_int_equal(bytes, 0);
  drop(&p);
}

static void test_without_memory(void** state) {
  (void)state;
  product p = capture(LINEAR, HY_BF16, 100, 64, 96);
  void* before = launched(&p);
  hy_inject_fault(HY_FAULT_ALLOCATION, 1);
  CHECK_FAILS(HY_OUT_OF_MEMORY, "", pack(&p, 1, NULL));
  hy_inject_fault(HY_FAULT_ALLOCATION, 0);
  assert_false(is_packed(p.graph));
  check_same(&p, before, launched(&p), true);
  drop(&p);
}

static uint64_t packs_nothing(void* device_handle, const hy_call* call, hy_tensor* matrix) {
  (void)device_handle, (void)call, (void)matrix;
  return 0;
}

static void test_half_a_provider_is_refused(void** state) {
  (void)state;
  hy_provider provider = stub_provider("halved");
  hy_backend backend = stub_backend("halved");
  provider.packed_bytes = packs_nothing;
  backend.providers = (const hy_provider*[]){&provider};
  backend.n_providers = 1;
  CHECK_FAILS(HY_FORMAT, "packed_bytes, pack and run_packed go together",
              hy_register_backend(&backend));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_the_bits_stay, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_other_contents, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_graphs_share_equal_contents, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_bound_elsewhere, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_what_is_not_packed, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_without_memory, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_half_a_provider_is_refused, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
