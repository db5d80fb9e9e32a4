// Processor, memory and operating system, as /proc, /sys and the cgroup describe them.
#include "backends/cpu/host_info.h"

#include <sched.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

static FILE* open_at(const char* root, const char* format, ...)
    __attribute__((format(printf, 2, 3)));
static FILE* open_at(const char* root, const char* format, ...) {
  char name[700], path[1024];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(name, sizeof name, format, arguments);
  va_end(arguments);
  if ((size_t)snprintf(path, sizeof path, "%s%s", root, name) >= sizeof path) return NULL;
  return fopen(path, "re");
}

// The text behind "key<blanks>:" in a file such as /proc/cpuinfo.
static bool read_field(FILE* f, const char* key, char* value, size_t size) {
  char line[1024];
  size_t length = strlen(key);
  while (fgets(line, sizeof line, f)) {
    if (strncmp(line, key, length)) continue;
    char* at = line + length + strspn(line + length, " \t");
    if (*at++ != ':') continue;
    at += strspn(at, " \t");
    at[strcspn(at, "\n")] = 0;
    snprintf(value, size, "%s", at);
    return true;
  }
  return false;
}

static uint64_t read_kilobytes(const char* root, const char* key) {
  char text[64];
  FILE* f = open_at(root, "/proc/meminfo");
  if (!f) return 0;
  uint64_t value = read_field(f, key, text, sizeof text) ? strtoull(text, NULL, 10) * 1024 : 0;
  fclose(f);
  return value;
}

// A control group's file of one number; "max" and anything else count as no limit.
static uint64_t read_limit(const char* root, const char* group, const char* file) {
  FILE* f = open_at(root, "/sys/fs/cgroup%s/%s", group, file);
  unsigned long long value;
  if (!f) return UINT64_MAX;
  int n = fscanf(f, "%llu", &value);
  fclose(f);
  return n == 1 ? value : UINT64_MAX;
}

// The path of this process's group: the line "0::/path" (version 2), or that of a controller,
// "7:memory:/path" (version 1). A container may show only its own part of the tree; then the path
// leads nowhere and the root holds the limits.
static bool read_group(const char* root, const char* controller, char* path, size_t size) {
  FILE* f = open_at(root, "/proc/self/cgroup");
  if (!f) return false;
  char line[512];
  bool found = false;
  while (!found && fgets(line, sizeof line, f)) {
    line[strcspn(line, "\n")] = 0;
    char* names = strchr(line, ':');
    char* where = names ? strchr(++names, ':') : NULL;
    if (!where) continue;
    *where++ = 0;
    char* next;
    if (!*controller) found = !*names;
    for (char* n = strtok_r(names, ",", &next); n && !found; n = strtok_r(NULL, ",", &next))
      found = *controller && !strcmp(n, controller);
    if (found) snprintf(path, size, "%s", where);
  }
  fclose(f);
  return found;
}

static uint64_t min(uint64_t a, uint64_t b) {
  return a < b ? a : b;
}

// Calls `visit` with this process's group for a controller and every group above it, whose limits
// count too.
typedef void (*group_visitor)(const char* root, const char* group, bool v2, void* context);
static void visit_groups(const char* root, const char* controller, group_visitor visit,
                         void* context) {
  char path[512], group[600];
  bool v2 = !read_group(root, controller, path, sizeof path);
  if (v2 && !read_group(root, "", path, sizeof path)) return;
  snprintf(group, sizeof group, "/%s", v2 ? "" : controller);
  size_t base = v2 ? 0 : strlen(group);
  snprintf(group + base, sizeof group - base, "%s", path);
  for (char* end = group + strlen(group); end > group + base;) {
    visit(root, group, v2, context);
    while (end > group + base && *--end != '/') continue;
    *end = 0;
  }
  visit(root, group, v2, context);
}

typedef struct memory {
  uint64_t physical, total, free;
} memory;

// Pages of files that a group holds and gives back when it needs the memory.
static uint64_t read_file_pages(const char* root, const char* group, bool v2) {
  FILE* f = open_at(root, "/sys/fs/cgroup%s/memory.stat", group);
  if (!f) return 0;
  const char* keys[] = {v2 ? "inactive_file" : "total_inactive_file",
                        v2 ? "active_file" : "total_active_file"};
  char key[64];
  unsigned long long value;
  uint64_t pages = 0;
  while (fscanf(f, "%63s %llu", key, &value) == 2) {
    if (!strcmp(key, keys[0]) || !strcmp(key, keys[1])) pages += value;
  }
  fclose(f);
  return pages;
}

