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
// The last misuse was this one; it is forgiven.
void test_misused(const char* what);
// A function of the library, which must have it.
void* test_symbol(void* library, const char* name);

// Arguments a and b of one of the vendor's functions change places: conformance of the op fails, or
// the library sees misuse. Without the change it passes.
typedef struct test_swap {
  const char* name;
  int a, b;
  hy_op op;
} test_swap;
void test_backend_swaps(const test_swap* swaps, int n, void (*swap)(const char*, int, int));
// Each attempt, made on a thread of its own, is refused (not NULL) as that misuse.
void test_backend_elsewhere(void* (*const attempts[])(void*), int n, const char* misuse);
// Qwen2's shape, greedy and sampled, with no fallback.
void test_backend_generates(const char* backend);
// Every call of the vendor's fails once with each code: work fails with a message that names the
// backend, or goes on where it can, and the process works after it.
void test_backend_survives(const char* backend, const int* codes, int n_codes);
// The same of communicators.
void test_backend_collectives_survive(const char* backend, const int* codes, int n_codes);
// A link is lost while nothing is under way: hy_comm_async_error says so, with the library's name,
// and a new communicator works.
void test_backend_loses_link(const char* library, const char* name);

#endif  // HALYARD_TESTS_VENDORS_TEST_BACKEND_H_
