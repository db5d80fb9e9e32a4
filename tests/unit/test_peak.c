// Peaks of devices (hy_device_peak): every kind gives a rate, and what cannot be measured says so.
#include <math.h>

#include "halyard/halyard.h"
#include "support/check.h"

enum { BYTES = 1 << 20 };

static void measure_all(const char* selector) {
  hy_device* device;
  hy_stream* stream;
  void *a, *b;
  double rate;
  CHECK_OK(hy_device_get(selector, &device));
  CHECK_OK(hy_stream_default(device, &stream));
  CHECK_OK(hy_alloc(stream, BYTES, &a));
  CHECK_OK(hy_alloc(stream, BYTES, &b));
  CHECK_OK(hy_memset(stream, a, 7, BYTES));
  CHECK_OK(hy_memset(stream, b, 0, BYTES));
  static const hy_dtype dtypes[] = {HY_F32, HY_BF16, HY_I8};
  for (int i = 0; i < 3; i++) {
    CHECK_OK(hy_device_peak(device, HY_PEAK_MULTIPLY_ADD, dtypes[i], NULL, NULL, 0, &rate));
    assert_true(rate > 0 && isfinite(rate));
  }
  CHECK_OK(hy_device_peak(device, HY_PEAK_READ, HY_NONE, NULL, a, BYTES, &rate));
  assert_true(rate > 0 && isfinite(rate));
  CHECK_OK(hy_device_peak(device, HY_PEAK_COPY, HY_NONE, b, a, BYTES, &rate));
  assert_true(rate > 0 && isfinite(rate));
  unsigned char back[16];
  CHECK_OK(hy_memcpy(stream, back, (char*)b + BYTES - 16, 16, HY_COPY_DEVICE_TO_HOST));
  CHECK_OK(hy_stream_sync(stream));
  for (int i = 0; i < 16; i++) assert_int_equal(back[i], 7);  // a copy copies
  assert_int_equal(hy_device_peak(device, HY_PEAK_READ, HY_NONE, NULL, NULL, BYTES, &rate),
                   HY_INVALID_ARGUMENT);
  hy_shutdown();
}

static void cpu_measures(void** state) {
  (void)state;
  measure_all("cpu");
}

static void guarded_measures(void** state) {
  (void)state;
  CHECK_OK(hy_load_plugin(HALYARD_GUARDED_PLUGIN));
  measure_all("guarded");
}

static void others_say_so(void** state) {
  (void)state;
  hy_device* device;
  double rate = 1;
  CHECK_OK(hy_device_get("echo", &device));
  assert_int_equal(hy_device_peak(device, HY_PEAK_READ, HY_NONE, NULL, &rate, 8, &rate),
                   HY_UNSUPPORTED);
  assert_int_equal(hy_device_peak(NULL, HY_PEAK_READ, HY_NONE, NULL, &rate, 8, &rate),
                   HY_INVALID_ARGUMENT);
  hy_shutdown();
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(cpu_measures),
                                     cmocka_unit_test(guarded_measures),
                                     cmocka_unit_test(others_say_so)};
  return cmocka_run_group_tests_name("peak", tests, NULL, NULL);
}
