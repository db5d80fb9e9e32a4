// How many numbers of x share a scale in front of quantised layers: before int8 weights as many as
// the device asks for where they divide a row, else 32, else the row.
#include <string.h>

#include "halyard/device.h"
#include "halyard/scope.h"
#include "model/create.h"
#include "model/model.h"
#include "model/pack.h"
#include "support/arrays.h"
#include "support/tiny_model.h"

static int64_t scales_of(bench* b, int64_t x_group, int64_t size) {
  hy_scope s;
  hy_scope_begin(&s, b->tape);
  const int64_t shape[] = {2, size};
  hy_array* x = hy_s_zeros(&s, HY_F32, 2, shape);
  const hy__linear layer = {.scale = x, .x_group = x_group};
  hy__activations in = hy__activations_for(&s, &layer, x, NULL);
  int64_t scales = hy_s_size(&s, in.scale, -1);
  CHECK_OK(hy_scope_end(&s));
  return scales;
}

static void divides_rows(void** state) {
  (void)state;
  bench b = bench_open();
  assert_int_equal(scales_of(&b, 0, 128), 4);
  assert_int_equal(scales_of(&b, 64, 128), 2);
  assert_int_equal(scales_of(&b, 64, 96), 3);
  assert_int_equal(scales_of(&b, 64, 40), 1);
  bench_close(&b);
}

static void is_what_the_device_asks_for(void** state) {
  (void)state;
  hy_device* device;
  hy_device_info info = {.size = sizeof info};
  CHECK_OK(hy_device_get("cpu", &device));
  CHECK_OK(hy_device_describe(device, &info));
  int64_t asked = strstr(info.properties, "\nactivation_group=64\n") ? 64 : 0;
  hy__config c = tiny_config(&hy__arch_qwen2, 64, HY_F32);
  for (int is_q4 = 0; is_q4 < 2; is_q4++) {
    hy_model* model;
    hy_weight_format format = is_q4 ? HY_WEIGHTS_Q4 : HY_WEIGHTS_Q8;
    CHECK_OK(hy__model_create(device, &c, NULL, -1, 11, &model));
    CHECK_OK(hy__transformer_quantise(model->tape, &model->transformer, format));
    assert_int_equal(model->transformer.head.x_group, asked);  // of int8 in q4 too
    assert_int_equal(model->transformer.blocks[0].q.x_group, is_q4 ? 0 : asked);
    assert_int_equal(model->transformer.blocks[0].down.x_group, is_q4 ? 0 : asked);
    hy_model_free(model);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(divides_rows),
                                     cmocka_unit_test(is_what_the_device_asks_for)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
