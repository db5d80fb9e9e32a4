// The smallest model of an architecture, for fuzz targets.
#ifndef HALYARD_TESTS_FUZZ_TINY_H_
#define HALYARD_TESTS_FUZZ_TINY_H_

#include <stdio.h>

#include "model/arch/arch.h"

static inline void must(hy_status status) {
  if (status == HY_OK) return;
  fprintf(stderr, "%s\n", hy_last_error());
  __builtin_trap();
}

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

#endif  // HALYARD_TESTS_FUZZ_TINY_H_
