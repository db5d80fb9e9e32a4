// torch.distributed on the device's own communicators (hy_comm): collectives are enqueued on the
// current stream. A communicator is made with the first collective on a device; the host's group
// carries its id. What communicators lack goes through the host, and so do messages: a communicator
// cannot be made by two ranks of many.
#include <ATen/ATen.h>

#include <cstring>
#include <map>
#include <optional>

#include "process_group.h"
#include "stream_error.h"
#include "types.h"
#include "writes.h"

namespace halyard_torch {
namespace {

using at::Tensor;
using c10d::OpType;
using c10d::ReduceOp;

std::optional<hy_reduce_op> reduction(const ReduceOp& op) {
  switch (op.op_) {
    case ReduceOp::SUM: return HY_REDUCE_SUM;
    case ReduceOp::PRODUCT: return HY_REDUCE_PROD;
    case ReduceOp::MIN: return HY_REDUCE_MIN;
    case ReduceOp::MAX: return HY_REDUCE_MAX;
    case ReduceOp::AVG: return HY_REDUCE_AVG;
    default: return std::nullopt;
  }
}

class CommGroup final : public HostGroup {
 public:
  using HostGroup::HostGroup;
  ~CommGroup() override {
    if (in_bad_fork()) return;
    for (auto& [device, comm] : comms_) hy_comm_destroy(comm);
  }

  void abort() override {
    std::lock_guard<std::mutex> lock(mutex_);
    for (auto& [device, comm] : comms_) hy_comm_abort(comm);
    HostGroup::abort();
  }

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    if (!has_comm(tensors)) return HostGroup::broadcast(tensors, options);
    return in_place(OpType::BROADCAST, tensors,
                    [&](hy_comm* comm, hy_stream* stream, const Tensor& t) {
                      return hy_comm_broadcast(comm, stream, t.mutable_data_ptr(), bytes(t), HY_U8,
                                               static_cast<int>(options.rootRank));
                    });
  }

  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    auto op = reduction_of(tensors, options.reduceOp);
    if (!has_comm(tensors) || !op) return HostGroup::allreduce(tensors, options);
    return reduce_all(OpType::ALLREDUCE, tensors, *op);
  }

  WorkPtr allreduce_coalesced(Tensors& tensors,
                              const c10d::AllreduceCoalescedOptions& options) override {
    auto op = reduction_of(tensors, options.reduceOp);
    if (!has_comm(tensors) || !op) return HostGroup::allreduce_coalesced(tensors, options);
    return reduce_all(OpType::ALLREDUCE_COALESCED, tensors, *op);
  }

