#include "echo_driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef ECHO_NPU_DEFAULT_BACKEND
#define ECHO_NPU_DEFAULT_BACKEND "cmodel"
#endif

static const echo_driver* const drivers[] = {
    &echo_driver_cmodel,
#ifdef ECHO_NPU_HAVE_RTLMODEL
    &echo_driver_rtlmodel,
#endif
    &echo_driver_fpga,
    &echo_driver_asic,
};
#define DRIVERS (sizeof drivers / sizeof *drivers)

const echo_driver* echo_driver_select(char* reason, size_t size) {
  const char* wanted = getenv("ECHO_NPU_BACKEND");
  if (!wanted || !*wanted) wanted = ECHO_NPU_DEFAULT_BACKEND;
  for (size_t i = 0; i < DRIVERS; ++i)
    if (!strcmp(drivers[i]->name, wanted)) return drivers[i];
  if (!strcmp(wanted, "rtlmodel"))
    snprintf(reason, size, "rtlmodel was not built: Verilator was not found at build time");
  else
    snprintf(reason, size, "no backend is named '%s'; there are cmodel, rtlmodel, fpga, asic",
             wanted);
  return NULL;
}

void echo_driver_list_missing(const echo_driver* chosen, char* text, size_t size) {
  size_t used = 0;
  text[0] = 0;
#ifndef ECHO_NPU_HAVE_RTLMODEL
  used += (size_t)snprintf(text, size, "rtlmodel: not built, Verilator was not found; ");
#endif
  for (size_t i = 0; i < DRIVERS; ++i) {
    char reason[160] = "";
    if (drivers[i] == chosen || drivers[i]->count(reason, sizeof reason) > 0) continue;
    if (used < size)
      used += (size_t)snprintf(text + used, size - used, "%s: %s; ", drivers[i]->name, reason);
  }
  if (used >= 2 && used < size) text[used - 2] = 0;
}
