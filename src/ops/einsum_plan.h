// The order in which an einsum's operands are contracted, two at a time.
#ifndef HALYARD_OPS_EINSUM_PLAN_H_
#define HALYARD_OPS_EINSUM_PLAN_H_

#include "ops/einsum.h"

// Sets of labels, bit by label. Dimensions of size 1 are left out: they change nothing.
typedef uint64_t hy__labels;

// Contracts terms a and b; terms 0 .. n - 1 are the operands, later ones the results of the steps
// before.
typedef struct hy__einsum_step {
  int a, b;
} hy__einsum_step;

typedef struct hy__einsum_plan {
  int n_steps;  // one less than operands
  hy__einsum_step step[HY_MAX_INPUTS];
  // What each term brings to its contraction: of an operand, what it is given less the labels that
  // nothing else has and that are summed away first.
  hy__labels kept[2 * HY_MAX_INPUTS], given[HY_MAX_INPUTS], out;
  double cost;  // multiplications
} hy__einsum_plan;

// The cheapest order for up to 8 operands, found by trying all; beyond, the pair whose result grows
// least is taken at each step.
void hy__einsum_plan_make(const hy_call* call, const hy__einsum* e, hy__einsum_plan* plan);

#endif  // HALYARD_OPS_EINSUM_PLAN_H_
