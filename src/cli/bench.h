// Benchmarks: each prints rows of a value beside its peer and its floor, measured in turns in one
// run.
#ifndef HALYARD_CLI_BENCH_H_
#define HALYARD_CLI_BENCH_H_

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
double bench_now(void);  // seconds, monotonic

extern const char* bench_peer;  // --peer: a provider that some benchmarks compare with, or NULL

// Whether --only asks for this row: its name, shape and type, a space between, contain the text.
bool bench_wanted(const char* name, const char* shape, const char* dtype);

extern const char *bench_model, *bench_dtype;  // --model and --dtype, or NULL

// Each runs to the end and prints its rows.
hy_status bench_dispatch(hy_device* device);
hy_status bench_alloc(hy_device* device);
hy_status bench_copy(hy_device* device);
hy_status bench_gemm(hy_device* device);
hy_status bench_gemv(hy_device* device);
hy_status bench_int8(hy_device* device);
hy_status bench_attention(hy_device* device);
hy_status bench_scaling(hy_device* device);
hy_status bench_decode(hy_device* device);
hy_status bench_prefill(hy_device* device);
hy_status bench_train(hy_device* device);
hy_status bench_load(hy_device* device);
hy_status bench_elementwise(hy_device* device);
hy_status bench_softmax(hy_device* device);
hy_status bench_norm(hy_device* device);
hy_status bench_image(hy_device* device);
hy_status bench_npu(hy_device* device);

#endif  // HALYARD_CLI_BENCH_H_
