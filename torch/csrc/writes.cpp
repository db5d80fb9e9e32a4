// Watched storages and the numbers of their contents.
#include "writes.h"

#include <mutex>
#include <unordered_map>

namespace halyard_torch {

std::atomic<uint64_t> g_watched[(1u << kWatchedBits) / 64];

namespace {

struct Watch {
  std::mutex mutex;
  std::unordered_map<const void*, uint64_t> storages;  // the numbers of their contents
  uint64_t last = 0;                                   // number given
};

Watch& watch() {
  static auto* made = new Watch;
  return *made;
}

}  // namespace

uint64_t contents_of(const at::Tensor& t) {
  const void* storage = t.unsafeGetTensorImpl()->unsafe_storage().data();
  Watch& w = watch();
  std::lock_guard<std::mutex> lock(w.mutex);
  auto [found, is_new] = w.storages.try_emplace(storage);
  if (is_new) {
    unsigned bit = watched_bit(storage);
    g_watched[bit / 64].fetch_or(uint64_t{1} << (bit % 64), std::memory_order_relaxed);
    found->second = ++w.last;
  }
  return found->second;
}

void watched_write(const void* storage) {
  Watch& w = watch();
  std::lock_guard<std::mutex> lock(w.mutex);
  auto found = w.storages.find(storage);
  if (found != w.storages.end()) found->second = ++w.last;
}

// A bit stays set while another storage may share it.
void watched_free(const void* storage) {
  Watch& w = watch();
  std::lock_guard<std::mutex> lock(w.mutex);
  if (w.storages.erase(storage) == 0) return;
  unsigned bit = watched_bit(storage);
  for (auto& [other, contents] : w.storages)
    if (watched_bit(other) == bit) return;
  g_watched[bit / 64].fetch_and(~(uint64_t{1} << (bit % 64)), std::memory_order_relaxed);
}

void note_writes_anywhere() {
  Watch& w = watch();
  std::lock_guard<std::mutex> lock(w.mutex);
  for (auto& [storage, contents] : w.storages) contents = ++w.last;
}

}  // namespace halyard_torch
