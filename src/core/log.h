// What log.c and trace.c share.
#ifndef HALYARD_CORE_LOG_H_
#define HALYARD_CORE_LOG_H_

#include "core/internal.h"
#include "halyard/trace.h"

// Bits of hy__watching.
#define HY__WATCH_LOG 1
#define HY__WATCH_TRACE 2
void hy__watch(int bit, bool on);

void hy__log_event(const hy__trace_event* event, int64_t ns);

#endif  // HALYARD_CORE_LOG_H_
