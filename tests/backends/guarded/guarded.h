// The guarded device: an accelerator made of host memory and threads, with everything a real one
// has that a careless caller trips over. Its addresses fault when the host follows them, its
// streams are worker threads, its errors arrive late. Used to prove that the library keeps to its
// side of the plugin ABI.
//
// Environment, read when the plugin is asked for its table:
//   HALYARD_GUARDED_OPS=add,mm    only these ops have kernels; the others must fall back
//   HALYARD_GUARDED_FAIL=mm       kernels of this op fail, on the worker thread (neg: in the probe)
//   HALYARD_GUARDED_DEVICES=2     how many devices there are (1 to 8)
//   HALYARD_GUARDED_MEMORY=64     MiB of each device's memory (1 to 65536)
//   HALYARD_GUARDED_COMM_TIMEOUT=500  milliseconds that a rank waits for the others (30000)
#ifndef HALYARD_TESTS_GUARDED_H_
#define HALYARD_TESTS_GUARDED_H_

#include <pthread.h>

#include "halyard/plugin.h"

extern const hy_host* guarded_host;
extern hy_op guarded_failing_op;

// ---- memory ----

typedef struct guarded_extent {
  size_t offset, bytes;
} guarded_extent;

typedef struct guarded_memory {
  char* window;  // the addresses given out: nothing may be read or written here
  char* store;   // the bytes, at the same offsets; for worker threads alone
  size_t size;
  pthread_mutex_t mutex;    // guards all below
  guarded_extent* extents;  // what is allocated, in order
  size_t count, capacity, used;
} guarded_memory;

hy_status guarded_memory_open(guarded_memory* memory, size_t size);
void guarded_memory_close(guarded_memory* memory);
hy_status guarded_memory_alloc(guarded_memory* memory, size_t bytes, void** address);
void guarded_memory_free(guarded_memory* memory, void* address);
// Where the bytes of a device address are; an error unless all lie in one allocation.
hy_status guarded_memory_reach(guarded_memory* memory, const void* address, size_t bytes,
                               char** bytes_at);

// ---- devices ----

typedef struct guarded_queue guarded_queue;
typedef struct guarded_event guarded_event;

typedef struct guarded_device {
  guarded_memory memory;
  pthread_mutex_t mutex;  // guards queues
  guarded_queue* queues;
} guarded_device;

// ---- queues: one worker thread each ----

hy_status guarded_queue_create(guarded_device* device, guarded_queue** queue);
void guarded_queue_destroy(guarded_device* device, guarded_queue* queue);  // after its last command
hy_status guarded_queue_sync(guarded_queue* queue);
hy_status guarded_queue_query(guarded_queue* queue);
void guarded_queue_error(guarded_queue* queue, hy_async_error* error);
void guarded_device_wait(guarded_device* device);  // until every queue is empty

// Commands. Pointers are into the store or host memory; a call is copied, its tensors' data too
// being such pointers.
hy_status guarded_push_copy(guarded_queue* queue, char* dst, const char* src, size_t bytes);
hy_status guarded_push_set(guarded_queue* queue, char* dst, int value, size_t bytes);
hy_status guarded_push_call(guarded_queue* queue, const hy_call* call);
// Runs once on the worker, also where the queue has failed: then it is told so, only tidies up, and
// what it returns does not count.
typedef hy_status (*guarded_work)(void* context, bool broken);
hy_status guarded_push_work(guarded_queue* queue, guarded_work work, void* context);
hy_status guarded_push_record(guarded_queue* queue, guarded_event* event);
hy_status guarded_push_wait(guarded_queue* queue, guarded_event* event);

// ---- events: shared by their owner and the commands that name them ----

hy_status guarded_event_create(guarded_event** event);
void guarded_event_release(guarded_event* event);
hy_status guarded_event_query(guarded_event* event);
hy_status guarded_event_sync(guarded_event* event);
hy_status guarded_event_elapsed(guarded_event* start, guarded_event* stop, double* milliseconds);

// ---- kernels ----

// Fills the provider from the options; unknown op names are an error.
hy_status guarded_kernels_init(void);
uint32_t guarded_capabilities(void);
extern hy_provider guarded_provider;

#endif  // HALYARD_TESTS_GUARDED_H_
