// Tests of a backend over its test vendor: what every such backend must do.
#ifndef HALYARD_TESTS_VENDORS_TEST_BACKEND_H_
#define HALYARD_TESTS_VENDORS_TEST_BACKEND_H_

#include "halyard/halyard.h"
#include "support/arrays.h"

extern hy_device* test_device;
extern hy_stream* test_stream;

// The functions of vendor.h in the library that the backend has loaded.
extern struct test_vendor {
  long (*calls)(void);
  long (*calls_of)(const char* name);
  void (*fail_at)(long n, int code, bool always);
  long (*misuses)(void);
  const char* (*last_misuse)(void);
  void (*forgive)(void);
} test_vendor;

// For set-up and tear-down of a group: not 0 where there is no such device or library.
int test_backend_open(const char* backend, const char* library);
int test_backend_close(void** state);

void test_backend_no_misuse(void);
// Qwen2's shape, greedy and sampled, with no fallback.
void test_backend_generates(const char* backend);
// Every call of the vendor's fails once with each code: work fails with a message that names the
// backend, or goes on where it can, and the process works after it.
void test_backend_survives(const char* backend, const int* codes, int n_codes);

#endif  // HALYARD_TESTS_VENDORS_TEST_BACKEND_H_
