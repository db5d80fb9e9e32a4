// Prompts on a device apart: those of a padded shape and by graph give what calls give, whatever
// their lengths, and what a model keeps of them is bounded.
#include <math.h>
#include <stdlib.h>

#include "halyard/device.h"
#include "model/adapter.h"
#include "model/create.h"
#include "model/model.h"
#include "model/pack.h"
#include "model/prompt.h"
#include "support/arrays.h"
#include "support/tiny_model.h"

enum { VOCAB = 50, LENGTHS = 40, LONGEST = 2 + 9 * (LENGTHS - 1), TEXT = LONGEST + 64, MOST = 6 };

static const char* name = "guarded";  // or $HALYARD_TEST_DEVICE
static int32_t text[TEXT];

static int set_up(void** state) {
  (void)state;
  if (getenv("HALYARD_TEST_DEVICE")) name = getenv("HALYARD_TEST_DEVICE");
  for (int i = 0; i < TEXT; i++) text[i] = (i * 7 + i / 50 + 3) % VOCAB;
  return hy_load_plugin(HALYARD_GUARDED_PLUGIN) == HY_OK ? 0 : 1;
}

static int tear_down(void** state) {
  (void)state;
  for (int i = 0; i < HY_FAULT_COUNT; i++) hy_inject_fault((hy_fault)i, 0);
  hy_shutdown();
  return 0;
}

static hy_device* device_of(void) {
  hy_device* device;
  CHECK_OK(hy_device_get(name, &device));
  return device;
}

static hy_model* model_of(const hy__arch* arch, hy_weight_format format) {
  hy__config c = tiny_config(arch, 64, HY_F32);
  c.vocab_size = VOCAB;
  c.n_layers = 2;
  c.n_heads = 4;
  c.n_kv_heads = 2;
  c.head_dim = 16;
  c.max_positions = 1024;
  hy_model* model;
  CHECK_OK(hy__model_create(device_of(), &c, NULL, -1, 11, &model));
  CHECK_OK(hy__transformer_quantise(model->tape, &model->transformer, format));
  CHECK_OK(hy__prompt_graphs_create(1, &model->prompts));
  return model;
}

static int graphs_of(const hy_model* model) {
  uint64_t bytes;
  int count = hy__prompt_graphs_count(model->prompts, &bytes);
  assert_true(count == 0 ? bytes == 0 : bytes > 0 && bytes <= (uint64_t)256 << 20);
  return count;
}

static uint64_t allocated(void) {
  hy_memory_stats stats;
  CHECK_OK(hy_memory_get_stats(device_of(), &stats));
  return stats.allocated;
}

static void by_calls(hy_model* model, bool calls) {
  model->captures = calls ? HY__CAPTURES_NOT : HY__CAPTURES_UNKNOWN;
}

// Of padded passes the device may choose other kernels, which round differently.
static void check_near(const float* got, const float* wanted, int n) {
  for (int i = 0; i < n; i++) assert_true(fabsf(got[i] - wanted[i]) < 1e-4F);
}

static int64_t length_of(int i) {
  return 2 + 9 * i;
}

// The first time by calls, the second captured, then launched.
static void test_many_lengths(void** state) {
  (void)state;
  static float wanted[LENGTHS][VOCAB], first[LENGTHS][VOCAB];
  uint64_t before = allocated(), held = 0;
  hy_model* model = model_of(&hy__arch_qwen2, HY_WEIGHTS_AS_FILE);
  by_calls(model, true);
  for (int i = 0; i < LENGTHS; i++) CHECK_OK(hy_model_logits(model, text, length_of(i), wanted[i]));
  assert_int_equal(graphs_of(model), 0);
  by_calls(model, false);
  CHECK_OK(hy_model_logits(model, text, LONGEST, first[0]));  // the cache has room for all
  for (int round = 0; round < 4; round++) {
    for (int i = 0; i < LENGTHS; i++) {
      float got[VOCAB];
      CHECK_OK(hy_model_logits(model, text, length_of(i), got));
      check_near(got, wanted[i], VOCAB);
      if (round == 0)
        memcpy(first[i], got, sizeof got);
      else
        assert_memory_equal(got, first[i], sizeof got);
    }
    if (round == 2) held = allocated();
  }
  assert_true(graphs_of(model) > 3 && graphs_of(model) < LENGTHS / 2);
  assert_int_equal(allocated(), held);
  hy_model_free(model);
  assert_int_equal(allocated(), before);
}

static void test_formats(void** state) {
  (void)state;
  const hy_weight_format formats[] = {HY_WEIGHTS_Q8, HY_WEIGHTS_Q4};
  for (int f = 0; f < 2; f++) {
    hy_model* model = model_of(&hy__arch_llama, formats[f]);
    float wanted[VOCAB], got[VOCAB];
    by_calls(model, true);
    CHECK_OK(hy_model_logits(model, text, 70, wanted));
    by_calls(model, false);
    for (int round = 0; round < 3; round++) {
      CHECK_OK(hy_model_logits(model, text, 70, got));
      check_near(got, wanted, VOCAB);
    }
    assert_int_equal(graphs_of(model), 1);
    hy_model_free(model);
  }
}

