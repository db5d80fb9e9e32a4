// Devices and streams: the list of devices, the current ones of each thread, and Halyard's failures
// as exceptions.
#include "runtime.h"

#include <pthread.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <deque>
#include <memory>
#include <sstream>
#include <vector>

namespace halyard_torch {
namespace {

constexpr int kPooledStreams = 8;

struct DeviceSlot {
  std::string selector;
  std::atomic<hy_device*> handle{nullptr};
  bool host = false;
  std::mutex mutex;  // guards opening and the list of streams
  std::deque<StreamSlot> streams;
  int next_pooled = 0;
};

struct DeviceList {
  std::array<DeviceSlot, kMaxDevices> devices;
  int count = 0;
  std::string absence;
};

std::atomic<bool> g_opened{false}, g_bad_fork{false};
thread_local int t_device = 0;
thread_local std::array<c10::StreamId, kMaxDevices> t_stream{};

std::vector<std::string> split(const char* text) {
  std::vector<std::string> words;
  std::stringstream stream(text);
  for (std::string word; std::getline(stream, word, ',');)
    if (!word.empty()) words.push_back(word);
  return words;
}

// The selectors of all devices of the default device's backend, that device first.
std::vector<std::string> default_selectors() {
  hy_device* device = nullptr;
  if (hy_device_get(nullptr, &device) != HY_OK) return {};
  hy_backend_report report;
  if (hy_backend_find(hy_device_backend(device), &report) != HY_OK) return {};
  std::vector<std::string> selectors{hy_device_selector(device)};
  for (int i = 0; i < report.device_count; i++)
    if (i != hy_device_index(device))
      selectors.push_back(std::string(report.name) + ":" + std::to_string(i));
  return selectors;
}

DeviceList* make_list() {
  auto* list = new DeviceList;  // lives as long as the process: tensors are freed while it ends
  const char* named = std::getenv("HALYARD_DEVICES");
  auto selectors = named && *named ? split(named) : default_selectors();
  if (selectors.size() > kMaxDevices) selectors.resize(kMaxDevices);
  for (auto& selector : selectors) {
    hy_device* device = nullptr;
    if (hy_device_get(selector.c_str(), &device) != HY_OK) {
      list->absence = hy_last_error();
      list->count = 0;
      return list;
    }
    list->devices[list->count].selector = selector;
    list->devices[list->count++].host = hy_device_is_host(device);
  }
  if (list->count == 0) list->absence = hy_last_error();
  pthread_atfork(nullptr, nullptr, [] {
    if (g_opened) g_bad_fork = true;
  });
  return list;
}

DeviceList& device_list() {
  static DeviceList* list = make_list();
  return *list;
}

DeviceSlot& slot_at(int index) {
  auto& list = device_list();
  TORCH_CHECK(index >= 0 && index < list.count, "there is no device ", index, "; ",
              list.count ? "there are " + std::to_string(list.count)
                         : "none is available: " + list.absence);
  return list.devices[index];
}

DeviceSlot& open_slot(int index) {
  auto& slot = slot_at(index);
  if (C10_LIKELY(slot.handle.load(std::memory_order_acquire) != nullptr)) return slot;
  TORCH_CHECK(!in_bad_fork(), "Cannot use ", slot.selector,
              " in a forked process: its parent had opened it. Use the 'spawn' start method.");
  std::lock_guard<std::mutex> lock(slot.mutex);
  if (slot.handle.load()) return slot;
  hy_device* device = nullptr;
  check(hy_device_get(slot.selector.c_str(), &device));
  slot.streams.emplace_back();
  check(hy_stream_default(device, &slot.streams.back().handle));
  g_opened = true;
  slot.handle.store(device, std::memory_order_release);
  return slot;
}

}  // namespace

int device_count() noexcept {
  try {
    return device_list().count;
  } catch (...) {
    return 0;
  }
}

const std::string& absence() {
  return device_list().absence;
}

hy_device* device_at(int index) {
  return open_slot(index).handle.load(std::memory_order_relaxed);
}

bool device_is_open(int index) {
  return slot_at(index).handle.load() != nullptr;
}

bool is_host(int index) {
  return device_list().devices[index].host;
}

int current_device() noexcept {
  return t_device;
}

void set_current_device(int index) {
  slot_at(index);
  t_device = index;
}

int exchange_device(int index) {
  int before = t_device;
  if (index >= 0 && index != before) set_current_device(index);
  return before;
}

c10::Stream current_stream(int device) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(kType, device), t_stream[device]);
}

c10::Stream exchange_stream(c10::Stream stream) {
  int device = stream.device_index();
  stream_slot(device, stream.id());
  auto before = current_stream(device);
  t_stream[device] = stream.id();
  return before;
}

c10::Stream new_stream(int device) {
  auto& slot = open_slot(device);
  hy_stream* handle = nullptr;
  check(hy_stream_create(slot.handle, &handle));
  std::lock_guard<std::mutex> lock(slot.mutex);
  slot.streams.emplace_back();
  slot.streams.back().handle = handle;
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(kType, device), slot.streams.size() - 1);
}

c10::Stream pooled_stream(int device) {
  auto& slot = open_slot(device);
  {
    std::lock_guard<std::mutex> lock(slot.mutex);
    int next = slot.next_pooled++ % kPooledStreams + 1;
    if (next < (int)slot.streams.size())
      return c10::Stream(c10::Stream::UNSAFE, c10::Device(kType, device), next);
  }
  return new_stream(device);
}

StreamSlot& stream_slot(int device, c10::StreamId id) {
  auto& slot = open_slot(device);
  if (C10_LIKELY(id == 0)) return slot.streams.front();
  std::lock_guard<std::mutex> lock(slot.mutex);
  TORCH_CHECK(id > 0 && id < (int64_t)slot.streams.size(), "there is no stream ", id, " on ",
              slot.selector);
  return slot.streams[id];
}

StreamSlot& current_slot(int device) {
  return stream_slot(device, t_stream[device]);
}

void raise(hy_status status) {
  const char* message = hy_last_error();
  switch (status) {
    case HY_OUT_OF_MEMORY: TORCH_CHECK_WITH(OutOfMemoryError, false, message);
    case HY_INDEX: TORCH_CHECK_INDEX(false, message);
    case HY_UNSUPPORTED: TORCH_CHECK_NOT_IMPLEMENTED(false, message);
    default: TORCH_CHECK(false, message);
  }
}

bool in_bad_fork() noexcept {
  return g_bad_fork;
}

}  // namespace halyard_torch
