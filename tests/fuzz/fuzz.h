// Fuzz targets. Each is one function in libFuzzer's form; replay.c drives it in the tests with
// inputs made from a seed, or with files named on the command line. With clang's fuzzer:
//
//   CC=clang-14 cmake -B build/fuzz -DHALYARD_BUILD_TESTS=ON -DHALYARD_FUZZER=ON && cmake --build
//   build/fuzz build/fuzz/bin/fuzz_call -max_total_time=3600
#ifndef HALYARD_TESTS_FUZZ_H_
#define HALYARD_TESTS_FUZZ_H_

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

// Takes values from the input's front; zeros once it is used up.
typedef struct fuzz_input {
  const uint8_t* data;
  size_t size;
} fuzz_input;

static inline uint8_t fuzz_byte(fuzz_input* in) {
  if (in->size == 0) return 0;
  in->size--;
  return *in->data++;
}

static inline uint64_t fuzz_bits(fuzz_input* in, int bytes) {
  uint64_t value = 0;
  for (int i = 0; i < bytes; i++) value = value << 8 | fuzz_byte(in);
  return value;
}

#endif  // HALYARD_TESTS_FUZZ_H_
