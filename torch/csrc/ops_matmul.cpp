// Matrix products and scaled dot product attention.
#include <ATen/SDPBackend.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/native/transformers/attention.h>

#include "native.h"

namespace halyard_torch {
namespace {

// A weight [N, K] seen as [K, N], as nn.Linear passes it.
bool is_transposed(const Tensor& b) {
  return b.stride(0) == 1 && b.stride(1) >= b.size(0) && b.size(0) > 1 && b.size(1) > 1;
}

void check_matrices(const Tensor& a, const Tensor& b, int64_t ndim) {
  if (a.dim() != ndim || b.dim() != ndim || a.scalar_type() != b.scalar_type())
    decline("shapes or types that do not fit");
}

void run_product(Call& call, const Tensor& out, const Tensor& a) {
  if (out.numel() == 0) return;
  if (a.numel() == 0) {
    out.zero_();
    return;
  }
  call.run();
}

Tensor mm(const Tensor& a, const Tensor& b) {
  check_matrices(a, b, 2);
  bool linear = is_transposed(b);
  Call call(linear ? HY_OP_linear : HY_OP_mm, a.device());
  call.in(a).in(linear ? b.t() : b);
  if (linear) call.in(Tensor());
  Tensor out = call.make();
  run_product(call, out, a);
  return out;
}

Tensor bmm(const Tensor& a, const Tensor& b) {
  check_matrices(a, b, 3);
  Call call(HY_OP_bmm, a.device());
  call.in(a).in(b);
  Tensor out = call.make();
  run_product(call, out, a);
  return out;
}

Tensor addmm(const Tensor& x, const Tensor& a, const Tensor& b, const Scalar& beta,
             const Scalar& alpha) {
  check_matrices(a, b, 2);
  if (a.numel() == 0) decline("a product of nothing");
  if (x.dim() == 1 && x.size(0) == b.size(1) && is_transposed(b) && beta.equal(1) &&
      alpha.equal(1)) {
    Call call(HY_OP_linear, a.device());
    call.in(a).in(b.t()).in(x);
    Tensor out = call.make();
    if (out.numel() > 0) call.run();
    return out;
  }
  Call call(HY_OP_addmm, a.device());
  call.in(x).in(a).in(b);
  call.attrs().addmm.beta = scalar_of(beta);
  call.attrs().addmm.alpha = scalar_of(alpha);
  Tensor out = call.make();
  if (out.numel() > 0) call.run();
  return out;
}

Tensor baddbmm(const Tensor& x, const Tensor& a, const Tensor& b, const Scalar& beta,
               const Scalar& alpha) {
  if (!at::isFloatingType(a.scalar_type()) || x.scalar_type() != a.scalar_type())
    decline("integers or mixed types");
  Tensor out = at::bmm(a, b);
  if (!alpha.equal(1)) out.mul_(alpha);
  if (beta.toDouble() != 0) out.add_(x, beta);
  return out;
}

Tensor addmv(const Tensor& x, const Tensor& a, const Tensor& v, const Scalar& beta,
             const Scalar& alpha) {
  if (a.dim() != 2 || v.dim() != 1) decline("shapes that do not fit");
  return at::addmm(x.dim() == 1 ? x.unsqueeze(1) : x, a, v.unsqueeze(1), beta, alpha).squeeze(1);
}

Tensor mv(const Tensor& a, const Tensor& v) {
  if (a.dim() != 2 || v.dim() != 1) decline("shapes that do not fit");
  return at::mm(a, v.unsqueeze(1)).squeeze(1);
}

Tensor dot(const Tensor& a, const Tensor& b) {
  if (a.dim() != 1 || b.dim() != 1 || a.numel() != b.numel()) decline("shapes that do not fit");
  return at::mm(a.unsqueeze(0), b.unsqueeze(1)).reshape({});
}

// ---- attention ----

// Also asked with symbolic shapes, while torch.compile traces.
bool fits_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                    const std::optional<Tensor>& mask, double dropout, bool gqa) {
  bool grad_of_mask = mask && mask->defined() && mask->requires_grad();
  if (dropout != 0 || grad_of_mask || q.dim() < 3 || q.dim() != k.dim() || q.dim() != v.dim() ||
      q.dim() >= HY_MAX_DIMS || q.scalar_type() != k.scalar_type() ||
      q.scalar_type() != v.scalar_type() || q.is_nested() || dtype_of(q.scalar_type()) == HY_NONE)
    return false;
  if (q.sym_numel() == 0 || k.sym_numel() == 0 || v.sym_numel() == 0) return false;
  for (int64_t d = 0; d < q.dim() - 3; d++)
    if (q.sym_size(d) != k.sym_size(d)) return false;
  return k.sym_size(-2) == v.sym_size(-2) && q.sym_size(-1) == k.sym_size(-1) &&
         k.sym_size(-3) == v.sym_size(-3) &&
         (gqa ? q.sym_size(-3) % k.sym_size(-3) == 0 : q.sym_size(-3) == k.sym_size(-3));
}

int64_t sdp_choice(const Tensor& q, const Tensor& k, const Tensor& v,
                   const std::optional<Tensor>& mask, double dropout, bool, std::optional<double>,
                   bool gqa) {
  return static_cast<int64_t>(fits_attention(q, k, v, mask, dropout, gqa)
                                  ? at::SDPBackend::overrideable
                                  : at::SDPBackend::math);
}

Tensor usable_mask(const std::optional<Tensor>& mask, const Tensor& q) {
  if (!mask || !mask->defined()) return {};
  return mask->scalar_type() == at::kBool ? *mask : cast(*mask, q.scalar_type());
}

using Attention =
    std::tuple<Tensor, Tensor, Tensor, Tensor, c10::SymInt, c10::SymInt, Tensor, Tensor, Tensor>;

// As PyTorch has it for compiled graphs, in the order of `like`'s dimensions: the heads of a token
// stay together where they were. On the host only, where kernels take any stride.
Tensor laid_out_as(const Tensor& like, int64_t last) {
  auto sizes = like.sizes().vec();
  sizes.back() = last;
  if (!is_host(like.get_device()) || like.dim() != 4 || !like.is_non_overlapping_and_dense())
    return make_tensor(sizes, like.scalar_type(), like.device());
  std::array<int64_t, 4> order{0, 1, 2, 3}, strides{};
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return like.stride(a) > like.stride(b); });
  int64_t step = 1;
  for (auto d = order.rbegin(); d != order.rend(); d++) {
    strides[*d] = step;
    step *= sizes[*d];
  }
  return make_tensor({step}, like.scalar_type(), like.device()).as_strided(sizes, strides);
}