// The limit and use of memory in one group of the tree. The least limit is not always the nearest
// one: a group above may have used up a larger one.
static void apply_memory(const char* root, const char* group, bool v2, void* context) {
  memory* m = context;
  uint64_t limit = read_limit(root, group, v2 ? "memory.max" : "memory.limit_in_bytes");
  if (limit >= m->physical) return;
  uint64_t used = read_limit(root, group, v2 ? "memory.current" : "memory.usage_in_bytes");
  used -= min(used, read_file_pages(root, group, v2));
  m->total = min(m->total, limit);
  m->free = min(m->free, used < limit ? limit - used : 0);
}

void hy__cpu_read_memory(const char* root, uint64_t* total, uint64_t* free) {
  memory m = {.total = read_kilobytes(root, "MemTotal")};
  m.physical = m.total;
  m.free = min(read_kilobytes(root, "MemAvailable"), m.total);
  if (m.total) visit_groups(root, "memory", apply_memory, &m);
  *total = m.total;
  *free = m.free;
}

// A group's quota of processor time, in whole processors. No quota is "max" in version 2, -1 in
// version 1.
static void apply_quota(const char* root, const char* group, bool v2, void* context) {
  int* cores = context;
  long long quota = 0, period = 0;
  if (v2) {
    FILE* f = open_at(root, "/sys/fs/cgroup%s/cpu.max", group);
    if (!f) return;
    if (fscanf(f, "%lld %lld", &quota, &period) != 2) quota = 0;
    fclose(f);
  } else {
    quota = (long long)read_limit(root, group, "cpu.cfs_quota_us");
    period = (long long)read_limit(root, group, "cpu.cfs_period_us");
  }
  if (quota <= 0 || period <= 0) return;
  long long whole = quota / period + (quota % period != 0);
  if (whole < *cores) *cores = (int)whole;
}

int hy__cpu_usable_cores(const char* root) {
  cpu_set_t set;
  int cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  visit_groups(root, "cpu", apply_quota, &cores);
  return cores;
}

// The first word of a file of a cache of the first core; "" where there is none.
static void read_cache(const char* root, int index, const char* file, char word[16]) {
  word[0] = 0;
  FILE* f = open_at(root, "/sys/devices/system/cpu/cpu0/cache/index%d/%s", index, file);
  if (!f) return;
  if (fscanf(f, "%15s", word) != 1) word[0] = 0;
  fclose(f);
}

static void read_caches(const char* root, char* text, size_t size) {
  size_t length = 0;
  for (int i = 0; i < 8; i++) {
    char level[16], type[16], bytes[16];
    read_cache(root, i, "level", level);
    read_cache(root, i, "type", type);
    read_cache(root, i, "size", bytes);
    if (!level[0] || !bytes[0] || strcmp(type, "Instruction") == 0 || length >= size) continue;
    length += (size_t)snprintf(text + length, size - length, "%sL%s%s %s", length ? ", " : "",
                               level, strcmp(type, "Data") == 0 ? "d" : "", bytes);
  }
}

void hy__cpu_read_host(const char* root, hy__cpu_host* host) {
  memset(host, 0, sizeof *host);
  FILE* f = open_at(root, "/proc/cpuinfo");
  if (f) {
    // ARM gives no model; its "CPU part" alone would say little.
    if (!read_field(f, "model name", host->model, sizeof host->model)) host->model[0] = 0;
    fclose(f);
  }
  struct utsname system;
  if (uname(&system) == 0) {
    snprintf(host->kernel, sizeof host->kernel, "%.20s %.40s", system.sysname, system.release);
    if (!host->model[0])
      snprintf(host->model, sizeof host->model, "%.60s processor", system.machine);
  }
  host->cores = hy__cpu_usable_cores(root);
  read_caches(root, host->caches, sizeof host->caches);
  hy__cpu_read_memory(root, &host->memory_total, &host->memory_free);
}
