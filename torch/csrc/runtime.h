// Devices and streams of the PyTorch device over Halyard's: npu:i is entry i of a list made once, a
// torch stream id is the place of a hy_stream in its device's pool, 0 the default stream.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>
#include <c10/util/Exception.h>

#include <mutex>
#include <string>

#include "halyard/halyard.h"

namespace halyard_torch {

constexpr c10::DeviceType kType = c10::DeviceType::PrivateUse1;
constexpr int kMaxDevices = 16;

// A stream takes calls of one thread at a time: hold `mutex` while calling Halyard with `handle`.
struct StreamSlot {
  hy_stream* handle = nullptr;
  std::mutex mutex;
};

// How many devices there are; 0 where none can be had. Never throws. The list is HALYARD_DEVICES,
// else all devices of the default backend (HALYARD_BACKEND, else the library's choice).
int device_count() noexcept;
// Why device_count() is 0; empty otherwise.
const std::string& absence();
hy_device* device_at(int index);  // opens it when first asked for
bool device_is_open(int index);
bool is_host(int index);  // the host may follow its addresses, and calls finish before they return

int current_device() noexcept;
void set_current_device(int index);
int exchange_device(int index);

c10::Stream current_stream(int device);
c10::Stream exchange_stream(c10::Stream stream);
c10::Stream new_stream(int device);
c10::Stream pooled_stream(int device);  // one of a few that are handed out in turn
StreamSlot& stream_slot(int device, c10::StreamId id);
StreamSlot& current_slot(int device);

// Throws what PyTorch expects: OutOfMemoryError, IndexError, NotImplementedError, else RuntimeError
// with Halyard's message.
[[noreturn]] void raise(hy_status status);
inline void check(hy_status status) {
  if (C10_UNLIKELY(status != HY_OK)) raise(status);
}

// True in a child process of one that had opened a device: there, nothing of the device may be
// touched.
bool in_bad_fork() noexcept;

}  // namespace halyard_torch
