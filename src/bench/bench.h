// Benchmarks: each prints rows of a value beside its peer and its floor, timed alternately in one
// run.
#ifndef HALYARD_BENCH_BENCH_H_
#define HALYARD_BENCH_BENCH_H_

#include "halyard/halyard.h"

// Times in seconds or nanoseconds are better when lower, rates when higher; `ratio` is always
// better when above 1.
typedef struct bench_row {
  const char* name;
  const char* shape;
  const char* dtype;
  double value;
  const char* unit;  // "ns", "GB/s" ...
  const char* peer;  // NULL where there is none
  double peer_value;
  double ratio;     // ours to the peer's
  double floor;     // what the machine allows, in the same unit; 0 where unknown
  double of_floor;  // how much of it was reached
  double memcpy;    // the C library's copy as a rate in the same unit; 0: no measure of this row
  double seconds;   // of one call; 0 where the value says it
} bench_row;

void bench_print(const bench_row* row);
// Notes which machine the rows that follow are of: a line before them for people, a member of each
// as JSON.
hy_status bench_machine(hy_device* device);
double bench_now(void);  // seconds, monotonic

// Samples of the device's peaks (hy_device_peak); 0 where it measures none.
double bench_multiply_adds(hy_device* device, hy_dtype dtype);
double bench_read(hy_device* device, const void* src, size_t bytes);
double bench_copying(hy_device* device, void* dst, const void* src, size_t bytes);

// What the command line asks for; texts are NULL where it does not say.
typedef struct bench_settings {
  const char* peer;  // a provider to compare with; "-": the calling script
  const char* only;  // of all rows, those whose name, shape and type contain this
  const char *model, *dtype;
  bool json;
} bench_settings;
extern bench_settings bench_options;

// Whether --only asks for this row: its name, shape and type, a space between, contain the text.
bool bench_wanted(const char* name, const char* shape, const char* dtype);

// The benchmarks, in the order in which `all` runs them. Each runs to the end and prints its rows.
// clang-format off
#define BENCHMARKS(X) \
  X(dispatch) X(alloc) X(copy) X(graph) X(gemm) X(int8) X(gemv) X(attention) X(scaling) X(decode) \
  X(prefill) X(train) X(load) X(elementwise) X(softmax) X(norm) X(image) X(npu) X(comm)
// clang-format on
#define BENCH_AS_PROTOTYPE(name) hy_status bench_##name(hy_device* device);
BENCHMARKS(BENCH_AS_PROTOTYPE)
#undef BENCH_AS_PROTOTYPE

typedef struct benchmark {
  const char* name;
  hy_status (*run)(hy_device* device);
} benchmark;
extern const benchmark bench_all[];
extern const int bench_count;

#endif  // HALYARD_BENCH_BENCH_H_
