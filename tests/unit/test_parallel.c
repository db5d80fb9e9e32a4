// Tensor and data parallelism, and pipelines of the cpu and the guarded device: ranks that are
// threads on the guarded device give the tokens and logits of the whole model, load their part
// alone, and say why where a model cannot be split; ranks that share a step's passes train the bits
// of one that runs all.
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "halyard/comm.h"
#include "halyard/device.h"
#include "model/adapter.h"
#include "model/create.h"
#include "model/load.h"
#include "model/pipeline.h"
#include "model/train.h"
#include "support/arrays.h"
#include "support/tiny_model.h"

enum { MAX_RANKS = 4, MOST = 12, VOCAB = 50 };

static const int32_t prompt[] = {3, 1, 4, 1, 5, 49, 25};
enum { PROMPT = 7 };

static char folder[64];

static int set_up(void** state) {
  (void)state;
  snprintf(folder, sizeof folder, "/tmp/halyard_parallel_XXXXXX");
  if (!mkdtemp(folder)) return 1;
  return hy_load_plugin(HALYARD_GUARDED_PLUGIN) == HY_OK ? 0 : 1;
}

static int tear_down(void** state) {
  (void)state;
  static const char* const files[] = {"model.safetensors", "config.json",
                                      "adapter_model.safetensors", "adapter_config.json"};
  for (int i = 0; i < 4; i++) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, files[i]);
    unlink(path);
  }
  rmdir(folder);
  hy_shutdown();
  return 0;
}

static hy_device* guarded(void) {
  hy_device* device;
  CHECK_OK(hy_device_get("guarded", &device));
  return device;
}

typedef struct shape {
  const hy__arch* arch;
  int64_t heads, kv_heads, intermediate, layers;  // 0: two
  bool biases, tied, adapter;
} shape;

// An adapter whose B is not zero.
static hy_status save_adapter(hy_model* model) {
  hy__adapter_options o = {.rank = 4, .alpha = 8, .targets = "q_proj,v_proj,o_proj,down_proj"};
  hy__transformer* t = &model->transformer;
  HY_TRY(hy__adapter_create(model->stream, &o, HY_F32, 5, t));
  for (int64_t i = 0; i < t->config.n_layers; i++) {
    hy__linear* const layers[] = {&t->blocks[i].q, &t->blocks[i].v, &t->blocks[i].o,
                                  &t->blocks[i].down};
    for (int k = 0; k < 4; k++)
      HY_TRY(hy_array_uniform(model->tape, &layers[k]->lora.b, 7, (uint64_t)(100 * i + k), -1, 1));
  }
  return hy__adapter_save(model->stream, t, &o, "base", folder);
}

// Writes a model of random weights to the folder, biases included.
static void save_model(const shape* shape) {
  hy__config c = tiny_config(shape->arch, 32, HY_F32);
  c.vocab_size = VOCAB;
  c.n_layers = shape->layers ? shape->layers : 2;
  c.n_heads = shape->heads;
  c.n_kv_heads = shape->kv_heads;
  c.head_dim = 8;
  c.intermediate_size = shape->intermediate;
  c.tied_embeddings = shape->tied;
  c.qkv_bias = shape->arch == &hy__arch_qwen2 || shape->biases;
  c.o_bias = c.mlp_bias = shape->biases;
  hy_model* model;
  CHECK_OK(hy__model_create(guarded(), &c, NULL, -1, 11, &model));
  for (int i = 0; shape->biases && i < 2; i++) {
    hy__tf_block* b = &model->transformer.blocks[i];
    hy_array** const list[] = {&b->q.bias,  &b->k.bias,    &b->v.bias,   &b->o.bias,
                               &b->up.bias, &b->gate.bias, &b->down.bias};
    for (int k = 0; k < 7; k++)
      CHECK_OK(hy_array_uniform(model->tape, list[k], 3, (uint64_t)(100 * i + k), -1, 1));
  }
  CHECK_OK(hy__transformer_save(model->stream, &model->transformer, folder));
  if (shape->adapter) CHECK_OK(save_adapter(model));
  hy_model_free(model);
}

