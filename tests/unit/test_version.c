// The version: header, library and build say the same.
#include <stdio.h>

#include "halyard/halyard.h"
#include "support/check.h"

static void test_one_version(void** state) {
  (void)state;
  char numbers[32];
  snprintf(numbers, sizeof numbers, "%d.%d.%d", HY_VERSION_MAJOR, HY_VERSION_MINOR,
           HY_VERSION_PATCH);
  assert_string_equal(numbers, HY_VERSION_STRING);
  assert_string_equal(hy_version(), HY_VERSION_STRING);
  assert_string_equal(CMAKE_VERSION, HY_VERSION_STRING);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_one_version)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
