// Random number generator: Philox by counter, so that the numbers do not depend on the device.
#include "generator.h"

#include <ATen/ATen.h>
#include <ATen/core/GeneratorForPrivateuseone.h>

#include <array>

#include "runtime.h"

namespace halyard_torch {

PhiloxGenerator::PhiloxGenerator(int device, uint64_t seed)
    : c10::GeneratorImpl(c10::Device(kType, static_cast<c10::DeviceIndex>(device)),
                         c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
      seed_(seed) {}

void PhiloxGenerator::set_current_seed(uint64_t seed) {
  seed_ = seed;
  offset_ = 0;
}

uint64_t PhiloxGenerator::seed() {
  set_current_seed(c10::detail::getNonDeterministicRandom());
  return seed_;
}

c10::intrusive_ptr<c10::TensorImpl> PhiloxGenerator::get_state() const {
  auto state = at::detail::empty_cpu({16}, at::kByte, {}, {}, {}, {});
  memcpy(state.mutable_data_ptr(), &seed_, 8);
  memcpy(static_cast<char*>(state.mutable_data_ptr()) + 8, &offset_, 8);
  return state.getIntrusivePtr();
}

void PhiloxGenerator::set_state(const c10::TensorImpl& state) {
  at::detail::check_rng_state(state);
  TORCH_CHECK(state.numel() == 16, "the state of this generator has 16 bytes, not ", state.numel());
  auto* bytes = static_cast<const char*>(state.data());
  memcpy(&seed_, bytes, 8);
  memcpy(&offset_, bytes + 8, 8);
}

PhiloxGenerator* PhiloxGenerator::clone_impl() const {
  auto* copy = new PhiloxGenerator(device().index(), seed_);
  copy->offset_ = offset_;
  return copy;
}

Draw PhiloxGenerator::draw(int64_t count) {
  Draw here{seed_, offset_};
  offset_ += (static_cast<uint64_t>(count) + 3) / 4;
  return here;
}

const at::Generator& default_generator(int device) {
  static auto* generators = [] {
    auto* made = new std::array<at::Generator, kMaxDevices>;
    for (int i = 0; i < kMaxDevices; i++) (*made)[i] = at::make_generator<PhiloxGenerator>(i);
    return made;
  }();
  return generators->at(device < 0 ? current_device() : device);
}

Draw draw(const std::optional<at::Generator>& generator, int device, int64_t count) {
  auto* impl = at::get_generator_or_default<PhiloxGenerator>(generator, default_generator(device));
  std::lock_guard<std::mutex> lock(impl->mutex_);
  return impl->draw(count);
}

}  // namespace halyard_torch
