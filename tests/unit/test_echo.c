// The echo backend on its functional model: memory that the host cannot follow, errors that name
// the op behind them, several devices in one process.
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "halyard/halyard.h"
#include "support/check.h"

static hy_device* device;
static hy_stream* stream;

static void start(const char* selector) {
  unsetenv("HALYARD_BACKEND");
  unsetenv("HALYARD_PLUGIN_PATH");
  setenv("ECHO_NPU_BACKEND", "cmodel", 1);
  hy_status status = hy_device_get(selector, &device);
  if (status == HY_UNAVAILABLE) {
    print_message("skipped: %s\n", hy_last_error());
    skip();
  }
  CHECK_OK(status);
  CHECK_OK(hy_stream_create(device, &stream));
}

static int tear_down(void** state) {
  (void)state;
  hy_shutdown();
  unsetenv("ECHO_NPU_DEVICE_COUNT");
  return 0;
}

static hy_tensor tensor(hy_dtype dtype, int ndim, const int64_t* shape, const void* values) {
  hy_tensor t;
  CHECK_OK(hy_tensor_init(&t, NULL, dtype, ndim, shape));
  CHECK_OK(hy_alloc(stream, hy_tensor_bytes(&t), &t.data));
  if (values)
    CHECK_OK(hy_memcpy(stream, t.data, values, hy_tensor_bytes(&t), HY_COPY_HOST_TO_DEVICE));
  return t;
}

static void read_back(const hy_tensor* t, void* values) {
  CHECK_OK(hy_memcpy(stream, values, t->data, hy_tensor_bytes(t), HY_COPY_DEVICE_TO_HOST));
  CHECK_OK(hy_stream_sync(stream));
}

static void is_never_the_default(void** state) {
  (void)state;
  start("echo");
  hy_device* chosen;
  CHECK_OK(hy_device_get(NULL, &chosen));
  assert_string_equal(hy_device_selector(chosen), "cpu:0");
}

static void memory_faults_under_the_host(void** state) {
  (void)state;
  start("echo");
  volatile char* address;
  CHECK_OK(hy_alloc(stream, 100, (void**)&address));
  CHECK_OK(hy_stream_sync(stream));
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    signal(SIGSEGV, SIG_DFL);
    _exit(address[0]);
  }
  int how;
  assert_int_equal(waitpid(child, &how, 0), child);
  assert_true(WIFSIGNALED(how) && WTERMSIG(how) == SIGSEGV);
}

static void an_error_names_its_op_and_stays(void** state) {
  (void)state;
  start("echo");
  const int64_t ids[3] = {0, 17, 1};
  const float ones[12] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
  hy_tensor weight = tensor(HY_F32, 2, (int64_t[]){4, 3}, ones);
  hy_tensor index = tensor(HY_I64, 1, (int64_t[]){3}, ids);
  hy_tensor out = tensor(HY_F32, 2, (int64_t[]){3, 3}, NULL);
  hy_tensor sum = tensor(HY_F32, 2, (int64_t[]){4, 3}, NULL);
  CHECK_OK(hy_add(stream, &sum, &weight, &weight, hy_int(1)));
  CHECK_OK(hy_embedding(stream, &out, &weight, &index, -1));
  CHECK_FAILS(HY_INDEX, "embedding on echo:0 failed", hy_stream_sync(stream));
  assert_int_not_equal(hy_add(stream, &sum, &weight, &weight, hy_int(1)), HY_OK);
  CHECK_OK(hy_stream_reset(stream));
  CHECK_OK(hy_add(stream, &sum, &weight, &sum, hy_int(1)));
  float got[12];
  read_back(&sum, got);
  for (int i = 0; i < 12; i++) assert_true(got[i] == 3);
}

static void runs_natively_what_it_says(void** state) {
  (void)state;
  start("echo");
  const float x[6] = {1, 2, 3, 4, 5, 6}, w[6] = {1, 0, 2, 0, 1, 1}, b[2] = {10, 20};
  const float expected[4] = {17, 25, 26, 31};
  hy_tensor in = tensor(HY_F32, 2, (int64_t[]){2, 3}, x);
  hy_tensor weight = tensor(HY_F32, 2, (int64_t[]){2, 3}, w);
  hy_tensor bias = tensor(HY_F32, 1, (int64_t[]){2}, b);
  hy_tensor out = tensor(HY_F32, 2, (int64_t[]){2, 2}, NULL);
  hy_set_strict(true);
  CHECK_OK(hy_linear(stream, &out, &in, &weight, &bias));
  hy_set_strict(false);
  float got[4];
  read_back(&out, got);
  assert_memory_equal(got, expected, sizeof got);
}

static void devices_do_not_share_memory(void** state) {
  (void)state;
  setenv("ECHO_NPU_DEVICE_COUNT", "2", 1);
  start("echo:1");
  const float values[3] = {1, 2, 3};
  float got[3] = {0, 0, 0};
  hy_tensor there = tensor(HY_F32, 1, (int64_t[]){3}, values);
  CHECK_OK(hy_neg(stream, &there, &there));
  read_back(&there, got);
  assert_true(got[2] == -3);
  hy_device* first;
  hy_stream* other;
  CHECK_OK(hy_device_get("echo:0", &first));
  CHECK_OK(hy_stream_create(first, &other));
  hy_tensor wrong = there;
  assert_int_not_equal(hy_neg(other, &wrong, &wrong), HY_OK);
  hy_stream_destroy(other);
}

#define TEST(f) cmocka_unit_test_teardown(f, tear_down)
int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(is_never_the_default),
      TEST(memory_faults_under_the_host),
      TEST(an_error_names_its_op_and_stays),
      TEST(runs_natively_what_it_says),
      TEST(devices_do_not_share_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
