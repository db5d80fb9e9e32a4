// The trace file: one Chrome trace event per op, copy and view.
#include <errno.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/registry.h"

static struct {
  pthread_mutex_t mutex;  // guards all of it
  FILE* file;             // NULL: no trace runs
  char *path, *part;      // where it shall be, and where it is written until then
  int64_t start;
  int64_t events;
} trace = {.mutex = PTHREAD_MUTEX_INITIALIZER};

// Small numbers in order of appearance, easier to read than the system's.
static int thread_number(void) {
  static atomic_int threads;
  static _Thread_local int number;
  if (!number) number = atomic_fetch_add(&threads, 1) + 1;
  return number;
}

static void put_string(FILE* f, const char* key, const char* value) {
  if (!value) return;
  fprintf(f, ",\"%s\":\"", key);
  for (const unsigned char* c = (const unsigned char*)value; *c; c++) {
    if (*c == '"' || *c == '\\')
      fprintf(f, "\\%c", *c);
    else if (*c < 0x20)
      fprintf(f, "\\u%04x", *c);
    else
      fputc(*c, f);
  }
  fputc('"', f);
}

// "[NPU] add f32[2, 3] cuda:0 cublas 24 B 12.3 us"
static void log_event(const hy__trace_event* e, int64_t ns) {
  static const struct {
    const char *tag, *colour;
  } tags[] = {{"[NPU] ", "\033[32m"},
              {"[CPU] ", "\033[31m"},
              {"[COPY] ", "\033[34m"},
              {"[VIEW] ", "\033[36m"}};
  int tag = e->kind;
  if (e->kind == HY__TRACE_OP && e->device && e->device->is_host) tag = HY__TRACE_FALLBACK;
  char text[1200], bytes[32] = "", why[400] = "";
  if (e->bytes) snprintf(bytes, sizeof bytes, " %llu B", (unsigned long long)e->bytes);
  if (e->kind == HY__TRACE_FALLBACK)
    snprintf(why, sizeof why, " (fallback: %s)", e->reason ? e->reason : "no reason given");
  // A call in words starts with the op's name.
  bool named = e->detail && !strncmp(e->detail, e->name, strlen(e->name));
  snprintf(text, sizeof text, "%s%s%s%s%s%s%s%s %.1f us%s", named ? "" : e->name,
           e->detail && !named ? " " : "", e->detail ? e->detail : "", e->device ? " " : "",
           e->device ? e->device->selector : "", e->provider ? " " : "",
           e->provider ? e->provider : "", bytes, (double)ns / 1e3, why);
  hy__log_line(3, tags[tag].colour, tags[tag].tag, text);
}

static void put_event(const hy__trace_event* e, int64_t begin, int64_t end) {
  static const char* const categories[] = {"op", "fallback", "copy", "view"};
  FILE* f = trace.file;
  fputs(trace.events++ ? ",\n{" : "\n{", f);
  fprintf(f, "\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,\"cat\":\"%s\"",
          (int)getpid(), thread_number(), (double)(begin - trace.start) / 1e3,
          (double)(end - begin) / 1e3, categories[e->kind]);
  put_string(f, "name", e->name);
  fprintf(f, ",\"args\":{\"bytes\":%llu", (unsigned long long)e->bytes);
  put_string(f, "device", e->device ? e->device->selector : NULL);
  put_string(f, "provider", e->provider);
  put_string(f, "tensors", e->detail);
  put_string(f, "reason", e->reason);
  fputs("}}", f);
}

void hy__trace_end(int64_t begin, const hy__trace_event* event) {
  if (!begin) return;
  int64_t end = hy__now_ns();
  int watching = atomic_load_explicit(&hy__watching, memory_order_relaxed);
  if (watching & HY__WATCH_LOG) log_event(event, end - begin);
  if (!(watching & HY__WATCH_TRACE)) return;
  pthread_mutex_lock(&trace.mutex);
  // A call that began before the trace did is not part of it.
  if (trace.file && begin >= trace.start) put_event(event, begin, end);
  pthread_mutex_unlock(&trace.mutex);
}

