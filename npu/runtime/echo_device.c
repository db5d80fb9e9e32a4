// echo_device.c - devices: opening, memory, pointers.
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "echo_runtime.h"

#define MAX_DEVICES 64
#define VERSION "1.0.0"
// Without progress of the bus a packet is given up after so many cycles; no memory takes as long.
#define WATCHDOG (1u << 20)

static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static echo_device* table[MAX_DEVICES];             // open devices of all backends, in no order
static _Atomic(const echo_driver*) default_driver;  // NULL: the environment's
// The thread's device; without a driver, that of the default backend.
static _Thread_local const echo_driver* current_driver;
static _Thread_local int current;

// ---- Board ------------------------------------------------------------------------------------

// ECHO_NPU_MEMORY, e.g. 512M or 16G: the size of the board's memory.
static uint64_t wanted_memory(void) {
  const char* text = getenv("ECHO_NPU_MEMORY");
  uint64_t fallback = (uint64_t)8 << 30;
  if (!text) return fallback;
  char* end;
  uint64_t n = strtoull(text, &end, 10);
  int shift = *end == 'G' ? 30 : *end == 'M' ? 20 : *end == 'K' ? 10 : 0;
  if (n == 0 || n > (uint64_t)ECHO_NPU_HIGH_MAX >> shift) return fallback;
  n = (n << shift) & ~(uint64_t)4095;
  return n < (1u << 20) ? 1u << 20 : n;
}

static uint32_t number(const char* name, uint32_t fallback) {
  const char* text = getenv(name);
  if (!text || !*text) return fallback;
  char* end;
  unsigned long n = strtoul(text, &end, 10);
  return *end || n > UINT32_MAX ? fallback : (uint32_t)n;
}

static echo_board wanted_board(void) {
  uint64_t total = wanted_memory(), low = ECHO_NPU_WEIGHT_MAX + ECHO_NPU_ACT_MAX;
  uint64_t half = total < low ? total / 2 & ~(uint64_t)4095 : ECHO_NPU_WEIGHT_MAX;
  uint64_t high = total > low ? total - low : 0;
  return (echo_board){
      {ECHO_NPU_WEIGHT_BASE, ECHO_NPU_ACT_BASE, ECHO_NPU_HIGH_BASE},
      {ECHO_NPU_WEIGHT_BASE + half, ECHO_NPU_ACT_BASE + half, ECHO_NPU_HIGH_BASE + high},
      1000,
      -1};
}

static void close_device(echo_device* d) {
  if (d->thread) echo__queue_stop(d);
  if (d->window) munmap(d->window, d->window_bytes);
  echo_allocator_destroy(d->allocator);
  if (d->handle) d->driver->close(d->handle);
  pthread_cond_destroy(&d->progress);
  pthread_cond_destroy(&d->work);
  pthread_mutex_destroy(&d->lock);
  free(d);
}