// What a rank computes.
typedef struct rank {
  pthread_t thread;
  int rank, n_ranks;
  hy_comm_id id;
  hy_weight_format format;
  bool adapter;
  int stages;             // 0: one
  const int64_t* layers;  // of the stages
  hy_status status;
  char message[400];
  int32_t greedy[MOST], drawn[MOST];
  float logits[VOCAB];
  int64_t loaded, file;
} rank;

static hy_status compute(rank* r, hy_model* model) {
  hy_generate_options o;
  hy_generate_defaults(&o);
  o.max_tokens = MOST;
  r->loaded = model->transformer.shard.loaded_bytes;
  r->file = model->transformer.shard.file_bytes;
  HY_TRY(hy_model_logits(model, prompt, PROMPT, r->logits));
  HY_TRY(hy_model_generate(model, prompt, PROMPT, &o, NULL, NULL, r->greedy, NULL));
  o.temperature = 0.9;
  o.top_p = 0.95;
  o.repetition_penalty = 1.2;
  o.seed = 4;
  return hy_model_generate(model, prompt, PROMPT, &o, NULL, NULL, r->drawn, NULL);
}

static void* run_rank(void* context) {
  rank* r = context;
  hy_device* device;
  hy_comm* comm = NULL;
  hy_model* model = NULL;
  r->status = hy_device_get("guarded", &device);
  if (r->status == HY_OK && r->n_ranks > 1)
    r->status = hy_comm_init_rank(device, r->n_ranks, &r->id, r->rank, &comm);
  const hy_load_options options = {.format = r->format,
                                   .adapter = r->adapter ? folder : NULL,
                                   .comm = comm,
                                   .devices = (hy_device*[]){device, device, device},
                                   .n_devices = r->stages,
                                   .layers = r->layers};
  if (r->status == HY_OK) r->status = hy_model_load_with(device, folder, &options, &model);
  if (r->status == HY_OK) r->status = compute(r, model);
  if (r->status != HY_OK) snprintf(r->message, sizeof r->message, "%s", hy_last_error());
  hy_model_free(model);
  hy_comm_destroy(comm);
  return NULL;
}

static void start_ranks(rank* ranks, int n) {
  hy_comm_id id;
  CHECK_OK(hy_comm_unique_id(guarded(), &id));
  for (int i = 0; i < n; i++) {
    ranks[i].rank = i;
    ranks[i].n_ranks = n;
    ranks[i].id = id;
    assert_int_equal(pthread_create(&ranks[i].thread, NULL, run_rank, &ranks[i]), 0);
  }
  for (int i = 0; i < n; i++) pthread_join(ranks[i].thread, NULL);
}

static void run_ranks(rank* ranks, int n, hy_weight_format format, bool adapter) {
  for (int i = 0; i < n; i++) ranks[i] = (rank){.format = format, .adapter = adapter};
  start_ranks(ranks, n);
}

static void compare(const rank* whole, const rank* part, double tolerance) {
  if (part->status != HY_OK)
    fail_msg("rank %d of %d: %s", part->rank, part->n_ranks, part->message);
  for (int i = 0; i < VOCAB; i++)
    if (!(fabs(whole->logits[i] - part->logits[i]) <= tolerance))
      fail_msg("rank %d of %d: logit %d is %g, not %g", part->rank, part->n_ranks, i,
               part->logits[i], whole->logits[i]);
  if (tolerance > 1e-4) return;
  assert_memory_equal(whole->greedy, part->greedy, sizeof whole->greedy);
  assert_memory_equal(whole->drawn, part->drawn, sizeof whole->drawn);
}

