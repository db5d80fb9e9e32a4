// Registering, probing and listing backends; starting and stopping the library.
#include <pthread.h>
#include <stdlib.h>

#include "core/registry.h"
#include "support/check.h"
#include "support/stub.h"

static int setup(void** state) {
  (void)state;
  unsetenv("HALYARD_BACKEND");
  unsetenv("HALYARD_PLUGIN_PATH");
  setenv("ECHO_NPU_BACKEND", "asic", 1);  // no such card: the cpu alone is there besides the stubs
  stub_reset();
  return 0;
}

static int teardown(void** state) {
  (void)state;
  hy_shutdown();
  return 0;
}

static void lists_by_priority(void** state) {
  (void)state;
  hy_backend other = stub_backend("other");
  CHECK_OK(hy_register_backend(&other));
  // By priority, then as in known_backends.def; "other" comes last of its priority.
  const char expected[] = "cuda ascend cambricon hygon hip echo mps nki other cpu ";
  char names[sizeof expected + 64] = "";
  hy_backend_report report;
  int n = 0;
  for (; hy_backend_at(n, &report) == HY_OK; n++) {
    assert_true(strlen(names) + strlen(report.name) + 2 < sizeof names);
    strcat(strcat(names, report.name), " ");
  }
  assert_string_equal(names, expected);
  CHECK_FAILS(HY_NOT_FOUND, "no backend number", hy_backend_at(n, &report));
  CHECK_FAILS(HY_NOT_FOUND, "-1", hy_backend_at(-1, &report));
}

static void cpu_is_available(void** state) {
  (void)state;
  hy_backend_report report;
  CHECK_OK(hy_backend_find("cpu", &report));
  assert_int_equal(report.state, HY_BACKEND_AVAILABLE);
  assert_int_equal(report.probe.stage, HY_STAGE_READY);
  assert_int_equal(report.device_count, 1);
  assert_string_equal(report.probe.reason, "");
  assert_string_equal(report.version, hy_version());
  assert_true(hy_backend_is_available("cpu"));
  hy_device_info info;
  CHECK_OK(hy_backend_device_info("cpu", 0, &info));
  assert_true(info.name[0] && info.core_count >= 1);
  assert_true(info.memory_total >= info.memory_free && info.memory_free > 0);
  assert_true(info.capabilities & HY_CAP_FP32);
  assert_false(info.capabilities & (HY_CAP_NCCL | HY_CAP_HCCL));
  CHECK_FAILS(HY_NOT_FOUND, "no cpu:1", hy_backend_device_info("cpu", 1, &info));
}

static void absent_backends_say_why(void** state) {
  (void)state;
  const char* names[] = {"cuda", "hip", "hygon", "ascend", "cambricon", "echo", "mps", "nki"};
  CHECK_OK(hy_init());
  for (size_t i = 0; i < 8; i++) {
    // What is compiled in has tests of its own.
    if (atomic_load(&hy__entry_find(names[i])->has_code)) continue;
    hy_backend_report report;
    CHECK_OK(hy_backend_find(names[i], &report));
    assert_int_equal(report.state, HY_BACKEND_MISSING);
    assert_int_equal(report.probe.status, HY_UNAVAILABLE);
    // A build that has it is no remedy where nobody has written it.
    bool written = !hy__not_written(names[i]);
    assert_non_null(strstr(report.probe.reason, written ? "this build has no" : "is written yet"));
    assert_non_null(strstr(report.probe.reason, names[i]));
    assert_non_null(strstr(report.probe.remedy, written ? "USE_" : "a plugin called"));
    assert_null(report.version);
    assert_false(hy_backend_is_available(names[i]));
  }
}

static void probes_lazily_and_once(void** state) {
  (void)state;
  hy_backend backend = stub_backend("lazy");
  CHECK_OK(hy_register_backend(&backend));
  hy_device* device;
  CHECK_OK(hy_device_get("cpu", &device));
  assert_int_equal(stub.probes, 0);
  CHECK_OK(hy_device_get("lazy", &device));
  CHECK_OK(hy_device_get("lazy:0", &device));
  assert_true(hy_backend_is_available("lazy"));
  assert_int_equal(stub.probes, 1);
  assert_int_equal(stub.opens, 1);
}

