// Random number generator: a Philox seed and the number of blocks drawn so far.
#pragma once

#include <ATen/core/Generator.h>

namespace halyard_torch {

struct Draw {
  uint64_t seed, offset;
};

class PhiloxGenerator final : public c10::GeneratorImpl {
 public:
  explicit PhiloxGenerator(int device, uint64_t seed = c10::default_rng_seed_val);
  static c10::DeviceType device_type() { return c10::DeviceType::PrivateUse1; }

  void set_current_seed(uint64_t seed) override;
  void set_offset(uint64_t offset) override { offset_ = offset; }
  uint64_t get_offset() const override { return offset_; }
  uint64_t current_seed() const override { return seed_; }
  uint64_t seed() override;
  // 16 bytes: the seed, then the offset.
  void set_state(const c10::TensorImpl& state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;

  // The place of the next `count` numbers, four to a block.
  Draw draw(int64_t count);

 private:
  PhiloxGenerator* clone_impl() const override;
  uint64_t seed_, offset_ = 0;
};

const at::Generator& default_generator(int device);
// The generator asked for, or the device's own. Takes its lock.
Draw draw(const std::optional<at::Generator>& generator, int device, int64_t count);

}  // namespace halyard_torch
