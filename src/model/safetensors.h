// Weights as published on model hubs: safetensors, one file or shards with an index.
//
// A file is 8 bytes of header length, a JSON header {"name": {"dtype", "shape", "data_offsets":
// [first, last]}}, then the data. Headers are limited to 100 MB, as the format says; tensors must
// be inside the data, have the size their shape says, and not overlap.
#ifndef HALYARD_MODEL_SAFETENSORS_H_
#define HALYARD_MODEL_SAFETENSORS_H_

#include "halyard/tensor.h"

typedef struct hy__weights hy__weights;

// A weight in the mapped file; `tensor.data` is host memory, valid until hy__weights_close, and may
// be unaligned.
typedef struct hy__weight {
  const char* name;
  hy_tensor tensor;
} hy__weight;

// Opens <folder>/model.safetensors, or the shards that <folder>/model.safetensors.index.json names.
hy_status hy__weights_open(const char* folder, hy__weights** weights);
hy_status hy__weights_open_file(const char* path, hy__weights** weights);
void hy__weights_close(hy__weights* weights);  // NULL is fine

int hy__weights_count(const hy__weights* weights);
const hy__weight* hy__weights_at(const hy__weights* weights, int index);  // sorted by name
const hy__weight* hy__weights_find(const hy__weights* weights,
                                   const char* name);  // NULL where there is none

// Tells the system that the pages of a weight, or of some of its rows, are not needed any more;
// they would come again from the file.
void hy__weights_forget(const hy_tensor* rows);
// Numbers that change when one of the files does: of their headers, and of their sizes and times.
void hy__weights_identify(const hy__weights* weights, int64_t* headers, int64_t* files);

// Writes contiguous host tensors in the given order, with {"format": "pt"} as metadata.
hy_status hy__weights_save(const char* path, const hy__weight* weights, int count);

#endif  // HALYARD_MODEL_SAFETENSORS_H_