static void refuses_a_taken_name(void** state) {
  (void)state;
  hy_backend backend = stub_backend("cpu");
  CHECK_FAILS(HY_INVALID_ARGUMENT, "cpu", hy_register_backend(&backend));
  backend.name = "mkl";
  CHECK_FAILS(HY_FORMAT, "provider", hy_register_backend(&backend));
  backend.name = "twice";
  CHECK_OK(hy_register_backend(&backend));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "twice", hy_register_backend(&backend));
}

static void a_known_name_can_be_given_code(void** state) {
  (void)state;
  assert_false(hy_backend_is_available("nki"));
  hy_backend backend = stub_backend("nki");
  CHECK_OK(hy_register_backend(&backend));
  assert_true(hy_backend_is_available("nki"));
}

static void refuses_bad_tables(void** state) {
  (void)state;
  CHECK_FAILS(HY_FORMAT, "NULL", hy_register_backend(NULL));
  hy_backend backend = stub_backend("bad");
  backend.size = 8;
  CHECK_FAILS(HY_ABI_MISMATCH, "size is 8", hy_register_backend(&backend));
  backend.size = (size_t)-1;
  CHECK_FAILS(HY_ABI_MISMATCH, "size", hy_register_backend(&backend));
  backend = stub_backend("bad");
  backend.abi = HY_ABI_VERSION + 1;
  CHECK_FAILS(HY_ABI_MISMATCH, "version 2", hy_register_backend(&backend));
  backend.abi = 0;
  CHECK_FAILS(HY_ABI_MISMATCH, "version 0", hy_register_backend(&backend));
  const char* names[] = {NULL, "", "Upper", "9lives", "a-b", "a_name_that_is_far_too_long"};
  for (size_t i = 0; i < 6; i++) {
    backend = stub_backend(names[i]);
    CHECK_FAILS(HY_FORMAT, "valid name", hy_register_backend(&backend));
  }
  backend = stub_backend("bad");
  backend.copy = NULL;
  CHECK_FAILS(HY_FORMAT, "copy", hy_register_backend(&backend));
  backend = stub_backend("bad");
  backend.host_free = backend.memory_free;
  CHECK_FAILS(HY_FORMAT, "host_alloc and host_free", hy_register_backend(&backend));

  hy_provider provider = stub_provider("fast");
  const hy_provider* list[2] = {&provider, NULL};
  backend = stub_backend("bad");
  backend.n_providers = 1;
  CHECK_FAILS(HY_FORMAT, "providers is NULL", hy_register_backend(&backend));
  backend.providers = list;
  backend.n_providers = 2;
  CHECK_FAILS(HY_FORMAT, "providers[1] is NULL", hy_register_backend(&backend));
  list[1] = &provider;
  CHECK_FAILS(HY_FORMAT, "two providers", hy_register_backend(&backend));
  backend.n_providers = 17;
  CHECK_FAILS(HY_FORMAT, "n_providers is 17", hy_register_backend(&backend));
  backend.n_providers = 1;
  provider.run = NULL;
  CHECK_FAILS(HY_FORMAT, "run is NULL", hy_register_backend(&backend));
  provider = stub_provider("fast");
  provider.n_declares = 1;
  CHECK_FAILS(HY_FORMAT, "n_declares", hy_register_backend(&backend));
  hy_declaration promise = {.op = HY_OP_END, .dtypes = HY_FLOATS};
  provider.declares = &promise;
  CHECK_FAILS(HY_FORMAT, "declares[0]", hy_register_backend(&backend));
  assert_null(hy__entry_find("bad"));
}

