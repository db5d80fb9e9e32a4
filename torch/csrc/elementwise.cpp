// Elementwise ops: one function for each number of inputs.
#include "elementwise.h"

#include <ATen/TensorIterator.h>
#include <ATen/native/TypeProperties.h>

namespace halyard_torch {

Scalar number_of(const Tensor& t) {
  const void* data = t.const_data_ptr();
  switch (t.scalar_type()) {
    case ScalarType::Double: return *static_cast<const double*>(data);
    case ScalarType::Long: return *static_cast<const int64_t*>(data);
    case ScalarType::Bool: return *static_cast<const bool*>(data);
    default: return t.item();
  }
}

Tensor operand(const Tensor& t, ScalarType type, c10::Device device) {
  return is_number(t) ? t.to(t.options().device(device).dtype(type)) : cast(t, type);
}

static void run(Call& call, const hy_attrs* attrs, const Tensor& out) {
  if (attrs) call.attrs() = *attrs;
  if (out.numel() > 0) call.run();
}

Tensor& run_unary(hy_op op, Rule rule, const Tensor& x, Tensor& out, const hy_attrs* attrs) {
  ScalarType common = x.scalar_type();
  bool plain = rule != Rule::kFloat || at::isFloatingType(common);
  if (plain && !out.defined() && x.is_contiguous()) {
    out = make_tensor(x.sizes(), rule == Rule::kBool ? at::kBool : common, x.device());
  } else if (!(plain && rule != Rule::kBool && out.defined() && out.is_same(x))) {
    at::TensorIteratorConfig config;
    config.set_check_mem_overlap(true).add_output(out).add_const_input(x);
    if (rule == Rule::kBool) {
      config.check_all_same_dtype(false);
      if (!out.defined()) config.declare_static_dtype(at::kBool);
    } else {
      config.promote_inputs_to_common_dtype(true)
          .cast_common_dtype_to_outputs(true)
          .enforce_safe_casting_to_output(true);
      if (rule == Rule::kFloat) config.promote_integer_inputs_to_float(true);
    }
    auto iter = config.build();
    out = iter.output();
    if (rule != Rule::kBool) common = iter.common_dtype();
  }
  Call call(op, out.device());
  call.in(cast(x, common)).out(out);
  run(call, attrs, out);
  return out;
}

static at::TensorIterator binary_iterator(Rule rule, const Tensor& a, const Tensor& b,
                                          Tensor& out) {
  switch (rule) {
    case Rule::kFloat: return at::TensorIterator::binary_float_op(out, a, b);
    case Rule::kBool: return at::TensorIterator::comparison_op(out, a, b);
    default: return at::TensorIterator::binary_op(out, a, b);
  }
}

Tensor& run_binary(hy_op op, Rule rule, const Tensor& a, const Tensor& b, Tensor& out,
                   const hy_attrs* attrs) {
  ScalarType common = a.scalar_type();
  bool plain = common == b.scalar_type() && a.device() == b.device() && a.sizes() == b.sizes() &&
               a.is_contiguous() && b.is_contiguous() &&
               (rule != Rule::kFloat || at::isFloatingType(common));
  if (plain && !out.defined()) {
    out = make_tensor(a.sizes(), rule == Rule::kBool ? at::kBool : common, a.device());
  } else if (!(plain && rule != Rule::kBool && out.is_same(a))) {
    auto iter = binary_iterator(rule, a, b, out);
    out = iter.output();
    common = iter.common_dtype();
  }
  if (out.numel() == 0) return out;
  Call call(op, out.device());
  call.in(operand(a, common, out.device())).in(operand(b, common, out.device())).out(out);
  run(call, attrs, out);
  return out;
}

Tensor& run_scalar(hy_op op, Rule rule, const Tensor& x, const Tensor& number, Tensor& out,
                   const hy_attrs* attrs) {
  ScalarType common = x.scalar_type();
  bool kept = at::isFloatingType(common) ||
              (at::isIntegralType(common, false) && number.scalar_type() == at::kLong);
  bool plain = kept && (number.unsafeGetTensorImpl()->is_wrapped_number() || x.dim() > 0) &&
               !at::isComplexType(number.scalar_type()) &&
               (rule != Rule::kFloat || at::isFloatingType(common));
  if (plain && !out.defined() && x.is_contiguous()) {
    out = make_tensor(x.sizes(), rule == Rule::kBool ? at::kBool : common, x.device());
  } else if (!(plain && out.defined() && out.is_same(x) && rule != Rule::kBool)) {
    auto iter = binary_iterator(rule, x, number, out);
    out = iter.output();
    common = iter.common_dtype();
  }
  Call call(op, out.device());
  call.in(cast(x, common)).out(out);
  run(call, attrs, out);
  return out;
}

}  // namespace halyard_torch
