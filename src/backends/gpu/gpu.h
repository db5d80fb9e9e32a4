// GPU backends: what the host side of cuda (and of others with the same shape of driver) is made
// of, and what a family of kernels is written against.
//
// A family is one function of a task. Asked with a task that has no stream it launches nothing and
// only says whether it could, so that "supports" and "run" cannot disagree:
//
//   hy_support hy__gpu_silu(hy__gpu_task* task, const hy_call* call) {
//     if (call->in[0].dtype != HY_F32) return HY_SUPPORT_NO_DTYPE;
//     if (!task->stream) return HY_SUPPORT_YES;
//     hy__gpu_function* kernel = hy__gpu_kernel(task, "unary", "silu", "-DT=f32");
//     hy__gpu_launch(task, kernel, hy__gpu_1d(blocks), hy__gpu_1d(256), 0,
//                    HY__GPU_ARGS(&out, &x, &n));
//     return HY_SUPPORT_YES;
//   }
//
// After a failure the helpers below do nothing, and the task ends with the first failure's status:
// a family need not look.
#ifndef HALYARD_BACKENDS_GPU_GPU_H_
#define HALYARD_BACKENDS_GPU_GPU_H_

#include <pthread.h>

#include "backends/common/host.h"
#include "backends/gpu/kernels/shared.h"
#include "halyard/plugin.h"

// The driver's handle of memory that another process may open; passed by value.
typedef struct hy__gpu_ipc_handle {
  char bytes[64];
} hy__gpu_ipc_handle;

typedef struct hy__gpu_driver {
#define HY_GPU_DRIVER(field, parameters) int(*field) parameters;
#include "backends/gpu/driver.def"
} hy__gpu_driver;

typedef struct hy__gpu_compiler {
#define HY_GPU_COMPILER(field, parameters) int(*field) parameters;
#include "backends/gpu/compiler.def"
} hy__gpu_compiler;

// A vendor's collectives, NCCL or RCCL; the id is passed by value.
typedef struct hy__gpu_nccl_id {
  char bytes[128];
} hy__gpu_nccl_id;

typedef struct hy__gpu_nccl {
#define HY_NCCL(field, symbol, parameters) int(*field) parameters;
#include "backends/gpu/nccl.def"
  const char* (*error_string)(int result);
  const char* (*last_error)(void* comm);  // NULL in old ones
} hy__gpu_nccl;

// One vendor's driver and compiler, bound. The backend's file fills the first part; the rest is
// written by the first probe and constant after it.
#define HY__GPU_MAX_DEVICES 64
typedef struct hy__gpu_blaslt hy__gpu_blaslt;  // blaslt.h
typedef struct hy__gpu_api hy__gpu_api;
struct hy__gpu_api {
  const char* name;              // of the backend, "cuda"
  const char* compiler_name;     // "NVRTC"
  const char* visible_variable;  // "CUDA_VISIBLE_DEVICES"
  const char* driver_tool;       // what tells whether the driver runs, "nvidia-smi"
  int least_driver;              // 12000 is 12.0
  uint32_t capabilities;         // hy_capability bits
  // Finds and binds the run-time compiler that fits driver_number.
  hy_status (*bind_compiler)(hy__gpu_api* api, hy_probe* report);
  // The compiler's option for a device, such as --gpu-architecture=sm_90a.
  void (*arch_option)(const hy__gpu_api* api, int index, char* option, size_t size);
  const char* parallel_option;  // of a compiler that uses several threads when told to, or NULL
  // Lanes that share a tile of kernels/mma_tile.cuh; 0 where kernels do without. NULL: 32.
  int (*mma_lanes)(const hy__gpu_api* api, int index);
  const char* ahead_compiler;  // "nvcc", which makes cubins at build time; NULL: none does
  void (*ahead_option)(int major, int minor, char* option, size_t size);  // its arch_option
  const char *nccl_name, *nccl_remedy;          // "NCCL", and how to come by it
  void* (*open_nccl)(char* path, size_t size);  // NULL where it is not found

