// Backends and providers known by name, whether or not this build has code for them.
#include <string.h>

#include "core/registry.h"

static const hy__known_backend backends[] = {
#define HY_KNOWN_BACKEND(name, type, priority, device, pci_vendor, libraries, folders, remedy) \
  {#name, priority, device, pci_vendor, libraries, folders, remedy},
#include "halyard/known_backends.def"
};

static const struct {
  const char *name, *why;
} not_written[] = {
#define HY_NOT_WRITTEN(name, why) {#name, why},
#include "halyard/known_backends.def"
};

static const hy__known_provider providers[] = {
#define HY_KNOWN_PROVIDER(name, type, backend, libraries, folders) \
  {#name, #backend, libraries, folders, false},
#define HY_KNOWN_ALSO(name, backend) {#name, #backend, "", "", false},
#define HY_KNOWN_PLANNER(name, type, backend) {#name, #backend, "", "", true},
#include "halyard/known_backends.def"
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

// The build writes the list of HY_LEFT_OUT(name).
static const char* const left_out[] = {
#define HY_LEFT_OUT(name) #name,
#include "left_out_providers.def"
#undef HY_LEFT_OUT
    NULL};

typedef struct type_row {
  const char* name;
  hy_backend_type type;
} type_row;

static const type_row types[] = {
#define HY_KNOWN_BACKEND(name, type, ...) {#name, HY_BACKEND_TYPE_##name},
#define HY_KNOWN_PROVIDER(name, type, ...) {#name, HY_BACKEND_TYPE_##name},
#define HY_KNOWN_PLANNER(name, type, backend) {#name, HY_BACKEND_TYPE_##name},
#include "halyard/known_backends.def"
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

const char* hy__not_written(const char* backend) {
  for (int i = 0; i < COUNT(not_written); i++)
    if (!strcmp(not_written[i].name, backend)) return not_written[i].why;
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

bool hy__is_left_out(const char* provider) {
  for (int i = 0; left_out[i]; i++)
    if (!strcmp(left_out[i], provider)) return true;
  return false;
}

hy_backend_type hy_backend_type_of(const char* name) {
  for (int i = 0; name && i < COUNT(types); i++)
    if (!strcmp(types[i].name, name)) return types[i].type;
  return HY_BACKEND_TYPE_NONE;
}

const char* hy_backend_type_name(hy_backend_type type) {
  for (int i = 0; i < COUNT(types); i++)
    if (types[i].type == type) return types[i].name;
  return NULL;
}

const hy__builtin* hy__builtin_at(int index) {
  return index >= 0 && index < COUNT(builtins) ? &builtins[index] : NULL;
}
