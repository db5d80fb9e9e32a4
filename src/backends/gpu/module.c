// Modules and launches: kernels by name, loaded at their first use.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/gpu/compile.h"

struct hy__gpu_module {
  hy__gpu_module* next;
  void* handle;
  char file[32], options[256];  // of a file with machine code: no source, and the path
};

struct hy__gpu_function {
  uint64_t hash;
  void* handle;
  int shared;  // dynamic bytes allowed so far
  hy__gpu_module* module;
  char name[64];
};

static uint64_t hash_text(uint64_t hash, const char* text) {
  for (; *text; text++) hash = (hash ^ (unsigned char)*text) * 0x100000001b3u;
  return hash ^ hash >> 29;
}

// The caller holds the device's mutex, here and below.
static hy_status load_file(hy__gpu_device* device, hy__gpu_module* m) {
  void* image = hy__gpu_read_image(m->options);
  if (!image) return hy__backend_host->fail(HY_IO, "%s cannot be read", m->options);
  int error = device->api->driver.module_load(&m->handle, image);
  free(image);
  return error ? hy__gpu_fail(device, error, m->options) : HY_OK;
}

static hy_status load_image(hy__gpu_device* device, hy__gpu_module* m) {
  const hy__gpu_driver* driver = &device->api->driver;
  if (!m->file[0]) return load_file(device, m);
  void* image = hy__gpu_compiled_ahead(device, m->file, m->options);
  if (!image) HY_TRY(hy__gpu_compile(device, m->file, m->options, false, &image));
  int error = driver->module_load(&m->handle, image);
  free(image);
  if (!error) return HY_OK;
  // The file may be damaged, or a cubin of a toolkit that is newer than the driver.
  HY_TRY(hy__gpu_compile(device, m->file, m->options, true, &image));
  error = driver->module_load(&m->handle, image);
  free(image);
  char what[96];
  snprintf(what, sizeof what, "loading %.31s.cu", m->file);
  return error ? hy__gpu_fail(device, error, what) : HY_OK;
}

static hy__gpu_module* load(hy__gpu_device* device, const char* file, const char* options,
                            hy_status* status) {
  for (hy__gpu_module* m = device->modules; m; m = m->next)
    if (!strcmp(m->file, file) && !strcmp(m->options, options)) return m;
  hy__gpu_module* m = calloc(1, sizeof *m);
  if (!m) {
    *status = hy__backend_host->fail(HY_OUT_OF_MEMORY, "no host memory for a module");
    return NULL;
  }
  if ((size_t)snprintf(m->file, sizeof m->file, "%s", file) >= sizeof m->file ||
      (size_t)snprintf(m->options, sizeof m->options, "%s", options) >= sizeof m->options)
    *status =
        hy__backend_host->fail(HY_INTERNAL, "%s.cu: its options are too long: %s", file, options);
  else
    *status = load_image(device, m);
  if (*status != HY_OK) {
    free(m);
    return NULL;
  }
  m->next = device->modules;
  device->modules = m;
  return m;
}

static hy_status find(hy__gpu_device* device, const char* file, const char* entry,
                      const char* options, hy__gpu_function** function) {
  uint64_t hash = hash_text(hash_text(hash_text(0xcbf29ce484222325u, file), entry), options);
  unsigned at = (unsigned)(hash % HY__GPU_FUNCTIONS);
  for (int probe = 0; probe < HY__GPU_FUNCTIONS; probe++, at = (at + 1) % HY__GPU_FUNCTIONS) {
    hy__gpu_function* f = device->functions[at];
    if (!f) break;
    if (f->hash != hash || strcmp(f->name, entry) || strcmp(f->module->file, file) ||
        strcmp(f->module->options, options))
      continue;
    *function = f;
    return HY_OK;
  }
  hy_status status = HY_OK;
  hy__gpu_module* module = load(device, file, options, &status);
  if (!module) return status;
  hy__gpu_function* fresh = calloc(1, sizeof *fresh);
  if (!fresh || device->functions[at]) {
    free(fresh);
    return hy__backend_host->fail(HY_OUT_OF_MEMORY, "no room for kernel %s", entry);
  }
  fresh->hash = hash;
  fresh->module = module;
  snprintf(fresh->name, sizeof fresh->name, "%s", entry);
  int error = device->api->driver.module_function(&fresh->handle, module->handle, entry);
  if (error) {
    char what[128];
    snprintf(what, sizeof what, "kernel %.60s of %.31s.cu", entry, file);
    free(fresh);
    return hy__gpu_fail(device, error, what);
  }
  device->functions[at] = fresh;
  *function = fresh;
  return HY_OK;
}

