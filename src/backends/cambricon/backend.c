// The cambricon backend: Cambricon's MLUs through CNRT and CNNL, bound at run time. Written against
// the published interface and tested with the libraries of tests/vendors/cambricon; never run on
// the chip.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cambricon/cambricon.h"
#include "backends/common/collectives.h"
#include "backends/common/smoke_test.h"
#include "halyard/device.h"

enum { MAX_DEVICES = 64 };
enum { COMPUTE_MAJOR = 0x01, COMPUTE_MINOR = 0x02, HAS_BF16 = 0x07 };  // cnrtDeviceAttr_t
enum { NOT_READY = 1, BUSY = 632014 };                                 // cnrtRet_t, no failures

static int n_devices;
static hy_backend backend;

// ---- CNRT, as the common runtime calls it ----

static int device_sync(void) {
  return hy__cnrt.cnrtSyncDevice();
}
static int get_device(int* device) {
  return hy__cnrt.cnrtGetDevice(device);
}
static int set_device(int device) {
  return hy__cnrt.cnrtSetDevice(device);
}
static int memory_info(size_t* free_bytes, size_t* total) {
  return hy__cnrt.cnrtMemGetInfo(free_bytes, total);
}
static int memory_alloc(void** memory, size_t bytes) {
  return hy__cnrt.cnrtMalloc(memory, bytes);
}
static int memory_free(void* memory) {
  return hy__cnrt.cnrtFree(memory);
}
static int host_alloc(void** memory, size_t bytes) {
  return hy__cnrt.cnrtHostMalloc(memory, bytes);
}
static int host_free(void* memory) {
  return hy__cnrt.cnrtFreeHost(memory);
}

// cnrtMemTransDir_t has an order of its own.
static int direction(hy_copy_kind kind) {
  enum { TO_DEVICE = 0, ON_DEVICE = 1, TO_HOST = 2 };
  return kind == HY_COPY_HOST_TO_DEVICE   ? TO_DEVICE
         : kind == HY_COPY_DEVICE_TO_HOST ? TO_HOST
                                          : ON_DEVICE;
}
static int copy(void* dst, const void* src, size_t bytes, hy_copy_kind kind) {
  return hy__cnrt.cnrtMemcpy(dst, (void*)src, bytes, direction(kind));
}
static int copy_async(void* dst, const void* src, size_t bytes, hy_copy_kind kind, void* queue) {
  return hy__cnrt.cnrtMemcpyAsync_V2(dst, (void*)src, bytes, queue, direction(kind));
}
static int set_async(void* dst, int value, size_t bytes, void* queue) {
  return hy__cnrt.cnrtMemsetAsync(dst, value, bytes, queue);
}

static int queue_create(void** queue) {
  return hy__cnrt.cnrtQueueCreate(queue);
}
static int queue_destroy(void* queue) {
  return hy__cnrt.cnrtQueueDestroy(queue);
}
static int queue_sync(void* queue) {
  return hy__cnrt.cnrtQueueSync(queue);
}
static int ready(int error, bool* done) {
  *done = error != NOT_READY && error != BUSY;
  return *done ? error : 0;
}
static int queue_query(void* queue, bool* idle) {
  return ready(hy__cnrt.cnrtQueueQuery(queue), idle);
}
static int queue_wait(void* queue, void* notifier) {
  return hy__cnrt.cnrtQueueWaitNotifier(notifier, queue, 0);
}
static int event_create(void** notifier) {
  return hy__cnrt.cnrtNotifierCreate(notifier);
}
static int event_destroy(void* notifier) {
  return hy__cnrt.cnrtNotifierDestroy(notifier);
}
static int event_record(void* notifier, void* queue) {
  return hy__cnrt.cnrtPlaceNotifier(notifier, queue);
}
static int event_query(void* notifier, bool* done) {
  return ready(hy__cnrt.cnrtQueryNotifier(notifier), done);
}
static int event_sync(void* notifier) {
  return hy__cnrt.cnrtWaitNotifier(notifier);
}
static int event_elapsed(float* milliseconds, void* start, void* stop) {
  return hy__cnrt.cnrtNotifierElapsedTime(start, stop, milliseconds);
}
static int capture_begin(void* queue) {
  enum { RELAXED = 2 };  // cnrtQueueCaptureMode
  return hy__cnrt.cnrtQueueBeginCapture(queue, RELAXED);
}
// A captured topology can be destroyed once it has an entity.
static int capture_end(void* queue, void** graph, bool* ended) {
  void* topology = NULL;
  int error = hy__cnrt.cnrtQueueEndCapture(queue, &topology);
  *ended = error == 0;
  if (error) return error;
  error = hy__cnrt.cnrtTaskTopoInstantiate(graph, topology, NULL, NULL, 0);
  if (error) *graph = NULL;
  hy__cnrt.cnrtTaskTopoDestroy(topology);
  return error;
}
static int graph_launch(void* graph, void* queue) {
  return hy__cnrt.cnrtTaskTopoEntityInvoke(graph, queue);
}
static int graph_destroy(void* graph) {
  return hy__cnrt.cnrtTaskTopoEntityDestroy(graph);
}