static void check_shape(const shape* shape, hy_weight_format format, double tolerance) {
  static rank whole, ranks[MAX_RANKS];
  save_model(shape);
  run_ranks(&whole, 1, format, shape->adapter);
  if (whole.status != HY_OK) fail_msg("%s", whole.message);
  assert_true(whole.loaded == whole.file && whole.file > 0);
  for (int n = 2; n <= MAX_RANKS; n *= 2) {
    run_ranks(ranks, n, format, shape->adapter);
    for (int i = 0; i < n; i++) {
      compare(&whole, &ranks[i], tolerance);
      // Of the weights a rank reads its part, and the norms.
      assert_true(ranks[i].file == whole.file);
      assert_true(ranks[i].loaded < whole.file * 3 / (2 * n) + 4096);
      assert_memory_equal(ranks[0].logits, ranks[i].logits, sizeof ranks[0].logits);
      assert_memory_equal(ranks[0].drawn, ranks[i].drawn, sizeof ranks[0].drawn);
    }
  }
}

static void test_every_architecture(void** state) {
  (void)state;
  check_shape(&(shape){&hy__arch_qwen2, 4, 4, 96, .tied = true}, HY_WEIGHTS_F32, 1e-4);
  check_shape(&(shape){&hy__arch_qwen3, 4, 2, 96, .tied = false}, HY_WEIGHTS_F32, 1e-4);
  check_shape(&(shape){&hy__arch_llama, 8, 4, 50, .biases = true}, HY_WEIGHTS_F32, 1e-4);
}

// Qwen2.5-0.5B's heads: 14 share 2, so that 4 ranks have 3 and 4 of them, and one key-value head.
static void test_replicated_heads(void** state) {
  (void)state;
  check_shape(&(shape){&hy__arch_qwen2, 14, 2, 96, .tied = true}, HY_WEIGHTS_F32, 1e-4);
}

static void test_adapters(void** state) {
  (void)state;
  check_shape(&(shape){&hy__arch_qwen2, 4, 2, 128, .adapter = true}, HY_WEIGHTS_F32, 1e-4);
}

// Groups of scales are a rank's own: close, not equal.
static void test_quantised(void** state) {
  (void)state;
  check_shape(&(shape){&hy__arch_qwen2, 16, 4, 128, .tied = true}, HY_WEIGHTS_BF16, 0.05);
  check_shape(&(shape){&hy__arch_qwen2, 16, 4, 128, .tied = true}, HY_WEIGHTS_Q8, 0.1);
  check_shape(&(shape){&hy__arch_qwen2, 16, 4, 128, .tied = false}, HY_WEIGHTS_Q4, 1);
}

static void check_refused(const shape* shape, int n, hy_weight_format format, const char* why) {
  static rank ranks[MAX_RANKS];
  save_model(shape);
  run_ranks(ranks, n, format, false);
  for (int i = 0; i < n; i++) {
    if (ranks[i].status != HY_UNSUPPORTED || !strstr(ranks[i].message, why))
      fail_msg("rank %d: \"%s\" does not say \"%s\"", i, ranks[i].message, why);
  }
}

static void test_refused(void** state) {
  (void)state;
  check_refused(&(shape){&hy__arch_qwen2, 6, 3, 96, .tied = false}, 2, HY_WEIGHTS_F32,
                "2 ranks cannot share 3 key-value heads");
  check_refused(&(shape){&hy__arch_qwen2, 2, 1, 96, .tied = false}, 4, HY_WEIGHTS_F32,
                "4 ranks are more than the model's 2 heads");
  check_refused(&(shape){&hy__arch_qwen2, 4, 4, 48, .tied = false}, 2, HY_WEIGHTS_Q4,
                "cannot be quantised in groups of 32");
}

static void test_ranges(void** state) {
  (void)state;
  int64_t next = 0;
  for (int r = 0; r < 3; r++) {
    hy__span part = hy__shard_range(320, 32, r, 3);
    assert_true(part.first == next && part.size % 32 == 0 && part.size >= 96);
    next += part.size;
  }
  assert_int_equal(next, 320);
}

// ---- pipelines ----

static const int32_t other_prompt[] = {3, 1, 4, 1, 5, 9, 2, 6};

