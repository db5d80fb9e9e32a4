// Timing calls of ops: ours and a peer's alternately, against the machine's own limits.
#ifndef HALYARD_BENCH_CALL_H_
#define HALYARD_BENCH_CALL_H_

#include "bench/bench.h"

// The limits of the host's processor, measured in the same run. Zero where the device is none.
typedef struct bench_floors {
  double f32, bf16, i8;  // operations a second in products of the type
  double read;           // bytes a second
} bench_floors;

typedef struct bench_session {
  hy_device* device;
  hy_stream* stream;
  bench_floors floors;
  hy_stream* plain;  // the device's, in the backend's own order of providers
  hy_stream* peer;   // the device's, with the provider of --peer asked first; NULL: none
} bench_session;

// What a call cannot do without: operations in products of a type, bytes read.
typedef struct bench_needs {
  hy_dtype products;
  double operations, bytes;
} bench_needs;
// The least seconds that takes; 0 where it is not known.
double bench_least(const bench_session* session, const bench_needs* needs);

hy_status bench_begin(bench_session* session, hy_device* device);
void bench_end(bench_session* session);

// With --peer -, the turn of the process that started this one: it reads which row, and answers
// with the least seconds that it took, or a word where it has nothing to compare. Gives whether it
// did.
bool bench_ask_caller(const char* name, const char* shape, const char* dtype, double* best);

// Memory for a tensor of random numbers on the device, freed by bench_end. Integer types get small
// whole numbers.
hy_status bench_tensor(bench_session* session, hy_tensor* t, hy_dtype dtype, int ndim,
                       const int64_t* shape);

typedef struct bench_work {
  const char *name, *shape;
  hy_dtype dtype;
  const char* unit;  // "GFLOP/s", "GB/s" or "ms"
  double amount;     // flops or bytes of one call; unused for ms
  bench_needs needs;
  // Copies of bytes, timed alternately with the calls; NULL where they are not what bounds them.
  struct bench_copies* copies;
} bench_work;

// Rates of copying what is much larger than the caches, in bytes a second: by the library's own
// op, which bounds ops that read and write as much, and by memcpy on the same threads.
typedef struct bench_copies {
  hy_tensor from, to;
  double own, memcpy;  // the best so far
} bench_copies;

// Times the calls alternately, so that those with different tensors do not find their data in a
// cache, and prints the row.
hy_status bench_calls(bench_session* session, const bench_work* work, const hy_call* calls, int n);

#endif  // HALYARD_BENCH_CALL_H_
