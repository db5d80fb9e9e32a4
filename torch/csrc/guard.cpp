// Device guard: current device, streams and events, as c10 asks for them.
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/csrc/api/include/torch/version.h>

#include "allocator.h"
#include "autograd.h"
#include "runtime.h"
#include "stream_error.h"
#include "types.h"

namespace halyard_torch {
namespace {

struct GuardImpl final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kType; }
  c10::Device exchangeDevice(c10::Device device) const override {
    return {kType, static_cast<c10::DeviceIndex>(exchange_device(device.index()))};
  }
  c10::Device getDevice() const override {
    return {kType, static_cast<c10::DeviceIndex>(current_device())};
  }
  void setDevice(c10::Device device) const override { exchange_device(device.index()); }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    try {
      exchange_device(device.index());
    } catch (...) {
    }
  }
  c10::DeviceIndex deviceCount() const noexcept override {
    return static_cast<c10::DeviceIndex>(device_count());
  }

  // ---- streams ----
  c10::Stream getStream(c10::Device device) const override {
    return current_stream(index_of(device));
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT, c10::Device(kType, index_of(device)));
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    return pooled_stream(index_of(device));
  }
  c10::Stream getNewStream(c10::Device device, int) const override {
    return new_stream(index_of(device));
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    note_backward();
    return exchange_stream(stream);
  }
  bool queryStream(const c10::Stream& stream) const override {
    auto& slot = slot_of(stream);
    std::lock_guard<std::mutex> lock(slot.mutex);
    return ready(hy_stream_query(slot.handle));
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    auto& slot = slot_of(stream);
    std::lock_guard<std::mutex> lock(slot.mutex);
    check_on(slot, hy_stream_sync(slot.handle));
  }
  void synchronizeDevice(const c10::DeviceIndex device) const override {
    check(hy_device_sync(device_at(device)));
    synchronizeStream(current_stream(device));  // which tells the errors of its work
  }

  // ---- events ----
  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex device,
              const c10::EventFlag) const override {
    TORCH_CHECK(device == -1 || device == stream.device_index(), "an event of device ", (int)device,
                " cannot be recorded on a stream of device ", (int)stream.device_index());
    if (!*event) {
      hy_event* made = nullptr;
      check(hy_event_create(device_at(stream.device_index()), &made));
      *event = made;
    }
    auto& slot = slot_of(stream);
    std::lock_guard<std::mutex> lock(slot.mutex);
    check(hy_event_record(static_cast<hy_event*>(*event), slot.handle));
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (!event) return;
    auto& slot = slot_of(stream);
    std::lock_guard<std::mutex> lock(slot.mutex);
    check(hy_stream_wait_event(slot.handle, static_cast<hy_event*>(event)));
  }
  bool queryEvent(void* event) const override {
    return !event || ready(hy_event_query(static_cast<hy_event*>(event)));
  }
  void synchronizeEvent(void* event) const override {
    if (event) check(hy_event_sync(static_cast<hy_event*>(event)));
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    if (event && !in_bad_fork()) hy_event_destroy(static_cast<hy_event*>(event));
  }
  double elapsedTime(void* start, void* stop, const c10::DeviceIndex) const override {
    TORCH_CHECK(start && stop, "Both events must be recorded before calculating elapsed time.");
    double milliseconds = 0;
    check(hy_event_elapsed(static_cast<hy_event*>(start), static_cast<hy_event*>(stop),
                           &milliseconds));
    return milliseconds;
  }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    record_stream(data, stream);
  }

#if TORCH_VERSION_MINOR >= 10
  c10::DeviceCapability getDeviceCapability(c10::Device device) const override {
    c10::DeviceCapability capability;
    uint64_t bits = 0;
    for (int i = 0; i < static_cast<int>(c10::ScalarType::NumOptions) && i < 64; i++) {
      hy_dtype dtype = dtype_of(static_cast<c10::ScalarType>(i));
      if (dtype != HY_NONE && hy_device_supports_dtype(device_at(index_of(device)), dtype))
        bits |= uint64_t{1} << i;
    }
    capability.capability_data.capability_bits = bits;
    return capability;
  }
#endif
#if TORCH_VERSION_MINOR >= 11
  void* getStreamNativeHandle(const c10::Stream stream) const override {
    return slot_of(stream).handle;
  }
#endif
#if TORCH_VERSION_MINOR >= 12
  bool isStreamCapturing(const c10::Stream& stream) const override {
    return hy_stream_is_capturing(slot_of(stream).handle);
  }
#endif

 private:
  static c10::DeviceIndex index_of(c10::Device device) {
    return static_cast<c10::DeviceIndex>(device.has_index() ? device.index() : current_device());
  }
  static StreamSlot& slot_of(const c10::Stream& stream) {
    return stream_slot(stream.device_index(), stream.id());
  }
  static bool ready(hy_status status) {
    if (status == HY_NOT_READY) return false;
    check(status);
    return true;
  }
};

}  // namespace

C10_REGISTER_GUARD_IMPL(PrivateUse1, GuardImpl);

}  // namespace halyard_torch
