// Pinned host memory: blocks of powers of two, kept for the next batch, reused when the copies that
// read them are done.
#include <map>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "allocator.h"
#include "runtime.h"

namespace halyard_torch {
namespace {

struct Block {
  void* address;
  size_t bytes;
  int device;
  std::vector<hy_event*> uses;  // copies that may still read or write it
};

struct HostMemory final : at::HostAllocator {
  c10::DataPtr allocate(size_t bytes) override {
    if (bytes == 0) return {nullptr, nullptr, &HostMemory::release, c10::DeviceType::CPU};
    size_t size = 512;
    while (size < bytes) size *= 2;
    std::lock_guard<std::mutex> lock(mutex_);
    auto& free = free_[size];
    for (size_t i = 0; i < free.size(); i++) {
      if (!finished(*free[i])) continue;
      Block* block = free[i];
      free.erase(free.begin() + static_cast<ptrdiff_t>(i));
      return {block->address, block, &HostMemory::release, c10::DeviceType::CPU};
    }
    int device = current_device();
    void* address = nullptr;
    check(hy_host_alloc(device_at(device), size, &address));
    auto* block = new Block{address, size, device, {}};
    blocks_[reinterpret_cast<uintptr_t>(address)] = block;
    return {address, block, &HostMemory::release, c10::DeviceType::CPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &HostMemory::release; }
  void copy_data(void* target, const void* source, size_t bytes) const override {
    default_copy_data(target, source, bytes);
  }

  bool record_event(void* address, void*, c10::Stream stream) override {
    std::lock_guard<std::mutex> lock(mutex_);
    Block* block = find(address);
    if (!block) return false;
    hy_event* event = nullptr;
    check(hy_event_create(device_at(stream.device_index()), &event));
    auto& slot = stream_slot(stream.device_index(), stream.id());
    std::lock_guard<std::mutex> stream_lock(slot.mutex);
    check(hy_event_record(event, slot.handle));
    block->uses.push_back(event);
    return true;
  }
  void empty_cache() override {
    std::lock_guard<std::mutex> lock(mutex_);
    for (auto& [size, list] : free_) {
      for (Block* block : list) {
        for (hy_event* use : block->uses) {
          check(hy_event_sync(use));
          hy_event_destroy(use);
        }
        blocks_.erase(reinterpret_cast<uintptr_t>(block->address));
        hy_host_free(device_at(block->device), block->address);
        delete block;
      }
      list.clear();
    }
  }
  at::HostStats get_stats() override { return {}; }
  void reset_accumulated_stats() override {}
  void reset_peak_stats() override {}

  bool owns(const void* address) {
    std::lock_guard<std::mutex> lock(mutex_);
    return find(address) != nullptr;
  }

 private:
  static void release(void* context);

  Block* find(const void* address) {
    auto place = reinterpret_cast<uintptr_t>(address);
    auto after = blocks_.upper_bound(place);
    if (after == blocks_.begin()) return nullptr;
    Block* block = std::prev(after)->second;
    return place < reinterpret_cast<uintptr_t>(block->address) + block->bytes ? block : nullptr;
  }
  static bool finished(Block& block) {
    while (!block.uses.empty()) {
      if (hy_event_query(block.uses.back()) == HY_NOT_READY) return false;
      hy_event_destroy(block.uses.back());
      block.uses.pop_back();
    }
    return true;
  }

  std::mutex mutex_;
  std::map<uintptr_t, Block*> blocks_;
  std::unordered_map<size_t, std::vector<Block*>> free_;
};

HostMemory& host_memory() {
  static auto* memory = new HostMemory;  // outlives the tensors that the process ends with
  return *memory;
}

void HostMemory::release(void* context) {
  if (!context || in_bad_fork()) return;
  auto* block = static_cast<Block*>(context);
  std::lock_guard<std::mutex> lock(host_memory().mutex_);
  host_memory().free_[block->bytes].push_back(block);
}

}  // namespace

at::HostAllocator* host_allocator() {
  return &host_memory();
}

bool is_pinned(const void* address) {
  return host_memory().owns(address);
}

}  // namespace halyard_torch
