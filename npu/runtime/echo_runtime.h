// echo_runtime.h - shared inside the runtime: errors, devices, streams.
#ifndef ECHO_RUNTIME_H
#define ECHO_RUNTIME_H

#include <pthread.h>

#include "echo_allocator.h"
#include "echo_driver.h"
#include "echo_npu_runtime.h"

// ---- Errors and debug output (echo_error.c) ---------------------------------------------------

// Keeps a message for this thread and returns the error.
echoNpuError echo__fail(echoNpuError error, const char* format, ...)
    __attribute__((format(printf, 2, 3)));

extern int echo__debug_level;  // ECHO_NPU_DEBUG_LEVEL, read once
void echo__debug_init(void);
void echo__debug_print(echoNpuDebugTag tag, const char* format, ...)
    __attribute__((format(printf, 2, 3)));
// Level 1: operations; 2: and transfers; 3: and runtime detail.
#define echo__debug(level, tag, ...) \
  ((void)(echo__debug_level >= (level) && (echo__debug_print((tag), __VA_ARGS__), 0)))

// ---- Devices (echo_device.c) ------------------------------------------------------------------

typedef struct echo_job echo_job;
typedef struct echo_recorder echo_recorder;

struct echoNpuStream_st {
  struct echo_device* device;
  struct echoNpuStream_st* next;  // of the device's streams
  echo_job *head, *tail;
  uint64_t submitted, completed;  // jobs
  echoNpuError error;             // sticks until synchronize returns it
  echoNpuFault fault;
};

typedef struct echo_device {
  int index;
  const echo_driver* driver;
  void* handle;
  echo_board board;
  echo_allocator* allocator;

  // Device pointers are addresses inside this reservation, which no one can read or write.
  uint8_t* window;
  size_t window_bytes;

  uint32_t timeout_ms;  // for one packet; 0: none
  uint32_t watchdog;    // cycles, for the register

  uint64_t ring;            // physical
  uint32_t tail;            // this and the next two: used by the thread that serves
  echo_recorder* recorder;  // NULL: nothing is recorded
  int dead;                 // it did not even obey a reset

  pthread_t thread;
  pthread_mutex_t lock;     // guards everything below, and the streams
  pthread_cond_t work;      // the queue thread waits here
  pthread_cond_t progress;  // everyone else does
  struct echoNpuStream_st* streams;
  struct echoNpuStream_st* default_stream;
  int stopping, lost;
  int serving;  // a thread is talking to the driver
} echo_device;

// The device, opened at first use.
echoNpuError echo__device(int index, echo_device** device);
echoNpuError echo__current_device(echo_device** device);
// Device and physical address of `bytes` bytes of device memory.
echoNpuError echo__resolve(const void* ptr, uint64_t bytes, echo_device** device,
                           uint64_t* address);
// On the thread that serves.
void echo__read_counters(echo_device* device, uint64_t* counters);
// Wakes the queue threads of all devices; an event has completed.
void echo__wake_all(void);
// Gives a block back; the caller knows that the device no longer uses it.
void echo__release(echo_device* device, uint64_t address);
echoNpuError echo__reserve(echo_device* device, uint64_t bytes, int area, uint64_t* address);

// ---- Streams (echo_stream.c) ------------------------------------------------------------------

#define ECHO_RING_LOG2 10
#define ECHO_RING_PACKETS (1u << ECHO_RING_LOG2)

echoNpuError echo__queue_start(echo_device* device);
void echo__queue_stop(echo_device* device);
// NULL is the default stream of the current device.
echoNpuError echo__stream(echoNpuStream given, echoNpuStream* stream);
echoNpuError echo__submit(echoNpuStream stream, const echo_npu_packet* packets, size_t count);
echoNpuError echo__submit_write(echoNpuStream stream, uint64_t to, const void* from,
                                uint64_t bytes);
echoNpuError echo__submit_read(echoNpuStream stream, void* to, uint64_t from, uint64_t bytes);
// Releases the block when the stream gets there.
echoNpuError echo__submit_release(echoNpuStream stream, uint64_t address);
// Runs call(device, argument) on the thread that serves and waits for it.
echoNpuError echo__call(echo_device* device, void (*call)(echo_device*, void*), void* argument);
echoNpuError echo__stream_wait(echoNpuStream stream);
echoNpuError echo__device_wait(echo_device* device);

#endif  // ECHO_RUNTIME_H
