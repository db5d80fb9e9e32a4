// The door for Python's ctypes: plain C functions, so that one shim serves every Python. JSON where
// there is more than a number to tell; the text lives until the thread's next call.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <sstream>

#include "autograd.h"
#include "generator.h"
#include "graph.h"
#include "native.h"
#include "report.h"

using namespace halyard_torch;

namespace {

std::string quoted(const std::string& text) {
  std::ostringstream out;
  out << '"';
  for (char c : text) {
    if (c == '"' || c == '\\')
      out << '\\' << c;
    else if (c == '\n')
      out << "\\n";
    else if (static_cast<unsigned char>(c) < 0x20)
      out << ' ';
    else
      out << c;
  }
  out << '"';
  return out.str();
}

const char* keep(std::string text) {
  static thread_local std::string kept;
  kept = std::move(text);
  return kept.c_str();
}

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT int torch_halyard_device_count() {
  return device_count();
}

// What is found by the device's name, once it has it.
EXPORT void torch_halyard_device_named() {
  register_graphs();
}

EXPORT const char* torch_halyard_absence() {
  return keep(absence());
}

EXPORT int torch_halyard_in_bad_fork() {
  return in_bad_fork();
}

EXPORT int torch_halyard_settle_autograd() {
  return settle_autograd();
}

EXPORT const char* torch_halyard_fallbacks() {
  std::ostringstream out;
  out << '[';
  for (auto& entry : fallback_entries())
    out << (out.tellp() > 1 ? "," : "") << "{\"op\":" << quoted(entry.op)
        << ",\"count\":" << entry.count << ",\"reason\":" << quoted(entry.reason)
        << ",\"by\":\"torch\"}";
  std::vector<hy_fallback_entry> inner(256);
  int n = std::min<int>(hy_fallback_report(inner.data(), 256), 256);
  for (int i = 0; i < n; i++)
    out << (out.tellp() > 1 ? "," : "")
        << "{\"op\":" << quoted(std::string("halyard::") + hy_op_name(inner[i].op))
        << ",\"count\":" << inner[i].count
        << ",\"reason\":" << quoted(hy_support_text(inner[i].reason))
        << ",\"by\":\"halyard\",\"dtype\":" << quoted(hy_dtype_name(inner[i].dtype))
        << ",\"device\":" << quoted(inner[i].device) << ",\"example\":" << quoted(inner[i].example)
        << '}';
  out << ']';
  return keep(out.str());
}

// How many fallbacks there have been, of PyTorch's kind and of Halyard's.
EXPORT uint64_t torch_halyard_fallback_total() {
  return fallback_total() + hy_fallback_count();
}

EXPORT const char* torch_halyard_native_counts() {
  std::ostringstream out;
  out << '{';
  for (OpCount* op = g_op_counts; op; op = op->next)
    out << (out.tellp() > 1 ? "," : "") << quoted(op->name) << ':' << op->count.load();
  out << '}';
  return keep(out.str());
}

EXPORT void torch_halyard_clear_counts() {
  clear_fallbacks();
  hy_fallback_clear();
  for (OpCount* op = g_op_counts; op; op = op->next) op->count = 0;
}

EXPORT void torch_halyard_set_strict(int strict) {
  set_strict(strict);
  hy_set_strict(strict);
}

EXPORT void torch_halyard_set_warn(int warn) {
  set_warn(warn);
}

// Name, selector, memory and types of a device; empty where it cannot be opened.
EXPORT const char* torch_halyard_device_info(int index) {
  try {
    hy_device_info info = {};
    info.size = sizeof info;
    hy_device* device = device_at(index);
    check(hy_device_describe(device, &info));
    std::ostringstream out;
    out << "{\"name\":" << quoted(info.name)
        << ",\"selector\":" << quoted(hy_device_selector(device))
        << ",\"backend\":" << quoted(hy_device_backend(device))
        << ",\"total_memory\":" << info.memory_total
        << ",\"multi_processor_count\":" << info.core_count << ",\"major\":" << info.compute_major
        << ",\"minor\":" << info.compute_minor << ",\"dtypes\":" << info.dtypes
        << ",\"driver\":" << quoted(info.driver_version)
        << ",\"host_memory\":" << (is_host(index) ? "true" : "false") << '}';
    return keep(out.str());
  } catch (const c10::Error&) {
    return keep("");
  }
}

// ---- the default generator of a device ----

EXPORT void torch_halyard_manual_seed(int device, uint64_t seed) {
  auto generator = default_generator(device);
  std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_current_seed(seed);
}

EXPORT uint64_t torch_halyard_initial_seed(int device) {
  return default_generator(device).current_seed();
}

EXPORT uint64_t torch_halyard_get_offset(int device) {
  return default_generator(device).get_offset();
}

EXPORT void torch_halyard_set_offset(int device, uint64_t offset) {
  auto generator = default_generator(device);
  std::lock_guard<std::mutex> lock(generator.mutex());
  generator.unsafeGetGeneratorImpl()->set_offset(offset);
}
