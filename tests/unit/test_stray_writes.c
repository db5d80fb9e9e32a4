// Writes outside an output: a thousand elements away by guard zones, and of the very byte that is
// there already by guard pages, where the memory is the host's.
#include <stdio.h>

#include "core/internal.h"
#include "support/check.h"
#include "support/stub.h"
#include "verify/verify.h"

static const hy_host* host;
static int64_t distance;  // in elements from the output's first, or, from 0 on, from its last
static bool same_value;

static hy_support supports(void* device, const hy_call* call) {
  (void)device;
  if (call->op != HY_OP_neg) return HY_SUPPORT_NO_OP;
  if (call->in[0].dtype != HY_F32 || call->out[0].dtype != HY_F32) return HY_SUPPORT_NO_DTYPE;
  return hy_tensor_is_contiguous(&call->in[0]) && hy_tensor_is_contiguous(&call->out[0])
             ? HY_SUPPORT_YES
             : HY_SUPPORT_NO_LAYOUT;
}

// The stray write is what verify has to find, not the sanitizer.
__attribute__((no_sanitize("address"))) static hy_status run(void* device, void* stream,
                                                             const hy_call* call) {
  (void)device, (void)stream;
  volatile float* out = call->out[0].data;
  int64_t at = distance < 0 ? distance : hy_tensor_numel(&call->out[0]) + distance;
  HY_TRY(host->reference(call));
  out[at] = same_value ? out[at] : 1;
  return HY_OK;
}

static void keep_failure(void* context, const hy__op_verdict* v) {
  if (v->failed) snprintf(context, sizeof v->failure, "%s", v->failure);
}

static void check(uint32_t flags, int64_t where, bool same, const char* says) {
  static const hy_declaration declares[] = {{HY_OP_neg, HY_DTYPE_BIT(HY_F32)}};
  static hy_provider provider;
  static const hy_provider* const list[] = {&provider};
  distance = where;
  same_value = same;
  stub_reset();
  provider = stub_provider("stray");
  provider.declares = declares;
  provider.n_declares = 1;
  provider.supports = supports;
  provider.run = run;
  hy_backend table = stub_backend("stray_chip");
  table.flags = flags;
  table.providers = list;
  table.n_providers = 1;
  CHECK_OK(hy_register_backend(&table));
  hy_device* device;
  char failure[1200] = "";
  hy__verify_summary summary;
  CHECK_OK(hy_device_get("stray_chip", &device));
  const hy__verify_options options = {.device = device,
                                      .op = HY_OP_neg,
                                      .seed = 1,
                                      .index = -1,
                                      .quick = true,
                                      .on_op = keep_failure,
                                      .context = failure};
  CHECK_OK(hy__verify(&options, &summary));
  if (!strstr(failure, says)) fail_msg("%lld: \"%s\"", (long long)where, failure);
  hy_shutdown();
}

static void test_guard_zones_are_wide(void** state) {
  (void)state;
  const int64_t places[] = {0, 1, 999, -1, -1000};
  for (int i = 0; i < 5; i++) check(0, places[i], false, "was written");
}

static void test_guard_pages_see_the_same_value(void** state) {
  (void)state;
  check(HY_BACKEND_HOST_MEMORY, 0, true, "behind the output out was read or written");
  check(HY_BACKEND_HOST_MEMORY, 999, true, "behind the output out was read or written");
}

int main(void) {
  host = hy__host();
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_guard_zones_are_wide),
                                     cmocka_unit_test(test_guard_pages_see_the_same_value)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
