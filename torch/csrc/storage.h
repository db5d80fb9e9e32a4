// Storage: making tensors on the device and growing what they are in.
#pragma once

#include <ATen/core/Tensor.h>

namespace halyard_torch {

// A contiguous tensor on that device.
at::Tensor make_tensor(at::IntArrayRef sizes, at::ScalarType type, c10::Device device);
inline at::Tensor make_like(const at::Tensor& t) {
  return make_tensor(t.sizes(), t.scalar_type(), t.device());
}
// Gives the storage that many bytes; the ones it has in common with the old are kept.
void resize_storage(const c10::Storage& storage, size_t bytes);

}  // namespace halyard_torch
