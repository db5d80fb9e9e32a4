// echo_copy.c - the copy engine: linear and strided copies, fill, gather, scatter-add.
#include <string.h>

#include "echo_float.h"
#include "echo_npu_hw.h"
#include "echo_units.h"

static void copy_row(char* d, int64_t step_d, const char* s, int64_t step_s, int64_t n,
                     uint32_t size) {
  if (step_d == 1 && step_s == 1) {
    memmove(d, s, (size_t)n * size);
    return;
  }
  switch (size) {
    case 1:
      for (int64_t j = 0; j < n; ++j) d[j * step_d] = s[j * step_s];
      break;
    case 2:
      for (int64_t j = 0; j < n; ++j) ((uint16_t*)d)[j * step_d] = ((const uint16_t*)s)[j * step_s];
      break;
    default:
      for (int64_t j = 0; j < n; ++j) ((uint32_t*)d)[j * step_d] = ((const uint32_t*)s)[j * step_s];
  }
}

// Walks the dimension with the smaller destination stride innermost, in tiles of 64 rows so that a
// transpose stays in the cache.
static void copy_strided(const echo_command* c, const char* s, char* d) {
  int64_t rows = c->p[0], cols = c->p[1], sr = c->p[2], sc = c->p[3], dr = c->p[4], dc = c->p[5];
  const uint32_t size = echo_type_size(c->type_dst);
  if (rows > 1 && (cols == 1 || dr < dc)) {
    int64_t t = rows;
    rows = cols, cols = t;
    t = sr, sr = sc, sc = t;
    t = dr, dr = dc, dc = t;
  }
  const int64_t block = sc == 1 ? cols : 256;
  for (int64_t j = 0; j < cols; j += block)
    for (int64_t i = 0; i < rows; ++i)
      copy_row(d + (i * dr + j * dc) * size, dc, s + (i * sr + j * sc) * size, sc,
               cols - j < block ? cols - j : block, size);
}

static void fill(const echo_command* c, char* d) {
  const int64_t rows = c->p[0], cols = c->p[1], dr = c->p[4], dc = c->p[5];
  const uint32_t size = echo_type_size(c->type_dst), value = c->p[ECHO_NPU_P_PATTERN];
  for (int64_t i = 0; i < rows; ++i) {
    char* row = d + i * dr * size;
    switch (size) {
      case 1:
        if (dc == 1)
          memset(row, (int)(value & 0xff), (size_t)cols);
        else
          for (int64_t j = 0; j < cols; ++j) row[j * dc] = (char)value;
        break;
      case 2:
        for (int64_t j = 0; j < cols; ++j) ((uint16_t*)row)[j * dc] = (uint16_t)value;
        break;
      default:
        for (int64_t j = 0; j < cols; ++j) ((uint32_t*)row)[j * dc] = value;
    }
  }
}

static void scatter_add_row(const echo_context* x, const echo_command* c, const char* s, char* d) {
  const int64_t cols = c->p[ECHO_NPU_P_COLS];
  echo_lanes* lanes = &x->scratch->lanes;
  const uint32_t add = ECHO_NPU_UOP_ADD | 0u << 5 | 0u << 9 | 1u << 23;  // R0 = R0 + R1
  for (int64_t j = 0; j < cols; j += ECHO_BLOCK) {
    int n = (int)(cols - j < ECHO_BLOCK ? cols - j : ECHO_BLOCK);
    x->kernels->load(lanes->r[0], s + j * echo_type_size(c->type1), c->type1, n);
    x->kernels->load(lanes->r[1], d + j * 4, ECHO_NPU_F32, n);
    x->kernels->run(lanes, &add, 1, NULL, n);
    x->kernels->store(d + j * 4, lanes->r[0], ECHO_NPU_F32, n);
  }
}

static echo_fault by_index(const echo_context* x, const echo_command* c, const char* s,
                           const char* index, char* d) {
  const int gather = c->opcode == ECHO_NPU_OP_GATHER,
            wide = (c->flags & ECHO_NPU_FLAG_INDEX64) != 0;
  const uint64_t s1 = (uint64_t)c->p[2] * echo_type_size(c->type1),
                 sd = (uint64_t)c->p[4] * echo_type_size(c->type_dst);
  const uint64_t row_bytes = (uint64_t)c->p[1] * echo_type_size(c->type1);
  for (uint64_t i = 0; i < c->p[0]; ++i) {
    int32_t narrow = 0;
    int64_t k = 0;
    if (wide)
      memcpy(&k, index + i * 8, 8);
    else
      memcpy(&narrow, index + i * 4, 4), k = narrow;
    if (k < 0 || k >= (int64_t)c->p[ECHO_NPU_P_TABLE_ROWS])
      return (echo_fault){ECHO_NPU_FAULT_INDEX, c->op[ECHO_SRC2].addr + i * (wide ? 8 : 4)};
    if (gather)
      memmove(d + i * sd, s + (uint64_t)k * s1, row_bytes);
    else
      scatter_add_row(x, c, s + i * s1, d + (uint64_t)k * sd);
  }
  return (echo_fault){0, 0};
}

echo_fault echo_copy(const echo_context* x, const echo_command* c, void* const at[ECHO_OPERANDS]) {
  switch (c->opcode) {
    case ECHO_NPU_OP_MEMCPY: memmove(at[ECHO_DST], at[ECHO_SRC1], c->op[ECHO_DST].bytes); break;
    case ECHO_NPU_OP_COPY: copy_strided(c, at[ECHO_SRC1], at[ECHO_DST]); break;
    case ECHO_NPU_OP_FILL: fill(c, at[ECHO_DST]); break;
    default: return by_index(x, c, at[ECHO_SRC1], at[ECHO_SRC2], at[ECHO_DST]);
  }
  return (echo_fault){0, 0};
}
