// The state of a training with bytes changed: what is accepted goes on from a step that exists.
#include "fuzz/edit.h"
#include "fuzz/folder.h"
#include "fuzz/tiny.h"
#include "model/adapter.h"
#include "model/create.h"
#include "model/train.h"

enum { CAPACITY = 1 << 16, TOKENS = 8 };

static const hy__train_options options = {
    .batch = 1, .length = TOKENS, .accumulate = 1, .steps = 5, .lr = 1e-3, .clip = 1};
static const int32_t tokens[TOKENS] = {1, 2, 3, 4, 5, 6, 7, 8},
                     targets[TOKENS] = {2, 3, 4, 5, 6, 7, 8, 9};

static uint8_t good[CAPACITY];
static size_t good_size;
static hy_model* model;

static void set_up(void) {
  const hy__config config = tiny_config(&hy__arch_llama, 16, HY_F32);
  const hy__adapter_options adapter = {.rank = 2, .alpha = 4, .targets = "q_proj,o_proj"};
  hy_device* device;
  hy__trainer* trainer;
  double loss;
  fuzz_make_folder();
  must(hy_device_get("cpu", &device));
  must(hy__model_create(device, &config, NULL, 3, 1, &model));
  must(hy__adapter_create(model->stream, &adapter, HY_F32, 1, &model->transformer));
  must(hy__trainer_create(model->stream, &model->transformer, &options, &trainer));
  must(hy__trainer_step(trainer, tokens, targets, &loss));
  must(hy__trainer_save(trainer, fuzz_path("state")));
  good_size = fuzz_read("state", good, CAPACITY);
  hy__trainer_destroy(trainer);
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (!model) set_up();
  static uint8_t bytes[CAPACITY];
  fuzz_input in = {data, size};
  size_t length = good_size;
  memcpy(bytes, good, length);
  fuzz_edit(&in, bytes, &length, CAPACITY);
  fuzz_write("state", bytes, length);
  hy__trainer* trainer;
  must(hy__trainer_create(model->stream, &model->transformer, &options, &trainer));
  if (hy__trainer_resume(trainer, fuzz_path("state")) == HY_OK) {
    double loss;
    int64_t steps = hy__trainer_steps(trainer);
    if (steps < 0 || steps > options.steps) __builtin_trap();
    hy__trainer_step(trainer, tokens, targets, &loss);
  }
  hy__trainer_destroy(trainer);
  return 0;
}
