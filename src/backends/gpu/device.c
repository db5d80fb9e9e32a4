// GPU devices: what they are, their primary contexts, memory and copies, and what came of the
// driver's calls.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/gpu/gpu.h"

// ---- Errors ----

// The driver's codes that matter here; CUDA's and HIP's agree in them.
enum {
  ERROR_OUT_OF_MEMORY = 2,
  ERROR_ECC = 214,
  ERROR_NVLINK = 220,
  ERROR_NOT_READY = 600,
  ERROR_ILLEGAL_ADDRESS = 700,
  ERROR_LAUNCH_TIMEOUT = 702,
  ERROR_ASSERT = 710,
  ERROR_HARDWARE_STACK = 714,
  ERROR_ILLEGAL_INSTRUCTION = 715,
  ERROR_MISALIGNED_ADDRESS = 716,
  ERROR_ADDRESS_SPACE = 717,
  ERROR_INVALID_PC = 718,
  ERROR_LAUNCH_FAILED = 719,
};

// After these the context answers every call with the same error.
static bool is_sticky(int error) {
  switch (error) {
    case ERROR_ECC:
    case ERROR_NVLINK:
    case ERROR_ILLEGAL_ADDRESS:
    case ERROR_LAUNCH_TIMEOUT:
    case ERROR_ASSERT:
    case ERROR_HARDWARE_STACK:
    case ERROR_ILLEGAL_INSTRUCTION:
    case ERROR_MISALIGNED_ADDRESS:
    case ERROR_ADDRESS_SPACE:
    case ERROR_INVALID_PC:
    case ERROR_LAUNCH_FAILED: return true;
    default: return false;
  }
}

static void describe(const hy__gpu_api* api, int error, char* text, size_t size) {
  const char *name = NULL, *meaning = NULL;
  api->driver.error_name(error, &name);
  api->driver.error_text(error, &meaning);
  snprintf(text, size, "%s (%d): %s", name ? name : "an unknown error", error,
           meaning ? meaning : "no text");
}

hy_status hy__gpu_fail(hy__gpu_device* device, int error, const char* what) {
  char text[160];
  if (error == ERROR_NOT_READY) return HY_NOT_READY;
  describe(device->api, error, text, sizeof text);
  if (is_sticky(error) && !device->lost) {
    snprintf(device->lost_by, sizeof device->lost_by, "%.60s: %.90s", what, text);
    device->lost = true;
  }
  if (device->lost)
    return hy__backend_host->fail(
        HY_DEVICE_FAILED,
        "%s:%d is lost to this process, for its context no longer works (%s); "
        "start the process again, or go on with another device",
        device->api->name, device->index, device->lost_by);
  return hy__backend_host->fail(error == ERROR_OUT_OF_MEMORY ? HY_OUT_OF_MEMORY : HY_DEVICE_FAILED,
                                "%s:%d: %s: %s", device->api->name, device->index, what, text);
}

bool hy__gpu_enter(const hy__gpu_device* device) {
  void* current = NULL;
  device->api->driver.context_current(&current);
  return current != device->context && device->api->driver.context_push(device->context) == 0;
}

void hy__gpu_leave(const hy__gpu_device* device, bool entered) {
  void* context;
  if (entered) device->api->driver.context_pop(&context);
}

#define GPU_CALL(device, what, call)                               \
  do {                                                             \
    bool entered_ = hy__gpu_enter(device);                         \
    int error_ = (device)->lost ? -1 : (device)->api->driver.call; \
    hy__gpu_leave(device, entered_);                               \
    if (error_) return hy__gpu_fail(device, error_, what);         \
  } while (0)

// ---- Probe ----

static hy_status probe_fail(hy__gpu_api* api, hy_probe* report, int error, const char* what,
                            const char* remedy) {
  char text[160];
  describe(api, error, text, sizeof text);
  snprintf(report->remedy, sizeof report->remedy, "%s", remedy);
  return hy__backend_host->fail(HY_UNAVAILABLE, "%s: %s", what, text);
}

