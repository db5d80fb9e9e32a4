// Seeing what the library does: log lines, and a trace file for Perfetto or chrome://tracing.
// All functions are thread-safe.
#ifndef HALYARD_TRACE_H_
#define HALYARD_TRACE_H_

#include "halyard/status.h"

#ifdef __cplusplus
extern "C" {
#endif

// 0: nothing (the default), 1: warnings, 2: what is found and chosen, 3: every op, copy and view.
// Also HALYARD_LOG. A level below 0 goes back to what HALYARD_LOG says.
HY_API void hy_set_log_level(int level);
// Sends log lines (without line end or colour) to a function instead of standard error; NULL goes
// back. It is called by one thread at a time and must not call the library.
typedef void (*hy_log_sink)(void* user, int level, const char* line);
HY_API void hy_set_log_sink(hy_log_sink sink, void* user);

// Records every op, copy and view until hy_trace_stop or hy_shutdown, which put the file in place:
// until then it is written beside, under the name "<path>.<process>.part". Also HALYARD_TRACE.
// While no trace runs the cost is one atomic load a call.
HY_API hy_status hy_trace_start(const char* path);
// HY_IO when not all could be written; then no file is left. Fine when no trace runs.
HY_API hy_status hy_trace_stop(void);

#ifdef __cplusplus
}
#endif
#endif  // HALYARD_TRACE_H_