  hy__gpu_driver driver;
  hy__gpu_compiler compiler;
  int driver_number, compiler_number;
  char compiler_path[256];
  int n_devices;
  struct hy__gpu_device* opened[HY__GPU_MAX_DEVICES];
  const hy__gpu_blaslt* blaslt;  // of the provider of matrix products, once it has been probed
  bool nccl_bound;               // by the first communicator
  hy__gpu_nccl nccl;
};

// ---- Devices and streams ----

typedef struct hy__gpu_module hy__gpu_module;
typedef struct hy__gpu_function hy__gpu_function;
#define HY__GPU_FUNCTIONS 2048  // entry points loaded at once, at most
typedef struct hy__gpu_device {
  hy__gpu_api* api;
  int index;      // the driver's ordinal
  void* context;  // the primary one, shared with whoever else uses this GPU in the process
  int compute_major, compute_minor;
  int multiprocessors, max_threads;
  int warp_size;   // what kernels call a warp; wider wavefronts hold several
  int mma_lanes;   // see hy__gpu_api
  int max_shared;  // bytes a block can have when the launch asks for them
  int l2_bytes;
  bool lost;  // by an error that sticks to the context; nothing works from then on
  char lost_by[160];
  pthread_mutex_t mutex;  // guards what follows
  struct hy__gpu_stream* streams;
  hy__gpu_module* modules;
  hy__gpu_function* functions[HY__GPU_FUNCTIONS];  // by hash
  uint32_t expects_model;     // dtypes whose kernels hy__gpu_expect_model has asked for
  void *blas, *dnn, *sparse;  // what the providers over the vendor's libraries keep for this device
} hy__gpu_device;

// Chunks of one stream's workspace. More than one only until the call that needed them has ended.
#define HY__GPU_CHUNKS 16
typedef struct hy__gpu_workspace_chunks {
  uint64_t address[HY__GPU_CHUNKS];
  size_t size[HY__GPU_CHUNKS], used;
  int count;
} hy__gpu_workspace_chunks;

// Where kernels write the first bad value they meet: page-locked, so that looking costs the host a
// load. One for each stream and one for each graph, which the streams it is launched on look at
// too.
typedef struct hy__gpu_fault_cell {
  hy_gpu_fault* fault;
  uint64_t address;  // the same memory as kernels see it
  int references;    // atomic
} hy__gpu_fault_cell;

// What kernels of a stream need beside their tensors. A capture has its own, which its graph keeps.
typedef struct hy__gpu_resources {
  hy__gpu_fault_cell* faults;
  uint64_t counters;  // HY__GPU_COUNTERS words of 0; 0 until they are needed
  void* blas;         // a handle of api->blaslt that is of one stream; NULL until it is needed
  hy__gpu_workspace_chunks workspace;
} hy__gpu_resources;
// Without what comes when it is needed.
hy_status hy__gpu_resources_create(hy__gpu_device* device, hy__gpu_resources* r);
// What no kernel under way uses.
void hy__gpu_resources_destroy(hy__gpu_device* device, hy__gpu_resources* r);
hy_status hy__gpu_resources_count(hy__gpu_device* device, void* queue, hy__gpu_resources* r);
void hy__gpu_faults_release(hy__gpu_device* device, hy__gpu_fault_cell* cell);

// Memory that kernels which may still run write: the last kernel launched in the usual way, and
// those launched behind it by hy__gpu_launch_dependent.
#define HY__GPU_WRITTEN 256
typedef struct hy__gpu_written {
  const char *first[HY__GPU_WRITTEN], *last[HY__GPU_WRITTEN];
  int count;
  bool unknown;  // and others
} hy__gpu_written;

#define HY__GPU_GRAPHS 15  // whose faults a stream looks at, at most
typedef struct hy__gpu_stream {
  hy__gpu_device* device;
  struct hy__gpu_stream *next, **link;  // all of the device's; guarded by its mutex
  void* queue;                          // the driver's
  bool borrowed;                        // the queue is somebody else's
  bool capturing;
  hy__gpu_resources use;    // the stream's, or those of the capture under way
  hy__gpu_resources aside;  // the stream's, during a capture
  hy__gpu_written written;
  hy_op last_op;
  pthread_mutex_t mutex;  // guards what follows
  hy_async_error error;   // the first
  hy__gpu_fault_cell* graphs[HY__GPU_GRAPHS];
  int n_graphs;
} hy__gpu_stream;

