// Wrong copies, waits, memory and times of the guarded device, a lie each, so that conformance has
// something to find (mutation testing).
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "guarded.h"

static hy_backend right;  // what the lies go astray from

// ---- signals ----

static int signal_number, signal_after;  // copies

// In the thread that asks for the copy, so that it is handled before the copy begins.
static hy_status copy_raising(void* device, void* stream, void* dst, const void* src, size_t bytes,
                              hy_copy_kind kind) {
  if (--signal_after == 0) raise(signal_number);
  return right.copy(device, stream, dst, src, bytes, kind);
}

// ---- copies ----

static hy_status copy_device_nothing(void* device, void* stream, void* dst, const void* src,
                                     size_t bytes, hy_copy_kind kind) {
  if (kind == HY_COPY_DEVICE_TO_DEVICE) return HY_OK;
  return right.copy(device, stream, dst, src, bytes, kind);
}

static hy_status copy_host_nothing(void* device, void* stream, void* dst, const void* src,
                                   size_t bytes, hy_copy_kind kind) {
  if (kind == HY_COPY_HOST_TO_HOST) return HY_OK;
  return right.copy(device, stream, dst, src, bytes, kind);
}

// Whole words only.
static hy_status copy_words(void* device, void* stream, void* dst, const void* src, size_t bytes,
                            hy_copy_kind kind) {
  return right.copy(device, stream, dst, src, bytes / 4 * 4, kind);
}

// A burst ends at the next boundary of 8 bytes.
static hy_status copy_beyond(void* device, void* stream, void* dst, const void* src, size_t bytes,
                             hy_copy_kind kind) {
  if (kind == HY_COPY_DEVICE_TO_DEVICE) bytes = (bytes + 7) / 8 * 8;
  return right.copy(device, stream, dst, src, bytes, kind);
}

// Destinations are aligned to 4 bytes, whatever was asked for.
static hy_status copy_aligned(void* device, void* stream, void* dst, const void* src, size_t bytes,
                              hy_copy_kind kind) {
  if (kind == HY_COPY_HOST_TO_DEVICE) dst = (void*)((uintptr_t)dst & ~(uintptr_t)3);
  return right.copy(device, stream, dst, src, bytes, kind);
}

// Within one allocation, from its beginning.
static hy_status copy_from_start(void* device, void* stream, void* dst, const void* src,
                                 size_t bytes, hy_copy_kind kind) {
  guarded_memory* memory = &((guarded_device*)device)->memory;
  uintptr_t distance = (uintptr_t)dst > (uintptr_t)src ? (uintptr_t)dst - (uintptr_t)src
                                                       : (uintptr_t)src - (uintptr_t)dst;
  if (kind == HY_COPY_DEVICE_TO_DEVICE && distance < 100000)
    src = memory->window + ((uintptr_t)src - (uintptr_t)memory->window) / 4096 * 4096;
  return right.copy(device, stream, dst, src, bytes, kind);
}

// A length of 24 bits.
static hy_status copy_24_bits(void* device, void* stream, void* dst, const void* src, size_t bytes,
                              hy_copy_kind kind) {
  return right.copy(device, stream, dst, src, bytes & 0xffffff, kind);
}

// At once, by a queue that nobody else uses.
static hy_status copy_now(void* device, void* dst, const void* src, size_t bytes,
                          hy_copy_kind kind) {
  void* aside;
  HY_TRY(right.stream_create(device, &aside));
  hy_status status = right.copy(device, aside, dst, src, bytes, kind);
  if (status == HY_OK) status = right.stream_sync(device, aside);
  right.stream_destroy(device, aside);
  return status;
}

static hy_status download_early(void* device, void* stream, void* dst, const void* src,
                                size_t bytes, hy_copy_kind kind) {
  if (kind == HY_COPY_DEVICE_TO_HOST) return copy_now(device, dst, src, bytes, kind);
  return right.copy(device, stream, dst, src, bytes, kind);
}

static hy_status upload_early(void* device, void* stream, void* dst, const void* src, size_t bytes,
                              hy_copy_kind kind) {
  if (kind == HY_COPY_HOST_TO_DEVICE) return copy_now(device, dst, src, bytes, kind);
  return right.copy(device, stream, dst, src, bytes, kind);
}

