// Staging: the host's side of a collective's tensors, on the device's memory itself where the host
// shares it, else on copies.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <vector>

namespace halyard_torch {

using Tensors = std::vector<at::Tensor>;

class Stage {
 public:
  at::Tensor read(const at::Tensor& t) { return host(t, true, false); }
  at::Tensor write(const at::Tensor& t) { return host(t, false, true); }
  at::Tensor update(const at::Tensor& t) { return host(t, true, true); }
  template <at::Tensor (Stage::*side)(const at::Tensor&)>
  Tensors all(const Tensors& list) {
    Tensors made;
    for (const at::Tensor& t : list) made.push_back((this->*side)(t));
    return made;
  }
  template <at::Tensor (Stage::*side)(const at::Tensor&)>
  std::vector<Tensors> all(const std::vector<Tensors>& lists) {
    std::vector<Tensors> made;
    for (const Tensors& list : lists) made.push_back(all<side>(list));
    return made;
  }

  // Gloo has no average: SUM instead, and finish() divides.
  c10d::ReduceOp divided(const c10d::ReduceOp& op, int size);
  // In whichever thread the collective ends.
  void finish();
  // Gloo keeps its tensors a little longer than it needs them, but no longer the device's memory.
  void take_back();
  Tensors results() const;

 private:
  struct Result {
    at::Tensor there, here;
    bool lent;
  };

  at::Tensor host(const at::Tensor& t, bool read, bool written);

  std::vector<Result> results_;
  std::vector<c10::Storage> lent_;
  int divisor_ = 1;
};

}  // namespace halyard_torch
