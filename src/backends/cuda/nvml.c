// NVML, where the driver brought it: what a device does at the moment, for its properties. Memory
// that other processes hold, temperature, power, clocks and what holds them down, and links.
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "backends/cuda/cuda.h"

static struct {
#define HY_NVML(field, symbol, parameters) int(*field) parameters;
#include "backends/cuda/nvml.def"
} nvml;
static bool ready;

static void bind(void) {
  void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library)
    library = dlopen("/usr/local/nvidia/lib64/libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) return;
#define HY_NVML(field, symbol, parameters) *(void**)&nvml.field = dlsym(library, symbol);
#include "backends/cuda/nvml.def"
  ready = nvml.init && nvml.device && nvml.init(0) == 0;
}

// A line more, where there is room for a whole one.
static void add(hy_device_info* info, const char* format, ...) {
  char line[160];
  va_list list;
  va_start(list, format);
  int length = vsnprintf(line, sizeof line, format, list);
  va_end(list);
  size_t used = strlen(info->properties);
  if (length > 0 && (size_t)length < sizeof line && used + (size_t)length < sizeof info->properties)
    memcpy(info->properties + used, line, (size_t)length + 1);
}

// What a set of clocks' reasons says; an idle GPU's low clocks are none.
static void add_slowdown(hy_device_info* info, unsigned long long reasons) {
  static const struct {
    unsigned long long bit;
    const char* name;
  } known[] = {{0x2, "application_clocks"}, {0x4, "power_cap"},    {0x8, "hardware"},
               {0x10, "sync_boost"},        {0x20, "temperature"}, {0x40, "hardware_temperature"},
               {0x80, "power_brake"},       {0x100, "display"}};
  char names[128] = "";
  for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
    if (reasons & known[i].bit)
      snprintf(names + strlen(names), sizeof names - strlen(names), "%s%s", names[0] ? "," : "",
               known[i].name);
  if (names[0]) add(info, "slowed_by=%s\n", names);
}

static void add_links(hy_device_info* info, void* device) {
  enum { MOST_LINKS = 18 };
  unsigned generation = 0, lanes = 0, active = 0;
  int links = 0;
  if (nvml.pcie_generation && nvml.pcie_width && nvml.pcie_generation(device, &generation) == 0 &&
      nvml.pcie_width(device, &lanes) == 0)
    add(info, "pcie=%u x%u\n", generation, lanes);
  for (unsigned i = 0; nvml.nvlink && i < MOST_LINKS; i++)
    links += nvml.nvlink(device, i, &active) == 0 && active;
  if (links) add(info, "nvlinks=%d\n", links);
}

void hy__cuda_add_nvml(hy_device_info* info) {
  enum { SENSOR_GPU = 0, CLOCK_SM = 1 };
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, bind);
  void* device = NULL;
  if (!ready || nvml.device(info->pci, &device) != 0) return;
  unsigned long long memory[3] = {0}, reasons = 0;
  unsigned now = 0, most = 0;
  // A part of a GPU (MIG) has less than the whole, of which alone NVML speaks here.
  if (nvml.memory && nvml.memory(device, memory) == 0 && memory[1] <= info->memory_total)
    info->memory_free = memory[1];
  if (nvml.temperature && nvml.temperature(device, SENSOR_GPU, &now) == 0)
    add(info, "temperature_celsius=%u\n", now);
  if (nvml.power && nvml.power_limit && nvml.power(device, &now) == 0 &&
      nvml.power_limit(device, &most) == 0)
    add(info, "power_watts=%u of %u\n", now / 1000, most / 1000);
  if (nvml.clock && nvml.max_clock && nvml.clock(device, CLOCK_SM, &now) == 0 &&
      nvml.max_clock(device, CLOCK_SM, &most) == 0)
    add(info, "clock_mhz=%u of %u\n", now, most);
  if (nvml.slowdown && nvml.slowdown(device, &reasons) == 0) add_slowdown(info, reasons);
  add_links(info, device);
}
