// The plugin ABI: how a backend brings devices, memory, streams and kernels to Halyard.
//
// A plugin is a shared object that exports one function, halyard_backend_query. It includes this
// header and the three it stands on (status.h, tensor.h, call.h), and links nothing: what it needs
// of the library comes through hy_host.
//
// Stability: structs lead with their size and grow at the end only; enumerators keep their values;
// HY_ABI_VERSION is raised when a meaning changes. A field beyond a struct's `size` reads as zero
// or NULL. Optional functions may be NULL and say so; the library never makes an optional function
// required within one ABI version.
//
// Threading: the library may call any function from any thread at once, except that calls that name
// the same stream are never concurrent; only stream_query and event_record may meet other calls on
// their stream, for memory is freed and asked for by any thread. Failures are returned as a status
// after hy_host.fail has set the message.
#ifndef HALYARD_PLUGIN_H_
#define HALYARD_PLUGIN_H_

#include "halyard/call.h"

#ifdef __cplusplus
extern "C" {
#endif

#define HY_ABI_VERSION 1u

// ---- Probe reports ----

// How far looking for a device came. A backend is available only at READY.
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

// What a probe tried and how it ended. The library zeroes it first.
typedef struct hy_probe {
  size_t size;
  hy_stage stage;     // the last stage that succeeded
  hy_status status;   // HY_OK, or why the next stage failed
  char library[256];  // what was loaded, where one was
  char reason[512];   // why it stopped, in words; empty when READY
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
  // Runs the reference kernel of a call whose tensors lie in host memory. Thread-safe.
  hy_status (*reference)(const hy_call* call);
  const char* (*op_name)(hy_op op);
  // The message of the calling thread's last failure, as a worker needs it for an asynchronous
  // error.
  const char* (*last_error)(void);
  // Loads the first of the blank-separated `names` that can be loaded: from the system's paths,
  // then from the blank-separated absolute `folders`, which may start with a variable
  // ("$ROCM_PATH/lib") and may be NULL. The current folder is never searched. Fills library, and on
  // failure status, reason and stage of the report, which may be NULL. What is loaded stays loaded.
  hy_status (*open_library)(const char* names, const char* folders, hy_probe* report,
                            void** library);
  // Which of `count` devices the environment lets through. The first of the blank-separated
  // `variables` that is set counts: indices between commas, -1 ends the list, an empty value hides
  // all. `map` has room for `count` and receives the device behind each visible one.
  hy_status (*visible_devices)(const char* variables, int count, int* map, int* n_visible);
} hy_host;

// ---- Devices ----

// A claimed capability is backed by a kernel that passes conformance.
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
  int32_t compute_major, compute_minor;  // 0.0 where the notion does not exist
  uint64_t memory_total, memory_free;    // bytes
  uint64_t max_shared_memory;            // bytes a kernel's block may share; 0 where there is none
  int32_t core_count;                    // cores, multiprocessors, clusters: the vendor's unit
  uint32_t capabilities;                 // hy_capability bits
  uint32_t dtypes;                       // HY_DTYPE_BIT set of types the device stores and computes
  char driver_version[64];
  char sdk_version[64];
  char pci[16];          // "0000:3b:00.0", or empty
  char properties[512];  // free-form "key=value" lines
} hy_device_info;

// ---- Kernels ----

// The answer to "does this provider run this call?", with the reason for a no.
#define HY_SUPPORT_MAP(X)                                          \
  X(YES, 0, "yes")                                                 \
  X(NO_OP, 1, "the op has no kernel")                              \
  X(NO_DTYPE, 2, "the kernel lacks this data type")                \
  X(NO_LAYOUT, 3, "the kernel lacks this layout or these strides") \
  X(NO_SHAPE, 4, "the kernel lacks this shape or rank")            \
  X(NO_ATTRIBUTE, 5, "the kernel lacks this attribute value")      \
  X(NO_HARDWARE, 6, "this device lacks the instructions")

typedef enum hy_support {
#define HY_AS_ENUM(name, value, text) HY_SUPPORT_##name = value,
  HY_SUPPORT_MAP(HY_AS_ENUM)
#undef HY_AS_ENUM
} hy_support;

// A promise that conformance holds a provider to: of this op, every generated call whose first
// tensor has one of these types, whose tensors are contiguous and whose types need neither
// promotion nor a cast runs natively. A provider may run more than it declares, never less.
typedef struct hy_declaration {
  hy_op op;
  uint32_t dtypes;  // HY_DTYPE_BIT set
} hy_declaration;

typedef enum hy_provider_flag {
  // Asked, and probed, only when a user prefers it: for libraries that are costly to load or whose
  // kernels repeat those of the providers before it.
  HY_PROVIDER_BY_NAME = 1,
  // Its results may depend on timing or on the number of threads: passed over in deterministic
  // mode.
  HY_PROVIDER_VARIES = 2,
} hy_provider_flag;

