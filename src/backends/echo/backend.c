// The echo backend: the ECHO NPU over its SDK, whatever is below it (a functional model, the
// Verilog in simulation, a card). The SDK is part of this library, so that nobody else uses it.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/common/smoke_test.h"
#include "backends/echo/echo.h"

// ---- Probe ----

static hy_backend backend;

static hy_status probe(hy_probe* report, int* device_count) {
  snprintf(report->library, sizeof report->library, "built in, over %s", echoNpuGetBackendName());
  snprintf(report->remedy, sizeof report->remedy,
           "set ECHO_NPU_BACKEND to a bottom that is there: cmodel always is");
  report->stage = HY_STAGE_SYMBOLS;
  echoNpuError error = echoNpuGetDeviceCount(device_count);
  if (error) return hy__echo_fail(error, "looking for devices");
  report->stage = HY_STAGE_DEVICES;
  return hy__smoke_test(&backend, 0, report);
}

// ---- Devices ----

static hy_status device_info(int index, hy_device_info* info) {
  echoNpuDeviceProperties p;
  echoNpuBackendInfo b;
  echoNpuError error = echoNpuGetDeviceProperties(index, &p);
  if (!error) error = echoNpuGetBackendInfo(&b);
  if (error) return hy__echo_fail(error, "device properties");
  snprintf(info->name, sizeof info->name, "%s", p.name);
  info->memory_total = p.memory_total;
  info->memory_free = p.memory_free;
  info->core_count = 1;
  info->capabilities = HY_CAP_FP32 | HY_CAP_BF16 | HY_CAP_INT8;
  info->dtypes =
      HY_DTYPE_BIT(HY_F32) | HY_DTYPE_BIT(HY_BF16) | HY_DTYPE_BIT(HY_I8) | HY_DTYPE_BIT(HY_I32);
  snprintf(info->driver_version, sizeof info->driver_version, "%s, hardware %u.%u", b.name,
           p.hw_version >> 16, p.hw_version & 0xffff);
  snprintf(info->sdk_version, sizeof info->sdk_version, "%s", b.version);
  static const char* const states[] = {"idle", "busy", "done", "error"};
  snprintf(
      info->properties, sizeof info->properties,
      "bottom=%s\nstatus=%s\nfeatures=%.200s\narray=%ux%u\nlanes=%u\nbus_bytes=%u\nclock_mhz=%u\n"
      "areas=weight 0x%x, act 0x%x, high 0x%llx\n",
      b.name, states[p.status & 3], b.features, p.array_size, p.array_size, p.vector_lanes,
      p.bus_bytes, p.clock_mhz, (unsigned)ECHO_NPU_WEIGHT_BASE, (unsigned)ECHO_NPU_ACT_BASE,
      (unsigned long long)ECHO_NPU_HIGH_BASE);
  return HY_OK;
}

static hy_status device_open(int index, void** device) {
  hy__echo_device* fresh = calloc(1, sizeof *fresh);
  if (!fresh) return hy__backend_host->fail(HY_OUT_OF_MEMORY, "echo: no host memory for a device");
  fresh->index = index;
  pthread_mutex_init(&fresh->mutex, NULL);
  *device = fresh;
  return HY_OK;
}

static void device_close(void* device) {
  hy__echo_device* d = device;
  int before = hy__echo_enter(d);
  echoNpuDeviceReset();
  hy__echo_leave(before);
  pthread_mutex_destroy(&d->mutex);
  free(d);
}

// ---- Memory ----

static hy_status memory_alloc(void* device, size_t bytes, void** address) {
  int before = hy__echo_enter(device);
  echoNpuError error = echoNpuMalloc(address, bytes ? bytes : 1);
  hy__echo_leave(before);
  return error == ECHO_NPU_SUCCESS ? HY_OK : hy__echo_fail(error, "memory");
}

