// torch.distributed through the host: Gloo's collectives on what Stage lends or copies.
//
// The shim knows no Python, so a process group passes between it and Python by its registered name.
#include "process_group.h"

#include <ATen/ATen.h>
#include <torch/library.h>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/reducer_timer.hpp>

#include <set>

namespace halyard_torch {

using at::Tensor;
using c10d::OpType;

namespace {

// Messages and reduce_scatter of Gloo's, which end only while they are waited for and have no
// future.
class Waited final : public Work {
 public:
  Waited(WorkPtr host, OpType type, int rank, Stage stage)
      : Work(rank, type), host_(std::move(host)), stage_(std::move(stage)) {}
  bool wait(std::chrono::milliseconds timeout) override {
    if (isCompleted()) return Work::wait(timeout);
    try {
      host_->wait(timeout);
      stage_.finish();
      finish();
    } catch (...) {
      finishAndThrow(std::current_exception());
    }
    return true;
  }
  int sourceRank() const override { return host_->sourceRank(); }
  void abort() override { host_->abort(); }
  Tensors result() override { return stage_.results(); }

 private:
  WorkPtr host_;
  Stage stage_;
};

std::vector<c10::Device> devices_of(const Tensors& tensors) {
  std::set<int> indices;
  for (const Tensor& t : tensors)
    if (t.is_privateuseone()) indices.insert(t.get_device());
  std::vector<c10::Device> devices;
  for (int index : indices) devices.emplace_back(kType, static_cast<c10::DeviceIndex>(index));
  return devices;
}

Tensor flat(const Tensors& tensors) {
  Tensors parts;
  for (const Tensor& t : tensors) parts.push_back(t.reshape({-1}));
  return at::cat(parts);
}

}  // namespace

DeviceWork::DeviceWork(int rank, OpType type, Tensors results)
    : Work(rank, type),
      results_(std::move(results)),
      future_(c10::make_intrusive<c10::ivalue::Future>(
          c10::ListType::create(c10::TensorType::get()), devices_of(results_))) {}

void DeviceWork::complete(std::exception_ptr error) {
  if (error)
    future_->setError(error);
  else
    future_->markCompleted(c10::IValue(results_));
  finish(error);
}

WorkPtr HostGroup::follow(const WorkPtr& host, OpType type, Stage stage) {
  // The token goes last.
  struct Collective {
    Outstanding::Token token;
    c10::intrusive_ptr<DeviceWork> work;
    Stage stage;
  };
  auto work = c10::make_intrusive<DeviceWork>(getRank(), type, stage.results());
  std::shared_ptr<Collective> collective(
      new Collective{Outstanding::Token(outstanding_), work, std::move(stage)});
  host->getFuture()->addCallback([collective](c10::ivalue::Future& future) {
    try {
      if (future.hasError()) std::rethrow_exception(future.exception_ptr());
      collective->stage.finish();
      collective->work->complete();
    } catch (...) {
      collective->work->complete(std::current_exception());
    }
    collective->stage.take_back();
  });
  return work;
}

// ---- collectives ----

WorkPtr HostGroup::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  Stage stage;
  auto host = stage.all<&Stage::update>(tensors);
  return follow(host_->broadcast(host, options), OpType::BROADCAST, std::move(stage));
}

WorkPtr HostGroup::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  Stage stage;
  auto host = stage.all<&Stage::update>(tensors);
  auto changed = options;
  changed.reduceOp = stage.divided(options.reduceOp, getSize());
  return follow(host_->allreduce(host, changed), OpType::ALLREDUCE, std::move(stage));
}

WorkPtr HostGroup::allreduce_coalesced(Tensors& tensors,
                                       const c10d::AllreduceCoalescedOptions& options) {
  Stage stage;
  auto host = stage.all<&Stage::update>(tensors);
  auto changed = options;
  changed.reduceOp = stage.divided(options.reduceOp, getSize());
  return follow(host_->allreduce_coalesced(host, changed), OpType::ALLREDUCE_COALESCED,
                std::move(stage));
}