// Texts that go on where the last one ended: what is kept is seen, padding is not.
static void test_contexts(void** state) {
  (void)state;
  const int64_t ends[] = {3, 40, 41, 60, 200, 210, 290};
  enum { TURNS = sizeof ends / sizeof ends[0], ROUNDS = 4 };
  hy_model* model = model_of(&hy__arch_llama, HY_WEIGHTS_AS_FILE);
  hy_generate_options o;
  hy_generate_defaults(&o);
  o.max_tokens = MOST;
  o.ignore_end = true;
  int32_t wanted[TURNS][MOST], got[MOST];
  for (int round = 0; round < 1 + ROUNDS; round++) {
    hy_context* context;
    hy_generate_result result;
    by_calls(model, round == 0);
    CHECK_OK(hy_context_create(model, &context));
    for (int t = 0; t < TURNS; t++) {
      CHECK_OK(hy_context_generate(context, text, ends[t], &o, NULL, NULL,
                                   round == 0 ? wanted[t] : got, &result));
      assert_true(t == 0 || result.kept_tokens >= ends[t - 1]);
      if (round > 0) assert_memory_equal(got, wanted[t], sizeof got);
    }
    hy_context_destroy(context);
  }
  assert_true(graphs_of(model) > 1);
  hy_model_free(model);
}

// Of one length and of several, with padding and without.
static void test_batches(void** state) {
  (void)state;
  enum { BATCH = 4 };
  const int64_t lengths[][BATCH] = {{32, 32, 32, 32}, {20, 20, 20, 20}, {1, 90, 17, 30}};
  hy_model* model = model_of(&hy__arch_qwen2, HY_WEIGHTS_AS_FILE);
  const int32_t* const prompts[BATCH] = {text, text + 5, text + 11, text + 30};
  hy_generate_options o;
  hy_generate_defaults(&o);
  o.max_tokens = MOST;
  o.ignore_end = true;
  for (int k = 0; k < 3; k++) {
    int32_t wanted[BATCH][MOST], got[BATCH][MOST];
    for (int round = 0; round < 4; round++) {
      int32_t(*to)[MOST] = round == 0 ? wanted : got;
      int64_t counts[BATCH];
      by_calls(model, round == 0);
      CHECK_OK(hy_model_generate_batch(model, prompts, lengths[k], BATCH, &o,
                                       (int32_t*[]){to[0], to[1], to[2], to[3]}, counts, NULL));
      if (round > 0) assert_memory_equal(got, wanted, sizeof got);
    }
    assert_int_equal(graphs_of(model), k + 1);
  }
  hy_model_free(model);
}

// Adapters, and blocks with norms of their own: by calls.
static void test_what_no_graph_serves(void** state) {
  (void)state;
  for (int k = 0; k < 2; k++) {
    hy_model* model = model_of(k == 0 ? &hy__arch_qwen2 : &hy__arch_qwen3, HY_WEIGHTS_AS_FILE);
    const hy__adapter_options adapter = {.rank = 4, .alpha = 8, .targets = "q_proj,down_proj"};
    float wanted[VOCAB], got[VOCAB];
    CHECK_OK(hy_model_logits(model, text, 70, wanted));
    CHECK_OK(hy_model_logits(model, text, 70, got));
    assert_int_equal(graphs_of(model), k == 0);
    // A new adapter's B is 0: it changes nothing but the way.
    if (k == 0)
      CHECK_OK(hy__adapter_create(model->stream, &adapter, HY_F32, 1, &model->transformer));
    for (int round = 0; round < 3; round++) {
      CHECK_OK(hy_model_logits(model, text, 70, got));
      check_near(got, wanted, VOCAB);
    }
    assert_int_equal(graphs_of(model), k == 0);
    hy_model_free(model);
  }
}

static bool refuse(void* context, double share) {
  (void)share;
  ++*(int*)context;
  return false;
}

static void test_cancelling(void** state) {
  (void)state;
  hy_model* model = model_of(&hy__arch_qwen2, HY_WEIGHTS_AS_FILE);
  hy_generate_options o;
  int32_t ids[MOST];
  int asked = 0;
  hy_generate_defaults(&o);
  o.max_tokens = 1;
  for (int round = 0; round < 3; round++)
    CHECK_OK(hy_model_generate(model, text, 70, &o, NULL, NULL, ids, NULL));
  assert_int_equal(graphs_of(model), 1);
  o.on_progress = refuse;
  o.progress_context = &asked;
  assert_int_equal(hy_model_generate(model, text, 70, &o, NULL, NULL, ids, NULL), HY_CANCELLED);
  assert_int_equal(asked, 1);
  hy_model_free(model);
}

// Whatever allocation of the device fails, while a pass is captured or by calls: the next works.
static void test_out_of_memory(void** state) {
  (void)state;
  hy_model* model = model_of(&hy__arch_qwen2, HY_WEIGHTS_AS_FILE);
  float wanted[VOCAB], got[VOCAB];
  int troubled = 0;
  CHECK_OK(hy_model_logits(model, text, 300, wanted));
  for (int64_t nth = 1, passed = 0; passed < 2; nth += 1 + nth / 8) {
    // A shape that has been seen once.
    hy__prompt_graphs_destroy(model->prompts);
    CHECK_OK(hy__prompt_graphs_create(1, &model->prompts));
    CHECK_OK(hy_model_logits(model, text, 70, wanted));
    hy_inject_fault(HY_FAULT_ALLOCATION, nth);
    hy_status status = hy_model_logits(model, text, 70, got);
    hy_inject_fault(HY_FAULT_ALLOCATION, 0);
    assert_true(status == HY_OK || status == HY_OUT_OF_MEMORY);
    bool captured = status == HY_OK && graphs_of(model) == 1;
    troubled += !captured;
    passed += captured;
    if (status == HY_OK) check_near(got, wanted, VOCAB);
    CHECK_OK(hy_model_logits(model, text, 70, got));
    check_near(got, wanted, VOCAB);
  }
  assert_true(troubled > 3);
  hy_model_free(model);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_many_lengths), cmocka_unit_test(test_formats),
      cmocka_unit_test(test_contexts),     cmocka_unit_test(test_batches),
      cmocka_unit_test(test_cancelling),   cmocka_unit_test(test_what_no_graph_serves),
      cmocka_unit_test(test_out_of_memory)};
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
