// Levels of instructions for tests of the cpu's kernels: each is what the processor has of the
// feature bits up to it, so that a level it lacks repeats the one below.
#ifndef HALYARD_TESTS_ISA_LEVELS_H_
#define HALYARD_TESTS_ISA_LEVELS_H_

#include "backends/cpu/family.h"
#include "backends/cpu/runtime/isa.h"

// ISA_AVX512_BASE: without the instructions that came after the first processors with AVX-512.
typedef enum isa_level { ISA_SCALAR, ISA_AVX2, ISA_AVX512_BASE, ISA_AVX512, ISA_LEVELS } isa_level;

static inline uint32_t isa_up_to(isa_level level) {
  const uint32_t bits[ISA_LEVELS] = {0, HY__ISA_NEON | HY__ISA_AVX2,
                                     HY__ISA_NEON | HY__ISA_AVX2 | HY__ISA_AVX512, ~(uint32_t)0};
  return hy__cpu_isa() & bits[level];
}

static inline const hy__cpu_kernels* kernels_up_to(isa_level level) {
  static hy__cpu_kernels tables[ISA_LEVELS];
  hy__cpu_kernels_init(&tables[level], isa_up_to(level));
  return &tables[level];
}

#endif  // HALYARD_TESTS_ISA_LEVELS_H_
