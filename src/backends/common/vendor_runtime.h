// Devices, streams and events over a vendor's runtime library: what backends share whose vendor has
// in-order queues, a current device for each thread, and pinned memory for asynchronous copies.
//
// A backend fills hy__vendor with adapters of its runtime's functions, puts hy__vendor_device and
// hy__vendor_stream first in structs of its own, and lists the functions below in its table.
#ifndef HALYARD_COMMON_VENDOR_RUNTIME_H_
#define HALYARD_COMMON_VENDOR_RUNTIME_H_

#include <pthread.h>
#include <stdlib.h>

#include "backends/common/host.h"

// Functions give the vendor's error, 0 where all is well. They are called with the device current.
typedef struct hy__vendor {
  const char* name;  // the backend's
  int no_memory;     // an error of the vendor's that `fail` takes for that
  hy_status (*fail)(int error, const char* what);
  int (*get_device)(int* device);  // not 0: none is current on this thread
  int (*set_device)(int device);
  int (*device_sync)(void);
  int (*memory_info)(size_t* free_bytes, size_t* total);
  int (*memory_alloc)(void** memory, size_t bytes);
  int (*memory_free)(void* memory);
  int (*host_alloc)(void** memory, size_t bytes);
  int (*host_free)(void* memory);
  int (*copy)(void* dst, const void* src, size_t bytes, hy_copy_kind kind);  // done on return
  int (*copy_async)(void* dst, const void* src, size_t bytes, hy_copy_kind kind, void* queue);
  int (*set_async)(void* dst, int value, size_t bytes, void* queue);
  int (*queue_create)(void** queue);
  int (*queue_destroy)(void* queue);
  int (*queue_sync)(void* queue);
  int (*queue_query)(void* queue, bool* idle);
  int (*queue_wait)(void* queue, void* event);
  int (*event_create)(void** event);
  int (*event_destroy)(void* event);
  int (*event_record)(void* event, void* queue);
  int (*event_query)(void* event, bool* done);
  int (*event_sync)(void* event);
  int (*event_elapsed)(float* milliseconds, void* start, void* stop);
  int (*capture_begin)(void* queue);
  // `ended`: the queue is captured no more, which may be so also after a failure.
  int (*capture_end)(void* queue, void** graph, bool* ended);
  int (*graph_launch)(void* graph, void* queue);
  int (*graph_destroy)(void* graph);
  const struct hy__ccl* ccl;  // collectives.h
} hy__vendor;

typedef struct hy__vendor_device {
  const hy__vendor* vendor;
  int index;  // the vendor's
} hy__vendor_device;

// Memory for temporaries and workspaces: taken during a call, all free again at the next one, for
// a stream's work is in order. Chunks are only added.
#define HY__VENDOR_CHUNKS 48
typedef struct hy__vendor_arena {
  char* chunk[HY__VENDOR_CHUNKS];
  size_t size[HY__VENDOR_CHUNKS], used;
  int count, current;
} hy__vendor_arena;

// Indices out of range are found on the device: each check leaves a byte in `flags`, which is read
// when the stream is waited for.
#define HY__VENDOR_CHECKS 256
typedef struct hy__vendor_stream {
  hy__vendor_device* device;
  void* queue;  // the vendor's
  hy__vendor_arena arena;
  char *flags, *flags_host;  // on the device, and pinned
  hy_op checked[HY__VENDOR_CHECKS];
  int n_checks;
  hy_op last_op;          // atomic: any thread may ask the stream
  void* capturing;        // the graph that is being made, or NULL
  pthread_mutex_t mutex;  // guards what follows
  hy_async_error error;   // the first
} hy__vendor_stream;

// Makes the device current for the calling thread where it is not, or gives the vendor's error;
// `before` is for leave, which is called in either case.
int hy__vendor_try_enter(const hy__vendor_device* device, int* before);
// The same for what releases things, and goes on whatever happens.
int hy__vendor_enter(const hy__vendor_device* device);
void hy__vendor_leave(const hy__vendor_device* device, int before);
// Returns from the caller with the failure of `call`, an expression of the vendor's error, which is
// evaluated with the device current.
#define HY__VENDOR_CALL(device_, what, call) HY__VENDOR_CALL_OR_FREE(device_, what, NULL, call)
// The same, where `memory` is freed before a failure is returned.
#define HY__VENDOR_CALL_OR_FREE(device_, what, memory, call)        \
  do {                                                              \
    const hy__vendor_device* entered_ = (const void*)(device_);     \
    int before_, error_ = hy__vendor_try_enter(entered_, &before_); \
    if (!error_) error_ = (call);                                   \
    hy__vendor_leave(entered_, before_);                            \
    if (error_) {                                                   \
      free(memory);                                                 \
      return entered_->vendor->fail(error_, what);                  \
    }                                                               \
  } while (0)

