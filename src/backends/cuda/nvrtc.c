// NVRTC: where it may be, in the order in which it is looked for.
//
//   a copy that the process has loaded already (PyTorch's)
//   $CUDA_HOME, $CUDA_PATH, /usr/local/cuda
//   packages of a Python environment: $VIRTUAL_ENV's, then those beside python3 on the PATH
//   the system's paths
//
// NVRTC itself loads libnvrtc-builtins by its bare name, which only the system's paths would find:
// that one is loaded first, from the folder where NVRTC is.
#include <dlfcn.h>
#include <glob.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/cuda/cuda.h"

static const char* variable(const char* name) {
  const char* value = secure_getenv(name);
  return value && value[0] == '/' ? value : NULL;
}

// The first file that the pattern matches and that can be loaded.
static void* load_matching(const char* pattern) {
  glob_t found;
  void* library = NULL;
  if (glob(pattern, 0, NULL, &found) == 0) {
    for (size_t i = 0; i < found.gl_pathc && !library; i++)
      library = dlopen(found.gl_pathv[i], RTLD_NOW | RTLD_LOCAL);
    globfree(&found);
  }
  return library;
}

static void* load_from(const char* root, const char* below, const char* name) {
  char pattern[640];
  if (!root ||
      (size_t)snprintf(pattern, sizeof pattern, "%s/%s/%s", root, below, name) >= sizeof pattern)
    return NULL;
  return load_matching(pattern);
}

// The environment that python3 on the PATH belongs to.
static void* load_beside_python(const char* below, const char* name) {
  const char* path = secure_getenv("PATH");
  while (path && *path) {
    size_t length = strcspn(path, ":");
    char python[512];
    if (length > 4 && path[0] == '/' && !strncmp(path + length - 4, "/bin", 4) &&
        (size_t)snprintf(python, sizeof python, "%.*s/python3", (int)length, path) <
            sizeof python &&
        access(python, X_OK) == 0) {
      python[length - 4] = 0;
      void* library = load_from(python, below, name);
      if (library) return library;
    }
    path += length + (path[length] == ':');
  }
  return NULL;
}

void* hy__cuda_open(const char* name) {
  static const char* const packages[] = {"lib/python3*/site-packages/nvidia/*/lib",
                                         "lib/python3*/dist-packages/nvidia/*/lib"};
  void* library = dlopen(name, RTLD_NOW | RTLD_NOLOAD);
  const char* roots[] = {variable("CUDA_HOME"), variable("CUDA_PATH"), "/usr/local/cuda"};
  for (int i = 0; i < 3 && !library; i++) {
    library = load_from(roots[i], "lib64", name);
    if (!library) library = load_from(roots[i], "targets/*/lib", name);
  }
  for (int i = 0; i < 2 && !library; i++)
    library = load_from(variable("VIRTUAL_ENV"), packages[i], name);
  for (int i = 0; i < 2 && !library; i++) library = load_beside_python(packages[i], name);
  return library ? library : dlopen(name, RTLD_NOW | RTLD_LOCAL);
}

void hy__cuda_path(void* library, char* path, size_t size) {
  struct link_map* map = NULL;
  path[0] = 0;
  if (dlinfo(library, RTLD_DI_LINKMAP, &map) == 0 && map && map->l_name)
    snprintf(path, size, "%s", map->l_name);
}

static void load_builtins(const char* nvrtc, int major, int minor) {
  char pattern[320];
  const char* slash = strrchr(nvrtc, '/');
  if (!slash) return;
  snprintf(pattern, sizeof pattern, "%.*s/libnvrtc-builtins.so.%d.%d*", (int)(slash - nvrtc), nvrtc,
           major, minor);
  load_matching(pattern);
}

hy_status hy__cuda_bind_nvrtc(hy__gpu_api* api, hy_probe* report) {
  void* library = NULL;
  // Machine code of a newer major version is not for this driver.
  for (int major = api->driver_number / 1000; major >= 12 && !library; major--) {
    char name[32];
    snprintf(name, sizeof name, "libnvrtc.so.%d", major);
    library = hy__cuda_open(name);
  }
  if (!library) {
    snprintf(report->remedy, sizeof report->remedy,
             "install NVRTC (pip install nvidia-cuda-nvrtc, or the CUDA toolkit) and set CUDA_HOME "
             "or VIRTUAL_ENV where it is not found");
    return hy__backend_host->fail(
        HY_UNAVAILABLE,
        "the driver is there, and NVRTC, which compiles the kernels, is not: "
        "no libnvrtc.so.%d%s was found",
        api->driver_number / 1000, api->driver_number / 1000 > 12 ? " or older" : "");
  }
  hy__cuda_path(library, api->compiler_path, sizeof api->compiler_path);
#define HY_NVRTC(field, symbol)                           \
  *(void**)&api->compiler.field = dlsym(library, symbol); \
  if (!api->compiler.field)                               \
    return hy__backend_host->fail(HY_UNAVAILABLE, "%s has no %s", api->compiler_path, symbol);
#include "backends/cuda/cuda.def"
  int major = 0, minor = 0;
  api->compiler.version(&major, &minor);
  api->compiler_number = major * 1000 + minor * 10;
  load_builtins(api->compiler_path, major, minor);
  return HY_OK;
}
