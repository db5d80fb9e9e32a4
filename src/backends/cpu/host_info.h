// Processor, memory and operating system, as they describe themselves.
#ifndef HALYARD_CPU_HOST_INFO_H_
#define HALYARD_CPU_HOST_INFO_H_

#include <stdint.h>

typedef struct hy__cpu_host {
  char model[128];
  int cores;                           // this process may use, by affinity and quota
  uint64_t memory_total, memory_free;  // bytes, within the control group's limit
  char kernel[64];                     // of the operating system
  char caches[80];                     // "L1d 32K, L2 1024K, L3 32768K", as a core sees them
} hy__cpu_host;

// `root` is "" but in tests. What cannot be read stays empty or 0.
void hy__cpu_read_host(const char* root, hy__cpu_host* host);
// Only the cores.
int hy__cpu_usable_cores(const char* root);
// Only the memory; quick.
void hy__cpu_read_memory(const char* root, uint64_t* total, uint64_t* free);

#endif  // HALYARD_CPU_HOST_INFO_H_