// Adds on the first device: context, compiler, module, launch, both copies.
static hy_status smoke(hy__gpu_api* api) {
  enum { COUNT = 257 };
  void *handle = NULL, *stream = NULL, *memory = NULL;
  float values[COUNT], *host = values;
  HY_TRY(hy__gpu_device_open(api, 0, &handle));
  hy_status status = hy__gpu_stream_create(handle, &stream);
  if (status == HY_OK) status = hy__gpu_memory_alloc(handle, sizeof values, &memory);
  for (int i = 0; i < COUNT; i++) values[i] = (float)i;
  if (status == HY_OK)
    status =
        hy__gpu_copy_bytes(handle, stream, memory, host, sizeof values, HY_COPY_HOST_TO_DEVICE);
  if (status == HY_OK) {
    hy__gpu_device* device = handle;
    bool entered = hy__gpu_enter(device);
    hy__gpu_task task = {.device = device, .stream = stream};
    long long n = COUNT;
    hy__gpu_launch(&task, hy__gpu_kernel(&task, "probe", "probe_double", ""), hy__gpu_1d(3),
                   hy__gpu_1d(128), 0, HY__GPU_ARGS(&memory, &n));
    hy__gpu_leave(device, entered);
    status = task.status;
  }
  if (status == HY_OK)
    status =
        hy__gpu_copy_bytes(handle, stream, host, memory, sizeof values, HY_COPY_DEVICE_TO_HOST);
  if (status == HY_OK) status = hy__gpu_stream_sync(handle, stream);
  for (int i = 0; i < COUNT && status == HY_OK; i++)
    if (values[i] != (float)(2 * i))
      status =
          hy__backend_host->fail(HY_DEVICE_FAILED, "the first kernel made %g of %d instead of %d",
                                 (double)values[i], i, 2 * i);
  if (memory) hy__gpu_memory_free(handle, memory);
  if (stream) hy__gpu_stream_destroy(handle, stream);
  // Stays open: the next one to open it finds the context and the module there.
  return status;
}

// The driver itself heeds the variables that hide devices.
hy_status hy__gpu_probe(hy__gpu_api* api, hy_probe* report, int* device_count) {
  const hy__gpu_driver* driver = &api->driver;
  *device_count = 0;
  char remedy[96];
  snprintf(remedy, sizeof remedy, "see that the kernel module runs and fits the library: %s tells",
           api->driver_tool);
  int error = driver->init(0);
  if (error) return probe_fail(api, report, error, "the driver does not start", remedy);
  error = driver->driver_version(&api->driver_number);
  if (error) return probe_fail(api, report, error, "the driver's version", "");
  if (api->driver_number < api->least_driver) {
    snprintf(report->remedy, sizeof report->remedy, "install a newer driver");
    return hy__backend_host->fail(HY_UNAVAILABLE, "the driver speaks %d.%d, and %d.%d is needed",
                                  api->driver_number / 1000, api->driver_number % 1000 / 10,
                                  api->least_driver / 1000, api->least_driver % 1000 / 10);
  }
  HY_TRY(api->bind_compiler(api, report));
  report->stage = HY_STAGE_VERSION;
  error = driver->device_count(&api->n_devices);
  if (error) return probe_fail(api, report, error, "counting devices", "");
  if (api->n_devices == 0) {
    snprintf(report->remedy, sizeof report->remedy, "see what %s hides", api->visible_variable);
    return hy__backend_host->fail(HY_UNAVAILABLE, "the driver runs and shows no device");
  }
  if (api->n_devices > HY__GPU_MAX_DEVICES) api->n_devices = HY__GPU_MAX_DEVICES;
  report->stage = HY_STAGE_DEVICES;
  HY_TRY(smoke(api));
  report->stage = HY_STAGE_READY;
  *device_count = api->n_devices;
  return HY_OK;
}

// ---- Devices ----

enum {
  ATTRIBUTE_MAX_THREADS = 1,
  ATTRIBUTE_WARP = 10,
  ATTRIBUTE_MULTIPROCESSORS = 16,
  ATTRIBUTE_PCI_BUS = 33,
  ATTRIBUTE_PCI_DEVICE = 34,
  ATTRIBUTE_MEMORY_CLOCK = 36,
  ATTRIBUTE_BUS_WIDTH = 37,
  ATTRIBUTE_L2 = 38,
  ATTRIBUTE_PCI_DOMAIN = 50,
  ATTRIBUTE_MAJOR = 75,
  ATTRIBUTE_MINOR = 76,
  ATTRIBUTE_MAX_SHARED = 97,
};

static int attribute(const hy__gpu_api* api, int ordinal, int which) {
  int value = 0;
  return api->driver.device_attribute(&value, which, ordinal) ? 0 : value;
}