// Makes the device's context current for the calling thread where it is not; true must be given to
// hy__gpu_leave.
bool hy__gpu_enter(const hy__gpu_device* device);
void hy__gpu_leave(const hy__gpu_device* device, bool entered);
// The status for a driver's error, its message naming what was being done. A sticky error marks the
// device lost.
hy_status hy__gpu_fail(hy__gpu_device* device, int error, const char* what);

// ---- Tasks ----

typedef struct hy__gpu_task {
  hy__gpu_device* device;
  hy__gpu_stream* stream;  // NULL: a question
  hy_op op;
  hy_status status;  // the first failure
  int launches;      // so far, of either kind
  bool independent;  // one of them was of the usual kind
} hy__gpu_task;

// Whether the device has NVIDIA's tensor cores, for kernels that are written in their terms.
static inline bool hy__gpu_mma_sync(const hy__gpu_task* task) {
  return task->device->mma_lanes == 32;
}

typedef hy_support (*hy__gpu_family)(hy__gpu_task* task, const hy_call* call);

typedef struct hy__gpu_dim3 {
  unsigned x, y, z;  // 0 counts as 1
} hy__gpu_dim3;
// How many tiles cover n.
static inline unsigned hy__gpu_tiles(int64_t n, int64_t tile) {
  return (unsigned)((n + tile - 1) / tile);
}

static inline hy__gpu_dim3 hy__gpu_1d(unsigned x) {
  return (hy__gpu_dim3){x, 1, 1};
}

// The entry point of kernels/<file>.cu, compiled with `options` ("-DT=bf16 -DTILE=128", separated
// by blanks) at its first use, on this device, by anyone who shares the cache folder. Entries are
// extern "C". One compilation makes all entries of a file: keep the number of option sets small.
hy__gpu_function* hy__gpu_kernel(hy__gpu_task* task, const char* file, const char* entry,
                                 const char* options);
// The same of a file with machine code, which somebody else compiled.
hy__gpu_function* hy__gpu_kernel_of_file(hy__gpu_task* task, const char* path, const char* entry);
// Starts to compile, in threads, the kernels of a language model in this type: its first op says
// that the others will follow.
void hy__gpu_expect_model(hy__gpu_task* task, hy_dtype dtype);
// Arguments are pointers to values whose types are exactly those of the kernel's parameters.
#define HY__GPU_ARGS(...) ((void*[]){__VA_ARGS__})
// Launches; dynamic shared memory is asked for here: the 48 KiB that need no asking include static
// shared memory, which only the compiler counts. No launch where a grid size is 0.
void hy__gpu_launch(hy__gpu_task* task, hy__gpu_function* function, hy__gpu_dim3 grid,
                    hy__gpu_dim3 block, size_t shared_bytes, void** arguments);

// The same for a kernel that heeds kernels/dependent.cuh: it may start while kernels before it run.
void hy__gpu_launch_dependent(hy__gpu_task* task, hy__gpu_function* function, hy__gpu_dim3 grid,
                              hy__gpu_dim3 block, size_t shared_bytes, void** arguments);
// Whether such a kernel, launched next, may read these tensors before it waits; absent ones count
// as readable.
bool hy__gpu_readable_early(const hy__gpu_task* task, const hy_tensor* const* tensors, int n);

// After a call: its outputs are under way.
void hy__gpu_note_written(hy__gpu_task* task, const hy_call* call);

// Device memory until the end of the call, 256-byte aligned, in the stream's order. Each request of
// a call gets its own. 0 after a failure.
uint64_t hy__gpu_workspace(hy__gpu_task* task, size_t bytes);
// Starts a call: what the one before it had is free again.
hy_status hy__gpu_workspace_begin(hy__gpu_stream* stream);
// Words that are 0 when a kernel starts and that the kernel leaves at 0: for last-block reductions
// and the like.
#define HY__GPU_COUNTERS 65536
uint64_t hy__gpu_counters(hy__gpu_task* task);
void hy__gpu_set(hy__gpu_task* task, uint64_t address, int value, size_t bytes);
// Ends the task with a failure of its own.
void hy__gpu_refuse(hy__gpu_task* task, hy_status status, const char* message);

