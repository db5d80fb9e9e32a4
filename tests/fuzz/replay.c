// Runs a fuzz target without a fuzzer: on the files named, or on inputs made from a seed.
//
//   fuzz_call [--runs N] [--seed S] [FILE ...]
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz/fuzz.h"

static uint64_t state;
static uint64_t next_random(void) {
  state += 0x9e3779b97f4a7c15ull;
  uint64_t z = state;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ z >> 27) * 0x94d049bb133111ebull;
  return z ^ z >> 31;
}

static int replay_file(const char* path) {
  static uint8_t bytes[1 << 20];
  FILE* file = fopen(path, "rb");
  if (!file) {
    perror(path);
    return 1;
  }
  size_t size = fread(bytes, 1, sizeof bytes, file);
  fclose(file);
  LLVMFuzzerTestOneInput(bytes, size);
  return 0;
}

int main(int argc, char** argv) {
  long runs = 20000;
  uint64_t seed = 1;
  int files = 0, failed = 0;
  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], "--runs") == 0 && i + 1 < argc)
      runs = atol(argv[++i]);
    else if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc)
      seed = strtoull(argv[++i], NULL, 10);
    else
      failed |= replay_file(argv[i]), files++;
  }
  if (files > 0) return failed;
  static uint8_t bytes[512];
  for (long run = 0; run < runs; run++) {
    state = seed * 1000003 + (uint64_t)run;
    size_t size = next_random() % sizeof bytes;
    // Half of the inputs are mostly small numbers, which reach deeper than noise does.
    int small = next_random() % 2;
    for (size_t i = 0; i < size; i++)
      bytes[i] = (uint8_t)(small ? next_random() % 5 : next_random());
    LLVMFuzzerTestOneInput(bytes, size);
  }
  printf("%ld inputs from seed %llu\n", runs, (unsigned long long)seed);
  return 0;
}
