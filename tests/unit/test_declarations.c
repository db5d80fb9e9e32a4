// What a provider promises and what it says: declarations without optional outputs, and failures
// without words.
#include <stdio.h>

#include "core/internal.h"
#include "support/check.h"
#include "support/stub.h"
#include "verify/verify.h"

static bool mute;

static hy_support supports(void* device, const hy_call* call) {
  (void)device;
  if (call->op != HY_OP_rms_norm) return HY_SUPPORT_NO_OP;
  if (call->in[0].dtype != HY_F32) return HY_SUPPORT_NO_DTYPE;
  for (int i = 0; i < call->n_in; i++)
    if (!hy_tensor_is_absent(&call->in[i]) && call->in[i].dtype != HY_F32)
      return HY_SUPPORT_NO_DTYPE;
  if (call->n_out > 1 && !hy_tensor_is_absent(&call->out[1])) return HY_SUPPORT_NO_OUTPUT;
  return HY_SUPPORT_YES;
}

static const hy_host* host;

static hy_status run(void* device, void* stream, const hy_call* call) {
  (void)device, (void)stream;
  return mute ? HY_DEVICE_FAILED : host->reference(call);
}

static hy_device* open_norms(uint32_t flags) {
  static hy_declaration declares[1];
  static hy_provider provider;
  static const hy_provider* const list[] = {&provider};
  stub_reset();
  declares[0] = (hy_declaration){HY_OP_rms_norm, HY_DTYPE_BIT(HY_F32) | flags};
  provider = stub_provider("norms");
  provider.declares = declares;
  provider.n_declares = 1;
  provider.supports = supports;
  provider.run = run;
  hy_backend table = stub_backend("normal");
  table.providers = list;
  table.n_providers = 1;
  CHECK_OK(hy_register_backend(&table));
  hy_device* device;
  CHECK_OK(hy_device_get("normal", &device));
  return device;
}

static int tear_down(void** state) {
  (void)state;
  hy_shutdown();
  mute = false;
  return 0;
}

static void keep_failure(void* context, const hy__op_verdict* v) {
  if (v->failed) snprintf(context, sizeof v->failure, "%s", v->failure);
}

static hy__verify_summary verify(hy_device* device, char* failure) {
  hy__verify_summary summary;
  failure[0] = 0;
  const hy__verify_options options = {.device = device,
                                      .op = HY_OP_rms_norm,
                                      .seed = 1,
                                      .index = -1,
                                      .quick = true,
                                      .on_op = keep_failure,
                                      .context = failure};
  CHECK_OK(hy__verify(&options, &summary));
  return summary;
}

static void test_optional_outputs_may_be_left_out_of_a_promise(void** state) {
  (void)state;
  char failure[1200];
  hy__verify_summary s = verify(open_norms(HY_WITHOUT_OPTIONAL_OUTPUTS), failure);
  if (!hy__verify_passed(&s)) fail_msg("%s", failure);
  assert_true(s.declared == 1);
}

static void test_a_whole_promise_has_them(void** state) {
  (void)state;
  char failure[1200];
  hy__verify_summary s = verify(open_norms(0), failure);
  assert_false(hy__verify_passed(&s));
  if (!strstr(failure, "lacks an optional output")) fail_msg("%s", failure);
}

static void test_a_failure_without_words_gets_some(void** state) {
  (void)state;
  hy_device* device = open_norms(HY_WITHOUT_OPTIONAL_OUTPUTS);
  hy_stream* stream;
  float x[4] = {1, 2, 3, 4};
  const int64_t shape[] = {4};
  hy_tensor in[2], out[2] = {hy_tensor_absent(), hy_tensor_absent()};
  void* memory;
  CHECK_OK(hy_stream_create(device, &stream));
  CHECK_OK(hy_alloc(stream, 2 * sizeof x, &memory));
  CHECK_OK(hy_memcpy(stream, memory, x, sizeof x, HY_COPY_HOST_TO_DEVICE));
  hy_tensor_init(&in[0], memory, HY_F32, 1, shape);
  in[1] = hy_tensor_absent();
  hy_tensor_init(&out[0], (char*)memory + sizeof x, HY_F32, 1, shape);
  hy_call call = {.op = HY_OP_rms_norm, .n_in = 2, .n_out = 2, .in = in, .out = out};
  call.attrs.norm.norm_dims = 1;
  call.attrs.norm.eps = 1e-6;
  CHECK_OK(hy_run(stream, &call));
  mute = true;
  hy_fail(HY_IO, "a message of long ago");
  CHECK_FAILS(HY_DEVICE_FAILED, "rms_norm: norms answers DEVICE_FAILED", hy_run(stream, &call));
  CHECK_OK(hy_free(device, memory));
  hy_stream_destroy(stream);
}

int main(void) {
  host = hy__host();
#define TEST(name) cmocka_unit_test_teardown(name, tear_down)
  const struct CMUnitTest tests[] = {
      TEST(test_optional_outputs_may_be_left_out_of_a_promise),
      TEST(test_a_whole_promise_has_them),
      TEST(test_a_failure_without_words_gets_some),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
