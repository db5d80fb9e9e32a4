// Weights from files onto a device, and back.
#ifndef HALYARD_MODEL_LOAD_H_
#define HALYARD_MODEL_LOAD_H_

#include "halyard/model.h"
#include "model/safetensors.h"
#include "model/transformer.h"

// Loads config.json and the weights of a hub-format folder, of the given layers or with NULL of
// all; the adapter is the caller's business. `model` is released with hy__transformer_release.
// HY_OUT_OF_MEMORY, before anything is loaded, where the weights do not fit in what the device has
// left.
hy_status hy__transformer_load(hy_stream* stream, const char* folder,
                               const hy_load_options* options, const hy__span* layers,
                               hy__transformer* model);

// Bytes that can still be allocated, within the device's limit; false where it does not say.
bool hy__memory_left(hy_device* device, uint64_t* left);

// How far a load is, in weights.
typedef struct hy__load_progress {
  const hy_load_options* options;
  int64_t all, done;
  double bytes;  // that all of them take on the device
} hy__load_progress;
// So many more are loaded; HY_CANCELLED where the caller has had enough.
hy_status hy__load_goes_on(hy__load_progress* progress, int64_t elements);
// A floating weight of a name, with or without "model." before it, whose shard has the shape `own`,
// or an error that says what is wrong.
hy_status hy__find_parameter(const hy__weights* weights, const char* folder, const char* name,
                             int ndim, const int64_t* own, const hy__shard* shard,
                             const hy__weight** found, hy__slice* slice);
// Writes config.json and model.safetensors, so that this and transformers read it. Weights are
// written in their own types; quantised ones and adapters are refused (merge first).
hy_status hy__transformer_save(hy_stream* stream, hy__transformer* model, const char* folder);

#endif  // HALYARD_MODEL_LOAD_H_