static void accepts_a_shorter_table(void** state) {
  (void)state;
  // As compiled against a header that ended before the events and providers.
  hy_backend backend = stub_backend("short");
  backend.size = offsetof(hy_backend, stream_create);
  // Beyond `size` is something else.
  memset((char*)&backend + backend.size, 0x5a, sizeof backend - backend.size);
  CHECK_OK(hy_register_backend(&backend));
  hy_device* device;
  CHECK_OK(hy_device_get("short", &device));
  hy_event *first, *second;
  hy_stream* stream;
  double ms = -1;
  CHECK_OK(hy_stream_default(device, &stream));
  CHECK_OK(hy_event_create(device, &first));
  CHECK_OK(hy_event_create(device, &second));
  CHECK_OK(hy_event_record(first, stream));
  CHECK_OK(hy_event_record(second, stream));
  CHECK_OK(hy_event_elapsed(first, second, &ms));
  assert_true(ms >= 0);
  CHECK_OK(hy_device_sync(device));
  hy_event_destroy(first);
  hy_event_destroy(second);
}

static void failed_probes_are_reported(void** state) {
  (void)state;
  hy_backend backend = stub_backend("broken");
  CHECK_OK(hy_register_backend(&backend));
  stub.status = HY_DEVICE_FAILED;
  stub.stage = HY_STAGE_VERSION;
  stub.reason = "the driver is older than the library";
  hy_backend_report report;
  CHECK_OK(hy_backend_find("broken", &report));
  assert_int_equal(report.state, HY_BACKEND_FAILED);
  assert_int_equal(report.probe.stage, HY_STAGE_VERSION);
  assert_string_equal(report.probe.reason, stub.reason);
  hy_device* device = (hy_device*)&device;
  CHECK_FAILS(HY_UNAVAILABLE, "driver is older", hy_device_get("broken", &device));
  assert_null(device);
  assert_non_null(strstr(hy_last_error(), "available: cpu"));
  CHECK_OK(hy_device_get(NULL, &device));
  assert_string_equal(hy_device_backend(device), "cpu");
}

static void a_probe_must_reach_ready(void** state) {
  (void)state;
  hy_backend backend = stub_backend("hasty");
  CHECK_OK(hy_register_backend(&backend));
  stub.stage = HY_STAGE_DEVICES;
  hy_backend_report report;
  CHECK_OK(hy_backend_find("hasty", &report));
  assert_int_equal(report.state, HY_BACKEND_FAILED);
  assert_int_equal(report.probe.status, HY_INTERNAL);
}

static void no_devices_is_missing(void** state) {
  (void)state;
  hy_backend backend = stub_backend("empty");
  CHECK_OK(hy_register_backend(&backend));
  stub.device_count = 0;
  hy_backend_report report;
  CHECK_OK(hy_backend_find("empty", &report));
  assert_int_equal(report.state, HY_BACKEND_MISSING);
  assert_true(report.probe.stage < HY_STAGE_READY);
  assert_non_null(strstr(report.probe.reason, "no device"));
}

static void lists_providers(void** state) {
  (void)state;
  hy_provider fast = stub_provider("fast"), faster = stub_provider("faster");
  const hy_provider* list[] = {&fast, &faster};
  hy_backend backend = stub_backend("nki");
  backend.providers = list;
  backend.n_providers = 2;
  CHECK_OK(hy_register_backend(&backend));
  const char* expected[] = {"fast", "faster"};
  hy_provider_report report;
  for (int i = 0; i < 2; i++) {
    CHECK_OK(hy_backend_provider_at("nki", i, &report));
    assert_string_equal(report.name, expected[i]);
    assert_true(report.available);
  }
  CHECK_FAILS(HY_NOT_FOUND, "2", hy_backend_provider_at("nki", 2, &report));
  CHECK_FAILS(HY_NOT_FOUND, "-1", hy_backend_provider_at("nki", -1, &report));
}

// A backend's own come first, in its order; every known one is there once.
static void lists_known_providers(void** state) {
  (void)state;
  const char* known[] = {"cublaslt", "cudnn", "cusparselt", "mha", "triton"};
  hy_provider_report report;
  for (int i = 0; i < 5; i++) {
    int seen = 0;
    for (int at = 0; hy_backend_provider_at("cuda", at, &report) == HY_OK; at++)
      seen += strcmp(report.name, known[i]) == 0;
    assert_int_equal(seen, 1);
  }
  // One name, two backends.
  const char* owners[] = {"hip", "hygon"};
  for (int i = 0; i < 2; i++) {
    int seen = 0;
    for (int at = 0; hy_backend_provider_at(owners[i], at, &report) == HY_OK; at++)
      seen += strcmp(report.name, "hipblaslt") == 0;
    assert_int_equal(seen, 1);
  }
}

