// Elementwise ops of ATen: tables of which row of the op table each one is.
#include <ATen/TensorIterator.h>
#include <ATen/native/BinaryOps.h>

#include "elementwise.h"

namespace halyard_torch {
namespace {

// ---- one input ----

template <hy_op op, Rule rule>
Tensor unary(const Tensor& x) {
  Tensor out;
  run_unary(op, rule, x, out);
  return out;
}
template <hy_op op, Rule rule>
Tensor& unary_out(const Tensor& x, Tensor& out) {
  return run_unary(op, rule, x, out);
}
template <hy_op op, Rule rule>
Tensor& unary_(Tensor& x) {
  return run_unary(op, rule, x, x);
}

Tensor& run_gelu(hy_op op, const Tensor& x, c10::string_view approximate, Tensor& out) {
  hy_attrs attrs;
  if (approximate != "none" && approximate != "tanh") decline("no such approximation");
  attrs.gelu.approximate = approximate == "tanh";
  return run_unary(op, Rule::kSame, x, out, &attrs);
}
Tensor gelu(const Tensor& x, c10::string_view approximate) {
  Tensor out;
  run_gelu(HY_OP_gelu, x, approximate, out);
  return out;
}
Tensor& gelu_out(const Tensor& x, c10::string_view approximate, Tensor& out) {
  return run_gelu(HY_OP_gelu, x, approximate, out);
}

// ---- two inputs ----

template <hy_op op, hy_op scalar_op, Rule rule>
Tensor& binary_out(const Tensor& a, const Tensor& b, Tensor& out) {
  if (scalar_op != HY_OP_NONE && is_number(b) && a.is_privateuseone()) {
    hy_attrs attrs;
    attrs.value.value = scalar_of(number_of(b));
    return run_scalar(scalar_op, rule, a, b, out, &attrs);
  }
  if (op == HY_OP_mul && is_number(a)) return binary_out<op, scalar_op, rule>(b, a, out);
  return run_binary(op, rule, a, b, out);
}
template <hy_op op, hy_op scalar_op, Rule rule>
Tensor binary(const Tensor& a, const Tensor& b) {
  Tensor out;
  binary_out<op, scalar_op, rule>(a, b, out);
  return out;
}
template <hy_op op, hy_op scalar_op, Rule rule>
Tensor& binary_(Tensor& a, const Tensor& b) {
  return binary_out<op, scalar_op, rule>(a, b, a);
}

Tensor wrapped(const Scalar& value) {
  return at::native::wrapped_scalar_tensor(value);
}
template <hy_op op, hy_op scalar_op, Rule rule>
Tensor& number_out(const Tensor& a, const Scalar& b, Tensor& out) {
  return binary_out<op, scalar_op, rule>(a, wrapped(b), out);
}
template <hy_op op, hy_op scalar_op, Rule rule>
Tensor number(const Tensor& a, const Scalar& b) {
  return binary<op, scalar_op, rule>(a, wrapped(b));
}
template <hy_op op, hy_op scalar_op, Rule rule>
Tensor& number_(Tensor& a, const Scalar& b) {
  return binary_out<op, scalar_op, rule>(a, wrapped(b), a);
}

// a + alpha b and a - alpha b.
template <hy_op op>
Tensor& sum_out(const Tensor& a, const Tensor& b, const Scalar& alpha, Tensor& out) {
  hy_attrs attrs;
  bool plus = op == HY_OP_add;
  bool same = a.scalar_type() == b.scalar_type() && a.scalar_type() != at::kBool;
  if (!(same && alpha.isIntegral(false))) at::native::alpha_check(at::result_type(a, b), alpha);
  if (!plus) at::native::sub_check(a, b);
  bool right = is_number(b) && a.is_privateuseone();
  bool left = is_number(a) && b.is_privateuseone() && (!plus || alpha.equal(1));
  if (right || left) {
    attrs.value_alpha.value = scalar_of(number_of(right ? b : a));
    attrs.value_alpha.alpha = scalar_of(alpha);
    hy_op scalar_op = plus ? HY_OP_add_scalar : right ? HY_OP_sub_scalar : HY_OP_rsub_scalar;
    return run_scalar(scalar_op, Rule::kSame, right ? a : b, right ? b : a, out, &attrs);
  }
  attrs.alpha.alpha = scalar_of(alpha);
  return run_binary(op, Rule::kSame, a, b, out, &attrs);
}
template <hy_op op>
Tensor sum(const Tensor& a, const Tensor& b, const Scalar& alpha) {
  Tensor out;
  sum_out<op>(a, b, alpha, out);
  return out;
}
template <hy_op op>
Tensor& sum_(Tensor& a, const Tensor& b, const Scalar& alpha) {
  return sum_out<op>(a, b, alpha, a);
}

hy_rounding rounding_of(std::optional<c10::string_view> mode) {
  if (!mode.has_value()) return HY_ROUND_NONE;
  if (*mode == "trunc") return HY_ROUND_TRUNC;
  if (*mode == "floor") return HY_ROUND_FLOOR;
  decline("no such rounding");
}
Tensor& run_div(const Tensor& a, const Tensor& b, hy_rounding rounding, Tensor& out) {
  hy_attrs attrs;
  Rule rule = rounding == HY_ROUND_NONE ? Rule::kFloat : Rule::kSame;
  if (is_number(b) && a.is_privateuseone()) {
    attrs.value_rounding.value = scalar_of(number_of(b));
    attrs.value_rounding.rounding = rounding;
    // PyTorch's words for a division of integers by zero.
    if (rule == Rule::kSame && attrs.value_rounding.value.kind != HY_F64 &&
        attrs.value_rounding.value.as.i == 0)
      decline("a division by zero");
    return run_scalar(HY_OP_div_scalar, rule, a, b, out, &attrs);
  }
  if (rule == Rule::kSame && !at::isFloatingType(at::result_type(a, b)))
    decline("a division of integers may be by zero");
  attrs.rounding.rounding = rounding;
  return run_binary(HY_OP_div, rule, a, b, out, &attrs);
}
Tensor div(const Tensor& a, const Tensor& b) {
  Tensor out;
  run_div(a, b, HY_ROUND_NONE, out);
  return out;
}
Tensor& div_out(const Tensor& a, const Tensor& b, Tensor& out) {
  return run_div(a, b, HY_ROUND_NONE, out);
}
Tensor& div_(Tensor& a, const Tensor& b) {
  return run_div(a, b, HY_ROUND_NONE, a);
}
Tensor div_mode(const Tensor& a, const Tensor& b, std::optional<c10::string_view> mode) {
  Tensor out;
  run_div(a, b, rounding_of(mode), out);
  return out;
}
Tensor& div_mode_out(const Tensor& a, const Tensor& b, std::optional<c10::string_view> mode,
                     Tensor& out) {
  return run_div(a, b, rounding_of(mode), out);
}
Tensor& div_mode_(Tensor& a, const Tensor& b, std::optional<c10::string_view> mode) {
  return run_div(a, b, rounding_of(mode), a);
}
Tensor floor_divide(const Tensor& a, const Tensor& b) {
  Tensor out;
  run_div(a, b, HY_ROUND_FLOOR, out);
  return out;
}
Tensor& floor_divide_out(const Tensor& a, const Tensor& b, Tensor& out) {
  return run_div(a, b, HY_ROUND_FLOOR, out);
}
Tensor& floor_divide_(Tensor& a, const Tensor& b) {
  return run_div(a, b, HY_ROUND_FLOOR, a);
}

// Exact for integers alone; by zero it is an error, in PyTorch's words.
Tensor& remainder_out(const Tensor& a, const Tensor& b, Tensor& out) {
  if (!at::isIntegralType(at::result_type(a, b), false) || !is_number(b) || !a.is_privateuseone())
    decline("only integers by a number");
  return deliver(out, at::sub(a, at::mul(at::floor_divide(a, b), b)));
}

Tensor& is_infinity_out(const Tensor& x, double infinity, Tensor& out) {
  if (!at::isFloatingType(x.scalar_type())) decline("no floating point number");
  return deliver(out, at::eq(x, infinity));
}
Tensor& isposinf_out(const Tensor& x, Tensor& out) {
  return is_infinity_out(x, std::numeric_limits<double>::infinity(), out);
}
Tensor& isneginf_out(const Tensor& x, Tensor& out) {
  return is_infinity_out(x, -std::numeric_limits<double>::infinity(), out);
}

// A negative power of an integer is an error, in PyTorch's words.
void check_power(const Tensor& base, const Scalar& exponent) {
  if (at::isIntegralType(base.scalar_type(), true) && exponent.isIntegral(true) &&
      exponent.toLong() < 0)
    decline("a negative power of integers");
}
Tensor& pow_number_out(const Tensor& x, const Scalar& exponent, Tensor& out) {
  check_power(x, exponent);
  return number_out<HY_OP_pow, HY_OP_pow_scalar, Rule::kSame>(x, exponent, out);
}
Tensor pow_number(const Tensor& x, const Scalar& exponent) {
  Tensor out;
  pow_number_out(x, exponent, out);
  return out;
}
Tensor& pow_number_(Tensor& x, const Scalar& exponent) {
  return pow_number_out(x, exponent, x);
}
Tensor& number_pow_out(const Scalar& base, const Tensor& x, Tensor& out) {
  if (!at::isFloatingType(x.scalar_type())) decline("powers that are integers may be negative");
  hy_attrs attrs;
  attrs.value.value = scalar_of(base);
  return run_scalar(HY_OP_rpow_scalar, Rule::kSame, x, wrapped(base), out, &attrs);
}
Tensor number_pow(const Scalar& base, const Tensor& x) {
  Tensor out;
  number_pow_out(base, x, out);
  return out;
}

// ---- gradients: (dy, x or y) -> dx ----

template <hy_op op>
Tensor& backward_out(const Tensor& dy, const Tensor& y, Tensor& out) {
  return run_binary(op, Rule::kSame, dy, y, out);
}
template <hy_op op>
Tensor backward(const Tensor& dy, const Tensor& y) {
  Tensor out;
  run_binary(op, Rule::kSame, dy, y, out);
  return out;
}
Tensor& gelu_backward_out(const Tensor& dy, const Tensor& x, c10::string_view approximate,
                          Tensor& out) {
  hy_attrs attrs;
  attrs.gelu.approximate = approximate == "tanh";
  return run_binary(HY_OP_gelu_backward, Rule::kSame, dy, x, out, &attrs);
}
Tensor gelu_backward(const Tensor& dy, const Tensor& x, c10::string_view approximate) {
  Tensor out;
  gelu_backward_out(dy, x, approximate, out);
  return out;
}
Tensor& threshold_backward_out(const Tensor& dy, const Tensor& y, const Scalar& threshold,
                               Tensor& out) {
  if (threshold.toDouble() != 0) decline("a threshold other than 0");
  return run_binary(HY_OP_relu_backward, Rule::kSame, dy, y, out);
}
Tensor threshold_backward(const Tensor& dy, const Tensor& y, const Scalar& threshold) {
  Tensor out;
  threshold_backward_out(dy, y, threshold, out);
  return out;
}

// ---- three inputs, masks, limits ----

Tensor& where_out(const Tensor& condition, const Tensor& a, const Tensor& b, Tensor& out) {
  if (condition.scalar_type() != at::kBool) decline("a condition that is not bool");
  auto iter = at::TensorIteratorConfig()
                  .check_all_same_dtype(false)
                  .add_output(out)
                  .add_const_input(condition)
                  .add_const_input(a)
                  .add_const_input(b)
                  .declare_static_dtype(at::result_type(a, b))
                  .build();
  out = iter.output();
  if (out.numel() == 0) return out;
  ScalarType type = at::result_type(a, b);
  if (is_number(condition)) decline("a condition of the host");
  Call call(HY_OP_where, out.device());
  call.in(condition).in(operand(a, type, out.device())).in(operand(b, type, out.device())).out(out);
  call.run();
  return out;
}
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  Tensor out;
  where_out(condition, a, b, out);
  return out;
}

Tensor& masked_fill_(Tensor& self, const Tensor& mask, const Scalar& value) {
  if (self.numel() == 0) decline("nothing to fill");
  Call call(HY_OP_masked_fill, self.device());
  call.in(self).in(mask).out(self);
  call.attrs().value.value = scalar_of(value);
  call.run();
  return self;
}
Tensor& masked_fill_tensor_(Tensor& self, const Tensor& mask, const Tensor& value) {
  TORCH_CHECK(value.dim() == 0,
              "masked_fill_ only supports a 0-dimensional value tensor, but got tensor with ",
              value.dim(), " dimension(s).");
  if (value.is_cpu()) return masked_fill_(self, mask, value.item());
  if (!c10::canCast(at::result_type(self, value), self.scalar_type()))
    decline("a value that self cannot hold");
  Call call(HY_OP_where, self.device());
  if (mask.scalar_type() != at::kBool) decline("a mask that is not bool");
  call.in(mask).in(cast(value, self.scalar_type())).in(self).out(self);
  call.run();
  return self;
}

Tensor& addc_out(hy_op op, const Tensor& x, const Tensor& a, const Tensor& b, const Scalar& value,
                 Tensor& out) {
  auto iter = at::TensorIteratorConfig()
                  .set_check_mem_overlap(true)
                  .add_output(out)
                  .add_const_input(x)
                  .add_const_input(a)
                  .add_const_input(b)
                  .promote_inputs_to_common_dtype(true)
                  .cast_common_dtype_to_outputs(true)
                  .enforce_safe_casting_to_output(true)
                  .build();
  out = iter.output();
  ScalarType type = iter.common_dtype();
  if (at::isIntegralType(type, true) && (op == HY_OP_addcdiv || value.isFloatingPoint()))
    decline("integers");
  if (out.numel() == 0) return out;
  Call call(op, out.device());
  call.in(operand(x, type, out.device()))
      .in(operand(a, type, out.device()))
      .in(operand(b, type, out.device()))
      .out(out);
  call.attrs().value.value = scalar_of(value);
  call.run();
  return out;
}
template <hy_op op>
Tensor addc(const Tensor& x, const Tensor& a, const Tensor& b, const Scalar& value) {
  Tensor out;
  addc_out(op, x, a, b, value, out);
  return out;
}
template <hy_op op>
Tensor& addc_to(const Tensor& x, const Tensor& a, const Tensor& b, const Scalar& value,
                Tensor& out) {
  return addc_out(op, x, a, b, value, out);
}
template <hy_op op>
Tensor& addc_(Tensor& x, const Tensor& a, const Tensor& b, const Scalar& value) {
  return addc_out(op, x, a, b, value, x);
}

Tensor& clamp_out(const Tensor& x, const std::optional<Scalar>& low,
                  const std::optional<Scalar>& high, Tensor& out) {
  if (!low && !high) decline("no limit");
  ScalarType type = x.scalar_type();
  if (low) type = at::result_type(x, *low);
  if (high) type = c10::promoteTypes(type, at::result_type(x, *high));
  auto isnan = [](const std::optional<Scalar>& s) {
    return s && s->isFloatingPoint() && std::isnan(s->toDouble());
  };
  if (isnan(low) || isnan(high)) decline("a limit that is no number");
  hy_attrs attrs;
  attrs.clamp.low = low ? scalar_of(*low) : hy_no_scalar();
  attrs.clamp.high = high ? scalar_of(*high) : hy_no_scalar();
  return run_unary(HY_OP_clamp, Rule::kSame, cast(x, type), out, &attrs);
}
Tensor clamp_to(const Tensor& x, const std::optional<Scalar>& low,
                const std::optional<Scalar>& high) {
  Tensor out;
  clamp_out(x, low, high, out);
  return out;
}
Tensor& clamp_(Tensor& x, const std::optional<Scalar>& low, const std::optional<Scalar>& high) {
  return clamp_out(x, low, high, x);
}
Tensor clamp_min(const Tensor& x, const Scalar& low) {
  return clamp_to(x, low, {});
}
Tensor clamp_max(const Tensor& x, const Scalar& high) {
  return clamp_to(x, {}, high);
}
Tensor& clamp_min_(Tensor& x, const Scalar& low) {
  return clamp_out(x, low, {}, x);
}
Tensor& clamp_max_(Tensor& x, const Scalar& high) {
  return clamp_out(x, {}, high, x);
}
Tensor clamp_tensor(const Tensor& x, const std::optional<Tensor>& low,
                    const std::optional<Tensor>& high) {
  Tensor out = x;
  if (low && low->defined()) out = at::maximum(out, *low);
  if (high && high->defined()) out = at::minimum(out, *high);
  if (out.is_same(x)) decline("no limit");
  return out;
}

Tensor tri(hy_op op, const Tensor& x, int64_t diagonal) {
  Call call(op, x.device());
  call.in(x);
  call.attrs().tri.diagonal = diagonal;
  Tensor out = call.make();
  if (out.numel() > 0) call.run();
  return out;
}
Tensor tril(const Tensor& x, int64_t diagonal) {
  return tri(HY_OP_tril, x, diagonal);
}
Tensor triu(const Tensor& x, int64_t diagonal) {
  return tri(HY_OP_triu, x, diagonal);
}

// weight (end - x) + x, in the form that is exact at the nearer end.
Tensor& lerp_out(const Tensor& x, const Tensor& end, const Scalar& weight, Tensor& out) {
  if (!at::isFloatingType(x.scalar_type()) || x.scalar_type() != end.scalar_type())
    decline("mixed types");
  double w = weight.toDouble();
  Tensor way = at::sub(end, x);
  hy_attrs attrs;
  attrs.alpha.alpha = hy_float(std::abs(w) < 0.5 ? w : w - 1);
  return run_binary(HY_OP_add, Rule::kSame, std::abs(w) < 0.5 ? x : end, way, out, &attrs);
}
Tensor lerp(const Tensor& x, const Tensor& end, const Scalar& weight) {
  Tensor out;
  lerp_out(x, end, weight, out);
  return out;
}
Tensor& lerp_(Tensor& x, const Tensor& end, const Scalar& weight) {
  return lerp_out(x, end, weight, x);
}

// ---- creation ----

Tensor& fill_number_(Tensor& self, const Scalar& value) {
  if (self.numel() == 0) return self;
  Call call(HY_OP_fill, self.device());
  call.out(self);
  call.attrs().value.value = scalar_of(value);
  if (self.scalar_type() != at::kBool && !at::isFloatingType(self.scalar_type()) &&
      value.isFloatingPoint())
    call.attrs().value.value = hy_int(value.toLong());
  call.run();
  return self;
}
Tensor& fill_tensor_(Tensor& self, const Tensor& value) {
  TORCH_CHECK(value.dim() == 0, "fill_ only supports 0-dimension value tensor but got tensor with ",
              value.dim(), " dimensions.");
  self.copy_(value);
  return self;
}
Tensor& zero_(Tensor& self) {
  if (self.numel() > 0 && self.is_non_overlapping_and_dense()) {
    note_write(self);
    auto& slot = current_slot(self.get_device());
    std::lock_guard<std::mutex> lock(slot.mutex);
    check(hy_memset(slot.handle, self.mutable_data_ptr(), 0, self.nbytes()));
    return self;
  }
  return fill_number_(self, 0);
}
Tensor& arange_out(const Scalar& start, const Scalar& end, const Scalar& step, Tensor& out) {
  bool whole = at::isIntegralType(out.scalar_type(), false) && start.isIntegral(false) &&
               end.isIntegral(false) && step.isIntegral(false);
  double first = start.toDouble(), last = end.toDouble(), by = step.toDouble();
  if (by == 0 || !std::isfinite(first) || !std::isfinite(last) || (by > 0) != (last >= first) ||
      (by < 0 && last > first))
    if (!(first == last && by != 0)) decline("no such range");
  int64_t n;
  if (whole) {
    int64_t sign = step.toLong() > 0 ? 1 : -1;
    n = (end.toLong() - start.toLong() + step.toLong() - sign) / step.toLong();
  } else {
    if (!at::isFloatingType(out.scalar_type())) decline("fractions in a range of integers");
    n = static_cast<int64_t>(std::ceil((last - first) / by));
  }
  if (out.numel() != n) out.resize_({n});
  if (n == 0) return out;
  Tensor target = out.dim() == 1 ? out : make_tensor({n}, out.scalar_type(), out.device());
  Call call(HY_OP_arange, out.device());
  call.out(target);
  call.attrs().arange.start = whole ? hy_int(start.toLong()) : hy_float(first);
  call.attrs().arange.step = whole ? hy_int(step.toLong()) : hy_float(by);
  call.run();
  if (!target.is_same(out)) out.copy_(target.view(out.sizes()));
  return out;
}

// clang-format off
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  // op, row, rule: function, .out and in place.
#define UNARY(op, row, rule)                                   \
  NATIVE(op, unary<HY_OP_##row, Rule::rule>);                  \
  NATIVE(op##_out, unary_out<HY_OP_##row, Rule::rule>);        \
  NATIVE(op##_, unary_<HY_OP_##row, Rule::rule>)
  UNARY(neg, neg, kSame);           UNARY(abs, abs, kSame);       UNARY(sign, sign, kSame);
  UNARY(sgn, sign, kSame);          UNARY(floor, floor, kSame);   UNARY(ceil, ceil, kSame);
  UNARY(round, round, kSame);       UNARY(trunc, trunc, kSame);   UNARY(bitwise_not, bitwise_not, kSame);
  UNARY(silu, silu, kSame);         UNARY(sqrt, sqrt, kFloat);    UNARY(rsqrt, rsqrt, kFloat);
  UNARY(reciprocal, reciprocal, kFloat);                          UNARY(exp, exp, kFloat);
  UNARY(log, log, kFloat);          UNARY(cos, cos, kFloat);      UNARY(sin, sin, kFloat);
  UNARY(tanh, tanh, kFloat);        UNARY(sigmoid, sigmoid, kFloat);
  UNARY(erf, erf, kFloat);          UNARY(logical_not, logical_not, kBool);
#undef UNARY
  NATIVE(relu, unary<HY_OP_relu, Rule::kSame>);
  NATIVE(relu_, unary_<HY_OP_relu, Rule::kSame>);
  NATIVE(isnan, unary<HY_OP_isnan, Rule::kBool>);
  NATIVE(gelu, gelu);
  NATIVE(gelu_out, gelu_out);

  // op, row, row with a number, rule: function, .out and in place.
#define BINARY(op, out_op, in_place, row, number_row, rule)                       \
  NATIVE(op, binary<HY_OP_##row, HY_OP_##number_row, Rule::rule>);                \
  NATIVE(out_op, binary_out<HY_OP_##row, HY_OP_##number_row, Rule::rule>);        \
  NATIVE(in_place, binary_<HY_OP_##row, HY_OP_##number_row, Rule::rule>)
#define COMPARE(op)                                                                           \
  BINARY(op##_Tensor, op##_Tensor_out, op##__Tensor, op, op##_scalar, kBool);                 \
  NATIVE(op##_Scalar, number<HY_OP_##op, HY_OP_##op##_scalar, Rule::kBool>);                  \
  NATIVE(op##_Scalar_out, number_out<HY_OP_##op, HY_OP_##op##_scalar, Rule::kBool>);          \
  NATIVE(op##__Scalar, number_<HY_OP_##op, HY_OP_##op##_scalar, Rule::kBool>)
  COMPARE(eq); COMPARE(ne); COMPARE(lt); COMPARE(le); COMPARE(gt); COMPARE(ge);
#undef COMPARE
#define BITWISE(op, row) BINARY(op##_Tensor, op##_Tensor_out, op##__Tensor, row, NONE, kSame)
  BITWISE(bitwise_and, bitwise_and);         BITWISE(bitwise_or, bitwise_or);
  BITWISE(bitwise_xor, bitwise_xor);         BITWISE(bitwise_left_shift, shift_left);
  BITWISE(bitwise_right_shift, shift_right);
#undef BITWISE
  BINARY(logical_and, logical_and_out, logical_and_, logical_and, NONE, kBool);
  BINARY(logical_or, logical_or_out, logical_or_, logical_or, NONE, kBool);
  BINARY(logical_xor, logical_xor_out, logical_xor_, logical_xor, NONE, kBool);
  BINARY(mul_Tensor, mul_out, mul__Tensor, mul, mul_scalar, kSame);
#undef BINARY
  NATIVE(maximum, binary<HY_OP_maximum, HY_OP_NONE, Rule::kSame>);
  NATIVE(maximum_out, binary_out<HY_OP_maximum, HY_OP_NONE, Rule::kSame>);
  NATIVE(minimum, binary<HY_OP_minimum, HY_OP_NONE, Rule::kSame>);
  NATIVE(minimum_out, binary_out<HY_OP_minimum, HY_OP_NONE, Rule::kSame>);
  NATIVE(add_Tensor, sum<HY_OP_add>);
  NATIVE(add_out, sum_out<HY_OP_add>);
  NATIVE(add__Tensor, sum_<HY_OP_add>);
  NATIVE(sub_Tensor, sum<HY_OP_sub>);
  NATIVE(sub_out, sum_out<HY_OP_sub>);
  NATIVE(sub__Tensor, sum_<HY_OP_sub>);
  NATIVE(div_Tensor, div);
  NATIVE(div_out, div_out);
  NATIVE(div__Tensor, div_);
  NATIVE(div_Tensor_mode, div_mode);
  NATIVE(div_out_mode, div_mode_out);
  NATIVE(div__Tensor_mode, div_mode_);
  NATIVE(floor_divide, floor_divide);
  NATIVE(floor_divide_out, floor_divide_out);
  NATIVE(floor_divide__Tensor, floor_divide_);
  NATIVE(remainder_Tensor_out, remainder_out);
  NATIVE(isposinf_out, isposinf_out);
  NATIVE(isneginf_out, isneginf_out);
  NATIVE(pow_Tensor_Scalar, pow_number);
  NATIVE(pow_Tensor_Scalar_out, pow_number_out);
  NATIVE(pow__Scalar, pow_number_);
  NATIVE(pow_Scalar, number_pow);
  NATIVE(pow_Scalar_out, number_pow_out);

  NATIVE(sigmoid_backward, backward<HY_OP_sigmoid_backward>);
  NATIVE(sigmoid_backward_grad_input, backward_out<HY_OP_sigmoid_backward>);
  NATIVE(tanh_backward, backward<HY_OP_tanh_backward>);
  NATIVE(tanh_backward_grad_input, backward_out<HY_OP_tanh_backward>);
  NATIVE(silu_backward, backward<HY_OP_silu_backward>);
  NATIVE(silu_backward_grad_input, backward_out<HY_OP_silu_backward>);
  NATIVE(gelu_backward, gelu_backward);
  NATIVE(gelu_backward_grad_input, gelu_backward_out);
  NATIVE(threshold_backward, threshold_backward);
  NATIVE(threshold_backward_grad_input, threshold_backward_out);

  NATIVE(where_self, where);
  NATIVE(where_self_out, where_out);
  NATIVE(masked_fill__Scalar, masked_fill_);
  NATIVE(masked_fill__Tensor, masked_fill_tensor_);
  NATIVE(addcmul, addc<HY_OP_addcmul>);
  NATIVE(addcmul_out, addc_to<HY_OP_addcmul>);
  NATIVE(addcmul_, addc_<HY_OP_addcmul>);
  NATIVE(addcdiv, addc<HY_OP_addcdiv>);
  NATIVE(addcdiv_out, addc_to<HY_OP_addcdiv>);
  NATIVE(addcdiv_, addc_<HY_OP_addcdiv>);
  NATIVE(clamp, clamp_to);
  NATIVE(clamp_out, clamp_out);
  NATIVE(clamp_, clamp_);
  NATIVE_WITH_OUT(clamp_min, clamp_min_out, clamp_min);
  NATIVE(clamp_min_, clamp_min_);
  NATIVE_WITH_OUT(clamp_max, clamp_max_out, clamp_max);
  NATIVE(clamp_max_, clamp_max_);
  NATIVE_WITH_OUT(clamp_Tensor, clamp_Tensor_out, clamp_tensor);
  NATIVE_WITH_OUT(tril, tril_out, tril);
  NATIVE_WITH_OUT(triu, triu_out, triu);
  NATIVE(lerp_Scalar, lerp);
  NATIVE(lerp_Scalar_out, lerp_out);
  NATIVE(lerp__Scalar, lerp_);

  NATIVE(fill__Scalar, fill_number_);
  NATIVE(fill__Tensor, fill_tensor_);
  NATIVE(zero_, zero_);
  NATIVE(arange_start_out, arange_out);
}
// clang-format on

}  // namespace
}  // namespace halyard_torch