// A library of kernels on a backend's devices. `device` and `stream` are the backend's own handles.
typedef struct hy_provider {
  size_t size;
  const char* name;
  const char* version;
  hy_status (*probe)(hy_probe* report);  // NULL: always ready
  const hy_declaration* declares;
  int32_t n_declares;
  // Must be cheap and pure: no policy (which provider is better is the library's or the user's
  // choice).
  hy_support (*supports)(void* device, const hy_call* call);
  // Enqueues the call, which has been checked against the op table. Tensors and attributes are only
  // valid during the call: copy what is needed later. May be followed at once by other calls that
  // read the outputs.
  hy_status (*run)(void* device, void* stream, const hy_call* call);
  uint32_t flags;  // hy_provider_flag bits
  uint32_t reserved;
} hy_provider;

// ---- Backends ----

typedef enum hy_copy_kind {
  HY_COPY_HOST_TO_HOST = 0,
  HY_COPY_HOST_TO_DEVICE = 1,
  HY_COPY_DEVICE_TO_HOST = 2,
  HY_COPY_DEVICE_TO_DEVICE = 3,
  HY_COPY_DEFAULT = 4,  // resolved by the library before a backend sees it
} hy_copy_kind;

// An error that happened after the call that caused it had returned.
typedef struct hy_async_error {
  hy_status status;
  hy_op op;  // HY_OP_NONE for a copy or memset
  char message[256];
} hy_async_error;

typedef enum hy_backend_flag {
  HY_BACKEND_HOST_MEMORY =
      1,  // device addresses may be followed by the host, and calls finish before they return
  // Runs on the host and is slow: never the automatic default, only when named.
  HY_BACKEND_SIMULATED = 2,
} hy_backend_flag;

typedef struct hy_backend {
  size_t size;
  uint32_t abi;
  uint32_t flags;    // hy_backend_flag bits
  const char* name;  // lower case, as in selectors
  const char* version;
  const char* description;

  // Looks for devices without disturbing other users of the vendor's library, never prints, never
  // fails the process. Reports the number of devices; must be quick where the hardware is absent.
  hy_status (*probe)(hy_probe* report, int* device_count);
  hy_status (*device_info)(int index, hy_device_info* info);
  // Opens a device for use; `device` is then passed to the functions below until device_close.
  hy_status (*device_open)(int index, void** device);
  void (*device_close)(void* device);
  // Waits for all work on the device. May be NULL with inline streams.
  hy_status (*device_sync)(void* device);

  // Raw memory, 64-byte aligned; the library caches on top. HY_OUT_OF_MEMORY makes the library
  // flush and retry. Cached memory is freed only after device_sync.
  hy_status (*memory_alloc)(void* device, size_t bytes, void** address);
  void (*memory_free)(void* device, void* address);
  hy_status (*memory_info)(void* device, uint64_t* free_bytes, uint64_t* total_bytes);
  // Host memory that copies to and from this device quickly. NULL: ordinary host memory serves.
  hy_status (*host_alloc)(void* device, size_t bytes, void** address);
  void (*host_free)(void* device, void* address);

  // Ordered on the stream. The host side of an asynchronous copy stays valid until the stream has
  // passed it.
  hy_status (*copy)(void* device, void* stream, void* dst, const void* src, size_t bytes,
                    hy_copy_kind kind);
  hy_status (*set)(void* device, void* stream, void* dst, int value, size_t bytes);

  // In-order queues. stream_query answers HY_NOT_READY while work is pending. A backend whose calls
  // finish before they return leaves everything from here to stream_wait_event NULL: it gets inline
  // streams, with events that read the host's clock. Otherwise all of them are required but
  // stream_error.
  hy_status (*stream_create)(void* device, void** stream);
  void (*stream_destroy)(void* device, void* stream);
  hy_status (*stream_sync)(void* device, void* stream);
  hy_status (*stream_query)(void* device, void* stream);
  // The first asynchronous failure on the stream since it was created, status HY_OK where there is
  // none; once reported, the stream refuses work until destroyed. NULL for a backend whose calls
  // finish before they return.
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
} hy_backend;

// The one symbol a plugin exports; its file is called libhalyard_<name>.so. `max_abi` is the newest
// version the library speaks; a plugin that needs a newer one returns HY_ABI_MISMATCH. `host` and
// `*backend` live until the process ends.
HY_API hy_status halyard_backend_query(uint32_t max_abi, const hy_host* host,
                                       const hy_backend** backend);
typedef hy_status (*hy_backend_query)(uint32_t max_abi, const hy_host* host,
                                      const hy_backend** backend);

#ifdef __cplusplus
}
#endif
#endif  // HALYARD_PLUGIN_H_
