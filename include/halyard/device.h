// Backends and devices: discovery, selection, and why one is missing.
//
// A selector names a device: "cuda:1", "cpu", or a provider such as "mkl" (its device, with that
// provider asked first). Probing is lazy: only backends that the selector may refer to are probed.
// All functions are thread-safe.
#ifndef HALYARD_DEVICE_H_
#define HALYARD_DEVICE_H_

#include "halyard/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hy_device hy_device;  // lives until hy_shutdown

// Numbers of backends and providers, for those who come with numbers; names are primary. They never
// change: HY_BACKEND_TYPE_cuda is 0. Backends that are not known by name have HY_BACKEND_TYPE_NONE.
typedef enum hy_backend_type {
  HY_BACKEND_TYPE_NONE = -1,
#define HY_KNOWN_BACKEND(name, type, ...) HY_BACKEND_TYPE_##name = type,
#define HY_KNOWN_PROVIDER(name, type, ...) HY_BACKEND_TYPE_##name = type,
#define HY_KNOWN_PLANNER(name, type, backend) HY_BACKEND_TYPE_##name = type,
#include "halyard/known_backends.def"
} hy_backend_type;

HY_API hy_backend_type hy_backend_type_of(const char* name);
HY_API const char* hy_backend_type_name(hy_backend_type type);  // NULL for a number that is none

// Optional: the library initialises itself on first use. Finds plugins in HALYARD_PLUGIN_PATH
// (absolute paths of files and folders, separated by colons) and in the folder `halyard` next to
// the library, or, for a program that has the library inside, next to where that was to be
// installed; each is loaded when its backend is first needed. A plugin that others than its user
// and root may write is refused, and so is one in a folder that they may write.
HY_API hy_status hy_init(void);
// Closes all devices and frees all memory. No other call may be running, and no handle may be used
// afterwards; the library itself can be used again.
HY_API void hy_shutdown(void);
HY_API const char* hy_version(void);

// ---- Selection ----

// Opens the device that `selector` names; NULL or "" is the default device. An unknown name fails
// with HY_NOT_FOUND and suggestions, a known but unavailable one with HY_UNAVAILABLE, the reason,
// and what is available.
// Each name has one handle: the backend's name one, and each provider's name another, for the same
// device, memory and limits, but with its own streams, whose calls ask that provider first. Users
// of other handles are not affected.
HY_API hy_status hy_device_get(const char* selector, hy_device** device);
// The same by number: hy_device_get("<name of the type>:<index>").
HY_API hy_status hy_device_get_by_type(hy_backend_type type, int index, hy_device** device);
// The first of the comma-separated selectors that is available and opens; one log line says which
// were skipped and why.
HY_API hy_status hy_device_get_first(const char* selectors, hy_device** device);
// Sets the default device. Without it the default is HALYARD_BACKEND, else the available backend of
// the highest priority. Both accept one selector, or several separated by commas as in
// hy_device_get_first. If none is available the default is unchanged; NULL or "" clears it.
HY_API hy_status hy_set_default(const char* selectors);
// The calling thread's current device: the default device until set; NULL resets it.
HY_API hy_status hy_set_current_device(hy_device* device);
HY_API hy_status hy_current_device(hy_device** device);

HY_API const char* hy_device_backend(const hy_device* device);  // "cuda"
HY_API int hy_device_index(const hy_device* device);
HY_API const char* hy_device_selector(const hy_device* device);  // "cuda:1", for a provider too
// The provider by whose name it was opened; NULL: the backend's own order.
HY_API const char* hy_device_provider(const hy_device* device);
HY_API bool hy_device_is_host(const hy_device* device);  // HY_BACKEND_HOST_MEMORY
HY_API hy_status hy_device_describe(hy_device* device, hy_device_info* info);
HY_API bool hy_device_supports_dtype(hy_device* device, hy_dtype dtype);
HY_API hy_status hy_device_sync(hy_device* device);
// One sample of what the device can do at most, for benchmarks: the best of several counts. src and
// dst are the device's addresses and unused by MULTIPLY_ADD. HY_UNSUPPORTED where the backend
// measures none.
HY_API hy_status hy_device_peak(hy_device* device, hy_peak kind, hy_dtype dtype, void* dst,
                                const void* src, size_t bytes, double* per_second);
// Threads of the host that the device's kernels use, the calling one included, for everyone who
// uses the device, from the next call on. The cpu begins with HALYARD_THREADS, or with the cores
// that affinity and control groups leave the process. HY_UNSUPPORTED where kernels run elsewhere.
HY_API hy_status hy_device_set_threads(hy_device* device, int n);
HY_API hy_status hy_device_threads(hy_device* device, int* n);

// ---- Discovery ----

typedef enum hy_backend_state {
  HY_BACKEND_AVAILABLE,
  HY_BACKEND_MISSING,
  HY_BACKEND_FAILED
} hy_backend_state;

// Strings are valid until hy_shutdown.
typedef struct hy_backend_report {
  const char* name;
  hy_backend_type type;
  const char* version;  // NULL if no code for the backend is loaded
  const char* description;
  hy_backend_state state;  // MISSING: no hardware or no library; FAILED: present, but does not work
  int priority;            // higher is preferred as default
  int device_count;
  hy_probe probe;
} hy_backend_report;

typedef struct hy_provider_report {
  const char* name;
  const char* version;
  bool available;
  hy_probe probe;
} hy_provider_report;

// Every known backend, in order of priority, probed on first use. `index` starts at 0;
// HY_NOT_FOUND past the end.
HY_API hy_status hy_backend_at(int index, hy_backend_report* report);
// By name; a provider's name refers to its backend.
HY_API hy_status hy_backend_find(const char* name, hy_backend_report* report);
// By number.
HY_API hy_status hy_backend_find_by_type(hy_backend_type type, hy_backend_report* report);
// Whether this backend or provider can be used.
HY_API bool hy_backend_is_available(const char* name);
HY_API hy_status hy_backend_device_info(const char* name, int index, hy_device_info* info);
// The backend's providers, then known ones that this build does not include.
HY_API hy_status hy_backend_provider_at(const char* name, int index, hy_provider_report* report);

typedef struct hy_found_device {
  char selector[32];
  hy_device_info info;
} hy_found_device;
// The devices of all available backends, in order of priority. Hardware that several backends offer
// is listed once, under the one with the highest priority. Fills up to `capacity` entries and
// returns how many there are.
HY_API int hy_discover_devices(hy_found_device* list, int capacity);

// Adds a backend that is compiled into the program, until hy_shutdown; its functions and strings
// must stay valid that long. Fails if the name is taken.
HY_API hy_status hy_register_backend(const hy_backend* backend);
// Adds the backend of the plugin at this absolute path. On failure nothing changes.
HY_API hy_status hy_load_plugin(const char* path);

// A display controller or accelerator on the PCI bus, found without any vendor library.
typedef struct hy_hardware {
  char pci[16];
  char vendor[32];
  char name[64];
  uint16_t vendor_id, device_id;
} hy_hardware;
// Fills up to `capacity` entries and returns how many there are.
HY_API int hy_list_hardware(hy_hardware* list, int capacity);

#ifdef __cplusplus
}
#endif
#endif  // HALYARD_DEVICE_H_
