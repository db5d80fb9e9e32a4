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
// Lower numbers run first: `greatest` <= 0 <= `least`. Both are 0 if streams have no priorities.
HY_API hy_status hy_stream_priority_range(hy_device* device, int* least, int* greatest);
HY_API hy_status hy_stream_create_priority(hy_device* device, int priority, hy_stream** stream);
// The vendor's handle (a CUstream, say), to share the stream with another library; valid as long as
// the stream. HY_UNSUPPORTED where there is none.
HY_API hy_status hy_stream_native(hy_stream* stream, void** native);
// A stream over a vendor's handle that somebody else owns and keeps alive: work given to either is
// ordered. NULL is a handle too (CUDA's default stream). Destroying it leaves the native one.
// HY_UNSUPPORTED where the backend cannot.
HY_API hy_status hy_stream_wrap(hy_device* device, void* native, hy_stream** stream);
HY_API void hy_stream_destroy(hy_stream* stream);  // waits for its work; NULL is fine
// The device's own stream, made on first use, destroyed with the device.
HY_API hy_status hy_stream_default(hy_device* device, hy_stream** stream);
HY_API hy_device* hy_stream_device(const hy_stream* stream);
HY_API bool hy_stream_is_capturing(const hy_stream* stream);  // graph.h
HY_API hy_status hy_stream_sync(hy_stream* stream);
HY_API hy_status hy_stream_query(hy_stream* stream);  // HY_OK, HY_NOT_READY, or the stream's error
// An asynchronous failure is sticky: every later call on the stream returns it, with the name of
// the op, until the stream is reset. Reset waits for the queue, clears the error, drops a capture,
// and makes the stream usable again.
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
// Freed memory may be reused at once by later work on the same stream, and by other streams once
// the work that used it is done.
HY_API hy_status hy_alloc(hy_stream* stream, size_t bytes, void** address);
HY_API hy_status hy_free(hy_device* device,
                         void* address);  // NULL is fine; an unknown address is an error
// Tells the allocator that `address` is also used on `stream`.
HY_API hy_status hy_record_stream(hy_stream* stream, void* address);
// Memory directly from the backend, outside the cache, its statistics and its limit. Freed
// immediately: the work that used it must be done.
HY_API hy_status hy_alloc_raw(hy_device* device, size_t bytes, void** address);
HY_API void hy_free_raw(hy_device* device, void* address);
// Pinned host memory, for fast copies to and from the device; also freed immediately.
HY_API hy_status hy_host_alloc(hy_device* device, size_t bytes, void** address);
HY_API void hy_host_free(hy_device* device, void* address);
HY_API bool hy_host_is_pinned(hy_device* device, const void* address);

typedef struct hy_memory_stats {
  uint64_t allocated, allocated_peak;  // bytes in use
  uint64_t reserved, reserved_peak;    // bytes allocated from the backend
  uint64_t allocations, frees;         // calls
  uint64_t backend_allocations;        // calls to the backend: cache misses
  uint64_t retries;                    // out-of-memory errors resolved by flushing the cache
  uint64_t out_of_memory;              // out-of-memory errors returned to callers
  uint64_t limit;                      // 0: none
} hy_memory_stats;

HY_API hy_status hy_memory_get_stats(hy_device* device, hy_memory_stats* stats);
HY_API hy_status hy_memory_reset_peak(hy_device* device);
HY_API hy_status hy_memory_info(hy_device* device, uint64_t* free_bytes, uint64_t* total_bytes);
// Bytes the cache may reserve, also set by HALYARD_MEMORY_LIMIT ("2G", "cuda:0=8G,cpu=1G"); 0: no
// limit.
HY_API hy_status hy_memory_set_limit(hy_device* device, uint64_t bytes);
HY_API hy_status hy_empty_cache(hy_device* device);
// The open device whose memory contains `address`, regardless of who allocated it; NULL for memory
// that no device knows, which is the host's.
HY_API hy_status hy_device_of_pointer(const void* address, hy_device** device);

// ---- Memory between processes: handles are plain bytes, which the caller transfers ----

typedef struct hy_memory_handle {
  unsigned char bytes[256];
} hy_memory_handle;
// `address` is the start of an allocation of hy_alloc or hy_alloc_raw whose work is done. The
// memory must not be freed before every importer has closed it; cached memory around it stays
// reserved until hy_shutdown. HY_UNSUPPORTED if the backend cannot share memory.
HY_API hy_status hy_memory_export(hy_device* device, void* address, hy_memory_handle* handle);
// In another process, on the same backend: the allocation's address there, and its size.
HY_API hy_status hy_memory_import(hy_device* device, const hy_memory_handle* handle, void** address,
                                  size_t* bytes);
HY_API hy_status hy_memory_close(hy_device* device,
                                 void* address);  // the work that used it is done

// ---- Copies: ordered on the stream; host memory must stay valid until the copy is done. ----

// HY_COPY_DEFAULT looks up both addresses in the allocators; an address unknown to all of them is
// host memory.
HY_API hy_status hy_memcpy(hy_stream* stream, void* dst, const void* src, size_t bytes,
                           hy_copy_kind kind);
// Host memory to the device, done with `src` on return. Up to HY_UPLOAD_RING_BYTES go through a
// ring of pinned memory that the stream keeps, without waiting for the device; more than that
// waits.
HY_API hy_status hy_upload(hy_stream* stream, void* dst, const void* src, size_t bytes);
enum { HY_UPLOAD_RING_BYTES = 1 << 20 };
HY_API hy_status hy_memset(hy_stream* stream, void* dst, int value, size_t bytes);
// Whether copies from `peer` to `device` are direct.
HY_API hy_status hy_device_peer_access(hy_device* device, hy_device* peer, bool* possible);
// Between two devices, through the host if there is no direct path. Synchronous.
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
// Makes the nth event of this kind from now fail (1: the next one); 0 disarms. Process-wide.
// ALLOCATION is a call of hy_alloc, hy_alloc_raw or hy_host_alloc, which then returns
// HY_OUT_OF_MEMORY; COPY is a copy or memset, KERNEL the run of a kernel, HOST_ALLOCATION the
// library's own use of malloc.
HY_API void hy_inject_fault(hy_fault fault, int64_t nth);
// How many events of this kind have happened since it was last armed; none are counted while it is
// disarmed. Arm with INT64_MAX to count without failing.
HY_API int64_t hy_fault_events(hy_fault fault);

#ifdef __cplusplus
}
#endif
#endif  // HALYARD_STREAM_H_
