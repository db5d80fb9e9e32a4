// The guarded device: an accelerator made of host memory and threads, with everything a real one
// has that a careless caller trips over. Its addresses fault when the host follows them, its
// streams are worker threads, its errors arrive late. Used to prove that the library keeps to its
// side of the plugin ABI.
//
// Environment, read when the plugin is asked for its table:
//   HALYARD_GUARDED_OPS=add,mm    only these ops have kernels; the others must fall back
//   HALYARD_GUARDED_FAIL=mm       kernels of this op fail, on the worker thread (neg: in the probe)
//   HALYARD_GUARDED_END=exp:crash,tanh:hang,sin:exit  what kernels of these ops do to the process
//   HALYARD_GUARDED_DEVICES=2     how many devices there are (1 to 8)
//   HALYARD_GUARDED_MEMORY=64     MiB of each device's memory (1 to 65536)
//   HALYARD_GUARDED_LACKS=capture,update  optional functions to do without: see optional.c
//   HALYARD_GUARDED_WRONG=launch  a function that does the wrong thing: see optional.c, wrong.c
//   HALYARD_GUARDED_WRONG=signal:15:40  the process gets signal 15 with its 40th copy
//   HALYARD_GUARDED_COMM_TIMEOUT=500  milliseconds that a rank waits for the others (30000)
#ifndef HALYARD_TESTS_GUARDED_H_
#define HALYARD_TESTS_GUARDED_H_

#include <pthread.h>

#include "halyard/plugin.h"

extern const hy_host* guarded_host;
extern hy_op guarded_failing_op;
extern char guarded_ends[HY_OP_END];  // by op: the first letter of what it does, or 0

// ---- memory ----

typedef struct guarded_extent {
  size_t offset, bytes;
  bool imported;  // the bytes are another process's
} guarded_extent;

typedef struct guarded_memory {
  char* window;  // the addresses given out: nothing may be read or written here
  char* store;   // the bytes, at the same offsets; for worker threads alone
  size_t size;
  int file;                 // behind the store, so that another process can map it
  pthread_mutex_t mutex;    // guards all below
  guarded_extent* extents;  // what is allocated, in order
  size_t count, capacity, used;
} guarded_memory;

hy_status guarded_memory_open(guarded_memory* memory, size_t size);
void guarded_memory_close(guarded_memory* memory);
hy_status guarded_memory_alloc(guarded_memory* memory, size_t bytes, void** address);
void guarded_memory_free(guarded_memory* memory, void* address);
// Where the bytes of a device address are; an error unless all are in one allocation.
hy_status guarded_memory_reach(guarded_memory* memory, const void* address, size_t bytes,
                               char** bytes_at);

hy_status guarded_memory_export(guarded_memory* memory, void* address, hy_memory_blob* blob);
hy_status guarded_memory_import(guarded_memory* memory, const hy_memory_blob* blob, void** address);
hy_status guarded_memory_unmap(guarded_memory* memory, void* address);

// ---- devices ----

typedef struct guarded_queue guarded_queue;
typedef struct guarded_event guarded_event;
typedef struct guarded_graph guarded_graph;

typedef struct guarded_device {
  guarded_memory memory;
  pthread_mutex_t mutex;  // guards queues
  guarded_queue* queues;
} guarded_device;

// ---- queues: one worker thread each ----

hy_status guarded_queue_create(guarded_device* device, int priority, guarded_queue** queue);
// Another stream over a queue of the device.
hy_status guarded_queue_wrap(guarded_device* device, void* native, guarded_queue** queue);
// The last stream's: after the last command.
void guarded_queue_destroy(guarded_device* device, guarded_queue* queue);
hy_status guarded_queue_sync(guarded_queue* queue);
hy_status guarded_queue_query(guarded_queue* queue);
void guarded_queue_error(guarded_queue* queue, hy_async_error* error);
void guarded_device_wait(guarded_device* device);  // until every queue is empty

// While there is a graph, commands are an error; captured ends that and returns it.
hy_status guarded_queue_capture(guarded_queue* queue, guarded_graph* graph);
guarded_graph* guarded_queue_captured(guarded_queue* queue);
guarded_graph* guarded_queue_capturing(guarded_queue* queue);  // NULL: none

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

// ---- graphs: nodes with device addresses, localized at each launch ----

hy_status guarded_capture_begin(void* device, void* stream);
hy_status guarded_capture_end(void* device, void* stream, void** graph);
hy_status guarded_graph_launch(void* device, void* graph, void* stream);
hy_status guarded_graph_update(void* device, void* graph, int32_t node, const hy_graph_node* now);
void guarded_graph_destroy(void* device, void* graph);
// Adds a copy of a node to the graph under capture.
hy_status guarded_graph_add(guarded_graph* graph, const hy_graph_node* node);
void guarded_graph_spoil(guarded_graph* graph, const char* why);

// ---- peaks ----

hy_status guarded_peak(void* device, hy_peak kind, hy_dtype dtype, void* dst, const void* src,
                       size_t bytes, double* per_second);

// ---- compilation: a language of postfix expressions ----

typedef struct guarded_kernel guarded_kernel;

// A launch with pointers into the store.
enum { GUARDED_MAX_OPERANDS = 8 };
typedef struct guarded_launch {
  const guarded_kernel* kernel;
  float* out;
  const float* in[GUARDED_MAX_OPERANDS];
  float scalar[GUARDED_MAX_OPERANDS];
  uint64_t count;
} guarded_launch;

hy_status guarded_compile(void* device, const char* source, const char* flags, void** module);
hy_status guarded_compile_flags(void* device, char* text, size_t size);
hy_status guarded_module_kernel(void* device, void* module, const char* name, void** kernel);
hy_status guarded_kernel_launch(void* device, void* stream, void* kernel, const hy_launch* launch);
void guarded_module_destroy(void* device, void* module);
hy_status guarded_launch_localize(guarded_device* device, const guarded_kernel* kernel,
                                  const hy_launch* launch, guarded_launch* local);
void guarded_launch_run(const guarded_launch* launch);

// ---- options ----

// Takes optional functions away, or puts wrong ones in their place, as the environment says.
hy_status guarded_optional_init(hy_backend* backend);
// Puts a wrong function of those that every backend has in its place; false: the word names none.
bool guarded_go_wrong(hy_backend* backend, const char* word);

// ---- kernels ----

// Replaces device addresses in tensors by pointers into the store.
hy_status guarded_localize(guarded_device* device, hy_tensor* tensors, int n);
hy_status guarded_run_call(const hy_call* call);  // on a worker

// Fills the provider from the options; unknown op names are an error.
hy_status guarded_kernels_init(void);
uint32_t guarded_capabilities(void);
uint32_t guarded_dtypes(void);
extern hy_provider guarded_provider;

#endif  // HALYARD_TESTS_GUARDED_H_