const hy__vendor hy__cambricon_vendor = {
    .name = "cambricon",
    .no_memory = 100100,
    .fail = hy__cnrt_fail,
    .get_device = get_device,
    .set_device = set_device,
    .device_sync = device_sync,
    .memory_info = memory_info,
    .memory_alloc = memory_alloc,
    .memory_free = memory_free,
    .host_alloc = host_alloc,
    .host_free = host_free,
    .copy = copy,
    .copy_async = copy_async,
    .set_async = set_async,
    .queue_create = queue_create,
    .queue_destroy = queue_destroy,
    .queue_sync = queue_sync,
    .queue_query = queue_query,
    .queue_wait = queue_wait,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .event_record = event_record,
    .event_query = event_query,
    .event_sync = event_sync,
    .event_elapsed = event_elapsed,
    .capture_begin = capture_begin,
    .capture_end = capture_end,
    .graph_launch = graph_launch,
    .graph_destroy = graph_destroy,
    .ccl = &hy__cambricon_ccl,
};

// ---- Devices and streams ----

static bool has_bf16(int index) {
  int has = 0;
  return hy__cnrt.cnrtDeviceGetAttribute(&has, HAS_BF16, index) == 0 && has != 0;
}

static hy_status device_open(int index, void** device) {
  hy__cambricon_device* d = calloc(1, sizeof *d);
  if (!d) return hy__backend_host->fail(HY_OUT_OF_MEMORY, "cambricon: no host memory");
  d->base = (hy__vendor_device){&hy__cambricon_vendor, index};
  d->bf16 = has_bf16(index);
  int error = hy__cnrt.cnrtSetDevice(index);
  if (error) {
    free(d);
    return hy__cnrt_fail(error, "opening the device");
  }
  *device = d;
  return HY_OK;
}

// The device stays current: others in the process may be using it.
static void device_close(void* device) {
  free(device);
}

static void stream_destroy(void* device, void* stream) {
  hy__cambricon_stream* s = stream;
  int before = hy__vendor_enter(device);
  if (s->base.queue) hy__cnrt.cnrtQueueSync(s->base.queue);
  if (s->handle) hy__cnnl.Destroy(s->handle);
  hy__vendor_leave(device, before);
  hy__vendor_stream_release(&s->base);
  free(s);
}

static hy_status create_handle(hy__cambricon_stream* s) {
  int before, lost = hy__vendor_try_enter(s->base.device, &before);
  int error = lost ? 0 : hy__cnnl.Create(&s->handle);
  if (error) s->handle = NULL;
  if (!error && !lost) error = hy__cnnl.SetQueue(s->handle, s->base.queue);
  hy__vendor_leave(s->base.device, before);
  if (lost) return hy__cnrt_fail(lost, "a handle for a new stream");
  return error ? hy__cnnl_fail(error, "a handle for a new stream") : HY_OK;
}

static hy_status stream_create(void* device, void** stream) {
  hy__cambricon_stream* s = calloc(1, sizeof *s);
  if (!s) return hy__backend_host->fail(HY_OUT_OF_MEMORY, "cambricon: no host memory");
  hy_status status = hy__vendor_stream_init(device, &s->base);
  if (status == HY_OK) status = create_handle(s);
  if (status != HY_OK)
    stream_destroy(device, s);
  else
    *stream = s;
  return status;
}

// ---- The probe ----

static bool on_the_bus(void) {
  hy_hardware list[64];
  int n = hy_list_hardware(list, 64);
  for (int i = 0; i < n && i < 64; i++)
    if (list[i].vendor_id == 0xcabc) return true;
  return false;
}

// Loads the libraries, or says in one sentence what is there and what is not.
static hy_status bind(hy_probe* report) {
  bool here = on_the_bus();
  if (here) report->stage = HY_STAGE_FOUND;
  hy_status status = hy__cambricon_bind(report);
  if (status == HY_OK) return HY_OK;
  char reason[320];
  snprintf(reason, sizeof reason, "%.300s", hy__backend_host->last_error());
  snprintf(report->remedy, sizeof report->remedy,
           "%sinstall the Cambricon driver and Neuware, and set NEUWARE_HOME",
           here ? "" : "on a machine with a Cambricon MLU, ");
  report->reason[0] = 0;
  return hy__backend_host->fail(status, "%s Cambricon MLU is on the PCI bus, %s %s",
                                here ? "a" : "no", here ? "but" : "and", reason);
}

