// Status codes in words, and the calling thread's last error message.
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/printable.h"

static _Thread_local char message[1024];
static _Thread_local unsigned count;

unsigned hy__failures(void) {
  return count;
}

const char* hy_status_name(hy_status status) {
  switch (status) {
#define HY_AS_CASE(name, value, text) \
  case HY_##name: return #name;
    HY_STATUS_MAP(HY_AS_CASE)
#undef HY_AS_CASE
  }
  return "UNKNOWN";
}

const char* hy_status_text(hy_status status) {
  switch (status) {
#define HY_AS_CASE(name, value, text) \
  case HY_##name: return text;
    HY_STATUS_MAP(HY_AS_CASE)
#undef HY_AS_CASE
  }
  return "an unknown status";
}

const char* hy_last_error(void) {
  return message;
}

// In parentheses because the analyzer sees a macro of that name.
hy_status(hy_fail)(hy_status status, const char* format, ...) {
  // Formatted aside first: an argument may be the old message.
  char text[sizeof message];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  hy__make_printable(text);
  snprintf(message, sizeof message, "%s", text);
  count++;
  return status;
}
