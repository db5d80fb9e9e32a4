// What the cpu has no kernel for runs as the reference on parts of the call: the same bits as the
// reference on all of it, with one thread or several.
#include <stdlib.h>
#include <string.h>

#include "backends/cpu/family.h"
#include "backends/cpu/provider.h"
#include "backends/cpu/runtime/thread_pool.h"
#include "reference_call.h"

enum { MOST = 64 * 1024, INPUTS = 5, OUTS = 3 };
static double inputs[INPUTS][MOST], want[OUTS][MOST], got[OUTS][MOST];

static void store(void* data, hy_dtype dtype, int64_t i, int64_t value) {
  switch (dtype) {
    case HY_F64: ((double*)data)[i] = (double)value / 16; return;
    case HY_F32: ((float*)data)[i] = (float)value / 16; return;
    case HY_I64: ((int64_t*)data)[i] = value; return;
    case HY_I32: ((int32_t*)data)[i] = (int32_t)value; return;
    default: ((uint8_t*)data)[i] = value % 2 != 0; return;
  }
}

// Whole numbers of low .. high - 1; sixteenths of them in floats.
static hy_tensor filled(int slot, hy_dtype dtype, int ndim, const int64_t* shape, int64_t low,
                        int64_t high) {
  static uint32_t state = 1;
  hy_tensor t = tensor_of(inputs[slot], dtype, ndim, shape);
  for (int64_t i = 0; i < hy_tensor_numel(&t); i++) {
    state = state * 1664525 + 1013904223;
    store(inputs[slot], dtype, i, low + (int64_t)(state >> 8) % (high - low));
  }
  return t;
}
#define numbers(slot, dtype, ...) \
  filled(slot, dtype, TENSOR_RANK(__VA_ARGS__), (int64_t[]){__VA_ARGS__}, -500, 500)
#define indices(slot, high, ...) \
  filled(slot, HY_I64, TENSOR_RANK(__VA_ARGS__), (int64_t[]){__VA_ARGS__}, 0, high)
#define like(dtype, ...) tensor(NULL, dtype, __VA_ARGS__)

static void same(hy_op op, hy_attrs attrs, int n_in, const hy_tensor* in, int n_out,
                 hy_tensor* out) {
  hy_call call = {.op = op, .n_in = n_in, .n_out = n_out, .in = in, .out = out, .attrs = attrs};
  for (int k = 0; k < n_out; k++) out[k].data = out[k].dtype == HY_NONE ? NULL : want[k];
  assert_int_equal(hy__reference(&call), HY_OK);
  if (hy__cpu_reference_mt.supports(NULL, &call) != HY_SUPPORT_YES)
    fail_msg("%s is not cut into parts", hy_op_name(op));
  int threads = hy__pool_threads();
  for (int t = 1; t <= 3; t++) {
    hy__pool_set_threads(t);
    memset(got, 0xee, sizeof got);
    for (int k = 0; k < n_out; k++) out[k].data = out[k].dtype == HY_NONE ? NULL : got[k];
    assert_int_equal((hy__cpu_reference_mt.run)(NULL, NULL, &call), HY_OK);
    for (int k = 0; k < n_out; k++) {
      if (out[k].dtype != HY_NONE && memcmp(got[k], want[k], hy_tensor_bytes(&out[k])) != 0)
        fail_msg("output %d of %s in parts differs from the whole", k, hy_op_name(op));
    }
  }
  hy__pool_set_threads(threads);
}
#define IN(...)                         \
  TENSORS(__VA_ARGS__), (hy_tensor[]) { \
    __VA_ARGS__                         \
  }
#define OUT(...)                        \
  TENSORS(__VA_ARGS__), (hy_tensor[]) { \
    __VA_ARGS__                         \
  }
#define TENSORS(...) (int)(sizeof((hy_tensor[]){__VA_ARGS__}) / sizeof(hy_tensor))

