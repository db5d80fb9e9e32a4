#include "backends/cpu/bind.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/cpu/kernels.h"

hy_status hy__bind_open(const char* names, const char* variable, const char* folders,
                        hy_probe* report, void** library) {
  const char* folder = getenv(variable);
  char path[512];
  for (const char* name = names; folder && *name; name += strspn(name, " ")) {
    int length = (int)strcspn(name, " ");
    snprintf(path, sizeof path, "%s/%.*s", folder, length, name);
    if (access(path, R_OK) == 0 && !strchr(path, ' '))
      return hy__cpu_host_services->open_library(path, NULL, report, library);
    name += length;
  }
  return hy__cpu_host_services->open_library(names, folders, report, library);
}

void* hy__bind_optional(void* library, const char* name) {
  return dlsym(library, name);
}

hy_status hy__bind(void* library, const hy__symbol* symbols, int count, void* functions,
                   hy_probe* report) {
  for (int i = 0; i < count; i++) {
    void* address = dlsym(library, symbols[i].name);
    if (!address)
      return hy__cpu_host_services->fail(HY_UNAVAILABLE,
                                         "%s has no function %s: it is too old or "
                                         "built without it",
                                         report->library, symbols[i].name);
    memcpy((char*)functions + symbols[i].offset, &address, sizeof address);
  }
  report->stage = HY_STAGE_SYMBOLS;
  return HY_OK;
}
