// HALYARD_DEBUG: fresh memory is NaN, a stray write is told with its op, a queue runs behind, and
// what is right stays right.
#include <stdlib.h>

#include "core/internal.h"
#include "support/check.h"
#include "support/stub.h"
#include "verify/verify.h"

static int tear_down(void** state) {
  (void)state;
  hy_shutdown();
  unsetenv("HALYARD_DEBUG");
  return 0;
}

static hy_support supports(void* device, const hy_call* call) {
  (void)device;
  return call->op == HY_OP_neg ? HY_SUPPORT_YES : HY_SUPPORT_NO_OP;
}

// Writes an element more than it should; of what is behind, that changes the sign.
static hy_status run_astray(void* device, void* stream, const hy_call* call) {
  (void)device, (void)stream;
  for (int64_t i = 0; i <= hy_tensor_numel(&call->out[0]); i++)
    ((float*)call->out[0].data)[i] = -((const float*)call->in[0].data)[i];
  return HY_OK;
}

static void test_a_stray_write_is_found(void** state) {
  (void)state;
  static hy_provider provider;
  static const hy_provider* const list[] = {&provider};
  setenv("HALYARD_DEBUG", "bounds", 1);
  stub_reset();
  provider = stub_provider("astray");
  provider.supports = supports;
  provider.run = run_astray;
  hy_backend table = stub_backend("astray_chip");
  table.providers = list;
  table.n_providers = 1;
  CHECK_OK(hy_register_backend(&table));
  hy_device* device;
  hy_stream* stream;
  void *x, *y;
  const int64_t shape[] = {16};
  hy_tensor in, out;
  CHECK_OK(hy_device_get("astray_chip", &device));
  CHECK_OK(hy_stream_create(device, &stream));
  CHECK_OK(hy_alloc(stream, 64, &x));
  CHECK_OK(hy_alloc(stream, 64, &y));
  CHECK_OK(hy_memset(stream, x, 0, 64));
  hy_tensor_init(&in, x, HY_F32, 1, shape);
  hy_tensor_init(&out, y, HY_F32, 1, shape);
  const hy_call call = {.op = HY_OP_neg, .n_in = 1, .n_out = 1, .in = &in, .out = &out};
  CHECK_FAILS(HY_DEVICE_FAILED, "neg on astray_chip:0 wrote 3 bytes behind an allocation of 64",
              hy_run(stream, &call));
  CHECK_OK(hy_free(device, x));
  CHECK_FAILS(HY_DEVICE_FAILED, "behind an allocation", hy_free(device, y));
  hy_stream_destroy(stream);
}

static void test_fresh_memory_is_poisoned(void** state) {
  (void)state;
  hy_device* device;
  hy_stream* stream;
  void* memory;
  unsigned char got[100] = {0};
  setenv("HALYARD_DEBUG", "poison,bounds,delay", 1);
  CHECK_OK(hy_load_plugin(HALYARD_GUARDED_PLUGIN));
  CHECK_OK(hy_device_get("guarded", &device));
  CHECK_OK(hy_stream_create(device, &stream));
  CHECK_OK(hy_alloc(stream, sizeof got, &memory));
  CHECK_OK(hy_memcpy(stream, got, memory, sizeof got, HY_COPY_DEVICE_TO_HOST));
  CHECK_OK(hy_stream_sync(stream));
  for (size_t i = 0; i < sizeof got; i++) assert_int_equal(got[i], 0xff);
  CHECK_OK(hy_free(device, memory));
  hy_stream_destroy(stream);
  hy__verify_summary summary;
  const hy__verify_options options = {
      .device = device, .op = HY_OP_softmax, .seed = 1, .index = -1, .quick = true};
  CHECK_OK(hy__verify(&options, &summary));
  assert_true(hy__verify_passed(&summary));
}

static void test_a_word_that_means_nothing_is_an_error(void** state) {
  (void)state;
  hy_device* device;
  setenv("HALYARD_DEBUG", "poison,everything", 1);
  CHECK_FAILS(HY_INVALID_ARGUMENT, "\"everything\" is none of", hy_device_get("cpu", &device));
}

int main(void) {
#define TEST(name) cmocka_unit_test_teardown(name, tear_down)
  const struct CMUnitTest tests[] = {TEST(test_a_stray_write_is_found),
                                     TEST(test_fresh_memory_is_poisoned),
                                     TEST(test_a_word_that_means_nothing_is_an_error)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
