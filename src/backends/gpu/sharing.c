// Memory beyond one device: copies between peers, and allocations that another process opens (IPC).
#include <string.h>

#include "backends/gpu/gpu.h"

static hy_status unsupported(const hy__gpu_device* d, const char* what) {
  return hy__backend_host->fail(HY_UNSUPPORTED, "%s: the driver lacks %s", d->api->name, what);
}

hy_status hy__gpu_peer_access(void* device, void* peer, int32_t* possible) {
  hy__gpu_device *to = device, *from = peer;
  int answer = 0;
  *possible = 0;
  if (to->index == from->index || !to->api->driver.copy_peer || !to->api->driver.can_access_peer)
    return HY_OK;
  int error = to->api->driver.can_access_peer(&answer, to->index, from->index);
  if (error) return hy__gpu_fail(to, error, "asking for peer access");
  *possible = answer;
  return HY_OK;
}

hy_status hy__gpu_copy_peer(void* device, void* stream, void* dst, void* peer, const void* src,
                            uint64_t bytes) {
  hy__gpu_device *to = device, *from = peer;
  hy__gpu_stream* s = stream;
  if (!to->api->driver.copy_peer) return unsupported(to, "copies between devices");
  bool entered = hy__gpu_enter(to);
  int error = to->api->driver.copy_peer((uintptr_t)dst, to->context, (uintptr_t)src, from->context,
                                        bytes, s->queue);
  hy__gpu_leave(to, entered);
  return error ? hy__gpu_fail(to, error, "a copy from another device") : HY_OK;
}

hy_status hy__gpu_memory_export(void* device, void* address, hy_memory_blob* blob) {
  hy__gpu_device* d = device;
  if (!d->api->driver.ipc_export) return unsupported(d, "memory between processes");
  hy__gpu_ipc_handle handle;
  memset(blob, 0, sizeof *blob);
  bool entered = hy__gpu_enter(d);
  int error = d->api->driver.ipc_export(&handle, (uintptr_t)address);
  hy__gpu_leave(d, entered);
  if (error) return hy__gpu_fail(d, error, "exporting memory");
  memcpy(blob->bytes, &handle, sizeof handle);
  return HY_OK;
}

hy_status hy__gpu_memory_import(void* device, const hy_memory_blob* blob, void** address) {
  enum { LAZY_PEER_ACCESS = 1 };
  hy__gpu_device* d = device;
  if (!d->api->driver.ipc_import) return unsupported(d, "memory between processes");
  hy__gpu_ipc_handle handle;
  uint64_t memory = 0;
  memcpy(&handle, blob->bytes, sizeof handle);
  bool entered = hy__gpu_enter(d);
  int error = d->api->driver.ipc_import(&memory, handle, LAZY_PEER_ACCESS);
  hy__gpu_leave(d, entered);
  if (error) return hy__gpu_fail(d, error, "importing memory of another process");
  *address = (void*)(uintptr_t)memory;
  return HY_OK;
}

hy_status hy__gpu_memory_close(void* device, void* address) {
  hy__gpu_device* d = device;
  if (!d->api->driver.ipc_close) return unsupported(d, "memory between processes");
  bool entered = hy__gpu_enter(d);
  int error = d->api->driver.ipc_close((uintptr_t)address);
  hy__gpu_leave(d, entered);
  return error ? hy__gpu_fail(d, error, "closing memory of another process") : HY_OK;
}