WorkPtr HostGroup::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  Stage stage;
  auto host = stage.all<&Stage::update>(tensors);
  auto changed = options;
  changed.reduceOp = stage.divided(options.reduceOp, getSize());
  return follow(host_->reduce(host, changed), OpType::REDUCE, std::move(stage));
}

WorkPtr HostGroup::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                             const c10d::AllgatherOptions& options) {
  Stage stage;
  auto from = stage.all<&Stage::read>(inputs);
  auto to = stage.all<&Stage::write>(outputs);
  return follow(host_->allgather(to, from, options), OpType::ALLGATHER, std::move(stage));
}

WorkPtr HostGroup::_allgather_base(Tensor& output, Tensor& input,
                                   const c10d::AllgatherOptions& options) {
  Stage stage;
  Tensor from = stage.read(input), to = stage.write(output);
  return follow(host_->_allgather_base(to, from, options), OpType::_ALLGATHER_BASE,
                std::move(stage));
}

WorkPtr HostGroup::allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                       const c10d::AllgatherOptions& options) {
  Stage stage;
  auto from = stage.all<&Stage::read>(inputs);
  auto to = stage.all<&Stage::write>(outputs);
  return follow(host_->allgather_coalesced(to, from, options), OpType::ALLGATHER_COALESCED,
                std::move(stage));
}

WorkPtr HostGroup::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                   const c10d::AllgatherOptions& options) {
  Stage stage;
  auto from = stage.all<&Stage::read>(inputs), to = stage.all<&Stage::write>(outputs);
  return follow(host_->allgather_into_tensor_coalesced(to, from, options),
                OpType::ALLGATHER_COALESCED, std::move(stage));
}

WorkPtr HostGroup::gather(std::vector<Tensors>& outputs, Tensors& inputs,
                          const c10d::GatherOptions& options) {
  Stage stage;
  auto from = stage.all<&Stage::read>(inputs);
  auto to = stage.all<&Stage::write>(outputs);
  return follow(host_->gather(to, from, options), OpType::GATHER, std::move(stage));
}

WorkPtr HostGroup::scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                           const c10d::ScatterOptions& options) {
  Stage stage;
  auto from = stage.all<&Stage::read>(inputs);
  auto to = stage.all<&Stage::write>(outputs);
  return follow(host_->scatter(to, from, options), OpType::SCATTER, std::move(stage));
}

WorkPtr HostGroup::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                  const c10d::ReduceScatterOptions& options) {
  Stage stage;
  auto from = stage.all<&Stage::read>(inputs);
  auto to = stage.all<&Stage::write>(outputs);
  auto changed = options;
  changed.reduceOp = stage.divided(options.reduceOp, getSize());
  return c10::make_intrusive<Waited>(host_->reduce_scatter(to, from, changed),
                                     OpType::REDUCE_SCATTER, getRank(), std::move(stage));
}

WorkPtr HostGroup::_reduce_scatter_base(Tensor& output, Tensor& input,
                                        const c10d::ReduceScatterOptions& options) {
  Stage stage;
  Tensor from = stage.read(input), to = stage.write(output);
  auto changed = options;
  changed.reduceOp = stage.divided(options.reduceOp, getSize());
  return c10::make_intrusive<Waited>(host_->_reduce_scatter_base(to, from, changed),
                                     OpType::_REDUCE_SCATTER_BASE, getRank(), std::move(stage));
}

WorkPtr HostGroup::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                   const c10d::ReduceScatterOptions& options) {
  Stage stage;
  auto from = stage.all<&Stage::read>(inputs), to = stage.all<&Stage::write>(outputs);
  auto changed = options;
  changed.reduceOp = stage.divided(options.reduceOp, getSize());
  return c10::make_intrusive<Waited>(host_->reduce_scatter_tensor_coalesced(to, from, changed),
                                     OpType::COALESCED, getRank(), std::move(stage));
}

