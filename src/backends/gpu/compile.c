// Run-time compilation with a cache on disk, and cubins that came with the library.
//
// A file of either folder is named by a hash of all that its content depends on: source, options,
// target and compiler. One of the cache is written beside and renamed, so that processes may share
// the folder: who comes second replaces a file by an equal one.
#include "backends/gpu/compile.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/env.h"

enum { MAX_PATH = 512, MAX_OPTIONS = 24 };

// ---- Cache folder ----

static const char* variable(const char* name) {
  const char* value = hy__env(name);
  return value && value[0] == '/' ? value : NULL;
}

// $HALYARD_CACHE_DIR, or the user's cache; false where there is none.
static bool cache_folder(char* folder, size_t size) {
  const char *own = variable("HALYARD_CACHE_DIR"), *cache = variable("XDG_CACHE_HOME"),
             *home = variable("HOME");
  int length = -1;
  if (own)
    length = snprintf(folder, size, "%s", own);
  else if (cache)
    length = snprintf(folder, size, "%s/halyard", cache);
  else if (home)
    length = snprintf(folder, size, "%s/.cache/halyard", home);
  return length > 0 && (size_t)length < size;
}

static void make_folder(char* path) {
  for (char* at = path + 1; *at; at++) {
    if (*at != '/') continue;
    *at = 0;
    mkdir(path, 0777);
    *at = '/';
  }
  mkdir(path, 0777);
}

static uint64_t hash_text(uint64_t hash, const char* text) {
  for (; *text; text++) hash = (hash ^ (unsigned char)*text) * 0x100000001b3u;
  return (hash ^ 0xff) * 0x100000001b3u;
}

void hy__gpu_image_name(const char* file, const char* options, const char* arch,
                        const char* compiler, char* name, size_t size) {
  const char* parts[] = {hy__gpu_prelude(0),
                         hy__gpu_prelude(1),
                         hy__gpu_prelude(2),
                         hy__gpu_source(file),
                         options,
                         arch,
                         compiler};
  uint64_t low = 0xcbf29ce484222325u, high = 0x9ae16a3b2f90404fu;
  for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
    low = hash_text(low, parts[i]);
    high = hash_text(high ^ low, parts[i]);
  }
  for (int i = 0; hy__gpu_header_texts[i]; i++) high = hash_text(high, hy__gpu_header_texts[i]);
  snprintf(name, size, "%s-%016llx%016llx.bin", file, (unsigned long long)low,
           (unsigned long long)high);
}

static bool cache_path(hy__gpu_device* device, const char* file, const char* options,
                       const char* arch, char* path, size_t size) {
  char folder[MAX_PATH - 128], name[128], version[32];
  if (!cache_folder(folder, sizeof folder)) return false;
  snprintf(version, sizeof version, "%s %d", device->api->compiler_name,
           device->api->compiler_number);
  hy__gpu_image_name(file, options, arch, version, name, sizeof name);
  return (size_t)snprintf(path, size, "%s/%s", folder, name) < size;
}

void* hy__gpu_read_image(const char* path) {
  struct stat about;
  char* image = NULL;
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // a FIFO is no reason to wait
  if (fd < 0) return NULL;
  if (fstat(fd, &about) == 0 && S_ISREG(about.st_mode) && about.st_size > 0)
    image = malloc((size_t)about.st_size);
  for (ssize_t at = 0; image && at < about.st_size;) {
    ssize_t got = read(fd, image + at, (size_t)(about.st_size - at));
    if (got <= 0 && errno != EINTR) {
      free(image);
      image = NULL;
    } else {
      at += got > 0 ? got : 0;
    }
  }
  close(fd);
  return image;
}

// A cache that cannot be written costs time at every start; it is no error.
static void write_file(const char* path, const char* image, size_t size) {
  char fresh[MAX_PATH + 16], folder[MAX_PATH];
  snprintf(folder, sizeof folder, "%s", path);
  *strrchr(folder, '/') = 0;
  make_folder(folder);
  snprintf(fresh, sizeof fresh, "%s.XXXXXX", path);
  int fd = mkstemp(fresh);
  if (fd < 0) {
    hy__backend_host->log(2, "compiled kernels are not kept: %s: %s", folder, strerror(errno));
    return;
  }
  size_t at = 0;
  for (ssize_t put; at < size; at += (size_t)put) {
    put = write(fd, image + at, size - at);
    if (put <= 0) break;
  }
  bool whole = close(fd) == 0 && at == size;
  if (!whole || rename(fresh, path) != 0) unlink(fresh);
}

// ---- Cubins that came with the library ----

// As the library is in a build and in an installed tree, or the program that has it inside, whose
// name the loader has from an argument that the program may have changed.
bool hy__gpu_shipped_folder(const char* name, char* folder, size_t size) {
  static const char here = 0;
  static const char* const below[] = {"halyard", "../lib/halyard"};
  Dl_info self = {0};
  struct stat about;
  char file[MAX_PATH - 48] = "";
  if (dladdr(&here, &self) && self.dli_fname && self.dli_fname[0] == '/')
    snprintf(file, sizeof file, "%s", self.dli_fname);
  else if (readlink("/proc/self/exe", file, sizeof file - 1) < 0)
    file[0] = 0;
  char* slash = strrchr(file, '/');
  if (slash) *slash = 0;
  for (int i = 0; i < 2 && slash; i++) {
    snprintf(folder, size, "%s/%s/%s", file, below[i], name);
    if (stat(folder, &about) == 0) return true;
  }
  snprintf(folder, size, "%s/%s", HALYARD_PLUGIN_FOLDER, name);
  return stat(folder, &about) == 0;
}

