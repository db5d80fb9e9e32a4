// Vendor libraries by dlopen and dlsym: opening one, and filling a table of its functions.
#include "backends/common/dlsym.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/common/host.h"

static atomic_bool forked;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void note_fork(void) {
  atomic_store(&forked, true);
}

static void watch_forks(void) {
  pthread_atfork(NULL, NULL, note_fork);
}

bool hy__dlsym_forked(void) {
  return atomic_load_explicit(&forked, memory_order_relaxed);
}

hy_status hy__dlsym_open(const char* names, const char* variable, const char* folders,
                         hy_probe* report, void** library) {
  const char* folder = secure_getenv(variable);
  if (!folder || !*folder) return hy__backend_host->open_library(names, folders, report, library);
  if (folder[0] != '/' || strchr(folder, ' '))
    return hy__backend_host->fail(HY_UNAVAILABLE,
                                  "%s is \"%s\", which is not an absolute path without blanks",
                                  variable, folder);
  char path[512];
  for (const char* name = names; *name; name += strspn(name, " ")) {
    int length = (int)strcspn(name, " ");
    int wanted = snprintf(path, sizeof path, "%s/%.*s", folder, length, name);
    if (wanted < (int)sizeof path && access(path, R_OK) == 0)
      return hy__backend_host->open_library(path, NULL, report, library);
    name += length;
  }
  return hy__backend_host->fail(HY_UNAVAILABLE, "%s is %s, where there is none of: %s", variable,
                                folder, names);
}

void* hy__dlsym_optional(void* library, const char* name) {
  return dlsym(library, name);
}

hy_status hy__dlsym_bind(void* library, const hy__symbol* symbols, int count, void* functions,
                         hy_probe* report) {
  pthread_once(&once, watch_forks);
  for (int i = 0; i < count; i++) {
    void* address = dlsym(library, symbols[i].name);
    if (!address)
      return hy__backend_host->fail(HY_UNAVAILABLE,
                                    "%s has no function %s: it is too old or "
                                    "built without it",
                                    report->library, symbols[i].name);
    memcpy((char*)functions + symbols[i].offset, &address, sizeof address);
  }
  report->stage = HY_STAGE_SYMBOLS;
  return HY_OK;
}
