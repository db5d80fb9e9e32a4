// A transformer in the op table's fused rows: a decoding step, one new token a sequence, and a
// prompt. Positions and block tables are on the device.
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

// Whether the device has kernels for a prompt of this model in fused rows.
bool hy__prompt_is_fused(const hy__transformer* model);
// The logits behind the last tokens of the pass, (B, V) f32, where it has; cos and sin reach as far
// as the positions do. Reads nothing of the host but `options`, whose on_progress is asked between
// layers; NULL: nobody is.
hy_array* hy__prompt_logits(hy_scope* s, const hy__transformer* model, const hy__rope* rope,
                            const hy__kv_pass* pass, const struct hy_generate_options* options);

#endif  // HALYARD_MODEL_DECODE_BLOCK_H_
