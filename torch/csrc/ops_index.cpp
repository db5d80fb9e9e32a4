// Embeddings, gathers, scatters, indexing and joining.
#include <ATen/WrapDimUtils.h>

#include <ATen/MemoryOverlap.h>

#include "native.h"

namespace halyard_torch {
namespace {

using std::optional;

Tensor embedding(const Tensor& weight, const Tensor& ids, int64_t padding, bool, bool) {
  Call call(HY_OP_embedding, weight.device());
  call.in(weight).in(ids);
  call.attrs().padding.padding_index = padding;
  Tensor out = call.make();
  if (out.numel() > 0) call.run();
  return out;
}
Tensor embedding_dense_backward(const Tensor& dy, const Tensor& ids, int64_t rows, int64_t padding,
                                bool by_frequency) {
  if (by_frequency) decline("gradients scaled by frequency");
  Call call(HY_OP_embedding_backward, dy.device());
  call.in(dy).in(ids);
  call.attrs().rows.rows = rows;
  call.attrs().rows.padding_index = padding;
  Tensor out = call.make();
  if (out.numel() > 0) call.run();
  return out;
}

// An index out of range is a RuntimeError of gather and scatter, and an IndexError of others.
void run_indexed(Call& call) {
  try {
    call.run();
  } catch (const c10::IndexError& error) {
    TORCH_CHECK(false, error.msg());
  }
}

// PyTorch says in its own words what is wrong with an output that overlaps.
void require_apart(const Tensor& out, const Tensor& in) {
  if (at::has_internal_overlap(out) == at::MemOverlap::Yes ||
      at::get_overlap_status(out, in) == at::MemOverlapStatus::Full ||
      at::get_overlap_status(out, in) == at::MemOverlapStatus::Partial)
    decline("an output that overlaps");
}

Tensor gather(const Tensor& x, int64_t dim, const Tensor& index, bool) {
  Call call(HY_OP_gather, x.device());
  call.in(x).in(index);
  call.attrs().dim.dim = dim;
  Tensor out = call.make();
  if (out.numel() > 0) run_indexed(call);
  return out;
}
Tensor& gather_out(const Tensor& x, int64_t dim, const Tensor& index, bool sparse, Tensor& out) {
  require_apart(out, x);
  require_apart(out, index);
  if (out.scalar_type() != x.scalar_type()) decline("an output of another type");
  return deliver(out, at::gather(x, dim, index, sparse));
}

void run_scatter(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src,
                 hy_scatter_mode mode, const Tensor& out) {
  Call call(HY_OP_scatter, x.device());
  call.in(x).in(index).in(src).out(out);
  call.attrs().scatter.dim = dim;
  call.attrs().scatter.mode = mode;
  if (out.numel() > 0) run_indexed(call);
}
template <hy_scatter_mode mode>
Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src) {
  Tensor out = make_like(x);
  run_scatter(x, dim, index, src, mode, out);
  return out;
}
template <hy_scatter_mode mode>
Tensor& scatter_(Tensor& x, int64_t dim, const Tensor& index, const Tensor& src) {
  run_scatter(x, dim, index, src, mode, x);
  return x;
}
Tensor value_source(const Tensor& x, const Tensor& index, const Scalar& value) {
  return at::full({}, value, x.options()).expand(index.sizes());
}
Tensor scatter_value(const Tensor& x, int64_t dim, const Tensor& index, const Scalar& value) {
  return scatter<HY_SCATTER_SET>(x, dim, index, value_source(x, index, value));
}
Tensor& scatter_value_(Tensor& x, int64_t dim, const Tensor& index, const Scalar& value) {
  return scatter_<HY_SCATTER_SET>(x, dim, index, value_source(x, index, value));
}

Tensor index_select(const Tensor& x, int64_t dim, const Tensor& index) {
  Call call(HY_OP_index_select, x.device());
  call.in(x).in(index);
  call.attrs().dim.dim = dim;
  Tensor out = call.make();
  if (out.numel() > 0) call.run();
  return out;
}

Tensor& index_select_out(const Tensor& x, int64_t dim, const Tensor& index, Tensor& out) {
  require_apart(out, x);
  return deliver(out, at::index_select(x, dim, index));
}

void run_index_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src,
                   const Scalar& alpha, const Tensor& out) {
  if (src.scalar_type() != x.scalar_type()) decline("mixed types");
  Call call(HY_OP_index_add, x.device());
  call.in(x).in(index).in(alpha.equal(1) ? src : at::mul(src, alpha)).out(out);
  call.attrs().dim.dim = dim;
  if (out.numel() > 0) call.run();
}
Tensor index_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src,
                 const Scalar& alpha) {
  Tensor out = make_like(x);
  run_index_add(x, dim, index, src, alpha, out);
  return out;
}
Tensor& index_add_(Tensor& x, int64_t dim, const Tensor& index, const Tensor& src,
                   const Scalar& alpha) {
  run_index_add(x, dim, index, src, alpha, x);
  return x;
}