  WorkPtr _allgather_base(Tensor& output, Tensor& input,
                          const c10d::AllgatherOptions& options) override {
    if (!has_comm({output, input})) return HostGroup::_allgather_base(output, input, options);
    return gather_all({output}, {input});
  }

  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& options) override {
    if (!has_comm(inputs))
      return HostGroup::allgather_into_tensor_coalesced(outputs, inputs, options);
    return gather_all(outputs, inputs);
  }

  WorkPtr _reduce_scatter_base(Tensor& output, Tensor& input,
                               const c10d::ReduceScatterOptions& options) override {
    auto op = reduction_of({input}, options.reduceOp);
    if (!has_comm({output, input}) || !op)
      return HostGroup::_reduce_scatter_base(output, input, options);
    return reduce_parts({output}, {input}, *op);
  }

  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& options) override {
    auto op = reduction_of(inputs, options.reduceOp);
    if (!has_comm(inputs) || !op)
      return HostGroup::reduce_scatter_tensor_coalesced(outputs, inputs, options);
    return reduce_parts(outputs, inputs, *op);
  }

 private:
  static int64_t bytes(const Tensor& t) { return static_cast<int64_t>(t.nbytes()); }

  // Where the host shares the memory, its own group needs no copies either.
  static bool has_comm(const Tensors& tensors) {
    return !tensors.empty() && tensors[0].is_privateuseone() && !is_host(tensors[0].get_device()) &&
           hy_comm_is_native(device_at(tensors[0].get_device()));
  }

  // None where communicators lack the reduction, or the type of one of the tensors.
  static std::optional<hy_reduce_op> reduction_of(const Tensors& tensors, const ReduceOp& op) {
    for (const Tensor& t : tensors)
      if (dtype_of(t.scalar_type()) == HY_NONE || t.scalar_type() == at::kBool) return std::nullopt;
    return reduction(op);
  }

  WorkPtr reduce_all(OpType type, const Tensors& tensors, hy_reduce_op op) {
    return in_place(type, tensors, [&](hy_comm* comm, hy_stream* stream, const Tensor& t) {
      void* data = t.mutable_data_ptr();
      return hy_comm_all_reduce(comm, stream, data, data, t.numel(), dtype_of(t.scalar_type()), op);
    });
  }

  // What is not contiguous passes through a copy, on the same stream.
  template <class Function>
  WorkPtr in_place(OpType type, const Tensors& tensors, Function start) {
    at::AutoDispatchBelowADInplaceOrView guard;
    Tensors dense;
    for (const Tensor& t : tensors) dense.push_back(t.contiguous());
    enqueue(dense[0].get_device(), [&](hy_comm* comm, hy_stream* stream) {
      hy_status status = HY_OK;
      for (size_t i = 0; i < dense.size() && status == HY_OK; i++)
        status = start(comm, stream, dense[i]);
      return status;
    });
    for (size_t i = 0; i < tensors.size(); i++)
      if (!tensors[i].is_contiguous()) tensors[i].copy_(dense[i]);
    return enqueued(type, tensors);
  }

  WorkPtr gather_all(const Tensors& outputs, const Tensors& inputs) {
    require_parts(outputs, inputs);
    enqueue(inputs[0].get_device(), [&](hy_comm* comm, hy_stream* stream) {
      hy_status status = HY_OK;
      for (size_t i = 0; i < inputs.size() && status == HY_OK; i++)
        status = hy_comm_all_gather(comm, stream, inputs[i].const_data_ptr(),
                                    outputs[i].mutable_data_ptr(), bytes(inputs[i]), HY_U8);
      return status;
    });
    return enqueued(OpType::_ALLGATHER_BASE, outputs);
  }

  WorkPtr reduce_parts(const Tensors& outputs, const Tensors& inputs, hy_reduce_op op) {
    require_parts(inputs, outputs);
    enqueue(inputs[0].get_device(), [&](hy_comm* comm, hy_stream* stream) {
      hy_status status = HY_OK;
      for (size_t i = 0; i < inputs.size() && status == HY_OK; i++)
        status = hy_comm_reduce_scatter(comm, stream, inputs[i].const_data_ptr(),
                                        outputs[i].mutable_data_ptr(), outputs[i].numel(),
                                        dtype_of(outputs[i].scalar_type()), op);
      return status;
    });
    return enqueued(OpType::_REDUCE_SCATTER_BASE, outputs);
  }

  void require_parts(const Tensors& wholes, const Tensors& parts) const {
    TORCH_CHECK_VALUE(wholes.size() == parts.size(), "as many outputs as inputs are needed");
    for (size_t i = 0; i < wholes.size(); i++)
      TORCH_CHECK_VALUE(wholes[i].scalar_type() == parts[i].scalar_type() &&
                            wholes[i].numel() == parts[i].numel() * getSize() &&
                            wholes[i].is_contiguous() && parts[i].is_contiguous(),
                        "the one tensor must be ", getSize(), " times as large as the other, of ",
                        "the same type, and both contiguous");
  }

  template <class Function>
  void enqueue(int device, Function start) {
    hy_comm* comm = comm_at(device);
    auto& slot = current_slot(device);
    std::lock_guard<std::mutex> lock(slot.mutex);
    check_on(slot, start(comm, slot.handle));
  }

  WorkPtr enqueued(OpType type, const Tensors& results) {
    for (const Tensor& t : results) note_write(t);
    auto work = c10::make_intrusive<DeviceWork>(getRank(), type, results);
    work->complete();
    return work;
  }

  hy_comm* comm_at(int device) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto found = comms_.find(device);
    if (found != comms_.end()) return found->second;
    hy_comm_id id = {};
    if (getRank() == 0) check(hy_comm_unique_id(device_at(device), &id));
    Tensors carried{at::empty({HY_COMM_ID_BYTES}, at::kByte)};
    std::memcpy(carried[0].mutable_data_ptr(), id.bytes, sizeof id.bytes);
    host_->broadcast(carried, c10d::BroadcastOptions{})->wait();
    std::memcpy(id.bytes, carried[0].const_data_ptr(), sizeof id.bytes);
    hy_comm* comm = nullptr;
    check(hy_comm_init_rank(device_at(device), getSize(), &id, getRank(), &comm));
    comms_[device] = comm;
    return comm;
  }

  std::mutex mutex_;
  std::map<int, hy_comm*> comms_;
};

}  // namespace

c10::intrusive_ptr<HostGroup> make_comm_group(c10::intrusive_ptr<c10d::Backend> host) {
  return c10::make_intrusive<CommGroup>(std::move(host));
}

}  // namespace halyard_torch