// Blocks of `threads` for n elements, `each` a thread; at most eight times what the device holds at
// once: kernels go through their elements in a grid-stride loop.
unsigned hy__gpu_blocks(const hy__gpu_task* task, int64_t n, int threads, int each);

// ---- Tensors ----

// "-DT=bf16", or "-DT=i32 -DINTEGER"; T is then the type's name in common.cuh (b8 for bool).
const char* hy__gpu_option(hy_dtype dtype);
// The name alone, to build other options.
const char* hy__gpu_type_name(hy_dtype dtype);

// A tensor as kernels see it.
hy_gpu_view hy__gpu_view(const hy_tensor* t);
// Several tensors broadcast to the shape of `shape_of`, with merged dimensions.
hy_gpu_walk hy__gpu_walk(const hy_tensor* shape_of, int count, const hy_tensor* const* tensors);
// Whether every tensor of the walk is one contiguous run.
bool hy__gpu_walk_is_linear(const hy_gpu_walk* walk);
// The same elements contiguous: the tensor itself, or a copy in the workspace.
hy_tensor hy__gpu_contiguous(hy__gpu_task* task, const hy_tensor* t);
// A contiguous tensor in the workspace.
hy_tensor hy__gpu_temporary(hy__gpu_task* task, hy_dtype dtype, int ndim, const int64_t* shape);
// A contiguous tensor to write in place of `out`: itself, or a temporary one that out_end copies.
hy_tensor hy__gpu_out_begin(hy__gpu_task* task, const hy_tensor* out);
void hy__gpu_out_end(hy__gpu_task* task, const hy_tensor* out, const hy_tensor* written);
// dst = src, broadcast and converted, any strides; both strided (not packed) types.
void hy__gpu_copy(hy__gpu_task* task, const hy_tensor* dst, const hy_tensor* src);

// out = function ("sum", "prod", "max", ...) of x over the dimensions of `mask`, divided where
// `divisor` is not NULL; `centre` is for "squares". out has x's dimensions without those of the
// mask, or all of x's.
void hy__gpu_reduce(hy__gpu_task* task, const char* function, const hy_tensor* x, uint32_t mask,
                    const hy_tensor* out, const double* divisor, const void* centre);

static inline bool hy__gpu_present(const hy_tensor* t) {
  return t->dtype != HY_NONE;
}

#define HY__GPU_NEED(condition, answer)           \
  do {                                            \
    if (!(condition)) return HY_SUPPORT_##answer; \
  } while (0)

// ---- Providers ----

// The kernels of ops.def, for a backend's table.
hy_support hy__gpu_supports(void* device, const hy_call* call);
hy_status hy__gpu_run(void* device, void* stream, const hy_call* call);
hy_support hy__gpu_supports_chain(void* device, const hy_chain* chain);
hy_status hy__gpu_run_chain(void* device, void* stream, const hy_chain* chain);
extern const hy_declaration hy__gpu_declarations[];
extern const int hy__gpu_n_declarations;
// The same as a family, for a provider that leaves a call to them.
hy_support hy__gpu_own(hy__gpu_task* task, const hy_call* call);
// Asks `family` and runs it: what a provider's run function is made of.
hy_status hy__gpu_run_family(void* device, void* stream, const hy_call* call,
                             hy__gpu_family family);

#define GPU_OP(op, family, dtypes) hy_support hy__gpu_##family(hy__gpu_task*, const hy_call*);
#include "backends/gpu/ops.def"

// ---- The functions of a backend's table ----

