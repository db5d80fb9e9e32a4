// Device and pinned memory for PyTorch, from Halyard's caching allocator.
#pragma once

#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>

namespace halyard_torch {

c10::DeviceAllocator* device_allocator();
at::HostAllocator* host_allocator();
bool is_pinned(const void* address);

// Tells the allocator that memory is also used on `stream`.
void record_stream(const c10::DataPtr& data, c10::Stream stream);

}  // namespace halyard_torch
