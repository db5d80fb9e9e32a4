// Copies: between the host, a device and another device, with any change of type and strides.
#include <ATen/ATen.h>
#include <ATen/native/Resize.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include "allocator.h"
#include "native.h"
#include "stream_error.h"

namespace halyard_torch {
namespace {

void copy_bytes(const Tensor& self, const Tensor& dst, hy_copy_kind kind, c10::Device device,
                bool wait) {
  auto& slot = current_slot(device.index());
  std::lock_guard<std::mutex> lock(slot.mutex);
  check_on(slot, hy_memcpy(slot.handle, dst.mutable_data_ptr(), self.const_data_ptr(),
                           self.nbytes(), kind));
  if (wait) check_on(slot, hy_stream_sync(slot.handle));
}

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.is_conj() == b.is_conj() && a.is_neg() == b.is_neg();
}

// Whether the elements are in both in one piece and in the same order.
bool alike(const Tensor& a, const Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.strides() == b.strides() &&
         a.is_non_overlapping_and_dense() && same_bits(a, b);
}

// Elements of one type move as words of their size, so that types the table lacks move too.
hy_tensor words_of(const Tensor& t) {
  static const hy_dtype kWords[] = {HY_NONE, HY_U8,   HY_I16,  HY_NONE, HY_I32,
                                    HY_NONE, HY_NONE, HY_NONE, HY_I64};
  hy_tensor view;
  bool pair = t.itemsize() == 16;
  if (t.dim() + pair > HY_MAX_DIMS) decline("more than 8 dimensions");
  view.data = const_cast<void*>(t.const_data_ptr());
  view.dtype = pair ? HY_I64 : kWords[t.itemsize()];
  view.layout = HY_LAYOUT_STRIDED;
  view.ndim = static_cast<int32_t>(t.dim()) + pair;
  view.reserved = 0;
  for (int d = 0; d < t.dim(); d++) {
    view.shape[d] = t.size(d);
    view.stride[d] = t.stride(d) * (pair ? 2 : 1);
  }
  if (pair) {
    view.shape[t.dim()] = 2;
    view.stride[t.dim()] = 1;
  }
  return view;
}

void copy_words(const Tensor& src, const Tensor& dst) {
  bool plain = dtype_of(src.scalar_type()) != HY_NONE;
  hy_tensor from = plain ? view_of(src, src.device()) : words_of(src),
            to = plain ? view_of(dst, dst.device()) : words_of(dst);
  auto& slot = current_slot(dst.get_device());
  std::lock_guard<std::mutex> lock(slot.mutex);
  hy_status status = hy_copy(slot.handle, &to, &from);
  if (status == HY_OVERLAP) decline(hy_last_error());
  check_on(slot, status);
}

// The same elements in one piece, signs and conjugates left to be applied.
Tensor packed(const Tensor& t) {
  if (t.is_contiguous()) return t;
  Tensor out = make_like(t);
  copy_words(t, out);
  return out;
}

// On the host, in one piece.
Tensor fetched(const Tensor& t) {
  Tensor here = at::empty(t.sizes(), t.options().device(at::kCPU));
  copy_bytes(packed(t), here, HY_COPY_DEVICE_TO_HOST, t.device(), true);
  here._set_conj(t.is_conj());
  here._set_neg(t.is_neg());
  return here;
}

// Asynchronous only where the caller asked for it and the host's memory stays until the copy is
// done.
bool must_wait(const Tensor& host, bool non_blocking) {
  return !non_blocking || !is_pinned(host.const_data_ptr());
}

void from_host(const Tensor& src, const Tensor& dst, bool non_blocking) {
  if (is_host(dst.get_device())) {
    lend(dst).copy_(src);
    return;
  }
  if (!alike(src, dst)) {
    Tensor here = at::empty(dst.sizes(), src.options().dtype(dst.scalar_type()));
    here._set_conj(dst.is_conj());
    here._set_neg(dst.is_neg());
    here.copy_(src);
    Tensor there = dst.is_contiguous() ? dst : make_like(dst);
    copy_bytes(here, there, HY_COPY_HOST_TO_DEVICE, dst.device(), true);
    if (!there.is_same(dst)) copy_words(there, dst);
    return;
  }
  bool wait = must_wait(src, non_blocking);
  copy_bytes(src, dst, HY_COPY_HOST_TO_DEVICE, dst.device(), wait);
  if (!wait)
    host_allocator()->record_event(const_cast<void*>(src.const_data_ptr()), nullptr,
                                   current_stream(dst.get_device()));
}

void to_host(const Tensor& src, const Tensor& dst, bool non_blocking) {
  if (is_host(src.get_device())) {
    dst.copy_(lend(src));
    return;
  }
  if (!dst.is_cpu() || !alike(src, dst)) {
    dst.copy_(fetched(src));
    return;
  }
  bool wait = must_wait(dst, non_blocking);
  copy_bytes(src, dst, HY_COPY_DEVICE_TO_HOST, src.device(), wait);
  if (!wait)
    host_allocator()->record_event(dst.mutable_data_ptr(), nullptr,
                                   current_stream(src.get_device()));
}

void between_devices(const Tensor& src, const Tensor& dst) {
  Tensor from = packed(src),
         there =
             src.scalar_type() == dst.scalar_type() && dst.is_contiguous() && same_bits(src, dst)
                 ? dst
                 : make_tensor(src.sizes(), src.scalar_type(), dst.device());
  {
    auto &to_slot = current_slot(dst.get_device()), &from_slot = current_slot(src.get_device());
    std::scoped_lock lock(to_slot.mutex, from_slot.mutex);
    check(hy_memcpy_peer(to_slot.handle, there.mutable_data_ptr(), from_slot.handle,
                         from.const_data_ptr(), from.nbytes()));
  }
  if (there.is_same(dst)) return;
  there._set_conj(src.is_conj());
  there._set_neg(src.is_neg());
  dst.copy_(there);
}

void on_device(const Tensor& src, const Tensor& dst) {
  if (alike(src, dst)) {
    if (src.const_data_ptr() != dst.const_data_ptr())
      copy_bytes(src, dst, HY_COPY_DEVICE_TO_DEVICE, dst.device(), false);
    return;
  }
  try {
    if (src.scalar_type() == dst.scalar_type() && same_bits(src, dst)) return copy_words(src, dst);
    if (src.is_neg() || dst.is_neg()) decline("a sign to be applied");
    Call call(HY_OP_cast, dst.device());
    call.in(src).out(dst);
    call.attrs().cast.dtype = dtype_of(dst.scalar_type());
    return call.run();
  } catch (const Declined&) {
  }
  if (is_host(dst.get_device()))
    lend(dst).copy_(lend(src));
  else
    from_host(fetched(src), dst, false);
}

Tensor copy_from(const Tensor& self, const Tensor& dst, bool non_blocking) {
  if (dst.numel() == 0) return dst;
  if (dst.is_privateuseone()) note_write(dst);
  if (self._is_zerotensor()) {
    dst.zero_();
    return dst;
  }
  Tensor src = self.sizes() == dst.sizes() ? self : self.expand_as(dst);
  c10::DeviceGuard guard(dst.is_privateuseone() ? dst.device() : src.device());
  // Another device of torch's (cuda) has streams that Halyard cannot wait for: by way of the host.
  if (!src.is_privateuseone())
    from_host(src.is_cpu() ? src : src.cpu(), dst, non_blocking);
  else if (!dst.is_privateuseone())
    to_host(src, dst, non_blocking);
  else if (src.device() != dst.device())
    between_devices(src, dst);
  else
    on_device(src, dst);
  return dst;
}

Tensor copy_from_and_resize(const Tensor& self, const Tensor& dst) {
  at::native::resize_output(dst, self.sizes());
  return copy_from(self, dst, false);
}

Scalar local_scalar(const Tensor& self) {
  TORCH_CHECK(self.numel() == 1, "a Tensor with ", self.numel(),
              " elements cannot be converted to Scalar");
  if (is_host(self.get_device())) return at::_local_scalar_dense(lend(self));
  Tensor here = at::empty({}, self.options().device(at::kCPU));
  copy_bytes(self, here, HY_COPY_DEVICE_TO_HOST, self.device(), true);
  return at::_local_scalar_dense(here);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_copy_from", TORCH_FN(copy_from));
  m.impl("_copy_from_and_resize", TORCH_FN(copy_from_and_resize));
  m.impl("_local_scalar_dense", TORCH_FN(local_scalar));
}

// Signs, conjugates and zeros without memory are applied by the copy itself.
TORCH_LIBRARY_IMPL(aten, Negative, m) {
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
}
TORCH_LIBRARY_IMPL(aten, ZeroTensor, m) {
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
}
TORCH_LIBRARY_IMPL(aten, Conjugate, m) {
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
}

}  // namespace
}  // namespace halyard_torch
