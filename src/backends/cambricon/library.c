// Neuware's libraries by dlopen: CNRT, CNNL and, for functions that a release keeps there, CNNL
// extra; the enumerators of CNNL; errors.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cambricon/cambricon.h"
#include "backends/common/dlsym.h"

hy__cnrt_api hy__cnrt;
hy__cnnl_api hy__cnnl;
hy__cnnl_enumerators hy__cnnl_enum = {
#define CNNL_ENUM(name, value) .name = value,
#define CNNL_ENUM_UNKNOWN(name) .name = CNNL_UNKNOWN,
#include "backends/cambricon/enumerators.def"
};

#define COUNT(array) ((int)(sizeof(array) / sizeof(array)[0]))

static const hy__symbol runtime[] = {
#define HY_CNRT(type, name, arguments) {#name, offsetof(hy__cnrt_api, name)},
#include "backends/cambricon/cnrt.def"
};
static const hy__symbol optional[] = {
#define HY_CNRT_OPTIONAL(type, name, arguments) {#name, offsetof(hy__cnrt_api, name)},
#include "backends/cambricon/cnrt.def"
};
static const hy__symbol core[] = {
#define HY_CNNL_CORE(name, arguments) {"cnnl" #name, offsetof(hy__cnnl_api, name)},
#include "backends/cambricon/cnnl.def"
};
static const hy__symbol ops[] = {
#define HY_CNNL(name, arguments) {"cnnl" #name, offsetof(hy__cnnl_api, name)},
#include "backends/cambricon/cnnl.def"
};
static const struct {
  const char* name;
  size_t offset;
} enumerators[] = {
#define CNNL_ENUM_UNKNOWN(name) {#name, offsetof(hy__cnnl_enumerators, name)},
#include "backends/cambricon/enumerators.def"
};

static void bind_optional(void* library, const hy__symbol* symbols, int n, void* functions) {
  for (int i = 0; i < n; i++) {
    void* address = hy__dlsym_optional(library, symbols[i].name);
    if (address) memcpy((char*)functions + symbols[i].offset, &address, sizeof address);
  }
}

// The header of the release that is installed knows best; without it, what needs an enumerator
// whose value is not public is not claimed.
static void read_header(void) {
  const char* home = secure_getenv("NEUWARE_HOME");
  char path[512];
  int length = snprintf(path, sizeof path, "%s/include/cnnl.h",
                        home && home[0] == '/' ? home : "/usr/local/neuware");
  if (length >= (int)sizeof path || hy__cambricon_read_header(path) != HY_OK)
    hy__backend_host->log(1, "cambricon: no %s: ops that need values from it are not claimed",
                          path);
}

hy_status hy__cambricon_bind(hy_probe* report) {
  static bool read;
  void* library = NULL;
  hy_probe base = *report;
  HY_TRY(hy__backend_host->open_library("libcnrt.so", HY__NEUWARE_FOLDERS, report, &library));
  HY_TRY(hy__dlsym_bind(library, runtime, COUNT(runtime), &hy__cnrt, report));
  bind_optional(library, optional, COUNT(optional), &hy__cnrt);
  HY_TRY(hy__backend_host->open_library("libcnnl.so", HY__NEUWARE_FOLDERS, &base, &library));
  HY_TRY(hy__dlsym_bind(library, core, COUNT(core), &hy__cnnl, &base));
  bind_optional(library, ops, COUNT(ops), &hy__cnnl);
  if (hy__backend_host->open_library("libcnnl_extra.so", HY__NEUWARE_FOLDERS, NULL, &library) ==
      HY_OK)
    bind_optional(library, ops, COUNT(ops), &hy__cnnl);
  if (!read) read_header();
  read = true;
  return HY_OK;
}

static bool has_one(const char* name, size_t length) {
  for (int i = 0; i < COUNT(ops); i++) {
    const char* plain = ops[i].name + strlen("cnnl");
    if (strlen(plain) != length || strncmp(plain, name, length) != 0) continue;
    void* address;
    memcpy(&address, (char*)&hy__cnnl + ops[i].offset, sizeof address);
    return address != NULL;
  }
  for (int i = 0; i < COUNT(enumerators); i++) {
    const char* plain = enumerators[i].name + strlen("CNNL_");
    if (strlen(plain) != length || strncmp(plain, name, length) != 0) continue;
    int value;
    memcpy(&value, (char*)&hy__cnnl_enum + enumerators[i].offset, sizeof value);
    return value != CNNL_UNKNOWN;
  }
  return false;
}

bool hy__cambricon_has(const char* names) {
  while (*names) {
    size_t length = strcspn(names, " ");
    if (!has_one(names, length)) return false;
    names += length;
    names += strspn(names, " ");
  }
  return true;
}

// ---- Errors ----

hy_status hy__cnrt_fail(int error, const char* what) {
  enum { NO_MEMORY = 100100 };
  if (error == NO_MEMORY)
    return hy__backend_host->fail(HY_OUT_OF_MEMORY, "cambricon: %s: no memory (%d)", what, error);
  const char* said = hy__cnrt.cnrtGetErrorStr(error);
  return hy__backend_host->fail(HY_DEVICE_FAILED, "cambricon: %s: CNRT failed: %.200s (%d)", what,
                                said ? said : "no message", error);
}

// cnnlStatus_t, from cnnl-example/cnnl_core.h.
hy_status hy__cnnl_fail(int error, const char* what) {
  enum { NO_MEMORY = 2 };
  static const char* const said[] = {"no error",
                                     "the library is not initialized",
                                     "no memory",
                                     "the library refused the arguments",
                                     "an internal error",
                                     "this device has no such function",
                                     "the device failed to execute it",
                                     "not supported",
                                     "numerical overflow"};
  return hy__backend_host->fail(
      error == NO_MEMORY ? HY_OUT_OF_MEMORY : HY_DEVICE_FAILED, "cambricon: %s: %s (%d)", what,
      error >= 0 && error < COUNT(said) ? said[error] : "CNNL failed", error);
}
