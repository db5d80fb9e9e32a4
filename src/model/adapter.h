// LoRA adapters in PEFT's format: adapter_config.json and adapter_model.safetensors.
#ifndef HALYARD_MODEL_ADAPTER_H_
#define HALYARD_MODEL_ADAPTER_H_

#include "model/transformer.h"

typedef struct hy__adapter_options {
  int64_t rank;
  double alpha, dropout;
  char targets[256];  // comma-separated names of layers: "q_proj,v_proj"
} hy__adapter_options;

// Puts fresh adapters (A uniform as PEFT makes it, B zero) of the given type on the layers that
// `targets` names. HY_INVALID_ARGUMENT names a target that no layer has.
hy_status hy__adapter_create(hy_stream* stream, const hy__adapter_options* options, hy_dtype dtype,
                             uint64_t seed, hy__transformer* model);
// HY_FORMAT names an option of the config that is not supported, or a layer or shape that does not
// fit the model.
hy_status hy__adapter_load(hy_stream* stream, const char* folder, hy__transformer* model);
// The options of the adapter that the model has; HY_INVALID_ARGUMENT where it has none.
hy_status hy__adapter_describe(hy__transformer* model, hy__adapter_options* options);
// Both files, each written beside and renamed; PEFT reads them. `base` is the model's name or path,
// for the config.
hy_status hy__adapter_save(hy_stream* stream, hy__transformer* model,
                           const hy__adapter_options* options, const char* base,
                           const char* folder);
// W += scaling * B A for every layer that has an adapter, and drops the adapters.
hy_status hy__adapter_merge(hy_tape* tape, hy__transformer* model);

#endif  // HALYARD_MODEL_ADAPTER_H_
