// From what a user writes to a device, and what the messages say.
#include <stdlib.h>

#include "core/registry.h"
#include "halyard/ops.h"
#include "support/check.h"
#include "support/stub.h"

static hy_provider quick, careful;
static const hy_provider* providers[] = {&quick, &careful};

static hy_support takes_all(void* device, const hy_call* call) {
  (void)device, (void)call;
  return HY_SUPPORT_YES;
}

static int setup(void** state) {
  (void)state;
  unsetenv("HALYARD_BACKEND");
  unsetenv("HALYARD_PLUGIN_PATH");
  setenv("ECHO_NPU_BACKEND", "asic", 1);  // no such card: the cpu alone is there besides the stubs
  stub_reset();
  stub.device_count = 3;
  quick = stub_provider("quick");
  careful = stub_provider("careful");
  quick.supports = careful.supports = takes_all;
  hy_backend backend = stub_backend("three");
  backend.providers = providers;
  backend.n_providers = 2;
  return hy_register_backend(&backend);
}

static int teardown(void** state) {
  (void)state;
  hy_shutdown();
  return 0;
}

static void chooses_by_name_and_index(void** state) {
  (void)state;
  hy_device *device, *same;
  CHECK_OK(hy_device_get("three:2", &device));
  assert_string_equal(hy_device_selector(device), "three:2");
  assert_string_equal(hy_device_backend(device), "three");
  assert_int_equal(hy_device_index(device), 2);
  assert_false(hy_device_is_host(device));
  CHECK_OK(hy_device_get(" three:2 ", &same));
  assert_ptr_equal(device, same);
  CHECK_OK(hy_device_get("three", &same));
  assert_int_equal(hy_device_index(same), 0);
  assert_true(hy_device_supports_dtype(device, HY_F32));
  assert_false(hy_device_supports_dtype(device, HY_F64));
  assert_false(hy_device_supports_dtype(device, (hy_dtype)99));
  CHECK_OK(hy_device_get("cpu", &device));
  assert_true(hy_device_is_host(device));
}

static void refuses_what_is_not_a_selector(void** state) {
  (void)state;
  const char* wrong[] = {":",      ":1",      "cpu:",   "cpu:x",           "cpu:1x",
                         "cpu:-1", "cpu:0:0", "cpu: 0", "cpu:99999999999", " ",
                         "cpu:+0"};
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
    hy_device* device = (hy_device*)&i;
    if (hy_device_get(wrong[i], &device) != HY_INVALID_ARGUMENT) fail_msg("\"%s\"", wrong[i]);
    assert_null(device);
  }
  char text[200];
  memset(text, 'a', sizeof text);
  text[sizeof text - 1] = 0;
  hy_device* device;
  CHECK_FAILS(HY_INVALID_ARGUMENT, "too long", hy_device_get(text, &device));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "NULL", hy_device_get("cpu", NULL));
  CHECK_FAILS(HY_NOT_FOUND, "3 devices", hy_device_get("three:3", &device));
}

static void suggests_near_misses(void** state) {
  (void)state;
  const char* pairs[][2] = {
      {"cdua", "did you mean cuda?"},        {"CUDA", "did you mean cuda?"},
      {"openbls", "did you mean openblas?"}, {"hipblas", "did you mean hipblaslt?"},
      {"thre", "did you mean three?"},       {"ascnd", "did you mean ascend?"},
      {"camb", "did you mean cambricon?"},   {"cp", "did you mean cpu?"}};
  hy_device* device;
  for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
    CHECK_FAILS(HY_NOT_FOUND, pairs[i][1], hy_device_get(pairs[i][0], &device));
    assert_non_null(strstr(hy_last_error(), "available: three:0 to three:2, cpu"));
  }
  assert_int_equal(hy_device_get("zzzzzz", &device), HY_NOT_FOUND);
  assert_null(strstr(hy_last_error(), "did you mean"));
}

