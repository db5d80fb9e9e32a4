// Writes: which storages of the device have changed, so that what was made of a tensor's contents
// can be told to be out of date.
//
// Every kernel, copy and fallback notes the storage that it writes, whatever view it writes
// through. PyTorch's version counters do not tell: `p.data.add_(1)` leaves p's as it was.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>

namespace halyard_torch {

// A number, not 0, for what the tensor's storage holds. It is another one after a write, and for
// another storage at the same address. The storage is watched from now on, until it is freed.
uint64_t contents_of(const at::Tensor& t);

// Watched storages, a bit for each by its address: most writes are of none, and see that here.
constexpr unsigned kWatchedBits = 14;
extern std::atomic<uint64_t> g_watched[(1u << kWatchedBits) / 64];

inline unsigned watched_bit(const void* storage) {
  return static_cast<unsigned>((reinterpret_cast<uintptr_t>(storage) * 0x9e3779b97f4a7c15u) >>
                               (64 - kWatchedBits));
}
inline bool may_be_watched(const void* storage) {
  unsigned bit = watched_bit(storage);
  return g_watched[bit / 64].load(std::memory_order_relaxed) >> (bit % 64) & 1;
}

void watched_write(const void* storage);
void watched_free(const void* storage);

inline void note_write(const at::Tensor& t) {
  const void* storage = t.unsafeGetTensorImpl()->unsafe_storage().data();
  if (C10_UNLIKELY(may_be_watched(storage))) watched_write(storage);
}
inline void note_free(const void* storage) {
  if (C10_UNLIKELY(may_be_watched(storage))) watched_free(storage);
}
// Somebody wrote, and cannot tell where.
void note_writes_anywhere();

}  // namespace halyard_torch