// Reads devices through the bound driver; `report` is at SYMBOLS when it is called.
hy_status hy__gpu_probe(hy__gpu_api* api, hy_probe* report, int* device_count);
hy_status hy__gpu_device_info(hy__gpu_api* api, int index, hy_device_info* info);
hy_status hy__gpu_device_open(hy__gpu_api* api, int index, void** device);
void hy__gpu_device_close(void* device);
hy_status hy__gpu_device_sync(void* device);
hy_status hy__gpu_memory_alloc(void* device, size_t bytes, void** address);
void hy__gpu_memory_free(void* device, void* address);
hy_status hy__gpu_memory_info(void* device, uint64_t* free_bytes, uint64_t* total_bytes);
hy_status hy__gpu_host_alloc(void* device, size_t bytes, void** address);
void hy__gpu_host_free(void* device, void* address);
hy_status hy__gpu_copy_bytes(void* device, void* stream, void* dst, const void* src, size_t bytes,
                             hy_copy_kind kind);
hy_status hy__gpu_set_bytes(void* device, void* stream, void* dst, int value, size_t bytes);
hy_status hy__gpu_stream_create(void* device, void** stream);
void hy__gpu_stream_destroy(void* device, void* stream);
hy_status hy__gpu_stream_sync(void* device, void* stream);
hy_status hy__gpu_stream_query(void* device, void* stream);
void hy__gpu_stream_error(void* device, void* stream, hy_async_error* error);
hy_status hy__gpu_event_create(void* device, void** event);
void hy__gpu_event_destroy(void* device, void* event);
hy_status hy__gpu_event_record(void* device, void* event, void* stream);
hy_status hy__gpu_event_query(void* device, void* event);
hy_status hy__gpu_event_sync(void* device, void* event);
hy_status hy__gpu_event_elapsed(void* device, void* start, void* stop, double* milliseconds);
hy_status hy__gpu_stream_wait_event(void* device, void* stream, void* event);
hy_status hy__gpu_stream_native(void* device, void* stream, void** native);
hy_status hy__gpu_stream_wrap(void* device, void* native, void** stream);
hy_status hy__gpu_stream_priority_range(void* device, int32_t* least, int32_t* greatest);
hy_status hy__gpu_stream_create_with_priority(void* device, int32_t priority, void** stream);
hy_status hy__gpu_pointer_device(hy__gpu_api* api, const void* address, int32_t* index);
hy_status hy__gpu_capture_begin(void* device, void* stream);
hy_status hy__gpu_capture_end(void* device, void* stream, void** graph);
hy_status hy__gpu_graph_launch(void* device, void* graph, void* stream);
void hy__gpu_graph_destroy(void* device, void* graph);
hy_status hy__gpu_peer_access(void* device, void* peer, int32_t* possible);
hy_status hy__gpu_copy_peer(void* device, void* stream, void* dst, void* peer, const void* src,
                            uint64_t bytes);
hy_status hy__gpu_memory_export(void* device, void* address, hy_memory_blob* blob);
hy_status hy__gpu_memory_import(void* device, const hy_memory_blob* blob, void** address);
hy_status hy__gpu_memory_close(void* device, void* address);
hy_status hy__gpu_user_compile(void* device, const char* source, const char* flags, void** module);
hy_status hy__gpu_compile_flags(void* device, char* text, size_t size);
hy_status hy__gpu_module_kernel(void* device, void* module, const char* name, void** kernel);
hy_status hy__gpu_kernel_launch(void* device, void* stream, void* kernel, const hy_launch* launch);
void hy__gpu_module_destroy(void* device, void* module);
hy_status hy__gpu_comm_unique_id(void* device, hy_comm_id* id);
hy_status hy__gpu_comm_init_rank(void* device, int32_t n_ranks, const hy_comm_id* id, int32_t rank,
                                 void** comm);
void hy__gpu_comm_destroy(void* device, void* comm);
hy_status hy__gpu_comm_abort(void* device, void* comm);
hy_status hy__gpu_comm_async_error(void* device, void* comm, hy_async_error* error);
hy_status hy__gpu_all_reduce(void* device, void* comm, void* stream, const void* send, void* recv,
                             uint64_t count, hy_dtype dtype, hy_reduce_op op);
hy_status hy__gpu_all_gather(void* device, void* comm, void* stream, const void* send, void* recv,
                             uint64_t count, hy_dtype dtype);
