// How fast bytes move, beside memcpy in host memory.
#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"

enum { ROUNDS = 9 };

typedef struct buffers {
  void *host_a, *host_b;  // the peer's, and the host side of ours
  void *device_a, *device_b;
} buffers;

static hy_status time_ours(hy_stream* stream, const buffers* b, hy_copy_kind kind, size_t bytes,
                           int repeats, double* seconds) {
  void* dst = kind == HY_COPY_DEVICE_TO_HOST ? b->host_b : b->device_b;
  void* src = kind == HY_COPY_HOST_TO_DEVICE ? b->host_a : b->device_a;
  double start = bench_now();
  for (int i = 0; i < repeats; i++) HY_TRY(hy_memcpy(stream, dst, src, bytes, kind));
  HY_TRY(hy_stream_sync(stream));
  *seconds = (bench_now() - start) / repeats;
  return HY_OK;
}

static double time_memcpy(const buffers* b, size_t bytes, int repeats) {
  double start = bench_now();
  for (int i = 0; i < repeats; i++) {
    memcpy(b->host_b, b->host_a, bytes);
    __asm__ volatile("" ::: "memory");  // keeps every copy
  }
  return (bench_now() - start) / repeats;
}

static hy_status measure(hy_stream* stream, const buffers* b, hy_copy_kind kind, const char* name,
                         size_t bytes) {
  hy_device* host;
  HY_TRY(hy_device_get("cpu", &host));
  int repeats = (int)(((size_t)64 << 20) / bytes);
  double ours = DBL_MAX, theirs = DBL_MAX, floor = 0;
  for (int round = 0; round < ROUNDS; round++) {
    double taken;
    HY_TRY(time_ours(stream, b, kind, bytes, repeats, &taken));
    if (taken < ours) ours = taken;
    taken = time_memcpy(b, bytes, repeats);
    if (taken < theirs) theirs = taken;
    // The same bytes by all threads at once, or by one where that is faster.
    double rate = bench_copying(host, b->host_b, b->host_a, bytes) / 2;
    if (rate > floor) floor = rate;
  }
  if ((double)bytes / theirs > floor) floor = (double)bytes / theirs;
  char shape[32];
  snprintf(shape, sizeof shape, bytes < 1 << 20 ? "%zu KiB" : "%zu MiB",
           bytes < 1 << 20 ? bytes >> 10 : bytes >> 20);
  bench_print(&(bench_row){.name = name,
                           .shape = shape,
                           .dtype = "u8",
                           .value = (double)bytes / ours / 1e9,
                           .unit = "GB/s",
                           .peer = "memcpy",
                           .peer_value = (double)bytes / theirs / 1e9,
                           .ratio = theirs / ours,
                           .floor = floor / 1e9,
                           .of_floor = (double)bytes / ours / floor});
  return HY_OK;
}

static hy_status measure_all(hy_stream* stream, const buffers* b, size_t largest) {
  static const struct {
    hy_copy_kind kind;
    const char* name;
  } kinds[] = {{HY_COPY_HOST_TO_DEVICE, "host to device"},
               {HY_COPY_DEVICE_TO_HOST, "device to host"},
               {HY_COPY_DEVICE_TO_DEVICE, "device to device"}};
  for (int k = 0; k < 3; k++) {
    for (size_t bytes = (size_t)64 << 10; bytes <= largest; bytes <<= 5) {
      HY_TRY(measure(stream, b, kinds[k].kind, kinds[k].name, bytes));
    }
  }
  return HY_OK;
}

hy_status bench_copy(hy_device* device) {
  const size_t largest = (size_t)64 << 20;
  hy_stream* stream;
  HY_TRY(hy_stream_default(device, &stream));
  buffers b = {0};
  hy_status status = hy_host_alloc(device, largest, &b.host_a);
  if (status == HY_OK) status = hy_host_alloc(device, largest, &b.host_b);
  if (status == HY_OK) status = hy_alloc(stream, largest, &b.device_a);
  if (status == HY_OK) status = hy_alloc(stream, largest, &b.device_b);
  if (status == HY_OK) status = hy_memset(stream, b.device_a, 1, largest);
  if (status == HY_OK) status = hy_memset(stream, b.device_b, 1, largest);
  if (status == HY_OK) {
    memset(b.host_a, 1, largest);
    memset(b.host_b, 1, largest);
    status = measure_all(stream, &b, largest);
  }
  hy_free(device, b.device_b);
  hy_free(device, b.device_a);
  hy_host_free(device, b.host_b);
  hy_host_free(device, b.host_a);
  return status;
}
