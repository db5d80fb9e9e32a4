// A good folder of which one file is changed: config.json, generation_config.json, the index of
// shards, a shard, an adapter, or the packed weights kept beside the model. What loads also runs.
#include "fuzz/edit.h"
#include "fuzz/folder.h"
#include "fuzz/tiny.h"
#include "halyard/trace.h"
#include "model/adapter.h"
#include "model/create.h"
#include "model/load.h"
#include "model/safetensors.h"

enum { CAPACITY = 1 << 16, N_FILES = 9 };

typedef struct good_file {
  const char* name;
  size_t size;
  uint8_t bytes[CAPACITY];
} good_file;

static good_file files[N_FILES] = {
    {.name = "config.json"},
    {.name = "generation_config.json"},
    {.name = "adapter_config.json"},
    {.name = "adapter_model.safetensors"},
    {.name = "halyard-q8.safetensors"},
    {.name = "halyard-q4.safetensors"},
    {.name = "model.safetensors.index.json"},
    {.name = "one.safetensors"},
    {.name = "two.safetensors"},
};

static hy_device* device;

static void say_nothing(void* user, int level, const char* line) {
  (void)user;
  (void)level;
  (void)line;
}

// model.safetensors as two shards with an index, and nothing of it left.
static void split_weights(void) {
  hy__weights* weights;
  must(hy__weights_open(fuzz_folder, &weights));
  int n = hy__weights_count(weights), half = n / 2;
  static char index[CAPACITY];
  size_t used = (size_t)snprintf(index, sizeof index, "{\"weight_map\":{");
  for (int i = 0; i < n; i++)
    used += (size_t)snprintf(index + used, sizeof index - used, "%s\"%s\":\"%s\"", i ? "," : "",
                             hy__weights_at(weights, i)->name,
                             i < half ? "one.safetensors" : "two.safetensors");
  used += (size_t)snprintf(index + used, sizeof index - used, "}}");
  must(hy__weights_save(fuzz_path("one.safetensors"), hy__weights_at(weights, 0), half));
  must(hy__weights_save(fuzz_path("two.safetensors"), hy__weights_at(weights, half), n - half));
  hy__weights_close(weights);
  fuzz_write("model.safetensors.index.json", index, used);
  unlink(fuzz_path("model.safetensors"));
}

// The files of time 1, so that the packed weights, made of them, fit them ever after.
static void keep_files(int first, int last) {
  for (int i = first; i <= last; i++) {
    files[i].size = fuzz_read(files[i].name, files[i].bytes, CAPACITY);
    fuzz_write(files[i].name, files[i].bytes, files[i].size);
  }
}

static void make_folder(void) {
  const hy__config config = tiny_config(&hy__arch_qwen3, 32, HY_BF16);
  const hy__adapter_options adapter = {.rank = 2, .alpha = 4, .targets = "q_proj,down_proj"};
  static const char generation[] = "{\"eos_token_id\": [3, 4], \"temperature\": 0.7}";
  hy_model* model;
  fuzz_make_folder();
  must(hy_device_get("cpu", &device));
  must(hy__model_create(device, &config, NULL, 3, 1, &model));
  must(hy__transformer_save(model->stream, &model->transformer, fuzz_folder));
  split_weights();
  must(hy__adapter_create(model->stream, &adapter, HY_F32, 1, &model->transformer));
  must(hy__adapter_save(model->stream, &model->transformer, &adapter, "base", fuzz_folder));
  hy_model_free(model);
  fuzz_write("generation_config.json", generation, sizeof generation - 1);
  keep_files(0, 3);
  keep_files(6, 8);
  for (int i = 4; i <= 5; i++) {
    must(hy_model_load_cached(device, fuzz_folder, NULL, i == 4 ? HY_WEIGHTS_Q8 : HY_WEIGHTS_Q4,
                              &model));
    hy_model_free(model);
  }
  keep_files(4, 5);
}

static hy_status load(int changed, bool packed, hy_model** model) {
  hy_weight_format format = changed == 4 || (packed && changed != 5) ? HY_WEIGHTS_Q8
                            : changed == 5                           ? HY_WEIGHTS_Q4
                                                                     : HY_WEIGHTS_AS_FILE;
  if (changed == 4 || changed == 5)
    return hy_model_load_cached(device, fuzz_folder, NULL, format, model);
  return hy_model_load(device, fuzz_folder, changed < 4 ? fuzz_folder : NULL, format, model);
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static bool ready;
  if (!ready) make_folder();
  if (!ready) hy_set_log_sink(say_nothing, NULL);
  ready = true;
  fuzz_input in = {data, size};
  uint8_t choice = fuzz_byte(&in);
  good_file* file = &files[choice % N_FILES];
  static uint8_t bytes[CAPACITY];
  size_t length = file->size;
  memcpy(bytes, file->bytes, length);
  fuzz_edit(&in, bytes, &length, CAPACITY);
  fuzz_write(file->name, bytes, length);
  hy_model* model;
  if (load(choice % N_FILES, choice >= 128, &model) == HY_OK) {
    hy_generate_options options;
    hy_generate_defaults(&options);
    options.max_tokens = 2;
    hy_model_generate(model, (int32_t[]){1, 2}, 2, &options, NULL, NULL, NULL, NULL);
    hy_model_free(model);
  }
  fuzz_write(file->name, file->bytes, file->size);
  return 0;
}
