// The smallest backend that can be registered: any name, any number of devices, host memory, and a
// probe that does what the test says.
#ifndef HALYARD_TESTS_SUPPORT_STUB_H_
#define HALYARD_TESTS_SUPPORT_STUB_H_

#include <stdatomic.h>

#include "halyard/plugin.h"

// What the next probe of a stub answers, and what has been done to stubs. Shared by all of them.
typedef struct stub_state {
  hy_status status;  // of the probe
  hy_stage stage;
  const char* reason;
  int device_count;
  const char* pci;  // of device 0
  uint32_t capabilities;
  uint32_t dtypes;  // f32 unless set
  hy_status open_status;
  atomic_int probes, opens, closes;
} stub_state;
extern stub_state stub;

void stub_reset(void);  // one device, available
hy_backend stub_backend(const char* name);
// A provider that has no kernels.
hy_provider stub_provider(const char* name);

#endif  // HALYARD_TESTS_SUPPORT_STUB_H_
