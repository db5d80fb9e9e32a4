// PersistentKernel: tokens as the engine chooses them, falling down the list of backends, counts.
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "halyard/halyard.h"
#include "halyard/persistent.h"
#include "model/create.h"
#include "model/load.h"
#include "model/shapes.h"
#include "support/check.h"

enum { PROMPT = 9, TOKENS = 24 };
static char folder[64];
static int32_t prompt[PROMPT];

// A model of random weights in a folder of its own.
static int set_up(void** state) {
  (void)state;
  hy__config config = demo_config(&demo_sizes[0], 50);
  hy_device* device;
  hy_model* model;
  snprintf(folder, sizeof folder, "/tmp/halyard_persistent_XXXXXX");
  if (!mkdtemp(folder)) return 1;
  CHECK_OK(hy_device_get("cpu", &device));
  CHECK_OK(hy__model_create(device, &config, NULL, -1, 3, &model));
  CHECK_OK(hy__transformer_save(model->stream, &model->transformer, folder));
  hy_model_free(model);
  for (int i = 0; i < PROMPT; i++) prompt[i] = (i * 53 + 11) % 300;
  return 0;
}

static int tear_down(void** state) {
  (void)state;
  static const char* const files[] = {"config.json", "model.safetensors"};
  char path[128];
  for (int i = 0; i < 2; i++) {
    snprintf(path, sizeof path, "%s/%s", folder, files[i]);
    unlink(path);
  }
  rmdir(folder);
  hy_shutdown();
  return 0;
}

static hy_persistent_options options_for(double temperature) {
  hy_persistent_options options;
  hy_persistent_defaults(&options);
  options.backend = "cpu";
  options.positions = PROMPT + TOKENS;
  options.sampling.temperature = temperature;
  options.sampling.seed = 9;
  return options;
}

static void by_the_engine(const char* where, const hy_generate_options* sampling, int64_t n,
                          int32_t* ids) {
  hy_device* device;
  hy_model* model;
  hy_generate_options options = *sampling;
  options.max_tokens = n;
  options.ignore_end = true;
  CHECK_OK(hy_device_get(where, &device));
  CHECK_OK(hy_model_load(device, folder, NULL, HY_WEIGHTS_AS_FILE, &model));
  CHECK_OK(hy_model_generate(model, prompt, PROMPT, &options, NULL, NULL, ids, NULL));
  hy_model_free(model);
}

static void test_decoding(void** state) {
  (void)state;
  for (int warm = 0; warm < 2; warm++) {
    hy_persistent_options options = options_for(warm ? 0.8 : 0);
    int32_t expected[TOKENS], tokens[TOKENS];
    hy_persistent_kernel* kernel;
    hy_persistent_stats stats;
    by_the_engine("cpu", &options.sampling, TOKENS, expected);
    CHECK_OK(hy_persistent_kernel_create(folder, &options, &kernel));
    assert_string_equal(hy_persistent_kernel_device(kernel), "cpu:0");
    assert_string_equal(hy_persistent_kernel_reasons(kernel), "");
    CHECK_FAILS(HY_INVALID_ARGUMENT, "no prompt", hy_persistent_kernel_decode(kernel, 1, tokens));
    for (int round = 0; round < 2; round++) {  // a second sequence is as the first
      CHECK_OK(hy_persistent_kernel_begin(kernel, prompt, PROMPT));
      CHECK_OK(hy_persistent_kernel_decode(kernel, 10, tokens));
      CHECK_OK(hy_persistent_kernel_decode(kernel, TOKENS - 10, tokens + 10));
      assert_memory_equal(tokens, expected, sizeof tokens);
    }
    hy_persistent_kernel_stats(kernel, &stats);
    assert_int_equal(stats.steps, 2 * TOKENS);
    assert_int_equal(stats.waits, 4);
    assert_int_equal(stats.launches, 4);  // one for all the steps asked for
    assert_true(stats.nodes > 10 && stats.bytes > 100000);
    CHECK_FAILS(HY_INVALID_ARGUMENT, "steps from position",
                hy_persistent_kernel_decode(kernel, 10, tokens));
    CHECK_FAILS(HY_INDEX, "is no token",
                hy_persistent_kernel_begin(kernel, (const int32_t[]){1 << 20}, 1));
    hy_persistent_kernel_destroy(kernel);
  }
}