hy_status hy__gpu_device_info(hy__gpu_api* api, int index, hy_device_info* info) {
  const hy__gpu_driver* driver = &api->driver;
  if (index < 0 || index >= api->n_devices)
    return hy__backend_host->fail(HY_NOT_FOUND, "%s:%d: there are %d devices", api->name, index,
                                  api->n_devices);
  int ordinal = index, active = 0;
  unsigned flags = 0;
  size_t total = 0, free_now = 0;
  driver->device_name(info->name, sizeof info->name, ordinal);
  driver->device_memory(&total, ordinal);
  free_now = total;
  // Only where someone has a context already: making one takes memory and a quarter of a second.
  void* context = NULL;
  if (driver->context_state(ordinal, &flags, &active) == 0 && active &&
      driver->context_retain(&context, ordinal) == 0) {
    size_t seen = 0;
    driver->context_push(context);
    driver->memory_info(&free_now, &seen);
    driver->context_pop(&context);
    driver->context_release(ordinal);
  }
  info->memory_total = total;
  info->memory_free = free_now;
  info->compute_major = attribute(api, ordinal, ATTRIBUTE_MAJOR);
  info->compute_minor = attribute(api, ordinal, ATTRIBUTE_MINOR);
  info->max_shared_memory = (uint64_t)attribute(api, ordinal, ATTRIBUTE_MAX_SHARED);
  info->core_count = attribute(api, ordinal, ATTRIBUTE_MULTIPROCESSORS);
  info->capabilities = api->capabilities;
  info->dtypes = HY_ALL_DTYPES | HY_FLOAT8S | HY_DTYPE_BIT(HY_I4);
  snprintf(info->driver_version, sizeof info->driver_version, "%d.%d", api->driver_number / 1000,
           api->driver_number % 1000 / 10);
  snprintf(info->sdk_version, sizeof info->sdk_version, "%s %d.%d", api->compiler_name,
           api->compiler_number / 1000, api->compiler_number % 1000 / 10);
  snprintf(info->pci, sizeof info->pci, "%04x:%02x:%02x.0",
           (unsigned)attribute(api, ordinal, ATTRIBUTE_PCI_DOMAIN) & 0xffff,
           (unsigned)attribute(api, ordinal, ATTRIBUTE_PCI_BUS) & 0xff,
           (unsigned)attribute(api, ordinal, ATTRIBUTE_PCI_DEVICE) & 0xff);
  char arch[64];
  api->arch_option(api, index, arch, sizeof arch);
  const char* target = strrchr(arch, '=');
  snprintf(info->properties, sizeof info->properties,
           "compiler=%.200s\ntarget=%s\nl2_bytes=%d\nmemory_bus_bits=%d\nwarp=%d\n",
           api->compiler_path, target ? target + 1 : arch, attribute(api, ordinal, ATTRIBUTE_L2),
           attribute(api, ordinal, ATTRIBUTE_BUS_WIDTH), attribute(api, ordinal, ATTRIBUTE_WARP));
  return HY_OK;
}

// A device that has been opened once keeps its object, its context and its modules until the
// process ends: others in the process may hold the context too, and compiled kernels are dear.
static pthread_mutex_t open_mutex = PTHREAD_MUTEX_INITIALIZER;

static hy_status create(hy__gpu_api* api, int index, hy__gpu_device** device) {
  enum { WARP = 32 };  // HY_WARP of the kernels
  hy__gpu_device* fresh = calloc(1, sizeof *fresh);
  if (!fresh) return hy__backend_host->fail(HY_OUT_OF_MEMORY, "%s: no host memory", api->name);
  int ordinal = index;
  fresh->api = api;
  fresh->index = index;
  fresh->compute_major = attribute(api, ordinal, ATTRIBUTE_MAJOR);
  fresh->compute_minor = attribute(api, ordinal, ATTRIBUTE_MINOR);
  fresh->multiprocessors = attribute(api, ordinal, ATTRIBUTE_MULTIPROCESSORS);
  fresh->warp_size = WARP;
  fresh->mma_lanes = api->mma_lanes ? api->mma_lanes(api, ordinal) : WARP;
  fresh->max_threads = attribute(api, ordinal, ATTRIBUTE_MAX_THREADS);
  fresh->max_shared = attribute(api, ordinal, ATTRIBUTE_MAX_SHARED);
  fresh->l2_bytes = attribute(api, ordinal, ATTRIBUTE_L2);
  int error = api->driver.context_retain(&fresh->context, ordinal);
  if (error) {
    hy_status status = hy__gpu_fail(fresh, error, "opening the device");
    free(fresh);
    return status;
  }
  pthread_mutex_init(&fresh->mutex, NULL);
  *device = fresh;
  return HY_OK;
}

hy_status hy__gpu_device_open(hy__gpu_api* api, int index, void** device) {
  hy_status status = HY_OK;
  pthread_mutex_lock(&open_mutex);
  if (!api->opened[index]) status = create(api, index, &api->opened[index]);
  *device = api->opened[index];
  pthread_mutex_unlock(&open_mutex);
  return status;
}

void hy__gpu_device_close(void* device) {
  (void)device;
}

