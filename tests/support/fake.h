// A device whose clock is the test: streams advance only when told to, so that everything about
// order and reuse can be tested without threads. Device memory is host memory.
#ifndef HALYARD_TESTS_SUPPORT_FAKE_H_
#define HALYARD_TESTS_SUPPORT_FAKE_H_

#include "core/internal.h"

enum { FAKE_STREAMS = 128 };

typedef struct fake_stream {
  struct fake_device* device;
  uint64_t submitted, done;
  hy_async_error error;
} fake_stream;

typedef struct fake_device {
  hy_device device;
  size_t capacity, used;  // bytes; memory_alloc beyond answers HY_OUT_OF_MEMORY
  int live_memory, live_pinned, live_streams, live_events;
  int syncs, records, queries, copies;
  hy_copy_kind last_kind;
  bool fail_records;
  size_t misalign;  // added to the addresses given out
  fake_stream* streams[FAKE_STREAMS];
} fake_device;

// `flags` as in hy_backend; `pinned`: the backend has host_alloc.
hy_status fake_open(fake_device* fake, const char* selector, uint32_t flags, bool pinned,
                    size_t capacity);
// Destroys the streams and the allocator, as hy_shutdown does with a device.
void fake_close(fake_device* fake);

// Work that has been queued on the stream and has not run.
void fake_submit(hy_stream* stream);
// All queued work is done.
void fake_finish(hy_stream* stream);
// Queued work has failed.
void fake_break(hy_stream* stream, hy_status status, hy_op op, const char* message);

#endif  // HALYARD_TESTS_SUPPORT_FAKE_H_
