// cmocka, and checks in the words of the library.
#ifndef HALYARD_TESTS_SUPPORT_CHECK_H_
#define HALYARD_TESTS_SUPPORT_CHECK_H_

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "halyard/status.h"

// Fails with the message of the library.
#define CHECK_OK(expression)                                                              \
  do {                                                                                    \
    hy_status check_status = (expression);                                                \
    if (check_status != HY_OK) {                                                          \
      fail_msg("%s: %s: %s", #expression, hy_status_name(check_status), hy_last_error()); \
    }                                                                                     \
  } while (0)

// The call fails with that status, and the message names `part`.
#define CHECK_FAILS(status, part, expression)                                         \
  do {                                                                                \
    hy_status check_status = (expression);                                            \
    if (check_status != (status)) {                                                   \
      fail_msg("%s: %s, not %s: %s", #expression, hy_status_name(check_status),       \
               hy_status_name(status), hy_last_error());                              \
    }                                                                                 \
    if (!strstr(hy_last_error(), part)) {                                             \
      fail_msg("%s: \"%s\" does not say \"%s\"", #expression, hy_last_error(), part); \
    }                                                                                 \
  } while (0)

#endif  // HALYARD_TESTS_SUPPORT_CHECK_H_
