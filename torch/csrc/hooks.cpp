// Accelerator hooks: what ATen asks of the device without knowing it.
#include <ATen/ATen.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>

#include "allocator.h"
#include "generator.h"
#include "runtime.h"
#include "storage.h"

namespace halyard_torch {
namespace {

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return device_count() > 0; }
  bool hasPrimaryContext(c10::DeviceIndex device) const override {
    return device >= 0 && device < device_count() && device_is_open(device);
  }
  c10::DeviceIndex deviceCount() const override {
    return static_cast<c10::DeviceIndex>(device_count());
  }
  void setCurrentDevice(c10::DeviceIndex device) const override { set_current_device(device); }
  c10::DeviceIndex getCurrentDevice() const override {
    return static_cast<c10::DeviceIndex>(current_device());
  }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    return static_cast<c10::DeviceIndex>(exchange_device(device));
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override {
    return exchangeDevice(device);
  }

  bool isPinnedPtr(const void* address) const override { return is_pinned(address); }
  at::Allocator* getPinnedMemoryAllocator() const override { return host_allocator(); }
  // An address alone does not say which of several devices it belongs to.
  at::Device getDeviceFromPtr(void*) const override {
    return {kType, static_cast<c10::DeviceIndex>(current_device())};
  }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex device) const override {
    return default_generator(device);
  }
  at::Generator getNewGenerator(c10::DeviceIndex device) const override {
    return at::make_generator<PhiloxGenerator>(device < 0 ? current_device() : device);
  }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    resize_storage(storage, bytes);
  }
};

Hooks g_hooks;

struct Register {
  Register() {
    at::RegisterPrivateUse1HooksInterface(&g_hooks);
    at::setHostAllocator(kType, host_allocator());
  }
} g_register;

}  // namespace
}  // namespace halyard_torch