static void known_providers_are_no_typing_errors(void** state) {
  (void)state;
  const char* names[] = {"cudnn",      "mkl",      "mkldnn",     "onednn",   "openmp",
                         "xeon",       "openblas", "cusparselt", "mha",      "nnpack",
                         "opt_einsum", "triton",   "cublaslt",   "hipblaslt"};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    hy_device* device;
    hy_status status = hy_device_get(names[i], &device);
    if (status != HY_OK) {
      assert_int_equal(status, HY_UNAVAILABLE);
      assert_non_null(strstr(hy_last_error(), "available: "));
    }
  }
}

static void a_provider_selects_its_device(void** state) {
  (void)state;
  hy_device* device;
  CHECK_OK(hy_device_get("careful:1", &device));
  assert_string_equal(hy_device_selector(device), "three:1");
  assert_string_equal(hy_device_provider(device), "careful");
  assert_string_equal(device->providers[0]->name, "careful");
  assert_string_equal(device->providers[1]->name, "quick");
  assert_null(device->providers[2]);
  hy_backend_report report;
  CHECK_OK(hy_backend_find("careful", &report));
  assert_string_equal(report.name, "three");
  CHECK_OK(hy_backend_find("cudnn", &report));
  assert_string_equal(report.name, "cuda");
  CHECK_OK(hy_backend_find("hipblaslt", &report));  // of several none is available: the first
  assert_string_equal(report.name, "hip");
  assert_true(hy_backend_is_available("careful"));
  assert_false(hy_backend_is_available("triton"));
  assert_false(hy_backend_is_available("nobody"));
  assert_false(hy_backend_is_available(""));
  assert_false(hy_backend_is_available(NULL));
  CHECK_FAILS(HY_NOT_FOUND, "nobody", hy_backend_find("nobody", &report));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "NULL", hy_backend_find(NULL, &report));
  CHECK_FAILS(HY_NOT_FOUND, "no three:9", hy_device_get("careful:9", &device));
}

// Two users of one device, of which one asks for a provider: each has the order it asked for, and
// memory of the one serves the other.
static void a_provider_is_the_business_of_who_named_it(void** state) {
  (void)state;
  hy_device *plain, *careful, *again;
  CHECK_OK(hy_device_get("three:1", &plain));
  CHECK_OK(hy_device_get("careful:1", &careful));
  assert_ptr_not_equal(plain, careful);
  assert_null(hy_device_provider(plain));
  assert_string_equal(plain->providers[0]->name, "quick");
  CHECK_OK(hy_device_get("three:1", &again));
  assert_ptr_equal(again, plain);
  CHECK_OK(hy_device_get("careful:1", &again));
  assert_ptr_equal(again, careful);
  assert_true(hy__same_device(plain, careful));
  CHECK_OK(hy_device_get("careful:0", &again));
  assert_false(hy__same_device(plain, again));

  hy_stream *ours, *theirs;
  CHECK_OK(hy_stream_default(plain, &ours));
  CHECK_OK(hy_stream_default(careful, &theirs));
  assert_ptr_not_equal(ours, theirs);
  assert_ptr_equal(hy_stream_device(theirs), careful);
  hy_tensor a, b;
  const int64_t shape[] = {4};
  CHECK_OK(hy_tensor_init(&a, NULL, HY_F32, 1, shape));
  b = a;
  CHECK_OK(hy_alloc(ours, 16, &a.data));
  CHECK_OK(hy_alloc(theirs, 16, &b.data));
  hy_placement placement;
  hy_call call = {.op = HY_OP_neg, .n_in = 1, .n_out = 1, .in = &a, .out = &b};
  CHECK_OK(hy_place(plain, &call, &placement));
  assert_string_equal(placement.provider, "quick");
  CHECK_OK(hy_place(careful, &call, &placement));
  assert_string_equal(placement.provider, "careful");
  CHECK_OK(hy_memcpy_peer(theirs, b.data, ours, a.data, 16));
  hy_event* event;
  CHECK_OK(hy_event_create(plain, &event));
  CHECK_OK(hy_event_record(event, theirs));
  CHECK_OK(hy_stream_wait_event(ours, event));
  hy_event_destroy(event);
  hy_memory_stats one, other;
  CHECK_OK(hy_memory_get_stats(plain, &one));
  CHECK_OK(hy_memory_get_stats(careful, &other));
  assert_int_equal(one.allocated, other.allocated);
  CHECK_OK(hy_free(careful, a.data));
  CHECK_OK(hy_free(plain, b.data));
}