static void test_prefill(void** state) {
  (void)state;
  hy_persistent_options options = options_for(0);
  int32_t expected, token;
  hy_persistent_kernel* kernel;
  options.mode = HY_PERSISTENT_PREFILL;
  options.tokens = PROMPT;
  by_the_engine("cpu", &options.sampling, 1, &expected);
  CHECK_OK(hy_persistent_kernel_create(folder, &options, &kernel));
  CHECK_OK(hy_persistent_kernel_prefill(kernel, prompt, &token));
  assert_int_equal(token, expected);
  CHECK_FAILS(HY_INVALID_ARGUMENT, "was made to prefill",
              hy_persistent_kernel_begin(kernel, prompt, PROMPT));
  hy_persistent_kernel_destroy(kernel);
}

// The NPU does not choose tokens: a step is one command list, and a wait for what it gives.
static void test_on_the_npu(void** state) {
  (void)state;
  if (!hy_backend_is_available("echo")) skip();
  for (int warm = 0; warm < 2; warm++) {
    hy_persistent_options options = options_for(warm ? 0.8 : 0);
    int32_t expected[TOKENS], tokens[TOKENS];
    hy_persistent_kernel* kernel;
    hy_persistent_stats stats;
    by_the_engine("echo", &options.sampling, TOKENS, expected);
    options.backend = "echo";
    CHECK_OK(hy_persistent_kernel_create(folder, &options, &kernel));
    assert_string_equal(hy_persistent_kernel_device(kernel), "echo:0");
    assert_string_equal(hy_persistent_kernel_reasons(kernel), "");
    CHECK_OK(hy_persistent_kernel_begin(kernel, prompt, PROMPT));
    CHECK_OK(hy_persistent_kernel_decode(kernel, TOKENS, tokens));
    assert_memory_equal(tokens, expected, sizeof tokens);
    hy_persistent_kernel_stats(kernel, &stats);
    assert_int_equal(stats.launches, TOKENS);
    assert_int_equal(stats.waits, TOKENS);
    hy_persistent_kernel_destroy(kernel);
  }
}

static void test_falling_down_the_list(void** state) {
  (void)state;
  static const char* const fallbacks[] = {"nowhere", "cpu"};
  hy_persistent_options options = options_for(0);
  hy_persistent_kernel* kernel;
  options.backend = "cuda:7";
  options.fallback_backends = fallbacks;
  options.n_fallback_backends = 2;
  CHECK_OK(hy_persistent_kernel_create(folder, &options, &kernel));
  assert_string_equal(hy_persistent_kernel_device(kernel), "cpu:0");
  assert_non_null(strstr(hy_persistent_kernel_reasons(kernel), "cuda:7: "));
  assert_non_null(strstr(hy_persistent_kernel_reasons(kernel), "\nnowhere: "));
  hy_persistent_kernel_destroy(kernel);
  options.n_fallback_backends = 1;
  assert_true(hy_persistent_kernel_create(folder, &options, &kernel) != HY_OK);
  assert_non_null(strstr(hy_last_error(), "nowhere"));
  options = options_for(0);
  options.world_size = 2;
  CHECK_FAILS(HY_INVALID_ARGUMENT, "as rank 0 of 2: this is rank 0 of 1 by the launcher",
              hy_persistent_kernel_create(folder, &options, &kernel));
  options.rank = 2;
  CHECK_FAILS(HY_INVALID_ARGUMENT, "rank 2 of 2; ranks are numbered from 0",
              hy_persistent_kernel_create(folder, &options, &kernel));
  CHECK_FAILS(HY_IO, "/nowhere/at/all",
              hy_persistent_kernel_create("/nowhere/at/all",
                                          &(hy_persistent_options){.backend = "cpu"}, &kernel));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_decoding),
      cmocka_unit_test(test_prefill),
      cmocka_unit_test(test_on_the_npu),
      cmocka_unit_test(test_falling_down_the_list),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
