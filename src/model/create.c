// Random initialisation of models that no file has.
#include "model/create.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "model/pack.h"

typedef struct creating {
  hy_model* model;
  uint64_t seed, offset;
} creating;

static bool ends_with(const char* text, const char* end) {
  size_t n = strlen(text), m = strlen(end);
  return n >= m && strcmp(text + n - m, end) == 0;
}

static hy_status create_one(void* context, const char* name, hy_array** slot, int ndim,
                            const int64_t* shape) {
  creating* c = context;
  const hy__config* config = &c->model->transformer.config;
  if (!*slot) HY_TRY(hy_array_empty(c->model->stream, slot, config->dtype, ndim, shape));
  HY_TRY(hy_array_fill(c->model->tape, slot, hy_float(ndim == 1 && !ends_with(name, ".bias"))));
  if (ndim == 1) return HY_OK;
  // What keeps the size of the activations, whatever the width; layers that add to the residual
  // stream share it. Narrow models learn several times slower from the usual 0.02 everywhere.
  bool closing = ends_with(name, "o_proj.weight") || ends_with(name, "down_proj.weight");
  double deviation = ends_with(name, "embed_tokens.weight") ? 0.05 : 1 / sqrt((double)shape[1]);
  if (closing) deviation /= sqrt(2.0 * (double)config->n_layers);
  HY_TRY(hy_array_normal(c->model->tape, slot, c->seed, c->offset, 0, deviation));
  c->offset += (uint64_t)hy_tensor_numel(hy_array_tensor(*slot)) / 4 + 1;
  return HY_OK;
}

static hy_status create(hy_model* model, hy_device* device, const hy__config* config,
                        uint64_t seed) {
  HY_TRY(hy_stream_create(device, &model->stream));
  HY_TRY(hy_tape_create(model->stream, &model->tape));
  hy_tape_set_recording(model->tape, false);
  HY_TRY(hy__transformer_init(&model->transformer, config));
  HY_TRY(hy__transformer_fuse(model->stream, HY_WEIGHTS_AS_FILE, &model->transformer));
  creating c = {.model = model, .seed = seed};
  return hy__transformer_visit(&model->transformer, create_one, &c);
}

hy_status hy__model_create(hy_device* device, const hy__config* config, hy__tokenizer* tokenizer,
                           int32_t end, uint64_t seed, hy_model** out) {
  *out = NULL;
  hy_model* model = hy__calloc(1, sizeof *model);
  if (!model) {
    hy__tokenizer_free(tokenizer);
    return hy_fail(HY_OUT_OF_MEMORY, "no memory for a model");
  }
  model->tokenizer = tokenizer;
  if (end >= 0) model->ends[model->n_ends++] = end;
  hy_status status = create(model, device, config, seed);
  if (status != HY_OK)
    hy_model_free(model);
  else
    *out = model;
  return status;
}

static hy_status count_one(void* context, const char* name, hy_array** slot, int ndim,
                           const int64_t* shape) {
  (void)name;
  (void)slot;
  *(int64_t*)context += ndim == 2 ? shape[0] * shape[1] : shape[0];
  return HY_OK;
}

int64_t hy__config_parameters(const hy__config* config) {
  hy__transformer empty;
  int64_t count = 0;
  if (hy__transformer_init(&empty, config) == HY_OK)
    hy__transformer_visit(&empty, count_one, &count);
  hy__transformer_release(&empty);
  return count;
}