static void takes_the_first_available(void** state) {
  (void)state;
  hy_device* device;
  CHECK_OK(hy_device_get_first("ascend, mkl , three:1,cpu", &device));
  assert_string_equal(hy_device_selector(device), "three:1");
  CHECK_FAILS(HY_UNAVAILABLE, "none of \"ascend,cambricon\"",
              hy_device_get_first("ascend,cambricon", &device));
  CHECK_FAILS(HY_NOT_FOUND, "cdua", hy_device_get_first("ascend,cdua,cpu", &device));
  // A plugin that is not installed here is no mistake.
  CHECK_OK(hy_device_get_first("plugin_of_ours,cpu", &device));
  assert_string_equal(hy_device_selector(device), "cpu:0");
  CHECK_FAILS(HY_UNAVAILABLE, "plugin_of_ours",
              hy_device_get_first("plugin_of_ours,xyzzy", &device));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "empty", hy_device_get_first("ascend,,cpu", &device));
  CHECK_OK(hy_device_get_first(NULL, &device));
  assert_string_equal(hy_device_selector(device), "three:0");
}

static void passes_over_what_does_not_open(void** state) {
  (void)state;
  hy_device* device;
  stub.open_status = HY_DEVICE_FAILED;
  CHECK_OK(hy_device_get_first("three,cpu", &device));
  assert_string_equal(hy_device_selector(device), "cpu:0");
  CHECK_OK(hy_device_get(NULL, &device));
  assert_string_equal(hy_device_selector(device), "cpu:0");
  CHECK_FAILS(HY_DEVICE_FAILED, "three:0", hy_device_get("three", &device));
}

static void the_default_and_its_order(void** state) {
  (void)state;
  hy_device* device;
  CHECK_OK(hy_device_get(NULL, &device));
  assert_string_equal(hy_device_selector(device), "three:0");
  CHECK_OK(hy_set_default("cpu"));
  CHECK_OK(hy_device_get("", &device));
  assert_string_equal(hy_device_selector(device), "cpu:0");
  CHECK_FAILS(HY_UNAVAILABLE, "ascend", hy_set_default("ascend"));
  CHECK_OK(hy_device_get(NULL, &device));
  assert_string_equal(hy_device_selector(device), "cpu:0");
  setenv("HALYARD_BACKEND", "ascend,three:2", 1);
  CHECK_OK(hy_set_default(NULL));
  CHECK_OK(hy_device_get(NULL, &device));
  assert_string_equal(hy_device_selector(device), "three:2");
  setenv("HALYARD_BACKEND", "ascend", 1);
  CHECK_OK(hy_set_default(""));
  CHECK_FAILS(HY_UNAVAILABLE, "ascend is not available", hy_device_get(NULL, &device));
  assert_null(device);
}

static void a_simulator_is_chosen_by_name_alone(void** state) {
  (void)state;
  hy_device* device;
  hy_shutdown();
  hy_backend backend = stub_backend("slow");
  backend.flags = HY_BACKEND_SIMULATED;
  CHECK_OK(hy_register_backend(&backend));
  CHECK_OK(hy_device_get(NULL, &device));
  assert_string_equal(hy_device_selector(device), "cpu:0");
  assert_true(hy_backend_is_available("slow"));
  CHECK_OK(hy_device_get(NULL, &device));
  assert_string_equal(hy_device_selector(device), "cpu:0");
  CHECK_OK(hy_device_get("slow", &device));
  assert_string_equal(hy_device_selector(device), "slow:0");
  CHECK_OK(hy_set_default("slow"));
  CHECK_OK(hy_device_get(NULL, &device));
  assert_string_equal(hy_device_selector(device), "slow:0");
}

