// Elementwise ops: promotion, broadcasting and the output's place are decided by PyTorch's
// TensorIterator, the arithmetic is a call of the table.
#pragma once

#include "native.h"

namespace halyard_torch {

// What an op does with types: the result has the inputs' common type, a floating one, or is bool.
enum class Rule { kSame, kFloat, kBool };

// A tensor without dimensions that is on the host: a number of Python's, mostly.
inline bool is_number(const Tensor& t) {
  return t.dim() == 0 && t.is_cpu();
}
Scalar number_of(const Tensor& t);  // without a dispatch
// On the device and of that type.
Tensor operand(const Tensor& t, ScalarType type, c10::Device device);

// Each takes the output, or makes it where `out` is undefined. Inputs of one shape, type and order
// of memory are spared the TensorIterator.
Tensor& run_unary(hy_op op, Rule rule, const Tensor& x, Tensor& out,
                  const hy_attrs* attrs = nullptr);
Tensor& run_binary(hy_op op, Rule rule, const Tensor& a, const Tensor& b, Tensor& out,
                   const hy_attrs* attrs = nullptr);
// A tensor and a number, where the table has an op for it.
Tensor& run_scalar(hy_op op, Rule rule, const Tensor& x, const Tensor& number, Tensor& out,
                   const hy_attrs* attrs);

}  // namespace halyard_torch
