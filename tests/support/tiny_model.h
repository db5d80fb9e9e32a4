// The smallest models, with random weights.
#ifndef HALYARD_TESTS_SUPPORT_TINY_MODEL_H_
#define HALYARD_TESTS_SUPPORT_TINY_MODEL_H_

#include "model/arch/arch.h"

static inline hy__config tiny_config(const hy__arch* arch, int64_t width, hy_dtype dtype) {
  return (hy__config){.arch = arch,
                      .head_norm = arch == &hy__arch_qwen3,
                      .vocab_size = 20,
                      .hidden_size = width,
                      .intermediate_size = width,
                      .n_layers = 1,
                      .n_heads = 2,
                      .n_kv_heads = 1,
                      .head_dim = width / 2,
                      .max_positions = 64,
                      .norm_eps = 1e-6,
                      .dtype = dtype,
                      .rope_theta = 10000};
}

#endif  // HALYARD_TESTS_SUPPORT_TINY_MODEL_H_
