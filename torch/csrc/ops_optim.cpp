// Fused optimizers and gradient scaling.
#include "native.h"

namespace halyard_torch {
namespace {

using at::TensorList;
using std::optional;

void check_plain(const optional<Tensor>& scale, const optional<Tensor>& found_inf) {
  if ((scale && scale->defined()) || (found_inf && found_inf->defined()))
    decline("gradients that are still scaled");
}

void adamw_(TensorList params, TensorList grads, TensorList m, TensorList v, TensorList,
            TensorList steps, double lr, double beta1, double beta2, double decay, double eps,
            bool amsgrad, bool maximize, const optional<Tensor>& scale,
            const optional<Tensor>& found_inf) {
  if (amsgrad) decline("amsgrad");
  check_plain(scale, found_inf);
  for (size_t i = 0; i < params.size(); i++) {
    Call call(HY_OP_adamw, params[i].device());
    call.in(params[i]).in(m[i]).in(v[i]).in(grads[i]).out(params[i]).out(m[i]).out(v[i]);
    call.attrs().adamw = {
        lr, beta1, beta2, eps, decay, static_cast<int64_t>(steps[i].item<double>()), maximize};
    call.run();
  }
}
void adamw_tensor_lr_(TensorList params, TensorList grads, TensorList m, TensorList v,
                      TensorList top, TensorList steps, const Tensor& lr, double beta1,
                      double beta2, double decay, double eps, bool amsgrad, bool maximize,
                      const optional<Tensor>& scale, const optional<Tensor>& found_inf) {
  adamw_(params, grads, m, v, top, steps, lr.item<double>(), beta1, beta2, decay, eps, amsgrad,
         maximize, scale, found_inf);
}

// Adam without weight decay is AdamW without it.
void adam_(TensorList params, TensorList grads, TensorList m, TensorList v, TensorList top,
           TensorList steps, double lr, double beta1, double beta2, double decay, double eps,
           bool amsgrad, bool maximize, const optional<Tensor>& scale,
           const optional<Tensor>& found_inf) {
  if (decay != 0) decline("a decay added to the gradient");
  adamw_(params, grads, m, v, top, steps, lr, beta1, beta2, 0, eps, amsgrad, maximize, scale,
         found_inf);
}

void sgd_(TensorList params, TensorList grads, TensorList velocity, double decay, double momentum,
          double lr, double dampening, bool nesterov, bool maximize, bool first,
          const optional<Tensor>& scale, const optional<Tensor>& found_inf) {
  check_plain(scale, found_inf);
  for (size_t i = 0; i < params.size(); i++) {
    Tensor state = momentum != 0 ? velocity[i] : Tensor();
    Call call(HY_OP_sgd, params[i].device());
    call.in(params[i]).in(state).in(grads[i]).out(params[i]).out(state);
    call.attrs().sgd = {lr, momentum, dampening, decay, nesterov, first, maximize};
    call.run();
  }
}

void unscale_(TensorList grads, Tensor& found_inf, const Tensor& inverse) {
  for (const Tensor& grad : grads) {
    Tensor bad = at::logical_not(at::isfinite(grad)).any();
    found_inf.copy_(at::maximum(found_inf, bad.to(found_inf.scalar_type()).expand_as(found_inf)));
    const_cast<Tensor&>(grad).mul_(inverse.to(grad.scalar_type()));
  }
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  NATIVE(_fused_adamw_, adamw_);
  NATIVE(_fused_adamw__tensor_lr, adamw_tensor_lr_);
  NATIVE(_fused_adam_, adam_);
  NATIVE(_fused_sgd_, sgd_);
  NATIVE(_amp_foreach_non_finite_check_and_unscale_, unscale_);
}

}  // namespace
}  // namespace halyard_torch