void hy__vendor_arena_reset(hy__vendor_arena* arena);  // all is free again
void hy__vendor_arena_free(const hy__vendor* vendor, hy__vendor_arena* arena);
void* hy__vendor_arena_take(const hy__vendor* vendor, hy__vendor_arena* arena, size_t bytes,
                            int* error);
// As take, but free for the next taker at once: for a launch that uses it before anything after it.
void* hy__vendor_arena_lend(const hy__vendor* vendor, hy__vendor_arena* arena, size_t bytes,
                            int* error);

// A stream that is zero apart from what the backend has put after it; released also after a
// failure.
hy_status hy__vendor_stream_init(hy__vendor_device* device, hy__vendor_stream* stream);
void hy__vendor_stream_release(hy__vendor_stream* stream);
// Keeps the first failure of a stream for stream_error.
void hy__vendor_keep_error(hy__vendor_stream* stream, hy_status status, hy_op op,
                           const char* message);
// Where the next check puts its byte, for `op`; waits for the stream where all places are taken.
hy_status hy__vendor_check_place(hy__vendor_stream* stream, hy_op op, char** place);

hy_status hy__vendor_device_sync(void* device);
hy_status hy__vendor_memory_alloc(void* device, size_t bytes, void** address);
void hy__vendor_memory_free(void* device, void* address);
hy_status hy__vendor_memory_info(void* device, uint64_t* free_bytes, uint64_t* total_bytes);
hy_status hy__vendor_host_alloc(void* device, size_t bytes, void** address);
void hy__vendor_host_free(void* device, void* address);
hy_status hy__vendor_copy(void* device, void* stream, void* dst, const void* src, size_t bytes,
                          hy_copy_kind kind);
hy_status hy__vendor_set(void* device, void* stream, void* dst, int value, size_t bytes);
hy_status hy__vendor_stream_sync(void* device, void* stream);
hy_status hy__vendor_stream_query(void* device, void* stream);
void hy__vendor_stream_error(void* device, void* stream, hy_async_error* error);
hy_status hy__vendor_stream_native(void* device, void* stream, void** native);
hy_status hy__vendor_event_create(void* device, void** event);
void hy__vendor_event_destroy(void* device, void* event);
hy_status hy__vendor_event_record(void* device, void* event, void* stream);
hy_status hy__vendor_event_query(void* device, void* event);
hy_status hy__vendor_event_sync(void* device, void* event);
hy_status hy__vendor_event_elapsed(void* device, void* start, void* stop, double* milliseconds);
hy_status hy__vendor_stream_wait_event(void* device, void* stream, void* event);
hy_status hy__vendor_capture_begin(void* device, void* stream);
hy_status hy__vendor_capture_end(void* device, void* stream, void** graph);
hy_status hy__vendor_graph_launch(void* device, void* graph, void* stream);
void hy__vendor_graph_destroy(void* device, void* graph);

// The functions above, in a backend's table.
#define HY__VENDOR_SLOTS                                                                           \
  .device_sync = hy__vendor_device_sync, .memory_alloc = hy__vendor_memory_alloc,                  \
  .memory_free = hy__vendor_memory_free, .memory_info = hy__vendor_memory_info,                    \
  .host_alloc = hy__vendor_host_alloc, .host_free = hy__vendor_host_free, .copy = hy__vendor_copy, \
  .set = hy__vendor_set, .stream_sync = hy__vendor_stream_sync,                                    \
  .stream_query = hy__vendor_stream_query, .stream_error = hy__vendor_stream_error,                \
  .event_create = hy__vendor_event_create, .event_destroy = hy__vendor_event_destroy,              \
  .event_record = hy__vendor_event_record, .event_query = hy__vendor_event_query,                  \
  .event_sync = hy__vendor_event_sync, .event_elapsed = hy__vendor_event_elapsed,                  \
  .stream_wait_event = hy__vendor_stream_wait_event, .stream_native = hy__vendor_stream_native,    \
  .capture_begin = hy__vendor_capture_begin, .capture_end = hy__vendor_capture_end,                \
  .graph_launch = hy__vendor_graph_launch, .graph_destroy = hy__vendor_graph_destroy

#endif  // HALYARD_COMMON_VENDOR_RUNTIME_H_
