// Copies and memset: which side is which device, staging, tracing.
#include "core/internal.h"

// Staging of copies between devices, in two halves that are filled and emptied in turns.
static const size_t stage_bytes = (size_t)4 << 20;

static const char* const kind_names[] = {"host to host", "host to device", "device to host",
                                         "device to device"};

static void trace(int64_t begin, const char* name, const char* detail, const hy_device* device,
                  size_t bytes) {
  if (!begin) return;
  hy__trace_end(begin, &(hy__trace_event){.kind = HY__TRACE_COPY,
                                          .name = name,
                                          .detail = detail,
                                          .device = device,
                                          .bytes = bytes});
}

static hy_status injected(const hy_stream* stream, const char* what, size_t bytes) {
  return hy_fail(HY_DEVICE_FAILED, "%s of %zu bytes on %s failed by an injected fault", what, bytes,
                 stream->device->selector);
}

// Whether `address` lies on the stream's device; another device's memory is an error.
static hy_status side(const hy_stream* stream, const char* name, const void* address,
                      bool* on_device) {
  const hy_device* owner = hy__memory_owner(address);
  *on_device = owner != NULL;
  if (!owner || owner == stream->device) return HY_OK;
  return hy_fail(HY_INVALID_ARGUMENT,
                 "hy_memcpy: %s lies on %s and the stream is of %s; hy_memcpy_peer copies between "
                 "devices",
                 name, owner->selector, stream->device->selector);
}

hy_status hy_memcpy(hy_stream* stream, void* dst, const void* src, size_t bytes,
                    hy_copy_kind kind) {
  if (!stream) return hy_fail(HY_INVALID_ARGUMENT, "hy_memcpy: stream is NULL");
  if ((unsigned)kind > HY_COPY_DEFAULT) {
    return hy_fail(HY_INVALID_ARGUMENT, "hy_memcpy: %d is no kind of copy", (int)kind);
  }
  HY_TRY(hy__stream_check(stream));
  if (bytes == 0) return HY_OK;
  if (!dst || !src) {
    return hy_fail(HY_INVALID_ARGUMENT, "hy_memcpy: %s is NULL", dst ? "src" : "dst");
  }
  if (kind == HY_COPY_DEFAULT) {
    bool to_device, from_device;
    HY_TRY(side(stream, "dst", dst, &to_device));
    HY_TRY(side(stream, "src", src, &from_device));
    kind = to_device ? (from_device ? HY_COPY_DEVICE_TO_DEVICE : HY_COPY_HOST_TO_DEVICE)
                     : (from_device ? HY_COPY_DEVICE_TO_HOST : HY_COPY_HOST_TO_HOST);
  }
  if (hy__fault(HY_FAULT_COPY)) return injected(stream, "copy", bytes);
  const hy_device* device = stream->device;
  int64_t begin = hy__trace_begin();
  hy_status status = device->backend->copy(device->handle, stream->handle, dst, src, bytes, kind);
  trace(begin, "copy", kind_names[kind], device, bytes);
  return status;
}

hy_status hy_memset(hy_stream* stream, void* dst, int value, size_t bytes) {
  if (!stream) return hy_fail(HY_INVALID_ARGUMENT, "hy_memset: stream is NULL");
  HY_TRY(hy__stream_check(stream));
  if (bytes == 0) return HY_OK;
  if (!dst) return hy_fail(HY_INVALID_ARGUMENT, "hy_memset: dst is NULL");
  if (hy__fault(HY_FAULT_COPY)) return injected(stream, "memset", bytes);
  const hy_device* device = stream->device;
  int64_t begin = hy__trace_begin();
  hy_status status = device->backend->set(device->handle, stream->handle, dst, value, bytes);
  trace(begin, "set", NULL, device, bytes);
  return status;
}

// While one half goes up to the destination, the next comes down from the source.
static hy_status copy_staged(hy_stream* dst_stream, char* dst, hy_stream* src_stream,
                             const char* src, size_t bytes) {
  size_t half = bytes < stage_bytes ? bytes : stage_bytes;
  void* stage;
  HY_TRY(hy_host_alloc(src_stream->device, 2 * half, &stage));
  hy_status status = HY_OK;
  size_t turn = 0;
  for (size_t at = 0; at < bytes && status == HY_OK; at += half, turn ^= 1) {
    char* buffer = (char*)stage + turn * half;
    size_t part = bytes - at < half ? bytes - at : half;
    status = hy_memcpy(src_stream, buffer, src + at, part, HY_COPY_DEVICE_TO_HOST);
    if (status == HY_OK) status = hy_stream_sync(dst_stream);
    if (status == HY_OK) status = hy_stream_sync(src_stream);
    if (status == HY_OK) {
      status = hy_memcpy(dst_stream, dst + at, buffer, part, HY_COPY_HOST_TO_DEVICE);
    }
  }
  if (status == HY_OK) status = hy_stream_sync(dst_stream);
  if (status != HY_OK) {
    // What was queued before the failure may still use the stage.
    hy_device_sync(src_stream->device);
    hy_device_sync(dst_stream->device);
  }
  hy_host_free(src_stream->device, stage);
  return status;
}

hy_status hy_memcpy_peer(hy_stream* dst_stream, void* dst, hy_stream* src_stream, const void* src,
                         size_t bytes) {
  if (!dst_stream || !src_stream) {
    return hy_fail(HY_INVALID_ARGUMENT, "hy_memcpy_peer: %s is NULL",
                   dst_stream ? "src_stream" : "dst_stream");
  }
  if (bytes && (!dst || !src)) {
    return hy_fail(HY_INVALID_ARGUMENT, "hy_memcpy_peer: %s is NULL", dst ? "src" : "dst");
  }
  const hy_device* to = dst_stream->device;
  const hy_device* from = src_stream->device;
  if (to != from && !to->is_host && !from->is_host) {
    return copy_staged(dst_stream, dst, src_stream, src, bytes);
  }
  if (to != from && to->is_host) {
    HY_TRY(hy_stream_sync(dst_stream));
    HY_TRY(hy_memcpy(src_stream, dst, src, bytes, HY_COPY_DEVICE_TO_HOST));
    return hy_stream_sync(src_stream);
  }
  HY_TRY(hy_stream_sync(src_stream));
  HY_TRY(hy_memcpy(dst_stream, dst, src, bytes,
                   to == from ? HY_COPY_DEVICE_TO_DEVICE : HY_COPY_HOST_TO_DEVICE));
  return hy_stream_sync(dst_stream);
}