static void elementwise(void** state) {
  (void)state;
  hy_tensor x = numbers(0, HY_F64, 40, 1000), row = numbers(1, HY_F64, 1000);
  hy_tensor column = numbers(2, HY_I32, 40, 1), mask = numbers(3, HY_BOOL, 40, 1000);
  hy_attrs alpha = ATTRS(.alpha = {hy_float(0.5)});
  same(HY_OP_add, alpha, IN(x, row), OUT(like(HY_F64, 40, 1000)));
  same(HY_OP_mul, alpha, IN(x, column), OUT(like(HY_F64, 40, 1000)));
  same(HY_OP_exp, alpha, IN(column), OUT(like(HY_F32, 40, 1)));
  same(HY_OP_where, alpha, IN(mask, row, x), OUT(like(HY_F64, 40, 1000)));
  same(HY_OP_tril, ATTRS(.tri = {3}), IN(numbers(0, HY_I32, 50, 30, 20)),
       OUT(like(HY_I32, 50, 30, 20)));
  hy_attrs sgd = ATTRS(.sgd = {0.1, 0.9, 0, 0.01, true, false, false});
  same(HY_OP_sgd, sgd, IN(x, numbers(1, HY_F64, 40, 1000), numbers(2, HY_F64, 40, 1000)),
       OUT(like(HY_F64, 40, 1000), like(HY_F64, 40, 1000)));
}

static void along_a_dimension(void** state) {
  (void)state;
  for (int dim = 0; dim < 2; dim++) {
    hy_tensor x = numbers(0, HY_F32, 200, 150), out = like(HY_F32, 200, 150);
    hy_tensor index = like(HY_I64, 200, 150);
    same(HY_OP_cumsum, ATTRS(.scan = {dim, true}), IN(x), OUT(out));
    same(HY_OP_sort, ATTRS(.sort = {dim - 2, true}), IN(x), OUT(out, index));
    same(HY_OP_topk, ATTRS(.topk = {5, dim, true, true}), IN(x),
         OUT(dim ? like(HY_F32, 200, 5) : like(HY_F32, 5, 150),
             dim ? like(HY_I64, 200, 5) : like(HY_I64, 5, 150)));
    hy_tensor places = indices(1, 150, 200, 150), src = numbers(2, HY_F32, 200, 150);
    same(HY_OP_gather, ATTRS(.dim = {dim}), IN(x, places), OUT(out));
    same(HY_OP_scatter, ATTRS(.scatter = {dim, HY_SCATTER_ADD}), IN(x, places, src), OUT(out));
    hy_tensor line = dim ? indices(1, 150, 150) : indices(1, 150, 200);
    same(HY_OP_index_add, ATTRS(.dim = {dim}), IN(x, line, src), OUT(out));
    same(HY_OP_softmax, ATTRS(.dim = {dim}), IN(numbers(3, HY_F64, 200, 150)),
         OUT(like(HY_F64, 200, 150)));
  }
}

static void reductions(void** state) {
  (void)state;
  hy_tensor x = numbers(0, HY_I32, 60, 50, 10), flags = numbers(1, HY_BOOL, 60, 50, 10);
  hy_attrs all = ATTRS(.reduce = {hy_all_dims(), false}), kept = all;
  kept.reduce.keepdim = true;
  same(HY_OP_sum, all, IN(x), OUT(scalar(NULL, HY_I64)));
  same(HY_OP_max, kept, IN(x), OUT(like(HY_I32, 1, 1, 1)));
  same(HY_OP_any, all, IN(flags), OUT(scalar(NULL, HY_BOOL)));
  same(HY_OP_all, all, IN(flags), OUT(scalar(NULL, HY_BOOL)));
  for (int d = 0; d < 3; d++) {
    int64_t left[3][2] = {{50, 10}, {60, 10}, {60, 50}};
    hy_attrs attrs = ATTRS(.reduce = {hy_one_dim(d - 3), false});
    same(HY_OP_sum, attrs, IN(x), OUT(tensor_of(NULL, HY_I64, 2, left[d])));
    same(HY_OP_any, attrs, IN(flags), OUT(tensor_of(NULL, HY_BOOL, 2, left[d])));
    same(HY_OP_max_dim, attrs, IN(x),
         OUT(tensor_of(NULL, HY_I32, 2, left[d]), tensor_of(NULL, HY_I64, 2, left[d])));
  }
}

