// The plugin ABI: how a backend provides devices, memory, streams and kernels.
//
// A plugin is a shared object that exports one function, halyard_backend_query. It includes this
// header and the four below it (status.h, tensor.h, call.h, version.h), and links nothing: what it
// needs of the library comes through hy_host.
//
// Stability: structs lead with their size and grow at the end only; enumerators keep their values;
// HY_ABI_VERSION is raised when a meaning changes. A field beyond a struct's `size` reads as zero
// or NULL. Optional functions may be NULL and say so; the library never makes an optional function
// required within one ABI version.
//
// Threading: the library may call any function from several threads at once, except that calls on
// the same stream are never concurrent. The exceptions to that are stream_query and event_record,
// which may run concurrently with other calls on their stream, because any thread may allocate and
// free memory. To report a failure, call hy_host.fail with the message and return its status.
#ifndef HALYARD_PLUGIN_H_
#define HALYARD_PLUGIN_H_

#include "halyard/call.h"
#include "halyard/version.h"

#ifdef __cplusplus
extern "C" {
#endif

#define HY_ABI_VERSION 1u

// ---- Probe reports ----

// How far a probe got. A backend is available only at READY.
#define HY_STAGE_MAP(X)                                          \
  X(NONE, 0, "none", "nothing was tried")                        \
  X(FOUND, 1, "found", "the hardware or its library was found")  \
  X(LOADED, 2, "loaded", "the library was loaded")               \
  X(SYMBOLS, 3, "symbols", "the functions needed are all there") \
  X(VERSION, 4, "version", "driver and library versions fit")    \
  X(DEVICES, 5, "devices", "at least one device answered")       \
  X(READY, 6, "ready", "a small kernel ran and gave the right answer")

typedef enum hy_stage {
#define HY_AS_ENUM(name, value, key, text) HY_STAGE_##name = value,
  HY_STAGE_MAP(HY_AS_ENUM)
#undef HY_AS_ENUM
} hy_stage;

// The result of a probe. The library zeroes it first.
typedef struct hy_probe {
  size_t size;
  hy_stage stage;     // the last stage that succeeded
  hy_status status;   // HY_OK, or why the next stage failed
  char library[256];  // the library that was loaded, if any
  char reason[512];   // why it stopped; empty when READY
  char remedy[256];   // what the user can do about it
} hy_probe;

// ---- What the library offers to a plugin ----

typedef struct hy_host {
  size_t size;
  uint32_t abi;
  // Sets the calling thread's error message and returns `status`.
  hy_status (*fail)(hy_status status, const char* format, ...);
  // Level 1 warnings, 2 information, 3 detail; printed when HALYARD_LOG is at least that.
  void (*log)(int level, const char* format, ...);
  // Runs the reference kernel of a call whose tensors are in host memory. Thread-safe.
  hy_status (*reference)(const hy_call* call);
  const char* (*op_name)(hy_op op);
  // The calling thread's last error message, for a worker thread that reports an asynchronous
  // error.
  const char* (*last_error)(void);
  // Loads the first of the space-separated `names` that can be loaded: from the system's library
  // paths, then from the space-separated absolute `folders`, which may start with a variable
  // ("$ROCM_PATH/lib") and may be NULL. Never searches the current folder. Fills in the report's
  // library, and on failure its status, reason and stage; the report may be NULL. Libraries are
  // never unloaded.
  hy_status (*open_library)(const char* names, const char* folders, hy_probe* report,
                            void** library);
  // Which of `count` devices the environment makes visible. The first of the space-separated
  // `variables` that is set decides: indices separated by commas, -1 ends the list, an empty value
  // hides all. `map` has room for `count` and receives the device number of each visible device.
  hy_status (*visible_devices)(const char* variables, int count, int* map, int* n_visible);
} hy_host;

// ---- Devices ----

// A capability may be claimed only for kernels that pass conformance.
// clang-format off
#define HY_CAPABILITY_MAP(X) \
  X(FP32, 0, "fp32") X(FP16, 1, "fp16") X(BF16, 2, "bf16") X(FP8, 3, "fp8") X(INT8, 4, "int8") \
  X(INT4, 5, "int4") X(SPARSE_2_4, 6, "sparse_2_4") X(FLASH_ATTENTION, 7, "flash_attention") \
  X(PAGED_ATTENTION, 8, "paged_attention") X(FUSED_MOE, 9, "fused_moe") X(NCCL, 10, "nccl") \
  X(HCCL, 11, "hccl") X(FP64, 12, "fp64")
// clang-format on

typedef enum hy_capability {
#define HY_AS_ENUM(name, bit, key) HY_CAP_##name = 1 << bit,
  HY_CAPABILITY_MAP(HY_AS_ENUM)
#undef HY_AS_ENUM
} hy_capability;

typedef struct hy_device_info {
  size_t size;
  char name[128];
  int32_t compute_major, compute_minor;  // 0.0 if not applicable
  uint64_t memory_total, memory_free;    // bytes
  uint64_t max_shared_memory;            // bytes per thread block; 0 if not applicable
  int32_t core_count;                    // cores, multiprocessors or clusters, as the vendor counts
  uint32_t capabilities;                 // hy_capability bits
  uint32_t dtypes;  // HY_DTYPE_BIT set of types that the device stores and computes
  char driver_version[64];
  char sdk_version[64];
  char pci[16];          // "0000:3b:00.0", or empty
  char properties[512];  // free-form "key=value" lines
} hy_device_info;

// ---- Kernels ----

// Whether a provider runs a call, and if not, why.
#define HY_SUPPORT_MAP(X)                                          \
  X(YES, 0, "yes")                                                 \
  X(NO_OP, 1, "the op has no kernel")                              \
  X(NO_DTYPE, 2, "the kernel lacks this data type")                \
  X(NO_LAYOUT, 3, "the kernel lacks this layout or these strides") \
  X(NO_SHAPE, 4, "the kernel lacks this shape or rank")            \
  X(NO_ATTRIBUTE, 5, "the kernel lacks this attribute value")      \
  X(NO_HARDWARE, 6, "this device lacks the instructions")          \
  X(NO_OUTPUT, 7, "the kernel lacks an optional output")

typedef enum hy_support {
#define HY_AS_ENUM(name, value, text) HY_SUPPORT_##name = value,
  HY_SUPPORT_MAP(HY_AS_ENUM)
#undef HY_AS_ENUM
} hy_support;

// A promise that conformance verifies: every generated call of this op runs natively if its first
// tensor has one of these types, its tensors are contiguous, and its types need neither promotion
// nor a cast. A provider may run more than it declares, never less.
typedef struct hy_declaration {
  hy_op op;
  uint32_t dtypes;  // HY_DTYPE_BIT set, and what follows
} hy_declaration;
// Among a declaration's types: promised are only the calls whose optional outputs are absent. The
// others may be refused with HY_SUPPORT_NO_OUTPUT.
#define HY_WITHOUT_OPTIONAL_OUTPUTS (1u << 31)
// The same for elementwise ops with two inputs: promised are only the calls whose tensors have one
// shape, and whose alpha is 1. The others may be refused with HY_SUPPORT_NO_SHAPE or
// HY_SUPPORT_NO_ATTRIBUTE: the library spreads broadcasts by copies on the device, and multiplies
// by alpha with mul_scalar or mul.
#define HY_FLAT_ONLY (1u << 30)
// Among the types of linear_int8: it runs, and with many rows dequantize and a product of floats
// are faster here. Those who may choose ask hy_prefers_unpacked.
#define HY_UNPACK_FIRST (1u << 29)

typedef enum hy_provider_flag {
  // Used, and probed, only if a user names it: for libraries that are costly to load or that
  // duplicate the kernels of the providers before them.
  HY_PROVIDER_BY_NAME = 1,
  // Its results may depend on timing or on the number of threads: skipped in deterministic mode.
  HY_PROVIDER_VARIES = 2,
} hy_provider_flag;

// ---- Chains ----

#define HY_CHAIN_STEPS 16
#define HY_CHAIN_TENSORS 12

// One call of a chain. `in` says where an input comes from: k >= 0 is input k of the chain, and
// -1 - s the result of step s, which is an earlier one.
typedef struct hy_chain_step {
  hy_op op;
  int32_t n_in;
  int32_t in[3];
  hy_dtype dtype;  // of the result
  int32_t out;     // the output of the chain that holds the result; -1: nobody wants it afterwards
  int32_t reserved;
  hy_attrs attrs;
} hy_chain_step;

// Elementwise calls that feed one another, run as one loop nest: results between them need no
// memory. All are computed over one shape, to which the inputs broadcast; the last step alone may
// reduce the last dimension (sum, mean) of an earlier step's result. An output may be exactly an
// input, and is otherwise apart from all of them. Plain data, as a call is; owns nothing.
typedef struct hy_chain {
  size_t size;
  const hy_tensor* in;
  hy_tensor* out;
  const hy_chain_step* steps;
  int32_t n_in, n_out, n_steps;
  int32_t ndim;
  int64_t shape[HY_MAX_DIMS];
} hy_chain;

struct hy_graph_node;

// A library of kernels on a backend's devices. `device` and `stream` are the backend's own handles.
typedef struct hy_provider {
  size_t size;
  const char* name;
  const char* version;
  hy_status (*probe)(hy_probe* report);  // NULL: always ready
  const hy_declaration* declares;
  int32_t n_declares;
  // Must be cheap and pure. No policy: the library or the user decides which provider is better.
  hy_support (*supports)(void* device, const hy_call* call);
  // Enqueues the call, which has been checked against the op table. Tensors and attributes are
  // valid only during the call: copy what is needed later. Calls that read the outputs may follow
  // immediately.
  hy_status (*run)(void* device, void* stream, const hy_call* call);
  uint32_t flags;  // hy_provider_flag bits
  uint32_t reserved;
  // Optional; both go together. Values are those of the calls made one after another, in rounding
  // too where the calls' own kernels round so. Without them a graph's calls stay calls.
  hy_support (*supports_chain)(void* device, const hy_chain* chain);
  hy_status (*run_chain)(void* device, void* stream, const hy_chain* chain);
  // Optional; both go together. Tile choices: in how many ways a call or chain that it supports can
  // be run, 1 where there is no choice. Way 0 is `run` or `run_chain`; hy_graph_optimize compares
  // the values of the others with it, and times them.
  int32_t (*variants)(void* device, const struct hy_graph_node* node);
  hy_status (*run_variant)(void* device, void* stream, const struct hy_graph_node* node,
                           int32_t variant);
  // Optional; all three go together. Packed weights: what the matrix that a call multiplies by
  // takes in the form in which its kernel reads it, in bytes, and in `matrix` that input as [K, N];
  // 0 where no copy in such a form makes the call faster by some percent. A graph that is told that
  // the matrix stays (hy_graph_pack) has it packed once. Equal matrices are packed equally,
  // whatever call reads them.
  uint64_t (*packed_bytes)(void* device, const hy_call* call, hy_tensor* matrix);
  hy_status (*pack)(void* device, void* stream, const hy_tensor* matrix, void* packed);
  // What `run` gives, to the bit, with the matrix read from where it was packed.
  hy_status (*run_packed)(void* device, void* stream, const hy_call* call, const void* packed);
} hy_provider;

// ---- Backends ----

typedef enum hy_copy_kind {
  HY_COPY_HOST_TO_HOST = 0,
  HY_COPY_HOST_TO_DEVICE = 1,
  HY_COPY_DEVICE_TO_HOST = 2,
  HY_COPY_DEVICE_TO_DEVICE = 3,
  HY_COPY_DEFAULT = 4,  // resolved by the library before a backend sees it
} hy_copy_kind;

// An error that occurred after the call that caused it returned.
typedef struct hy_async_error {
  hy_status status;
  hy_op op;  // HY_OP_NONE for a copy, memset, collective or launch
  char message[256];
} hy_async_error;

// ---- Types of the optional functions ----

// What a graph holds: one per call of hy_provider.run, hy_provider.run_chain, copy, set or
// kernel_launch made on the capturing stream, in that order. Owns nothing. A backend that captures
// sees no COLLECTIVE: such graphs are replayed by calls.
typedef enum hy_node_kind {
  HY_NODE_CALL = 0,
  HY_NODE_COPY = 1,
  HY_NODE_SET = 2,
  HY_NODE_LAUNCH = 3,
  HY_NODE_CHAIN = 4,
  HY_NODE_COLLECTIVE = 5,
} hy_node_kind;

// One argument of a kernel compiled at run time, passed by value.
typedef struct hy_kernel_arg {
  const void* value;
  uint32_t bytes;
  uint32_t is_address;  // 1: a device address, which a graph may rebind; else 0
} hy_kernel_arg;

typedef struct hy_launch {
  size_t size;
  uint32_t grid[3], block[3];  // blocks in the grid, threads in a block; at least 1 each
  uint64_t shared_bytes;       // memory shared by a block, beyond what the kernel declares
  const hy_kernel_arg* args;   // only valid during the call
  int32_t n_args;
  int32_t reserved;
} hy_launch;

typedef enum hy_reduce_op {
  HY_REDUCE_SUM = 0,
  HY_REDUCE_PROD = 1,
  HY_REDUCE_MIN = 2,
  HY_REDUCE_MAX = 3,
  HY_REDUCE_AVG = 4,  // the sum divided by the number of ranks; floating point only
} hy_reduce_op;

typedef enum hy_collective_kind {
  HY_COLLECTIVE_ALL_REDUCE = 0,
  HY_COLLECTIVE_ALL_GATHER = 1,
  HY_COLLECTIVE_REDUCE_SCATTER = 2,
  HY_COLLECTIVE_BROADCAST = 3,
  HY_COLLECTIVE_BARRIER = 6,
} hy_collective_kind;

// A collective as comm.h has it, as plain data.
typedef struct hy_collective {
  size_t size;
  struct hy_comm* comm;  // the caller's, which outlives the graph
  hy_collective_kind kind;
  hy_dtype dtype;
  hy_reduce_op op;   // ALL_REDUCE, REDUCE_SCATTER
  int32_t root;      // BROADCAST
  int64_t count;     // of elements
  const void* send;  // NULL in a BROADCAST, whose buffer is `recv`
  void* recv;
} hy_collective;

typedef struct hy_graph_node {
  size_t size;
  hy_node_kind kind;
  int32_t value;                    // SET: the byte
  const hy_call* call;              // CALL
  void* dst;                        // COPY, SET
  const void* src;                  // COPY
  uint64_t bytes;                   // COPY, SET
  void* kernel;                     // LAUNCH: the backend's handle
  const hy_launch* launch;          // LAUNCH
  const hy_chain* chain;            // CHAIN
  const hy_collective* collective;  // COLLECTIVE
} hy_graph_node;

// What rank 0 makes and every rank needs to find the others; sent by the caller's own means. As
// large as the largest vendor's.
#define HY_COMM_ID_BYTES 4352
typedef struct hy_comm_id {
  uint8_t bytes[HY_COMM_ID_BYTES];
} hy_comm_id;

// What another process needs to reach an allocation of this one: plain bytes, sent by the caller's
// own means.
#define HY_MEMORY_BLOB_BYTES 192
typedef struct hy_memory_blob {
  uint8_t bytes[HY_MEMORY_BLOB_BYTES];
} hy_memory_blob;

// What a device can do at most, for benchmarks to compare with (the roofline).
typedef enum hy_peak {
  HY_PEAK_MULTIPLY_ADD = 0,  // operations a second in products of a type, two a multiply-add
  HY_PEAK_READ = 1,          // bytes a second
  HY_PEAK_COPY = 2,          // bytes a second, those read and those written
} hy_peak;

typedef enum hy_backend_flag {
  HY_BACKEND_HOST_MEMORY =
      1,  // the host may dereference device addresses, and calls finish before they return
  // A simulator, and slow: never the default, used only when named.
  HY_BACKEND_SIMULATED = 2,
  // Subnormal numbers are taken for zeros, and functions are made of others: where a square or a
  // reciprocal leaves the range of f32, a result may be 0 or infinite. Conformance then stays
  // within 2^-31 and 2^15, and lets subnormal results vanish.
  HY_BACKEND_NARROW_RANGE = 4,
} hy_backend_flag;

typedef struct hy_backend {
  size_t size;
  uint32_t abi;
  uint32_t flags;    // hy_backend_flag bits
  const char* name;  // lower case, as in selectors
  const char* version;
  const char* description;

  // Looks for devices without disturbing other users of the vendor's library. Never prints or ends
  // the process. Reports the number of devices; must be quick if the hardware is absent.
  hy_status (*probe)(hy_probe* report, int* device_count);
  hy_status (*device_info)(int index, hy_device_info* info);
  // Opens a device for use; `device` is then passed to the functions below until device_close.
  hy_status (*device_open)(int index, void** device);
  void (*device_close)(void* device);
  // Waits for all work on the device. May be NULL with inline streams.
  hy_status (*device_sync)(void* device);

  // Raw memory, 64-byte aligned; the library's caching allocator is built on it. On
  // HY_OUT_OF_MEMORY the library flushes its cache and retries. Cached memory is freed only after
  // device_sync.
  hy_status (*memory_alloc)(void* device, size_t bytes, void** address);
  void (*memory_free)(void* device, void* address);
  hy_status (*memory_info)(void* device, uint64_t* free_bytes, uint64_t* total_bytes);
  // Pinned host memory, for fast copies to and from this device. NULL: ordinary memory is used.
  hy_status (*host_alloc)(void* device, size_t bytes, void** address);
  void (*host_free)(void* device, void* address);

  // Ordered on the stream. The host memory of an asynchronous copy stays valid until the copy is
  // done.
  hy_status (*copy)(void* device, void* stream, void* dst, const void* src, size_t bytes,
                    hy_copy_kind kind);
  hy_status (*set)(void* device, void* stream, void* dst, int value, size_t bytes);

  // In-order queues. stream_query returns HY_NOT_READY while work is pending. A backend whose calls
  // finish before they return leaves everything from here to stream_wait_event NULL: it gets inline
  // streams, with events that read the host's clock. Otherwise all of them are required except
  // stream_error.
  hy_status (*stream_create)(void* device, void** stream);
  void (*stream_destroy)(void* device, void* stream);
  hy_status (*stream_sync)(void* device, void* stream);
  hy_status (*stream_query)(void* device, void* stream);
  // The first asynchronous failure on the stream since it was created; status HY_OK if there is
  // none. Once reported, the stream rejects work until it is destroyed. NULL for a backend whose
  // calls finish before they return.
  void (*stream_error)(void* device, void* stream, hy_async_error* error);
  hy_status (*event_create)(void* device, void** event);
  void (*event_destroy)(void* device, void* event);
  hy_status (*event_record)(void* device, void* event, void* stream);
  hy_status (*event_query)(void* device, void* event);
  hy_status (*event_sync)(void* device, void* event);
  hy_status (*event_elapsed)(void* device, void* start, void* stop, double* milliseconds);
  hy_status (*stream_wait_event)(void* device, void* stream, void* event);

  // Kernels, in the backend's own order of preference.
  const hy_provider* const* providers;
  int32_t n_providers;
  int32_t reserved;

  // ---- Optional: every function below may be NULL ----
  //
  // Without one, the library does without (graphs are replayed call by call, peers are copied
  // through the host) or answers HY_UNSUPPORTED. Functions that go together are all there or all
  // NULL. `halyard verify` checks what is there.

  // Graph capture. All but graph_update go together.
  //
  // Between capture_begin and capture_end, work given to the stream by hy_provider.run, copy
  // (device to device), set and kernel_launch is recorded and not run. The library calls nothing
  // else on a capturing stream. Meanwhile any thread may use other streams, capture on them, and
  // call memory_alloc, memory_free and device_sync, which passes over capturing streams.
  hy_status (*capture_begin)(void* device, void* stream);
  // The stream takes work as usual afterwards, also after a failure. `graph` is the backend's and
  // is released by graph_destroy; where `graph` is NULL the capture is dropped.
  hy_status (*capture_end)(void* device, void* stream, void** graph);
  // Enqueues the whole graph on a stream of the device, not necessarily the one that captured. The
  // library orders the launches of one graph one after another.
  hy_status (*graph_launch)(void* device, void* graph, void* stream);
  // Gives node number `node` new addresses, attributes or arguments; op, shapes, types, sizes and
  // kernel are as captured. Later launches use them, earlier ones are not disturbed. NULL, or
  // HY_UNSUPPORTED for this node: the library captures the graph anew.
  hy_status (*graph_update)(void* device, void* graph, int32_t node, const hy_graph_node* now);
  void (*graph_destroy)(void* device, void* graph);  // its launches are done

  // Communicators: one per rank, on one device. All go together but group_begin and group_end,
  // which go together.
  //
  // Collectives are enqueued on the stream and ordered with its other work; every rank makes the
  // same ones in the same order. `count` is in elements of `dtype`; addresses are the device's.
  // Calls that name the same communicator are never concurrent, but for comm_abort and
  // comm_async_error. Ranks may be threads, unless the device's properties say "ranks=processes".
  hy_status (*comm_unique_id)(void* device, hy_comm_id* id);
  // Waits until all `n_ranks` ranks have called it with the same id; rank is 0 to n_ranks - 1.
  // HY_UNSUPPORTED where ranks may not share a device, or there are too many.
  hy_status (*comm_init_rank)(void* device, int32_t n_ranks, const hy_comm_id* id, int32_t rank,
                              void** comm);
  void (*comm_destroy)(void* device, void* comm);  // waits for its own work
  // Makes what is under way, on this rank at least, end with an error soon; any thread may call
  // it. Only comm_async_error and comm_destroy may follow.
  hy_status (*comm_abort)(void* device, void* comm);
  // HY_OK, or the first failure of a collective, such as a rank that died, with `error` filled.
  // Does not wait.
  hy_status (*comm_async_error)(void* device, void* comm, hy_async_error* error);
  // send == recv works in place.
  hy_status (*all_reduce)(void* device, void* comm, void* stream, const void* send, void* recv,
                          uint64_t count, hy_dtype dtype, hy_reduce_op op);
  // Every rank sends `count` elements; recv holds n_ranks * count, by rank. In place where send is
  // the rank's part of recv.
  hy_status (*all_gather)(void* device, void* comm, void* stream, const void* send, void* recv,
                          uint64_t count, hy_dtype dtype);
  // send holds n_ranks * count elements; recv gets the rank's `count`. In place where recv is the
  // rank's part of send.
  hy_status (*reduce_scatter)(void* device, void* comm, void* stream, const void* send, void* recv,
                              uint64_t count, hy_dtype dtype, hy_reduce_op op);
  hy_status (*broadcast)(void* device, void* comm, void* stream, void* buffer, uint64_t count,
                         hy_dtype dtype, int32_t root);
  // A send and the receive that meets it agree in count and type; those between two ranks meet in
  // order.
  hy_status (*send)(void* device, void* comm, void* stream, const void* buffer, uint64_t count,
                    hy_dtype dtype, int32_t peer);
  hy_status (*recv)(void* device, void* comm, void* stream, void* buffer, uint64_t count,
                    hy_dtype dtype, int32_t peer);
  hy_status (*barrier)(void* device, void* comm, void* stream);
  // What the calling thread starts between these two proceeds together at group_end, so that
  // sends and receives in any order, or several communicators in one thread, do not wait for one
  // another. An empty group does nothing, and fails where there can be no communicator: so
  // hy_comm_supported asks.
  hy_status (*group_begin)(void* device);
  hy_status (*group_end)(void* device);

  // Peers: two devices of this backend. Both go together. peer_access answers in `possible`
  // whether copy_peer works from `peer` to `device`. copy_peer is ordered on `stream`, which is of
  // `device`, the destination; the library has seen to it that the source is ready.
  hy_status (*peer_access)(void* device, void* peer, int32_t* possible);
  hy_status (*copy_peer)(void* device, void* stream, void* dst, void* peer, const void* src,
                         uint64_t bytes);

  // The vendor's own handle of a stream (a CUstream, a queue): valid while the stream lives, owned
  // by it.
  hy_status (*stream_native)(void* device, void* stream, void** native);
  // Makes a stream of a native handle that somebody else owns and keeps alive; stream_destroy then
  // leaves the native one as it is.
  hy_status (*stream_wrap)(void* device, void* native, void** stream);
  // Both go together. Lower numbers run first, as everywhere in the field: `greatest` <= `least`,
  // and 0 is a stream_create.
  hy_status (*stream_priority_range)(void* device, int32_t* least, int32_t* greatest);
  hy_status (*stream_create_with_priority)(void* device, int32_t priority, void** stream);
  // The index of the device whose memory `address` is in, whoever allocated it; -1 where it is
  // none of this backend's.
  hy_status (*pointer_device)(const void* address, int32_t* index);

  // Memory between processes. All three go together. `address` begins an allocation of
  // memory_alloc, which lives until every importer has closed it. memory_import gives another
  // process the whole allocation; its address is for memory_close alone to release.
  hy_status (*memory_export)(void* device, void* address, hy_memory_blob* blob);
  hy_status (*memory_import)(void* device, const hy_memory_blob* blob, void** address);
  hy_status (*memory_close)(void* device, void* address);

  // Runtime compilation. All go together. `source` is in the backend's kernel language; `flags` are
  // blank-separated and come behind those of compile_flags. A source that does not compile is
  // HY_INVALID_ARGUMENT with the compiler's log as message. Modules may be used from any thread;
  // kernels live as long as their module, which outlives what was enqueued from it.
  hy_status (*compile)(void* device, const char* source, const char* flags, void** module);
  // What every source on this device is compiled with, the language first ("cuda
  // --gpu-architecture=sm_90a"); cut off where `size` is too small.
  hy_status (*compile_flags)(void* device, char* text, size_t size);
  hy_status (*module_kernel)(void* device, void* module, const char* name, void** kernel);
  hy_status (*kernel_launch)(void* device, void* stream, void* kernel, const hy_launch* launch);
  void (*module_destroy)(void* device, void* module);

  // Threads of the host that the device's kernels may use, the calling one included. Both go
  // together. A number that cannot be had is HY_INVALID_ARGUMENT and changes nothing; calls under
  // way go on as they began.
  hy_status (*set_threads)(void* device, int32_t n);
  hy_status (*threads)(void* device, int32_t* n);

  // One sample of a peak, which takes some milliseconds and waits for the device. MULTIPLY_ADD is
  // of `dtype` and uses no memory; READ reads `bytes` at src, COPY copies them to dst, both the
  // device's. HY_UNSUPPORTED for what it cannot measure.
  hy_status (*peak)(void* device, hy_peak kind, hy_dtype dtype, void* dst, const void* src,
                    size_t bytes, double* per_second);
} hy_backend;

// The one symbol that a plugin exports; its file is named libhalyard_<name>.so. `max_abi` is the
// newest version the library supports; a plugin that needs a newer one returns HY_ABI_MISMATCH.
// `host` and `*backend` stay valid until the process ends.
HY_API hy_status halyard_backend_query(uint32_t max_abi, const hy_host* host,
                                       const hy_backend** backend);
typedef hy_status (*hy_backend_query)(uint32_t max_abi, const hy_host* host,
                                      const hy_backend** backend);

#ifdef __cplusplus
}
#endif
#endif  // HALYARD_PLUGIN_H_