static void discovers_each_device_once(void** state) {
  (void)state;
  stub.device_count = 2;
  stub.pci = "0000:3b:00.0";
  hy_backend first = stub_backend("nki"), second = stub_backend("other");
  CHECK_OK(hy_register_backend(&second));
  CHECK_OK(hy_register_backend(&first));
  hy_found_device list[8];
  assert_int_equal(hy_discover_devices(list, 8), 4);
  assert_string_equal(list[0].selector, "nki:0");
  assert_string_equal(list[1].selector, "nki:1");
  assert_string_equal(list[2].selector, "other:1");
  assert_string_equal(list[3].selector, "cpu:0");
  assert_int_equal(hy_discover_devices(NULL, 0), 4);
}

static void a_device_that_does_not_open(void** state) {
  (void)state;
  hy_backend backend = stub_backend("closed");
  CHECK_OK(hy_register_backend(&backend));
  stub.open_status = HY_DEVICE_FAILED;
  hy_device* device;
  CHECK_FAILS(HY_DEVICE_FAILED, "closed:0", hy_device_get("closed", &device));
  assert_null(device);
  stub.open_status = HY_OK;
  CHECK_OK(hy_device_get("closed", &device));
}

static void shutdown_forgets_everything(void** state) {
  (void)state;
  for (int i = 0; i < 3; i++) {
    hy_backend backend = stub_backend("again");
    CHECK_OK(hy_register_backend(&backend));
    hy_device* device;
    CHECK_OK(hy_device_get("again", &device));
    CHECK_OK(hy_set_current_device(device));
    CHECK_OK(hy_set_default("again"));
    hy_stream* stream;
    CHECK_OK(hy_stream_default(device, &stream));
    hy_shutdown();
    assert_int_equal(stub.opens, i + 1);
    assert_int_equal(stub.closes, i + 1);
    CHECK_OK(hy_current_device(&device));
    assert_string_equal(hy_device_backend(device), "cpu");
    assert_false(hy_backend_is_available("again"));
  }
  hy_shutdown();
  hy_shutdown();
}

