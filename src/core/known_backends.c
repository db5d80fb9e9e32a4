// Backends and providers known by name, whether or not this build has code for them.
#include <string.h>

#include "core/registry.h"

static const hy__known_backend backends[] = {
#define HY_KNOWN_BACKEND(name, priority, device, pci_vendor, libraries, folders, remedy) \
  {#name, priority, device, pci_vendor, libraries, folders, remedy},
#include "core/known_backends.def"
};

static const hy__known_provider providers[] = {
#define HY_KNOWN_PROVIDER(name, backend, libraries, folders) {#name, #backend, libraries, folders},
#include "core/known_backends.def"
};

// The build writes the list of HY_BUILTIN(name).
#define HY_BUILTIN(name) \
  hy_status hy__backend_##name(uint32_t max_abi, const hy_host* host, const hy_backend** backend);
#include "builtin_backends.def"
#undef HY_BUILTIN

static const hy__builtin builtins[] = {
#define HY_BUILTIN(name) {#name, hy__backend_##name},
#include "builtin_backends.def"
#undef HY_BUILTIN
};

#define COUNT(array) ((int)(sizeof(array) / sizeof(array)[0]))

const hy__known_backend* hy__known_backend_at(int index) {
  return index >= 0 && index < COUNT(backends) ? &backends[index] : NULL;
}

const hy__known_backend* hy__known_backend_find(const char* name) {
  for (int i = 0; i < COUNT(backends); i++)
    if (!strcmp(backends[i].name, name)) return &backends[i];
  return NULL;
}

const hy__known_provider* hy__known_provider_at(int index) {
  return index >= 0 && index < COUNT(providers) ? &providers[index] : NULL;
}

const hy__known_provider* hy__known_provider_find(const char* name) {
  for (int i = 0; i < COUNT(providers); i++)
    if (!strcmp(providers[i].name, name)) return &providers[i];
  return NULL;
}

const hy__builtin* hy__builtin_at(int index) {
  return index >= 0 && index < COUNT(builtins) ? &builtins[index] : NULL;
}
