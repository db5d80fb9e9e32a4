// Weights from files onto a device, and back.
#ifndef HALYARD_MODEL_LOAD_H_
#define HALYARD_MODEL_LOAD_H_

#include "halyard/model.h"
#include "model/safetensors.h"
#include "model/transformer.h"

// Loads config.json and the weights of a hub-format folder. `model` is released with
// hy__transformer_release. `cached`: see hy__pack_load.
hy_status hy__transformer_load(hy_stream* stream, const char* folder, hy_weight_format format,
                               bool cached, hy__transformer* model);
// A floating weight of a name and shape, with or without "model." before it, or an error that says
// what is wrong.
hy_status hy__find_parameter(const hy__weights* weights, const char* folder, const char* name,
                             int ndim, const int64_t* shape, const hy__weight** found);
// Writes config.json and model.safetensors, so that this and transformers read it. Weights are
// written in their own types; quantised ones and adapters are refused (merge first).
hy_status hy__transformer_save(hy_stream* stream, hy__transformer* model, const char* folder);

#endif  // HALYARD_MODEL_LOAD_H_