static hy_status open_file(const char* path) {
  size_t size = strlen(path) + 32;
  trace.path = hy__strdup(path);
  trace.part = hy__malloc(size);
  if (!trace.path || !trace.part)
    return hy_fail(HY_OUT_OF_MEMORY, "no memory to start a trace in %s", path);
  snprintf(trace.part, size, "%s.%d.part", path, (int)getpid());
  trace.file = fopen(trace.part, "we");
  if (!trace.file)
    return hy_fail(HY_IO, "the trace file %s cannot be written: %s", trace.part, strerror(errno));
  fputs("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[", trace.file);
  trace.start = hy__now_ns();
  trace.events = 0;
  return HY_OK;
}

static void forget(void) {
  hy__mfree(trace.path);
  hy__mfree(trace.part);
  trace.path = trace.part = NULL;
}

// A child of fork shares the file, and what is still in its buffer, with the process whose trace it
// is: it lets go of both, and has no trace until it starts one.
static void before_fork(void) {
  pthread_mutex_lock(&trace.mutex);
}

static void after_fork(void) {
  pthread_mutex_unlock(&trace.mutex);
}

static void in_child(void) {
  if (trace.file) {
    __fpurge(trace.file);
    fclose(trace.file);
    trace.file = NULL;
    hy__watch(HY__WATCH_TRACE, false);
    forget();
  }
  pthread_mutex_unlock(&trace.mutex);
}

static void watch_forks(void) {
  pthread_atfork(before_fork, after_fork, in_child);
}

static hy_status check_path(const char* path) {
  struct stat info;
  if (path[strlen(path) - 1] == '/' || (stat(path, &info) == 0 && S_ISDIR(info.st_mode)))
    return hy_fail(HY_IO, "the trace file %s is a folder; give the path of a file", path);
  return HY_OK;
}

hy_status hy_trace_start(const char* path) {
  if (!path || !*path)
    return hy_fail(HY_INVALID_ARGUMENT, "hy_trace_start: give the path of the file to write");
  HY_TRY(check_path(path));
  static pthread_once_t forks = PTHREAD_ONCE_INIT;
  pthread_once(&forks, watch_forks);
  hy_status status;
  pthread_mutex_lock(&trace.mutex);
  if (trace.file) {
    status = hy_fail(HY_INVALID_ARGUMENT,
                     "a trace into %s is running; hy_trace_stop ends it before another starts",
                     trace.path);
  } else {
    status = open_file(path);
    if (status == HY_OK)
      hy__watch(HY__WATCH_TRACE, true);
    else
      forget();
  }
  pthread_mutex_unlock(&trace.mutex);
  return status;
}

hy_status hy_trace_stop(void) {
  hy_status status = HY_OK;
  pthread_mutex_lock(&trace.mutex);
  if (trace.file) {
    hy__watch(HY__WATCH_TRACE, false);
    fputs("\n]}\n", trace.file);
    errno = 0;
    bool bad = ferror(trace.file);
    bad = fclose(trace.file) || bad || rename(trace.part, trace.path);
    trace.file = NULL;
    if (bad) {
      int error = errno;
      unlink(trace.part);
      status = hy_fail(HY_IO, "the trace file %s could not be written: %s", trace.path,
                       error ? strerror(error) : "some of it was lost");
    }
    forget();
  }
  pthread_mutex_unlock(&trace.mutex);
  return status;
}

static void stop_at_exit(void) {
  if (hy_trace_stop() != HY_OK) hy__log(0, "%s", hy_last_error());  // who asked is told
}

hy_status hy__trace_init(void) {
  const char* path = hy__env("HALYARD_TRACE");
  if (!path) return HY_OK;
  static atomic_bool registered;
  if (!atomic_exchange(&registered, true)) atexit(stop_at_exit);
  pthread_mutex_lock(&trace.mutex);
  bool running = trace.file;
  pthread_mutex_unlock(&trace.mutex);
  return running ? HY_OK : hy_trace_start(path);  // the program's own choice comes first
}
