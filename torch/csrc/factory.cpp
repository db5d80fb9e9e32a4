// Factories and views: empty tensors, resizing, storages set outright, strided views.
#include <ATen/ATen.h>
#include <ATen/EmptyTensor.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TensorFactories.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include "allocator.h"
#include "runtime.h"
#include "storage.h"

namespace at::native {
// Exported by libtorch_cpu; they look at sizes and strides alone.
TORCH_API Tensor view(const Tensor& self, IntArrayRef size);
TORCH_API Tensor as_strided_tensorimpl(const Tensor& self, IntArrayRef size, IntArrayRef stride,
                                       std::optional<int64_t> storage_offset);
TORCH_API Tensor _reshape_alias(const Tensor& self, IntArrayRef size, IntArrayRef stride);
TORCH_API Tensor view_as_real(const Tensor& self);
TORCH_API Tensor view_as_complex(const Tensor& self);
TORCH_API Tensor unfold(const Tensor& self, int64_t dimension, int64_t size, int64_t step);
}  // namespace at::native

namespace halyard_torch {

using at::IntArrayRef;
using at::Tensor;

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

Tensor make_tensor(IntArrayRef sizes, at::ScalarType type, c10::Device device) {
  int before = exchange_device(device.index());
  auto made = at::detail::empty_generic(sizes, device_allocator(), kKeys, type, std::nullopt);
  exchange_device(before);
  return made;
}

void resize_storage(const c10::Storage& storage, size_t bytes) {
  auto* impl = storage.unsafeGetStorageImpl();
  TORCH_CHECK(impl->resizable(), "Trying to resize storage that is not resizable");
  c10::DeviceGuard guard(storage.device());
  auto data = device_allocator()->allocate(bytes);
  size_t kept = std::min(bytes, storage.nbytes());
  if (kept > 0) {
    auto& slot = current_slot(storage.device().index());
    std::lock_guard<std::mutex> lock(slot.mutex);
    check(hy_memcpy(slot.handle, data.get(), storage.data(), kept, HY_COPY_DEVICE_TO_DEVICE));
  }
  impl->set_data_ptr_noswap(std::move(data));
  impl->set_nbytes(bytes);
}

namespace {

c10::Device device_of(std::optional<c10::Device> device) {
  return {kType, static_cast<c10::DeviceIndex>(device && device->has_index() ? device->index()
                                                                             : current_device())};
}

void check_options(std::optional<at::Layout> layout, std::optional<bool> pinned) {
  TORCH_CHECK(c10::layout_or_default(layout) == at::kStrided,
              "only strided tensors can be made on this device");
  TORCH_CHECK(!pinned.value_or(false), "Only dense CPU tensors can be pinned");
}

// With deterministic algorithms, PyTorch promises that no uninitialised memory is seen.
Tensor filled(Tensor t) {
  if (C10_UNLIKELY(at::globalContext().deterministicAlgorithms() &&
                   at::globalContext().deterministicFillUninitializedMemory()))
    at::native::fill_empty_deterministic_(t);
  return t;
}

Tensor empty(IntArrayRef sizes, std::optional<at::ScalarType> type,
             std::optional<at::Layout> layout, std::optional<c10::Device> device,
             std::optional<bool> pinned, std::optional<at::MemoryFormat> format) {
  check_options(layout, pinned);
  c10::DeviceGuard guard(device_of(device));
  return filled(at::detail::empty_generic(sizes, device_allocator(), kKeys,
                                          c10::dtype_or_default(type), format));
}

Tensor empty_strided(IntArrayRef sizes, IntArrayRef strides, std::optional<at::ScalarType> type,
                     std::optional<at::Layout> layout, std::optional<c10::Device> device,
                     std::optional<bool> pinned) {
  check_options(layout, pinned);
  c10::DeviceGuard guard(device_of(device));
  return filled(at::detail::empty_strided_generic(sizes, strides, device_allocator(), kKeys,
                                                  c10::dtype_or_default(type)));
}

// Zeros in memory, rather than a tensor without any that every op would have to know.
Tensor zeros(IntArrayRef sizes, std::optional<at::ScalarType> type,
             std::optional<at::Layout> layout, std::optional<c10::Device> device,
             std::optional<bool> pinned) {
  return empty(sizes, type, layout, device, pinned, std::nullopt).zero_();
}

// Sizes and strides given; the storage grows where they reach beyond it.
void set_geometry(const Tensor& self, IntArrayRef sizes, at::OptionalIntArrayRef strides) {
  auto* impl = self.unsafeGetTensorImpl();
  if (strides)
    impl->set_sizes_and_strides(sizes, *strides);
  else
    impl->set_sizes_contiguous(sizes);
  if (self.numel() == 0) return;
  size_t bytes = at::detail::computeStorageNbytes(self.sizes(), self.strides(), self.itemsize(),
                                                  self.storage_offset());
  if (bytes > self.storage().nbytes()) resize_storage(self.storage(), bytes);
}

const Tensor& resize_(const Tensor& self, IntArrayRef sizes,
                      std::optional<at::MemoryFormat> format) {
  if (self.sizes() != sizes) set_geometry(self, sizes, {});
  if (format) {
    TORCH_CHECK(*format != at::MemoryFormat::Preserve, "Unsupported memory format", *format);
    self.unsafeGetTensorImpl()->empty_tensor_restride(*format);
  }
  return self;
}

Tensor& set_storage_at(Tensor& self, at::Storage storage, int64_t offset, IntArrayRef sizes,
                       IntArrayRef strides) {
  at::native::checkSetStorage<int64_t>(self, storage, offset, sizes, strides);
  self.unsafeGetTensorImpl()->set_storage_offset(offset);
  set_geometry(self, sizes, strides.data() ? at::OptionalIntArrayRef(strides) : std::nullopt);
  return self;
}

Tensor& set_storage(Tensor& self, at::Storage storage) {
  int64_t count = static_cast<int64_t>(storage.nbytes() / self.itemsize());
  return set_storage_at(self, std::move(storage), 0, count, IntArrayRef());
}

Tensor& set_tensor(Tensor& self, const Tensor& source) {
  if (self.is_same(source)) return self;
  return set_storage_at(self, source.storage(), source.storage_offset(), source.sizes(),
                        source.strides());
}

Tensor& set_nothing(Tensor& self) {
  at::Storage storage(at::Storage::use_byte_size_t(), 0, device_allocator(), true);
  return set_storage_at(self, std::move(storage), 0, {0}, IntArrayRef());
}

void record_stream_of(Tensor& self, at::Stream stream) {
  record_stream(self.storage().data_ptr(), stream);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", TORCH_FN(empty));
  m.impl("empty_strided", TORCH_FN(empty_strided));
  m.impl("_efficientzerotensor", TORCH_FN(zeros));
  m.impl("as_strided", TORCH_FN(at::native::as_strided_tensorimpl));
  m.impl("view", TORCH_FN(at::native::view));
  m.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
  m.impl("view_as_real", TORCH_FN(at::native::view_as_real));
  m.impl("view_as_complex", TORCH_FN(at::native::view_as_complex));
  m.impl("unfold", TORCH_FN(at::native::unfold));
  m.impl("resize_", TORCH_FN(resize_));
  m.impl("set_", TORCH_FN(set_nothing));
  m.impl("set_.source_Tensor", TORCH_FN(set_tensor));
  m.impl("set_.source_Storage", TORCH_FN(set_storage));
  m.impl("set_.source_Storage_storage_offset", TORCH_FN(set_storage_at));
  m.impl("record_stream", TORCH_FN(record_stream_of));
}

}  // namespace
}  // namespace halyard_torch
