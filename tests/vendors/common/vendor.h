// Test vendors: what the libraries under tests/vendors/ share. Each has a vendor's file names and
// entry points, runs on the host, and is stricter than the chip: its device memory faults when the
// host follows an address, its queues are threads, every handle is looked up before it is used, and
// a call that breaks a rule of the vendor's documents is written down as misuse, refused, and makes
// the process end with code 86.
//
// Environment, read at the first call:
//   HALYARD_VENDOR_FAIL=12:507018   the 12th call fails with that code
//   HALYARD_VENDOR_FAIL=12:507018:always   and every one after it
//   HALYARD_VENDOR_LOG=FILE         every call, by name
//   HALYARD_VENDOR_DEVICES=2        how many devices there are (1 to 8)
//   HALYARD_VENDOR_MEMORY=64        MiB of each device's memory
//   HALYARD_VENDOR_CHIP=...         the chip, in the vendor's words
//
// Nothing here knows a vendor's signature, and nothing here is included by a backend.
#ifndef HALYARD_TESTS_VENDORS_VENDOR_H_
#define HALYARD_TESTS_VENDORS_VENDOR_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define VENDOR_API __attribute__((visibility("default")))

// ---- Calls ----

// Counts and records a call. Not 0: what the call must return, for it was told to fail.
VENDOR_API int vendor_enter(const char* name);
VENDOR_API long vendor_calls(void);
// The n-th call from now fails with that code; 0: none. Where `always` is set, all after it too.
VENDOR_API void vendor_fail_at(long n, int code, bool always);
// The next call of that entry point does; NULL: none.
VENDOR_API void vendor_fail_call(const char* name, int code);
// How often an entry point was called; the i-th of those that were, and how often it was told to
// fail. NULL past the last.
VENDOR_API long vendor_calls_of(const char* name);
VENDOR_API const char* vendor_entry(int i, long* count, long* failed);

// ---- Misuse ----

VENDOR_API void vendor_misuse(const char* format, ...) __attribute__((format(printf, 1, 2)));
VENDOR_API long vendor_misuses(void);
VENDOR_API const char* vendor_last_misuse(void);
VENDOR_API void vendor_forgive(void);  // for tests that misuse on purpose

// ---- Options ----

VENDOR_API int vendor_devices(void);
VENDOR_API const char* vendor_chip(const char* otherwise);
// How many devices a list such as "0,2" in an environment variable leaves, all without it, and
// which.
VENDOR_API int vendor_visible_devices(const char* variable, int* map);

// ---- Handles ----

// Registers a live handle of a kind (a string that stays); asks whether it is one; forgets it.
VENDOR_API void vendor_born(const void* handle, const char* kind);
VENDOR_API bool vendor_alive(const void* handle, const char* kind);
VENDOR_API bool vendor_dies(const void* handle, const char* kind);  // false: it was none
VENDOR_API long vendor_living(const char* kind);

// ---- Memory ----

// NULL: there is no room. Addresses are 512-byte aligned and fault when the host follows them.
VENDOR_API void* vendor_memory_take(int device, size_t bytes);
VENDOR_API bool vendor_memory_give(int device, void* address);  // false: it does not begin one
// The bytes behind a device address, for worker threads; NULL where they are in no allocation.
VENDOR_API char* vendor_memory_reach(int device, const void* address, size_t bytes);
// The device whose memory it is, or -1.
VENDOR_API int vendor_memory_owner(const void* address);
VENDOR_API void vendor_memory_sizes(int device, size_t* free_bytes, size_t* total);

// Pinned host memory.
VENDOR_API void* vendor_host_take(size_t bytes);
VENDOR_API bool vendor_host_give(void* address);  // false: it was not taken
// Where the bytes of one side of a copy are: in memory of that device, or for -1 of the host, which
// an asynchronous copy wants pinned. NULL with misuse noted under the name of the call.
VENDOR_API char* vendor_side(const char* call, int device, const void* at, size_t bytes,
                             bool must_pin);

// ---- Queues ----

typedef struct vendor_queue vendor_queue;
typedef struct vendor_event vendor_event;

// Work of a queue; not 0: the vendor's code, which breaks the queue. `context` is freed after it.
typedef int (*vendor_work)(void* context);

VENDOR_API vendor_queue* vendor_queue_create(int device);
VENDOR_API void vendor_queue_destroy(vendor_queue* queue);  // after the last work
VENDOR_API int vendor_queue_device(const vendor_queue* queue);
// `context` is copied.
VENDOR_API void vendor_queue_push(vendor_queue* queue, vendor_work work, const void* context,
                                  size_t bytes);
// As push, but done also where the queue is broken by then, for work that others wait for.
VENDOR_API void vendor_queue_push_always(vendor_queue* queue, vendor_work work, const void* context,
                                         size_t bytes);
// Addresses of the host, as vendor_side gives them.
VENDOR_API void vendor_queue_copy(vendor_queue* queue, char* dst, const char* src, size_t bytes);
VENDOR_API void vendor_queue_set(vendor_queue* queue, char* dst, int value, size_t bytes);
VENDOR_API int vendor_queue_wait(vendor_queue* queue);  // the code that broke it, or 0
VENDOR_API bool vendor_queue_is_idle(vendor_queue* queue, int* code);
VENDOR_API int vendor_queues_wait(int device);  // all of a device

// Capture: what is pushed is kept in a list instead, which can be pushed again and again.
typedef struct vendor_list vendor_list;
VENDOR_API bool vendor_queue_capture(vendor_queue* queue);  // false: it captures already
VENDOR_API bool vendor_queue_is_capturing(const vendor_queue* queue);
VENDOR_API vendor_list* vendor_queue_captured(vendor_queue* queue);  // NULL: it was not capturing
VENDOR_API void vendor_list_push(const vendor_list* list, vendor_queue* queue);
VENDOR_API void vendor_list_free(vendor_list* list);

VENDOR_API vendor_event* vendor_event_create(void);
VENDOR_API void vendor_event_destroy(vendor_event* event);
VENDOR_API void vendor_event_record(vendor_event* event, vendor_queue* queue);
VENDOR_API void vendor_event_hold(vendor_event* event, vendor_queue* queue);  // the queue waits
VENDOR_API bool vendor_event_is_done(vendor_event* event);  // false also before a record
VENDOR_API void vendor_event_wait(vendor_event* event);
VENDOR_API bool vendor_event_elapsed(vendor_event* from, vendor_event* to, float* milliseconds);

#endif  // HALYARD_TESTS_VENDORS_VENDOR_H_
