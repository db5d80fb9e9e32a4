// Logging and tracing: log lines, and a trace file for Perfetto or chrome://tracing.
// All functions are thread-safe.
#ifndef HALYARD_TRACE_H_
#define HALYARD_TRACE_H_

#include "halyard/status.h"

#ifdef __cplusplus
extern "C" {
#endif

// 0: nothing (the default), 1: warnings, 2: what is found and chosen, 3: every op, copy and view.
// Also set by HALYARD_LOG. A level below 0 restores the level that HALYARD_LOG gives.
HY_API void hy_set_log_level(int level);
// Sends log lines (without newline or colour) to a function instead of standard error; NULL
// restores standard error. It is called by one thread at a time and must not call the library.
typedef void (*hy_log_sink)(void* user, int level, const char* line);
HY_API void hy_set_log_sink(hy_log_sink sink, void* user);

// Records every op, copy and view until hy_trace_stop or hy_shutdown. Those put the file in place;
// until then it is named "<path>.<process>.part". Also started by HALYARD_TRACE. While no trace is
// running the cost is one atomic load per call.
HY_API hy_status hy_trace_start(const char* path);
// HY_IO if the file could not be written completely; none is left then. No error without a trace.
HY_API hy_status hy_trace_stop(void);

#ifdef __cplusplus
}
#endif
#endif  // HALYARD_TRACE_H_