// Answers of a model, one of them in a context that grows.
static hy_status answer(hy_device* const* devices, int n, const int64_t* layers,
                        hy_weight_format format, bool adapter, rank* r) {
  const hy_load_options options = {.format = format,
                                   .adapter = adapter ? folder : NULL,
                                   .devices = devices,
                                   .n_devices = n,
                                   .layers = layers};
  hy_model* model;
  hy_context* context = NULL;
  hy_generate_options o;
  hy_generate_defaults(&o);
  o.max_tokens = MOST;
  HY_TRY(hy_model_load_with(devices[0], folder, &options, &model));
  hy_status status = compute(r, model);
  if (status == HY_OK) status = hy_context_create(model, &context);
  for (int turn = 0; turn < 2 && status == HY_OK; turn++)
    status = hy_context_generate(context, turn ? other_prompt : prompt, turn ? 8 : PROMPT, &o, NULL,
                                 NULL, r->drawn, NULL);
  hy_context_destroy(context);
  hy_model_free(model);
  return status;
}

static void check_pipeline(const shape* shape, hy_weight_format format) {
  static rank whole, split;
  hy_device *cpu, *devices[3];
  CHECK_OK(hy_device_get("cpu", &cpu));
  devices[0] = devices[2] = cpu;
  devices[1] = guarded();
  save_model(shape);
  CHECK_OK(answer(devices, 1, NULL, format, shape->adapter, &whole));
  static const int64_t some[][3] = {{1, 3, 0}, {3, 1, 0}, {1, 2, 1}, {2, 1, 1}};
  for (int i = 0; i < 5; i++) {
    const int64_t* layers = i < 4 ? some[i] : NULL;
    CHECK_OK(answer(devices, i < 2 ? 2 : 3, layers, format, shape->adapter, &split));
    assert_memory_equal(whole.greedy, split.greedy, sizeof whole.greedy);
    assert_memory_equal(whole.drawn, split.drawn, sizeof whole.drawn);
    for (int k = 0; k < VOCAB; k++) assert_true(fabsf(whole.logits[k] - split.logits[k]) < 1e-4F);
  }
}

static void test_pipelines(void** state) {
  (void)state;
  check_pipeline(&(shape){&hy__arch_qwen2, 4, 2, 96, .layers = 4, .tied = true}, HY_WEIGHTS_F32);
  check_pipeline(&(shape){&hy__arch_qwen3, 4, 2, 96, .layers = 4, .adapter = true}, HY_WEIGHTS_F32);
  check_pipeline(&(shape){&hy__arch_qwen2, 4, 2, 96, .layers = 4, .tied = true}, HY_WEIGHTS_Q8);
}

// Ranks that share the layers of every stage.
static void test_tensor_parallel_stages(void** state) {
  (void)state;
  static rank whole, ranks[MAX_RANKS];
  save_model(&(shape){&hy__arch_qwen2, 4, 2, 96, .layers = 3, .tied = true, .adapter = true});
  run_ranks(&whole, 1, HY_WEIGHTS_F32, true);
  for (int n = 2; n <= MAX_RANKS; n *= 2) {
    for (int stages = 2; stages <= 3; stages++) {
      const int64_t* layers = n == 2 && stages == 2 ? (int64_t[]){1, 2} : NULL;
      for (int i = 0; i < n; i++)
        ranks[i] =
            (rank){.format = HY_WEIGHTS_F32, .adapter = true, .stages = stages, .layers = layers};
      start_ranks(ranks, n);
      for (int i = 0; i < n; i++) compare(&whole, &ranks[i], 1e-4);
    }
  }
}

static void check_ranks_differ(rank* ranks, const char* why) {
  start_ranks(ranks, 2);
  for (int i = 0; i < 2; i++) {
    assert_int_equal(ranks[i].status, HY_INVALID_ARGUMENT);
    if (!strstr(ranks[i].message, why))
      fail_msg("rank %d: \"%s\" does not say \"%s\"", i, ranks[i].message, why);
  }
}

