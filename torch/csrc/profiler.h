// Profiler: the device's work as Kineto's activities, while torch.profiler runs.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "runtime.h"

namespace halyard_torch {

extern std::atomic<bool> g_profiling;

// One piece of work on the stream of `slot`, whose mutex is held, from now until it dies. While a
// profiler runs, work is waited for, so that its time is the device's.
class ProfiledWork {
 public:
  ProfiledWork(const char* name, int device, StreamSlot& slot)
      : name_(name), device_(device), slot_(slot) {
    if (C10_UNLIKELY(g_profiling.load(std::memory_order_relaxed))) begin();
  }
  ~ProfiledWork() {
    if (C10_UNLIKELY(begin_ != 0)) end();
  }
  ProfiledWork(const ProfiledWork&) = delete;
  ProfiledWork& operator=(const ProfiledWork&) = delete;

 private:
  void begin();
  void end();

  const char* name_;
  int device_;
  StreamSlot& slot_;
  int64_t begin_ = 0;
};

}  // namespace halyard_torch
