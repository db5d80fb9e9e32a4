// Finding out, and saying, why a backend or provider cannot be had when there is no code for it;
// and the loading of vendor libraries that backends share.
#include <ctype.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "core/registry.h"

void hy__probe_begin(hy_probe* probe) {
  memset(probe, 0, sizeof *probe);
  probe->size = sizeof *probe;
}

// ---- Vendor libraries ----

// The next blank-separated word of *list, copied; false at the end, and for a word that is too
// long.
static bool next_word(const char** list, char* word, size_t size) {
  *list += strspn(*list, " ");
  size_t length = strcspn(*list, " ");
  if (length == 0 || length >= size) return false;
  memcpy(word, *list, length);
  word[length] = 0;
  *list += length;
  return true;
}

// "$NAME/rest" with the variable's value; false when it is not set or the result is not absolute.
static bool expand(const char* folder, char* path, size_t size) {
  if (folder[0] == '$') {
    char name[64];
    size_t length = strcspn(folder + 1, "/");
    if (length >= sizeof name) return false;
    memcpy(name, folder + 1, length);
    name[length] = 0;
    const char* value = hy__env(name);
    if (!value || (size_t)snprintf(path, size, "%s%s", value, folder + 1 + length) >= size)
      return false;
  } else if ((size_t)snprintf(path, size, "%s", folder) >= size) {
    return false;
  }
  return path[0] == '/';
}

// Loads one file. An error about the file itself not being there is the least interesting one: it
// yields to one about a file that is there but cannot be loaded.
static void* try_load(const char* file, char* error, size_t size, bool* found) {
  void* library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (library) return library;
  const char* text = dlerror();
  if (!text) text = "the loader gave no reason";
  size_t length = strlen(file);
  bool absent =
      !strncmp(text, file, length) &&
      !strcmp(text + length, ": cannot open shared object file: No such file or directory");
  if (!error[0] || (!absent && !*found)) snprintf(error, size, "%s", text);
  if (!absent) *found = true;
  return NULL;
}

hy_status hy__open_library(const char* names, const char* folders, hy_probe* report,
                           void** library) {
  char name[128], folder[256], file[640], error[400] = "";
  bool found = false;
  void* handle = NULL;
  for (const char* n = names; !handle && next_word(&n, name, sizeof name);) {
    snprintf(file, sizeof file, "%s", name);
    handle = try_load(file, error, sizeof error, &found);
  }
  for (const char* f = folders ? folders : ""; !handle && next_word(&f, folder, sizeof folder);) {
    char path[512];
    if (!expand(folder, path, sizeof path)) continue;
    for (const char* n = names; !handle && next_word(&n, name, sizeof name);) {
      if ((size_t)snprintf(file, sizeof file, "%s/%s", path, name) >= sizeof file) continue;
      handle = try_load(file, error, sizeof error, &found);
    }
  }
  *library = handle;
  if (handle) {
    if (report) {
      snprintf(report->library, sizeof report->library, "%.*s", (int)sizeof report->library - 1,
               file);
      if (report->stage < HY_STAGE_LOADED) report->stage = HY_STAGE_LOADED;
    }
    return HY_OK;
  }
  const char* rest = names;
  if (!next_word(&rest, name, sizeof name))
    return hy_fail(HY_INVALID_ARGUMENT, "open_library: no library was named");
  // The loader starts with the name too.
  size_t length = strlen(name);
  const char* text =
      strncmp(error, name, length) || error[length] != ':' ? error : error + length + 2;
  hy_status status = hy_fail(HY_UNAVAILABLE, "%s could not be loaded: %s", name, text);
  if (report) {
    if (found && report->stage < HY_STAGE_FOUND) report->stage = HY_STAGE_FOUND;
    report->status = status;
    snprintf(report->reason, sizeof report->reason, "%.*s", (int)sizeof report->reason - 1,
             hy_last_error());
  }
  return status;
}

// ---- Backends and providers without code ----

