// Checks in a rank's program: a failure is a status that says which, printed by the rank that met
// it.
#ifndef HALYARD_TESTS_COMM_CHECKS_H_
#define HALYARD_TESTS_COMM_CHECKS_H_

#include <stdio.h>
#include <string.h>

#include "halyard/halyard.h"

#define TRY(call)                                                                           \
  do {                                                                                      \
    if ((call) != HY_OK) return hy_fail(HY_INTERNAL, "%s: %.300s", #call, hy_last_error()); \
  } while (0)
#define EXPECT(condition)                                                               \
  do {                                                                                  \
    if (!(condition)) return hy_fail(HY_INTERNAL, "line %d: %s", __LINE__, #condition); \
  } while (0)

// That status, with those words.
static inline hy_status expect(hy_status got, hy_status want, const char* words) {
  if (got == want && strstr(hy_last_error(), words)) return HY_OK;
  char message[600];
  snprintf(message, sizeof message, "%.500s", got == HY_OK ? "success" : hy_last_error());
  return hy_fail(HY_INTERNAL, "%s, \"%s\" in place of %s, \"%s\"", hy_status_name(got), message,
                 hy_status_name(want), words);
}

#endif  // HALYARD_TESTS_COMM_CHECKS_H_
