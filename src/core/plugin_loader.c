// Plugins: shared objects called libhalyard_<name>.so that export halyard_backend_query. They are
// found in HALYARD_PLUGIN_PATH and in the folder `halyard` of the installation, never in the
// current folder or beside a copied program, and stay loaded until the process ends.
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/registry.h"

#define PREFIX "libhalyard_"
#define SUFFIX ".so"

static const char* base_name(const char* path) {
  const char* slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

bool hy__plugin_name(const char* path, char name[HY__MAX_NAME]) {
  const char* file = base_name(path);
  size_t length = strlen(file), prefix = strlen(PREFIX), suffix = strlen(SUFFIX);
  if (length <= prefix + suffix || strncmp(file, PREFIX, prefix) ||
      strcmp(file + length - suffix, SUFFIX))
    return false;
  length -= prefix + suffix;
  if (length >= HY__MAX_NAME) return false;
  memcpy(name, file + prefix, length);
  name[length] = 0;
  return hy__valid_name(name);
}

// Whoever can write a plugin runs as the user of the program. So its file and its folder belong to
// that user or to root, and nobody else may write them.
static hy_status check_trust(const char* plugin, const char* what, const char* path,
                             const struct stat* st) {
  if (st->st_uid != 0 && st->st_uid != geteuid())
    return hy_fail(
        HY_IO,
        "plugin %s is refused: the %s %s belongs to user %u, who could put any code into "
        "it; it must belong to you or to root",
        plugin, what, path, (unsigned)st->st_uid);
  if (st->st_mode & (S_IWGRP | S_IWOTH))
    return hy_fail(HY_IO,
                   "plugin %s is refused: others may write the %s %s, and so run any code here; "
                   "'chmod go-w %s' takes that away",
                   plugin, what, path, path);
  return HY_OK;
}

static hy_status check_place(const char* path) {
  struct stat st;
  char file[PATH_MAX];
  if (!realpath(path, file) || stat(file, &st))
    return hy_fail(HY_IO, "plugin %s: %s", path, strerror(errno));
  if (!S_ISREG(st.st_mode)) return hy_fail(HY_IO, "plugin %s is not a file", path);
  HY_TRY(check_trust(path, "file", file, &st));
  char* slash = strrchr(file, '/');
  slash[slash == file] = 0;
  if (stat(file, &st)) return hy_fail(HY_IO, "plugin %s: %s", path, strerror(errno));
  return check_trust(path, "folder", file, &st);
}

hy_status hy__plugin_open(const char* path, const char* name, const hy_backend** backend) {
  HY_TRY(check_place(path));
  HY_TRY(hy__check_shared_object(path));
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char* error = dlerror();
    return hy_fail(HY_FORMAT, "plugin %s could not be loaded: %s", path,
                   error ? error : "the loader gave no reason");
  }
  void* symbol = dlsym(library, "halyard_backend_query");
  if (!symbol) {
    dlclose(library);
    return hy_fail(HY_FORMAT, "plugin %s does not export halyard_backend_query", path);
  }
  hy_backend_query query;
  memcpy(&query, &symbol, sizeof query);
  *backend = NULL;
  hy_fail(HY_OK, "it gave no reason");  // unless the plugin does
  hy_status status = query(HY_ABI_VERSION, hy__host(), backend);
  if (status == HY_ABI_MISMATCH)
    return hy_fail(status, "plugin %s needs a newer interface than version %u of this library",
                   path, HY_ABI_VERSION);
  if (status != HY_OK)
    return hy_fail(status, "plugin %s refused to start: %s", path, hy_last_error());
  const hy_backend* b = *backend;
  if (!b) return hy_fail(HY_FORMAT, "plugin %s gave no backend", path);
  // The name is where it has to be in every table that hy__backend_import accepts.
  if (b->size >= offsetof(hy_backend, version) && b->abi >= 1 && b->abi <= HY_ABI_VERSION &&
      hy__valid_name(b->name) && strcmp(b->name, name))
    return hy_fail(HY_FORMAT,
                   "plugin %s: the backend in it is called %s, so the file must be called " PREFIX
                   "%s" SUFFIX,
                   path, b->name, b->name);
  return HY_OK;
}