// The PCI address of the first device of that vendor, or false.
static bool on_the_bus(uint16_t vendor, char pci[16]) {
  hy_hardware list[32];
  int n = hy_list_hardware(list, 32);
  for (int i = 0; i < n && i < 32; i++) {
    if (list[i].vendor_id != vendor) continue;
    memcpy(pci, list[i].pci, sizeof list[i].pci);
    return true;
  }
  return false;
}

static const char* in_capitals(const char* name, char capitals[HY__MAX_NAME]) {
  size_t length = 0;
  for (; name[length]; length++) capitals[length] = (char)toupper(name[length]);
  capitals[length] = 0;
  return capitals;
}

void hy__probe_absent(const hy__known_backend* known, const char* name, hy_probe* probe) {
  probe->status = HY_UNAVAILABLE;
  if (!known) {
    snprintf(probe->reason, sizeof probe->reason, "no code for %s is loaded", name);
    return;
  }
  char hardware[96] = "", library[320] = "", pci[16], upper[HY__MAX_NAME];
  bool here = known->pci_vendor && on_the_bus(known->pci_vendor, pci), loaded = false;
  if (here) probe->stage = HY_STAGE_FOUND;
  if (known->libraries[0]) {
    void* handle;
    loaded = hy__open_library(known->libraries, known->folders, probe, &handle) == HY_OK;
    if (loaded)
      snprintf(library, sizeof library, "%.200s was loaded, but ", probe->library);
    else
      snprintf(library, sizeof library, "%.300s, and ", hy_last_error());
  }
  if (here)
    snprintf(hardware, sizeof hardware, "%s is here (%s)%s ", known->device, pci,
             loaded ? " and" : ", but");
  else if (known->pci_vendor)
    snprintf(hardware, sizeof hardware, "no%s is on the PCI bus, ", strchr(known->device, ' '));
  const char* why = hy__not_written(known->name);
  if (why) {
    snprintf(probe->reason, sizeof probe->reason, "%s%sno %s backend is written yet: %s", hardware,
             library, known->name, why);
    snprintf(probe->remedy, sizeof probe->remedy,
             "use another device, or a plugin called libhalyard_%s.so", known->name);
    return;
  }
  snprintf(probe->reason, sizeof probe->reason, "%s%sthis build has no %s backend", hardware,
           library, known->name);
  in_capitals(known->name, upper);
  bool vendor = known->remedy[0] && probe->stage < HY_STAGE_LOADED;
  bool elsewhere = known->pci_vendor && !here;
  snprintf(probe->remedy, sizeof probe->remedy,
           "%s%s%s%s%suse a build with USE_%s=ON or a plugin called libhalyard_%s.so",
           elsewhere ? "on a machine with " : "", elsewhere ? known->device : "",
           elsewhere ? ", " : "", vendor ? known->remedy : "", vendor ? ", then " : "", upper,
           known->name);
}

void hy__probe_absent_provider(const hy__known_provider* known, hy_probe* probe) {
  hy__probe_begin(probe);
  if (hy__is_left_out(known->name)) {
    char capitals[HY__MAX_NAME];
    in_capitals(known->name, capitals);
    probe->status = HY_UNAVAILABLE;
    snprintf(probe->reason, sizeof probe->reason, "this build was made with USE_%s=OFF", capitals);
    snprintf(probe->remedy, sizeof probe->remedy, "use a build with USE_%s=ON, or choose %s",
             capitals, known->backend);
    return;
  }
  char library[320] = "";
  void* handle;
  if (known->libraries[0]) {
    if (hy__open_library(known->libraries, known->folders, probe, &handle) == HY_OK)
      snprintf(library, sizeof library, "%.200s was loaded, but ", probe->library);
    else
      snprintf(library, sizeof library, "%.300s, and ", hy_last_error());
  }
  probe->status = HY_UNAVAILABLE;
  snprintf(probe->reason, sizeof probe->reason, "%sthis build has no %s provider for %s", library,
           known->name, known->backend);
  snprintf(probe->remedy, sizeof probe->remedy, "use a build that has it, or choose %s",
           known->backend);
}
