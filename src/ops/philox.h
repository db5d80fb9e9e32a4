// Philox4x32-10: random bits as a function of a key and a counter (Salmon et al., "Parallel random
// numbers: as easy as 1, 2, 3", 2011). No state, so every element of a tensor finds its own bits.
#ifndef HALYARD_OPS_PHILOX_H_
#define HALYARD_OPS_PHILOX_H_

#include <stdint.h>

typedef struct hy__philox_block {
  uint32_t word[4];
} hy__philox_block;

static inline hy__philox_block hy__philox(hy__philox_block counter, uint32_t key0, uint32_t key1) {
  for (int round = 0; round < 10; round++) {
    uint64_t a = (uint64_t)0xd2511f53u * counter.word[0];
    uint64_t b = (uint64_t)0xcd9e8d57u * counter.word[2];
    counter = (hy__philox_block){{(uint32_t)(b >> 32) ^ counter.word[1] ^ key0, (uint32_t)b,
                                  (uint32_t)(a >> 32) ^ counter.word[3] ^ key1, (uint32_t)a}};
    key0 += 0x9e3779b9u;
    key1 += 0xbb67ae85u;
  }
  return counter;
}

// Block number `block` of the sequence that belongs to `seed`: the seed's low and high halves are
// the key, the number's low and high halves the first two words of the counter, the others are 0.
static inline hy__philox_block hy__philox_at(uint64_t seed, uint64_t block) {
  hy__philox_block counter = {{(uint32_t)block, (uint32_t)(block >> 32), 0, 0}};
  return hy__philox(counter, (uint32_t)seed, (uint32_t)(seed >> 32));
}

#endif  // HALYARD_OPS_PHILOX_H_