// MLU_VISIBLE_DEVICES is CNRT's own.
static hy_status probe(hy_probe* report, int* device_count) {
  int version[3];
  unsigned int count = 0;
  *device_count = n_devices = 0;
  HY_TRY(bind(report));
  snprintf(report->remedy, sizeof report->remedy, "look at cnmon");
  int error = hy__cnrt.cnrtGetLibVersion(&version[0], &version[1], &version[2]);
  if (error) return hy__cnrt_fail(error, "asking CNRT for its version");
  report->stage = HY_STAGE_VERSION;
  enum { OLDEST = 5 };  // before it, a process had to call cnrtInit
  if (version[0] < OLDEST)
    return hy__backend_host->fail(HY_UNAVAILABLE, "cambricon: CNRT %d.%d.%d is older than %d",
                                  version[0], version[1], version[2], OLDEST);
  error = hy__cnrt.cnrtGetDeviceCount(&count);
  if (error) return hy__cnrt_fail(error, "counting devices");
  n_devices = count > MAX_DEVICES ? MAX_DEVICES : (int)count;
  if (n_devices == 0)
    return hy__backend_host->fail(HY_UNAVAILABLE, "cambricon: CNRT shows no device");
  report->stage = HY_STAGE_DEVICES;
  HY_TRY(hy__smoke_test(&backend, 0, report));
  report->remedy[0] = 0;
  *device_count = n_devices;
  return HY_OK;
}

static hy_status device_info(int index, hy_device_info* info) {
  int version[3] = {0}, major = 0, minor = 0;
  size_t free_bytes = 0, total = 0;
  hy__vendor_device device = {&hy__cambricon_vendor, index};
  HY__VENDOR_CALL(&device, "the size of memory", memory_info(&free_bytes, &total));
  hy__cnrt.cnrtGetLibVersion(&version[0], &version[1], &version[2]);
  hy__cnrt.cnrtDeviceGetAttribute(&major, COMPUTE_MAJOR, index);
  hy__cnrt.cnrtDeviceGetAttribute(&minor, COMPUTE_MINOR, index);
  bool bf16 = has_bf16(index);
  snprintf(info->name, sizeof info->name, "Cambricon MLU (compute %d.%d)", major, minor);
  info->memory_free = free_bytes;
  info->memory_total = total;
  info->capabilities = HY_CAP_FP16 | HY_CAP_FP32 | (bf16 ? HY_CAP_BF16 : 0);
  info->dtypes = HY_DTYPE_BIT(HY_F32) | HY_DTYPE_BIT(HY_F16) | HY_DTYPE_BIT(HY_I8) |
                 HY_DTYPE_BIT(HY_U8) | HY_DTYPE_BIT(HY_I32) | HY_DTYPE_BIT(HY_I64) | HY_BOOLS |
                 (bf16 ? HY_DTYPE_BIT(HY_BF16) : 0);
  snprintf(info->sdk_version, sizeof info->sdk_version, "CNRT %d.%d.%d", version[0], version[1],
           version[2]);
  // CNNL's flash attention is not bound: docs/backends/cambricon.md.
  snprintf(info->properties, sizeof info->properties, HY__CCL_PROPERTY "attention=composed\n");
  return HY_OK;
}

static const hy_provider* const providers[] = {&hy__cambricon_provider};

static hy_backend backend = {
    .size = sizeof(hy_backend),
    .abi = HY_ABI_VERSION,
    .name = "cambricon",
    .version = HY_VERSION_STRING,
    .description = "Cambricon MLUs, through CNNL",
    .probe = probe,
    .device_info = device_info,
    .device_open = device_open,
    .device_close = device_close,
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
    HY__VENDOR_SLOTS,
    HY__CCL_SLOTS,
    .providers = providers,
    .n_providers = 1,
};

hy_status hy__backend_cambricon(uint32_t max_abi, const hy_host* services, const hy_backend** out);
hy_status hy__backend_cambricon(uint32_t max_abi, const hy_host* services, const hy_backend** out) {
  (void)max_abi;
  hy__backend_host = services;
  // The table is read once, now: what it holds depends on what is installed. Failures are the
  // probe's to tell. What a machine's first device has not is promised for none.
  hy_probe quiet = {.size = sizeof quiet};
  if (hy__cambricon_bind(&quiet) == HY_OK) hy__cambricon_declare(has_bf16(0));
  // Older releases cannot capture: the library then replays calls one by one.
  if (!hy__cnrt.cnrtQueueBeginCapture || !hy__cnrt.cnrtQueueEndCapture ||
      !hy__cnrt.cnrtTaskTopoInstantiate || !hy__cnrt.cnrtTaskTopoEntityInvoke ||
      !hy__cnrt.cnrtTaskTopoEntityDestroy || !hy__cnrt.cnrtTaskTopoDestroy) {
    backend.capture_begin = NULL;
    backend.capture_end = NULL;
    backend.graph_launch = NULL;
    backend.graph_destroy = NULL;
  }
  *out = &backend;
  return HY_OK;
}