static void images(void** state) {
  (void)state;
  hy_tensor x = numbers(0, HY_F64, 3, 20, 24, 24), half = like(HY_F64, 3, 20, 12, 12);
  hy_attrs most = ATTRS(.max_pool = {{2, 2}, {2, 2}, {0, 0}, {1, 1}, false});
  same(HY_OP_max_pool2d, most, IN(x), OUT(half, like(HY_I64, 3, 20, 12, 12)));
  hy_tensor vector = like(HY_F64, 20), whole = like(HY_F64, 3, 20, 24, 24);
  hy_tensor weight = numbers(1, HY_F64, 20), absent = hy_tensor_absent();
  hy_attrs norm = ATTRS(.batch_norm = {true, 0.1, 1e-5});
  same(HY_OP_batch_norm, norm, IN(x, weight, absent, absent, absent), OUT(whole, vector, vector));
  hy_tensor dy = numbers(2, HY_F64, 3, 20, 24, 24);
  same(HY_OP_batch_norm_backward, norm, IN(dy, x, weight, weight, absent),
       OUT(whole, vector, vector));
  hy_tensor mean = numbers(3, HY_F64, 20);
  same(HY_OP_batch_norm_update, norm, IN(mean, weight, x), OUT(vector, vector));
}

static void products(void** state) {
  (void)state;
  hy_tensor a = numbers(0, HY_F64, 200, 100), b = numbers(1, HY_F64, 100, 60);
  same(HY_OP_mm, ATTRS(.dim = {0}), IN(a, b), OUT(like(HY_F64, 200, 60)));
  hy_tensor w = numbers(1, HY_F64, 60, 100), bias = numbers(2, HY_F64, 60);
  same(HY_OP_linear, ATTRS(.dim = {0}), IN(a, w, bias), OUT(like(HY_F64, 200, 60)));
  same(HY_OP_bmm, ATTRS(.dim = {0}),
       IN(numbers(0, HY_I32, 20, 30, 40), numbers(1, HY_I32, 20, 40, 10)),
       OUT(like(HY_I32, 20, 30, 10)));
  same(HY_OP_layer_norm, ATTRS(.norm = {1, 1e-5}), IN(a, hy_tensor_absent(), hy_tensor_absent()),
       OUT(like(HY_F64, 200, 100), like(HY_F64, 200, 1), like(HY_F64, 200, 1)));
}

static void random_numbers(void** state) {
  (void)state;
  hy_attrs attrs = ATTRS(.random = {7, 3, -1, 2});
  same(HY_OP_uniform, attrs, 0, NULL, OUT(like(HY_F32, 33, 1001)));
  same(HY_OP_normal, attrs, 0, NULL, OUT(like(HY_F64, 33, 1001)));
  same(HY_OP_randint, attrs, 0, NULL, OUT(like(HY_I32, 33, 1001)));
  same(HY_OP_dropout, ATTRS(.dropout = {7, 3, 0.25}), IN(numbers(0, HY_F32, 33, 1001)),
       OUT(like(HY_F32, 33, 1001), like(HY_BOOL, 33, 1001)));
}

// The message is the calling thread's, whichever thread came upon the mistake.
static void a_mistake_is_reported(void** state) {
  (void)state;
  hy_tensor in[2] = {numbers(0, HY_F32, 200, 150), indices(1, 150, 200, 150)};
  hy_tensor out = tensor(got[0], HY_F32, 200, 150);
  ((int64_t*)(void*)inputs[1])[29000] = 150;
  hy_call call = {.op = HY_OP_gather, .n_in = 2, .n_out = 1, .in = in, .out = &out};
  call.attrs.dim.dim = 1;
  assert_int_equal((hy__cpu_reference_mt.run)(NULL, NULL, &call), HY_INDEX);
  assert_non_null(strstr(hy_last_error(), "150"));
}

// Opening the device hands the backend the library's services.
static int open_cpu(void** state) {
  (void)state;
  hy_device* device;
  return hy_device_get("cpu", &device) == HY_OK ? 0 : -1;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(elementwise),
      cmocka_unit_test(along_a_dimension),
      cmocka_unit_test(reductions),
      cmocka_unit_test(images),
      cmocka_unit_test(products),
      cmocka_unit_test(random_numbers),
      cmocka_unit_test(a_mistake_is_reported),
  };
  return cmocka_run_group_tests(tests, open_cpu, NULL);
}
