// Environment variables and the monotonic clock.
#include "base/env.h"

#include <stdlib.h>
#include <time.h>

const char* hy__env(const char* name) {
  const char* value = secure_getenv(name);
  return value && *value ? value : NULL;
}

int64_t hy__now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec + 1;
}
