// Linear layers: float or quantised weights, with LoRA beside them.
#ifndef HALYARD_MODEL_LINEAR_H_
#define HALYARD_MODEL_LINEAR_H_

#include "halyard/scope.h"

// A low-rank update of a linear layer: y += scaling * dropout(x) A^T B^T.
typedef struct hy__lora {
  hy_array *a, *b;  // (R, in), (out, R); NULL where the layer has none
  double scaling, dropout;
  hy_array *train_a, *train_b;  // what passes of a trainer read; NULL where there is none
} hy__lora;

// y = x W^T + bias. With `scale` the weight is quantised (i8, packed i4 or f8 in groups).
typedef struct hy__linear {
  hy_array *weight, *scale;  // (out, in), (out, in / group); scale may be NULL
  hy_array* bias;            // (out); may be NULL
  int64_t x_group;           // numbers of x that may share a scale where it is quantised; 0: 32
  hy__lora lora;
} hy__linear;

// Random draws of one pass (LoRA's dropout); each draw takes its own stretch of Philox offsets.
// NULL outside of training: then there is no dropout, and quantised weights meet activations that
// are rounded to int8 in groups, or are unpacked for many rows where the device is faster so.
typedef struct hy__draws {
  uint64_t seed, offset;
} hy__draws;

// What several layers read: x, and where their weights are quantised x as int8, rounded once,
// unless the weights become floats for it.
typedef struct hy__activations {
  hy_array *x, *int8, *scale;
  bool unpacks;
} hy__activations;
// For `layer` and others of its kind.
hy__activations hy__activations_for(hy_scope* s, const hy__linear* layer, hy_array* x,
                                    const hy__draws* draws);

// y (N, out) of x (N, in).
hy_array* hy__linear_apply(hy_scope* s, const hy__linear* layer, hy_array* x, hy__draws* draws);
hy_array* hy__linear_apply_to(hy_scope* s, const hy__linear* layer, const hy__activations* x,
                              hy__draws* draws);
// y of layers that read the same x and are trained together: `a` has the rows of their adapters' A,
// one layer after the other (hy__tf_block).
void hy__linear_apply_joint(hy_scope* s, const hy__linear* const* layers, int n, hy_array* a,
                            const hy__activations* x, hy_array** ys);
// The weight in x's type, as a product with x multiplies it: unpacked where that is so; NULL where
// quantised weights stay as they are.
hy_array* hy__linear_floats(hy_scope* s, const hy__linear* layer, hy_array* x);
// In float32, whatever the weights' type: logits.
hy_array* hy__linear_apply_f32(hy_scope* s, const hy__linear* layer, hy_array* x);

// How many numbers of a row share a scale where a row of `size` weights becomes int8: 128, 64 or 32
// where they divide it, else 0, the whole row.
int64_t hy__int8_group(int64_t size);

// Whether its weight is packed for a device's products: it has no gradient, and cannot be changed.
bool hy__linear_is_fractal_nz(const hy__linear* layer);

void hy__linear_release(hy__linear* layer);

#endif  // HALYARD_MODEL_LINEAR_H_
