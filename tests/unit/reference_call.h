// Calls of the reference in few words, for the tests of its kernels.
#ifndef HALYARD_TESTS_REFERENCE_CALL_H_
#define HALYARD_TESTS_REFERENCE_CALL_H_

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "ops/internal.h"

static inline hy_tensor tensor_of(void* data, hy_dtype dtype, int ndim, const int64_t* shape) {
  hy_tensor t;
  assert_int_equal(hy_tensor_init(&t, data, dtype, ndim, shape), HY_OK);
  return t;
}

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

#define assert_floats(actual, ...)                                                               \
  do {                                                                                           \
    const float expected_[] = {__VA_ARGS__};                                                     \
    for (size_t i_ = 0; i_ < sizeof expected_ / sizeof expected_[0]; i_++)                       \
      assert_float_equal((actual)[i_], expected_[i_], 1e-6f + 1e-6f * fabsf(expected_[i_]));     \
  } while (0)

#endif  // HALYARD_TESTS_REFERENCE_CALL_H_
