// A model's step as a graph: tokens as the engine chooses them, and losses of training to the bit.
#include <stdlib.h>

#include "graph/search/search.h"
#include "halyard/halyard.h"
#include "model/adapter.h"
#include "model/create.h"
#include "model/shapes.h"
#include "model/step_graph.h"
#include "model/train.h"
#include "support/check.h"

enum { TOKENS = 40 };
static hy_device* device;
static hy_model* model;

static int set_up(void** state) {
  (void)state;
  hy__config config = demo_config(&demo_sizes[0], 100);
  CHECK_OK(hy_device_get("cpu", &device));
  CHECK_OK(hy__model_create(device, &config, NULL, -1, 1, &model));
  return 0;
}

static int tear_down(void** state) {
  (void)state;
  hy_model_free(model);
  hy_shutdown();
  return 0;
}

static hy_generate_options sampling(double temperature) {
  hy_generate_options options;
  hy_generate_defaults(&options);
  options.max_tokens = TOKENS;
  options.ignore_end = true;
  options.temperature = temperature;
  options.seed = 5;
  return options;
}

static void decode(hy__step_graph* g, int32_t first, bool by_graph, int32_t* ids) {
  CHECK_OK(hy__step_graph_begin(g, 0, &first));
  for (int i = 0; i < TOKENS; i++) {
    int64_t token;
    CHECK_OK(by_graph ? hy__step_graph_launch(g) : hy__step_graph_run(g));
    CHECK_OK(hy__step_graph_token(g, &token));
    ids[i] = (int32_t)token;
  }
}

static void test_decoding(void** state) {
  (void)state;
  const int32_t first = 7;
  for (int warm = 0; warm < 2; warm++) {
    hy_generate_options options = sampling(warm ? 0.9 : 0);
    int32_t engine[TOKENS], ids[TOKENS];
    hy__step_graph* g;
    CHECK_OK(hy_model_generate(model, &first, 1, &options, NULL, NULL, engine, NULL));
    CHECK_OK(hy__step_graph_create(model, 1, TOKENS + 1, &options, &g));
    decode(g, first, false, ids);
    assert_memory_equal(ids, engine, sizeof ids);
    decode(g, first, true, ids);
    assert_memory_equal(ids, engine, sizeof ids);
    hy_graph_report report;
    CHECK_OK(hy_graph_run_passes(hy__step_graph_get(g), HY_PASS_ALL, &report));
    assert_true(report.nodes_after < report.nodes_before);
    // Best fit is within 5 % of what must be alive.
    assert_true((double)report.memory_after <= 1.05 * (double)report.lower_bound);
    decode(g, first, true, ids);
    assert_memory_equal(ids, engine, sizeof ids);
    hy__step_graph_destroy(g);
  }
}

static void test_prefill(void** state) {
  (void)state;
  enum { PROMPT = 70 };
  hy_generate_options options = sampling(0);
  int32_t prompt[PROMPT], next;
  int64_t token;
  hy__step_graph* g;
  for (int i = 0; i < PROMPT; i++) prompt[i] = (i * 37 + 5) % 300;
  options.max_tokens = 1;
  CHECK_OK(hy_model_generate(model, prompt, PROMPT, &options, NULL, NULL, &next, NULL));
  CHECK_OK(hy__step_graph_create(model, PROMPT, PROMPT, &options, &g));
  hy_graph_report report;
  CHECK_OK(hy_graph_run_passes(hy__step_graph_get(g), HY_PASS_ALL, &report));
  assert_true(report.memory_after <= 0.7 * (double)report.allocated_before);
  assert_true((double)report.memory_after <= 1.05 * (double)report.lower_bound);
  for (int round = 0; round < 2; round++) {
    CHECK_OK(hy__step_graph_begin(g, 0, prompt));
    CHECK_OK(hy__step_graph_launch(g));
    CHECK_OK(hy__step_graph_token(g, &token));
    assert_int_equal(token, next);
  }
  hy__step_graph_destroy(g);
}

// Candidates of the step by a rule, on weights that are constant: how often it fits, and whether
// all that the step writes is the same.
static int rewritten(hy_graph* graph, uint32_t rule) {
  const hy__decision plain = {.passes = HY_PASS_ALL},
                     by_rule = {.passes = HY_PASS_ALL, .rules = rule};
  hy__graph_trial* trial;
  hy_graph* candidate;
  int changes;
  bool equal;
  CHECK_OK(hy__trial_create(graph, &trial));
  CHECK_OK(hy__trial_build(trial, &plain, &candidate, &changes));
  CHECK_OK(hy__trial_check(trial, candidate, &equal));
  hy_graph_destroy(candidate);
  CHECK_OK(hy__trial_build(trial, &by_rule, &candidate, &changes));
  CHECK_OK(hy__trial_check(trial, candidate, &equal));
  assert_true(equal);
  hy_graph_destroy(candidate);
  hy__trial_destroy(trial);
  return changes;
}