static echoNpuError open_device(const echo_driver* driver, int index, echo_device** out) {
  echo_device* d = calloc(1, sizeof *d);
  if (!d)
    return echo__fail(ECHO_NPU_ERROR_OUT_OF_HOST_MEMORY, "no host memory for device %d", index);
  pthread_mutex_init(&d->lock, NULL);
  pthread_cond_init(&d->work, NULL);
  pthread_cond_init(&d->progress, NULL);
  d->index = index;
  d->driver = driver;
  d->board = wanted_board();
  d->timeout_ms = number("ECHO_NPU_TIMEOUT_MS", driver->timeout_ms);
  d->watchdog = number("ECHO_NPU_WATCHDOG", WATCHDOG);
  char reason[256] = "";
  echoNpuError error;
  if (driver->open(index, &d->board, &d->handle, reason, sizeof reason) != 0) {
    d->handle = NULL;
    error = echo__fail(ECHO_NPU_ERROR_UNAVAILABLE, "device %d: %s", index, reason);
    goto failed;
  }
  uint32_t id = driver->read_register(d->handle, ECHO_NPU_REG_ID);
  if (id != ECHO_NPU_ID) {
    error = echo__fail(ECHO_NPU_ERROR_UNAVAILABLE,
                       "device %d identifies itself as 0x%08x, not 0x%08x", index, id, ECHO_NPU_ID);
    goto failed;
  }
  d->allocator = echo_allocator_create(d->board.base, d->board.limit);
  d->window_bytes = ECHO_NPU_REG_BASE;
  for (int i = 0; i < ECHO_NPU_AREAS; ++i)
    if (d->board.limit[i] > d->window_bytes) d->window_bytes = d->board.limit[i];
  void* window =
      mmap(NULL, d->window_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  d->window = window == MAP_FAILED ? NULL : window;
  if (!d->allocator || !d->window) {
    error = echo__fail(ECHO_NPU_ERROR_OUT_OF_HOST_MEMORY, "no host memory for device %d", index);
    goto failed;
  }
  d->ring = echo_allocator_alloc(d->allocator, ECHO_NPU_AREA_ACT,
                                 (uint64_t)ECHO_RING_PACKETS * ECHO_NPU_PACKET_BYTES);
  if (!d->ring) {
    error = echo__fail(ECHO_NPU_ERROR_OUT_OF_MEMORY, "device %d has no room for its ring", index);
    goto failed;
  }
  error = echo__queue_start(d);
  if (error) goto failed;
  echo__debug(3, ECHO_NPU_DEBUG_NPU, "device %d opened on %s, %llu MiB", index, driver->name,
              (unsigned long long)(echo_allocator_total_bytes(d->allocator) >> 20));
  *out = d;
  return ECHO_NPU_SUCCESS;
failed:
  close_device(d);
  return error;
}

static const echo_driver* backend(char* reason, size_t size) {
  const echo_driver* driver = atomic_load(&default_driver);
  return driver ? driver : echo_driver_select(reason, size);
}

static echoNpuError default_backend(const echo_driver** driver) {
  char reason[256] = "";
  echo__debug_init();
  *driver = backend(reason, sizeof reason);
  return *driver ? ECHO_NPU_SUCCESS : echo__fail(ECHO_NPU_ERROR_UNAVAILABLE, "%s", reason);
}

static echoNpuError count_devices(const echo_driver* driver, int* count) {
  char reason[256] = "";
  *count = driver->count(reason, sizeof reason);
  if (*count > MAX_DEVICES) *count = MAX_DEVICES;
  if (*count <= 0)
    return echo__fail(ECHO_NPU_ERROR_UNAVAILABLE, "%s has no device: %s", driver->name, reason);
  return ECHO_NPU_SUCCESS;
}

// The place of this device in the table, or a free one; NULL: neither. Called with the lock held.
static echo_device** place_of(const echo_driver* driver, int index) {
  echo_device** place = NULL;
  for (int i = MAX_DEVICES - 1; i >= 0; --i) {
    if (!table[i])
      place = &table[i];
    else if (table[i]->driver == driver && table[i]->index == index)
      return &table[i];
  }
  return place;
}

static echoNpuError device_of(const echo_driver* driver, int index, echo_device** device) {
  pthread_mutex_lock(&table_lock);
  echo_device** place = place_of(driver, index);
  *device = place ? *place : NULL;
  pthread_mutex_unlock(&table_lock);
  if (*device) return ECHO_NPU_SUCCESS;
  int count;
  echoNpuError error = count_devices(driver, &count);
  if (error) return error;
  if (index < 0 || index >= count)
    return echo__fail(ECHO_NPU_ERROR_INVALID_DEVICE, "device %d: %s has %d", index, driver->name,
                      count);
  pthread_mutex_lock(&table_lock);
  place = place_of(driver, index);
  if (!place)
    error = echo__fail(ECHO_NPU_ERROR_UNAVAILABLE, "%d devices are open", MAX_DEVICES);
  else if (!*place)
    error = open_device(driver, index, place);
  *device = place ? *place : NULL;
  pthread_mutex_unlock(&table_lock);
  return error;
}

echoNpuError echo__device(int index, echo_device** device) {
  const echo_driver* driver;
  echoNpuError error = default_backend(&driver);
  return error ? error : device_of(driver, index, device);
}

echoNpuError echo__current_device(echo_device** device) {
  const echo_driver* driver = current_driver;
  echoNpuError error = driver ? ECHO_NPU_SUCCESS : default_backend(&driver);
  if (!error) error = device_of(driver, current, device);
  if (!error) current_driver = driver;
  return error;
}

void echo__wake_all(void) {
  pthread_mutex_lock(&table_lock);
  for (int i = 0; i < MAX_DEVICES; ++i) {
    if (!table[i]) continue;
    pthread_mutex_lock(&table[i]->lock);
    pthread_cond_broadcast(&table[i]->work);
    pthread_mutex_unlock(&table[i]->lock);
  }
  pthread_mutex_unlock(&table_lock);
}

__attribute__((destructor)) static void close_all(void) {
  for (int i = 0; i < MAX_DEVICES; ++i) {
    pthread_mutex_lock(&table_lock);
    echo_device* d = table[i];
    table[i] = NULL;
    pthread_mutex_unlock(&table_lock);
    if (d) close_device(d);
  }
}

// ---- Pointers ---------------------------------------------------------------------------------

static int find(const void* ptr, echo_device** device, uint64_t* address) {
  int found = 0;
  pthread_mutex_lock(&table_lock);
  for (int i = 0; i < MAX_DEVICES && !found; ++i) {
    echo_device* d = table[i];
    if (!d || (uintptr_t)ptr < (uintptr_t)d->window) continue;
    uintptr_t offset = (uintptr_t)ptr - (uintptr_t)d->window;
    if (offset >= d->window_bytes) continue;
    *device = d;
    *address = offset;
    found = 1;
  }
  pthread_mutex_unlock(&table_lock);
  return found;
}

echoNpuError echo__resolve(const void* ptr, uint64_t bytes, echo_device** device,
                           uint64_t* address) {
  if (!find(ptr, device, address))
    return echo__fail(ECHO_NPU_ERROR_INVALID_POINTER, "%p is not device memory", ptr);
  uint64_t rest = echo_allocator_rest((*device)->allocator, *address);
  if (bytes > rest)
    return echo__fail(ECHO_NPU_ERROR_INVALID_POINTER,
                      "%p (device address 0x%llx): %llu bytes wanted, %llu allocated from there",
                      ptr, (unsigned long long)*address, (unsigned long long)bytes,
                      (unsigned long long)rest);
  return ECHO_NPU_SUCCESS;
}

echoNpuError echoNpuGetAddress(const void* ptr, int* device, uint64_t* address) {
  echo_device* d;
  uint64_t at;
  echoNpuError error = echo__resolve(ptr, 1, &d, &at);
  if (error) return error;
  if (device) *device = d->index;
  if (address) *address = at;
  return ECHO_NPU_SUCCESS;
}

// ---- Memory -----------------------------------------------------------------------------------

echoNpuError echo__reserve(echo_device* d, uint64_t bytes, int area, uint64_t* address) {
  static const int order[] = {ECHO_NPU_AREA_ACT, ECHO_NPU_AREA_HIGH, ECHO_NPU_AREA_WEIGHT};
  *address = 0;
  if (area >= 0)
    *address = echo_allocator_alloc(d->allocator, area, bytes);
  else
    for (int i = 0; i < ECHO_NPU_AREAS && !*address; ++i)
      *address = echo_allocator_alloc(d->allocator, order[i], bytes);
  if (!*address)
    return echo__fail(
        ECHO_NPU_ERROR_OUT_OF_MEMORY, "device %d: no room for %llu bytes, %llu are free", d->index,
        (unsigned long long)bytes, (unsigned long long)echo_allocator_free_bytes(d->allocator));
  uint64_t granted = echo_allocator_size(d->allocator, *address);
  if (d->driver->track && d->driver->track(d->handle, *address, granted, 1) != 0) {
    echo_allocator_free(d->allocator, *address);
    return echo__fail(ECHO_NPU_ERROR_OUT_OF_HOST_MEMORY, "no host memory to track an allocation");
  }
  return ECHO_NPU_SUCCESS;
}

void echo__release(echo_device* d, uint64_t address) {
  // The model forgets the block before anyone else can be given it.
  uint64_t bytes = echo_allocator_size(d->allocator, address);
  if (d->driver->track && bytes) d->driver->track(d->handle, address, bytes, 0);
  echo_allocator_free(d->allocator, address);
}

static echoNpuError malloc_in(void** ptr, size_t size, int area) {
  echo_device* d;
  uint64_t address;
  if (!ptr)
    return echo__fail(ECHO_NPU_ERROR_INVALID_VALUE, "echoNpuMalloc: no place for the pointer");
  *ptr = NULL;
  if (size == 0) return ECHO_NPU_SUCCESS;
  echoNpuError error = echo__current_device(&d);
  if (!error) error = echo__reserve(d, size, area, &address);
  if (error) return error;
  *ptr = d->window + address;
  echo__debug(3, ECHO_NPU_DEBUG_NPU, "malloc %zu -> 0x%llx", size, (unsigned long long)address);
  return ECHO_NPU_SUCCESS;
}

echoNpuError echoNpuMalloc(void** ptr, size_t size) {
  return malloc_in(ptr, size, -1);
}

echoNpuError echoNpuMallocArea(void** ptr, size_t size, int area) {
  if (area < 0 || area >= ECHO_NPU_AREAS)
    return echo__fail(ECHO_NPU_ERROR_INVALID_VALUE, "there is no memory area %d", area);
  return malloc_in(ptr, size, area);
}

echoNpuError echoNpuFree(void* ptr) {
  echo_device* d;
  uint64_t address;
  if (!ptr) return ECHO_NPU_SUCCESS;
  if (!find(ptr, &d, &address))
    return echo__fail(ECHO_NPU_ERROR_INVALID_POINTER, "free: %p is not device memory", ptr);
  if (address == d->ring || !echo_allocator_size(d->allocator, address))
    return echo__fail(ECHO_NPU_ERROR_INVALID_POINTER,
                      "free: no live allocation starts at %p (freed twice, or not from malloc)",
                      ptr);
  // A fault that this wait surfaces belongs to the streams; it stays with them.
  echo__device_wait(d);
  echo__debug(3, ECHO_NPU_DEBUG_NPU, "free 0x%llx", (unsigned long long)address);
  echo__release(d, address);
  return ECHO_NPU_SUCCESS;
}

echoNpuError echoNpuMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  echo_device* d;
  echoNpuError error = echo__current_device(&d);
  if (error) return error;
  if (free_bytes) *free_bytes = echo_allocator_free_bytes(d->allocator);
  if (total_bytes) *total_bytes = echo_allocator_total_bytes(d->allocator);
  return ECHO_NPU_SUCCESS;
}