static void memory_free(void* device, void* address) {
  (void)device;
  if (echoNpuFree(address) != ECHO_NPU_SUCCESS)
    hy__backend_host->log(1, "echo: %s", echoNpuGetLastErrorMessage());
}

static hy_status memory_info(void* device, uint64_t* free_bytes, uint64_t* total_bytes) {
  size_t free_now = 0, total = 0;
  int before = hy__echo_enter(device);
  echoNpuError error = echoNpuMemGetInfo(&free_now, &total);
  hy__echo_leave(before);
  *free_bytes = free_now;
  *total_bytes = total;
  return error == ECHO_NPU_SUCCESS ? HY_OK : hy__echo_fail(error, "the size of memory");
}

static hy_status copy(void* device, void* stream, void* dst, const void* src, size_t bytes,
                      hy_copy_kind kind) {
  (void)device;
  hy__echo_stream* s = stream;
  HY_TRY(hy__echo_stream_status(s));
  if (s->capture)
    return hy__echo_record(
        s, &(hy_graph_node){.kind = HY_NODE_COPY, .dst = dst, .src = src, .bytes = bytes});
  return hy__echo_stream_result(
      s, echoNpuMemcpyAsync(dst, src, bytes, (echoNpuMemcpyKind)kind, s->queue), "a copy");
}

static hy_status set(void* device, void* stream, void* dst, int value, size_t bytes) {
  (void)device;
  hy__echo_stream* s = stream;
  HY_TRY(hy__echo_stream_status(s));
  if (s->capture)
    return hy__echo_record(
        s, &(hy_graph_node){.kind = HY_NODE_SET, .dst = dst, .value = value, .bytes = bytes});
  return hy__echo_stream_result(s, echoNpuMemsetAsync(dst, value, bytes, s->queue), "a memset");
}

static const hy_provider* const providers[] = {&hy__echo_provider};

static hy_backend backend = {
    .size = sizeof(hy_backend),
    .abi = HY_ABI_VERSION,
    .name = "echo",
    .version = HY_VERSION_STRING,
    .description = "the ECHO NPU, simulated or on a card",
    .probe = probe,
    .device_info = device_info,
    .device_open = device_open,
    .device_close = device_close,
    .device_sync = hy__echo_device_sync,
    .memory_alloc = memory_alloc,
    .memory_free = memory_free,
    .memory_info = memory_info,
    .copy = copy,
    .set = set,
    .stream_create = hy__echo_stream_create,
    .stream_destroy = hy__echo_stream_destroy,
    .stream_sync = hy__echo_stream_sync,
    .stream_query = hy__echo_stream_query,
    .stream_error = hy__echo_stream_error,
    .event_create = hy__echo_event_create,
    .event_destroy = hy__echo_event_destroy,
    .event_record = hy__echo_event_record,
    .event_query = hy__echo_event_query,
    .event_sync = hy__echo_event_sync,
    .event_elapsed = hy__echo_event_elapsed,
    .stream_wait_event = hy__echo_stream_wait_event,
    .providers = providers,
    .n_providers = 1,
    .capture_begin = hy__echo_capture_begin,
    .capture_end = hy__echo_capture_end,
    .graph_launch = hy__echo_graph_launch,
    .graph_update = hy__echo_graph_update,
    .graph_destroy = hy__echo_graph_destroy,
};

hy_status hy__backend_echo(uint32_t max_abi, const hy_host* services, const hy_backend** out);
hy_status hy__backend_echo(uint32_t max_abi, const hy_host* services, const hy_backend** out) {
  (void)max_abi;
  hy__backend_host = services;
  const char* bottom = echoNpuGetBackendName();
  bool on_a_card = !strcmp(bottom, "fpga") || !strcmp(bottom, "asic");
  backend.flags = HY_BACKEND_NARROW_RANGE | (on_a_card ? 0 : HY_BACKEND_SIMULATED);
  *out = &backend;
  return HY_OK;
}