static void test_rewrites(void** state) {
  (void)state;
  enum { PROMPT = 24, JOIN = 1 };
  hy_generate_options options = sampling(0);
  int32_t prompt[PROMPT], next;
  int64_t token;
  hy__step_graph* g;
  for (int i = 0; i < PROMPT; i++) prompt[i] = (i * 31 + 7) % 300;
  options.max_tokens = 1;
  CHECK_OK(hy_model_generate(model, prompt, PROMPT, &options, NULL, NULL, &next, NULL));
  CHECK_OK(hy__step_graph_create(model, PROMPT, PROMPT, &options, &g));
  CHECK_OK(hy__step_graph_begin(g, 0, prompt));
  hy_graph* graph = hy__step_graph_get(g);
  uint64_t key = hy__graph_key(graph);
  assert_int_equal(rewritten(graph, JOIN), 0);
  CHECK_OK(hy__step_graph_fix_weights(g));
  assert_true(hy__graph_key(graph) != key);
  // q and k become one layer, v with them where the cache takes it as columns, and gate and up.
  int layers = (int)model->transformer.config.n_layers;
  assert_in_range(rewritten(graph, JOIN), 2 * layers, 3 * layers);
  int before = hy_graph_node_count(graph), changes = 0;
  CHECK_OK(hy__graph_rewrite(graph, JOIN, 0, &changes, NULL));
  assert_int_equal(hy_graph_node_count(graph), before - changes);
  CHECK_OK(hy__step_graph_launch(g));
  CHECK_OK(hy__step_graph_token(g, &token));
  assert_int_equal(token, next);
  hy__step_graph_destroy(g);
}

static void test_refusals(void** state) {
  (void)state;
  hy_generate_options options = sampling(0);
  hy__step_graph* g;
  CHECK_FAILS(HY_INVALID_ARGUMENT, "a step of 9 tokens among 8",
              hy__step_graph_create(model, 9, 8, &options, &g));
  options.repetition_penalty = 1.5;
  CHECK_FAILS(HY_UNSUPPORTED, "repetition penalty",
              hy__step_graph_create(model, 1, 8, &options, &g));
  options = sampling(0);
  CHECK_OK(hy__step_graph_create(model, 1, 8, &options, &g));
  const int32_t id = 1;
  CHECK_FAILS(HY_INVALID_ARGUMENT, "position 8", hy__step_graph_begin(g, 8, &id));
  hy__step_graph_destroy(g);
}

// ---- training ----

enum { STEPS = 4, BATCH = 2, LENGTH = 48 };

// The losses of some steps of LoRA, and the report of the captured step.
static void train(bool graph, hy__checkpoint checkpoint, double* losses, hy_graph_report* report) {
  hy__train_options options = {.batch = BATCH,
                               .length = LENGTH,
                               .accumulate = 1,
                               .steps = 100,
                               .lr = 1e-2,
                               .clip = 1,
                               .checkpoint = checkpoint,
                               .graph = graph};
  hy__adapter_options adapter = {.rank = 4, .alpha = 8, .targets = "q_proj,v_proj,down_proj"};
  hy__config config = demo_config(&demo_sizes[0], 100);
  hy__trainer* trainer;
  hy_model* fresh;
  int32_t tokens[BATCH * LENGTH], targets[BATCH * LENGTH];
  CHECK_OK(hy__model_create(device, &config, NULL, -1, 1, &fresh));
  CHECK_OK(hy__adapter_create(fresh->stream, &adapter, HY_F32, 1, &fresh->transformer));
  CHECK_OK(hy__trainer_create(fresh->stream, &fresh->transformer, &options, &trainer));
  for (int step = 0; step < STEPS; step++) {
    for (int i = 0; i < BATCH * LENGTH; i++) {
      tokens[i] = (i * 31 + step * 7) % 300;
      targets[i] = (i * 31 + step * 7 + 31) % 300;
      // Of another number each step.
      if (i < 5 * step) targets[i] = HY__IGNORE;
    }
    CHECK_OK(hy__trainer_step(trainer, tokens, targets, &losses[step]));
  }
  if (graph) *report = *hy__trainer_report(trainer);
  hy__trainer_destroy(trainer);
  hy_model_free(fresh);
}

static void test_training(void** state) {
  (void)state;
  double calls[STEPS], graph[STEPS], kept[STEPS];
  hy_graph_report report;
  hy_set_deterministic(true);
  uint64_t memory[HY__CHECKPOINT_BLOCK + 1];
  for (int checkpoint = HY__KEEP_ALL; checkpoint <= HY__CHECKPOINT_BLOCK; checkpoint++) {
    train(false, (hy__checkpoint)checkpoint, calls, NULL);
    train(true, (hy__checkpoint)checkpoint, graph, &report);
    memory[checkpoint] = report.allocated_before;
    if (checkpoint == HY__KEEP_ALL) memcpy(kept, calls, sizeof kept);
    assert_memory_equal(calls, kept, sizeof calls);  // to the bit
    assert_memory_equal(graph, calls, sizeof calls);
    assert_true(calls[STEPS - 1] != calls[0]);
    assert_true((double)report.memory_after <= 1.05 * (double)report.lower_bound);
    assert_true(report.memory_after <= report.allocated_before);
  }
  assert_true(memory[HY__CHECKPOINT_MLP] < memory[HY__KEEP_ALL]);
  assert_true(memory[HY__CHECKPOINT_BLOCK] < memory[HY__CHECKPOINT_MLP]);
  hy_set_deterministic(false);
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
  const struct CMUnitTest tests[] = {TEST(test_decoding), TEST(test_prefill), TEST(test_rewrites),
                                     TEST(test_refusals), TEST(test_training)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
