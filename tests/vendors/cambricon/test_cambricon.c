// The cambricon backend over the test library: a model's tokens, a LoRA step, enumerators from the
// installed header, and every call failing once.
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

#include "../common/test_backend.h"
#include "backends/cambricon/cambricon.h"

static int set_up(void** state) {
  (void)state;
  return test_backend_open("cambricon", CAMBRICON_HOME "/lib64/libcnrt.so");
}

// Names and values, comments, implicit values and hexadecimal ones.
static void enumerators_come_from_the_header(void** state) {
  (void)state;
  hy__cnnl_enumerators before = hy__cnnl_enum;
  assert_int_equal(hy__cnnl_enum.CNNL_CAST_FLOAT_TO_HALF, 200);
  assert_int_equal(hy__cnnl_enum.CNNL_CAST_BOOL_TO_INT32, 217);
  assert_int_equal(hy__cnnl_enum.CNNL_CYCLE_BXOR_OP, 0x67);
  assert_int_equal(hy__cnnl_enum.CNNL_LAYOUT_ARRAY, 4);
  char path[] = "/tmp/halyard_cnnl_XXXXXX";
  int file = mkstemp(path);
  assert_true(file >= 0);
  static const char text[] =
      "/* enum { CNNL_LOG_E = 9 } */ // enum { CNNL_LOG_E = 9 }\n"
      "typedef enum one { CNNL_LOG_E = 7, /* = 3 */ CNNL_SOFTMAX_LOG } one;\n"
      "enum { CNNL_SOFTMAX_ACCURATE\n, OTHER = 1 << 3, CNNL_REDUCE_ADD = 0x1f }; enum { "
      "CNNL_REDUCE";
  assert_int_equal(write(file, text, sizeof text - 1), sizeof text - 1);
  close(file);
  CHECK_OK(hy__cambricon_read_header(path));
  assert_int_equal(hy__cnnl_enum.CNNL_LOG_E, 7);
  assert_int_equal(hy__cnnl_enum.CNNL_SOFTMAX_LOG, 8);
  assert_int_equal(hy__cnnl_enum.CNNL_SOFTMAX_ACCURATE, 0);
  assert_int_equal(hy__cnnl_enum.CNNL_REDUCE_ADD, 0x1f);
  assert_int_equal(hy__cnnl_enum.CNNL_REDUCE_AVG, before.CNNL_REDUCE_AVG);
  unlink(path);
  assert_true(hy__cambricon_read_header("/nowhere/cnnl.h") != HY_OK);
  hy__cnnl_enum = before;
}

static void a_model_writes_what_it_writes_on_the_cpu(void** state) {
  (void)state;
  test_backend_generates("cambricon");
}

static void lora_steps_are_those_of_the_cpu(void** state) {
  (void)state;
  test_backend_trains("cambricon");
}

static void every_call_fails_once(void** state) {
  (void)state;
  // CNRT's own, out of memory, a lost device; CNNL's own, and out of memory
  test_backend_survives("cambricon", (const int[]){100006, 100100, 632003, 6, 2}, 5);
  assert_true(test_vendor.calls_of("cnrtTaskTopoEntityInvoke") > 0);  // graphs are CNRT's own
}

static void every_entry_point_fails_once(void** state) {
  (void)state;
  static const char* const names[] = {
#define HY_CNRT(type, name, arguments) #name,
#define HY_CNRT_OPTIONAL(type, name, arguments) #name,
#include "backends/cambricon/cnrt.def"
#define HY_CNNL_CORE(name, arguments) "cnnl" #name,
#define HY_CNNL(name, arguments) "cnnl" #name,
#include "backends/cambricon/cnnl.def"
      NULL};
  test_backend_entries_survive("cambricon", (const int[]){6, 100100, 632003}, 3, NULL, 0,
                               "cnrtSetDevice", names);
}

// cnclResult_t: arguments, system memory, not supported, MLU runtime, asynchronous error.
static void every_call_of_cncl_fails_once(void** state) {
  (void)state;
  test_backend_collectives_survive("cambricon", (const int[]){0x07, 0x12, 0x11, 0x03, 0x16}, 5);
}

static void a_link_is_lost(void** state) {
  (void)state;
  test_backend_loses_link(CAMBRICON_HOME "/lib64/libcncl.so", "CNCL");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(enumerators_come_from_the_header),
      cmocka_unit_test(a_model_writes_what_it_writes_on_the_cpu),
      cmocka_unit_test(lora_steps_are_those_of_the_cpu),
      cmocka_unit_test(every_call_fails_once),
      cmocka_unit_test(every_entry_point_fails_once),
      cmocka_unit_test(every_call_of_cncl_fails_once),
      cmocka_unit_test(a_link_is_lost),
  };
  return cmocka_run_group_tests(tests, set_up, test_backend_close);
}
