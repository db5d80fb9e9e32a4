// The table of the guarded backend.
#include "guarded.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "comm.h"

const hy_host* guarded_host;
enum { MAX_DEVICES = 8 };
static int n_devices;
static size_t memory_size;

// Open devices by index, for pointer_device.
static pthread_mutex_t open_mutex = PTHREAD_MUTEX_INITIALIZER;
static guarded_device* open_devices[MAX_DEVICES];

// ---- devices ----

static hy_status device_open(int index, void** device) {
  guarded_device* fresh = calloc(1, sizeof *fresh);
  if (!fresh) return guarded_host->fail(HY_OUT_OF_MEMORY, "guarded: no host memory");
  hy_status status = guarded_memory_open(&fresh->memory, memory_size);
  if (status != HY_OK) {
    free(fresh);
    return status;
  }
  pthread_mutex_init(&fresh->mutex, NULL);
  pthread_mutex_lock(&open_mutex);
  open_devices[index] = fresh;
  pthread_mutex_unlock(&open_mutex);
  *device = fresh;
  return HY_OK;
}

static void device_close(void* device) {
  guarded_device* d = device;
  pthread_mutex_lock(&open_mutex);
  for (int i = 0; i < MAX_DEVICES; i++) {
    if (open_devices[i] == d) open_devices[i] = NULL;
  }
  pthread_mutex_unlock(&open_mutex);
  guarded_memory_close(&d->memory);
  pthread_mutex_destroy(&d->mutex);
  free(d);
}

// How often the host has waited for a device: what a test of asynchrony counts. Copies never wait.
static atomic_llong waits;
__attribute__((visibility("default"))) long long guarded_waits(void) {
  return atomic_load(&waits);
}

static hy_status device_sync(void* device) {
  atomic_fetch_add(&waits, 1);
  guarded_device_wait(device);
  return HY_OK;
}

static hy_status device_info(int index, hy_device_info* info) {
  snprintf(info->name, sizeof info->name, "Guarded test device %d", index);
  info->memory_total = info->memory_free = memory_size;
  info->core_count = 1;
  info->capabilities = guarded_capabilities();
  info->dtypes = guarded_dtypes();
  snprintf(info->driver_version, sizeof info->driver_version, "1");
  snprintf(info->sdk_version, sizeof info->sdk_version, "1");
  return HY_OK;
}

// ---- memory and copies ----

static hy_status memory_alloc(void* device, size_t bytes, void** address) {
  return guarded_memory_alloc(&((guarded_device*)device)->memory, bytes, address);
}

static void memory_free(void* device, void* address) {
  guarded_memory_free(&((guarded_device*)device)->memory, address);
}

static hy_status memory_info(void* device, uint64_t* free_bytes, uint64_t* total_bytes) {
  guarded_memory* memory = &((guarded_device*)device)->memory;
  pthread_mutex_lock(&memory->mutex);
  *free_bytes = memory->size - memory->used;
  pthread_mutex_unlock(&memory->mutex);
  *total_bytes = memory->size;
  return HY_OK;
}

static hy_status copy(void* device, void* stream, void* dst, const void* src, size_t bytes,
                      hy_copy_kind kind) {
  guarded_memory* memory = &((guarded_device*)device)->memory;
  guarded_graph* graph = guarded_queue_capturing(stream);
  if (graph && kind == HY_COPY_DEVICE_TO_DEVICE) {
    return guarded_graph_add(
        graph, &(hy_graph_node){.kind = HY_NODE_COPY, .dst = dst, .src = src, .bytes = bytes});
  }
  char* to = dst;
  char* from = (char*)src;
  if (kind == HY_COPY_HOST_TO_DEVICE || kind == HY_COPY_DEVICE_TO_DEVICE) {
    HY_TRY(guarded_memory_reach(memory, dst, bytes, &to));
  }
  if (kind == HY_COPY_DEVICE_TO_HOST || kind == HY_COPY_DEVICE_TO_DEVICE) {
    HY_TRY(guarded_memory_reach(memory, src, bytes, &from));
  }
  return guarded_push_copy(stream, to, from, bytes);
}

static hy_status set(void* device, void* stream, void* dst, int value, size_t bytes) {
  guarded_graph* graph = guarded_queue_capturing(stream);
  if (graph) {
    return guarded_graph_add(
        graph, &(hy_graph_node){.kind = HY_NODE_SET, .dst = dst, .value = value, .bytes = bytes});
  }
  char* to;
  HY_TRY(guarded_memory_reach(&((guarded_device*)device)->memory, dst, bytes, &to));
  return guarded_push_set(stream, to, value, bytes);
}

static hy_status peer_access(void* device, void* peer, int32_t* possible) {
  *possible = device != peer;
  return HY_OK;
}

