// A minimal backend table for tests of the loader and the registry.
#include "support/stub.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

stub_state stub;

void stub_reset(void) {
  memset(&stub, 0, sizeof stub);
  stub.stage = HY_STAGE_READY;
  stub.device_count = 1;
  stub.dtypes = HY_DTYPE_BIT(HY_F32);
}

static hy_status probe(hy_probe* report, int* device_count) {
  atomic_fetch_add(&stub.probes, 1);
  report->stage = stub.stage;
  if (stub.reason) snprintf(report->reason, sizeof report->reason, "%s", stub.reason);
  *device_count = stub.device_count;
  return stub.status;
}

static hy_status device_info(int index, hy_device_info* info) {
  snprintf(info->name, sizeof info->name, "stub %d", index);
  if (index == 0 && stub.pci) snprintf(info->pci, sizeof info->pci, "%s", stub.pci);
  info->dtypes = stub.dtypes;
  info->capabilities = stub.capabilities;
  return HY_OK;
}

static hy_status device_open(int index, void** device) {
  (void)index;
  if (stub.open_status != HY_OK) return stub.open_status;
  atomic_fetch_add(&stub.opens, 1);
  *device = &stub;
  return HY_OK;
}

static void device_close(void* device) {
  (void)device;
  atomic_fetch_add(&stub.closes, 1);
}

static hy_status memory_alloc(void* device, size_t bytes, void** address) {
  (void)device;
  *address = aligned_alloc(64, (bytes + 63) / 64 * 64);
  return *address ? HY_OK : HY_OUT_OF_MEMORY;
}

static void memory_free(void* device, void* address) {
  (void)device;
  free(address);
}

static hy_status memory_info(void* device, uint64_t* free_bytes, uint64_t* total_bytes) {
  (void)device;
  *free_bytes = *total_bytes = 1 << 30;
  return HY_OK;
}

static hy_status copy(void* device, void* stream, void* dst, const void* src, size_t bytes,
                      hy_copy_kind kind) {
  (void)device, (void)stream, (void)kind;
  memmove(dst, src, bytes);
  return HY_OK;
}

static hy_status set(void* device, void* stream, void* dst, int value, size_t bytes) {
  (void)device, (void)stream;
  memset(dst, value, bytes);
  return HY_OK;
}

hy_backend stub_backend(const char* name) {
  return (hy_backend){
      .size = sizeof(hy_backend),
      .abi = HY_ABI_VERSION,
      .name = name,
      .version = "1",
      .description = "a stub",
      .probe = probe,
      .device_info = device_info,
      .device_open = device_open,
      .device_close = device_close,
      .memory_alloc = memory_alloc,
      .memory_free = memory_free,
      .memory_info = memory_info,
      .copy = copy,
      .set = set,
  };
}

static hy_support supports(void* device, const hy_call* call) {
  (void)device, (void)call;
  return HY_SUPPORT_NO_OP;
}

static hy_status run(void* device, void* stream, const hy_call* call) {
  (void)device, (void)stream, (void)call;
  return HY_UNSUPPORTED;
}

hy_provider stub_provider(const char* name) {
  return (hy_provider){.size = sizeof(hy_provider), .name = name, .supports = supports, .run = run};
}