static void the_current_device_is_the_threads(void** state) {
  (void)state;
  hy_device *device, *current;
  CHECK_OK(hy_device_get("three:1", &device));
  CHECK_OK(hy_set_current_device(device));
  CHECK_OK(hy_current_device(&current));
  assert_ptr_equal(device, current);
  CHECK_OK(hy_set_current_device(NULL));
  CHECK_OK(hy_current_device(&current));
  assert_string_equal(hy_device_selector(current), "three:0");
}

static void reads_visible_devices(void** state) {
  (void)state;
  const struct {
    const char* value;
    int count, visible, first, last;  // visible -1: refused
  } cases[] = {
      {NULL, 3, 3, 0, 2},           {"", 3, 0, 0, 0},       {"  ", 3, 0, 0, 0},
      {"-1", 3, 0, 0, 0},           {"1", 3, 1, 1, 1},      {"2,0", 3, 2, 2, 0},
      {" 2 , 0 ", 3, 2, 2, 0},      {"0,-1,2", 3, 1, 0, 0}, {"0,1,2", 3, 3, 0, 2},
      {"3", 3, -1, 0, 0},           {"0,0", 3, -1, 0, 0},   {"0,", 3, -1, 0, 0},
      {",0", 3, -1, 0, 0},          {"0;1", 3, -1, 0, 0},   {"x", 3, -1, 0, 0},
      {"0x1", 3, -1, 0, 0},         {"-2", 3, -1, 0, 0},    {"1 2", 3, -1, 0, 0},
      {"99999999999", 3, -1, 0, 0}, {"-12", 3, -1, 0, 0},   {"0", 0, -1, 0, 0},
      {NULL, 0, 0, 0, 0},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    int map[3] = {7, 7, 7}, n = 9;
    if (cases[i].value)
      setenv("HALYARD_TEST_VISIBLE", cases[i].value, 1);
    else
      unsetenv("HALYARD_TEST_VISIBLE");
    hy_status status =
        hy__visible_devices("HALYARD_TEST_UNSET HALYARD_TEST_VISIBLE", cases[i].count, map, &n);
    if (cases[i].visible < 0) {
      if (status != HY_INVALID_ARGUMENT || n != 0) fail_msg("\"%s\" was taken", cases[i].value);
      assert_non_null(strstr(hy_last_error(), "HALYARD_TEST_VISIBLE"));
      continue;
    }
    if (status != HY_OK || n != cases[i].visible)
      fail_msg("\"%s\": %d, %s", cases[i].value, n, hy_last_error());
    if (n > 0) assert_true(map[0] == cases[i].first && map[n - 1] == cases[i].last);
  }
  // The first that is set counts, even when empty.
  setenv("HALYARD_TEST_VISIBLE", "", 1);
  setenv("HALYARD_TEST_OTHER", "1", 1);
  int map[3], n = 9;
  CHECK_OK(hy__visible_devices("HALYARD_TEST_VISIBLE HALYARD_TEST_OTHER", 3, map, &n));
  assert_int_equal(n, 0);
  unsetenv("HALYARD_TEST_VISIBLE");
  unsetenv("HALYARD_TEST_OTHER");
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
  const struct CMUnitTest tests[] = {
      TEST(chooses_by_name_and_index),
      TEST(refuses_what_is_not_a_selector),
      TEST(suggests_near_misses),
      TEST(known_providers_are_no_typing_errors),
      TEST(a_provider_selects_its_device),
      TEST(a_provider_is_the_business_of_who_named_it),
      TEST(takes_the_first_available),
      TEST(passes_over_what_does_not_open),
      TEST(the_default_and_its_order),
      TEST(a_simulator_is_chosen_by_name_alone),
      TEST(the_current_device_is_the_threads),
      TEST(reads_visible_devices),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