static hy_status copy_peer(void* device, void* stream, void* dst, void* peer, const void* src,
                           uint64_t bytes) {
  char *to, *from;
  HY_TRY(guarded_memory_reach(&((guarded_device*)device)->memory, dst, bytes, &to));
  HY_TRY(guarded_memory_reach(&((guarded_device*)peer)->memory, src, bytes, &from));
  return guarded_push_copy(stream, to, from, bytes);
}

static hy_status pointer_device(const void* address, int32_t* index) {
  *index = -1;
  pthread_mutex_lock(&open_mutex);
  for (int i = 0; i < MAX_DEVICES; i++) {
    const guarded_memory* memory = open_devices[i] ? &open_devices[i]->memory : NULL;
    if (memory && (uintptr_t)address - (uintptr_t)memory->window < memory->size) *index = i;
  }
  pthread_mutex_unlock(&open_mutex);
  return HY_OK;
}

static hy_status memory_export(void* device, void* address, hy_memory_blob* blob) {
  return guarded_memory_export(&((guarded_device*)device)->memory, address, blob);
}

static hy_status memory_import(void* device, const hy_memory_blob* blob, void** address) {
  return guarded_memory_import(&((guarded_device*)device)->memory, blob, address);
}

static hy_status memory_close(void* device, void* address) {
  return guarded_memory_unmap(&((guarded_device*)device)->memory, address);
}

// ---- streams and events ----

static hy_status stream_create(void* device, void** stream) {
  return guarded_queue_create(device, 0, (guarded_queue**)stream);
}

static hy_status stream_priority_range(void* device, int32_t* least, int32_t* greatest) {
  (void)device;
  *least = 0;
  *greatest = -1;
  return HY_OK;
}

static hy_status stream_create_with_priority(void* device, int32_t priority, void** stream) {
  if (priority > 0 || priority < -1) {
    return guarded_host->fail(HY_INVALID_ARGUMENT, "guarded: priorities are -1 and 0, not %d",
                              priority);
  }
  return guarded_queue_create(device, priority, (guarded_queue**)stream);
}

// The native handle of a stream is its queue.
static hy_status stream_native(void* device, void* stream, void** native) {
  (void)device;
  *native = stream;
  return HY_OK;
}

static hy_status stream_wrap(void* device, void* native, void** stream) {
  return guarded_queue_wrap(device, native, (guarded_queue**)stream);
}

static void stream_destroy(void* device, void* stream) {
  guarded_queue_destroy(device, stream);
}

static hy_status stream_sync(void* device, void* stream) {
  (void)device;
  atomic_fetch_add(&waits, 1);
  return guarded_queue_sync(stream);
}

static hy_status stream_query(void* device, void* stream) {
  (void)device;
  return guarded_queue_query(stream);
}

static void stream_error(void* device, void* stream, hy_async_error* error) {
  (void)device;
  guarded_queue_error(stream, error);
}

static hy_status event_create(void* device, void** event) {
  (void)device;
  return guarded_event_create((guarded_event**)event);
}

static void event_destroy(void* device, void* event) {
  (void)device;
  guarded_event_release(event);
}

static hy_status event_record(void* device, void* event, void* stream) {
  (void)device;
  return guarded_push_record(stream, event);
}

static hy_status event_query(void* device, void* event) {
  (void)device;
  return guarded_event_query(event);
}

static hy_status event_sync(void* device, void* event) {
  (void)device;
  atomic_fetch_add(&waits, 1);
  return guarded_event_sync(event);
}

static hy_status event_elapsed(void* device, void* start, void* stop, double* milliseconds) {
  (void)device;
  return guarded_event_elapsed(start, stop, milliseconds);
}

static hy_status stream_wait_event(void* device, void* stream, void* event) {
  (void)device;
  return guarded_push_wait(stream, event);
}

// ---- probe ----

// Negates a number on the device: memory, both copies, a stream and a kernel at work.
static hy_status smoke(void* device, void* stream) {
  const float sent = 42;
  float received = 0;
  hy_tensor x = {.dtype = HY_F32}, y = {.dtype = HY_F32};
  const hy_call call = {.op = HY_OP_neg, .n_in = 1, .n_out = 1, .in = &x, .out = &y};
  HY_TRY(memory_alloc(device, sizeof sent, &x.data));
  hy_status status = memory_alloc(device, sizeof sent, &y.data);
  if (status != HY_OK) goto free_x;
  status = copy(device, stream, x.data, &sent, sizeof sent, HY_COPY_HOST_TO_DEVICE);
  if (status == HY_OK) status = guarded_provider.run(device, stream, &call);
  if (status == HY_OK) {
    status = copy(device, stream, &received, y.data, sizeof received, HY_COPY_DEVICE_TO_HOST);
  }
  hy_status done = stream_sync(device, stream);
  if (status == HY_OK) status = done;
  if (status == HY_OK && received != -sent) {
    status = guarded_host->fail(HY_DEVICE_FAILED, "guarded: neg of %g gave %g", sent, received);
  }
  memory_free(device, y.data);
free_x:
  memory_free(device, x.data);
  return status;
}

