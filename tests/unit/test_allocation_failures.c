// The reference of every op when host memory runs out at its first, second, ... allocation: an
// error that says so, nothing leaked (which the address sanitizer sees), nothing broken for the
// call that follows.
#include "ops/internal.h"
#include "support/check.h"
#include "verify/case.h"

enum { MOST_ALLOCATIONS = 400 };

// Fails the nth allocation for n = 1, 2, ... until the call gets through; returns how many failed.
static int sweep(const hy_call* call) {
  for (int n = 1; n < MOST_ALLOCATIONS; n++) {
    hy_inject_fault(HY_FAULT_HOST_ALLOCATION, n);
    hy_status status = hy__reference(call);
    int64_t events = hy_fault_events(HY_FAULT_HOST_ALLOCATION);
    hy_inject_fault(HY_FAULT_HOST_ALLOCATION, 0);
    if (status == HY_OK && events < n) return n - 1;
    if (status != HY_OK && status != HY_OUT_OF_MEMORY)
      fail_msg("%s, allocation %d: %s: %s", hy_op_name(call->op), n, hy_status_name(status),
               hy_last_error());
  }
  fail_msg("%s: more than %d allocations", hy_op_name(call->op), MOST_ALLOCATIONS);
  return 0;
}

// The first case of an op that is valid, contiguous and small.
static bool make_case(hy__case* c, hy_op op) {
  for (int index = 0; index < hy__case_count(op); index++) {
    hy__case_key key = {.op = op, .seed = 1, .index = index, .quick = true, .simple = true};
    if (hy__case_make(c, &key) == HY_OK && c->expected == HY_OK) return true;
  }
  return false;
}

static void every_op_survives(void** state) {
  (void)state;
  hy_device* device;
  hy_stream* stream;
  hy__case* c;
  CHECK_OK(hy_device_get("cpu", &device));
  CHECK_OK(hy_stream_default(device, &stream));
  CHECK_OK(hy__case_create(&c));
  int failures = 0;
  for (int i = 0; i < hy_op_count(); i++) {
    hy_op op = hy_op_at(i)->op;
    if (!make_case(c, op)) fail_msg("%s has no simple case", hy_op_name(op));
    failures += sweep(&c->call);
    CHECK_OK(hy_run(stream, &c->call));
  }
  // Matrix products, sorts and the like do allocate; none failing would mean that nothing was
  // injected.
  assert_true(failures > 20);
  hy__case_destroy(c);
  hy_shutdown();
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(every_op_survives)};
  return cmocka_run_group_tests_name("allocation failures", tests, NULL, NULL);
}
