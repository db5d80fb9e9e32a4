// Runtime compilation: the backend's compiler behind handles of ours.
#include "halyard/compile.h"

#include <string.h>

#include "core/internal.h"

struct hy_kernel {
  hy_kernel* next;  // of the module
  hy_device* device;
  void* handle;  // the backend's
  char name[];
};

struct hy_module {
  hy_device* device;
  void* handle;           // the backend's
  pthread_mutex_t mutex;  // guards the kernels
  hy_kernel* kernels;
};

static hy_status unsupported(const hy_device* device, const char* caller) {
  return hy_fail(HY_UNSUPPORTED, "%s: %s has no compiler", caller, device->selector);
}

hy_status hy_compile(hy_device* device, const char* source, const char* flags, hy_module** module) {
  if (!device || !source || !module) {
    return hy_fail(HY_INVALID_ARGUMENT, "hy_compile: %s is NULL",
                   !device   ? "device"
                   : !source ? "source"
                             : "module");
  }
  *module = NULL;
  if (!device->backend->compile) return unsupported(device, "hy_compile");
  hy_module* m = hy__calloc(1, sizeof *m);
  if (!m) return hy_fail(HY_OUT_OF_MEMORY, "hy_compile: no host memory");
  hy_status status =
      device->backend->compile(device->handle, source, flags ? flags : "", &m->handle);
  if (status != HY_OK) {
    hy__mfree(m);
    return status;
  }
  m->device = device;
  pthread_mutex_init(&m->mutex, NULL);
  *module = m;
  return HY_OK;
}

hy_status hy_compile_flags(hy_device* device, char* text, size_t size) {
  if (!device || !text || size == 0) {
    return hy_fail(HY_INVALID_ARGUMENT, "hy_compile_flags: %s",
                   device ? "no room for the text" : "device is NULL");
  }
  text[0] = 0;
  if (!device->backend->compile_flags) return unsupported(device, "hy_compile_flags");
  return device->backend->compile_flags(device->handle, text, size);
}

// The caller holds the module's mutex.
static hy_status load_kernel(hy_module* m, const char* name, hy_kernel** kernel) {
  size_t length = strlen(name) + 1;
  hy_kernel* k = hy__calloc(1, sizeof *k + length);
  if (!k) return hy_fail(HY_OUT_OF_MEMORY, "hy_module_kernel: no host memory");
  hy_status status =
      m->device->backend->module_kernel(m->device->handle, m->handle, name, &k->handle);
  if (status != HY_OK) {
    hy__mfree(k);
    return status;
  }
  memcpy(k->name, name, length);
  k->device = m->device;
  k->next = m->kernels;
  m->kernels = k;
  *kernel = k;
  return HY_OK;
}

hy_status hy_module_kernel(hy_module* module, const char* name, hy_kernel** kernel) {
  if (!module || !name || !kernel) {
    return hy_fail(HY_INVALID_ARGUMENT, "hy_module_kernel: an argument is NULL");
  }
  *kernel = NULL;
  hy_status status = HY_OK;
  pthread_mutex_lock(&module->mutex);
  hy_kernel* k = module->kernels;
  while (k && strcmp(k->name, name) != 0) k = k->next;
  if (k) {
    *kernel = k;
  } else {
    status = load_kernel(module, name, kernel);
  }
  pthread_mutex_unlock(&module->mutex);
  return status;
}

void hy_module_destroy(hy_module* module) {
  if (!module) return;
  const hy_device* device = module->device;
  device->backend->device_sync(device->handle);
  for (hy_kernel *k = module->kernels, *next; k; k = next) {
    next = k->next;
    hy__mfree(k);
  }
  device->backend->module_destroy(device->handle, module->handle);
  pthread_mutex_destroy(&module->mutex);
  hy__mfree(module);
}

static hy_status check_launch(const hy_stream* stream, const hy_kernel* kernel,
                              const hy_launch* launch) {
  if (!hy__same_device(kernel->device, stream->device)) {
    return hy_fail(HY_INVALID_ARGUMENT,
                   "hy_kernel_launch: %s is a kernel of %s, the stream is of %s", kernel->name,
                   kernel->device->selector, stream->device->selector);
  }
  if (launch->size != sizeof *launch || launch->n_args < 0 || (launch->n_args && !launch->args)) {
    return hy_fail(HY_INVALID_ARGUMENT,
                   "hy_kernel_launch: %s: size must be sizeof(hy_launch), args must hold n_args",
                   kernel->name);
  }
  for (int d = 0; d < 3; d++) {
    if (launch->grid[d] == 0 || launch->block[d] == 0) {
      return hy_fail(HY_INVALID_ARGUMENT, "hy_kernel_launch: %s: an extent of grid or block is 0",
                     kernel->name);
    }
  }
  for (int i = 0; i < launch->n_args; i++) {
    const hy_kernel_arg* arg = &launch->args[i];
    if (!arg->value || arg->bytes == 0 || (arg->is_address && arg->bytes != sizeof(void*))) {
      return hy_fail(HY_INVALID_ARGUMENT,
                     "hy_kernel_launch: %s: argument %d has no value, or is an address of another "
                     "size than a pointer's",
                     kernel->name, i);
    }
  }
  return HY_OK;
}

hy_status hy_kernel_launch(hy_stream* stream, hy_kernel* kernel, const hy_launch* launch) {
  if (!stream || !kernel || !launch) {
    return hy_fail(HY_INVALID_ARGUMENT, "hy_kernel_launch: an argument is NULL");
  }
  HY_TRY(check_launch(stream, kernel, launch));
  HY_TRY(hy__stream_check(stream));
  const hy_device* device = stream->device;
  if (stream->capture) {
    return stream->capture->work(stream, &(hy_graph_node){.size = sizeof(hy_graph_node),
                                                          .kind = HY_NODE_LAUNCH,
                                                          .kernel = kernel->handle,
                                                          .launch = launch});
  }
  if (hy__fault(HY_FAULT_KERNEL)) {
    return hy_fail(HY_DEVICE_FAILED, "%s on %s failed by an injected fault", kernel->name,
                   device->selector);
  }
  int64_t begin = hy__trace_begin();
  hy_status status =
      device->backend->kernel_launch(device->handle, stream->handle, kernel->handle, launch);
  hy__trace_end(
      begin,
      &(hy__trace_event){
          .kind = HY__TRACE_OP, .name = kernel->name, .device = device, .provider = "compiled"});
  return status;
}
