// Shapes of models that commands make without a file.
#ifndef HALYARD_MODEL_SHAPES_H_
#define HALYARD_MODEL_SHAPES_H_

#include "model/config.h"

extern const hy__config shape_qwen2_half_billion;

// The demo's models, from the smallest; each wants to see so many tokens before it is worth its
// size.
typedef struct demo_size {
  const char* name;
  int64_t hidden, layers, heads, kv_heads, intermediate, tokens;
} demo_size;
enum { DEMO_SIZES = 4, DEMO_MEDIUM = 1, DEMO_MERGES = 1277 };
extern const demo_size demo_sizes[DEMO_SIZES];
// With a tokenizer of so many merges.
hy__config demo_config(const demo_size* size, int n_merges);

#endif  // HALYARD_MODEL_SHAPES_H_
