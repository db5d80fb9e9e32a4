// What registry.c, selector.c, device.c, probe.c and plugin_loader.c share with one another.
#ifndef HALYARD_CORE_REGISTRY_H_
#define HALYARD_CORE_REGISTRY_H_

#include "core/internal.h"

#define HY__MAX_BACKENDS 64
#define HY__MAX_DEVICES 1024
#define HY__MAX_NAME 20  // with the terminator; a selector adds ":" and an index, in 32 bytes
#define HY__OTHER_PRIORITY 50

// ---- What is known by name: known_backends.c ----

typedef struct hy__known_backend {
  const char* name;
  int priority;
  const char* device;
  uint16_t pci_vendor;
  const char *libraries, *folders, *remedy;
} hy__known_backend;

typedef struct hy__known_provider {
  const char *name, *backend, *libraries, *folders;
  bool is_planner;  // a part of the library: no backend has it, and it is there unless left out
} hy__known_provider;

typedef struct hy__builtin {
  const char* name;
  hy_backend_query query;
} hy__builtin;

const hy__known_backend* hy__known_backend_at(int index);  // NULL past the end
const hy__known_backend* hy__known_backend_find(const char* name);
// Why no version has code for that backend, or NULL where one has.
const char* hy__not_written(const char* backend);
// One for each backend that has it; the first of a name is the one that is found.
const hy__known_provider* hy__known_provider_at(int index);
const hy__known_provider* hy__known_provider_find(const char* name);
// Backends compiled into the library: the same query function as a plugin's, linked in.
const hy__builtin* hy__builtin_at(int index);

// ---- The registry ----

typedef struct hy__provider_entry {
  hy_provider table;
  char version[64];  // the table's, fit to be printed
  bool probed;
  hy_probe probe;
} hy__provider_entry;

// What a child process found out about a plugin that this process has not loaded.
#define HY__TRIAL_DEVICES 64  // as many are described
typedef struct hy__trial_provider {
  char name[32], version[64];
  hy_probe probe;
} hy__trial_provider;
typedef struct hy__trial {
  bool done;
  char doing[64];  // where the child is, in words
  hy_backend_state state;
  hy_probe probe;
  uint32_t flags;
  char version[64], description[256];
  int device_count, n_providers;
  hy__trial_provider providers[HY__MAX_PROVIDERS];
  hy_status described[HY__TRIAL_DEVICES];
  hy_device_info devices[HY__TRIAL_DEVICES];
  char refusal[512];  // of a device that was not described
} hy__trial;

// A backend that is known, whether or not there is code for it. Lives until hy_shutdown.
typedef struct hy__backend_entry {
  char name[HY__MAX_NAME];
  int priority;
  const hy__known_backend* known;  // NULL for a name the library has not heard of
  // Guards what follows. Held while the backend probes and opens devices, so that a slow one holds
  // up nobody who asks for another.
  pthread_mutex_t mutex;
  atomic_bool has_code;                // compiled in, loaded, or a plugin that can be loaded
  char* plugin;                        // the plugin's path, until it is loaded
  hy_backend table;                    // size 0: not loaded; fixed once it is
  char version[64], description[256];  // the table's, fit to be printed
  hy__provider_entry* providers;
  bool probed;
  hy_backend_state state;
  int device_count;
  hy_probe probe;
  hy_device** devices;  // device_count of them, NULL until opened; NULL until it is loaded
  hy__trial* trial;     // a plugin that was probed elsewhere and is not loaded; else NULL
} hy__backend_entry;