// ---- Devices and backend ----------------------------------------------------------------------

echoNpuError echoNpuGetDeviceCount(int* count) {
  const echo_driver* driver;
  if (!count) return echo__fail(ECHO_NPU_ERROR_INVALID_VALUE, "no place for the count");
  *count = 0;
  echoNpuError error = default_backend(&driver);
  return error ? error : count_devices(driver, count);
}

echoNpuError echoNpuSetDevice(int device) {
  const echo_driver* driver;
  int count;
  echoNpuError error = default_backend(&driver);
  if (!error) error = count_devices(driver, &count);
  if (error) return error;
  if (device < 0 || device >= count)
    return echo__fail(ECHO_NPU_ERROR_INVALID_DEVICE, "device %d: %s has %d", device, driver->name,
                      count);
  current_driver = driver;
  current = device;
  return ECHO_NPU_SUCCESS;
}

echoNpuError echoNpuGetDevice(int* device) {
  if (!device) return echo__fail(ECHO_NPU_ERROR_INVALID_VALUE, "no place for the device");
  *device = current;
  return ECHO_NPU_SUCCESS;
}

static void read_config(echo_device* d, void* argument) {
  uint32_t* words = argument;
  words[0] = d->driver->read_register(d->handle, ECHO_NPU_REG_CONFIG);
  words[1] = d->driver->read_register(d->handle, ECHO_NPU_REG_VERSION);
  words[2] = d->driver->read_register(d->handle, ECHO_NPU_REG_STATUS);
}