Attention attention(const Tensor& q, const Tensor& k, const Tensor& v,
                    const std::optional<Tensor>& bias, double dropout, bool causal, bool,
                    std::optional<double> scale) {
  TORCH_CHECK(dropout == 0, "attention with dropout is composed of other ops");
  Call call(HY_OP_sdpa, q.device());
  call.in(q).in(k).in(v).in(usable_mask(bias, q));
  call.attrs().attention.scale = scale.value_or(0);
  call.attrs().attention.causal = causal ? HY_CAUSAL_TOP_LEFT : HY_CAUSAL_NONE;
  Tensor out = laid_out_as(q, v.size(-1));
  call.out(out);
  Tensor lse = call.make();
  call.run();
  // The state of random numbers, which are not drawn here: compiled graphs want a tensor.
  Tensor seed = make_tensor({}, at::kLong, q.device()), offset = make_like(seed);
  return {out, lse, Tensor(), Tensor(), q.size(-2), k.size(-2), seed, offset, Tensor()};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> attention_backward(
    const Tensor& dout, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& bias,
    std::array<bool, 4> wanted, const Tensor& out, const Tensor& lse, const Tensor&, const Tensor&,
    int64_t, int64_t, double, bool causal, const Tensor&, const Tensor&,
    std::optional<double> scale) {
  Call call(HY_OP_sdpa_backward, q.device());
  call.in(dout).in(q).in(k).in(v).in(out).in(lse).in(usable_mask(bias, q));
  call.attrs().attention.scale = scale.value_or(0);
  call.attrs().attention.causal = causal ? HY_CAUSAL_TOP_LEFT : HY_CAUSAL_NONE;
  Tensor dq, dk, dv;
  if (wanted[0]) dq = laid_out_as(q, q.size(-1));
  if (wanted[1]) dk = laid_out_as(k, k.size(-1));
  if (wanted[2]) dv = laid_out_as(v, v.size(-1));
  call.out(dq).out(dk).out(dv);
  call.run();
  return {dq, dk, dv, Tensor()};
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  NATIVE_WITH_OUT(mm, mm_out, mm);
  NATIVE_WITH_OUT(bmm, bmm_out, bmm);
  NATIVE_WITH_OUT(addmm, addmm_out, addmm);
  NATIVE_WITH_OUT(baddbmm, baddbmm_out, baddbmm);
  NATIVE_WITH_OUT(addmv, addmv_out, addmv);
  NATIVE(mv, mv);
  NATIVE(dot, dot);
  m.impl("_fused_sdp_choice", TORCH_FN(sdp_choice));
  NATIVE(_scaled_dot_product_fused_attention_overrideable, attention);
  NATIVE(_scaled_dot_product_fused_attention_overrideable_backward, attention_backward);
}

}  // namespace
}  // namespace halyard_torch

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &halyard_torch::sdp_choice)
}
