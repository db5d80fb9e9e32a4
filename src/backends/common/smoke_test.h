// The smoke test that ends a probe: one small kernel, through all that a real one needs.
#ifndef HALYARD_COMMON_SMOKE_TEST_H_
#define HALYARD_COMMON_SMOKE_TEST_H_

#include "halyard/plugin.h"

// Opens device `index` of the backend, copies two vectors there, adds them by the first provider
// that takes the call (the reference, where the memory is the host's and none does), copies the sum
// back and compares. Closes the device again. Sets the report's stage to READY where it came out
// right; its other fields are the caller's.
hy_status hy__smoke_test(const hy_backend* backend, int index, hy_probe* report);

#endif  // HALYARD_COMMON_SMOKE_TEST_H_