// Numbers are for ever, and name what names name.
static void backends_have_numbers(void** state) {
  (void)state;
  static const struct {
    hy_backend_type type;
    int number;
    const char* name;
  } rows[] = {
      {HY_BACKEND_TYPE_cuda, 0, "cuda"},
      {HY_BACKEND_TYPE_mps, 1, "mps"},
      {HY_BACKEND_TYPE_cudnn, 2, "cudnn"},
      {HY_BACKEND_TYPE_cusparselt, 3, "cusparselt"},
      {HY_BACKEND_TYPE_ascend, 4, "ascend"},
      {HY_BACKEND_TYPE_hip, 6, "hip"},
      {HY_BACKEND_TYPE_cpu, 10, "cpu"},
      {HY_BACKEND_TYPE_mkl, 11, "mkl"},
      {HY_BACKEND_TYPE_mkldnn, 12, "mkldnn"},
      {HY_BACKEND_TYPE_openmp, 13, "openmp"},
      {HY_BACKEND_TYPE_xeon, 14, "xeon"},
      {HY_BACKEND_TYPE_openblas, 15, "openblas"},
      {HY_BACKEND_TYPE_native, 16, "native"},
      {HY_BACKEND_TYPE_nki, 20, "nki"},
      {HY_BACKEND_TYPE_triton, 21, "triton"},
      {HY_BACKEND_TYPE_mha, 22, "mha"},
      {HY_BACKEND_TYPE_nnpack, 23, "nnpack"},
      {HY_BACKEND_TYPE_opt_einsum, 24, "opt_einsum"},
      {HY_BACKEND_TYPE_hygon, 40, "hygon"},
      {HY_BACKEND_TYPE_cambricon, 41, "cambricon"},
      {HY_BACKEND_TYPE_echo, 42, "echo"},
      {HY_BACKEND_TYPE_cublaslt, 25, "cublaslt"},
      {HY_BACKEND_TYPE_hipblaslt, 26, "hipblaslt"},
  };
  enum { N = sizeof rows / sizeof rows[0] };
  for (int i = 0; i < N; i++) {
    assert_int_equal(rows[i].type, rows[i].number);
    assert_int_equal(hy_backend_type_of(rows[i].name), rows[i].number);
    assert_string_equal(hy_backend_type_name(rows[i].type), rows[i].name);
  }
  // No two names have one number.
  const hy__known_backend* b;
  const hy__known_provider* p;
  for (int i = 0; (b = hy__known_backend_at(i)); i++)
    assert_string_equal(hy_backend_type_name(hy_backend_type_of(b->name)), b->name);
  for (int i = 0; (p = hy__known_provider_at(i)); i++)
    assert_string_equal(hy_backend_type_name(hy_backend_type_of(p->name)), p->name);
  assert_int_equal(hy_backend_type_of("nobody"), HY_BACKEND_TYPE_NONE);
  assert_int_equal(hy_backend_type_of(NULL), HY_BACKEND_TYPE_NONE);
  assert_null(hy_backend_type_name((hy_backend_type)5));

  hy_backend_report report;
  hy_device *by_type, *by_name;
  CHECK_OK(hy_backend_find_by_type(HY_BACKEND_TYPE_cpu, &report));
  assert_string_equal(report.name, "cpu");
  assert_int_equal(report.type, HY_BACKEND_TYPE_cpu);
  CHECK_OK(hy_backend_find_by_type(HY_BACKEND_TYPE_cudnn, &report));
  assert_int_equal(report.type, HY_BACKEND_TYPE_cuda);  // a provider stands for its backend
  CHECK_FAILS(HY_NOT_FOUND, "5 is no type", hy_backend_find_by_type((hy_backend_type)5, &report));
  CHECK_OK(hy_device_get_by_type(HY_BACKEND_TYPE_native, 0, &by_type));
  CHECK_OK(hy_device_get("native", &by_name));
  assert_ptr_equal(by_type, by_name);
  CHECK_FAILS(HY_NOT_FOUND, "-1", hy_device_get_by_type(HY_BACKEND_TYPE_cpu, -1, &by_type));
  CHECK_FAILS(HY_NOT_FOUND, "cpu:3", hy_device_get_by_type(HY_BACKEND_TYPE_cpu, 3, &by_type));
  CHECK_FAILS(HY_NOT_FOUND, "no type", hy_device_get_by_type(HY_BACKEND_TYPE_NONE, 0, &by_type));
  hy_backend backend = stub_backend("numberless");
  CHECK_OK(hy_register_backend(&backend));
  CHECK_OK(hy_backend_find("numberless", &report));
  assert_int_equal(report.type, HY_BACKEND_TYPE_NONE);
}

static void* choose(void* result) {
  hy_device* device = NULL;
  hy_backend_report report;
  for (int i = 0; i < 50; i++) {
    if (hy_device_get(i % 2 ? "fast" : "busy", &device) != HY_OK ||
        strcmp(device->providers[0]->name, i % 2 ? "fast" : "slow") != 0)
      return NULL;
    for (int b = 0; hy_backend_at(b, &report) == HY_OK; b++) continue;
    if (hy_device_get(NULL, &device) != HY_OK) return NULL;
  }
  *(hy_device**)result = device;
  return result;
}

static void many_threads_at_once(void** state) {
  (void)state;
  hy_provider slow = stub_provider("slow"), fast = stub_provider("fast");
  const hy_provider* list[] = {&slow, &fast};
  hy_backend backend = stub_backend("busy");
  backend.providers = list;
  backend.n_providers = 2;
  CHECK_OK(hy_register_backend(&backend));
  enum { THREADS = 4 };
  pthread_t threads[THREADS];
  hy_device* seen[THREADS] = {NULL};
  for (int i = 0; i < THREADS; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, choose, &seen[i]), 0);
  for (int i = 0; i < THREADS; i++) {
    void* result;
    pthread_join(threads[i], &result);
    assert_non_null(result);
    assert_ptr_equal(seen[i], seen[0]);
  }
  assert_int_equal(stub.probes, 1);
  assert_int_equal(stub.opens, 1);
}

