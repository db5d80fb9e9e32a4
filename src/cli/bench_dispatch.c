// How long a call takes that computes next to nothing: checks, dispatch and one kernel.
#include <float.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "cli/bench.h"

enum { ROUNDS = 7, CALLS = 20000 };

// Nanoseconds of one add of n elements, the best of several rounds.
static hy_status time_add(hy_stream* stream, int64_t n, bool whole_wrapper, double* nanoseconds) {
  hy_tensor in[2], out;
  void* memory[3] = {NULL, NULL, NULL};
  hy_device* device = hy_stream_device(stream);
  hy_status status = HY_OK;
  for (int i = 0; i < 3 && status == HY_OK; i++) {
    status = hy_alloc(stream, (size_t)n * 4, &memory[i]);
    if (status == HY_OK) status = hy_memset(stream, memory[i], 0, (size_t)n * 4);
    if (status == HY_OK) status = hy_tensor_init(i < 2 ? &in[i] : &out, memory[i], HY_F32, 1, &n);
  }
  hy_call call = {.op = HY_OP_add, .n_in = 2, .n_out = 1, .in = in, .out = &out};
  call.attrs.alpha.alpha = hy_int(1);
  double best = DBL_MAX;
  for (int round = 0; round < ROUNDS && status == HY_OK; round++) {
    double start = bench_now();
    for (int i = 0; i < CALLS && status == HY_OK; i++)
      status =
          whole_wrapper ? hy_add(stream, &out, &in[0], &in[1], hy_int(1)) : hy_run(stream, &call);
    if (status == HY_OK) status = hy_stream_sync(stream);
    double taken = (bench_now() - start) / CALLS * 1e9;
    if (taken < best) best = taken;
  }
  for (int i = 0; i < 3; i++) hy_free(device, memory[i]);
  *nanoseconds = best;
  return status;
}

// What it costs to go from one open device to another: to look it up by its selector, and to make
// it the thread's current one.
static hy_status time_switch(hy_device* device, double* look_up, double* make_current) {
  char selector[32];
  snprintf(selector, sizeof selector, "%s", hy_device_selector(device));
  hy_device *host, *found;
  HY_TRY(hy_device_get("cpu", &host));
  *look_up = *make_current = DBL_MAX;
  for (int round = 0; round < ROUNDS; round++) {
    double start = bench_now();
    for (int i = 0; i < CALLS; i++) HY_TRY(hy_device_get(i % 2 ? selector : "cpu", &found));
    double middle = bench_now();
    for (int i = 0; i < CALLS; i++) HY_TRY(hy_set_current_device(i % 2 ? device : host));
    double end = bench_now();
    if (middle - start < *look_up) *look_up = middle - start;
    if (end - middle < *make_current) *make_current = end - middle;
  }
  *look_up *= 1e9 / CALLS;
  *make_current *= 1e9 / CALLS;
  return HY_OK;
}

// Processor time that the process takes while it has nothing to do, its threads being there.
static hy_status time_idleness(hy_stream* stream, double* milliseconds) {
  enum { MANY = 1 << 20 };
  const int64_t shape[1] = {MANY};
  hy_tensor x;
  void* memory;
  HY_TRY(hy_alloc(stream, MANY * 4, &memory));
  hy_status status = hy_tensor_init(&x, memory, HY_F32, 1, shape);
  for (int i = 0; i < 100 && status == HY_OK; i++) status = hy_fill(stream, &x, hy_int(1));
  if (status == HY_OK) status = hy_stream_sync(stream);
  struct timespec settle = {.tv_nsec = 100000000}, idle = {.tv_sec = 2}, begin, end;
  nanosleep(&settle, NULL);
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &begin);
  nanosleep(&idle, NULL);
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
  *milliseconds =
      1e3 * (double)(end.tv_sec - begin.tv_sec) + 1e-6 * (double)(end.tv_nsec - begin.tv_nsec);
  hy_free(hy_stream_device(stream), memory);
  return status;
}

hy_status bench_dispatch(hy_device* device) {
  hy_stream* stream;
  HY_TRY(hy_stream_default(device, &stream));
  double value;
  HY_TRY(time_add(stream, 1, false, &value));
  bench_print(&(bench_row){
      .name = "hy_run add", .shape = "1", .dtype = "f32", .value = value, .unit = "ns"});
  HY_TRY(time_add(stream, 1, true, &value));
  bench_print(
      &(bench_row){.name = "hy_add", .shape = "1", .dtype = "f32", .value = value, .unit = "ns"});
  double look_up, make_current;
  HY_TRY(time_switch(device, &look_up, &make_current));
  bench_print(&(bench_row){
      .name = "hy_device_get", .shape = "open", .dtype = "", .value = look_up, .unit = "ns"});
  bench_print(&(bench_row){.name = "switch device",
                           .shape = "current",
                           .dtype = "",
                           .value = make_current,
                           .unit = "ns"});
  HY_TRY(time_idleness(stream, &value));
  bench_print(&(bench_row){
      .name = "idle threads", .shape = "2 s", .dtype = "", .value = value, .unit = "ms"});
  return HY_OK;
}
