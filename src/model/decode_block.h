// A transformer's decoding step: one new token a sequence, positions and block tables on the
// device.
#ifndef HALYARD_MODEL_DECODE_BLOCK_H_
#define HALYARD_MODEL_DECODE_BLOCK_H_

#include "model/kv_cache.h"
#include "model/rope.h"

typedef struct hy__decode_state {
  hy__kv_cache* cache;
  const hy__rope* rope;
  hy_array *tokens, *lengths;  // (B) i64; lengths count the new token
  hy_array* table;             // (B, blocks) i64
  hy_array* starts;            // (B + 1) i64: 0, 1, 2 ...
} hy__decode_state;

// tokens -> logits (B, V) f32. Reads nothing of the host, so that it can be captured.
hy_array* hy__decode_logits(hy_scope* s, const hy__transformer* model, const hy__decode_state* d);

#endif  // HALYARD_MODEL_DECODE_BLOCK_H_