// One staging buffer for all threads.
static hy_status copy_staged(void* device, void* stream, void* dst, const void* src, size_t bytes,
                             hy_copy_kind kind) {
  static char stage[1 << 16];
  if (kind != HY_COPY_HOST_TO_DEVICE || bytes > sizeof stage)
    return right.copy(device, stream, dst, src, bytes, kind);
  memcpy(stage, src, bytes);
  for (int i = 0; i < 4; i++) sched_yield();
  HY_TRY(right.copy(device, stream, dst, stage, bytes, kind));
  return right.stream_sync(device, stream);
}

static hy_status set_zero(void* device, void* stream, void* dst, int value, size_t bytes) {
  (void)value;
  return right.set(device, stream, dst, 0, bytes);
}

static hy_status set_words(void* device, void* stream, void* dst, int value, size_t bytes) {
  return right.set(device, stream, dst, value, bytes < 4 ? bytes : bytes / 4 * 4);
}

static hy_status set_beyond(void* device, void* stream, void* dst, int value, size_t bytes) {
  return right.set(device, stream, dst, value, bytes == 65537 ? bytes + 2 : bytes);
}

static hy_status set_7_bits(void* device, void* stream, void* dst, int value, size_t bytes) {
  return right.set(device, stream, dst, value & 0x7f, bytes);
}

static hy_status set_early(void* device, void* stream, void* dst, int value, size_t bytes) {
  (void)stream;
  void* aside;
  HY_TRY(right.stream_create(device, &aside));
  hy_status status = right.set(device, aside, dst, value, bytes);
  if (status == HY_OK) status = right.stream_sync(device, aside);
  right.stream_destroy(device, aside);
  return status;
}

// ---- order ----

static hy_status done_device(void* device) {
  (void)device;
  return HY_OK;
}

// Of the device's streams, only the first.
static void* first_stream;

static hy_status create_noting(void* device, void** stream) {
  HY_TRY(right.stream_create(device, stream));
  if (!first_stream) first_stream = *stream;
  return HY_OK;
}

static hy_status sync_first(void* device) {
  return first_stream ? right.stream_sync(device, first_stream) : HY_OK;
}

static hy_status done(void* device, void* what) {
  (void)device, (void)what;
  return HY_OK;
}

static hy_status never(void* device, void* what) {
  (void)device, (void)what;
  return HY_NOT_READY;
}

static hy_status nothing(void* device, void* what, void* with) {
  (void)device, (void)what, (void)with;
  return HY_OK;
}

static hy_status elapsed_zero(void* device, void* start, void* stop, double* milliseconds) {
  (void)device, (void)start, (void)stop;
  *milliseconds = 0;
  return HY_OK;
}

static hy_status elapsed_seconds(void* device, void* start, void* stop, double* milliseconds) {
  HY_TRY(right.event_elapsed(device, start, stop, milliseconds));
  *milliseconds /= 1e3;
  return HY_OK;
}

static hy_status elapsed_us(void* device, void* start, void* stop, double* milliseconds) {
  HY_TRY(right.event_elapsed(device, start, stop, milliseconds));
  *milliseconds *= 1e3;
  return HY_OK;
}

static hy_status elapsed_back(void* device, void* start, void* stop, double* milliseconds) {
  return right.event_elapsed(device, stop, start, milliseconds);
}

static hy_status elapsed_constant(void* device, void* start, void* stop, double* milliseconds) {
  (void)device;
  *milliseconds = start == stop ? 0 : 9;
  return HY_OK;
}

static hy_status elapsed_nan(void* device, void* start, void* stop, double* milliseconds) {
  (void)device, (void)start, (void)stop;
  *milliseconds = NAN;
  return HY_OK;
}

// ---- memory ----

// Two allocations of a size share one block.
static hy_status alloc_same(void* device, size_t bytes, void** address) {
  static void* shared;
  if (bytes != 4096) return right.memory_alloc(device, bytes, address);
  if (!shared) HY_TRY(right.memory_alloc(device, bytes, &shared));
  *address = shared;
  return HY_OK;
}

static void free_nothing(void* device, void* address) {
  (void)device, (void)address;
}

static hy_status alloc_odd(void* device, size_t bytes, void** address) {
  HY_TRY(right.memory_alloc(device, bytes + 64, address));
  *address = (char*)*address + 8;
  return HY_OK;
}