// Entries in order of priority; NULL past the end. hy_init has been called.
hy__backend_entry* hy__entry_at(int index);
hy__backend_entry* hy__entry_find(const char* name);
// Probes the backend unless that has been done: that one is missing is an answer too. A plugin that
// is not loaded is probed in a child process.
void hy__entry_probe(hy__backend_entry* entry);
// The same in this process, for a backend that is to be used: loads it. One that failed in a child
// is not tried again.
void hy__entry_load(hy__backend_entry* entry);
// As hy__entry_load, in any case and with the entry locked.
void hy__entry_probe_here(hy__backend_entry* entry);
// False where there is no child to be had.
bool hy__probe_in_child(hy__backend_entry* entry);
void hy__trial_release(hy__backend_entry* entry);
// Whether it can be used; probes only where there is code.
bool hy__entry_available(hy__backend_entry* entry);
// Whether it may be chosen where nobody named a backend: available, and no simulator.
bool hy__entry_is_automatic(hy__backend_entry* entry);
// The backend is available and has a device of that index, or the failure says what there is.
hy_status hy__entry_check_device(hy__backend_entry* entry, int index);
hy_status hy__entry_device_info(hy__backend_entry* entry, int index, hy_device_info* info);
// What the backend says of a device, fit to be printed.
hy_status hy__backend_device_info(const hy_backend* backend, int index, hy_device_info* info);
// Index of a provider that the loaded backend has, or -1.
int hy__entry_provider(hy__backend_entry* entry, const char* name);
// As hy__entry_probe for one of its providers. The backend is available, the entry is locked.
void hy__entry_probe_provider(hy__backend_entry* entry, int index);
// Notes a plugin file that was found, or why one cannot be used.
hy_status hy__registry_add_plugin(const char* name, const char* path);
hy_status hy__registry_add_broken(const char* name, hy_status status, const char* reason);

hy_status hy__registry_init(void);
void hy__registry_clear(void);  // devices are closed

// ---- Names: selector.c ----

// The backend of that name; HY_NOT_FOUND suggests near misses.
hy_status hy__backend_by_name(const char* name, hy__backend_entry** entry);

// ---- Tables from outside: backend_table.c ----

bool hy__valid_name(const char* name);
// Checks a backend's table and copies it, filling what it leaves out: fields beyond its size with
// zeros, absent streams with inline ones. `providers` is allocated, and NULL where there are none.
hy_status hy__backend_import(const hy_backend* from, hy_backend* to,
                             hy__provider_entry** providers);
// Fills absent stream and event functions.
void hy__use_inline_streams(hy_backend* backend);

// ---- Plugins ----

// HY_FORMAT for a file that the loader should not be let near.
hy_status hy__check_shared_object(const char* path);
// Loads a plugin and returns its table, not yet checked.
hy_status hy__plugin_open(const char* path, const char* name, const hy_backend** backend);
// The backend's name in ".../libhalyard_<name>.so"; false for another kind of file name.
bool hy__plugin_name(const char* path, char name[HY__MAX_NAME]);
// Notes all plugins in HALYARD_PLUGIN_PATH and the install folder.
hy_status hy__plugin_scan(void);

// ---- Probing without code ----

void hy__probe_begin(hy_probe* probe);
// Why a backend that is known by name only cannot be had.
void hy__probe_absent(const hy__known_backend* known, const char* name, hy_probe* probe);
void hy__probe_absent_provider(const hy__known_provider* known, hy_probe* probe);
hy_status hy__open_library(const char* names, const char* folders, hy_probe* report,
                           void** library);
hy_status hy__visible_devices(const char* variables, int count, int* map, int* n_visible);
// hy_list_hardware on another sysfs.
int hy__list_hardware(const char* sysfs, hy_hardware* list, int capacity);
// The device's name from the system's pci.ids, where there is one.
bool hy__pci_name(uint16_t vendor, uint16_t device, char* name, size_t size);

// ---- Devices ----

// The backend is available and has that index. `provider` is the index of an available provider
// that is asked first; -1: none. `device` lives until hy__devices_close.
hy_status hy__device_open(hy__backend_entry* entry, int index, int provider, hy_device** device);
void hy__devices_close(void);
void hy__choice_clear(void);  // forgets the default
// A change of the registry may change the default.
void hy__choice_changed(void);

hy_status hy__trace_init(void);

#endif  // HALYARD_CORE_REGISTRY_H_
