// Native kernels: an ATen op as a call of the op table.
//
// A kernel is a function with the op's signature. What the table refuses (a type it lacks, more
// than 8 dimensions, an argument it has no attribute for) it declines by throwing Declined, before
// it has changed anything; PyTorch's own CPU kernel then decides: it computes the result, or says
// in PyTorch's words what is wrong.
#pragma once

#include <ATen/ATen.h>
#include <ATen/native/CPUFallback.h>
#include <c10/util/SmallVector.h>
#include <torch/library.h>

#include <atomic>
#include <string>

#include "fallback.h"
#include "runtime.h"
#include "storage.h"
#include "types.h"
#include "writes.h"

namespace halyard_torch {

using at::Scalar;
using at::ScalarType;
using at::Tensor;

struct Declined {
  std::string reason;
};

[[noreturn]] void decline(const char* reason);
// A view of the tensor's memory. Declines what Halyard cannot describe.
hy_tensor view_of(const Tensor& t, c10::Device device);
hy_scalar scalar_of(const Scalar& value);

// One call of the table: inputs and outputs in the order of its row, attributes, run. `device` is
// where it runs; tensors elsewhere are declined. An undefined tensor is an absent one.
class Call {
 public:
  Call(hy_op op, c10::Device device) : device_(device) {
    call_.op = op;
    call_.n_in = call_.n_out = 0;
    call_.in = in_;
    call_.out = out_;
    call_.reserved = 0;
    call_.attrs.words[0] = 0;
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  Call& in(const Tensor& t) {
    if (call_.n_in == HY_MAX_INPUTS) decline("more inputs than a call has room for");
    in_[call_.n_in++] = t.defined() ? view_of(t, device_) : hy_tensor_absent();
    return *this;
  }
  // A tensor that nobody else holds lives until the call has run: its memory must not become an
  // output's.
  Call& in(Tensor&& t) {
    in(static_cast<const Tensor&>(t));
    held_.push_back(std::move(t));
    return *this;
  }
  Call& in(const std::optional<Tensor>& t) {
    return t.has_value() ? in(*t) : in(static_cast<const Tensor&>(Tensor()));
  }
  Call& in(const hy_tensor& view) {
    in_[call_.n_in++] = view;
    return *this;
  }
  Call& out(const Tensor& t) {
    out_[call_.n_out++] = t.defined() ? view_of(t, device_) : hy_tensor_absent();
    if (t.defined()) note_write(t);
    return *this;
  }
  hy_attrs& attrs() { return call_.attrs; }
  // Makes the next output, as the table's rules have it.
  Tensor make();
  void run();

 private:
  c10::Device device_;
  c10::SmallVector<Tensor, 4> held_;
  hy_call call_;
  hy_tensor in_[HY_MAX_INPUTS];
  hy_tensor out_[HY_MAX_OUTPUTS];
};

hy_dims dims_of(at::OptionalIntArrayRef dims);
// Converts on the device; the tensor itself where it has that type already.
Tensor cast(const Tensor& t, ScalarType type);
// Writes a result where the caller wants it, resizing that first.
Tensor& deliver(Tensor& out, const Tensor& result);

// ---- Registration ----

// How often an op ran natively. Counts may be lost when threads meet.
struct OpCount {
  explicit OpCount(std::string op_name);
  void add() { count.store(count.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed); }
  std::string name;
  std::atomic<uint64_t> count{0};
  OpCount* next;
};
extern OpCount* g_op_counts;

template <class Op>
std::string op_name() {
  std::string name = Op::name;
  if (*Op::overload_name) name += std::string(".") + Op::overload_name;
  return name;
}

template <class Op, auto kernel, class Schema = typename Op::schema>
struct Native;

template <class Op, auto kernel, class R, class... A>
struct Native<Op, kernel, R(A...)> {
  static OpCount& count() {
    static auto* made = new OpCount(op_name<Op>());
    return *made;
  }
  static R call(typename c10::maybe_keep_symint<false, A>::type... args) {
    try {
      count().add();
      return kernel(args...);
    } catch (const Declined& declined) {
      count().count.fetch_sub(1, std::memory_order_relaxed);
      FallbackReason reason(declined.reason);
      return at::native::call_fallback_fn<&fallback, Op>::call(args...);
    }
  }
};

template <class Op, auto kernel>
void add_native(torch::Library& m) {
  Native<Op, kernel>::count();
  m.impl(op_name<Op>().c_str(), TORCH_FN((Native<Op, kernel>::call)));
}

// The `.out` overload of a function: its result delivered into the last arguments.
template <auto function, class Schema>
struct OutOf;

template <auto function, class R, class... A>
struct OutOf<function, R(A...)> {
  template <class Tuple, size_t... i>
  static auto apply(Tuple&& t, std::index_sequence<i...>) {
    return function(std::get<i>(t)...);
  }
  static R call(typename c10::maybe_keep_symint<false, A>::type... args) {
    auto all = std::forward_as_tuple(args...);
    constexpr size_t n = sizeof...(A);
    if constexpr (std::is_same_v<R, Tensor&>) {
      return deliver(std::get<n - 1>(all), apply(all, std::make_index_sequence<n - 1>{}));
    } else {
      auto [a, b] = apply(all, std::make_index_sequence<n - 2>{});
      deliver(std::get<n - 2>(all), a);
      deliver(std::get<n - 1>(all), b);
      return R(std::get<n - 2>(all), std::get<n - 1>(all));
    }
  }
};

}  // namespace halyard_torch

// Inside TORCH_LIBRARY_IMPL(aten, PrivateUse1, m): the op at::_ops::op, its kernel.
#define NATIVE(op, ...) ::halyard_torch::add_native<at::_ops::op, (__VA_ARGS__)>(m)
// A function and its .out overload.
#define NATIVE_WITH_OUT(op, out_op, ...) \
  NATIVE(op, __VA_ARGS__);               \
  NATIVE(out_op, ::halyard_torch::OutOf<(__VA_ARGS__), at::_ops::out_op::schema>::call)
