// Learns the merges of a byte-pair encoding from a text.
#ifndef HALYARD_MODEL_BPE_TRAIN_H_
#define HALYARD_MODEL_BPE_TRAIN_H_

#include <stddef.h>
#include <stdint.h>

#include "halyard/status.h"

// The tokens of numbers `left` and `right` become one. Numbers below 256 are bytes, 256 + i is the
// i-th merge.
typedef struct hy__bpe_merge {
  int32_t left, right;
} hy__bpe_merge;

enum { HY__MAX_MERGES = 4096 };

// Takes the commonest pair, again and again, until there are `wanted` merges or none that stands
// there twice. Merges stay inside of what `pattern` matches. Ties go to the lower numbers. Memory
// grows with the square of the vocabulary.
hy_status hy__bpe_train(const char* text, size_t length, const char* pattern, int wanted,
                        hy__bpe_merge* merges, int* count);

#endif  // HALYARD_MODEL_BPE_TRAIN_H_