hy_status hy__gpu_reduce_scatter(void* device, void* comm, void* stream, const void* send,
                                 void* recv, uint64_t count, hy_dtype dtype, hy_reduce_op op);
hy_status hy__gpu_broadcast(void* device, void* comm, void* stream, void* buffer, uint64_t count,
                            hy_dtype dtype, int32_t root);
hy_status hy__gpu_send(void* device, void* comm, void* stream, const void* buffer, uint64_t count,
                       hy_dtype dtype, int32_t peer);
hy_status hy__gpu_recv(void* device, void* comm, void* stream, void* buffer, uint64_t count,
                       hy_dtype dtype, int32_t peer);
hy_status hy__gpu_barrier(void* device, void* comm, void* stream);
hy_status hy__gpu_group_begin(void* device);
hy_status hy__gpu_group_end(void* device);
hy_status hy__gpu_peak(void* device, hy_peak kind, hy_dtype dtype, void* dst, const void* src,
                       size_t bytes, double* per_second);

// The slots of a backend's table that do not depend on the vendor.
#define HY__GPU_BACKEND_SLOTS                                                                     \
  .device_close = hy__gpu_device_close, .device_sync = hy__gpu_device_sync,                       \
  .memory_alloc = hy__gpu_memory_alloc, .memory_free = hy__gpu_memory_free,                       \
  .memory_info = hy__gpu_memory_info, .host_alloc = hy__gpu_host_alloc,                           \
  .host_free = hy__gpu_host_free, .copy = hy__gpu_copy_bytes, .set = hy__gpu_set_bytes,           \
  .stream_create = hy__gpu_stream_create, .stream_destroy = hy__gpu_stream_destroy,               \
  .stream_sync = hy__gpu_stream_sync, .stream_query = hy__gpu_stream_query,                       \
  .stream_error = hy__gpu_stream_error, .event_create = hy__gpu_event_create,                     \
  .event_destroy = hy__gpu_event_destroy, .event_record = hy__gpu_event_record,                   \
  .event_query = hy__gpu_event_query, .event_sync = hy__gpu_event_sync,                           \
  .event_elapsed = hy__gpu_event_elapsed, .stream_wait_event = hy__gpu_stream_wait_event,         \
  .stream_native = hy__gpu_stream_native, .stream_wrap = hy__gpu_stream_wrap,                     \
  .stream_priority_range = hy__gpu_stream_priority_range,                                         \
  .stream_create_with_priority = hy__gpu_stream_create_with_priority,                             \
  .capture_begin = hy__gpu_capture_begin, .capture_end = hy__gpu_capture_end,                     \
  .graph_launch = hy__gpu_graph_launch, .graph_destroy = hy__gpu_graph_destroy,                   \
  .peer_access = hy__gpu_peer_access, .copy_peer = hy__gpu_copy_peer,                             \
  .memory_export = hy__gpu_memory_export, .memory_import = hy__gpu_memory_import,                 \
  .memory_close = hy__gpu_memory_close, .compile = hy__gpu_user_compile,                          \
  .compile_flags = hy__gpu_compile_flags, .module_kernel = hy__gpu_module_kernel,                 \
  .kernel_launch = hy__gpu_kernel_launch, .module_destroy = hy__gpu_module_destroy,               \
  .comm_unique_id = hy__gpu_comm_unique_id, .comm_init_rank = hy__gpu_comm_init_rank,             \
  .comm_destroy = hy__gpu_comm_destroy, .comm_abort = hy__gpu_comm_abort,                         \
  .comm_async_error = hy__gpu_comm_async_error, .all_reduce = hy__gpu_all_reduce,                 \
  .all_gather = hy__gpu_all_gather, .reduce_scatter = hy__gpu_reduce_scatter,                     \
  .broadcast = hy__gpu_broadcast, .send = hy__gpu_send, .recv = hy__gpu_recv,                     \
  .barrier = hy__gpu_barrier, .group_begin = hy__gpu_group_begin, .group_end = hy__gpu_group_end, \
  .peak = hy__gpu_peak

#endif  // HALYARD_BACKENDS_GPU_GPU_H_
