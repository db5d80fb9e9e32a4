// Profiler: an activity profiler that torch 2.13 hands to Kineto; older ones have no place for it.
#include "profiler.h"

#include <c10/util/ApproximateClock.h>
#include <torch/csrc/api/include/torch/version.h>

#if TORCH_VERSION_MINOR >= 13
#define USE_KINETO
#include <output_base.h>

#include <libkineto.h>
#include <torch/csrc/profiler/standalone/privateuse1_profiler.h>

#include <mutex>
#include <vector>
#endif

namespace halyard_torch {

std::atomic<bool> g_profiling{false};

#if TORCH_VERSION_MINOR >= 13
namespace {

struct Activity {
  const char* name;  // lives as long as the process
  int device;
  int64_t begin, end;  // ns since the epoch
  uint64_t correlation;
};

struct Recording {
  std::mutex mutex;
  std::vector<Activity> activities;
};

Recording& recording() {
  static auto* made = new Recording;
  return *made;
}

thread_local std::vector<uint64_t> t_correlations;

class Session final : public libkineto::IActivityProfilerSession {
 public:
  void start() override {
    std::lock_guard<std::mutex> lock(recording().mutex);
    recording().activities.clear();
    status_ = libkineto::TraceStatus::RECORDING;
    g_profiling = true;
  }
  void stop() override {
    g_profiling = false;
    std::lock_guard<std::mutex> lock(recording().mutex);
    activities_.swap(recording().activities);
    recording().activities.clear();
    status_ = libkineto::TraceStatus::PROCESSING;
  }
  std::vector<std::string> errors() override { return {}; }

  void processTrace(libkineto::ActivityLogger& logger) override {
    processTrace(
        logger, [](int32_t) { return nullptr; }, 0, INT64_MAX);
  }
  void processTrace(libkineto::ActivityLogger& logger, libkineto::getLinkedActivityCallback linked,
                    int64_t begin, int64_t end) override {
    trace_ = std::make_unique<libkineto::CpuTraceBuffer>();
    trace_->span = libkineto::TraceSpan(begin, end, "Halyard");
    trace_->gpuOpCount = static_cast<int>(activities_.size());
    for (const Activity& from : activities_) {
      if (from.begin < begin || from.end > end) continue;
      trace_->emplace_activity(trace_->span, libkineto::ActivityType::CONCURRENT_KERNEL, from.name);
      auto& made = *trace_->activities.back();
      made.startTime = from.begin;
      made.endTime = from.end;
      made.id = static_cast<int32_t>(from.correlation);
      made.device = from.device;
      made.linked = from.correlation ? linked(static_cast<int32_t>(from.correlation)) : nullptr;
      made.log(logger);
    }
  }
  std::unique_ptr<libkineto::DeviceInfo> getDeviceInfo() override { return nullptr; }
  std::vector<libkineto::ResourceInfo> getResourceInfos() override { return {}; }
  std::unique_ptr<libkineto::CpuTraceBuffer> getTraceBuffer() override { return std::move(trace_); }
  void pushCorrelationId(uint64_t id) override { t_correlations.push_back(id); }
  void popCorrelationId() override {
    if (!t_correlations.empty()) t_correlations.pop_back();
  }

 private:
  std::vector<Activity> activities_;
  std::unique_ptr<libkineto::CpuTraceBuffer> trace_;
};

class Profiler final : public libkineto::IActivityProfiler {
 public:
  const std::string& name() const override { return name_; }
  const std::set<libkineto::ActivityType>& availableActivities() const override { return kinds_; }
  std::unique_ptr<libkineto::IActivityProfilerSession> configure(
      const std::set<libkineto::ActivityType>& kinds, const libkineto::Config&) override {
    if (!kinds.count(libkineto::ActivityType::CONCURRENT_KERNEL)) return nullptr;
    return std::make_unique<Session>();
  }
  std::unique_ptr<libkineto::IActivityProfilerSession> configure(
      int64_t, int64_t, const std::set<libkineto::ActivityType>& kinds,
      const libkineto::Config& config) override {
    return configure(kinds, config);
  }

 private:
  std::string name_ = "halyard";
  std::set<libkineto::ActivityType> kinds_ = {libkineto::ActivityType::CONCURRENT_KERNEL};
};

REGISTER_PRIVATEUSE1_PROFILER(Profiler);

}  // namespace

void ProfiledWork::begin() {
  if (!hy_stream_is_capturing(slot_.handle)) begin_ = c10::getTime();
}

void ProfiledWork::end() {
  hy_stream_sync(slot_.handle);  // its failure is told by the stream's next call
  std::lock_guard<std::mutex> lock(recording().mutex);
  recording().activities.push_back(
      {name_, device_, begin_, c10::getTime(), t_correlations.empty() ? 0 : t_correlations.back()});
}
#else
void ProfiledWork::begin() {}
void ProfiledWork::end() {}
#endif

}  // namespace halyard_torch
