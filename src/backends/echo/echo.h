// What the files of the echo backend share: its handles, and what came of the SDK's calls.
#ifndef HALYARD_BACKENDS_ECHO_ECHO_H_
#define HALYARD_BACKENDS_ECHO_ECHO_H_

#include <pthread.h>

#include "backends/common/host.h"
#include "echo_npu_runtime.h"

typedef struct hy__echo_stream hy__echo_stream;
typedef struct hy__echo_graph hy__echo_graph;

typedef struct hy__echo_device {
  int index;
  pthread_mutex_t mutex;     // guards the list
  hy__echo_stream* streams;  // all that exist
} hy__echo_device;

// A fault names a packet, not an op: the stream remembers which op brought which of its latest
// packets. When more than these are pending the op of a fault is unknown.
#define HY__ECHO_TRAIL 4096

// Device memory that packets of one call use and the next call may use again: a stream runs in
// order. What was outgrown is kept until the stream is idle.
#define HY__ECHO_RETIRED 40
typedef struct hy__echo_scratch {
  char* memory;
  size_t size, used;
  void* retired[HY__ECHO_RETIRED];
  int n_retired;
} hy__echo_scratch;

// The numbers of index tensors, as they are on the device while a graph is launched.
typedef struct hy__echo_known {
  hy_tensor tensor;
  int64_t* numbers;  // NULL: not any more
} hy__echo_known;

struct hy__echo_stream {
  hy__echo_stream* next;
  hy__echo_device* device;
  echoNpuStream queue;
  hy__echo_scratch scratch;
  hy__echo_graph* capture;  // what is being captured; NULL: work is run
  hy__echo_known* known;    // of the launch under way
  int n_known, known_capacity;
  pthread_mutex_t mutex;  // guards all below
  hy_async_error error;   // the first; the stream then refuses work
  struct {
    uint64_t packet;  // a hash
    hy_op op;
  } trail[HY__ECHO_TRAIL];
  unsigned trail_at;
};

// The status for an error of the SDK, with its message. Not for what a stream reports.
hy_status hy__echo_fail(echoNpuError error, const char* what);
// Makes `device` the calling thread's, and returns what was, for hy__echo_leave.
int hy__echo_enter(const hy__echo_device* device);
void hy__echo_leave(int before);

// HY_OK, or the error that the stream has met.
hy_status hy__echo_stream_status(hy__echo_stream* stream);
// Takes note of what a call that named the stream returned.
hy_status hy__echo_stream_result(hy__echo_stream* stream, echoNpuError error, const char* what);
// Hands packets of `op` to the device.
hy_status hy__echo_submit(hy__echo_stream* stream, hy_op op, const echo_npu_packet* packets,
                          size_t count);
// Device memory until the end of the call at hand; HY_OUT_OF_MEMORY where there is none.
hy_status hy__echo_scratch_take(hy__echo_stream* stream, size_t bytes, void** memory);

// Takes down work in place of running it; the stream is capturing.
hy_status hy__echo_record(hy__echo_stream* stream, const hy_graph_node* node);
// Notes the index tensors that a call will want to know; then reads them all, in one wait.
hy_status hy__echo_expect_indices(hy__echo_stream* stream, const hy_call* call);
hy_status hy__echo_learn_indices(hy__echo_stream* stream);
// Those in memory that changes; all of them.
void hy__echo_forget_indices(hy__echo_stream* stream, const void* memory, size_t bytes);
void hy__echo_forget_all_indices(hy__echo_stream* stream);

// The functions of the backend's table.
hy_status hy__echo_capture_begin(void* device, void* stream);
hy_status hy__echo_capture_end(void* device, void* stream, void** graph);
hy_status hy__echo_graph_launch(void* device, void* graph, void* stream);
hy_status hy__echo_graph_update(void* device, void* graph, int32_t node, const hy_graph_node* now);
void hy__echo_graph_destroy(void* device, void* graph);
hy_status hy__echo_stream_create(void* device, void** stream);
void hy__echo_stream_destroy(void* device, void* stream);
hy_status hy__echo_stream_sync(void* device, void* stream);
hy_status hy__echo_stream_query(void* device, void* stream);
void hy__echo_stream_error(void* device, void* stream, hy_async_error* error);
hy_status hy__echo_event_create(void* device, void** event);
void hy__echo_event_destroy(void* device, void* event);
hy_status hy__echo_event_record(void* device, void* event, void* stream);
hy_status hy__echo_event_query(void* device, void* event);
hy_status hy__echo_event_sync(void* device, void* event);
hy_status hy__echo_event_elapsed(void* device, void* start, void* stop, double* milliseconds);
hy_status hy__echo_stream_wait_event(void* device, void* stream, void* event);
hy_status hy__echo_device_sync(void* device);

extern const hy_provider hy__echo_provider;

#endif  // HALYARD_BACKENDS_ECHO_ECHO_H_
