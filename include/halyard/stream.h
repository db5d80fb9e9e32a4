// Streams, events, memory and copies.
#ifndef HALYARD_STREAM_H_
#define HALYARD_STREAM_H_

#include "halyard/device.h"

#ifdef __cplusplus
extern "C" {
#endif

// ---- Streams: in-order queues of work on one device. A stream may be used by one thread at a
// time. ----

typedef struct hy_stream hy_stream;
typedef struct hy_event hy_event;

HY_API hy_status hy_stream_create(hy_device* device, hy_stream** stream);
HY_API void hy_stream_destroy(hy_stream* stream);  // waits for its work; NULL is fine
// The device's own stream, made on first use, destroyed with the device.
HY_API hy_status hy_stream_default(hy_device* device, hy_stream** stream);
HY_API hy_device* hy_stream_device(const hy_stream* stream);
HY_API hy_status hy_stream_sync(hy_stream* stream);
HY_API hy_status hy_stream_query(hy_stream* stream);  // HY_OK, HY_NOT_READY, or the stream's error
// An asynchronous failure sticks to its stream: every later call on it returns that failure and
// names its op, until the stream is reset. Reset waits for the queue, drops the error and makes the
// stream usable again.
HY_API hy_status hy_stream_reset(hy_stream* stream);

HY_API hy_status hy_event_create(hy_device* device, hy_event** event);
HY_API void hy_event_destroy(hy_event* event);
HY_API hy_status hy_event_record(hy_event* event, hy_stream* stream);
HY_API hy_status hy_event_query(hy_event* event);
HY_API hy_status hy_event_sync(hy_event* event);
HY_API hy_status hy_event_elapsed(hy_event* start, hy_event* stop, double* milliseconds);
HY_API hy_status hy_stream_wait_event(hy_stream* stream, hy_event* event);

// ---- Memory: one caching allocator serves every backend. Thread-safe. ----

// At least `bytes`, 64-byte aligned, for use on `stream`. Zero bytes give a valid, unique address.
// Freed memory may be reused at once by later work on the same stream, and by other streams only
// when the work that used it is done.
HY_API hy_status hy_alloc(hy_stream* stream, size_t bytes, void** address);
HY_API hy_status hy_free(hy_device* device,
                         void* address);  // NULL is fine; an unknown address is an error
// Tells the allocator that `address` is also used on `stream`.
HY_API hy_status hy_record_stream(hy_stream* stream, void* address);
// Memory straight from the backend, outside the cache, its statistics and its limit. Freed at once:
// the work that used it must be done.
HY_API hy_status hy_alloc_raw(hy_device* device, size_t bytes, void** address);
HY_API void hy_free_raw(hy_device* device, void* address);
// Host memory that copies to and from the device quickly; freed at once as well.
HY_API hy_status hy_host_alloc(hy_device* device, size_t bytes, void** address);
HY_API void hy_host_free(hy_device* device, void* address);
HY_API bool hy_host_is_pinned(hy_device* device, const void* address);

typedef struct hy_memory_stats {
  uint64_t allocated, allocated_peak;  // bytes handed out
  uint64_t reserved, reserved_peak;    // bytes taken from the backend
  uint64_t allocations, frees;         // calls
  uint64_t backend_allocations;        // calls to the backend: misses of the cache
  uint64_t retries;                    // out-of-memory answers survived by flushing
  uint64_t out_of_memory;              // failures reported to callers
  uint64_t limit;                      // 0: none
} hy_memory_stats;

HY_API hy_status hy_memory_get_stats(hy_device* device, hy_memory_stats* stats);
HY_API hy_status hy_memory_reset_peak(hy_device* device);
HY_API hy_status hy_memory_info(hy_device* device, uint64_t* free_bytes, uint64_t* total_bytes);
// Bytes the cache may reserve, also set by HALYARD_MEMORY_LIMIT ("2G", "cuda:0=8G,cpu=1G"); 0: no
// limit.
HY_API hy_status hy_memory_set_limit(hy_device* device, uint64_t bytes);
HY_API hy_status hy_empty_cache(hy_device* device);

// ---- Copies: ordered on the stream; host memory must stay valid until the stream has passed it.
// ----

// HY_COPY_DEFAULT looks both addresses up in the allocators; an address unknown to all of them is
// host memory.
HY_API hy_status hy_memcpy(hy_stream* stream, void* dst, const void* src, size_t bytes,
                           hy_copy_kind kind);
// Host memory to the device, done with `src` on return. Up to HY_UPLOAD_RING_BYTES go through a
// ring of pinned memory that the stream keeps, without waiting for the device; more than that
// waits.
HY_API hy_status hy_upload(hy_stream* stream, void* dst, const void* src, size_t bytes);
enum { HY_UPLOAD_RING_BYTES = 1 << 20 };
HY_API hy_status hy_memset(hy_stream* stream, void* dst, int value, size_t bytes);
// Between two devices, through the host where there is no direct way. Finished on return.
HY_API hy_status hy_memcpy_peer(hy_stream* dst_stream, void* dst, hy_stream* src_stream,
                                const void* src, size_t bytes);

// ---- Fault injection, for tests ----

typedef enum hy_fault {
  HY_FAULT_ALLOCATION,
  HY_FAULT_COPY,
  HY_FAULT_KERNEL,
  HY_FAULT_HOST_ALLOCATION,
  HY_FAULT_COUNT
} hy_fault;
// The nth next event of that kind fails (1: the next one); 0 disarms. Process-wide.
// An ALLOCATION is a call of hy_alloc, hy_alloc_raw or hy_host_alloc, which then answers
// HY_OUT_OF_MEMORY; a COPY is a copy or memset, a KERNEL is a run of one. HOST_ALLOCATION is the
// library's own use of malloc.
HY_API void hy_inject_fault(hy_fault fault, int64_t nth);
// How many events of that kind have happened since it was last armed; nothing is counted while it
// is disarmed. Arm with INT64_MAX to count without failing.
HY_API int64_t hy_fault_events(hy_fault fault);

#ifdef __cplusplus
}
#endif
#endif  // HALYARD_STREAM_H_
