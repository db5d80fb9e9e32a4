// Visible fallback: runs an op on PyTorch's CPU, with the tensors copied there and back; on a
// device whose memory the host shares, nothing is copied.
#include "fallback.h"

#include <ATen/ATen.h>
#include <ATen/native/CPUFallback.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <map>
#include <mutex>

#include "generator.h"
#include "graph.h"
#include "report.h"
#include "runtime.h"
#include "storage.h"
#include "writes.h"

namespace halyard_torch {

using at::Tensor;

namespace {

thread_local std::string t_reason;

struct Ledger {
  std::mutex mutex;
  uint64_t total = 0;  // never cleared
  std::map<std::string, FallbackEntry> entries;
  bool strict = false, warn = true;
};

Ledger& ledger() {
  static auto* made = new Ledger;
  return *made;
}

}  // namespace

FallbackReason::FallbackReason(std::string reason) : before_(std::move(t_reason)) {
  t_reason = std::move(reason);
}

FallbackReason::~FallbackReason() {
  t_reason = std::move(before_);
}

void note_fallback(const std::string& op, int device) {
  const std::string reason = t_reason.empty() ? "no native kernel" : t_reason;
  bool first;
  {
    std::lock_guard<std::mutex> lock(ledger().mutex);
    auto& entry = ledger().entries[op];
    TORCH_CHECK_NOT_IMPLEMENTED(
        !ledger().strict, op, ": no native kernel on ", hy_device_selector(device_at(device)), " (",
        reason, "), and torch_halyard.strict(True) forbids the fallback to the CPU");
    ledger().total++;
    first = entry.count++ == 0 && ledger().warn;
    if (entry.reason.empty()) entry.reason = reason;
  }
  if (first)
    TORCH_WARN(
        op, " runs on the CPU: ", reason,
        ". torch_halyard.fallback_report() lists all such ops; torch_halyard.warn_fallback(False) "
        "or "
        "HALYARD_TORCH_WARN=0 ends these warnings, torch_halyard.strict(True) makes them errors.");
}

std::vector<FallbackEntry> fallback_entries() {
  std::lock_guard<std::mutex> lock(ledger().mutex);
  std::vector<FallbackEntry> list;
  for (auto& [op, entry] : ledger().entries) {
    list.push_back(entry);
    list.back().op = op;
  }
  return list;
}

uint64_t fallback_total() {
  std::lock_guard<std::mutex> lock(ledger().mutex);
  return ledger().total;
}

void clear_fallbacks() {
  std::lock_guard<std::mutex> lock(ledger().mutex);
  ledger().entries.clear();
}

void set_strict(bool strict) {
  std::lock_guard<std::mutex> lock(ledger().mutex);
  ledger().strict = strict;
}

void set_warn(bool warn) {
  std::lock_guard<std::mutex> lock(ledger().mutex);
  ledger().warn = warn;
}

Tensor lend(const Tensor& t) {
  require_no_capture(t.get_device(), "a copy to or from the host");
  return lend(
      t, c10::Storage(c10::Storage::use_byte_size_t(), t.storage().nbytes(),
                      c10::DataPtr(const_cast<void*>(t.storage().data()), c10::DeviceType::CPU),
                      c10::GetCPUAllocator(), true));
}

Tensor lend(const Tensor& t, c10::Storage storage) {
  auto alias = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU), t.dtype());
  alias.unsafeGetTensorImpl()->set_storage_offset(t.storage_offset());
  alias.unsafeGetTensorImpl()->set_sizes_and_strides(t.sizes(), t.strides());
  alias._set_conj(t.is_conj());
  alias._set_neg(t.is_neg());
  return alias;
}

namespace {

// One run of an op on the CPU: what its arguments became there, and the way back.
class Visit {
 public:
  void host(c10::IValue& value, bool written) {
    if (value.isTensor()) {
      value = host_tensor(value.toTensor(), written);
    } else if (value.isTensorList()) {
      std::vector<Tensor> list;
      for (const Tensor& t : value.toTensorVector()) list.push_back(host_tensor(t, written));
      value = c10::IValue(list);
    } else if (value.isOptionalTensorList()) {
      c10::List<std::optional<Tensor>> list;
      for (std::optional<Tensor> t : value.toOptionalTensorList())
        list.push_back(t.has_value() ? std::optional<Tensor>(host_tensor(*t, written))
                                     : std::nullopt);
      value = c10::IValue(list);
    } else if (value.isDevice()) {
      if (value.toDevice().type() == kType) {
        if (device_ < 0)
          device_ = value.toDevice().has_index() ? value.toDevice().index() : current_device();
        value = c10::Device(c10::DeviceType::CPU);
      }
    } else if (value.isGenerator()) {
      if (value.toGenerator().device().type() == kType) {
        auto place = draw(value.toGenerator(), value.toGenerator().device().index(), 4);
        auto generator = at::globalContext().defaultGenerator(at::kCPU).clone();
        generator.set_current_seed(place.seed ^ (place.offset * 0x9e3779b97f4a7c15u));
        value = generator;
      }
    }
  }