static char cubins[MAX_PATH];  // empty where there are none

static void find_cubins(void) {
  if (!hy__gpu_shipped_folder("kernels", cubins, sizeof cubins)) cubins[0] = 0;
}

// Machine code for compute capability 8.0 runs on 8.6 and 8.9 too.
static bool shipped_path(const hy__gpu_device* device, const char* file, const char* options,
                         bool exact, char* path, size_t size) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, find_cubins);
  const hy__gpu_api* api = device->api;
  if (!cubins[0] || !api->ahead_compiler) return false;
  char arch[64], name[128];
  api->ahead_option(device->compute_major, exact ? device->compute_minor : 0, arch, sizeof arch);
  hy__gpu_image_name(file, options, arch, api->ahead_compiler, name, sizeof name);
  return (size_t)snprintf(path, size, "%s/%s", cubins, name) < size;
}

// ---- Compiler ----

static hy_status compiler_fail(hy__gpu_device* device, void* program, const char* file,
                               const char* options, int error) {
  const hy__gpu_compiler* compiler = &device->api->compiler;
  size_t size = 0;
  char* text = NULL;
  if (program && compiler->log_size(program, &size) == 0 && size > 0) text = malloc(size + 1);
  if (text && compiler->log(program, text) == 0) text[size] = 0;
  hy_status status = hy__backend_host->fail(
      HY_INTERNAL, "%s could not compile %s.cu (%s): error %d%s%.800s", device->api->compiler_name,
      file, options, error, text ? ": " : "", text ? text : "");
  free(text);
  return status;
}

char* hy__gpu_whole_source(const char* file) {
  const char *numbers = hy__gpu_prelude(0), *shared = hy__gpu_prelude(1),
             *common = hy__gpu_prelude(2), *source = hy__gpu_source(file);
  size_t length = strlen(numbers) + strlen(shared) + strlen(common) + strlen(source) + 4;
  char* text = malloc(length);
  if (text) snprintf(text, length, "%s%s%s\n%s", numbers, shared, common, source);
  return text;
}

static hy_status compile(hy__gpu_device* device, const char* file, const char* options,
                         const char* arch, char** image, size_t* size) {
  const hy__gpu_compiler* compiler = &device->api->compiler;
  const char* list[MAX_OPTIONS] = {arch, "--std=c++17"};
  char words[512], name[64];
  int count = 2;
  snprintf(words, sizeof words, "%s", options);
  char* rest = NULL;
  for (char* word = strtok_r(words, " ", &rest); word && count < MAX_OPTIONS - 1;
       word = strtok_r(NULL, " ", &rest))
    list[count++] = word;
  char* text = hy__gpu_whole_source(file);
  if (!text) return hy__backend_host->fail(HY_OUT_OF_MEMORY, "no host memory for %s.cu", file);
  snprintf(name, sizeof name, "%.50s.cu", file);
  void* program = NULL;
  int n_headers = 0;
  while (hy__gpu_header_texts[n_headers]) n_headers++;
  int error =
      compiler->create(&program, text, name, n_headers, hy__gpu_header_texts, hy__gpu_header_names);
  // Several threads optimise the kernels of a file; compilers that cannot do it say so.
  enum { INVALID_OPTION = 5 };
  list[count] = device->api->parallel_option;
  if (!error) error = compiler->compile(program, count + (list[count] != NULL), list);
  if (error == INVALID_OPTION && list[count]) error = compiler->compile(program, count, list);
  if (!error) error = compiler->code_size(program, size);
  *image = error ? NULL : malloc(*size);
  if (*image) error = compiler->code(program, *image);
  hy_status status = HY_OK;
  if (error) {
    status = compiler_fail(device, program, file, options, error);
    free(*image);
    *image = NULL;
  } else if (!*image) {
    status = hy__backend_host->fail(HY_OUT_OF_MEMORY, "no host memory for %s.cu", file);
  }
  if (program) compiler->destroy(&program);
  free(text);
  return status;
}

bool hy__gpu_is_compiled(hy__gpu_device* device, const char* file, const char* options) {
  char path[MAX_PATH], arch[64];
  for (int exact = 1; exact >= 0; exact--)
    if (shipped_path(device, file, options, exact, path, sizeof path) && access(path, R_OK) == 0)
      return true;
  device->api->arch_option(device->api, device->index, arch, sizeof arch);
  return cache_path(device, file, options, arch, path, sizeof path) && access(path, R_OK) == 0;
}

hy_status hy__gpu_compile(hy__gpu_device* device, const char* file, const char* options, bool fresh,
                          void** image) {
  char path[MAX_PATH], arch[64];
  if (!hy__gpu_source(file))
    return hy__backend_host->fail(HY_INTERNAL, "there is no kernel source %s.cu", file);
  *image = NULL;
  for (int exact = 1; exact >= 0 && !fresh && !*image; exact--)
    if (shipped_path(device, file, options, exact, path, sizeof path))
      *image = hy__gpu_read_image(path);
  if (*image) return HY_OK;
  device->api->arch_option(device->api, device->index, arch, sizeof arch);
  bool cached = cache_path(device, file, options, arch, path, sizeof path);
  if (cached && !fresh) *image = hy__gpu_read_image(path);
  if (*image) return HY_OK;
  size_t size = 0;
  char* code = NULL;
  int64_t start = hy__now_ns();
  HY_TRY(compile(device, file, options, arch, &code, &size));
  hy__backend_host->log(3, "%s compiled %s.cu %s: %zu bytes in %lld ms", device->api->compiler_name,
                        file, options, size, (long long)((hy__now_ns() - start) / 1000000));
  if (cached) write_file(path, code, size);
  *image = code;
  return HY_OK;
}
