// Caching allocator: c10::DeviceAllocator over hy_alloc, with its statistics.
#include "allocator.h"

#include <array>
#include <utility>

#include <torch/csrc/api/include/torch/version.h>

#include "runtime.h"
#include "writes.h"

namespace halyard_torch {
namespace {

// A deleter is told the address alone, so that each device has one of its own.
template <int device>
void free_on(void* address) {
  if (in_bad_fork()) return;
  note_free(address);
  hy_free(device_at(device), address);
}

template <int... device>
constexpr std::array<c10::DeleterFnPtr, sizeof...(device)> deleters(
    std::integer_sequence<int, device...>) {
  return {&free_on<device>...};
}
constexpr auto kDeleters = deleters(std::make_integer_sequence<int, kMaxDevices>{});

void set_stat(c10::CachingAllocator::StatArray& stat, uint64_t current, uint64_t peak) {
  auto& all = stat[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)];
  all.current = static_cast<int64_t>(current);
  all.peak = static_cast<int64_t>(peak);
}

struct DeviceMemory final : c10::DeviceAllocator {
  c10::DataPtr allocate(size_t bytes) override {
    int index = current_device();
    c10::Device device(kType, static_cast<c10::DeviceIndex>(index));
    if (bytes == 0) return {nullptr, nullptr, kDeleters[index], device};
    void* address = nullptr;
    hy_status status = hy_alloc(current_slot(index).handle, bytes, &address);
    check(status);
    return {address, address, kDeleters[index], device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return kDeleters[current_device()]; }
  void copy_data(void* target, const void* source, size_t bytes) const override {
    auto& slot = current_slot(current_device());
    std::lock_guard<std::mutex> lock(slot.mutex);
    check(hy_memcpy(slot.handle, target, source, bytes, HY_COPY_DEVICE_TO_DEVICE));
  }

  bool initialized() override { return device_count() > 0; }
  void emptyCache(c10::MempoolId_t) override {
    for (int i = 0; i < device_count(); i++)
      if (device_is_open(i)) check(hy_empty_cache(device_at(i)));
  }
  void recordStream(const c10::DataPtr& data, c10::Stream stream) override {
    record_stream(data, stream);
  }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    hy_memory_stats memory;
    check(hy_memory_get_stats(device_at(device), &memory));
    c10::CachingDeviceAllocator::DeviceStats stats;
    set_stat(stats.allocated_bytes, memory.allocated, memory.allocated_peak);
    set_stat(stats.active_bytes, memory.allocated, memory.allocated_peak);
    set_stat(stats.requested_bytes, memory.allocated, memory.allocated_peak);
    set_stat(stats.reserved_bytes, memory.reserved, memory.reserved_peak);
    auto& count = stats.allocation[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)];
    count.current = static_cast<int64_t>(memory.allocations - memory.frees);
    count.allocated = static_cast<int64_t>(memory.allocations);
    count.freed = static_cast<int64_t>(memory.frees);
    stats.num_alloc_retries = static_cast<int64_t>(memory.retries);
    stats.num_ooms = static_cast<int64_t>(memory.out_of_memory);
    stats.num_device_alloc = static_cast<int64_t>(memory.backend_allocations);
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex) override {}  // Halyard's counters run from the start
  void resetPeakStats(c10::DeviceIndex device) override {
    check(hy_memory_reset_peak(device_at(device)));
  }
#if TORCH_VERSION_MINOR >= 10
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
    uint64_t free_bytes = 0, total = 0;
    check(hy_memory_info(device_at(device), &free_bytes, &total));
    return {free_bytes, total};
  }
#endif
};

DeviceMemory g_memory;

}  // namespace

c10::DeviceAllocator* device_allocator() {
  return &g_memory;
}

void record_stream(const c10::DataPtr& data, c10::Stream stream) {
  int device = stream.device_index();
  // What the fallback lent from the host is in no stream's way: there, calls finish before they
  // return.
  if (!data.get() || data.get_deleter() != kDeleters[device]) return;
  auto& slot = stream_slot(device, stream.id());
  std::lock_guard<std::mutex> lock(slot.mutex);
  check(hy_record_stream(slot.handle, data.get_context()));
}

REGISTER_ALLOCATOR(c10::DeviceType::PrivateUse1, &g_memory);

}  // namespace halyard_torch
