// Copies and memsets on a stream, and copies between devices: directly, or staged through the host.
#include <stdio.h>

#include "base/status.h"
#include "core/debug.h"

// Staging of copies between devices, in two halves that are filled and emptied alternately.
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

// A failure without words gets some: a message of before is no reason of now.
static hy_status with_words(hy_status status, unsigned before, const hy_stream* stream,
                            const char* what, size_t bytes) {
  if (status == HY_OK || hy__failures() != before) return status;
  return hy_fail(status, "%s answers %s to %s of %zu bytes and gives no reason (hy_host.fail)",
                 stream->device->selector, hy_status_name(status), what, bytes);
}

// Whether `address` is on the stream's device; another device's memory is an error.
static hy_status side(const hy_stream* stream, const char* name, const void* address,
                      bool* on_device) {
  const hy_device* owner = hy__memory_owner(address);
  *on_device = owner != NULL;
  if (!owner || hy__same_device(owner, stream->device)) return HY_OK;
  return hy_fail(HY_INVALID_ARGUMENT,
                 "hy_memcpy: %s is on %s and the stream is of %s; hy_memcpy_peer copies between "
                 "devices",
                 name, owner->selector, stream->device->selector);
}

// On a device in host memory the addresses alone do not tell: what its allocator gave is its own.
static hy_status capture_copy(hy_stream* stream, void* dst, const void* src, size_t bytes,
                              hy_copy_kind kind, bool by_address) {
  hy_device* device = stream->device;
  if (by_address && device->is_host && hy__allocator_owns(device->allocator, dst) &&
      hy__allocator_owns(device->allocator, src)) {
    kind = HY_COPY_DEVICE_TO_DEVICE;
  }
  if (kind != HY_COPY_DEVICE_TO_DEVICE) {
    char what[64];
    snprintf(what, sizeof what, "a copy from %s", kind_names[kind]);
    return hy__capture_refuse(stream, what,
                              "the host's memory is not the graph's; copy before the capture or "
                              "after the launch");
  }
  return stream->capture->work(
      stream, &(hy_graph_node){.kind = HY_NODE_COPY, .dst = dst, .src = src, .bytes = bytes});
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
  bool by_address = kind == HY_COPY_DEFAULT;
  if (by_address) {
    bool to_device, from_device;
    HY_TRY(side(stream, "dst", dst, &to_device));
    HY_TRY(side(stream, "src", src, &from_device));
    kind = to_device ? (from_device ? HY_COPY_DEVICE_TO_DEVICE : HY_COPY_HOST_TO_DEVICE)
                     : (from_device ? HY_COPY_DEVICE_TO_HOST : HY_COPY_HOST_TO_HOST);
  }
  if (stream->capture) return capture_copy(stream, dst, src, bytes, kind, by_address);
  if (hy__fault(HY_FAULT_COPY)) return injected(stream, "copy", bytes);
  const hy_device* device = stream->device;
  if (hy__debug()) hy__debug_delay(stream);
  int64_t begin = hy__trace_begin();
  unsigned before = hy__failures();
  hy_status status = device->backend->copy(device->handle, stream->handle, dst, src, bytes, kind);
  trace(begin, "copy", kind_names[kind], device, bytes);
  return with_words(status, before, stream, "a copy", bytes);
}

hy_status hy_memset(hy_stream* stream, void* dst, int value, size_t bytes) {
  if (!stream) return hy_fail(HY_INVALID_ARGUMENT, "hy_memset: stream is NULL");
  HY_TRY(hy__stream_check(stream));
  if (bytes == 0) return HY_OK;
  if (!dst) return hy_fail(HY_INVALID_ARGUMENT, "hy_memset: dst is NULL");
  if (stream->capture) {
    return stream->capture->work(
        stream, &(hy_graph_node){.kind = HY_NODE_SET, .dst = dst, .value = value, .bytes = bytes});
  }
  if (hy__fault(HY_FAULT_COPY)) return injected(stream, "memset", bytes);
  const hy_device* device = stream->device;
  int64_t begin = hy__trace_begin();
  unsigned before = hy__failures();
  hy_status status = device->backend->set(device->handle, stream->handle, dst, value, bytes);
  trace(begin, "set", NULL, device, bytes);
  return with_words(status, before, stream, "a set", bytes);
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

hy_status hy_device_peer_access(hy_device* device, hy_device* peer, bool* possible) {
  if (!device || !peer || !possible) {
    return hy_fail(HY_INVALID_ARGUMENT, "hy_device_peer_access: an argument is NULL");
  }
  *possible = false;
  if (hy__same_device(device, peer)) *possible = true;
  if (*possible || device->backend != peer->backend || !device->backend->peer_access) return HY_OK;
  int32_t answer = 0;
  HY_TRY(device->backend->peer_access(device->handle, peer->handle, &answer));
  *possible = answer != 0;
  return HY_OK;
}

// Straight from one device of a backend to another.
static hy_status copy_direct(hy_stream* dst_stream, void* dst, hy_stream* src_stream,
                             const void* src, size_t bytes) {
  const hy_device* to = dst_stream->device;
  HY_TRY(hy_stream_sync(src_stream));
  HY_TRY(hy__stream_check(dst_stream));
  if (hy__fault(HY_FAULT_COPY)) return injected(dst_stream, "copy", bytes);
  int64_t begin = hy__trace_begin();
  hy_status status = to->backend->copy_peer(to->handle, dst_stream->handle, dst,
                                            src_stream->device->handle, src, bytes);
  trace(begin, "copy", "peer to peer", to, bytes);
  HY_TRY(status);
  return hy_stream_sync(dst_stream);
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
  const hy_device* to = dst_stream->device->root;
  const hy_device* from = src_stream->device->root;
  if (dst_stream->capture || src_stream->capture) {
    return hy__capture_refuse(dst_stream->capture ? dst_stream : src_stream, "hy_memcpy_peer",
                              "it has finished when it returns");
  }
  bool direct;
  HY_TRY(hy_device_peer_access(dst_stream->device, src_stream->device, &direct));
  if (to != from && direct && bytes) return copy_direct(dst_stream, dst, src_stream, src, bytes);
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
