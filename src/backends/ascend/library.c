// CANN's libraries by dlopen: AscendCL's runtime, the handles of aclnn, and the aclnn ops, which
// are in one library or, in newer releases, in three.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/ascend/ascend.h"
#include "backends/common/dlsym.h"

hy__acl_api hy__acl;
hy__aclnn_api hy__aclnn;

#define AS_SYMBOL(type, name, arguments) {#name, offsetof(hy__acl_api, name)},
static const hy__symbol runtime[] = {
#define HY_ACL AS_SYMBOL
#include "backends/ascend/acl.def"
};
static const hy__symbol optional[] = {
#define HY_ACL_OPTIONAL AS_SYMBOL
#include "backends/ascend/acl.def"
};
static const hy__symbol meta[] = {
#define HY_ACL_META AS_SYMBOL
#include "backends/ascend/acl.def"
};

static const struct {
  const char *name, *plan, *run;
  size_t plan_at, run_at;
} ops[] = {
#define HY_ACLNN(name, arguments)                                                              \
  {#name, "aclnn" #name "GetWorkspaceSize", "aclnn" #name, offsetof(hy__aclnn_api, name.plan), \
   offsetof(hy__aclnn_api, name.run)},
#include "backends/ascend/aclnn.def"
};

#define COUNT(array) ((int)(sizeof(array) / sizeof(array)[0]))

static void bind_optional(void* library, const char* name, void* at) {
  void* address = hy__dlsym_optional(library, name);
  if (address) memcpy(at, &address, sizeof address);
}

// The ops of newer releases are split by topic; the two kinds must not be mixed.
static hy_status bind_ops(hy_probe* report) {
  static const char* const split[] = {"libopapi_math.so", "libopapi_nn.so",
                                      "libopapi_transformer.so"};
  void* libraries[3] = {NULL};
  int n = 0;
  if (hy__backend_host->open_library(split[0], HY__CANN_FOLDERS, NULL, &libraries[0]) == HY_OK) {
    for (n = 1; n < 3; n++)
      HY_TRY(hy__backend_host->open_library(split[n], HY__CANN_FOLDERS, report, &libraries[n]));
  } else {
    HY_TRY(hy__backend_host->open_library("libopapi.so", HY__CANN_FOLDERS, report, &libraries[0]));
    n = 1;
  }
  for (int i = 0; i < COUNT(ops); i++) {
    for (int l = 0; l < n; l++) {
      bind_optional(libraries[l], ops[i].plan, (char*)&hy__aclnn + ops[i].plan_at);
      bind_optional(libraries[l], ops[i].run, (char*)&hy__aclnn + ops[i].run_at);
    }
  }
  return HY_OK;
}

hy_status hy__ascend_bind(hy_probe* report) {
  void* library = NULL;
  hy_probe base = *report;
  HY_TRY(hy__backend_host->open_library("libascendcl.so libacl_rt.so", HY__CANN_FOLDERS, report,
                                        &library));
  HY_TRY(hy__dlsym_bind(library, runtime, COUNT(runtime), &hy__acl, report));
  for (int i = 0; i < COUNT(optional); i++)
    bind_optional(library, optional[i].name, (char*)&hy__acl + optional[i].offset);
  HY_TRY(hy__backend_host->open_library("libnnopbase.so", HY__CANN_FOLDERS, &base, &library));
  HY_TRY(hy__dlsym_bind(library, meta, COUNT(meta), &hy__acl, &base));
  return bind_ops(&base);
}

static bool has_one(const char* name, size_t length) {
  for (int i = 0; i < COUNT(ops); i++) {
    if (strlen(ops[i].name) != length || strncmp(ops[i].name, name, length) != 0) continue;
    void *plan, *run;
    memcpy(&plan, (char*)&hy__aclnn + ops[i].plan_at, sizeof plan);
    memcpy(&run, (char*)&hy__aclnn + ops[i].run_at, sizeof run);
    return plan && run;
  }
  return false;
}

bool hy__ascend_has(const char* names) {
  while (*names) {
    size_t length = strcspn(names, " ");
    if (!has_one(names, length)) return false;
    names += length;
    names += strspn(names, " ");
  }
  return true;
}

// ---- Errors ----

// acl/error_codes/rt_error_codes.h and the return codes of aclnn.
hy_status hy__ascend_fail(int error, const char* what) {
  enum { OUT_OF_MEMORY = 207001, DEVICE_OUT_OF_MEMORY = 207018, STORAGE_OVER_LIMIT = 100017 };
  if (error == OUT_OF_MEMORY || error == DEVICE_OUT_OF_MEMORY || error == STORAGE_OVER_LIMIT)
    return hy__backend_host->fail(HY_OUT_OF_MEMORY, "ascend: %s: no memory (%d)", what, error);
  const char* said = hy__acl.aclGetRecentErrMsg();
  return hy__backend_host->fail(
      HY_DEVICE_FAILED, "ascend: %s: %s (%d)%s%.200s", what,
      error >= 507000 && error < 508000   ? "the device failed; start the process again if it stays"
      : error >= 161001 && error < 162000 ? "the library refused the arguments"
      : error >= 561000 && error < 562000 ? "the library could not prepare the kernel"
                                          : "AscendCL failed",
      error, said && *said ? "; " : "", said ? said : "");
}

// ---- Chips ----

// The longest name that fits comes first. bf16 and products in true f32 came with 910B.
static const hy__ascend_chip chips[] = {
    {"Ascend310P", "Atlas 300I", false, false, false, false},
    {"Ascend310B", "Atlas 200I A2", false, false, false, false},
    {"Ascend310", "Atlas 200", false, false, false, false},
    {"Ascend910_93", "Atlas A3", true, true, true, true},
    {"Ascend910B", "Atlas A2", true, true, true, true},
    {"Ascend950", "Ascend 950", true, true, true, true},
    {"Ascend910", "Atlas 800", false, false, false, false},
};

const hy__ascend_chip* hy__ascend_chip_of(const char* soc_name) {
  static const hy__ascend_chip unknown = {"", "an unknown Ascend", false, false, false, false};
  for (int i = 0; soc_name && i < COUNT(chips); i++)
    if (strncmp(soc_name, chips[i].prefix, strlen(chips[i].prefix)) == 0) return &chips[i];
  return &unknown;
}
