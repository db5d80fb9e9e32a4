// How long a call takes that computes next to nothing: checks, dispatch and one kernel.
#include <float.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "bench/call.h"
#include "core/internal.h"

enum { ROUNDS = 7, CALLS = 20000 };

// What a call goes through: all of it from the typed function on, from hy_run on, or the first
// provider alone, which is the floor of the other two.
typedef enum way { BY_WRAPPER, BY_RUN, BY_PROVIDER, WAYS } way;

static hy_status add_once(hy_stream* stream, const hy_call* call, way w) {
  if (w == BY_WRAPPER)
    return hy_add(stream, &call->out[0], &call->in[0], &call->in[1], call->attrs.alpha.alpha);
  if (w == BY_RUN) return hy_run(stream, call);
  const hy_provider* first = stream->device->providers[0];
  return first->run(stream->device->handle, stream->handle, call);
}

// Nanoseconds of an add of one element, the best of several rounds: the ways in alternation, and
// the caller's where there is one.
static hy_status time_adds(hy_stream* stream, double best[WAYS], double* theirs) {
  hy_tensor in[2], out;
  void* memory[3] = {NULL, NULL, NULL};
  hy_device* device = hy_stream_device(stream);
  hy_status status = HY_OK;
  for (int i = 0; i < 3 && status == HY_OK; i++) {
    status = hy_alloc(stream, 4, &memory[i]);
    if (status == HY_OK) status = hy_memset(stream, memory[i], 0, 4);
    if (status == HY_OK)
      status = hy_tensor_init(i < 2 ? &in[i] : &out, memory[i], HY_F32, 1, (int64_t[]){1});
  }
  hy_call call = {.op = HY_OP_add, .n_in = 2, .n_out = 1, .in = in, .out = &out};
  call.attrs.alpha.alpha = hy_int(1);
  *theirs = DBL_MAX;
  for (int w = 0; w < WAYS; w++) best[w] = DBL_MAX;
  for (int i = 0; i < WAYS * ROUNDS && status == HY_OK; i++) {
    way w = (way)(i % WAYS);
    if (w == BY_PROVIDER && !hy_device_is_host(device)) continue;
    double start = bench_now();
    for (int k = 0; k < CALLS && status == HY_OK; k++) status = add_once(stream, &call, w);
    if (status == HY_OK) status = hy_stream_sync(stream);
    double taken = (bench_now() - start) / CALLS * 1e9;
    if (taken < best[w]) best[w] = taken;
    bench_ask_caller("hy_run add", "1", "f32", theirs);
  }
  *theirs *= 1e9;
  for (int i = 0; i < 3; i++) hy_free(device, memory[i]);
  return status;
}

static void print_add(const char* name, double value, double kernel, double theirs) {
  bench_row row = {.name = name, .shape = "1", .dtype = "f32", .value = value, .unit = "ns"};
  if (kernel < DBL_MAX) {
    row.floor = kernel;
    row.of_floor = kernel / value;
  }
  if (theirs < DBL_MAX) {
    row.peer = "caller";
    row.peer_value = theirs;
    row.ratio = theirs / value;
  }
  bench_print(&row);
}

// What it costs to go from one open device to another: to look it up by its selector, and to make
// it the thread's current one. The floors are to compare the selector, and to store a pointer.
typedef struct switching {
  double look_up, compare, make_current, store;
} switching;

static void keep_least(double* least, double begin, double end) {
  double taken = (end - begin) / CALLS * 1e9;
  if (taken < *least) *least = taken;
}

static hy_status time_switch(hy_device* device, switching* s) {
  static _Thread_local hy_device* volatile current;
  char selector[32], *volatile asked = selector;
  snprintf(selector, sizeof selector, "%s", hy_device_selector(device));
  hy_device *host, *found;
  HY_TRY(hy_device_get("cpu", &host));
  *s = (switching){DBL_MAX, DBL_MAX, DBL_MAX, DBL_MAX};
  int equal = 0;
  for (int round = 0; round < ROUNDS; round++) {
    double start = bench_now();
    for (int i = 0; i < CALLS; i++) HY_TRY(hy_device_get(i % 2 ? selector : "cpu", &found));
    double found_at = bench_now();
    for (int i = 0; i < CALLS; i++) equal += strcmp(asked, hy_device_selector(device)) == 0;
    double compared = bench_now();
    for (int i = 0; i < CALLS; i++) HY_TRY(hy_set_current_device(i % 2 ? device : host));
    double made = bench_now();
    for (int i = 0; i < CALLS; i++) current = i % 2 ? device : host;
    keep_least(&s->look_up, start, found_at);
    keep_least(&s->compare, found_at, compared);
    keep_least(&s->make_current, compared, made);
    keep_least(&s->store, made, bench_now());
  }
  (void)current;
  return equal == ROUNDS * CALLS ? HY_OK : hy_fail(HY_INTERNAL, "bench: a selector changed");
}

static double processor_milliseconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return 1e3 * (double)t.tv_sec + 1e-6 * (double)t.tv_nsec;
}

// Processor time that the process takes while it has nothing to do, the cpu's threads being there;
// and without them, which is the floor.
static hy_status time_idleness(hy_stream* stream, double milliseconds[2]) {
  enum { MANY = 1 << 20 };
  const struct timespec settle = {.tv_nsec = 100000000}, idle = {.tv_sec = 2};
  hy_tensor x;
  void* memory;
  hy_device* cpu;
  int threads;
  HY_TRY(hy_device_get("cpu", &cpu));
  HY_TRY(hy_device_threads(cpu, &threads));
  HY_TRY(hy_alloc(stream, MANY * 4, &memory));
  hy_status status = hy_tensor_init(&x, memory, HY_F32, 1, (int64_t[]){MANY});
  for (int i = 0; i < 100 && status == HY_OK; i++) status = hy_fill(stream, &x, hy_int(1));
  if (status == HY_OK) status = hy_stream_sync(stream);
  for (int without = 0; without < 2; without++) {
    if (without && status == HY_OK) status = hy_device_set_threads(cpu, 1);
    nanosleep(&settle, NULL);
    double begin = processor_milliseconds();
    nanosleep(&idle, NULL);
    milliseconds[without] = processor_milliseconds() - begin;
  }
  hy_free(hy_stream_device(stream), memory);
  HY_TRY(status);
  return hy_device_set_threads(cpu, threads);
}

static void print(const char* name, const char* shape, double value, const char* unit,
                  double floor) {
  bench_print(&(bench_row){.name = name,
                           .shape = shape,
                           .dtype = "",
                           .value = value,
                           .unit = unit,
                           .floor = floor,
                           .of_floor = floor / value});
}

hy_status bench_dispatch(hy_device* device) {
  hy_stream* stream;
  double add[WAYS], theirs, idle[2];
  switching s;
  HY_TRY(hy_stream_default(device, &stream));
  HY_TRY(time_adds(stream, add, &theirs));
  print_add("hy_run add", add[BY_RUN], add[BY_PROVIDER], theirs);
  print_add("hy_add", add[BY_WRAPPER], add[BY_PROVIDER], theirs);
  HY_TRY(time_switch(device, &s));
  print("hy_device_get", "open", s.look_up, "ns", s.compare);
  print("switch device", "current", s.make_current, "ns", s.store);
  HY_TRY(time_idleness(stream, idle));
  print("idle threads", "2 s", idle[0], "ms", idle[1]);
  return HY_OK;
}
