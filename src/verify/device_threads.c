// Conformance under threads: several at once on one device, each with a stream and memory of its
// own, must not find what is another's.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/internal.h"
#include "verify/device_checks.h"

enum { THREADS = 4, TURNS = 60, MOST = 1 << 16 };

typedef struct worker {
  hy_device* device;
  int number, turns;
  void* matrices;  // the three of a native call; NULL: there is none
  hy__native_call native;
  unsigned char *alone, *together;  // what that call gave
  hy_status status;
  char failure[300];
} worker;

// Uploads, copies on the device, sets and downloads, in memory taken and given back each turn.
static hy_status move_bytes(worker* w, hy_stream* stream, unsigned char* host, int turn) {
  size_t bytes = (size_t)(turn * 7919 + w->number * 104729) % (MOST - 64) + 64;
  unsigned salt = (unsigned)(w->number * TURNS + turn);
  void *a = NULL, *b = NULL;
  HY_TRY(hy_alloc(stream, bytes, &a));
  hy_status status = hy_alloc(stream, bytes, &b);
  hy__fill_pattern(host, bytes, salt);
  if (status == HY_OK) status = hy_memcpy(stream, a, host, bytes, HY_COPY_HOST_TO_DEVICE);
  if (status == HY_OK) status = hy_memset(stream, b, w->number, bytes);
  if (status == HY_OK) status = hy_memcpy(stream, b, a, bytes - 1, HY_COPY_DEVICE_TO_DEVICE);
  if (status == HY_OK) status = hy_stream_sync(stream);
  memset(host, 0, bytes);
  if (status == HY_OK) status = hy_memcpy(stream, host, b, bytes, HY_COPY_DEVICE_TO_HOST);
  if (status == HY_OK) status = hy_stream_sync(stream);
  hy_free(w->device, b);
  hy_free(w->device, a);
  HY_TRY(status);
  size_t end = hy__pattern_ends(host, bytes - 1, salt);
  if (end < bytes - 1 || host[bytes - 1] != w->number)
    return hy_fail(HY_INTERNAL, "byte %zu of %zu copied is not this thread's", end, bytes);
  return HY_OK;
}

static hy_status run_native(worker* w, hy_stream* stream, unsigned char* got) {
  if (!w->matrices) return HY_OK;
  HY_TRY(hy_memset(stream, w->native.out.data, 0xff, HY__NATIVE_BYTES));
  HY_TRY(hy_run(stream, &w->native.call));
  HY_TRY(hy_memcpy(stream, got, w->native.out.data, HY__NATIVE_BYTES, HY_COPY_DEVICE_TO_HOST));
  return hy_stream_sync(stream);
}

static void* work(void* argument) {
  worker* w = argument;
  hy_stream* stream = NULL;
  unsigned char* host = malloc(MOST);
  w->status = host ? hy_stream_create(w->device, &stream)
                   : hy_fail(HY_OUT_OF_MEMORY, "no host memory to verify threads");
  for (int turn = 0; turn < w->turns && w->status == HY_OK; turn++) {
    w->status = move_bytes(w, stream, host, turn);
    if (w->status == HY_OK && turn % 8 == 0) {
      w->status = run_native(w, stream, w->together);
      if (w->status == HY_OK && w->matrices && memcmp(w->alone, w->together, HY__NATIVE_BYTES) != 0)
        w->status = hy_fail(HY_INTERNAL, "%s gave another result than alone",
                            hy_op_name(w->native.call.op));
    }
  }
  if (w->status != HY_OK) snprintf(w->failure, sizeof w->failure, "%s", hy_last_error());
  hy_stream_destroy(stream);
  free(host);
  return NULL;
}

// Each thread's matrices, and what its call gives while nobody else is there.
static hy_status prepare(worker* w, hy_stream* stream) {
  w->alone = calloc(2, HY__NATIVE_BYTES);
  if (!w->alone) return hy_fail(HY_OUT_OF_MEMORY, "no host memory to verify threads");
  w->together = w->alone + HY__NATIVE_BYTES;
  HY_TRY(hy_alloc_raw(w->device, 3 * HY__NATIVE_BYTES, &w->matrices));
  char* m = w->matrices;
  if (!hy__native_find(w->device, m, m + HY__NATIVE_BYTES, m + 2 * HY__NATIVE_BYTES, &w->native)) {
    hy_free_raw(w->device, w->matrices);
    w->matrices = NULL;
    return HY_OK;
  }
  float* values = (float*)w->alone;
  for (int i = 0; i < HY__NATIVE_BYTES / 4; i++)
    values[i] = (float)((i * 31 + w->number * 17) % 64) / 32 - 1;
  HY_TRY(hy_memcpy(stream, m + HY__NATIVE_BYTES, values, HY__NATIVE_BYTES, HY_COPY_HOST_TO_DEVICE));
  HY_TRY(hy_memcpy(stream, m + 2 * HY__NATIVE_BYTES, values, HY__NATIVE_BYTES,
                   HY_COPY_HOST_TO_DEVICE));
  HY_TRY(hy_stream_sync(stream));
  return run_native(w, stream, w->alone);
}

hy_status hy__verify_concurrency(hy_device* device, hy__op_verdict* v) {
  worker workers[THREADS];
  pthread_t threads[THREADS];
  hy_stream* stream = NULL;
  int n = 0;
  memset(workers, 0, sizeof workers);
  hy_status status = hy_stream_create(device, &stream);
  for (int i = 0; i < THREADS && status == HY_OK; i++) {
    workers[i] = (worker){.device = device, .number = i + 1, .turns = v->quick ? 12 : TURNS};
    status = prepare(&workers[i], stream);
  }
  for (; n < THREADS && status == HY_OK; n++) {
    if (pthread_create(&threads[n], NULL, work, &workers[n]) != 0) break;
  }
  for (int i = 0; i < n; i++) pthread_join(threads[i], NULL);
  if (status == HY_OK && n < 2) status = hy_fail(HY_OUT_OF_MEMORY, "no threads to verify with");
  for (int i = 0; i < n; i++)
    hy__judge(v, workers[i].status == HY_OK, "%d threads at once on one device: %s", n,
              workers[i].failure);
  for (int i = 0; i < THREADS; i++) {
    hy_free_raw(device, workers[i].matrices);
    free(workers[i].alone);
  }
  hy_stream_destroy(stream);
  if (status == HY_OK || status == HY_OUT_OF_MEMORY) return status;
  hy__judge(v, false, "threads: %s", hy_last_error());
  return HY_OK;
}