// An error on both ranks, and nobody waits.
static void test_stages_that_differ(void** state) {
  (void)state;
  save_model(&(shape){&hy__arch_qwen2, 4, 2, 96, .layers = 4, .tied = true});
  check_ranks_differ((rank[]){{.stages = 2}, {.stages = 3}}, "different numbers of devices");
  check_ranks_differ((rank[]){{.stages = 2, .layers = (int64_t[]){1, 3}},
                              {.stages = 2, .layers = (int64_t[]){3, 1}}},
                     "device 0 takes 1 layers on rank 0, 3 on rank 1");
}

// By what is left after the embedding on the first and the head on the last.
static void test_placing(void** state) {
  (void)state;
  hy__config c = tiny_config(&hy__arch_qwen2, 32, HY_F32);
  c.n_layers = 12;
  hy_device *cpu, *devices[3];
  int64_t layers[3];
  CHECK_OK(hy_device_get("cpu", &cpu));
  devices[0] = devices[1] = cpu;
  devices[2] = guarded();
  CHECK_OK(hy__pipeline_place(&c, HY_WEIGHTS_F32, 1, devices, 2, layers));
  assert_true(layers[0] == 6 && layers[1] == 6);
  CHECK_OK(hy_memory_set_limit(cpu, 40 << 20));
  CHECK_OK(hy_memory_set_limit(devices[2], 20 << 20));
  CHECK_OK(hy__pipeline_place(&c, HY_WEIGHTS_F32, 1, devices + 1, 2, layers));
  assert_true(layers[0] == 8 && layers[1] == 4);
  CHECK_OK(hy_memory_set_limit(devices[2], 1));  // no room, but one at least
  CHECK_OK(hy__pipeline_place(&c, HY_WEIGHTS_F32, 1, devices, 3, layers));
  assert_true(layers[0] + layers[1] == 11 && layers[2] == 1);
  CHECK_OK(hy_memory_set_limit(cpu, 0));
  CHECK_OK(hy_memory_set_limit(devices[2], 0));
}

static void test_refused_pipelines(void** state) {
  (void)state;
  static rank r;
  hy_device* devices[3] = {guarded(), guarded(), guarded()};
  save_model(&(shape){&hy__arch_qwen2, 4, 2, 96, .tied = true});
  assert_int_equal(answer(devices, 3, NULL, HY_WEIGHTS_F32, false, &r), HY_UNSUPPORTED);
  assert_non_null(strstr(hy_last_error(), "3 devices are too many for a model of 2 layers"));
  assert_int_equal(answer(devices, 2, (int64_t[]){2, 1}, HY_WEIGHTS_F32, false, &r),
                   HY_INVALID_ARGUMENT);
  assert_non_null(strstr(hy_last_error(), "do not add up to the model's 2"));
  assert_int_equal(answer(devices, 2, (int64_t[]){2, 0}, HY_WEIGHTS_F32, false, &r),
                   HY_INVALID_ARGUMENT);
}

// ---- data parallelism ----

enum { STEPS = 3, PASSES = 4, ROWS = 2, LENGTH = 8, ADAPTERS = 4 };

typedef struct learner {
  pthread_t thread;
  int rank, n_ranks;
  hy_comm_id id;
  hy_status status;
  char message[400];
  double losses[STEPS];
  float adapters[ADAPTERS][4 * 64];  // A and B of q in both layers
} learner;

static hy_status read_adapters(learner* l, const hy_model* model) {
  for (int i = 0; i < ADAPTERS; i++) {
    const hy__lora* lora = &model->transformer.blocks[i / 2].q.lora;
    const hy_array* array = i % 2 ? lora->b : lora->a;
    size_t bytes = hy_tensor_bytes(hy_array_tensor(array));
    assert_true(bytes <= sizeof l->adapters[i]);
    HY_TRY(hy_array_to_host(model->stream, array, l->adapters[i], bytes));
  }
  return HY_OK;
}

