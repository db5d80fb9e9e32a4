// Arrays for tests: made from host values, read back, and counted.
#ifndef HALYARD_TESTS_SUPPORT_ARRAYS_H_
#define HALYARD_TESTS_SUPPORT_ARRAYS_H_

#include "halyard/array.h"
#include "support/check.h"

typedef struct bench {
  hy_device* device;
  hy_stream* stream;
  hy_tape* tape;
  uint64_t allocated;  // bytes in use when it was opened
} bench;

static inline bench bench_open_on(const char* selector) {
  bench b;
  CHECK_OK(hy_device_get(selector, &b.device));
  CHECK_OK(hy_stream_create(b.device, &b.stream));
  CHECK_OK(hy_tape_create(b.stream, &b.tape));
  hy_memory_stats stats;
  CHECK_OK(hy_memory_get_stats(b.device, &stats));
  b.allocated = stats.allocated;
  return b;
}

static inline bench bench_open(void) {
  return bench_open_on("cpu");
}

// Bytes of device memory in use since the bench was opened.
static inline uint64_t bench_in_use(const bench* b) {
  hy_memory_stats stats;
  CHECK_OK(hy_memory_get_stats(b->device, &stats));
  return stats.allocated - b->allocated;
}

// Everything the test made must be released by now.
static inline void bench_close(bench* b) {
  assert_int_equal(hy_tape_size(b->tape), 0);
  hy_tape_destroy(b->tape);
  assert_int_equal(bench_in_use(b), 0);
  hy_stream_destroy(b->stream);
}

#define SHAPE(...)                                                         \
  (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]) { \
    __VA_ARGS__                                                            \
  }

static inline hy_array* make_f64(bench* b, const double* values, int ndim, const int64_t* shape) {
  hy_array* array;
  CHECK_OK(hy_array_from_host(b->stream, &array, HY_F64, ndim, shape, values));
  return array;
}

static inline hy_array* leaf_f64(bench* b, const double* values, int ndim, const int64_t* shape) {
  hy_array* array = make_f64(b, values, ndim, shape);
  CHECK_OK(hy_array_set_requires_grad(array, true));
  return array;
}

// The array's values, converted by a cast where it is not f64.
static inline void read_f64(bench* b, hy_array* array, double* values) {
  hy_array* wide;
  bool was = hy_tape_set_recording(b->tape, false);
  CHECK_OK(hy_array_cast(b->tape, &wide, array, HY_F64));
  hy_tape_set_recording(b->tape, was);
  CHECK_OK(hy_array_to_host(b->stream, wide, values, hy_tensor_bytes(hy_array_tensor(wide))));
  hy_array_release(wide);
}

// The array holds exactly these values.
#define CHECK_VALUES(b, array, ...)                                                        \
  do {                                                                                     \
    const double expected_[] = {__VA_ARGS__};                                              \
    double values_[sizeof expected_ / sizeof expected_[0]];                                \
    assert_non_null(array);                                                                \
    assert_int_equal(hy_tensor_numel(hy_array_tensor(array)), sizeof values_ / 8);         \
    read_f64(b, array, values_);                                                           \
    for (size_t i_ = 0; i_ < sizeof values_ / 8; i_++) {                                   \
      if (!(values_[i_] - expected_[i_] <= 1e-12 && expected_[i_] - values_[i_] <= 1e-12)) \
        fail_msg("%s[%zu] is %.17g, not %.17g", #array, i_, values_[i_], expected_[i_]);   \
    }                                                                                      \
  } while (0)

#endif  // HALYARD_TESTS_SUPPORT_ARRAYS_H_
