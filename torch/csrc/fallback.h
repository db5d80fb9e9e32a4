// Visible fallback: ops without a native kernel run on PyTorch's CPU, are counted, and can be
// forbidden.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <string>

namespace halyard_torch {

// The tensor's memory as a tensor of the host's, on a device whose memory the host shares.
at::Tensor lend(const at::Tensor& t);
// In a storage that was lent before.
at::Tensor lend(const at::Tensor& t, c10::Storage storage);

void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack);

// Why the fallbacks of this thread, while it lives, happen.
class FallbackReason {
 public:
  explicit FallbackReason(std::string reason);
  ~FallbackReason();

 private:
  std::string before_;
};

// Counts a fallback, warns once for each op, and refuses in strict mode.
void note_fallback(const std::string& op, int device);

}  // namespace halyard_torch
