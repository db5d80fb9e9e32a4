// Open devices: one object per device of a backend, made when first chosen, closed by hy_shutdown.
#include <stdio.h>
#include <string.h>

#include "core/registry.h"

static struct {
  pthread_mutex_t mutex;  // guards the list
  hy_device* newest;
} opened = {.mutex = PTHREAD_MUTEX_INITIALIZER};

// Raised by hy_shutdown, so that no thread goes on using a device of before.
static atomic_uint generation = 1;
// In one cache line, so that switching writes to one.
static _Thread_local _Alignas(16) struct {
  hy_device* device;
  unsigned generation;
} current;

static void order_providers(hy__backend_entry* entry, hy_device* d) {
  int n = 0;
  for (int i = 0; i < entry->table.n_providers; i++) {
    if (entry->providers[i].table.flags & HY_PROVIDER_BY_NAME) continue;
    hy__entry_probe_provider(entry, i);
    if (entry->providers[i].probe.status == HY_OK) d->providers[n++] = &entry->providers[i].table;
  }
}

static void note_opened(hy_device* d) {
  pthread_mutex_init(&d->mutex, NULL);
  pthread_mutex_lock(&opened.mutex);
  d->older = opened.newest;
  opened.newest = d;
  pthread_mutex_unlock(&opened.mutex);
}

static hy_status open_locked(hy__backend_entry* entry, int index, hy_device** out) {
  hy_device* d = hy__calloc(1, sizeof *d);
  if (!d) return hy_fail(HY_OUT_OF_MEMORY, "no memory to open %s:%d", entry->name, index);
  d->root = d;
  d->backend = &entry->table;
  d->index = index;
  d->is_host = entry->table.flags & HY_BACKEND_HOST_MEMORY;
  snprintf(d->selector, sizeof d->selector, "%s:%d", entry->name, index);
  hy_fail(HY_OK, "it gave no reason");
  hy_status status = d->backend->device_open(index, &d->handle);
  if (status != HY_OK) {
    status = hy_fail(status, "%s could not be opened: %s", d->selector, hy_last_error());
    goto fail_open;
  }
  order_providers(entry, d);
  status = hy__allocator_create(d, &d->allocator);
  if (status != HY_OK) goto fail_allocator;
  note_opened(d);
  hy__log(2, "opened %s", d->selector);
  *out = d;
  return HY_OK;

fail_allocator:
  d->backend->device_close(d->handle);
fail_open:
  hy__mfree(d);
  return status;
}

// The root's device with one provider asked first.
static hy_status open_variant_locked(hy__backend_entry* entry, hy_device* root, int provider,
                                     hy_device** out) {
  const hy_provider* first = &entry->providers[provider].table;
  hy_device* d = hy__calloc(1, sizeof *d);
  if (!d) return hy_fail(HY_OUT_OF_MEMORY, "no memory to open %s", first->name);
  d->backend = root->backend;
  d->index = root->index;
  d->handle = root->handle;
  memcpy(d->selector, root->selector, sizeof d->selector);
  d->is_host = root->is_host;
  d->allocator = root->allocator;
  d->root = root;
  d->provider = first->name;
  int n = 0;
  d->providers[n++] = first;
  for (int i = 0; root->providers[i]; i++)
    if (root->providers[i] != first) d->providers[n++] = root->providers[i];
  note_opened(d);
  *out = d;
  return HY_OK;
}

hy_status hy__device_open(hy__backend_entry* entry, int index, int provider, hy_device** device) {
  hy_status status = HY_OK;
  pthread_mutex_lock(&entry->mutex);
  hy_device** place = &entry->devices[index];
  if (!*place) status = open_locked(entry, index, place);
  if (status == HY_OK && provider >= 0) {
    hy_device* root = *place;
    place = &root->variants[provider];
    if (!*place) status = open_variant_locked(entry, root, provider, place);
  }
  *device = *place;
  pthread_mutex_unlock(&entry->mutex);
  return status;
}

void hy__devices_close(void) {
  atomic_fetch_add(&generation, 1);
  for (hy_device* d = opened.newest; d; d = d->older) hy__comms_abort(d);
  while (opened.newest) {
    hy_device* d = opened.newest;
    opened.newest = d->older;
    hy__streams_close(d);
    hy__comms_close(d);
    if (d == d->root) {  // the last of its kind: variants are younger
      hy__allocator_destroy(d->allocator);
      d->backend->device_close(d->handle);
    }
    pthread_mutex_destroy(&d->mutex);
    hy__mfree(d);
  }
}

// ---- The calling thread's device ----

hy_status hy_set_current_device(hy_device* device) {
  current.device = device;
  current.generation = atomic_load(&generation);
  return HY_OK;
}

