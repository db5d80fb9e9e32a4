// Rotary positions (RoPE): tables of cos and sin, with the scalings that config.json may ask for.
#ifndef HALYARD_MODEL_ROPE_H_
#define HALYARD_MODEL_ROPE_H_

#include "halyard/scope.h"
#include "model/config.h"

// cos and sin of positions 0 .. rows - 1, (rows, E / 2) f32: on the device once, and there indexed
// by the positions of a pass. Zeroed is an empty one.
typedef struct hy__rope {
  hy_array *cos, *sin;
  int64_t rows;
} hy__rope;

// At least `rows`; on failure nothing has changed.
hy_status hy__rope_reserve(hy_stream* stream, const hy__config* config, int64_t rows,
                           hy__rope* rope);
void hy__rope_release(hy__rope* rope);
// Rows of one of the two at `positions` (N) i64, as (N, 1, E / 2): for all heads of a token.
hy_array* hy__rope_at(hy_scope* s, hy_array* table, hy_array* positions);
// Rows of both. Those of a single token are consecutive, as hardware wants them that takes
// them as one row.
void hy__rope_both(hy_scope* s, const hy__rope* rope, hy_array* positions, hy_array** cos,
                   hy_array** sin);

#endif  // HALYARD_MODEL_ROPE_H_