// By stream where one of them is capturing, which the context cannot be waited for then.
hy_status hy__gpu_device_sync(void* device) {
  hy__gpu_device* d = device;
  bool capturing = false;
  int error = 0;
  pthread_mutex_lock(&d->mutex);
  for (hy__gpu_stream* s = d->streams; s; s = s->next) capturing |= s->capturing;
  bool entered = hy__gpu_enter(d);
  for (hy__gpu_stream* s = d->streams; capturing && s && !error; s = s->next)
    if (!s->capturing) error = d->api->driver.stream_sync(s->queue);
  hy__gpu_leave(d, entered);
  pthread_mutex_unlock(&d->mutex);
  if (error) return hy__gpu_fail(d, error, "waiting for the device");
  if (!capturing) GPU_CALL(d, "waiting for the device", context_sync());
  return HY_OK;
}

// ---- Memory ----

hy_status hy__gpu_memory_alloc(void* device, size_t bytes, void** address) {
  hy__gpu_device* d = device;
  uint64_t memory = 0;
  char what[64];
  snprintf(what, sizeof what, "%zu bytes of memory", bytes);
  GPU_CALL(d, what, memory_alloc(&memory, bytes ? bytes : 1));
  *address = (void*)(uintptr_t)memory;
  return HY_OK;
}

void hy__gpu_memory_free(void* device, void* address) {
  hy__gpu_device* d = device;
  if (d->lost) return;
  bool entered = hy__gpu_enter(d);
  int error = d->api->driver.memory_free((uintptr_t)address);
  hy__gpu_leave(d, entered);
  if (error && hy__gpu_fail(d, error, "freeing memory"))
    hy__backend_host->log(1, "%s", hy__backend_host->last_error());
}

hy_status hy__gpu_memory_info(void* device, uint64_t* free_bytes, uint64_t* total_bytes) {
  hy__gpu_device* d = device;
  size_t free_now = 0, total = 0;
  GPU_CALL(d, "the size of memory", memory_info(&free_now, &total));
  *free_bytes = free_now;
  *total_bytes = total;
  return HY_OK;
}

hy_status hy__gpu_pointer_device(hy__gpu_api* api, const void* address, int32_t* index) {
  enum { MEMORY_TYPE = 2, DEVICE_MEMORY = 2, DEVICE_ORDINAL = 9 };
  unsigned type = 0;
  int ordinal = -1;
  uint64_t at = (uintptr_t)address;
  *index = -1;
  if (!api->driver.pointer_attribute || api->driver.pointer_attribute(&type, MEMORY_TYPE, at) ||
      type != DEVICE_MEMORY || api->driver.pointer_attribute(&ordinal, DEVICE_ORDINAL, at))
    return HY_OK;  // memory that the driver does not know
  *index = ordinal;
  return HY_OK;
}

// Page-locked, for every context of the process, and mapped into the device's addresses.
hy_status hy__gpu_host_alloc(void* device, size_t bytes, void** address) {
  enum { PORTABLE = 1, MAPPED = 2 };
  hy__gpu_device* d = device;
  GPU_CALL(d, "page-locked memory", host_alloc(address, bytes ? bytes : 1, PORTABLE | MAPPED));
  return HY_OK;
}

void hy__gpu_host_free(void* device, void* address) {
  hy__gpu_device* d = device;
  bool entered = hy__gpu_enter(d);
  int error = d->api->driver.host_free(address);
  hy__gpu_leave(d, entered);
  if (error && hy__gpu_fail(d, error, "freeing page-locked memory"))
    hy__backend_host->log(1, "%s", hy__backend_host->last_error());
}

hy_status hy__gpu_copy_bytes(void* device, void* stream, void* dst, const void* src, size_t bytes,
                             hy_copy_kind kind) {
  hy__gpu_device* d = device;
  hy__gpu_stream* s = stream;
  uint64_t to = (uintptr_t)dst, from = (uintptr_t)src;
  switch (kind) {
    case HY_COPY_HOST_TO_DEVICE:
      GPU_CALL(d, "a copy to the device", copy_to_device(to, src, bytes, s->queue));
      return HY_OK;
    case HY_COPY_DEVICE_TO_HOST:
      GPU_CALL(d, "a copy to the host", copy_to_host(dst, from, bytes, s->queue));
      return HY_OK;
    case HY_COPY_DEVICE_TO_DEVICE:
      GPU_CALL(d, "a copy on the device", copy_on_device(to, from, bytes, s->queue));
      return HY_OK;
    default:
      HY_TRY(hy__gpu_stream_sync(device, stream));
      memmove(dst, src, bytes);
      return HY_OK;
  }
}

hy_status hy__gpu_set_bytes(void* device, void* stream, void* dst, int value, size_t bytes) {
  hy__gpu_device* d = device;
  hy__gpu_stream* s = stream;
  GPU_CALL(d, "a memset", set_bytes((uintptr_t)dst, (unsigned char)value, bytes, s->queue));
  return HY_OK;
}