// Everything from nothing to an open device, with each allocation in turn failing.
static hy_status start_up(void) {
  hy_provider fast = stub_provider("fast");
  const hy_provider* list[] = {&fast};
  hy_backend backend = stub_backend("swept");
  backend.providers = list;
  backend.n_providers = 1;
  HY_TRY(hy_init());
  HY_TRY(hy_register_backend(&backend));
  hy_device* device;
  hy_stream* stream;
  HY_TRY(hy_device_get("swept", &device));
  HY_TRY(hy_set_default("swept"));
  HY_TRY(hy_stream_default(device, &stream));
  HY_TRY(hy_device_get("cpu", &device));
  return hy_stream_default(device, &stream);
}

static void survives_lack_of_memory(void** state) {
  (void)state;
  setenv("HALYARD_PLUGIN_PATH", "relative:/nonexistent", 1);
  int n = 1;
  for (; n < 1000; n++) {
    hy_shutdown();
    hy_inject_fault(HY_FAULT_HOST_ALLOCATION, n);
    hy_status status = start_up();
    bool fired = hy_fault_events(HY_FAULT_HOST_ALLOCATION) >= n;
    hy_inject_fault(HY_FAULT_HOST_ALLOCATION, 0);
    if (!fired) {
      assert_int_equal(status, HY_OK);
      break;
    }
    if (status != HY_OUT_OF_MEMORY)
      fail_msg("allocation %d: %s: %s", n, hy_status_name(status), hy_last_error());
    assert_true(hy_last_error()[0]);
    // Nothing is left in a bad state: the same works at once, as far as it had not come yet.
    hy_device* device;
    CHECK_OK(hy_device_get("cpu", &device));
  }
  assert_true(n > 10 && n < 1000);
}

// What a backend says of itself is printed: it cannot steer a terminal.
static void says_nothing_to_the_terminal(void** state) {
  (void)state;
  hy_backend backend = stub_backend("painter");
  backend.version = "1\033[31m";
  backend.description = "a \033]0;title\007 chip";
  hy_provider provider = stub_provider("brush");
  provider.version = "2\033[2J";
  const hy_provider* providers[] = {&provider};
  backend.providers = providers;
  backend.n_providers = 1;
  stub.status = HY_UNAVAILABLE;
  stub.reason = "\033[1mbroken\x7f";
  CHECK_OK(hy_register_backend(&backend));
  hy_backend_report report;
  hy_provider_report brush;
  CHECK_OK(hy_backend_find("painter", &report));
  assert_string_equal(report.version, "1?[31m");
  assert_string_equal(report.description, "a ?]0;title? chip");
  assert_string_equal(report.probe.reason, "?[1mbroken?");
  CHECK_OK(hy_backend_provider_at("painter", 0, &brush));
  assert_string_equal(brush.version, "2?[2J");
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
  const struct CMUnitTest tests[] = {
      TEST(lists_by_priority),           TEST(cpu_is_available),
      TEST(absent_backends_say_why),     TEST(probes_lazily_and_once),
      TEST(refuses_a_taken_name),        TEST(a_known_name_can_be_given_code),
      TEST(refuses_bad_tables),          TEST(accepts_a_shorter_table),
      TEST(failed_probes_are_reported),  TEST(a_probe_must_reach_ready),
      TEST(no_devices_is_missing),       TEST(lists_providers),
      TEST(lists_known_providers),       TEST(backends_have_numbers),
      TEST(discovers_each_device_once),  TEST(a_device_that_does_not_open),
      TEST(shutdown_forgets_everything), TEST(many_threads_at_once),
      TEST(survives_lack_of_memory),     TEST(says_nothing_to_the_terminal),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
