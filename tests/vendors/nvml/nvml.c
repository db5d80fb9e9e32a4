// libnvidia-ml.so.1 for tests on the emulated GPU: one device that is warm, busy and held down by
// its power cap. A call before nvmlInitWithFlags, or with another device's address, ends the
// process with code 86.
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { OK = 0, NOT_SUPPORTED = 3, NOT_FOUND = 6 };
static int started, gpu;

static void need(int condition, const char* what) {
  if (condition) return;
  fprintf(stderr, "nvml: %s\n", what);
  _exit(86);
}
static int with(void* device, unsigned* to, unsigned value) {
  need(started && device == &gpu, "a device that nobody asked for");
  return *to = value, OK;
}

int nvmlInitWithFlags(unsigned flags);
int nvmlInitWithFlags(unsigned flags) {
  need(flags == 0, "flags");
  return started = 1, OK;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char* pci, void** device);
int nvmlDeviceGetHandleByPciBusId_v2(const char* pci, void** device) {
  need(started, "a call before nvmlInit");
  need(strlen(pci) == 12 && pci[4] == ':' && pci[10] == '.', "no address of the form 0000:00:00.0");
  return *device = &gpu, OK;
}
int nvmlDeviceGetMemoryInfo(void* device, unsigned long long* total_free_used);
int nvmlDeviceGetMemoryInfo(void* device, unsigned long long* total_free_used) {
  unsigned unused;
  with(device, &unused, 0);
  total_free_used[0] = 8ull << 30, total_free_used[1] = 5ull << 30, total_free_used[2] = 3ull << 30;
  return OK;
}
int nvmlDeviceGetTemperature(void* device, int sensor, unsigned* celsius);
int nvmlDeviceGetTemperature(void* device, int sensor, unsigned* celsius) {
  need(sensor == 0, "no such sensor");
  return with(device, celsius, 61);
}
int nvmlDeviceGetPowerUsage(void* device, unsigned* milliwatts);
int nvmlDeviceGetPowerUsage(void* device, unsigned* milliwatts) {
  return with(device, milliwatts, 690123);
}
int nvmlDeviceGetEnforcedPowerLimit(void* device, unsigned* milliwatts);
int nvmlDeviceGetEnforcedPowerLimit(void* device, unsigned* milliwatts) {
  return with(device, milliwatts, 700000);
}
int nvmlDeviceGetClockInfo(void* device, int which, unsigned* mhz);
int nvmlDeviceGetClockInfo(void* device, int which, unsigned* mhz) {
  return with(device, mhz, which == 1 ? 1410 : 0);
}
int nvmlDeviceGetMaxClockInfo(void* device, int which, unsigned* mhz);
int nvmlDeviceGetMaxClockInfo(void* device, int which, unsigned* mhz) {
  return with(device, mhz, which == 1 ? 1980 : 0);
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void* device, unsigned long long* reasons);
int nvmlDeviceGetCurrentClocksThrottleReasons(void* device, unsigned long long* reasons) {
  unsigned unused;
  with(device, &unused, 0);
  return *reasons = 0x4 | 0x20, OK;
}
int nvmlDeviceGetCurrPcieLinkGeneration(void* device, unsigned* value);
int nvmlDeviceGetCurrPcieLinkGeneration(void* device, unsigned* value) {
  return with(device, value, 5);
}
int nvmlDeviceGetCurrPcieLinkWidth(void* device, unsigned* lanes);
int nvmlDeviceGetCurrPcieLinkWidth(void* device, unsigned* lanes) {
  return with(device, lanes, 16);
}
int nvmlDeviceGetNvLinkState(void* device, unsigned link, unsigned* active);
int nvmlDeviceGetNvLinkState(void* device, unsigned link, unsigned* active) {
  return link < 4 ? with(device, active, 1) : NOT_SUPPORTED;
}
