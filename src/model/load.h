// Weights from files onto a device, and back.
#ifndef HALYARD_MODEL_LOAD_H_
#define HALYARD_MODEL_LOAD_H_

#include "halyard/model.h"
#include "model/transformer.h"

// Loads config.json and the weights of a hub-format folder. `model` is released with
// hy__transformer_release.
hy_status hy__transformer_load(hy_stream* stream, const char* folder, hy_weight_format format,
                               hy__transformer* model);
// Keeps the weights of linear layers as Q8 or Q4 from now on; other formats change nothing.
hy_status hy__transformer_quantise(hy_tape* tape, hy__transformer* model, hy_weight_format format);
// Writes config.json and model.safetensors, so that this and transformers read it. Weights are
// written in their own types; quantised ones and adapters are refused (merge first).
hy_status hy__transformer_save(hy_stream* stream, hy__transformer* model, const char* folder);

#endif  // HALYARD_MODEL_LOAD_H_
