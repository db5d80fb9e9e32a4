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
  const char* (*entry)(int i, long* count, long* failed);
  void (*fail_call)(const char* name, int code);
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

// Mutation: of every function of the library's table, each two arguments of one type change places
// in turn. Conformance of an op that calls it, or `other` for those that conformance does not
// reach, then fails, or the library sees misuse; without the change it passes. Where the two are
// the same in every call nothing is asked, and `commuting` names the pairs, "Add 0 1", that may
// change places.
typedef struct test_mutation {
  void* library;
  const char* types;               // letters of the table that are one type in C, "TO SZ"
  const char* const* commuting;    // up to NULL
  const char* const* other_names;  // up to NULL
  bool (*const* other)(void);
} test_mutation;
void test_backend_swaps(const test_mutation* m);
// Each attempt, made on a thread of its own, is refused (not NULL) as that misuse.
void test_backend_elsewhere(void* (*const attempts[])(void*), int n, const char* misuse);
// Qwen2's shape, greedy and sampled, with no fallback.
void test_backend_generates(const char* backend);
// Steps of LoRA, with no fallback: losses and adapters are those of the cpu, but for rounding.
void test_backend_trains(const char* backend);
// Every call of the vendor's fails once with each code: work fails with a message that names the
// backend, or goes on where it can, and the process works after it.
void test_backend_survives(const char* backend, const int* codes, int n_codes);
// The same for every entry point that conformance of some op, or one of `others`, reaches: it fails
// once with each code under that work; and for set_device. At the end, all of `names` (up to NULL)
// have failed in this process.
void test_backend_entries_survive(const char* backend, const int* codes, int n_codes,
                                  bool (*const* others)(void), int n_others, const char* set_device,
                                  const char* const* names);
// The same of communicators.
void test_backend_collectives_survive(const char* backend, const int* codes, int n_codes);
// A link is lost while nothing is under way: hy_comm_async_error says so, with the library's name,
// and a new communicator works.
void test_backend_loses_link(const char* library, const char* name);

#endif  // HALYARD_TESTS_VENDORS_TEST_BACKEND_H_
