// test_report.c - recording packets, reading them back, timing them again, and the report.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "echo_report.h"

#define COUNT 1000

static char folder[] = "/tmp/echo_report_XXXXXX";
static char path[64];

// A batched product (REPEAT), a vector operation, a copy, with and without a label.
static void record(void) {
  float *a, *b, *c;
  assert_int_equal(echoNpuMalloc((void**)&a, 4 * COUNT * sizeof(float)), 0);
  assert_int_equal(echoNpuMalloc((void**)&b, 4 * COUNT * sizeof(float)), 0);
  assert_int_equal(echoNpuMalloc((void**)&c, 4 * COUNT * sizeof(float)), 0);
  assert_int_equal(echoNpuMemset(a, 0, 4 * COUNT * sizeof(float)), 0);
  assert_int_equal(echoNpuMemset(b, 0, 4 * COUNT * sizeof(float)), 0);
  assert_int_equal(echoNpuRecordStart(path), ECHO_NPU_SUCCESS);
  assert_int_equal(echoNpuRecordStart(path), ECHO_NPU_ERROR_INVALID_VALUE);
  echoNpuSetLabel("a product");
  assert_int_equal(echoNpuBatchMatMul(c, a, b, 3, 20, 25, 30, 0, 1, NULL), 0);
  echoNpuSetLabel("sum");
  assert_int_equal(echoNpuAddTensor(c, a, b, COUNT, NULL), 0);
  echoNpuSetLabel(NULL);
  assert_int_equal(echoNpuMemcpyAsync(c, a, COUNT, ECHO_NPU_MEMCPY_DEVICE_TO_DEVICE, NULL), 0);
  assert_int_equal(echoNpuRecordStop(), ECHO_NPU_SUCCESS);
  assert_int_equal(echoNpuRecordStop(), ECHO_NPU_ERROR_INVALID_VALUE);
  echoNpuFree(a);
  echoNpuFree(b);
  echoNpuFree(c);
}

static const echo_report_op* op_named(const echo_report* r, const char* label) {
  for (int i = 0; i < r->n_ops; ++i)
    if (strcmp(r->ops[i].label, label) == 0) return &r->ops[i];
  fail_msg("no op %s in the report", label);
  return NULL;
}

static void a_stream_is_recorded_with_its_cost(void** state) {
  (void)state;
  char reason[256] = "";
  echo_trace trace;
  echo_report report;
  record();
  assert_int_equal(echo_trace_read(path, &trace, reason, sizeof reason), 0);
  assert_string_equal(trace.backend, "cmodel");
  assert_int_equal(trace.array, 16);
  assert_int_equal(trace.count, 4);  // REPEAT and MATMUL, ADD_TENSOR, MEMCPY
  assert_string_equal(trace.packets[1].label, "a_product");
  assert_int_equal(trace.packets[1].cost.macs, 3 * 20 * 25 * 30);

  echo_report_options options = {.title = "a <test>", .tokens = 5, .clock = 1e9, .sweep = 1};
  assert_int_equal(echo_report_make(&trace, &options, &report, reason, sizeof reason), 0);
  assert_int_equal(report.total.macs, 3 * 20 * 25 * 30);
  assert_int_equal(report.n_ops, 3);
  assert_int_equal(op_named(&report, "a_product")->packets, 2);
  assert_true(op_named(&report, "sum")->cost.vector_busy > 0);
  assert_true(op_named(&report, "MEMCPY")->cost.copy_busy > 0);
  assert_true(echo_report_rate(&report, &report.total) > 0);
  assert_int_equal(report.n_points, 12);
  // More units never make it slower, more latency never faster.
  for (int i = 0; i < report.n_points; ++i) {
    if (i % 4) assert_true(report.points[i].cost.cycles >= report.points[i - 1].cost.cycles);
    if (i / 4) assert_true(report.points[i].cost.cycles <= report.points[i - 4].cost.cycles);
  }
  echo_trace_free(&trace);
}

// The counters that the functional model keeps as it runs are what its timing model says
// afterwards.
static void timing_again_gives_what_was_recorded(void** state) {
  (void)state;
  char reason[256] = "";
  echo_trace trace;
  echo_cost costs[4];
  record();
  assert_int_equal(echo_trace_read(path, &trace, reason, sizeof reason), 0);
  assert_int_equal(trace.count, 4);
  echo_timing timing = echo_timing_of(16, 40);
  assert_int_equal(echo_trace_time(&trace, &timing, costs, reason, sizeof reason), 0);
  for (size_t i = 0; i < trace.count; ++i)
    assert_memory_equal(&costs[i], &trace.packets[i].cost, sizeof costs[i]);
  trace.packets[0].packet.opcode = 0x77;
  assert_int_equal(echo_trace_time(&trace, &timing, costs, reason, sizeof reason), -1);
  assert_string_equal(reason, "packet 0 is not valid: unknown opcode");
  echo_trace_free(&trace);
}

