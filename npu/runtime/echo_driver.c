// echo_driver.c - driver selection: which bottom a device name means, and why others are missing.
#include "echo_driver.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef ECHO_NPU_DEFAULT_BACKEND
#define ECHO_NPU_DEFAULT_BACKEND "cmodel"
#endif

#ifndef ECHO_NPU_RTLMODEL_LIBRARY
#define ECHO_NPU_RTLMODEL_LIBRARY "libecho_rtlmodel.so"
#endif

static const echo_driver* const drivers[] = {
    &echo_driver_cmodel,
    &echo_driver_fpga,
    &echo_driver_asic,
};
#define DRIVERS (sizeof drivers / sizeof *drivers)
_Static_assert(DRIVERS + 1 == ECHO_NPU_BACKENDS, "these and the rtlmodel");

// The compiled hardware is a library of its own, loaded when it is asked for: it needs C++, and one
// build of the runtime runs any array that has been compiled. Once loaded it stays.
static const echo_driver* load_rtlmodel(char* reason, size_t size) {
  static _Atomic(const echo_driver*) loaded;
  const echo_driver* driver = atomic_load(&loaded);
  if (driver) return driver;
  const char* path = getenv("ECHO_NPU_RTLMODEL_LIBRARY");
  void* library = dlopen(path && *path ? path : ECHO_NPU_RTLMODEL_LIBRARY, RTLD_NOW | RTLD_LOCAL);
  if (library) driver = dlsym(library, ECHO_DRIVER_RTLMODEL);
  if (driver)
    atomic_store(&loaded, driver);
  else
    snprintf(reason, size,
             "%s (it is built from npu/ where Verilator is; ECHO_NPU_RTLMODEL_LIBRARY names it)",
             dlerror());
  return driver;
}

const echo_driver* echo_driver_named(const char* name, char* reason, size_t size) {
  for (size_t i = 0; i < DRIVERS; ++i)
    if (!strcmp(drivers[i]->name, name)) return drivers[i];
  if (!strcmp(name, "rtlmodel")) return load_rtlmodel(reason, size);
  snprintf(reason, size, "no backend is named '%s'; there are cmodel, rtlmodel, fpga, asic", name);
  return NULL;
}

const echo_driver* echo_driver_select(char* reason, size_t size) {
  const char* wanted = getenv("ECHO_NPU_BACKEND");
  return echo_driver_named(wanted && *wanted ? wanted : ECHO_NPU_DEFAULT_BACKEND, reason, size);
}

int echo_driver_list(const echo_driver* usable[ECHO_NPU_BACKENDS]) {
  char reason[256];
  int count = 0;
  for (size_t i = 0; i < DRIVERS; ++i)
    if (drivers[i]->count(reason, sizeof reason) > 0) usable[count++] = drivers[i];
  const echo_driver* rtlmodel = load_rtlmodel(reason, sizeof reason);
  if (rtlmodel && rtlmodel->count(reason, sizeof reason) > 0) usable[count++] = rtlmodel;
  return count;
}

void echo_driver_list_missing(const echo_driver* chosen, char* text, size_t size) {
  size_t used = 0;
  char reason[256] = "";
  text[0] = 0;
  if (!load_rtlmodel(reason, sizeof reason))
    used += (size_t)snprintf(text, size, "rtlmodel: %s; ", reason);
  for (size_t i = 0; i < DRIVERS; ++i) {
    reason[0] = 0;
    if (drivers[i] == chosen || drivers[i]->count(reason, sizeof reason) > 0) continue;
    if (used < size)
      used += (size_t)snprintf(text + used, size - used, "%s: %s; ", drivers[i]->name, reason);
  }
  if (used >= 2 && used < size) text[used - 2] = 0;
}
