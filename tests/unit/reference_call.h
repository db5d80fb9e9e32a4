// Calls of the reference in few words, for the tests of its kernels.
#ifndef HALYARD_TESTS_REFERENCE_CALL_H_
#define HALYARD_TESTS_REFERENCE_CALL_H_

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "ops/internal.h"
#include "support/close.h"

static inline hy_tensor tensor_of(void* data, hy_dtype dtype, int ndim, const int64_t* shape) {
  hy_tensor t;
  assert_int_equal(hy_tensor_init(&t, data, dtype, ndim, shape), HY_OK);
  return t;
}

#define scalar(data, dtype) tensor_of(data, dtype, 0, NULL)
// tensor(x, HY_F32, 2, 3) is x as a 2 x 3 matrix.
#define TENSOR_RANK(...) ((int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)))
#define tensor(data, dtype, ...) \
  tensor_of(data, dtype, TENSOR_RANK(__VA_ARGS__), (int64_t[]){__VA_ARGS__})

static inline hy_status reference(hy_op op, hy_tensor* out, const hy_tensor* in, int n_in,
                                  hy_attrs attrs) {
  hy_call call = {.op = op, .n_in = n_in, .in = in, .out = out, .attrs = attrs};
  call.n_out = hy_op_describe(op)->n_outputs;
  return hy__reference(&call);
}

// run(HY_OP_cat, ATTRS(.dim = {1}), OUTPUTS(out), a, b)
#define ATTRS(...) ((hy_attrs){__VA_ARGS__})
#define OUTPUTS(...) \
  (hy_tensor[]) {    \
    __VA_ARGS__      \
  }
#define run(op, attrs, outputs, ...)                 \
  reference(op, outputs, (hy_tensor[]){__VA_ARGS__}, \
            (int)(sizeof((hy_tensor[]){__VA_ARGS__}) / sizeof(hy_tensor)), attrs)

static inline void check_floats(const float* actual, const float* expected, size_t n,
                                double limit) {
  for (size_t i = 0; i < n; i++) {
    double a = actual[i], e = expected[i];
    if (!is_close(a, e, (tolerance){limit, limit}))
      fail_msg("element %zu is %.9g, not %.9g", i, a, e);
  }
}

#define assert_floats_near(actual, limit, ...)       \
  check_floats(actual, (const float[]){__VA_ARGS__}, \
               sizeof((const float[]){__VA_ARGS__}) / sizeof(float), limit)
#define assert_floats(actual, ...) assert_floats_near(actual, 1e-6, __VA_ARGS__)

#define assert_indices(actual, ...) \
  assert_memory_equal(actual, ((const int64_t[]){__VA_ARGS__}), sizeof((int64_t[]){__VA_ARGS__}))

#endif  // HALYARD_TESTS_REFERENCE_CALL_H_
