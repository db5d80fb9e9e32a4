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

// Whether the build leaves that provider out, by USE_<PROVIDER>=OFF.
bool hy__is_left_out(const char* provider);
// The first available of a list, the default for NULL; of a name without an index the device
// `local`, going round where the backend has fewer.
hy_status hy__device_get_local(const char* selectors, int local, hy_device** device);

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
  // Available providers in the order they are asked, NULL behind the last.
  const hy_provider* providers[HY__MAX_PROVIDERS + 1];
  // Itself; for a device that was opened by a provider's name, the one whose handle and allocator
  // it shares.
  hy_device* root;
  const char* provider;                    // asked first; NULL in the root
  hy_device* variants[HY__MAX_PROVIDERS];  // of the root, by provider, under the backend's lock
  struct hy_comm* comms;                   // of the root: all of them, newest first, under `mutex`
};

// Whether memory and streams of the one are the other's too.
static inline bool hy__same_device(const hy_device* a, const hy_device* b) {
  return a->root == b->root;
}

// A capture under way on a stream; src/graph makes it. Each function records one piece of work, and
// keeps copies of what it is given.
typedef struct hy__capture {
  // `provider` runs the call; NULL: the reference on a host device.
  hy_status (*call)(hy_stream* stream, const hy_call* call, const hy_provider* provider);
  hy_status (*work)(hy_stream* stream, const hy_graph_node* node);  // all but calls and chains
  // Memory of the capture's private cache that is taken, or given back; under the allocator's
  // mutex.
  void (*memory)(struct hy__capture* capture, void* address, size_t bytes, bool taken);
  void (*drop)(hy_stream* stream);  // ends the capture without a graph
  hy_status failed;                 // of the first call that could not be captured
  char failure[320];
} hy__capture;

// Refuses a call that cannot be captured, for the reason given; the capture then ends without a
// graph. Only where stream->capture is set.
hy_status hy__capture_refuse(hy_stream* stream, const char* what, const char* why);

struct hy_stream {
  hy_device* device;
  hy__capture* capture;      // NULL while work is run
  hy_stream *newer, *older;  // on the same device
  void* handle;              // the backend's
  bool foreign;              // over `native`, which somebody else owns
  void* native;
  int32_t priority;
  struct hy__alloc_cache* cache;    // free memory that work on this stream may take at once
  struct hy__upload_ring* uploads;  // made by the first hy_upload
  hy_status failed;                 // the sticky error, HY_OK when there is none
  char failure[320];
  // How calls on it were executed, counted where they were; conformance reads the difference.
  struct hy__executed {
    uint64_t by_provider, by_reference, fallen_back, composed;
    const char* provider;  // the name of the last one that ran a call
  } executed;
};

// Communicators, in src/comm. Makes what the device's have under way end, so that its streams can
// be closed.
void hy__comms_abort(hy_device* root);
void hy__comms_close(hy_device* root);
// Ends what src/comm has started for the process. The devices are closed.
void hy__comm_shutdown(void);

// Of a stream whose work is done.
void hy__upload_ring_destroy(hy_stream* stream);
// Destroys every stream of the device, after its work.
void hy__streams_close(hy_device* device);
// The stream's sticky error, asking the backend for a new one first. HY_OK when the stream is
// usable; two loads where a backend's calls finish before they return.
hy_status hy__stream_error(hy_stream* stream);
static inline hy_status hy__stream_check(hy_stream* stream) {
  bool asks = stream->device->backend->stream_error && !stream->capture;
  return stream->failed || asks ? hy__stream_error(stream) : HY_OK;
}

// The device is open. Reads HALYARD_MEMORY_LIMIT; a limit that cannot be read is an error.
hy_status hy__allocator_create(hy_device* device, hy__allocator** allocator);
// Gives everything back to the backend, memory still in use included. The device's work is done.
void hy__allocator_destroy(hy__allocator* allocator);
// Whether `address` is in memory this allocator took from the backend.
bool hy__allocator_owns(hy__allocator* allocator, const void* address);
// Gives the stream its cache; a stream that has one gets a new handle known, the work on the old
// one being done. Detach once the stream's work is done and before its handle is destroyed.
hy_status hy__allocator_attach(hy__allocator* allocator, hy_stream* stream);
void hy__allocator_detach(hy__allocator* allocator, hy_stream* stream);
// From capture_begin to capture_end what the stream allocates comes from, and goes back to, a
// private cache, which nobody else takes from. The stream is idle. Released once the work that uses
// it is done: what is free then, and what is freed later, is the stream's again.
hy_status hy__allocator_capture_begin(hy__allocator* allocator, hy_stream* stream,
                                      hy__capture* capture);
struct hy__alloc_cache* hy__allocator_capture_end(hy__allocator* allocator, hy_stream* stream);
uint64_t hy__allocator_private_bytes(hy__allocator* allocator, const struct hy__alloc_cache* cache);
void hy__allocator_private_release(hy__allocator* allocator, struct hy__alloc_cache* cache);
// The open device with memory of its own that holds `address`; NULL for host memory.
hy_device* hy__memory_owner(const void* address);
// The same, devices that compute in host memory included.
hy_device* hy__memory_of_any(const void* address);

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