hy__gpu_function* hy__gpu_kernel(hy__gpu_task* task, const char* file, const char* entry,
                                 const char* options) {
  hy__gpu_function* function = NULL;
  if (task->status != HY_OK) return NULL;
  pthread_mutex_lock(&task->device->mutex);
  task->status = find(task->device, file, entry, options, &function);
  pthread_mutex_unlock(&task->device->mutex);
  return task->status == HY_OK ? function : NULL;
}

hy__gpu_function* hy__gpu_kernel_of_file(hy__gpu_task* task, const char* path, const char* entry) {
  return hy__gpu_kernel(task, "", entry, path);
}

// CUlaunchConfig and CUlaunchAttribute.
typedef struct launch_attribute {
  int id;
  char padding[4];
  union {
    char pad[64];
    int flag;
  } value;
} launch_attribute;
typedef struct launch_configuration {
  unsigned grid[3], block[3], shared_bytes;
  void* stream;
  launch_attribute* attributes;
  unsigned n_attributes;
} launch_configuration;

// A kernel that may start while the one before it runs.
static int launch_behind(const hy__gpu_driver* driver, const launch_configuration* usual,
                         void* function, void** arguments) {
  enum { PROGRAMMATIC_STREAM_SERIALIZATION = 6 };
  launch_attribute attribute = {.id = PROGRAMMATIC_STREAM_SERIALIZATION, .value.flag = 1};
  launch_configuration now = *usual;
  now.attributes = &attribute;
  now.n_attributes = 1;
  return driver->launch_with(&now, function, arguments, NULL);
}

static void launch(hy__gpu_task* task, hy__gpu_function* function, hy__gpu_dim3 grid,
                   hy__gpu_dim3 block, size_t shared_bytes, void** arguments, bool dependent) {
  enum { MAX_DYNAMIC_SHARED = 8 };  // the attribute
  if (task->status != HY_OK || grid.x == 0) return;
  const hy__gpu_driver* driver = &task->device->api->driver;
  const launch_configuration c = {
      .grid = {grid.x, grid.y ? grid.y : 1, grid.z ? grid.z : 1},
      .block = {block.x, block.y ? block.y : 1, block.z ? block.z : 1},
      .shared_bytes = (unsigned)shared_bytes,
      .stream = task->stream->queue,
  };
  int error = 0;
  if ((int)shared_bytes > function->shared) {
    error = driver->function_set(function->handle, MAX_DYNAMIC_SHARED, (int)shared_bytes);
    if (!error) function->shared = (int)shared_bytes;
  }
  if (!error && dependent)
    error = launch_behind(driver, &c, function->handle, arguments);
  else if (!error)
    error = driver->launch(function->handle, c.grid[0], c.grid[1], c.grid[2], c.block[0],
                           c.block[1], c.block[2], c.shared_bytes, c.stream, arguments, NULL);
  task->launches++;
  task->independent |= !dependent;
  if (!error) return;
  char what[224];
  snprintf(what, sizeof what, "%.40s: kernel %.60s, grid %u x %u x %u of %u threads",
           task->op == HY_OP_NONE ? "probe" : hy__backend_host->op_name(task->op), function->name,
           c.grid[0], c.grid[1], c.grid[2], c.block[0]);
  task->status = hy__gpu_fail(task->device, error, what);
}

void hy__gpu_launch(hy__gpu_task* task, hy__gpu_function* function, hy__gpu_dim3 grid,
                    hy__gpu_dim3 block, size_t shared_bytes, void** arguments) {
  launch(task, function, grid, block, shared_bytes, arguments, false);
}

void hy__gpu_launch_dependent(hy__gpu_task* task, hy__gpu_function* function, hy__gpu_dim3 grid,
                              hy__gpu_dim3 block, size_t shared_bytes, void** arguments) {
  enum { HOPPER = 9 };
  bool can = task->device->compute_major >= HOPPER && task->device->api->driver.launch_with;
  launch(task, function, grid, block, shared_bytes, arguments, can);
}

void hy__gpu_set(hy__gpu_task* task, uint64_t address, int value, size_t bytes) {
  if (task->status != HY_OK || bytes == 0) return;
  int error = task->device->api->driver.set_bytes(address, (unsigned char)value, bytes,
                                                  task->stream->queue);
  if (error) task->status = hy__gpu_fail(task->device, error, hy__backend_host->op_name(task->op));
}

void hy__gpu_refuse(hy__gpu_task* task, hy_status status, const char* message) {
  if (task->status != HY_OK) return;
  task->status =
      hy__backend_host->fail(status, "%s: %s", hy__backend_host->op_name(task->op), message);
}

unsigned hy__gpu_blocks(const hy__gpu_task* task, int64_t n, int threads, int each) {
  int64_t wanted = (n + (int64_t)threads * each - 1) / ((int64_t)threads * each);
  int64_t most = (int64_t)task->device->multiprocessors * (2048 / threads) * 8;
  return (unsigned)(wanted < most ? wanted : most);
}
