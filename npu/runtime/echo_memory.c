// echo_memory.c - copies between host and device memory.
#include <stdlib.h>
#include <string.h>

#include "echo_runtime.h"

static echo_npu_packet memcpy_packet(uint64_t to, uint64_t from, uint64_t bytes) {
  return (echo_npu_packet){.opcode = ECHO_NPU_OP_MEMCPY,
                           .src1 = from,
                           .dst = to,
                           .param = {(uint32_t)bytes, (uint32_t)(bytes >> 32)}};
}

static int is_device(const void* p) {
  return echoNpuGetAddress(p, NULL, NULL) == ECHO_NPU_SUCCESS;
}

static echoNpuMemcpyKind infer(const void* dst, const void* src) {
  return (is_device(dst) ? 1u : 0u) | (is_device(src) ? 2u : 0u);
}

// Between devices, through the host.
static echoNpuError copy_across(echo_device* to, uint64_t dst, echo_device* from, uint64_t src,
                                size_t size) {
  const size_t chunk = size < (1u << 20) ? size : 1u << 20;
  void* stage = malloc(chunk);
  if (!stage)
    return echo__fail(ECHO_NPU_ERROR_OUT_OF_HOST_MEMORY, "no host memory to stage a copy");
  echoNpuError error = ECHO_NPU_SUCCESS;
  for (size_t at = 0; at < size && !error; at += chunk) {
    size_t n = size - at < chunk ? size - at : chunk;
    error = echo__submit_read(from->default_stream, stage, src + at, n);
    if (!error) error = echo__stream_wait(from->default_stream);
    if (!error) error = echo__submit_write(to->default_stream, dst + at, stage, n);
    if (!error) error = echo__stream_wait(to->default_stream);
  }
  free(stage);
  return error;
}

// With no stream: after everything on the devices, and complete on return.
static echoNpuError copy(void* dst, const void* src, size_t size, echoNpuMemcpyKind kind,
                         echoNpuStream stream) {
  if (size == 0) return ECHO_NPU_SUCCESS;
  if (!dst || !src) return echo__fail(ECHO_NPU_ERROR_INVALID_VALUE, "memcpy: NULL pointer");
  if (kind == ECHO_NPU_MEMCPY_DEFAULT) kind = infer(dst, src);
  echo_device *to = NULL, *from = NULL;
  uint64_t dst_at = 0, src_at = 0;
  echoNpuError error = ECHO_NPU_SUCCESS;
  switch (kind) {
    case ECHO_NPU_MEMCPY_HOST_TO_HOST: memmove(dst, src, size); return ECHO_NPU_SUCCESS;
    case ECHO_NPU_MEMCPY_HOST_TO_DEVICE: error = echo__resolve(dst, size, &to, &dst_at); break;
    case ECHO_NPU_MEMCPY_DEVICE_TO_HOST: error = echo__resolve(src, size, &from, &src_at); break;
    case ECHO_NPU_MEMCPY_DEVICE_TO_DEVICE:
      error = echo__resolve(dst, size, &to, &dst_at);
      if (!error) error = echo__resolve(src, size, &from, &src_at);
      break;
    default: return echo__fail(ECHO_NPU_ERROR_INVALID_VALUE, "memcpy: kind %d", (int)kind);
  }
  if (error) return error;
  echo__debug(2, ECHO_NPU_DEBUG_COPY, "%s%s %zu bytes",
              to && from ? "device to device"
              : to       ? "host to device"
                         : "device to host",
              stream ? " async" : "", size);
  echo_device* d = to ? to : from;
  if (stream && (stream->device != d || (to && from && to != from)))
    return echo__fail(ECHO_NPU_ERROR_INVALID_VALUE,
                      "memcpy: the stream is of device %d, the memory is not",
                      stream->device->index);
  if (!stream) {
    error = echo__device_wait(d);
    if (!error && to && from && to != from) error = echo__device_wait(from);
    if (error) return error;
  }
  if (to && from && to != from) return copy_across(to, dst_at, from, src_at, size);
  echoNpuStream s = stream ? stream : d->default_stream;
  if (to && from) {
    echo_npu_packet p = memcpy_packet(dst_at, src_at, size);
    error = echo__submit(s, &p, 1);
  } else if (to) {
    error = echo__submit_write(s, dst_at, src, size);
  } else {
    error = echo__submit_read(s, dst, src_at, size);
  }
  return error || stream ? error : echo__stream_wait(s);
}

echoNpuError echoNpuMemcpy(void* dst, const void* src, size_t size, echoNpuMemcpyKind kind) {
  return copy(dst, src, size, kind, NULL);
}

echoNpuError echoNpuMemcpyAsync(void* dst, const void* src, size_t size, echoNpuMemcpyKind kind,
                                echoNpuStream stream) {
  echoNpuStream s;
  echoNpuError error = echo__stream(stream, &s);
  return error ? error : copy(dst, src, size, kind, s);
}

echoNpuError echoNpuMemsetAsync(void* dst, int value, size_t size, echoNpuStream stream) {
  echoNpuStream s;
  echo_device* d;
  uint64_t at;
  if (size == 0) return ECHO_NPU_SUCCESS;
  echoNpuError error = echo__resolve(dst, size, &d, &at);
  if (!error && !stream) s = d->default_stream;
  if (!error && stream) error = echo__stream(stream, &s);
  if (error) return error;
  if (s->device != d)
    return echo__fail(ECHO_NPU_ERROR_INVALID_VALUE, "memset: the memory is of device %d", d->index);
  echo__debug(2, ECHO_NPU_DEBUG_COPY, "memset %zu bytes", size);
  for (size_t n; size && !error; size -= n, at += n) {
    n = size < ECHO_NPU_MAX_DIM ? size : ECHO_NPU_MAX_DIM;
    echo_npu_packet p = {.opcode = ECHO_NPU_OP_FILL,
                         .flags = ECHO_NPU_I8 << ECHO_NPU_FLAG_TD_SHIFT,
                         .dst = at,
                         .param = {1, (uint32_t)n, 0, 0, 0, 1, (uint8_t)value}};
    error = echo__submit(s, &p, 1);
  }
  return error;
}

echoNpuError echoNpuMemset(void* dst, int value, size_t size) {
  echo_device* d;
  uint64_t at;
  if (size == 0) return ECHO_NPU_SUCCESS;
  echoNpuError error = echo__resolve(dst, size, &d, &at);
  if (!error) error = echo__device_wait(d);
  if (!error) error = echoNpuMemsetAsync(dst, value, size, d->default_stream);
  return error ? error : echo__stream_wait(d->default_stream);
}