static hy_status probe(hy_probe* report, int* device_count) {
  void *device = NULL, *stream = NULL;
  report->stage = HY_STAGE_DEVICES;
  hy_status status = device_open(0, &device);
  if (status != HY_OK) goto done;
  status = stream_create(device, &stream);
  if (status != HY_OK) goto close;
  status = smoke(device, stream);
  stream_destroy(device, stream);
close:
  device_close(device);
done:
  report->status = status;
  if (status == HY_OK) {
    report->stage = HY_STAGE_READY;
    *device_count = n_devices;
  } else {
    snprintf(report->reason, sizeof report->reason, "%s", guarded_host->last_error());
  }
  return status;
}

static const hy_provider* const providers[] = {&guarded_provider};

static const hy_backend whole = {
    .size = sizeof(hy_backend),
    .abi = HY_ABI_VERSION,
    .flags = HY_BACKEND_SIMULATED,
    .name = "guarded",
    .version = "1.0",
    .description = "test device: memory that faults, streams that are threads",
    .probe = probe,
    .device_info = device_info,
    .device_open = device_open,
    .device_close = device_close,
    .device_sync = device_sync,
    .memory_alloc = memory_alloc,
    .memory_free = memory_free,
    .memory_info = memory_info,
    .copy = copy,
    .set = set,
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
    .stream_sync = stream_sync,
    .stream_query = stream_query,
    .stream_error = stream_error,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .event_record = event_record,
    .event_query = event_query,
    .event_sync = event_sync,
    .event_elapsed = event_elapsed,
    .stream_wait_event = stream_wait_event,
    .providers = providers,
    .n_providers = 1,
    .capture_begin = guarded_capture_begin,
    .capture_end = guarded_capture_end,
    .graph_launch = guarded_graph_launch,
    .graph_update = guarded_graph_update,
    .graph_destroy = guarded_graph_destroy,
    .comm_unique_id = guarded_comm_unique_id,
    .comm_init_rank = guarded_comm_init_rank,
    .comm_destroy = guarded_comm_destroy,
    .comm_abort = guarded_comm_abort,
    .comm_async_error = guarded_comm_async_error,
    .all_reduce = guarded_all_reduce,
    .all_gather = guarded_all_gather,
    .reduce_scatter = guarded_reduce_scatter,
    .broadcast = guarded_broadcast,
    .send = guarded_send,
    .recv = guarded_recv,
    .barrier = guarded_barrier,
    .group_begin = guarded_group_begin,
    .group_end = guarded_group_end,
    .peer_access = peer_access,
    .copy_peer = copy_peer,
    .stream_native = stream_native,
    .stream_wrap = stream_wrap,
    .stream_priority_range = stream_priority_range,
    .stream_create_with_priority = stream_create_with_priority,
    .pointer_device = pointer_device,
    .memory_export = memory_export,
    .memory_import = memory_import,
    .memory_close = memory_close,
    .compile = guarded_compile,
    .compile_flags = guarded_compile_flags,
    .module_kernel = guarded_module_kernel,
    .kernel_launch = guarded_kernel_launch,
    .module_destroy = guarded_module_destroy,
    .peak = guarded_peak,
};

static hy_backend backend;  // `whole` as the environment wants it

static hy_status number_option(const char* name, long least, long most, long fallback,
                               long* value) {
  const char* text = getenv(name);
  *value = fallback;
  if (!text) return HY_OK;
  char* end;
  *value = strtol(text, &end, 10);
  if (end != text && !*end && *value >= least && *value <= most) return HY_OK;
  return guarded_host->fail(HY_INVALID_ARGUMENT, "%s: \"%s\" is not a number from %ld to %ld", name,
                            text, least, most);
}

__attribute__((visibility("default"))) hy_status halyard_backend_query(uint32_t max_abi,
                                                                       const hy_host* host,
                                                                       const hy_backend** out) {
  guarded_host = host;
  if (max_abi < HY_ABI_VERSION) {
    return host->fail(HY_ABI_MISMATCH, "guarded speaks ABI %u, the library %u", HY_ABI_VERSION,
                      max_abi);
  }
  long devices, mib;
  HY_TRY(number_option("HALYARD_GUARDED_DEVICES", 1, MAX_DEVICES, 1, &devices));
  HY_TRY(number_option("HALYARD_GUARDED_MEMORY", 1, 65536, 4096, &mib));
  n_devices = (int)devices;
  memory_size = (size_t)mib << 20;
  HY_TRY(guarded_comm_options());
  HY_TRY(guarded_kernels_init());
  backend = whole;
  HY_TRY(guarded_optional_init(&backend));
  *out = &backend;
  return HY_OK;
}
