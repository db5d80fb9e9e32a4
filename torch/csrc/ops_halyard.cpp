// Ops of the table that PyTorch has no name for: torch.ops.halyard. Serving engines attend to paged
// KV caches by them, and torch.compile turns by them what models spell out.
#include "native.h"

namespace halyard_torch {
namespace {

// q [tokens, heads, size] of several sequences after one another; caches [blocks, block size, kv
// heads, size]; block_table [sequences, n]; query_start [sequences + 1]; context_length
// [sequences], the new keys included. Causal; a scale of 0 means 1 / sqrt(size).
Tensor paged_attention(const Tensor& q, const Tensor& k_cache, const Tensor& v_cache,
                       const Tensor& block_table, const Tensor& query_start,
                       const Tensor& context_length, double scale) {
  try {
    Call call(HY_OP_paged_attention, q.device());
    call.in(q).in(k_cache).in(v_cache).in(block_table).in(query_start).in(context_length);
    call.attrs().scale.scale = scale;
    Tensor out = call.make();
    if (out.numel() > 0) call.run();
    return out;
  } catch (const Declined& declined) {
    TORCH_CHECK_VALUE(false, "halyard::paged_attention: ", declined.reason);
  }
}

Tensor paged_attention_meta(const Tensor& q, const Tensor&, const Tensor& v_cache, const Tensor&,
                            const Tensor&, const Tensor&, double) {
  auto sizes = q.sym_sizes().vec();
  sizes.back() = v_cache.sym_size(-1);
  return at::empty_symint(sizes, q.options());
}

// x [..., D]; cos and sin broadcast to [..., D / 2]. The result has the strides of x where these
// are dense. The inverse, which is the gradient, turns back.
Tensor rope(const Tensor& x, const Tensor& cos, const Tensor& sin, bool inverse) {
  try {
    Tensor out = at::empty_like(x);
    Call call(HY_OP_rope, x.device());
    call.in(x).in(cos).in(sin).out(out);
    call.attrs().rope.inverse = inverse;
    if (out.numel() > 0) call.run();
    return out;
  } catch (const Declined& declined) {
    TORCH_CHECK_VALUE(false, "halyard::rope: ", declined.reason);
  }
}

Tensor rope_meta(const Tensor& x, const Tensor&, const Tensor&, bool) {
  return at::empty_like(x);
}

TORCH_LIBRARY_FRAGMENT(halyard, m) {
  m.def("rope(Tensor x, Tensor cos, Tensor sin, bool inverse=False) -> Tensor");
  m.def(
      "paged_attention(Tensor q, Tensor k_cache, Tensor v_cache, Tensor block_table, Tensor "
      "query_start, Tensor context_length, float scale=0.0) -> Tensor");
}
TORCH_LIBRARY_IMPL(halyard, PrivateUse1, m) {
  m.impl("paged_attention", paged_attention);
  m.impl("rope", rope);
}
TORCH_LIBRARY_IMPL(halyard, Meta, m) {
  m.impl("paged_attention", paged_attention_meta);
  m.impl("rope", rope_meta);
}

}  // namespace
}  // namespace halyard_torch
