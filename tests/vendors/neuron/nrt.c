// libnrt.so.1 for tests: as much of AWS Neuron's runtime as a probe that only loads it can meet.
#include <stdint.h>

__attribute__((visibility("default"))) int nrt_get_total_vnc_count(uint32_t* vnc_count);
int nrt_get_total_vnc_count(uint32_t* vnc_count) {
  *vnc_count = 0;
  return 0;
}
