// Process groups of torch.distributed: collectives on the device's tensors by a group of the host's
// (Gloo), on the device's memory itself where the host shares it, else on copies.
#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "runtime.h"
#include "stage.h"

namespace halyard_torch {

using c10d::Work;
using WorkPtr = c10::intrusive_ptr<Work>;

// A collective under way, or enqueued. Its future holds the device's tensors; waiting for either
// makes the current stream wait for them.
class DeviceWork final : public Work {
 public:
  DeviceWork(int rank, c10d::OpType type, Tensors results);
  void complete(std::exception_ptr error = nullptr);
  void synchronize() override { future_->wait(); }
  Tensors result() override { return results_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }

 private:
  Tensors results_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

// Counts the collectives whose tensors Gloo's threads still hold. Letting go of a tensor that
// Python knows takes the GIL, and a thread that asks for it in an interpreter that is ending
// terminates the process: shutdown() waits for all of them.
class Outstanding {
 public:
  // One collective, from its start until the last of its tensors is let go.
  class Token {
   public:
    explicit Token(std::shared_ptr<Outstanding> all) : all_(std::move(all)) { all_->add(1); }
    Token(const Token&) = delete;
    Token& operator=(const Token&) = delete;
    ~Token() { all_->add(-1); }

   private:
    std::shared_ptr<Outstanding> all_;
  };

  void wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    none_.wait(lock, [this] { return count_ == 0; });
  }

 private:
  void add(int n) {
    std::lock_guard<std::mutex> lock(mutex_);
    count_ += n;
    if (count_ == 0) none_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable none_;
  int count_ = 0;
};

class HostGroup : public c10d::Backend {
 public:
  explicit HostGroup(c10::intrusive_ptr<c10d::Backend> host)
      : Backend(host->getRank(), host->getSize()), host_(std::move(host)) {}
  const std::string getBackendName() const override { return "halyard"; }
  void setTimeout(std::chrono::milliseconds timeout) override { host_->setTimeout(timeout); }
  void setSequenceNumberForGroup() override { host_->setSequenceNumberForGroup(); }
  uint64_t getSequenceNumberForGroup() override { return host_->getSequenceNumberForGroup(); }
  void abort() override { host_->abort(); }
  void shutdown() override {
    host_->shutdown();
    outstanding_->wait();
  }

  WorkPtr broadcast(Tensors&, const c10d::BroadcastOptions&) override;
  WorkPtr allreduce(Tensors&, const c10d::AllreduceOptions&) override;
  WorkPtr allreduce_coalesced(Tensors&, const c10d::AllreduceCoalescedOptions&) override;
  WorkPtr reduce(Tensors&, const c10d::ReduceOptions&) override;
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions&) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions&) override;
  WorkPtr allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                              const c10d::AllgatherOptions&) override;
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions&) override;
  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs,
                 const c10d::GatherOptions&) override;
  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                  const c10d::ScatterOptions&) override;
  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const c10d::ReduceScatterOptions&) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions&) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions&) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_sizes,
                        std::vector<int64_t>& input_sizes, const c10d::AllToAllOptions&) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions&) override;
  WorkPtr send(Tensors&, int peer, int tag) override;
  WorkPtr recv(Tensors&, int peer, int tag) override;
  WorkPtr recvAnysource(Tensors&, int tag) override;
  WorkPtr barrier(const c10d::BarrierOptions&) override;
  void monitoredBarrier(const c10d::BarrierOptions&, bool wait_all) override;

 protected:
  c10::intrusive_ptr<c10d::Backend> host_;

 private:
  // As `host` ends, in whichever thread that is.
  WorkPtr follow(const WorkPtr& host, c10d::OpType type, Stage stage);

  std::shared_ptr<Outstanding> outstanding_ = std::make_shared<Outstanding>();
};

// A group on the devices' own communicators (hy_comm), where they have them:
// process_group_comm.cpp.
c10::intrusive_ptr<HostGroup> make_comm_group(c10::intrusive_ptr<c10d::Backend> host);

}  // namespace halyard_torch