// The list of indices as inputs of a call. A mask would need to be counted before the shape is
// known.
void add_indices(Call& call, const c10::List<optional<Tensor>>& indices, c10::Device device) {
  for (optional<Tensor> index : indices) {
    if (!index || !index->defined()) {
      call.in(Tensor());
      continue;
    }
    if (index->scalar_type() != at::kLong && index->scalar_type() != at::kInt)
      decline("a mask among the indices");
    call.in(index->device() == device ? *index : index->to(device));
  }
}
Tensor index(const Tensor& x, const c10::List<optional<Tensor>>& indices) {
  Call call(HY_OP_index, x.device());
  call.in(x);
  add_indices(call, indices, x.device());
  Tensor out = call.make();
  if (out.numel() > 0) call.run();
  return out;
}
Tensor& index_put_(Tensor& x, const c10::List<optional<Tensor>>& indices, const Tensor& values,
                   bool accumulate, bool) {
  if (values.scalar_type() != x.scalar_type()) decline("mixed types");
  Call call(HY_OP_index_put, x.device());
  call.in(x).in(values.device() == x.device() ? values : values.to(x.device()));
  add_indices(call, indices, x.device());
  call.out(x);
  call.attrs().accumulate.accumulate = accumulate;
  if (x.numel() > 0) call.run();
  return x;
}
Tensor index_copy(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source) {
  if (x.dim() == 0 || index.dim() != 1 || source.dim() != x.dim() ||
      source.scalar_type() != x.scalar_type())
    decline("a copy of this shape");
  dim = at::maybe_wrap_dim(dim, x.dim());
  if (source.size(dim) != index.numel()) decline("a source of another size");
  c10::List<optional<Tensor>> indices;
  for (int64_t d = 0; d < dim; d++) indices.push_back(std::nullopt);
  indices.push_back(index);
  Tensor out = x.clone(at::MemoryFormat::Contiguous);
  return at::_index_put_impl_(out, indices, source, false, false);
}

Tensor cat(const at::ITensorListRef& tensors, int64_t dim) {
  auto list = tensors.materialize();
  if (list.empty()) decline("nothing to join");
  ScalarType type = list[0].get().scalar_type();
  for (const Tensor& t : list) type = c10::promoteTypes(type, t.scalar_type());
  std::vector<Tensor> kept;
  c10::Device device = list[0].get().device();
  // Vectors of no elements join with anything.
  for (const Tensor& t : list)
    if (!(t.dim() == 1 && t.numel() == 0)) kept.push_back(t);
  if (kept.empty()) return make_tensor({0}, type, device);
  Call call(HY_OP_cat, device);
  for (auto& t : kept) call.in(cast(t, type));
  call.attrs().dim.dim = dim;
  Tensor out = call.make();
  if (out.numel() > 0) call.run();
  return out;
}

// A view that runs backwards, copied.
Tensor flip(const Tensor& x, at::IntArrayRef dims) {
  Tensor out = make_like(x);
  if (x.numel() == 0) return out;
  hy_tensor view = view_of(x, x.device());
  uint32_t seen = 0;
  for (int64_t dim : dims) {
    int64_t d = at::maybe_wrap_dim(dim, x.dim());
    if (seen >> d & 1) decline("a dimension named twice");
    seen |= 1u << d;
    if (x.dim() == 0) continue;
    view.data = static_cast<char*>(view.data) + view.stride[d] * (view.shape[d] - 1) * x.itemsize();
    view.stride[d] = -view.stride[d];
  }
  Call call(HY_OP_copy, x.device());
  call.in(view).out(out).run();
  return out;
}
Tensor roll(const Tensor& x, at::IntArrayRef shifts, at::IntArrayRef dims) {
  if (dims.size() != 1 || shifts.size() != 1 || x.numel() == 0 || x.dim() == 0)
    decline("several shifts");
  int64_t n = x.size(dims[0]), shift = ((shifts[0] % n) + n) % n;
  if (shift == 0) return x.clone(at::MemoryFormat::Contiguous);
  return at::cat({x.narrow(dims[0], n - shift, shift), x.narrow(dims[0], 0, n - shift)}, dims[0]);
}

Tensor& cat_out(const at::ITensorListRef& list, int64_t dim, Tensor& out) {
  for (const Tensor& t : list.materialize()) require_apart(out, t);
  return deliver(out, at::cat(list, dim));
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  NATIVE(embedding, embedding);
  NATIVE(embedding_dense_backward, embedding_dense_backward);
  NATIVE(gather, gather);
  NATIVE(gather_out, gather_out);
  NATIVE_WITH_OUT(scatter_src, scatter_src_out, scatter<HY_SCATTER_SET>);
  NATIVE(scatter__src, scatter_<HY_SCATTER_SET>);
  NATIVE_WITH_OUT(scatter_value, scatter_value_out, scatter_value);
  NATIVE(scatter__value, scatter_value_);
  NATIVE_WITH_OUT(scatter_add, scatter_add_out, scatter<HY_SCATTER_ADD>);
  NATIVE(scatter_add_, scatter_<HY_SCATTER_ADD>);
  NATIVE(index_select, index_select);
  NATIVE(index_select_out, index_select_out);
  NATIVE_WITH_OUT(index_add, index_add_out, index_add);
  NATIVE(index_add_, index_add_);
  NATIVE_WITH_OUT(index_Tensor, index_Tensor_out, index);
  NATIVE(_index_put_impl_, index_put_);
  NATIVE_WITH_OUT(index_copy, index_copy_out, index_copy);
  NATIVE(cat, cat);
  NATIVE(cat_out, cat_out);
  NATIVE(flip, flip);
  NATIVE(roll, roll);
}

}  // namespace
}  // namespace halyard_torch
