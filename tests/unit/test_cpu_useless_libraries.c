// Libraries that lack a function, are too old, do not fit the processor, compute wrongly or are not
// there: each is reported with its reason and how far it came, and the work goes on without it.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "halyard/halyard.h"

static hy_provider_report report_of(const char* name) {
  hy_provider_report report;
  int n = 0;
  do assert_int_equal(hy_backend_provider_at("cpu", n++, &report), HY_OK);
  while (strcmp(report.name, name) != 0);
  return report;
}

static void useless(const char* name, hy_stage stage, const char* reason) {
  hy_provider_report report = report_of(name);
  if (report.available) fail_msg("%s is taken for available", name);
  assert_int_equal(report.probe.stage, stage);
  if (!strstr(report.probe.reason, reason))
    fail_msg("%s: \"%s\" does not say \"%s\"", name, report.probe.reason, reason);
  assert_true(report.probe.remedy[0]);
  hy_device* device;
  assert_int_equal(hy_device_get(name, &device), HY_UNAVAILABLE);
  assert_non_null(strstr(hy_last_error(), reason));
}

static void each_is_reported_with_its_reason(void** state) {
  (void)state;
  useless("mkl", HY_STAGE_LOADED, "has no function cblas_sgemm");
  useless("mkldnn", HY_STAGE_SYMBOLS, "oneDNN 1.9.4 is too old");
  useless("nnpack", HY_STAGE_SYMBOLS, "this processor is not supported");
  useless("openblas", HY_STAGE_DEVICES, "multiplies wrongly");
}

static void the_work_goes_on(void** state) {
  (void)state;
  float a[2] = {1, 2}, b[2] = {3, 4}, out[1];
  hy_tensor ta, tb, to;
  hy_device* device;
  hy_stream* stream;
  assert_int_equal(hy_device_get("cpu", &device), HY_OK);
  assert_int_equal(hy_stream_default(device, &stream), HY_OK);
  assert_int_equal(hy_tensor_init(&ta, a, HY_F32, 2, (int64_t[]){1, 2}), HY_OK);
  assert_int_equal(hy_tensor_init(&tb, b, HY_F32, 2, (int64_t[]){2, 1}), HY_OK);
  assert_int_equal(hy_tensor_init(&to, out, HY_F32, 2, (int64_t[]){1, 1}), HY_OK);
  assert_int_equal(hy_mm(stream, &to, &ta, &tb), HY_OK);
  assert_true(out[0] == 11);
}

static int start(void** state) {
  (void)state;
  static const char* const folders[] = {"HALYARD_MKL_FOLDER", "HALYARD_DNNL_FOLDER",
                                        "HALYARD_NNPACK_FOLDER", "HALYARD_OPENBLAS_FOLDER"};
  for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
    if (setenv(folders[i], USELESS_FOLDER, 1) != 0) return 1;
  }
  return 0;
}

static int stop(void** state) {
  (void)state;
  hy_shutdown();
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_is_reported_with_its_reason),
      cmocka_unit_test(the_work_goes_on),
  };
  return cmocka_run_group_tests(tests, start, stop);
}
