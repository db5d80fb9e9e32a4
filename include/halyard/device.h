// Backends and devices: finding them, choosing one, and why one is missing.
//
// A selector names a device: "cuda:1", "cpu", or a provider such as "mkl" (its device, with that
// provider asked first). Probing is lazy: only the backends that a selector can mean are probed.
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
#include "halyard/known_backends.def"
} hy_backend_type;

HY_API hy_backend_type hy_backend_type_of(const char* name);
HY_API const char* hy_backend_type_name(hy_backend_type type);  // NULL for a number that is none

// Optional: everything initialises itself on first use. Finds the plugins in HALYARD_PLUGIN_PATH
// (absolute files and folders between colons) and in the folder `halyard` beside the library; each
// is loaded when its backend is first asked for.
HY_API hy_status hy_init(void);
// Closes devices, returns all memory. No other call may be running, and no handle may be used after
// it; the library can be used again afterwards.
HY_API void hy_shutdown(void);
HY_API const char* hy_version(void);

// ---- Choosing ----

// Opens the device that `selector` names; NULL or "" is the default device. An unknown name fails
// with HY_NOT_FOUND and near misses, a known but unavailable one with HY_UNAVAILABLE, its reason,
// and what is available.
// There is one object for a device under its backend's name, and one more for each provider it was
// asked for by: the same device, memory and limits, with streams of its own, whose calls ask that
// provider first. Who opened the device by another name is not concerned.
HY_API hy_status hy_device_get(const char* selector, hy_device** device);
// The same by number: hy_device_get("<name of the type>:<index>").
HY_API hy_status hy_device_get_by_type(hy_backend_type type, int index, hy_device** device);
// The first of the comma-separated selectors that is available and opens; one log line says which
// were passed over and why.
HY_API hy_status hy_device_get_first(const char* selectors, hy_device** device);
// The default: the set one, else HALYARD_BACKEND, else the available backend of the highest
// priority. Both take one selector, or several between commas as hy_device_get_first does. A
// selector that cannot be had leaves the default as it was; NULL or "" clears it.
HY_API hy_status hy_set_default(const char* selectors);
// The calling thread's current device: the default until set, and again after setting NULL.
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
// Threads of the host that the device's kernels use, the calling one included, for everyone who
// uses the device, from the next call on. The cpu begins with HALYARD_THREADS, or with the cores
// that affinity and control groups leave the process. HY_UNSUPPORTED where kernels run elsewhere.
HY_API hy_status hy_device_set_threads(hy_device* device, int n);
HY_API hy_status hy_device_threads(hy_device* device, int* n);

// ---- Looking around ----

typedef enum hy_backend_state {
  HY_BACKEND_AVAILABLE,
  HY_BACKEND_MISSING,
  HY_BACKEND_FAILED
} hy_backend_state;

// Texts live until hy_shutdown.
typedef struct hy_backend_report {
  const char* name;
  hy_backend_type type;
  const char* version;  // NULL where no code for the backend is loaded
  const char* description;
  hy_backend_state
      state;     // MISSING: no hardware or no library; FAILED: there, but it does not work
  int priority;  // higher is preferred as default
  int device_count;
  hy_probe probe;
} hy_backend_report;

typedef struct hy_provider_report {
  const char* name;
  const char* version;
  bool available;
  hy_probe probe;
} hy_provider_report;

// Every known backend, in order of priority, probed when first asked for. `index` from 0;
// HY_NOT_FOUND past the end.
HY_API hy_status hy_backend_at(int index, hy_backend_report* report);
// By name; the name of a provider stands for its backend.
HY_API hy_status hy_backend_find(const char* name, hy_backend_report* report);
// By number.
HY_API hy_status hy_backend_find_by_type(hy_backend_type type, hy_backend_report* report);
// Whether that backend, or that provider, can be used.
HY_API bool hy_backend_is_available(const char* name);
HY_API hy_status hy_backend_device_info(const char* name, int index, hy_device_info* info);
// The backend's providers, then those the library knows by name but this build lacks.
HY_API hy_status hy_backend_provider_at(const char* name, int index, hy_provider_report* report);

typedef struct hy_found_device {
  char selector[32];
  hy_device_info info;
} hy_found_device;
// The devices of all available backends, the preferred backend's first. Hardware that several
// backends offer is listed once, under the preferred one. Fills up to `capacity` entries and
// returns how many there are.
HY_API int hy_discover_devices(hy_found_device* list, int capacity);

// Adds a backend compiled into the program until hy_shutdown; its functions and texts must stay
// valid as long. Fails if the name is taken.
HY_API hy_status hy_register_backend(const hy_backend* backend);
// Adds the backend in the plugin at this absolute path. On failure nothing has changed.
HY_API hy_status hy_load_plugin(const char* path);

// A display controller or accelerator on the PCI bus, seen without any vendor library.
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