WorkPtr HostGroup::alltoall_base(Tensor& output, Tensor& input, std::vector<int64_t>& output_sizes,
                                 std::vector<int64_t>& input_sizes,
                                 const c10d::AllToAllOptions& options) {
  Stage stage;
  Tensor from = stage.read(input), to = stage.write(output);
  return follow(host_->alltoall_base(to, from, output_sizes, input_sizes, options),
                OpType::ALLTOALL_BASE, std::move(stage));
}

// Gloo exchanges parts of one tensor, not lists of tensors.
WorkPtr HostGroup::alltoall(Tensors& outputs, Tensors& inputs,
                            const c10d::AllToAllOptions& options) {
  std::vector<int64_t> output_sizes, input_sizes;
  for (const Tensor& t : outputs) output_sizes.push_back(t.numel());
  for (const Tensor& t : inputs) input_sizes.push_back(t.numel());
  Tensor to = flat(outputs), from = flat(inputs);
  auto sizes = output_sizes;  // Gloo takes what it is given
  alltoall_base(to, from, sizes, input_sizes, options)->wait();
  auto parts = to.split_with_sizes(output_sizes);
  for (size_t i = 0; i < outputs.size(); i++) outputs[i].copy_(parts[i].view(outputs[i].sizes()));
  auto work = c10::make_intrusive<DeviceWork>(getRank(), OpType::ALLTOALL, outputs);
  work->complete();
  return work;
}

WorkPtr HostGroup::send(Tensors& tensors, int peer, int tag) {
  Stage stage;
  auto host = stage.all<&Stage::read>(tensors);
  return c10::make_intrusive<Waited>(host_->send(host, peer, tag), OpType::SEND, getRank(),
                                     std::move(stage));
}

WorkPtr HostGroup::recv(Tensors& tensors, int peer, int tag) {
  Stage stage;
  auto host = stage.all<&Stage::write>(tensors);
  return c10::make_intrusive<Waited>(host_->recv(host, peer, tag), OpType::RECV, getRank(),
                                     std::move(stage));
}

WorkPtr HostGroup::recvAnysource(Tensors& tensors, int tag) {
  Stage stage;
  auto host = stage.all<&Stage::write>(tensors);
  return c10::make_intrusive<Waited>(host_->recvAnysource(host, tag), OpType::RECVANYSOURCE,
                                     getRank(), std::move(stage));
}

WorkPtr HostGroup::barrier(const c10d::BarrierOptions& options) {
  auto& slot = current_slot(current_device());
  {
    std::lock_guard<std::mutex> lock(slot.mutex);
    check(hy_stream_sync(slot.handle));
  }
  return host_->barrier(options);
}

void HostGroup::monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all) {
  host_->monitoredBarrier(options, wait_all);
}

namespace {

// Gives the group of that name, which has a backend for the host's tensors, one for the device's.
void add_backend(const std::string& name) {
  auto group = c10d::resolve_process_group(name);
  group->setBackend(
      kType, c10d::ProcessGroup::BackendType::CUSTOM,
      c10::intrusive_ptr<c10d::Backend>(make_comm_group(group->getBackend(c10::DeviceType::CPU))));
}

// DDP's statistics, by the host's clock.
class HostTimer final : public c10d::Timer {
 public:
  explicit HostTimer(c10::Device) {}
  std::optional<int64_t> measureDifference(Event start, Event end) override {
    auto from = getTimestamp(start), to = getTimestamp(end);
    return from && to && *to >= *from ? std::optional<int64_t>(*to - *from) : std::nullopt;
  }
};

using c10d::RegistererTimerRegistry;
using c10d::TimerRegistry;
C10_REGISTER_TYPED_CLASS(TimerRegistry, c10::DeviceType::PrivateUse1, HostTimer);

TORCH_LIBRARY_FRAGMENT(halyard, m) {
  m.def("process_group_add_backend(str name) -> ()", add_backend);
}

}  // namespace
}  // namespace halyard_torch
