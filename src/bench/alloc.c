// How long the allocator takes when the cache has what is asked for.
#include <float.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/bench.h"

enum { ROUNDS = 9, CALLS = 20000, HELD = 256 };

// One block of the size, taken and given back.
static hy_status time_pairs(hy_stream* stream, size_t bytes, double* nanoseconds) {
  hy_device* device = hy_stream_device(stream);
  double start = bench_now();
  for (int i = 0; i < CALLS; i++) {
    void* address;
    HY_TRY(hy_alloc(stream, bytes, &address));
    HY_TRY(hy_free(device, address));
  }
  *nanoseconds = (bench_now() - start) / CALLS * 1e9;
  return HY_OK;
}

static double time_malloc_pairs(size_t bytes) {
  double start = bench_now();
  for (int i = 0; i < CALLS; i++) {
    void* volatile address = malloc(bytes);
    free(address);
  }
  return (bench_now() - start) / CALLS * 1e9;
}

// Sizes from 64 bytes to 64 KiB, in an order that repeats and looks like none.
static size_t mixed_size(int i) {
  uint32_t x = (uint32_t)i * 2654435761u;
  return (size_t)64 << (x >> 28) % 11;
}

// Many blocks are held; each is given back while the next is taken.
static hy_status time_mixed(hy_stream* stream, double* nanoseconds) {
  hy_device* device = hy_stream_device(stream);
  void* held[HELD] = {0};
  hy_status status = HY_OK;
  double start = bench_now();
  for (int i = 0; i < CALLS && status == HY_OK; i++) {
    void** slot = &held[(uint32_t)i * 2246822519u % HELD];
    status = hy_free(device, *slot);
    if (status == HY_OK) status = hy_alloc(stream, mixed_size(i), slot);
  }
  *nanoseconds = (bench_now() - start) / CALLS * 1e9;
  for (int i = 0; i < HELD; i++) hy_free(device, held[i]);
  return status;
}

static double time_malloc_mixed(void) {
  void* volatile held[HELD] = {0};
  double start = bench_now();
  for (int i = 0; i < CALLS; i++) {
    void* volatile* slot = &held[(uint32_t)i * 2246822519u % HELD];
    free(*slot);
    *slot = malloc(mixed_size(i));
  }
  double taken = (bench_now() - start) / CALLS * 1e9;
  for (int i = 0; i < HELD; i++) free(held[i]);
  return taken;
}

// What any allocator for several threads takes: one atomic operation for each of the two.
static double time_atomic_pairs(void) {
  static atomic_int place;
  double start = bench_now();
  for (int i = 0; i < CALLS; i++) {
    atomic_exchange(&place, i);
    atomic_exchange(&place, 0);
  }
  return (bench_now() - start) / CALLS * 1e9;
}

// `bytes` 0: mixed sizes.
static hy_status measure(hy_stream* stream, const char* shape, size_t bytes) {
  double ours = DBL_MAX, theirs = DBL_MAX, floor = DBL_MAX;
  for (int round = 0; round < ROUNDS; round++) {
    double taken;
    HY_TRY(bytes ? time_pairs(stream, bytes, &taken) : time_mixed(stream, &taken));
    if (taken < ours) ours = taken;
    taken = bytes ? time_malloc_pairs(bytes) : time_malloc_mixed();
    if (taken < theirs) theirs = taken;
    taken = time_atomic_pairs();
    if (taken < floor) floor = taken;
  }
  bench_print(&(bench_row){.name = "alloc and free",
                           .shape = shape,
                           .dtype = "u8",
                           .value = ours,
                           .unit = "ns",
                           .peer = "malloc and free",
                           .peer_value = theirs,
                           .ratio = theirs / ours,
                           .floor = floor,
                           .of_floor = floor / ours});
  return HY_OK;
}

hy_status bench_alloc(hy_device* device) {
  hy_stream* stream;
  HY_TRY(hy_stream_default(device, &stream));
  HY_TRY(measure(stream, "64 B", 64));
  HY_TRY(measure(stream, "64 KiB", (size_t)64 << 10));
  HY_TRY(measure(stream, "1 MiB", (size_t)1 << 20));
  HY_TRY(measure(stream, "32 MiB", (size_t)32 << 20));
  return measure(stream, "mixed, 256 held", 0);
}
