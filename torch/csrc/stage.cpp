// Staging: tensors lent to the host, or copied there and back.
#include "stage.h"

#include <ATen/ATen.h>

#include <set>

#include "fallback.h"
#include "runtime.h"
#include "writes.h"

namespace halyard_torch {

using at::Tensor;
using c10d::ReduceOp;

// The device's memory as a storage of the host's that keeps it alive.
static c10::Storage borrowed(const c10::Storage& storage) {
  auto* owner = new c10::Storage(storage);
  c10::DataPtr data(
      const_cast<void*>(storage.data()), owner,
      [](void* context) { delete static_cast<c10::Storage*>(context); }, c10::DeviceType::CPU);
  return {c10::Storage::use_byte_size_t(), storage.nbytes(), std::move(data),
          c10::GetAllocator(c10::DeviceType::CPU), true};
}

Tensor Stage::host(const Tensor& t, bool read, bool written) {
  at::AutoDispatchBelowADInplaceOrView guard;
  bool lent = t.is_privateuseone() && t.is_contiguous() && is_host(t.get_device());
  Tensor here = lent            ? lend(t, borrowed(t.storage()))
                : t.is_cpu()    ? t
                : t.is_sparse() ? t.cpu()
                : read          ? t.cpu().contiguous()
                                : at::empty(t.sizes(), t.options().device(at::kCPU));
  if (written) results_.push_back({t, here, lent || t.is_cpu()});
  if (lent) lent_.push_back(here.storage());
  return here;
}

ReduceOp Stage::divided(const ReduceOp& op, int size) {
  if (op.op_ != ReduceOp::AVG) return op;
  for (auto& result : results_)
    TORCH_CHECK_TYPE(result.there.is_floating_point() || result.there.is_complex(),
                     "the average takes floating-point tensors, not ", result.there.scalar_type());
  divisor_ = size;
  return ReduceOp::SUM;
}

void Stage::finish() {
  at::AutoDispatchBelowADInplaceOrView guard;
  for (auto& result : results_) {
    if (divisor_ > 1) result.here.div_(divisor_);
    if (!result.lent)
      result.there.copy_(result.here);
    else if (result.there.is_privateuseone())
      note_write(result.there);
  }
  // What was copied is there when the work is done, whatever stream looks at it.
  std::set<int> devices;
  for (auto& result : results_)
    if (!result.lent && result.there.is_privateuseone()) devices.insert(result.there.get_device());
  for (int device : devices) {
    auto& slot = current_slot(device);
    std::lock_guard<std::mutex> lock(slot.mutex);
    check(hy_stream_sync(slot.handle));
  }
}

void Stage::take_back() {
  for (auto& storage : lent_) storage.unsafeGetStorageImpl()->set_data_ptr_noswap(at::DataPtr());
}

Tensors Stage::results() const {
  Tensors list;
  for (auto& result : results_) list.push_back(result.there);
  return list;
}

}  // namespace halyard_torch
