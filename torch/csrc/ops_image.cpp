// Convolution and pooling. One dimension is two of which the first has size 1; a transposed
// convolution is the gradient of a convolution, and its gradient is a convolution.
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>

#include "native.h"

namespace halyard_torch {
namespace {

using at::IntArrayRef;
using std::optional;

hy_pair pair_of(IntArrayRef list, int64_t otherwise = 0) {
  if (list.empty()) return {otherwise, otherwise};
  if (list.size() == 1) return {list[0], list[0]};
  return {list[0], list[1]};
}

struct Geometry {
  hy_attrs_conv attrs;
  bool vector;  // of one spatial dimension

  Geometry(const Tensor& x, const Tensor& weight, IntArrayRef stride, IntArrayRef padding,
           IntArrayRef dilation, int64_t groups)
      : vector(weight.dim() == 3) {
    if (weight.dim() < 3 || weight.dim() > 4 || x.dim() != weight.dim() || x.numel() == 0)
      decline("a convolution of this rank");
    attrs = {pair(stride, 1), pair(padding, 0), pair(dilation, 1), groups};
  }
  Tensor image(const Tensor& t) const { return vector && t.defined() ? t.unsqueeze(2) : t; }
  Tensor back(const Tensor& t) const { return vector && t.defined() ? t.squeeze(2) : t; }

