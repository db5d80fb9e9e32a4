// Pipeline: the layers of a model on several devices, which may be unlike, of one process. A stage
// is a model of its own that has some of the layers; what passes between two stages goes through
// the host's memory. Where ranks share the model, each has all stages, and a stage is split among
// the ranks' devices of its place: a tensor-parallel group with a communicator of its own.
#ifndef HALYARD_MODEL_PIPELINE_H_
#define HALYARD_MODEL_PIPELINE_H_

#include "model/model.h"

// How many layers each device takes: the share of its free memory that is left after the embedding
// on the first and the head on the last, and at least one. Of each the `ranks` have equal parts.
// HY_UNSUPPORTED: more devices than layers.
hy_status hy__pipeline_place(const hy__config* config, hy_weight_format format, int ranks,
                             hy_device* const* devices, int n, int64_t* layers);
// Loads options->devices' stages, of which `first`, zeroed, is the first.
hy_status hy__pipeline_load(hy_model* first, const char* folder, const hy_load_options* options);
// x (N, D), which left the first stage, through the others -> logits (batch, V) on the first
// device.
hy_array* hy__pipeline_follow(hy_scope* s, hy_model* first, const hy__kv_pass* pass,
                              const hy_generate_options* options, hy_array* x);

// ---- what a stage is made of (model.c) ----

hy_status hy__model_load_layers(hy_model* stage, hy_device* device, const char* folder,
                                const hy_load_options* options, const hy__span* layers);
// x (N, D) through the stage's layers.
hy_array* hy__model_layers(hy_scope* s, const hy_model* stage, hy__kv_pass* pass,
                           const hy_generate_options* options, hy_array* x);
// What left the last layer -> logits (batch, V), in the last stage.
hy_array* hy__model_last(hy_scope* s, const hy_model* stage, const hy__kv_pass* pass, hy_array* x);

#endif  // HALYARD_MODEL_PIPELINE_H_
