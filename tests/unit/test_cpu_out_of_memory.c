// The cpu's kernels when host memory runs out at their first, second, ... allocation: the status
// says so, nothing is leaked (the address sanitizer sees it), and the same call then gives the same
// result. Also: the pool's threads and the scratch end with hy_shutdown.
#include <dirent.h>
#include <string.h>

#include "backends/cpu/family.h"
#include "backends/cpu/runtime/thread_pool.h"
#include "support/check.h"
#include "verify/case.h"

enum { MAX_ALLOCATIONS = 1000, CASES = 24 };

// Runs the call with its nth allocation failing, for n = 1, 2, ... until it gets through; returns
// how many runs failed.
static int sweep(hy_stream* stream, const hy_call* call) {
  for (int n = 1; n < MAX_ALLOCATIONS; n++) {
    hy_inject_fault(HY_FAULT_HOST_ALLOCATION, n);
    hy_status status = hy_run(stream, call);
    int64_t events = hy_fault_events(HY_FAULT_HOST_ALLOCATION);
    hy_inject_fault(HY_FAULT_HOST_ALLOCATION, 0);
    if (status == HY_OK && events < n) return n - 1;
    // A kernel may do without what it did not get.
    if (status == HY_OK) continue;
    if (status != HY_OUT_OF_MEMORY)
      fail_msg("%s, allocation %d: %s: %s", hy_op_name(call->op), n, hy_status_name(status),
               hy_last_error());
    if (!strstr(hy_last_error(), hy_op_name(call->op)))
      fail_msg("%s, allocation %d: the message names no op: %s", hy_op_name(call->op), n,
               hy_last_error());
  }
  fail_msg("%s: more than %d allocations", hy_op_name(call->op), MAX_ALLOCATIONS);
  return 0;
}

static hy_status call_again(hy_stream* stream, hy__case* c) {
  static unsigned char before[1 << 20];
  size_t bytes = hy_tensor_bytes(&c->out[0]);
  bool keep = bytes <= sizeof before && c->flavour == HY__FLAVOUR_PLAIN;
  HY_TRY(hy_run(stream, &c->call));
  if (keep) memcpy(before, c->out[0].data, bytes);
  HY_TRY(hy_run(stream, &c->call));
  if (keep) assert_memory_equal(before, c->out[0].data, bytes);
  return HY_OK;
}

// Ops whose kernels need working memory for some shapes.
static void kernels_survive(void** state) {
  (void)state;
  static const hy_op ops[] = {HY_OP_mm,
                              HY_OP_bmm,
                              HY_OP_addmm,
                              HY_OP_linear,
                              HY_OP_int_mm,
                              HY_OP_conv2d,
                              HY_OP_conv2d_backward,
                              HY_OP_linear_sparse_2_4,
                              HY_OP_fused_moe,
                              HY_OP_linear_quantized,
                              HY_OP_linear_int8,
                              HY_OP_sdpa,
                              HY_OP_sdpa_backward,
                              HY_OP_paged_attention,
                              HY_OP_softmax,
                              HY_OP_layer_norm_backward,
                              HY_OP_rms_norm,
                              HY_OP_cross_entropy,
                              HY_OP_cross_entropy_backward,
                              HY_OP_embedding_backward,
                              HY_OP_sum,
                              HY_OP_var,
                              HY_OP_rope,
                              HY_OP_max_pool2d};
  hy_device* device;
  hy_stream* stream;
  hy__case* c;
  CHECK_OK(hy_device_get("cpu", &device));
  CHECK_OK(hy_stream_default(device, &stream));
  CHECK_OK(hy__case_create(&c));
  int ops_that_failed = 0;
  for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
    int failures = 0;
    for (int index = 0; index < CASES && index < hy__case_count(ops[i]); index++) {
      hy__case_key key = {.op = ops[i], .seed = 1, .index = index};
      if (hy__case_make(c, &key) != HY_OK || c->expected != HY_OK) continue;
      if (c->flavour == HY__FLAVOUR_IN_PLACE) continue;  // a second run has other inputs
      failures += sweep(stream, &c->call);
      CHECK_OK(call_again(stream, c));
    }
    ops_that_failed += failures > 0;
  }
  assert_true(ops_that_failed > 15);  // none failing would mean that nothing was injected
  hy__case_destroy(c);
  hy_shutdown();
}

static int count_threads(void) {
  DIR* folder = opendir("/proc/self/task");
  if (!folder) return -1;
  int n = 0;
  while (readdir(folder)) n++;
  closedir(folder);
  return n - 2;
}

static void ignore(void* context, int64_t i) {
  (void)context;
  (void)i;
}

static void shutdown_ends_the_threads(void** state) {
  (void)state;
  hy_device* device;
  int before = count_threads();
  if (before < 0) skip();
  CHECK_OK(hy_device_get("cpu", &device));
  int threads = hy__pool_threads();
  hy__pool_set_threads(4);
  hy__pool_run(ignore, NULL, 100);
  assert_int_equal(count_threads(), before + 3);
  hy_shutdown();
  assert_int_equal(count_threads(), before);
  hy__pool_set_threads(threads);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(kernels_survive),
                                     cmocka_unit_test(shutdown_ends_the_threads)};
  return cmocka_run_group_tests_name("cpu out of memory", tests, NULL, NULL);
}