static char* slurp(const char* name) {
  static char text[65536];
  FILE* f = fopen(name, "r");
  assert_non_null(f);
  size_t n = fread(text, 1, sizeof text - 1, f);
  fclose(f);
  text[n] = 0;
  return text;
}

static void the_report_is_written_in_three_forms(void** state) {
  (void)state;
  char reason[256] = "", name[80];
  echo_trace trace;
  echo_report report;
  record();
  assert_int_equal(echo_trace_read(path, &trace, reason, sizeof reason), 0);
  echo_report_options options = {
      .title = "a <test>", .tokens = 5, .clock = 1e9, .latency = 40, .sweep = 1};
  assert_int_equal(echo_report_make(&trace, &options, &report, reason, sizeof reason), 0);
  echo_trace_free(&trace);
  snprintf(name, sizeof name, "%s/out", folder);
  FILE* f = fopen(name, "w");
  echo_report_text(&report, f);
  fclose(f);
  assert_non_null(strstr(slurp(name), "a_product"));
  assert_non_null(strstr(slurp(name), "tokens/s"));
  assert_non_null(strstr(slurp(name), "\nper token: 0.8 packets, "));
  f = fopen(name, "w");
  echo_report_json(&report, f);
  fclose(f);
  assert_non_null(strstr(slurp(name), "\"op\":\"a_product\",\"packets\":2"));
  char bytes[64];
  snprintf(bytes, sizeof bytes, "\"bytes_written_per_token\":%.17g,",
           64 * (double)report.total.write_beats / 5);
  assert_non_null(strstr(slurp(name), bytes));
  assert_int_equal(echo_report_svg(&report, name, reason, sizeof reason), 0);
  assert_non_null(strstr(slurp(name), "a &lt;test></text>"));
  assert_int_equal(echo_report_svg(&report, "/nowhere/x.svg", reason, sizeof reason), -1);
  unlink(name);
}

static void what_is_no_trace_is_refused(void** state) {
  (void)state;
  static const char* const bad[] = {
      "", "hello\n", "echo-npu-trace 1 cmodel 16\nlinear 1 2 3\n",
      "echo-npu-trace 1 cmodel 16\n- 0 0 0 0 0 0 0 0 0 0 0 0 0 = 1 2 3 4 5 6 7 8 9\n",
      "echo-npu-trace 1 cmodel 16\n"
      "a-label-that-is-much-too-long-for-it 0 0 0 0 0 0 0 0 0 0 0 0 0 = 1 2 3 4 5 6 7 8 9 0\n"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; ++i) {
    char reason[256] = "";
    echo_trace trace;
    FILE* f = fopen(path, "w");
    fputs(bad[i], f);
    fclose(f);
    assert_int_equal(echo_trace_read(path, &trace, reason, sizeof reason), -1);
    assert_true(reason[0] != 0);
  }
  assert_int_equal(echoNpuRecordStart("/nowhere/at/all"), ECHO_NPU_ERROR_INVALID_VALUE);
}

static void clocks_are_read(void** state) {
  (void)state;
  assert_true(echo_report_clock("1GHz") == 1e9);
  assert_true(echo_report_clock("800 MHz") == 8e8);
  assert_true(echo_report_clock("2.5e8") == 2.5e8);
  assert_true(echo_report_clock("fast") == 0);
  assert_true(echo_report_clock("-1GHz") == 0);
}

static int set_up(void** state) {
  (void)state;
  if (!mkdtemp(folder)) return -1;
  snprintf(path, sizeof path, "%s/trace", folder);
  return 0;
}

static int tear_down(void** state) {
  (void)state;
  unlink(path);
  return rmdir(folder);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_stream_is_recorded_with_its_cost),
      cmocka_unit_test(timing_again_gives_what_was_recorded),
      cmocka_unit_test(the_report_is_written_in_three_forms),
      cmocka_unit_test(what_is_no_trace_is_refused),
      cmocka_unit_test(clocks_are_read),
  };
  setenv("ECHO_NPU_BACKEND", "cmodel", 1);
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
