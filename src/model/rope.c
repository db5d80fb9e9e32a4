// Rotary positions: frequencies and their tables, computed on the host.
#include "model/rope.h"

#include <math.h>

#include "base/memory.h"

static double frequency_of(const hy__config* c, int64_t i) {
  double frequency = pow(c->rope_theta, -2.0 * (double)i / (double)c->head_dim);
  if (c->rope == HY__ROPE_DEFAULT) return frequency;
  if (c->rope == HY__ROPE_LINEAR) return frequency / c->rope_factor;
  // Llama 3: waves longer than the original context are stretched, short ones kept, those between
  // blended.
  double wave = 2 * 3.14159265358979323846 / frequency,
         original = (double)c->rope_original_positions;
  if (wave < original / c->rope_high_factor) return frequency;
  if (wave > original / c->rope_low_factor) return frequency / c->rope_factor;
  double smooth =
      (original / wave - c->rope_low_factor) / (c->rope_high_factor - c->rope_low_factor);
  return (1 - smooth) * frequency / c->rope_factor + smooth * frequency;
}

static void fill_tables(const hy__config* c, int64_t rows, float* cosines, float* sines) {
  int64_t half = c->head_dim / 2;
  for (int64_t j = 0; j < half; j++) {
    // In float, as the models were trained: the frequency rounds before it meets the position.
    float frequency = (float)frequency_of(c, j);
    for (int64_t i = 0; i < rows; i++) {
      float angle = (float)i * frequency;
      cosines[i * half + j] = (float)cos(angle);
      sines[i * half + j] = (float)sin(angle);
    }
  }
}

hy_status hy__rope_reserve(hy_stream* stream, const hy__config* c, int64_t rows, hy__rope* rope) {
  if (rows <= rope->rows) return HY_OK;
  if (rows < 2 * rope->rows) rows = 2 * rope->rows;
  const int64_t half = c->head_dim / 2, shape[2] = {rows, half};
  float* host = hy__malloc((size_t)(2 * rows * half) * sizeof *host);
  if (!host)
    return hy_fail(HY_OUT_OF_MEMORY, "no memory for the rotary positions of %lld tokens",
                   (long long)rows);
  fill_tables(c, rows, host, host + rows * half);
  hy__rope fresh = {.rows = rows};
  hy_status status = hy_array_from_host(stream, &fresh.cos, HY_F32, 2, shape, host);
  if (status == HY_OK)
    status = hy_array_from_host(stream, &fresh.sin, HY_F32, 2, shape, host + rows * half);
  hy__mfree(host);
  hy__rope old = status == HY_OK ? *rope : fresh;
  if (status == HY_OK) *rope = fresh;
  hy__rope_release(&old);
  return status;
}

void hy__rope_release(hy__rope* rope) {
  hy_array_release(rope->cos);
  hy_array_release(rope->sin);
  *rope = (hy__rope){0};
}

hy_array* hy__rope_at(hy_scope* s, hy_array* table, hy_array* positions) {
  hy_array* rows = hy_s_index_select(s, table, positions, 0);
  return hy_s_view(s, rows, HY_SIZES(-1, 1, hy_s_size(s, table, 1)));
}

void hy__rope_both(hy_scope* s, const hy__rope* rope, hy_array* positions, hy_array** cos,
                   hy_array** sin) {
  int64_t half = hy_s_size(s, rope->cos, 1);
  if (hy_s_size(s, positions, 0) != 1) {
    *cos = hy__rope_at(s, rope->cos, positions);
    *sin = hy__rope_at(s, rope->sin, positions);
    return;
  }
  hy_array *both = hy_s_empty(s, HY_F32, HY_SIZES(2, half)), *const tables[2] = {rope->cos,
                                                                                 rope->sin};
  hy_array** const rows[2] = {cos, sin};
  for (int i = 0; i < 2; i++) {
    hy_array* row = hy_s_slice(s, both, 0, i, i + 1, 1);
    hy_s_apply_into(s, HY_OP_index_select, (hy_array*[]){tables[i], positions}, 2,
                    &(hy_attrs){.dim = {0}}, row);
    *rows[i] = hy_s_view(s, row, HY_SIZES(1, 1, half));
  }
}
