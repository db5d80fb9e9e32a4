// What a provider promises and what it says: declarations without optional outputs and of flat
// forms alone, and failures without words.
#include <stdio.h>

#include "core/internal.h"
#include "support/check.h"
#include "support/stub.h"
#include "verify/capability.h"

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

static hy_device* open_with(hy_op op, uint32_t dtypes) {
  static hy_declaration declares[1];
  static hy_provider provider;
  static const hy_provider* const list[] = {&provider};
  stub_reset();
  declares[0] = (hy_declaration){op, dtypes};
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

static hy_device* open_norms(uint32_t flags) {
  return open_with(HY_OP_rms_norm, HY_DTYPE_BIT(HY_F32) | flags);
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

// ---- a chip that has add and mul for contiguous tensors of one shape alone ----

static bool one_shape(const hy_call* call) {
  const hy_tensor* out = &call->out[0];
  for (int i = 0; i < call->n_in; i++) {
    const hy_tensor* in = &call->in[i];
    if (in->ndim != out->ndim || !hy_tensor_is_contiguous(in)) return false;
    for (int d = 0; d < out->ndim; d++)
      if (in->shape[d] != out->shape[d]) return false;
  }
  return hy_tensor_is_contiguous(out);
}

static hy_support supports_flat(void* device, const hy_call* call) {
  (void)device;
  if (call->op != HY_OP_add && call->op != HY_OP_mul) return HY_SUPPORT_NO_OP;
  for (int i = 0; i < 2; i++)
    if (call->in[i].dtype != HY_F32 || call->out[0].dtype != HY_F32) return HY_SUPPORT_NO_DTYPE;
  if (!one_shape(call)) return HY_SUPPORT_NO_SHAPE;
  if (call->op == HY_OP_add && hy_scalar_f(call->attrs.alpha.alpha) != 1)
    return HY_SUPPORT_NO_ATTRIBUTE;
  return HY_SUPPORT_YES;
}

static hy_device* open_flat(uint32_t flags) {
  static hy_declaration declares[2];
  static hy_provider provider;
  static const hy_provider* const list[] = {&provider};
  stub_reset();
  declares[0] = (hy_declaration){HY_OP_add, HY_DTYPE_BIT(HY_F32) | flags};
  declares[1] = (hy_declaration){HY_OP_mul, HY_DTYPE_BIT(HY_F32) | flags};
  provider = stub_provider("flat_kernels");
  provider.declares = declares;
  provider.n_declares = 2;
  provider.supports = supports_flat;
  provider.run = run;
  hy_backend table = stub_backend("plain");
  table.providers = list;
  table.n_providers = 1;
  CHECK_OK(hy_register_backend(&table));
  hy_device* device;
  CHECK_OK(hy_device_get("plain", &device));
  return device;
}

static void test_flat_forms_are_enough(void** state) {
  (void)state;
  hy_device* device = open_flat(HY_FLAT_ONLY);
  const hy_op ops[] = {HY_OP_add, HY_OP_mul};
  for (int i = 0; i < 2; i++) {
    for (uint64_t seed = 1; seed <= 5; seed++) {
      char failure[1200] = "";
      hy__verify_summary summary;
      const hy__verify_options options = {.device = device,
                                          .op = ops[i],
                                          .seed = seed,
                                          .index = -1,
                                          .on_op = keep_failure,
                                          .context = failure};
      CHECK_OK(hy__verify(&options, &summary));
      if (!hy__verify_passed(&summary)) fail_msg("%s", failure);
    }
  }
}

static void test_a_broadcast_stays_on_the_device(void** state) {
  (void)state;
  hy_device* device = open_flat(HY_FLAT_ONLY);
  hy_stream* stream;
  float a[6] = {1, 2, 3, 4, 5, 6}, b[3] = {10, 20, 30}, got[6];
  const int64_t shape[] = {2, 3}, row[] = {3};
  void *memory, *out;
  CHECK_OK(hy_stream_create(device, &stream));
  CHECK_OK(hy_alloc(stream, 256, &memory));
  CHECK_OK(hy_alloc(stream, sizeof got, &out));
  CHECK_OK(hy_memcpy(stream, memory, a, sizeof a, HY_COPY_HOST_TO_DEVICE));
  CHECK_OK(hy_memcpy(stream, (char*)memory + 64, b, sizeof b, HY_COPY_HOST_TO_DEVICE));
  hy_tensor in[2], result;
  hy_tensor_init(&in[0], memory, HY_F32, 2, shape);
  hy_tensor_init(&in[1], (char*)memory + 64, HY_F32, 1, row);
  hy_tensor_init(&result, out, HY_F32, 2, shape);
  hy_call call = {.op = HY_OP_add, .n_in = 2, .n_out = 1, .in = in, .out = &result};
  call.attrs.alpha.alpha = hy_float(0.5);
  hy_placement placement;
  CHECK_OK(hy_place(device, &call, &placement));
  assert_string_equal(placement.provider, "flat");
  hy_set_strict(true);  // nothing may fall back
  CHECK_OK(hy_run(stream, &call));
  CHECK_OK(hy_memcpy(stream, got, out, sizeof got, HY_COPY_DEVICE_TO_HOST));
  CHECK_OK(hy_stream_sync(stream));
  for (int i = 0; i < 6; i++) assert_true(got[i] == a[i] + b[i % 3] / 2);
  CHECK_OK(hy_free(device, memory));
  CHECK_OK(hy_free(device, out));
  hy_stream_destroy(stream);
}

static void test_without_the_flag_they_are_not(void** state) {
  (void)state;
  open_flat(0);
  char failure[1200] = "";
  hy_device* device;
  hy__verify_summary summary;
  CHECK_OK(hy_device_get("plain", &device));
  const hy__verify_options options = {.device = device,
                                      .op = HY_OP_add,
                                      .seed = 1,
                                      .index = -1,
                                      .on_op = keep_failure,
                                      .context = failure};
  CHECK_OK(hy__verify(&options, &summary));
  assert_false(hy__verify_passed(&summary));
}

static void test_a_type_that_nothing_ran_with_is_no_claim(void** state) {
  (void)state;
  hy_device* device = open_flat(0);
  hy__capability_record record = {.dtypes = HY_DTYPE_BIT(HY_F32)};
  hy__op_verdict honest = {0}, lying = {0};
  CHECK_OK(hy__capability_judge(&record, device, &honest));
  assert_int_equal(honest.failed, 0);
  assert_int_equal(honest.passed, 1);
  stub.dtypes |= HY_DTYPE_BIT(HY_F64);
  CHECK_OK(hy__capability_judge(&record, device, &lying));
  assert_int_equal(lying.failed, 1);
  assert_non_null(strstr(lying.failure, "claims the type f64"));
}

static void test_a_device_may_prefer_unpacked_weights(void** state) {
  (void)state;
  const uint32_t i8 = HY_DTYPE_BIT(HY_I8);
  assert_false(hy_prefers_unpacked(NULL));
  assert_false(hy_prefers_unpacked(open_with(HY_OP_linear_int8, i8)));
  hy_shutdown();
  assert_false(hy_prefers_unpacked(open_with(HY_OP_rms_norm, i8 | HY_UNPACK_FIRST)));
  hy_shutdown();
  assert_true(hy_prefers_unpacked(open_with(HY_OP_linear_int8, i8 | HY_UNPACK_FIRST)));
}

int main(void) {
  host = hy__host();
#define TEST(name) cmocka_unit_test_teardown(name, tear_down)
  const struct CMUnitTest tests[] = {
      TEST(test_optional_outputs_may_be_left_out_of_a_promise),
      TEST(test_a_whole_promise_has_them),
      TEST(test_a_failure_without_words_gets_some),
      TEST(test_flat_forms_are_enough),
      TEST(test_a_broadcast_stays_on_the_device),
      TEST(test_a_device_may_prefer_unpacked_weights),
      TEST(test_without_the_flag_they_are_not),
      TEST(test_a_type_that_nothing_ran_with_is_no_claim),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
