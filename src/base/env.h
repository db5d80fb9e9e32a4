// Environment variables and the monotonic clock.
#ifndef HALYARD_BASE_ENV_H_
#define HALYARD_BASE_ENV_H_

#include <stdint.h>

const char* hy__env(const char* name);  // NULL when unset or empty, or in a setuid program
int64_t hy__now_ns(void);               // monotonic, never 0

#endif  // HALYARD_BASE_ENV_H_
