// The echo backend on its functional model: memory that the host cannot follow, errors that name
// the op behind them, several devices in one process.
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "halyard/halyard.h"
#include "model/create.h"
#include "model/model.h"
#include "support/check.h"
#include "support/tiny_model.h"

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

// A launch goes by the indices of its own time: those that were uploaded since the capture, and
// those that the graph itself has changed before they are used.
static void a_graph_reads_its_indices_when_launched(void** state) {
  (void)state;
  start("echo");
  const float zeros[12] = {0}, ones[3] = {1, 1, 1};
  const int64_t first = 1, second = 3;
  hy_tensor cache = tensor(HY_F32, 2, (int64_t[]){4, 3}, zeros);
  hy_tensor row = tensor(HY_F32, 2, (int64_t[]){1, 3}, ones);
  hy_tensor index = tensor(HY_I64, 1, (int64_t[]){1}, &first);
  hy_tensor next = tensor(HY_I64, 1, (int64_t[]){1}, &second);
  hy_graph* graph;
  CHECK_OK(hy_capture_begin(stream));
  CHECK_OK(hy_index_put(stream, &cache, &cache, &row, &index, 1, false));
  CHECK_OK(hy_copy(stream, &index, &next));
  CHECK_OK(hy_index_put(stream, &cache, &cache, &row, &index, 1, false));
  CHECK_OK(hy_capture_end(stream, &graph));
  assert_true(hy_graph_is_native(graph));
  float got[12];
  for (int64_t k = 0; k < 2; k++) {
    const int64_t changed = 2 * k;  // 0, then 2
    CHECK_OK(hy_memcpy(stream, cache.data, zeros, sizeof zeros, HY_COPY_HOST_TO_DEVICE));
    CHECK_OK(hy_memcpy(stream, index.data, &changed, 8, HY_COPY_HOST_TO_DEVICE));
    CHECK_OK(hy_graph_launch(graph, stream));
    read_back(&cache, got);
    for (int r = 0; r < 4; r++) assert_true(got[3 * r] == (r == changed || r == 3));
  }
  hy_graph_destroy(graph);
}

// silu(x) * y in one command: a chain of the graph, to the bit as by calls in f32.
static void a_gate_is_one_command(void** state) {
  (void)state;
  start("echo");
  enum { N = 70 };
  float x[N], y[N], got[2][N];
  for (int i = 0; i < N; i++) {
    x[i] = 0.3f * (float)(i - N / 2);
    y[i] = 1.7f - 0.1f * (float)i;
  }
  hy_tensor in[2] = {tensor(HY_F32, 1, (int64_t[]){N}, x), tensor(HY_F32, 1, (int64_t[]){N}, y)};
  hy_tensor out = tensor(HY_F32, 1, (int64_t[]){N}, NULL), gate = out;
  hy_graph* graph;
  hy_graph_report report;
  CHECK_OK(hy_capture_begin(stream));
  CHECK_OK(hy_alloc(stream, sizeof x, &gate.data));
  CHECK_OK(hy_silu(stream, &gate, &in[0]));
  CHECK_OK(hy_mul(stream, &out, &in[1], &gate));
  CHECK_OK(hy_free(device, gate.data));
  CHECK_OK(hy_capture_end(stream, &graph));
  for (int k = 0; k < 2; k++) {
    CHECK_OK(hy_graph_launch(graph, stream));
    read_back(&out, got[k]);
    CHECK_OK(hy_graph_run_passes(graph, HY_PASS_ALL, &report));
  }
  assert_int_equal(hy_graph_node_count(graph), 1);
  assert_memory_equal(got[0], got[1], sizeof x);
  hy_graph_destroy(graph);
}

// The forward pass of every decoding step by one graph, whose width grows with the sequence; tokens
// are chosen on the host.
static void a_model_decodes_by_graph(void** state) {
  (void)state;
  enum { TOKENS = 24 };
  start("echo");
  hy__config c = tiny_config(&hy__arch_qwen2, 32, HY_F32);
  c.n_layers = 2;
  c.n_heads = 4;
  c.n_kv_heads = 2;
  c.head_dim = 8;
  hy_model* model;
  CHECK_OK(hy__model_create(device, &c, NULL, -1, 5, &model));
  hy_generate_options o;
  hy_generate_defaults(&o);
  o.max_tokens = TOKENS;
  o.ignore_end = true;
  const int32_t prompt[3] = {3, 1, 4};
  int32_t ids[3][TOKENS];
  for (int k = 0; k < 3; k++) {
    model->captures = k == 0 ? HY__CAPTURES_NOT : model->captures;
    CHECK_OK(hy_model_generate(model, prompt, 3, &o, NULL, NULL, ids[k], NULL));
    if (k == 0) model->captures = HY__CAPTURES_UNKNOWN;
    assert_int_equal(model->captures, k == 0 ? HY__CAPTURES_UNKNOWN : HY__CAPTURES_FORWARD);
    assert_true((model->forward != NULL) == (k > 0));
  }
  assert_memory_equal(ids[0], ids[1], sizeof ids[0]);
  assert_memory_equal(ids[0], ids[2], sizeof ids[0]);
  hy_model_free(model);
}

#define TEST(f) cmocka_unit_test_teardown(f, tear_down)
int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(a_graph_reads_its_indices_when_launched),
      TEST(a_gate_is_one_command),
      TEST(a_model_decodes_by_graph),
      TEST(is_never_the_default),
      TEST(memory_faults_under_the_host),
      TEST(an_error_names_its_op_and_stays),
      TEST(runs_natively_what_it_says),
      TEST(devices_do_not_share_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
