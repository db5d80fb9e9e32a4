// Devices, streams, allocators and traces as core and src/ops see them; src/model and above use the
// public headers and src/base alone.
#ifndef HALYARD_CORE_INTERNAL_H_
#define HALYARD_CORE_INTERNAL_H_

#include <pthread.h>
#include <stdatomic.h>

#include "base/env.h"
#include "base/log.h"
#include "base/memory.h"
#include "halyard/stream.h"

// ---- trace ----

// What a traced call did, for the trace file and for HALYARD_LOG=3. Strings are only read during
// the call; any but `name` may be NULL.
typedef enum hy__trace_kind {
  HY__TRACE_OP,        // a kernel of the device
  HY__TRACE_FALLBACK,  // the cpu in place of the device; `reason` says why
  HY__TRACE_COPY,
  HY__TRACE_VIEW,
} hy__trace_kind;

typedef struct hy__trace_event {
  hy__trace_kind kind;
  const char* name;    // the op, or "copy"
  const char* detail;  // "f32[2, 3], f32[3]"
  const hy_device* device;
  const char* provider;
  const char* reason;
  uint64_t bytes;
} hy__trace_event;

// Zero when nobody watches, at the cost of one relaxed load; else pass it to hy__trace_end when the
// call is done. Times are the host's: an asynchronous device's work may still be running.
static inline int64_t hy__trace_begin(void) {
  return atomic_load_explicit(&hy__watching, memory_order_relaxed) ? hy__now_ns() : 0;
}
void hy__trace_end(int64_t begin, const hy__trace_event* event);

// ---- devices ----

#define HY__MAX_PROVIDERS 16

typedef struct hy__allocator hy__allocator;

struct hy_device {
  const hy_backend* backend;
  int index;
  void* handle;  // the backend's
  char selector[32];
  bool is_host;
  hy__allocator* allocator;
  pthread_mutex_t mutex;  // guards the streams
  hy_stream* default_stream;
  hy_stream* streams;  // all of them, newest first
  hy_device* older;    // the device opened before this one
  // Available providers in the order they are asked, NULL behind the last. Load the pointer once
  // and walk that array: hy_set_preferred_provider may switch to another at any time.
  const hy_provider* const* _Atomic providers;
  // The backend's own order, then one for each of its providers put first, filled when first
  // preferred, under the backend's lock.
  const hy_provider* orders[HY__MAX_PROVIDERS + 1][HY__MAX_PROVIDERS + 1];
};

struct hy_stream {
  hy_device* device;
  hy_stream *newer, *older;         // on the same device
  void* handle;                     // the backend's
  struct hy__cache* cache;          // free memory that work on this stream may take at once
  struct hy__upload_ring* uploads;  // made by the first hy_upload
  hy_status failed;                 // the sticky error, HY_OK when there is none
  char failure[320];
};

// Of a stream whose work is done.
void hy__upload_ring_destroy(hy_stream* stream);
// Destroys every stream of the device, after its work.
void hy__streams_close(hy_device* device);
// The stream's sticky error, asking the backend for a new one first. HY_OK when the stream is
// usable; cheap.
hy_status hy__stream_check(hy_stream* stream);

// The device is open. Reads HALYARD_MEMORY_LIMIT; a limit that cannot be read is an error.
hy_status hy__allocator_create(hy_device* device, hy__allocator** allocator);
// Gives everything back to the backend, memory still in use included. The device's work is done.
void hy__allocator_destroy(hy__allocator* allocator);
// Whether `address` lies in memory this allocator took from the backend.
bool hy__allocator_owns(hy__allocator* allocator, const void* address);
// Gives the stream its cache; a stream that has one gets a new handle known, the work on the old
// one being done. Detach once the stream's work is done and before its handle is destroyed.
hy_status hy__allocator_attach(hy__allocator* allocator, hy_stream* stream);
void hy__allocator_detach(hy__allocator* allocator, hy_stream* stream);
// The open device with memory of its own in which `address` lies; NULL for host memory.
hy_device* hy__memory_owner(const void* address);

// The host services table handed to plugins.
const hy_host* hy__host(void);
// Set by the op layer at start, so that plugins reach the reference through hy_host (core knows
// nothing of ops).
typedef struct hy__op_services {
  hy_status (*reference)(const hy_call* call);
  const char* (*op_name)(hy_op op);
  void (*shutdown)(void);  // forgets fallback counts and the like
} hy__op_services;
extern const hy__op_services hy__ops;  // defined in src/ops

#endif  // HALYARD_CORE_INTERNAL_H_