echoNpuError echoNpuGetDeviceProperties(int device, echoNpuDeviceProperties* out) {
  echo_device* d;
  uint32_t words[3] = {0, 0, 0};
  if (!out) return echo__fail(ECHO_NPU_ERROR_INVALID_VALUE, "no place for the properties");
  echoNpuError error = echo__device(device, &d);
  if (!error) error = echo__call(d, read_config, words);
  if (error) return error;
  memset(out, 0, sizeof *out);
  snprintf(out->name, sizeof out->name, "ECHO NPU (%s)", d->driver->name);
  out->memory_total = echo_allocator_total_bytes(d->allocator);
  out->memory_free = echo_allocator_free_bytes(d->allocator);
  out->array_size = words[0] >> ECHO_NPU_CONFIG_N_SHIFT & 0xff;
  out->vector_lanes = words[0] >> ECHO_NPU_CONFIG_LANES_SHIFT & 0xff;
  out->bus_bytes = 1u << (words[0] >> ECHO_NPU_CONFIG_BUS_SHIFT & 0xf);
  out->hw_version = words[1];
  out->clock_mhz = d->board.clock_mhz;
  out->status = words[2] & 3;
  return ECHO_NPU_SUCCESS;
}

echoNpuError echoNpuDeviceReset(void) {
  const echo_driver* driver = current_driver;
  echoNpuError error = driver ? ECHO_NPU_SUCCESS : default_backend(&driver);
  if (error) return error;
  pthread_mutex_lock(&table_lock);
  echo_device** place = place_of(driver, current);
  echo_device* d = place ? *place : NULL;
  if (d) *place = NULL;
  pthread_mutex_unlock(&table_lock);
  if (d) close_device(d);
  current_driver = NULL;
  return ECHO_NPU_SUCCESS;
}

