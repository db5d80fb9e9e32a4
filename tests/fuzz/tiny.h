// The smallest models, for fuzz targets.
#ifndef HALYARD_TESTS_FUZZ_TINY_H_
#define HALYARD_TESTS_FUZZ_TINY_H_

#include <stdio.h>

#include "support/tiny_model.h"

static inline void must(hy_status status) {
  if (status == HY_OK) return;
  fprintf(stderr, "%s\n", hy_last_error());
  __builtin_trap();
}

#endif  // HALYARD_TESTS_FUZZ_TINY_H_
