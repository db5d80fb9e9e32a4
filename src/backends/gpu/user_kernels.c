// Runtime compilation of a user's kernels: the slots compile, module_kernel and kernel_launch.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/gpu/gpu.h"

enum { MAX_FLAGS = 64 };

static hy_status no_memory(const hy__gpu_device* d) {
  return hy__backend_host->fail(HY_OUT_OF_MEMORY, "%s: no host memory", d->api->name);
}

hy_status hy__gpu_compile_flags(void* device, char* text, size_t size) {
  hy__gpu_device* d = device;
  char arch[64];
  d->api->arch_option(d->api, d->index, arch, sizeof arch);
  snprintf(text, size, "%s %s --std=c++17", d->api->name, arch);
  return HY_OK;
}

static hy_status refuse(hy__gpu_device* d, void* program, int error) {
  const hy__gpu_compiler* compiler = &d->api->compiler;
  size_t size = 0;
  char* words = NULL;
  if (compiler->log_size(program, &size) == 0 && size > 0) words = calloc(1, size + 1);
  bool said = words && compiler->log(program, words) == 0;
  hy_status status =
      hy__backend_host->fail(HY_INVALID_ARGUMENT, "%s: error %d: %.1500s", d->api->compiler_name,
                             error, said ? words : "without a word");
  free(words);
  return status;
}

// Machine code for the device; to be freed.
static hy_status compile(hy__gpu_device* d, const char* source, char* flags, char** image) {
  const hy__gpu_compiler* compiler = &d->api->compiler;
  char arch[64], *rest = NULL;
  const char* list[MAX_FLAGS + 2] = {arch, "--std=c++17"};
  int count = 2;
  d->api->arch_option(d->api, d->index, arch, sizeof arch);
  for (char* word = strtok_r(flags, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
    if (count == MAX_FLAGS + 2)
      return hy__backend_host->fail(HY_INVALID_ARGUMENT, "there are more than %d flags", MAX_FLAGS);
    list[count++] = word;
  }
  void* program = NULL;
  size_t size = 0;
  int error = compiler->create(&program, source, "kernel.cu", 0, NULL, NULL);
  if (error)
    return hy__backend_host->fail(HY_INTERNAL, "%s does not start: error %d", d->api->compiler_name,
                                  error);
  error = compiler->compile(program, count, list);
  hy_status status = error ? refuse(d, program, error) : HY_OK;
  if (status == HY_OK) {
    error = compiler->code_size(program, &size);
    *image = error ? NULL : malloc(size);
    if (*image) error = compiler->code(program, *image);
    if (error)
      status = hy__backend_host->fail(HY_INTERNAL, "%s gives no code: error %d",
                                      d->api->compiler_name, error);
    else if (!*image)
      status = no_memory(d);
  }
  compiler->destroy(&program);
  return status;
}

hy_status hy__gpu_user_compile(void* device, const char* source, const char* flags, void** module) {
  hy__gpu_device* d = device;
  char *words = strdup(flags ? flags : ""), *image = NULL;
  if (!words) return no_memory(d);
  hy_status status = compile(d, source, words, &image);
  free(words);
  if (status == HY_OK) {
    bool entered = hy__gpu_enter(d);
    int error = d->api->driver.module_load(module, image);
    hy__gpu_leave(d, entered);
    if (error) status = hy__gpu_fail(d, error, "loading a compiled module");
  }
  free(image);
  return status;
}

hy_status hy__gpu_module_kernel(void* device, void* module, const char* name, void** kernel) {
  enum { ERROR_NOT_FOUND = 500 };
  hy__gpu_device* d = device;
  bool entered = hy__gpu_enter(d);
  int error = d->api->driver.module_function(kernel, module, name);
  hy__gpu_leave(d, entered);
  if (error == ERROR_NOT_FOUND)
    return hy__backend_host->fail(HY_NOT_FOUND, "the module has no kernel %s (extern \"C\"?)",
                                  name);
  return error ? hy__gpu_fail(d, error, "a compiled kernel") : HY_OK;
}

hy_status hy__gpu_kernel_launch(void* device, void* stream, void* kernel, const hy_launch* l) {
  enum { MAX_DYNAMIC_SHARED = 8, MAX_ARGUMENTS = 256 };
  hy__gpu_device* d = device;
  hy__gpu_stream* s = stream;
  void* arguments[MAX_ARGUMENTS];
  if (d->lost) return hy__gpu_fail(d, -1, "a kernel");
  if (l->n_args > MAX_ARGUMENTS)
    return hy__backend_host->fail(HY_INVALID_ARGUMENT, "a kernel takes at most %d arguments",
                                  MAX_ARGUMENTS);
  for (int i = 0; i < l->n_args; i++) arguments[i] = (void*)(uintptr_t)l->args[i].value;
  s->last_op = HY_OP_NONE;
  s->written = (hy__gpu_written){.unknown = true};
  bool entered = hy__gpu_enter(d);
  int error = 0;
  if (l->shared_bytes > 0)
    error = d->api->driver.function_set(kernel, MAX_DYNAMIC_SHARED, (int)l->shared_bytes);
  if (!error)
    error =
        d->api->driver.launch(kernel, l->grid[0], l->grid[1], l->grid[2], l->block[0], l->block[1],
                              l->block[2], (unsigned)l->shared_bytes, s->queue, arguments, NULL);
  hy__gpu_leave(d, entered);
  return error ? hy__gpu_fail(d, error, "launching a compiled kernel") : HY_OK;
}

void hy__gpu_module_destroy(void* device, void* module) {
  hy__gpu_device* d = device;
  bool entered = hy__gpu_enter(d);
  d->api->driver.module_unload(module);
  hy__gpu_leave(d, entered);
}