 private:
  hy_pair pair(IntArrayRef list, int64_t one) const {
    return vector ? hy_pair{one, list[0]} : pair_of(list);
  }
};

void check_one_type(const Tensor& a, const Tensor& b) {
  if (a.scalar_type() != b.scalar_type()) decline("mixed types");
}

Tensor convolve(const Tensor& x, const Tensor& weight, const Tensor& bias, const Geometry& g) {
  Call call(HY_OP_conv2d, x.device());
  call.in(g.image(x)).in(g.image(weight)).in(bias);
  call.attrs().conv = g.attrs;
  Tensor out = call.make();
  if (out.numel() > 0) call.run();
  return g.back(out);
}

// dx, dweight and dbias; `like` gives x its shape where only dx is wanted.
void convolve_backward(const Tensor& dy, const Tensor& x, const Tensor& weight, const Geometry& g,
                       std::array<bool, 3> wanted, Tensor grads[3]) {
  Call call(HY_OP_conv2d_backward, dy.device());
  call.in(g.image(dy)).in(g.image(x)).in(g.image(weight));
  call.attrs().conv = g.attrs;
  Tensor made[3];
  for (int i = 0; i < 3; i++)
    if (wanted[i])
      made[i] = call.make();
    else
      call.out(made[i]);
  call.run();
  grads[0] = g.back(made[0]);
  grads[1] = g.back(made[1]);
  grads[2] = made[2];
}

Tensor run_convolution(const Tensor& x, const Tensor& weight, const optional<Tensor>& bias,
                       IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation,
                       bool transposed, IntArrayRef output_padding, int64_t groups) {
  check_one_type(x, weight);
  Geometry g(x, weight, stride, padding, dilation, groups);
  Tensor added = bias && bias->defined() ? *bias : Tensor();
  if (!transposed) return convolve(x, weight, added, g);
  std::vector<int64_t> shape{x.size(0), weight.size(1) * groups};
  for (int64_t d = 2; d < x.dim(); d++) {
    auto i = static_cast<size_t>(d - 2);
    shape.push_back((x.size(d) - 1) * stride[i] - 2 * padding[i] +
                    dilation[i] * (weight.size(d) - 1) + output_padding[i] + 1);
  }
  Tensor like = make_tensor(shape, x.scalar_type(), x.device()), grads[3];
  convolve_backward(x, like, weight, g, {true, false, false}, grads);
  if (!added.defined()) return grads[0];
  std::vector<int64_t> channel(static_cast<size_t>(x.dim()), 1);
  channel[1] = added.numel();
  return grads[0].add_(added.view(channel));
}

std::tuple<Tensor, Tensor, Tensor> run_convolution_backward(const Tensor& dy, const Tensor& x,
                                                            const Tensor& weight,
                                                            IntArrayRef stride, IntArrayRef padding,
                                                            IntArrayRef dilation, bool transposed,
                                                            IntArrayRef, int64_t groups,
                                                            std::array<bool, 3> wanted) {
  check_one_type(x, weight);
  check_one_type(x, dy);
  Geometry g(x, weight, stride, padding, dilation, groups);
  if (dy.numel() == 0) decline("a gradient of nothing");
  Tensor grads[3];
  if (!transposed) {
    convolve_backward(dy, x, weight, g, wanted, grads);
    return {grads[0], grads[1], grads[2]};
  }
  // y = backward(x) of the convolution w: so dx = w * dy, and dw is what w's gradient is with dy as
  // its input.
  if (wanted[0]) grads[0] = convolve(dy, weight, Tensor(), g);
  if (wanted[1]) {
    Tensor swapped[3];
    convolve_backward(x, dy, weight, g, {false, true, false}, swapped);
    grads[1] = swapped[1];
  }
  if (wanted[2]) {
    std::vector<int64_t> dims{0};
    for (int64_t d = 2; d < dy.dim(); d++) dims.push_back(d);
    grads[2] = dy.sum(dims);
  }
  return {grads[0], grads[1], grads[2]};
}

// PyTorch's CPU has no convolution_overrideable: what is declined goes to its convolution.
Tensor convolution_anywhere(const Tensor& x, const Tensor& weight, const optional<Tensor>& bias,
                            IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation,
                            bool transposed, IntArrayRef output_padding, int64_t groups) {
  try {
    return run_convolution(x, weight, bias, stride, padding, dilation, transposed, output_padding,
                           groups);
  } catch (const Declined& declined) {
    FallbackReason reason(declined.reason);
    note_fallback("aten::convolution", x.get_device());
    optional<Tensor> host_bias;
    if (bias && bias->defined()) host_bias = bias->cpu();
    return at::convolution(x.cpu(), weight.cpu(), host_bias, stride, padding, dilation, transposed,
                           output_padding, groups)
        .to(x.device());
  }
}
std::tuple<Tensor, Tensor, Tensor> convolution_backward_anywhere(
    const Tensor& dy, const Tensor& x, const Tensor& weight, IntArrayRef stride,
    IntArrayRef padding, IntArrayRef dilation, bool transposed, IntArrayRef output_padding,
    int64_t groups, std::array<bool, 3> wanted) {
  try {
    return run_convolution_backward(dy, x, weight, stride, padding, dilation, transposed,
                                    output_padding, groups, wanted);
  } catch (const Declined& declined) {
    FallbackReason reason(declined.reason);
    note_fallback("aten::convolution_backward", x.get_device());
    int64_t channels = transposed ? weight.size(1) * groups : weight.size(0);
    auto [dx, dw, db] =
        at::convolution_backward(dy.cpu(), x.cpu(), weight.cpu(), IntArrayRef(channels), stride,
                                 padding, dilation, transposed, output_padding, groups, wanted);
    auto there = [&](const Tensor& t) { return t.defined() ? t.to(x.device()) : t; };
    return {there(dx), there(dw), there(db)};
  }
}

// ---- pooling, of [N, C, H, W] or [C, H, W] ----

hy_attrs_max_pool max_pool_attrs(IntArrayRef kernel, IntArrayRef stride, IntArrayRef padding,
                                 IntArrayRef dilation, bool ceil) {
  hy_pair size = pair_of(kernel);
  return {size, stride.empty() ? size : pair_of(stride), pair_of(padding), pair_of(dilation, 1),
          ceil};
}
Tensor batched(const Tensor& t) {
  return t.dim() == 3 ? t.unsqueeze(0) : t;
}
Tensor unbatched(const Tensor& t, const Tensor& like) {
  return like.dim() == 3 ? t.squeeze(0) : t;
}

std::tuple<Tensor, Tensor> max_pool2d(const Tensor& x, IntArrayRef kernel, IntArrayRef stride,
                                      IntArrayRef padding, IntArrayRef dilation, bool ceil) {
  if (x.numel() == 0) decline("nothing to pool");
  Call call(HY_OP_max_pool2d, x.device());
  call.in(batched(x));
  call.attrs().max_pool = max_pool_attrs(kernel, stride, padding, dilation, ceil);
  Tensor out = call.make(), index = call.make();
  call.run();
  return {unbatched(out, x), unbatched(index, x)};
}
Tensor max_pool2d_backward(const Tensor& dy, const Tensor& x, IntArrayRef kernel,
                           IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation, bool ceil,
                           const Tensor& index) {
  if (x.numel() == 0) decline("nothing to pool");
  Call call(HY_OP_max_pool2d_backward, x.device());
  call.in(batched(dy)).in(batched(index)).in(batched(x));
  call.attrs().max_pool = max_pool_attrs(kernel, stride, padding, dilation, ceil);
  Tensor out = call.make();
  call.run();
  return unbatched(out, x);
}

hy_attrs_avg_pool avg_pool_attrs(IntArrayRef kernel, IntArrayRef stride, IntArrayRef padding,
                                 bool ceil, bool count, optional<int64_t> divisor) {
  hy_pair size = pair_of(kernel);
  if (divisor && *divisor == 0) decline("a divisor of 0");
  return {size,
          stride.empty() ? size : pair_of(stride),
          pair_of(padding),
          ceil,
          count,
          divisor.value_or(0)};
}
Tensor avg_pool2d(const Tensor& x, IntArrayRef kernel, IntArrayRef stride, IntArrayRef padding,
                  bool ceil, bool count, optional<int64_t> divisor) {
  if (x.numel() == 0) decline("nothing to pool");
  Call call(HY_OP_avg_pool2d, x.device());
  call.in(batched(x));
  call.attrs().avg_pool = avg_pool_attrs(kernel, stride, padding, ceil, count, divisor);
  Tensor out = call.make();
  call.run();
  return unbatched(out, x);
}
Tensor avg_pool2d_backward(const Tensor& dy, const Tensor& x, IntArrayRef kernel,
                           IntArrayRef stride, IntArrayRef padding, bool ceil, bool count,
                           optional<int64_t> divisor) {
  if (x.numel() == 0) decline("nothing to pool");
  Call call(HY_OP_avg_pool2d_backward, x.device());
  call.in(batched(dy)).in(batched(x));
  call.attrs().avg_pool = avg_pool_attrs(kernel, stride, padding, ceil, count, divisor);
  Tensor out = call.make();
  call.run();
  return unbatched(out, x);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("convolution_overrideable", TORCH_FN(convolution_anywhere));
  m.impl("convolution_backward_overrideable", TORCH_FN(convolution_backward_anywhere));
  NATIVE_WITH_OUT(max_pool2d_with_indices, max_pool2d_with_indices_out, max_pool2d);
  NATIVE_WITH_OUT(max_pool2d_with_indices_backward, max_pool2d_with_indices_backward_grad_input,
                  max_pool2d_backward);
  NATIVE_WITH_OUT(avg_pool2d, avg_pool2d_out, avg_pool2d);
  NATIVE_WITH_OUT(avg_pool2d_backward, avg_pool2d_backward_grad_input, avg_pool2d_backward);
}

}  // namespace
}  // namespace halyard_torch
