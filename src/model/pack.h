// Weights of linear layers as int8 or int4, made while a model is loaded, and kept in a file beside
// it when asked.
//
// Q8: int8, one scale for 128 in a row (64 or 32 where rows do not divide, else one for the row).
// Q4: int4, one scale for 32 in a row. The vocabulary's matrix is int8 in both, and one matrix for
// embedding and head where they are tied.
#ifndef HALYARD_MODEL_PACK_H_
#define HALYARD_MODEL_PACK_H_

#include "halyard/model.h"
#include "model/load.h"
#include "model/safetensors.h"
#include "model/transformer.h"

static inline bool hy__format_is_packed(hy_weight_format format) {
  return format == HY_WEIGHTS_Q8 || format == HY_WEIGHTS_Q4;
}

// Fills the linear layers and the head of a transformer that has none yet from a folder's weights;
// of the other parameters it touches only the embedding of a tied model. Where it is to be cached
// they come from "halyard-q8.safetensors" (or q4) in the folder where that was made of the same
// weights; else it is written anew.
hy_status hy__pack_load(hy_stream* stream, const char* folder, const hy__weights* weights,
                        hy__load_progress* progress, hy__transformer* model);

// Type and number of scales of a row of `in` weights; HY_UNSUPPORTED names a row that does not
// divide.
hy_status hy__pack_choose(hy_weight_format format, const char* name, int64_t in, hy_dtype* dtype,
                          int64_t* scales);

// Gives the blocks of a transformer that has no weights yet memory for q, k and v as one matrix,
// and for gate and up, in the format; those layers' own arrays are rows of these (fuse_qkv.c).
hy_status hy__transformer_fuse(hy_stream* stream, hy_weight_format format, hy__transformer* model);
// Makes them rows of these again, after these were replaced.
hy_status hy__transformer_split(hy_stream* stream, hy__transformer* model);
// Walks the matrices of the blocks that have memory of their own: fused ones, and layers that are
// part of none.
hy_status hy__transformer_visit_fused(hy__transformer* model, hy__linear_visitor visit,
                                      void* context);

// Replaces the weights of linear layers and head of a whole transformer by packed ones.
hy_status hy__transformer_quantise(hy_tape* tape, hy__transformer* model, hy_weight_format format);

// Packs the 16-bit weights of linear layers, and of a head that is not the embedding, in the layout
// that the device's properties name ("linear_weights=fractal_nz"); nothing where they name none.
hy_status hy__transformer_use_device_layout(hy_tape* tape, hy__transformer* model);

// Activations in front of int8 weights share a scale in groups as large as the device's properties
// name ("activation_group=64"), where they name one and it divides a row, else in groups of 32.
hy_status hy__transformer_use_activation_group(hy_device* device, hy__transformer* model);

#endif  // HALYARD_MODEL_PACK_H_
