#include "backends/cpu/bind.h"

#include <dlfcn.h>
#include <string.h>

#include "backends/cpu/kernels.h"

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
