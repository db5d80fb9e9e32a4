// How an elementwise op maps to row kernels: for the op itself and for chains of them.
#ifndef HALYARD_CPU_OPS_ELEMENTWISE_H_
#define HALYARD_CPU_OPS_ELEMENTWISE_H_

#include "backends/cpu/family.h"

// A map, or a test of which a number may be the second operand.
typedef struct hy__mapping {
  hy__map* const* map;
  hy__test* test;
  float p, q;
  bool has_number;
  int cost;  // of an element, in additions
} hy__mapping;

// `call` needs its op, its attributes and the type of its first input.
void hy__map_op(const hy__rows* rows, const hy_call* call, hy__mapping* m);

#endif  // HALYARD_CPU_OPS_ELEMENTWISE_H_
