// Reductions, scans and sorts.
#include <ATen/WrapDimUtils.h>

#include "native.h"

namespace halyard_torch {
namespace {

using at::IntArrayRef;
using at::OptionalIntArrayRef;

Tensor reduced(hy_op op, const Tensor& x, const hy_dims& dims, bool keepdim) {
  Call call(op, x.device());
  call.in(x);
  call.attrs().reduce.dims = dims;
  call.attrs().reduce.keepdim = keepdim;
  Tensor out = call.make();
  if (out.numel() > 0) call.run();
  return out;
}

// Summed in the type asked for; integers in i64 where none is.
ScalarType sum_type(const Tensor& x, std::optional<ScalarType> type) {
  if (type) return *type;
  return at::isIntegralType(x.scalar_type(), true) ? at::kLong : x.scalar_type();
}

Tensor accumulated(hy_op op, const Tensor& x, const hy_dims& dims, bool keepdim,
                   std::optional<ScalarType> type) {
  ScalarType wanted = sum_type(x, type);
  bool wide = at::isIntegralType(wanted, true)
                  ? at::isIntegralType(x.scalar_type(), true) && wanted == at::kLong
                  : false;
  Tensor out = reduced(op, wide ? x : cast(x, wanted), dims, keepdim);
  return cast(out, wanted);
}
Tensor sum(const Tensor& x, OptionalIntArrayRef dims, bool keepdim,
           std::optional<ScalarType> type) {
  return accumulated(HY_OP_sum, x, dims_of(dims), keepdim, type);
}
Tensor mean(const Tensor& x, OptionalIntArrayRef dims, bool keepdim,
            std::optional<ScalarType> type) {
  ScalarType wanted = type.value_or(x.scalar_type());
  if (!at::isFloatingType(wanted)) decline("a mean of integers");
  return reduced(HY_OP_mean, cast(x, wanted), dims_of(dims), keepdim);
}
Tensor prod(const Tensor& x, std::optional<ScalarType> type) {
  return accumulated(HY_OP_prod, x, hy_all_dims(), false, type);
}
Tensor prod_dim(const Tensor& x, int64_t dim, bool keepdim, std::optional<ScalarType> type) {
  return accumulated(HY_OP_prod, x, hy_one_dim(dim), keepdim, type);
}
template <hy_op op>
Tensor over_dims(const Tensor& x, IntArrayRef dims, bool keepdim) {
  return reduced(op, x, dims_of(dims), keepdim);
}
template <hy_op op>
Tensor over_some_dims(const Tensor& x, OptionalIntArrayRef dims, bool keepdim) {
  if (dims.has_value() && dims->empty()) decline("a list of no dimensions");
  return reduced(op, x, dims_of(dims), keepdim);
}
template <hy_op op>
Tensor over_all(const Tensor& x) {
  return reduced(op, x, hy_all_dims(), false);
}
template <hy_op op>
Tensor over_dim(const Tensor& x, int64_t dim, bool keepdim) {
  return reduced(op, x, hy_one_dim(dim), keepdim);
}
template <hy_op op>
Tensor arg(const Tensor& x, std::optional<int64_t> dim, bool keepdim) {
  return reduced(op, x, dim ? hy_one_dim(*dim) : hy_all_dims(), keepdim);
}
template <hy_op op>
std::tuple<Tensor, Tensor> with_index(const Tensor& x, int64_t dim, bool keepdim) {
  Call call(op, x.device());
  call.in(x);
  call.attrs().reduce.dims = hy_one_dim(dim);
  call.attrs().reduce.keepdim = keepdim;
  Tensor out = call.make(), index = call.make();
  if (out.numel() > 0) call.run();
  return {out, index};
}

Tensor var(const Tensor& x, OptionalIntArrayRef dims, const std::optional<Scalar>& correction,
           bool keepdim) {
  Call call(HY_OP_var, x.device());
  call.in(x);
  call.attrs().var.dims = dims_of(dims);
  call.attrs().var.keepdim = keepdim;
  call.attrs().var.correction = correction ? correction->toDouble() : 1;
  Tensor out = call.make();
  if (out.numel() > 0) call.run();
  return out;
}
Tensor std(const Tensor& x, OptionalIntArrayRef dims, const std::optional<Scalar>& correction,
           bool keepdim) {
  return at::var(x, dims, correction, keepdim).sqrt_();
}
std::tuple<Tensor, Tensor> var_mean(const Tensor& x, OptionalIntArrayRef dims,
                                    const std::optional<Scalar>& correction, bool keepdim) {
  Tensor v = at::var(x, dims, correction, keepdim);
  return {v, at::mean(x, dims, keepdim)};
}
std::tuple<Tensor, Tensor> std_mean(const Tensor& x, OptionalIntArrayRef dims,
                                    const std::optional<Scalar>& correction, bool keepdim) {
  auto [v, m] = at::var_mean(x, dims, correction, keepdim);
  return {v.sqrt_(), m};
}

// The norms that training asks for: 2, 1 and infinity.
Tensor vector_norm(const Tensor& x, const Scalar& order, OptionalIntArrayRef dims, bool keepdim,
                   std::optional<ScalarType> type) {
  Tensor v = cast(x, type.value_or(x.scalar_type()));
  if (!at::isFloatingType(v.scalar_type())) decline("a norm of integers");
  double p = order.toDouble();
  // Squares of half types leave their range.
  bool half = v.scalar_type() == at::kHalf || v.scalar_type() == at::kBFloat16;
  Tensor wide = half ? cast(v, at::kFloat) : v;
  Tensor out;
  if (p == 2)
    out = reduced(HY_OP_sum, at::mul(wide, wide), dims_of(dims), keepdim).sqrt_();
  else if (p == 1)
    out = reduced(HY_OP_sum, at::abs(wide), dims_of(dims), keepdim);
  else if (std::isinf(p) && x.numel() > 0)
    out = reduced(p > 0 ? HY_OP_max : HY_OP_min, at::abs(wide), dims_of(dims), keepdim);
  else
    decline("a norm of this order");
  return cast(out, v.scalar_type());
}

Tensor cumsum(const Tensor& x, int64_t dim, std::optional<ScalarType> type) {
  ScalarType wanted = sum_type(x, type);
  Call call(HY_OP_cumsum, x.device());
  call.in(cast(x, wanted));
  call.attrs().scan.dim = dim;
  call.attrs().scan.reverse = false;
  Tensor out = call.make();
  if (out.numel() > 0) call.run();
  return cast(out, wanted);
}

std::tuple<Tensor, Tensor> sort(const Tensor& x, std::optional<bool>, int64_t dim,
                                bool descending) {
  Call call(HY_OP_sort, x.device());
  call.in(x);
  call.attrs().sort.dim = dim;
  call.attrs().sort.descending = descending;
  Tensor out = call.make(), index = call.make();
  if (out.numel() > 0) call.run();
  return {out, index};
}
std::tuple<Tensor, Tensor> topk(const Tensor& x, int64_t k, int64_t dim, bool largest,
                                bool sorted) {
  Call call(HY_OP_topk, x.device());
  call.in(x);
  call.attrs().topk = {k, dim, largest, sorted};
  Tensor out = call.make(), index = call.make();
  if (out.numel() > 0) call.run();
  return {out, index};
}

bool equal(const Tensor& a, const Tensor& b) {
  if (a.sizes() != b.sizes()) return false;
  if (a.numel() == 0) return true;
  return at::eq(a, b).all().item<bool>();
}

Tensor isin(const Tensor& x, const Tensor& among, bool, bool invert) {
  if (x.numel() * among.numel() > (int64_t{1} << 24)) decline("a set of this size");
  if (among.device() != x.device()) decline("tensors of two devices");
  Tensor found = at::eq(x.unsqueeze(-1), among.reshape({-1})).any(-1);
  return invert ? found.logical_not() : found;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  NATIVE_WITH_OUT(sum_dim_IntList, sum_IntList_out, sum);
  NATIVE_WITH_OUT(mean_dim, mean_out, mean);
  NATIVE(prod, prod);
  NATIVE_WITH_OUT(prod_dim_int, prod_int_out, prod_dim);
  NATIVE_WITH_OUT(amax, amax_out, over_dims<HY_OP_max>);
  NATIVE_WITH_OUT(amin, amin_out, over_dims<HY_OP_min>);
  NATIVE(max, over_all<HY_OP_max>);
  NATIVE(min, over_all<HY_OP_min>);
  NATIVE_WITH_OUT(any, any_all_out, over_all<HY_OP_any>);
  NATIVE_WITH_OUT(all, all_all_out, over_all<HY_OP_all>);
  NATIVE_WITH_OUT(any_dim, any_out, over_dim<HY_OP_any>);
  NATIVE_WITH_OUT(all_dim, all_out, over_dim<HY_OP_all>);
  NATIVE_WITH_OUT(any_dims, any_dims_out, over_some_dims<HY_OP_any>);
  NATIVE_WITH_OUT(all_dims, all_dims_out, over_some_dims<HY_OP_all>);
  NATIVE_WITH_OUT(argmax, argmax_out, arg<HY_OP_argmax>);
  NATIVE_WITH_OUT(argmin, argmin_out, arg<HY_OP_argmin>);
  NATIVE_WITH_OUT(max_dim, max_dim_max, with_index<HY_OP_max_dim>);
  NATIVE_WITH_OUT(min_dim, min_dim_min, with_index<HY_OP_min_dim>);
  NATIVE_WITH_OUT(var_correction, var_correction_out, var);
  NATIVE_WITH_OUT(std_correction, std_correction_out, std);
  NATIVE(var_mean_correction, var_mean);
  NATIVE(std_mean_correction, std_mean);
  NATIVE_WITH_OUT(linalg_vector_norm, linalg_vector_norm_out, vector_norm);
  NATIVE_WITH_OUT(cumsum, cumsum_out, cumsum);
  NATIVE_WITH_OUT(sort_stable, sort_values_stable, sort);
  NATIVE_WITH_OUT(topk, topk_values, topk);
  NATIVE(equal, equal);
  NATIVE_WITH_OUT(isin_Tensor_Tensor, isin_Tensor_Tensor_out, isin);
}

}  // namespace
}  // namespace halyard_torch
