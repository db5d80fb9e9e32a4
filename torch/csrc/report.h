// What ran where: the counters behind torch_halyard.fallback_report() and native_report().
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace halyard_torch {

struct FallbackEntry {
  std::string op, reason;
  uint64_t count = 0;
};

std::vector<FallbackEntry> fallback_entries();
uint64_t fallback_total();
void clear_fallbacks();
void set_strict(bool strict);
void set_warn(bool warn);

}  // namespace halyard_torch