void echo__read_counters(echo_device* d, uint64_t* counters) {
  for (uint32_t i = 0; i < ECHO_NPU_COUNTERS; ++i) {
    uint64_t low = d->driver->read_register(d->handle, ECHO_NPU_REG_COUNTER + 8 * i);
    counters[i] =
        low | (uint64_t)d->driver->read_register(d->handle, ECHO_NPU_REG_COUNTER + 8 * i + 4) << 32;
  }
}

static void read_counters(echo_device* d, void* argument) {
  echo__read_counters(d, argument);
}

static void clear_counters(echo_device* d, void* argument) {
  (void)argument;
  d->driver->write_register(d->handle, ECHO_NPU_REG_CONTROL,
                            ECHO_NPU_CONTROL_ENABLE | ECHO_NPU_CONTROL_CLEAR_COUNTERS);
}

echoNpuError echoNpuReadCounters(uint64_t counters[ECHO_NPU_COUNTERS]) {
  echo_device* d;
  echoNpuError error = echo__current_device(&d);
  return error ? error : echo__call(d, read_counters, counters);
}

echoNpuError echoNpuClearCounters(void) {
  echo_device* d;
  echoNpuError error = echo__current_device(&d);
  return error ? error : echo__call(d, clear_counters, NULL);
}

const char* echoNpuGetBackendName(void) {
  char reason[256];
  const echo_driver* driver = backend(reason, sizeof reason);
  return driver ? driver->name : "none";
}

echoNpuError echoNpuListBackends(const char* names[ECHO_NPU_BACKENDS], int* count) {
  const echo_driver* usable[ECHO_NPU_BACKENDS];
  if (!names || !count) return echo__fail(ECHO_NPU_ERROR_INVALID_VALUE, "no place for the names");
  *count = echo_driver_list(usable);
  for (int i = 0; i < *count; ++i) names[i] = usable[i]->name;
  return ECHO_NPU_SUCCESS;
}

echoNpuError echoNpuSetDefaultBackend(const char* name) {
  char reason[256] = "";
  int count;
  const echo_driver* driver = name ? echo_driver_named(name, reason, sizeof reason) : NULL;
  if (name && !driver) return echo__fail(ECHO_NPU_ERROR_UNAVAILABLE, "%s", reason);
  echoNpuError error = driver ? count_devices(driver, &count) : ECHO_NPU_SUCCESS;
  if (error) return error;
  atomic_store(&default_driver, driver);
  current_driver = NULL;
  current = 0;
  return ECHO_NPU_SUCCESS;
}

echoNpuError echoNpuGetBackendInfo(echoNpuBackendInfo* info) {
  char reason[256] = "";
  if (!info) return echo__fail(ECHO_NPU_ERROR_INVALID_VALUE, "no place for the information");
  memset(info, 0, sizeof *info);
  const echo_driver* driver = backend(reason, sizeof reason);
  snprintf(info->name, sizeof info->name, "%s", driver ? driver->name : "none");
  snprintf(info->version, sizeof info->version, "%s", VERSION);
  if (driver) snprintf(info->features, sizeof info->features, "%s", driver->features);
  echo_driver_list_missing(driver, info->missing, sizeof info->missing);
  return driver ? ECHO_NPU_SUCCESS : echo__fail(ECHO_NPU_ERROR_UNAVAILABLE, "%s", reason);
}
