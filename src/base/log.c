// The log: no line unless asked for by HALYARD_LOG or hy_set_log_level.
#include "base/log.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/env.h"
#include "base/printable.h"
#include "halyard/trace.h"

atomic_int hy__watching;

static struct {
  atomic_int level;       // -1: what HALYARD_LOG says, not read yet
  pthread_mutex_t mutex;  // guards the sink, and keeps lines whole
  hy_log_sink sink;
  void* user;
} state = {.level = -1, .mutex = PTHREAD_MUTEX_INITIALIZER};

static void set_level(int level) {
  atomic_store(&state.level, level);
  hy__watch(HY__WATCH_LOG, level >= 3);
}

void hy__watch(int bit, bool on) {
  if (on)
    atomic_fetch_or(&hy__watching, bit);
  else
    atomic_fetch_and(&hy__watching, ~bit);
}

int hy__log_level(void) {
  int level = atomic_load_explicit(&state.level, memory_order_relaxed);
  if (level >= 0) return level;
  const char* value = hy__env("HALYARD_LOG");
  bool valid = !value || (value[0] >= '0' && value[0] <= '3' && !value[1]);
  level = !value ? 0 : valid ? value[0] - '0' : 1;
  set_level(level);
  if (!valid)
    hy__log(1, "HALYARD_LOG is \"%s\"; it takes 0 (nothing), 1 (warnings), 2 or 3 (all): using 1",
            value);
  return level;
}

void hy_set_log_level(int level) {
  set_level(level > 3 ? 3 : level);
  if (level < 0) hy__log_level();
}

void hy_set_log_sink(hy_log_sink sink, void* user) {
  pthread_mutex_lock(&state.mutex);
  state.sink = sink;
  state.user = user;
  pthread_mutex_unlock(&state.mutex);
}

// One write for the line, so that lines of several processes do not mix.
void hy__log_line(int level, const char* colour, const char* tag, const char* text) {
  char line[1400];
  pthread_mutex_lock(&state.mutex);
  if (state.sink) {
    snprintf(line, sizeof line, "%s%s", tag, text);
    state.sink(state.user, level, line);
  } else {
    bool coloured = colour && isatty(STDERR_FILENO) && !getenv("NO_COLOR");
    int n = snprintf(line, sizeof line - 1, "%s%s%s%s", coloured ? colour : "", tag,
                     coloured ? "\033[0m" : "", text);
    if (n > (int)sizeof line - 2) n = (int)sizeof line - 2;
    line[n] = '\n';
    ssize_t written = write(STDERR_FILENO, line, (size_t)n + 1);
    (void)written;  // there is nowhere left to complain
  }
  pthread_mutex_unlock(&state.mutex);
}

void hy__vlog(int level, const char* format, va_list arguments) {
  if (level > hy__log_level()) return;
  char text[1200];
  vsnprintf(text, sizeof text, format, arguments);
  hy__make_printable(text);
  hy__log_line(level, NULL, "halyard: ", text);
}

void hy__log(int level, const char* format, ...) {
  if (level > hy__log_level()) return;
  va_list arguments;
  va_start(arguments, format);
  hy__vlog(level, format, arguments);
  va_end(arguments);
}