static hy_status learn(learner* l, hy_model* model, hy_comm* comm) {
  const hy__adapter_options adapter = {
      .rank = 4, .alpha = 8, .dropout = 0.1, .targets = "q_proj,down_proj"};
  const hy__train_options options = {.batch = ROWS,
                                     .length = LENGTH,
                                     .accumulate = PASSES,
                                     .steps = STEPS,
                                     .lr = 1e-2,
                                     .clip = 1,
                                     .seed = 3,
                                     .comm = comm};
  hy__trainer* trainer;
  enum { N = PASSES * ROWS * LENGTH };
  int32_t tokens[N + 1];
  HY_TRY(hy__adapter_create(model->stream, &adapter, HY_F32, 1, &model->transformer));
  HY_TRY(hy__trainer_create(model->stream, &model->transformer, &options, &trainer));
  hy_status status = HY_OK;
  for (int step = 0; step < STEPS && status == HY_OK; step++) {
    for (int i = 0; i <= N; i++) tokens[i] = (i * i + 7 * i + step) % VOCAB;
    status = hy__trainer_step(trainer, tokens, tokens + 1, &l->losses[step]);
  }
  hy__trainer_destroy(trainer);
  return status == HY_OK ? read_adapters(l, model) : status;
}

static void* run_learner(void* context) {
  learner* l = context;
  hy_device* device;
  hy_comm* comm = NULL;
  hy_model* model = NULL;
  hy__config c = tiny_config(&hy__arch_qwen2, 32, HY_F32);
  c.vocab_size = VOCAB;
  c.n_layers = 2;
  l->status = hy_device_get("guarded", &device);
  if (l->status == HY_OK && l->n_ranks > 1)
    l->status = hy_comm_init_rank(device, l->n_ranks, &l->id, l->rank, &comm);
  if (l->status == HY_OK) l->status = hy__model_create(device, &c, NULL, -1, 2, &model);
  if (l->status == HY_OK) l->status = learn(l, model, comm);
  if (l->status != HY_OK) snprintf(l->message, sizeof l->message, "%s", hy_last_error());
  hy_model_free(model);
  hy_comm_destroy(comm);
  return NULL;
}

static void run_learners(learner* learners, int n) {
  hy_comm_id id;
  CHECK_OK(hy_comm_unique_id(guarded(), &id));
  for (int i = 0; i < n; i++) {
    memset(&learners[i], 0, sizeof learners[i]);
    learners[i].rank = i;
    learners[i].n_ranks = n;
    learners[i].id = id;
    assert_int_equal(pthread_create(&learners[i].thread, NULL, run_learner, &learners[i]), 0);
  }
  for (int i = 0; i < n; i++) pthread_join(learners[i].thread, NULL);
}

static void test_data_parallel_is_accumulation(void** state) {
  (void)state;
  static learner alone, learners[MAX_RANKS];
  run_learners(&alone, 1);
  if (alone.status != HY_OK) fail_msg("%s", alone.message);
  assert_true(alone.losses[0] > 0 && alone.losses[2] != alone.losses[0]);
  for (int n = 2; n <= MAX_RANKS; n *= 2) {
    run_learners(learners, n);
    for (int i = 0; i < n; i++) {
      if (learners[i].status != HY_OK) fail_msg("rank %d of %d: %s", i, n, learners[i].message);
      assert_memory_equal(alone.losses, learners[i].losses, sizeof alone.losses);
      assert_memory_equal(alone.adapters, learners[i].adapters, sizeof alone.adapters);
    }
  }
  run_learners(learners, 3);
  for (int i = 0; i < 3; i++) {
    assert_int_equal(learners[i].status, HY_INVALID_ARGUMENT);
    assert_non_null(strstr(learners[i].message, "3 ranks cannot share 4 passes"));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_every_architecture, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_replicated_heads, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_adapters, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_quantised, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_refused, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_pipelines, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_tensor_parallel_stages, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_stages_that_differ, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_placing, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_refused_pipelines, set_up, tear_down),
      cmocka_unit_test_setup_teardown(test_data_parallel_is_accumulation, set_up, tear_down),
      cmocka_unit_test(test_ranges),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