  // The caller's own tensor for one it passed, else the result, moved to the device.
  void device(c10::IValue& value) {
    if (value.isTensor()) {
      value = device_tensor(value.toTensor());
    } else if (value.isTensorList()) {
      std::vector<Tensor> list;
      for (const Tensor& t : value.toTensorVector()) list.push_back(device_tensor(t));
      value = c10::IValue(list);
    }
  }

  // What the op wrote into tensors that were passed to it.
  void write_back() {
    for (auto& passed : passed_) {
      if (!passed.written) continue;
      const Tensor &here = passed.host, &there = passed.device;
      bool moved = here.const_data_ptr() != passed.lent || here.sizes() != there.sizes() ||
                   here.strides() != there.strides();
      if (!moved && is_host(there.get_device())) {
        // Some ops conjugate by turning the bit.
        there._set_conj(here.is_conj());
        there._set_neg(here.is_neg());
        continue;
      }
      if (here.sizes() != there.sizes()) there.resize_(here.sizes());
      there.copy_(here);
    }
  }

  int device_index() const { return device_ < 0 ? current_device() : device_; }
  void require_one_device(const c10::OperatorHandle& op) const {
    if (device_ < 0 || !elsewhere_) return;
    const auto& name = op.schema().name();
    bool indices = elsewhere_->is_cpu() && name.find("index") != std::string::npos;
    TORCH_CHECK(indices,
                "Expected all tensors to be on the same device, but found at least two devices, ",
                c10::Device(kType, static_cast<c10::DeviceIndex>(device_)), " and ", *elsewhere_,
                "! (", name, ")");
  }

 private:
  struct Passed {
    Tensor device, host;
    const void* lent;
    bool written;
  };

  Tensor host_tensor(const Tensor& t, bool written) {
    if (!t.defined()) return t;
    if (!t.is_privateuseone()) {
      if (!t.is_cpu() || (t.dim() > 0 && !elsewhere_)) elsewhere_ = t.device();
      return t;
    }
    if (device_ < 0) device_ = t.get_device();
    if (written) note_write(t);
    for (auto& passed : passed_) {
      if (!passed.device.is_same(t)) continue;
      passed.written = passed.written || written;
      return passed.host;
    }
    Tensor here = is_host(t.get_device()) ? lent(t) : t.to(at::kCPU);
    passed_.push_back({t, here, here.const_data_ptr(), written});
    return here;
  }

  // Tensors that share a storage still do, so that PyTorch sees which overlap.
  Tensor lent(const Tensor& t) const {
    for (auto& passed : passed_)
      if (t.has_storage() && passed.device.has_storage() &&
          passed.device.storage().is_alias_of(t.storage()))
        return lend(t, passed.host.storage());
    return lend(t);
  }

  Tensor device_tensor(const Tensor& t) {
    if (!t.defined()) return t;
    for (auto& passed : passed_)
      if (passed.host.is_same(t)) return passed.device;
    if (!t.is_cpu()) return t;
    c10::Device device(kType, static_cast<c10::DeviceIndex>(device_index()));
    if (!is_host(device.index()) || t.layout() != at::kStrided || shares_an_argument(t))
      return t.to(device);
    return adopt(t, device);
  }

  bool shares_an_argument(const Tensor& t) const {
    for (auto& passed : passed_)
      if (passed.host.has_storage() && t.storage().data() == passed.host.storage().data())
        return true;
    return false;
  }

  // The host's memory as the device's own, without a copy; the host's storage lives as long.
  static Tensor adopt(const Tensor& t, c10::Device device) {
    auto* owner = new c10::Storage(t.storage());
    c10::DataPtr data(
        const_cast<void*>(t.storage().data()), owner,
        [](void* context) { delete static_cast<c10::Storage*>(context); }, device);
    c10::Storage storage(c10::Storage::use_byte_size_t(), t.storage().nbytes(), std::move(data),
                         c10::GetAllocator(kType), true);
    auto made = at::detail::make_tensor<c10::TensorImpl>(
        std::move(storage), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), t.dtype());
    made.unsafeGetTensorImpl()->set_storage_offset(t.storage_offset());
    made.unsafeGetTensorImpl()->set_sizes_and_strides(t.sizes(), t.strides());
    made._set_conj(t.is_conj());
    made._set_neg(t.is_neg());
    return made;
  }

  std::vector<Passed> passed_;
  int device_ = -1;
  std::optional<c10::Device> elsewhere_;  // of a tensor that is not on this device
};

}  // namespace

void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto& schema = op.schema();
  const size_t n = schema.arguments().size(), begin = stack->size() - n;
  std::string name = schema.name();
  if (!schema.overload_name().empty()) name += "." + schema.overload_name();
  require_no_capture(current_device(), name.c_str());
  Visit visit;
  for (size_t i = 0; i < n; i++) {
    const auto* alias = schema.arguments()[i].alias_info();
    visit.host((*stack)[begin + i], alias && alias->isWrite());
  }
  visit.require_one_device(op);
  note_fallback(name, visit.device_index());
  c10::DeviceGuard guard(c10::Device(kType, static_cast<c10::DeviceIndex>(visit.device_index())));
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
  visit.write_back();
  const size_t results = schema.returns().size(), first = stack->size() - results;
  for (size_t i = 0; i < results; i++) visit.device((*stack)[first + i]);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

}  // namespace halyard_torch
