// Softmax, losses and normalisations, with their gradients.
#include "native.h"

namespace halyard_torch {
namespace {

using at::IntArrayRef;
using std::optional;

// ---- softmax ----

template <hy_op op>
Tensor softmax(const Tensor& x, int64_t dim, bool half_to_float) {
  Call call(op, x.device());
  call.in(half_to_float ? cast(x, at::kFloat) : x);
  call.attrs().dim.dim = dim;
  Tensor out = call.make();
  if (out.numel() > 0) call.run();
  return out;
}
template <hy_op op>
Tensor softmax_backward(const Tensor& dy, const Tensor& y, int64_t dim, ScalarType type) {
  Call call(op, y.device());
  call.in(dy).in(y);
  call.attrs().dim.dim = dim;
  Tensor out = call.make();
  if (out.numel() > 0) call.run();
  return cast(out, type);
}

// ---- losses, composed of ops of the table ----

// Class scores [N, C] or [C], and which of the targets count.
struct Picked {
  Tensor index, counts, weight;
};
Picked picked(const Tensor& x, const Tensor& target, const optional<Tensor>& weight,
              int64_t ignore) {
  if (x.dim() < 1 || x.dim() > 2 || target.dim() != x.dim() - 1 ||
      target.scalar_type() != at::kLong || target.numel() == 0)
    decline("a loss of this shape");
  Picked p;
  p.counts = at::ne(target, ignore);
  p.index = at::mul(target, p.counts);
  Tensor ones = weight && weight->defined()
                    ? weight->index_select(0, p.index.reshape({-1})).view(target.sizes())
                    : at::ones({}, x.options()).expand(target.sizes());
  p.weight = at::mul(ones, p.counts);
  return p;
}
std::tuple<Tensor, Tensor> nll_loss(const Tensor& x, const Tensor& target,
                                    const optional<Tensor>& weight, int64_t reduction,
                                    int64_t ignore) {
  auto p = picked(x, target, weight, ignore);
  int64_t dim = x.dim() - 1;
  Tensor loss = at::gather(x, dim, p.index.unsqueeze(dim)).squeeze(dim);
  loss = at::where(p.counts, at::neg(at::mul(loss, p.weight)), at::zeros({}, loss.options()));
  Tensor total = p.weight.sum();
  if (reduction == at::Reduction::None) return {loss, at::zeros({}, x.options())};
  if (reduction == at::Reduction::Sum) return {loss.sum(), total};
  return {at::div(loss.sum(), total), total};
}
Tensor nll_loss_backward(const Tensor& dy, const Tensor& x, const Tensor& target,
                         const optional<Tensor>& weight, int64_t reduction, int64_t ignore,
                         const Tensor& total) {
  auto p = picked(x, target, weight, ignore);
  Tensor g = at::neg(at::mul(p.weight, dy));
  if (reduction == at::Reduction::Mean) g = at::div(g, total);
  int64_t dim = x.dim() - 1;
  Tensor out = at::zeros(x.sizes(), x.options());
  out.scatter_(dim, p.index.unsqueeze(dim), g.unsqueeze(dim));
  return out;
}
Tensor mse_loss(const Tensor& x, const Tensor& target, int64_t reduction) {
  Tensor d = at::sub(x, target);
  d = at::mul(d, d);
  return reduction == at::Reduction::None   ? d
         : reduction == at::Reduction::Mean ? d.mean()
                                            : d.sum();
}
Tensor mse_loss_backward(const Tensor& dy, const Tensor& x, const Tensor& target,
                         int64_t reduction) {
  double scale = reduction == at::Reduction::Mean ? 2.0 / static_cast<double>(x.numel()) : 2.0;
  return at::mul(at::mul(at::sub(x, target), scale), dy);
}

// ---- layer norm and RMS norm ----

void check_normalized(const Tensor& x, IntArrayRef shape) {
  auto n = static_cast<int64_t>(shape.size());
  if (n < 1 || n > x.dim() || x.sizes().slice(x.dim() - n) != shape)
    decline("a shape that is not the input's end");
}
std::tuple<Tensor, Tensor, Tensor> layer_norm(const Tensor& x, IntArrayRef shape,
                                              const optional<Tensor>& weight,
                                              const optional<Tensor>& bias, double eps) {
  check_normalized(x, shape);
  Call call(HY_OP_layer_norm, x.device());
  call.in(x).in(weight).in(bias);
  call.attrs().norm.norm_dims = static_cast<int64_t>(shape.size());
  call.attrs().norm.eps = eps;
  Tensor out = call.make(), mean = call.make(), rstd = call.make();
  if (out.numel() > 0) call.run();
  return {out, mean, rstd};
}
std::tuple<Tensor, Tensor, Tensor> layer_norm_backward(
    const Tensor& dy, const Tensor& x, IntArrayRef shape, const Tensor& mean, const Tensor& rstd,
    const optional<Tensor>& weight, const optional<Tensor>&, std::array<bool, 3> wanted) {
  if (x.numel() == 0) decline("nothing to normalise");
  Call call(HY_OP_layer_norm_backward, x.device());
  call.in(dy).in(x).in(mean).in(rstd).in(weight);
  call.attrs().norm.norm_dims = static_cast<int64_t>(shape.size());
  call.attrs().norm.eps = 0;
  Tensor grads[3];
  for (int i = 0; i < 3; i++)
    if (wanted[i])
      grads[i] = call.make();
    else
      call.out(grads[i]);
  call.run();
  return {grads[0], grads[1], grads[2]};
}
std::tuple<Tensor, Tensor> rms_norm(const Tensor& x, IntArrayRef shape,
                                    const optional<Tensor>& weight, optional<double> eps) {
  check_normalized(x, shape);
  Call call(HY_OP_rms_norm, x.device());
  call.in(x).in(weight);
  double least = x.scalar_type() == at::kDouble ? std::numeric_limits<double>::epsilon()
                                                : std::numeric_limits<float>::epsilon();
  call.attrs().norm.norm_dims = static_cast<int64_t>(shape.size());
  call.attrs().norm.eps = eps.value_or(least);
  Tensor out = call.make(), rstd = call.make();
  if (out.numel() > 0) call.run();
  return {out, rstd};
}
std::tuple<Tensor, Tensor> rms_norm_backward(const Tensor& dy, const Tensor& x, IntArrayRef shape,
                                             const Tensor& rstd, const optional<Tensor>& weight,
                                             std::array<bool, 2> wanted) {
  if (x.numel() == 0)
    return {at::zeros_like(x), weight && weight->defined() ? at::zeros_like(*weight) : Tensor()};
  Call call(HY_OP_rms_norm_backward, x.device());
  call.in(dy).in(x).in(rstd).in(weight);
  call.attrs().norm.norm_dims = static_cast<int64_t>(shape.size());
  call.attrs().norm.eps = 0;
  Tensor grads[2];
  for (int i = 0; i < 2; i++)
    if (wanted[i])
      grads[i] = call.make();
    else
      call.out(grads[i]);
  call.run();
  return {grads[0], grads[1]};
}

// ---- batch norm ----

std::tuple<Tensor, Tensor, Tensor> batch_norm(const Tensor& x, const optional<Tensor>& weight,
                                              const optional<Tensor>& bias,
                                              const optional<Tensor>& mean,
                                              const optional<Tensor>& variance, bool training,
                                              double momentum, double eps) {
  if (x.numel() == 0) decline("nothing to normalise");
  Call call(HY_OP_batch_norm, x.device());
  call.in(x).in(weight).in(bias);
  bool tracked = mean && mean->defined();
  call.in(training ? Tensor() : *mean).in(training ? Tensor() : *variance);
  call.attrs().batch_norm = {training, momentum, eps};
  Tensor out = call.make();
  Tensor saved_mean, saved_rstd;
  if (training) {
    saved_mean = call.make();
    saved_rstd = call.make();
  } else {
    call.out(saved_mean).out(saved_rstd);
  }
  call.run();
  if (!training) {
    ScalarType type = x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    return {out, make_tensor({0}, type, x.device()), make_tensor({0}, type, x.device())};
  }
  if (tracked) {
    Call update(HY_OP_batch_norm_update, x.device());
    update.in(*mean).in(*variance).in(x).out(*mean).out(*variance);
    update.attrs().batch_norm = {training, momentum, eps};
    update.run();
  }
  return {out, saved_mean, saved_rstd};
}
std::tuple<Tensor, Tensor, Tensor> batch_norm_legit(const Tensor& x, const optional<Tensor>& weight,
                                                    const optional<Tensor>& bias, Tensor& mean,
                                                    Tensor& variance, bool training,
                                                    double momentum, double eps) {
  return batch_norm(x, weight, bias, mean, variance, training, momentum, eps);
}
std::tuple<Tensor, Tensor, Tensor> batch_norm_no_stats(const Tensor& x,
                                                       const optional<Tensor>& weight,
                                                       const optional<Tensor>& bias, bool training,
                                                       double momentum, double eps) {
  return batch_norm(x, weight, bias, {}, {}, training, momentum, eps);
}
std::tuple<Tensor, Tensor, Tensor> batch_norm_backward(
    const Tensor& dy, const Tensor& x, const optional<Tensor>& weight, const optional<Tensor>& mean,
    const optional<Tensor>& variance, const optional<Tensor>& saved_mean,
    const optional<Tensor>& saved_rstd, bool training, double eps, std::array<bool, 3> wanted) {
  if (x.numel() == 0) decline("nothing to normalise");
  ScalarType type = x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  Call call(HY_OP_batch_norm_backward, x.device());
  call.in(dy).in(x);
  if (training)
    call.in(saved_mean).in(saved_rstd);
  else
    call.in(cast(*mean, type)).in(at::rsqrt(at::add(cast(*variance, type), eps)));
  call.in(weight);
  call.attrs().batch_norm = {training, 0, eps};
  Tensor grads[3];
  for (int i = 0; i < 3; i++)
    if (wanted[i])
      grads[i] = call.make();
    else
      call.out(grads[i]);
  call.run();
  return {grads[0], grads[1], grads[2]};
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  NATIVE_WITH_OUT(_softmax, _softmax_out, softmax<HY_OP_softmax>);
  NATIVE_WITH_OUT(_log_softmax, _log_softmax_out, softmax<HY_OP_log_softmax>);
  NATIVE_WITH_OUT(_softmax_backward_data, _softmax_backward_data_out,
                  softmax_backward<HY_OP_softmax_backward>);
  NATIVE_WITH_OUT(_log_softmax_backward_data, _log_softmax_backward_data_out,
                  softmax_backward<HY_OP_log_softmax_backward>);
  NATIVE_WITH_OUT(nll_loss_forward, nll_loss_forward_output, nll_loss);
  NATIVE_WITH_OUT(nll_loss_backward, nll_loss_backward_grad_input, nll_loss_backward);
  NATIVE_WITH_OUT(mse_loss, mse_loss_out, mse_loss);
  NATIVE_WITH_OUT(mse_loss_backward, mse_loss_backward_grad_input, mse_loss_backward);
  NATIVE(native_layer_norm, layer_norm);
  NATIVE(native_layer_norm_backward, layer_norm_backward);
  NATIVE(_fused_rms_norm, rms_norm);
  NATIVE(_fused_rms_norm_backward, rms_norm_backward);
  NATIVE(native_batch_norm, batch_norm);
  NATIVE(_native_batch_norm_legit, batch_norm_legit);
  NATIVE(_native_batch_norm_legit_no_stats, batch_norm_no_stats);
  NATIVE(native_batch_norm_backward, batch_norm_backward);
}

}  // namespace
}  // namespace halyard_torch