// ---- Finding them ----

static hy_status note(const char* path) {
  char name[HY__MAX_NAME];
  if (!hy__plugin_name(path, name)) return HY_OK;
  return hy__registry_add_plugin(name, path);
}

static int by_name(const struct dirent** a, const struct dirent** b) {
  return strcmp((*a)->d_name, (*b)->d_name);
}

// False when the folder cannot be read; errno says why.
static bool scan_folder(const char* folder, hy_status* status) {
  struct dirent** items = NULL;
  int n = scandir(folder, &items, NULL, by_name);
  if (n < 0) return false;
  for (int i = 0; i < n; i++) {
    char path[PATH_MAX];
    if (*status == HY_OK &&
        (size_t)snprintf(path, sizeof path, "%s/%s", folder, items[i]->d_name) < sizeof path)
      *status = note(path);
    free(items[i]);
  }
  free(items);
  return true;
}

// A place named by the user that is no good must be seen: it gets an entry under its file name.
static hy_status refuse(const char* place, hy_status why, const char* what) {
  char name[HY__MAX_NAME], reason[512];
  if (!hy__plugin_name(place, name)) {
    size_t n = 0;
    for (const char* c = base_name(place); *c && n < sizeof name - 1; c++)
      name[n++] = (*c >= 'a' && *c <= 'z') || (*c >= '0' && *c <= '9') ? *c : '_';
    name[n] = 0;
    if (!hy__valid_name(name) || hy__known_provider_find(name))
      snprintf(name, sizeof name, "plugin_path");
  }
  snprintf(reason, sizeof reason, "HALYARD_PLUGIN_PATH names \"%.300s\", %.150s", place, what);
  return hy__registry_add_broken(name, why, reason);
}

static hy_status scan_place(const char* place) {
  if (place[0] != '/')
    return refuse(place, HY_INVALID_ARGUMENT,
                  "which is relative: only absolute paths are searched");
  struct stat st;
  hy_status status = HY_OK;
  if (stat(place, &st)) return refuse(place, HY_IO, strerror(errno));
  if (S_ISDIR(st.st_mode))
    return scan_folder(place, &status) ? status : refuse(place, HY_IO, strerror(errno));
  char name[HY__MAX_NAME];
  if (!hy__plugin_name(place, name))
    return refuse(place, HY_INVALID_ARGUMENT,
                  "but a plugin's file is called " PREFIX "<name>" SUFFIX);
  return note(place);
}

// The folder `halyard` beside the library. A program that has the library inside may be copied
// anywhere, and what is beside it then is not its own: it looks where it was built to be
// installed.
static hy_status scan_install_folder(void) {
  static const char here;
  Dl_info info;
  char file[PATH_MAX], program[PATH_MAX], folder[PATH_MAX + 64] = HALYARD_PLUGIN_FOLDER;
  // A program's own name may be relative to a folder that is no longer the current one.
  if (!realpath("/proc/self/exe", program)) program[0] = 0;
  bool in_library = dladdr(&here, &info) && info.dli_fname && info.dli_fname[0] == '/' &&
                    realpath(info.dli_fname, file) && strcmp(file, program) != 0;
  if (in_library)
    snprintf(folder, sizeof folder, "%.*shalyard", (int)(base_name(file) - file), file);
  hy_status status = HY_OK;
  scan_folder(folder, &status);
  return status;
}

hy_status hy__plugin_scan(void) {
  const char* path = hy__env("HALYARD_PLUGIN_PATH");
  if (path) {
    char* places = hy__strdup(path);
    if (!places) return hy_fail(HY_OUT_OF_MEMORY, "no memory to read HALYARD_PLUGIN_PATH");
    hy_status status = HY_OK;
    char* next = NULL;
    for (char* p = strtok_r(places, ":", &next); p && status == HY_OK;
         p = strtok_r(NULL, ":", &next))
      status = scan_place(p);
    hy__mfree(places);
    HY_TRY(status);
  }
  return scan_install_folder();
}
