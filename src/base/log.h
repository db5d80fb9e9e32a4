// The log: one line on standard error, or to the sink that the program has set. Thread-safe.
#ifndef HALYARD_BASE_LOG_H_
#define HALYARD_BASE_LOG_H_

#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>

// Level 1 warnings, 2 information, 3 detail; printed when HALYARD_LOG is at least that.
void hy__log(int level, const char* format, ...) __attribute__((format(printf, 2, 3)));
void hy__vlog(int level, const char* format, va_list arguments);
int hy__log_level(void);  // reads HALYARD_LOG on first use
// A line with a tag, which is coloured on a terminal where `colour` is not NULL.
void hy__log_line(int level, const char* colour, const char* tag, const char* text);

// Who wants to see every call: the log at level 3, a trace file.
#define HY__WATCH_LOG 1
#define HY__WATCH_TRACE 2
extern atomic_int hy__watching;  // those bits
void hy__watch(int bit, bool on);

#endif  // HALYARD_BASE_LOG_H_
