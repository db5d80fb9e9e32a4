// Einsum: what an equation means for its operands.
//
// As in PyTorch: letters name dimensions, "..." those left over, which broadcast; a letter twice in
// one operand takes its diagonal; size 1 broadcasts; without "->" the output has the ellipsis, then
// the letters that occur once, A to Z before a to z.
#ifndef HALYARD_OPS_EINSUM_H_
#define HALYARD_OPS_EINSUM_H_

#include "ops/internal.h"

// Labels 0..51 are A to Z and a to z; from 52 on, dimensions under the ellipsis, counted from the
// right.
#define HY__EINSUM_LABELS (52 + HY_MAX_DIMS)

typedef struct hy__subscript {
  int rank;
  int8_t label[HY_MAX_DIMS];
} hy__subscript;

typedef struct hy__einsum {
  int n_operands;
  hy__subscript operand[HY_MAX_INPUTS];
  hy__subscript out;
  int64_t size[HY__EINSUM_LABELS];  // -1 where the label is not used
} hy__einsum;

// Fails with what is wrong in the equation or in an operand's shape.
hy_status hy__einsum_parse(const hy_call* call, hy__einsum* e);

#endif  // HALYARD_OPS_EINSUM_H_