hy_status hy_current_device(hy_device** device) {
  if (!device) return hy_fail(HY_INVALID_ARGUMENT, "hy_current_device: device is NULL");
  if (current.device &&
      current.generation == atomic_load_explicit(&generation, memory_order_relaxed)) {
    *device = current.device;
    return HY_OK;
  }
  return hy_device_get(NULL, device);
}

// ---- What a device is ----

const char* hy_device_backend(const hy_device* device) {
  return device ? device->backend->name : "";
}

int hy_device_index(const hy_device* device) {
  return device ? device->index : -1;
}

const char* hy_device_selector(const hy_device* device) {
  return device ? device->selector : "";
}

const char* hy_device_provider(const hy_device* device) {
  return device ? device->provider : NULL;
}

bool hy_device_is_host(const hy_device* device) {
  return device && device->is_host;
}

hy_status hy_device_describe(hy_device* device, hy_device_info* info) {
  if (!device || !info) return hy_fail(HY_INVALID_ARGUMENT, "hy_device_describe: NULL argument");
  return hy__backend_device_info(device->backend, device->index, info);
}

bool hy_device_supports_dtype(hy_device* device, hy_dtype dtype) {
  hy_device_info info;
  if (dtype <= HY_NONE || dtype >= HY_DTYPE_COUNT) return false;
  return hy_device_describe(device, &info) == HY_OK && (info.dtypes & HY_DTYPE_BIT(dtype));
}

hy_status hy_device_peak(hy_device* device, hy_peak kind, hy_dtype dtype, void* dst,
                         const void* src, size_t bytes, double* per_second) {
  if (!device || !per_second)
    return hy_fail(HY_INVALID_ARGUMENT, "hy_device_peak: %s is NULL",
                   device ? "per_second" : "device");
  *per_second = 0;
  if (!device->backend->peak)
    return hy_fail(HY_UNSUPPORTED, "hy_device_peak: %s measures no peaks", device->selector);
  if (kind != HY_PEAK_MULTIPLY_ADD && (!src || (kind == HY_PEAK_COPY && !dst)))
    return hy_fail(HY_INVALID_ARGUMENT, "hy_device_peak: no memory to read or copy was given");
  return device->backend->peak(device->handle, kind, dtype, dst, src, bytes, per_second);
}

hy_status hy_device_sync(hy_device* device) {
  if (!device) return hy_fail(HY_INVALID_ARGUMENT, "hy_device_sync: device is NULL");
  return device->backend->device_sync(device->handle);
}

static hy_status check_threads(const hy_device* device, const char* what) {
  if (!device) return hy_fail(HY_INVALID_ARGUMENT, "%s: device is NULL", what);
  if (!device->backend->set_threads)
    return hy_fail(HY_UNSUPPORTED, "%s: kernels of %s do not run on threads of the host", what,
                   device->selector);
  return HY_OK;
}

hy_status hy_device_set_threads(hy_device* device, int n) {
  HY_TRY(check_threads(device, "hy_device_set_threads"));
  return device->backend->set_threads(device->handle, n);
}

hy_status hy_device_threads(hy_device* device, int* n) {
  HY_TRY(check_threads(device, "hy_device_threads"));
  if (!n) return hy_fail(HY_INVALID_ARGUMENT, "hy_device_threads: n is NULL");
  int32_t threads = 0;
  HY_TRY(device->backend->threads(device->handle, &threads));
  *n = threads;
  return HY_OK;
}

// ---- All devices ----

// Whether a backend before number `end` offers the hardware at this PCI address. Parts of one board
// share an address within their backend, so that only other backends count.
static bool offered_before(int end, const char* pci) {
  for (int b = 0; b < end; b++) {
    hy__backend_entry* entry = hy__entry_at(b);
    if (!hy__entry_available(entry)) continue;
    hy_device_info info;
    for (int i = 0; i < entry->device_count; i++)
      if (hy__entry_device_info(entry, i, &info) == HY_OK && !strcmp(info.pci, pci)) return true;
  }
  return false;
}

int hy_discover_devices(hy_found_device* list, int capacity) {
  if (hy_init() != HY_OK) return 0;
  int n = 0;
  hy__backend_entry* entry;
  for (int b = 0; (entry = hy__entry_at(b)); b++) {
    if (!hy__entry_available(entry)) continue;
    for (int i = 0; i < entry->device_count; i++) {
      hy_found_device found = {0};
      if (hy__entry_device_info(entry, i, &found.info) != HY_OK) {
        hy__log(1, "%s:%d does not answer: %s", entry->name, i, hy_last_error());
        continue;
      }
      if (found.info.pci[0] && offered_before(b, found.info.pci)) continue;
      snprintf(found.selector, sizeof found.selector, "%s:%d", entry->name, i);
      if (list && n < capacity) list[n] = found;
      n++;
    }
  }
  return n;
}