// Bit 22 of an address does not reach the memory.
static void* folded(void* device, const void* address) {
  guarded_memory* memory = &((guarded_device*)device)->memory;
  char* at = (char*)(uintptr_t)address;
  size_t offset = (size_t)(at - memory->window);
  char* store;
  char* low = memory->window + (offset & ~(size_t)(1 << 22));
  return guarded_memory_reach(memory, low, 1, &store) == HY_OK ? low : at;
}

static hy_status copy_folded(void* device, void* stream, void* dst, const void* src, size_t bytes,
                             hy_copy_kind kind) {
  if (bytes == 8 && kind == HY_COPY_HOST_TO_DEVICE) dst = folded(device, dst);
  if (bytes == 8 && kind == HY_COPY_DEVICE_TO_HOST) src = folded(device, src);
  return right.copy(device, stream, dst, src, bytes, kind);
}

static hy_status info_more(void* device, uint64_t* free_bytes, uint64_t* total_bytes) {
  HY_TRY(right.memory_info(device, free_bytes, total_bytes));
  *free_bytes *= 100;
  *total_bytes *= 100;
  return HY_OK;
}

static hy_status full_is_failure(void* device, size_t bytes, void** address) {
  hy_status status = right.memory_alloc(device, bytes, address);
  return status == HY_OUT_OF_MEMORY ? HY_DEVICE_FAILED : status;
}

static hy_status full_is_small(void* device, size_t bytes, void** address) {
  return right.memory_alloc(device, bytes >> 40 ? 4096 : bytes, address);
}

bool guarded_go_wrong(hy_backend* b, const char* word) {
  right = *b;
  first_stream = NULL;
  if (strcmp(word, "device_sync_first") == 0) b->stream_create = create_noting;
#define LIE(name, field, wrong)  \
  if (strcmp(word, name) == 0) { \
    b->field = wrong;            \
    return true;                 \
  }
  if (sscanf(word, "signal:%d:%d", &signal_number, &signal_after) == 2) {
    b->copy = copy_raising;
    return true;
  }
  LIE("copy_device_nothing", copy, copy_device_nothing)
  LIE("copy_host_nothing", copy, copy_host_nothing)
  LIE("copy_words", copy, copy_words)
  LIE("copy_beyond", copy, copy_beyond)
  LIE("copy_aligned", copy, copy_aligned)
  LIE("copy_from_start", copy, copy_from_start)
  LIE("copy_24_bits", copy, copy_24_bits)
  LIE("download_early", copy, download_early)
  LIE("upload_early", copy, upload_early)
  LIE("copy_staged", copy, copy_staged)
  LIE("set_zero", set, set_zero)
  LIE("set_words", set, set_words)
  LIE("set_beyond", set, set_beyond)
  LIE("set_7_bits", set, set_7_bits)
  LIE("set_early", set, set_early)
  LIE("wait_event", stream_wait_event, nothing)
  LIE("record", event_record, nothing)
  LIE("event_query", event_query, done)
  LIE("event_never", event_query, never)
  LIE("event_sync", event_sync, done)
  LIE("stream_query", stream_query, done)
  LIE("stream_sync", stream_sync, done)
  LIE("device_sync", device_sync, done_device)
  LIE("device_sync_first", device_sync, sync_first)
  LIE("elapsed_zero", event_elapsed, elapsed_zero)
  LIE("elapsed_seconds", event_elapsed, elapsed_seconds)
  LIE("elapsed_us", event_elapsed, elapsed_us)
  LIE("elapsed_back", event_elapsed, elapsed_back)
  LIE("elapsed_constant", event_elapsed, elapsed_constant)
  LIE("elapsed_nan", event_elapsed, elapsed_nan)
  LIE("alloc_odd", memory_alloc, alloc_odd)
  LIE("copy_folded", copy, copy_folded)
  LIE("info_more", memory_info, info_more)
  LIE("full_is_failure", memory_alloc, full_is_failure)
  LIE("full_is_small", memory_alloc, full_is_small)
  LIE("alloc_same", memory_alloc, alloc_same)
  LIE("free_nothing", memory_free, free_nothing)
#undef LIE
  return false;
}
