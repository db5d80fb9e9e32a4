#include "echo_timing.h"

#include <stdlib.h>

static uint64_t ceil_div(uint64_t a, uint64_t b) {
  return (a + b - 1) / b;
}
static uint64_t max64(uint64_t a, uint64_t b) {
  return a > b ? a : b;
}

static uint32_t number(const char* name, uint32_t fallback, uint32_t low, uint32_t high) {
  const char* text = getenv(name);
  if (!text) return fallback;
  unsigned long v = strtoul(text, NULL, 10);
  return v < low || v > high ? fallback : (uint32_t)v;
}

echo_timing echo_timing_of(uint32_t n, uint32_t ram_latency) {
  return (echo_timing){
      .n = n,
      .slots = 16,
      .slot_loop = 6,
      .pad_words = 512,
      .chunk_cost = 25,
      .bus_bytes = 64,
      .fma_latency = 5,
      .ram_latency = ram_latency,
      .packet_cost = 9,
      .unit_cost = 24,
      .block_cost = 13,
      .tree_cost = 63,
  };
}

echo_timing echo_timing_from_environment(void) {
  return echo_timing_of(number("ECHO_NPU_ARRAY", 16, 4, 128),
                        number("ECHO_NPU_RAM_LATENCY", 40, 1, 10000));
}

// Beats to move `rows` rows of `bytes` each.
static uint64_t beats(const echo_timing* t, uint64_t rows, uint64_t bytes) {
  return rows * ceil_div(bytes, t->bus_bytes);
}

// Cycles to move `rows` rows of `columns` elements between bus and scratchpad.
static uint64_t moves(uint64_t rows, uint64_t columns) {
  return rows * ceil_div(columns, ECHO_NPU_LANES);
}

// ---- Matrix engine ----------------------------------------------------------------------------

typedef struct tiling {
  uint64_t rows, cols, chunk;  // of a full tile
} tiling;

// Square tiles as a rule; long ones where a side of the product is short.
static tiling tiles_of(const echo_timing* t, uint64_t m, uint64_t n) {
  uint64_t tall = m <= t->n ? 1 : m <= 2 * t->n ? 2 : n <= t->n ? 16 : n <= 2 * t->n ? 8 : 4;
  uint64_t wide = t->slots / tall;
  return (tiling){tall * t->n, wide * t->n, t->pad_words / max64(tall, wide)};
}

static uint64_t loads(const echo_command* c, uint64_t rows, uint64_t cols, uint64_t k) {
  return (c->flags & ECHO_NPU_FLAG_TRANS_A ? moves(k, rows) : moves(rows, k)) +
         (c->flags & ECHO_NPU_FLAG_TRANS_B ? moves(cols, k) : moves(k, cols));
}

// A tile computes while the next loads and the one before is stored, so it costs the longer of the
// two.
static void tile(const echo_timing* t, const echo_command* c, uint64_t chunk, uint64_t count,
                 uint64_t rows, uint64_t cols, echo_cost* cost) {
  const uint64_t k = c->p[ECHO_NPU_P_K];
  const uint64_t s1 = echo_type_size(c->type1), s2 = echo_type_size(c->type2),
                 sd = echo_type_size(c->type_dst);
  const int sums = (c->flags & ECHO_NPU_FLAG_ACCUMULATE) != 0;
  if (!count || !rows || !cols) return;
  uint64_t steps = max64(ceil_div(rows, t->n) * ceil_div(cols, t->n), t->slot_loop);
  uint64_t load =
      loads(c, rows, cols, k) + (sums ? moves(rows, cols) : 0) + t->chunk_cost * ceil_div(k, chunk);
  cost->matrix_busy += count * max64(k * steps, load);
  uint64_t stored = beats(t, rows, cols * sd);
  cost->read_beats +=
      count *
      ((c->flags & ECHO_NPU_FLAG_TRANS_A ? beats(t, k, rows * s1) : beats(t, rows, k * s1)) +
       (c->flags & ECHO_NPU_FLAG_TRANS_B ? beats(t, cols, k * s2) : beats(t, k, cols * s2)) +
       (sums ? stored : 0));
  cost->write_beats += count * stored;
}

static void matmul(const echo_timing* t, const echo_command* c, echo_cost* cost) {
  const uint64_t m = c->p[ECHO_NPU_P_ROWS], n = c->p[ECHO_NPU_P_COLS], k = c->p[ECHO_NPU_P_K];
  const tiling s = tiles_of(t, m, n);
  const uint64_t full_m = m / s.rows, full_n = n / s.cols, rest_m = m % s.rows, rest_n = n % s.cols;
  tile(t, c, s.chunk, full_m * full_n, s.rows, s.cols, cost);
  tile(t, c, s.chunk, full_m, s.rows, rest_n, cost);
  tile(t, c, s.chunk, full_n, rest_m, s.cols, cost);
  tile(t, c, s.chunk, 1, rest_m, rest_n, cost);
  // Nothing computes while the first chunk loads and the last tile is stored.
  const uint64_t first_m = m < s.rows ? m : s.rows, first_n = n < s.cols ? n : s.cols;
  const uint64_t last_m = rest_m ? rest_m : s.rows, last_n = rest_n ? rest_n : s.cols;
  cost->matrix_busy += loads(c, first_m, first_n, k < s.chunk ? k : s.chunk) + t->chunk_cost +
                       moves(last_m, last_n) + 3 * t->ram_latency + t->unit_cost;
  cost->macs = m * n * k;
  cost->cycles += cost->matrix_busy;
}

// ---- Vector unit ------------------------------------------------------------------------------

// One after the other: load the block, run the program, store the result.
static uint64_t block_cycles(const echo_timing* t, const echo_command* c, const echo_ucode_pass* p,
                             uint64_t columns) {
  const uint64_t lane_beats = ceil_div(columns, ECHO_NPU_LANES),
                 full = ECHO_NPU_PARTIALS / ECHO_NPU_LANES;
  const int from_memory = c->op[ECHO_SRC2].used && !(c->flags & ECHO_NPU_FLAG_SRC2_BCAST);
  uint64_t moved = 0;
  if (p->load & ECHO_NPU_LOAD_X0) moved += lane_beats;
  if (p->load & ECHO_NPU_LOAD_X1) moved += lane_beats;
  if (p->load & ECHO_NPU_LOAD_Y0 && from_memory) moved += lane_beats;
  if (p->load & ECHO_NPU_LOAD_Y1) moved += lane_beats;
  if (p->store & ECHO_NPU_STORE_D0) moved += lane_beats;
  if (p->store & ECHO_NPU_STORE_D1) moved += lane_beats;
  return moved + full * (p->lane_len + (p->reduce ? 1u : 0u)) + t->block_cost;
}

static void vector(const echo_timing* t, const echo_command* c, echo_cost* cost) {
  const uint64_t rows = c->p[ECHO_NPU_P_ROWS], cols = c->p[ECHO_NPU_P_COLS];
  const uint64_t blocks = cols / ECHO_NPU_PARTIALS, rest = cols % ECHO_NPU_PARTIALS;
  const uint64_t s1 = echo_type_size(c->type1), s2 = echo_type_size(c->type2),
                 sd = echo_type_size(c->type_dst);
  uint64_t row_cycles = 0;
  for (int i = 0; i < c->fn->passes; ++i) {
    const echo_ucode_pass* p = &c->fn->pass[i];
    row_cycles += blocks * block_cycles(t, c, p, ECHO_NPU_PARTIALS);
    if (rest) row_cycles += block_cycles(t, c, p, rest);
    if (p->reduce)
      row_cycles += t->tree_cost + p->post_len * (uint64_t)(ECHO_NPU_PARTIALS / ECHO_NPU_LANES);
    uint64_t x = beats(t, 1, cols * s1), y = 0, d = beats(t, 1, cols * sd);
    if (c->op[ECHO_SRC2].used) y = c->flags & ECHO_NPU_FLAG_SRC2_BCAST ? 1 : beats(t, 1, cols * s2);
    cost->uops += rows * (cols * p->lane_len + p->post_len);
    cost->read_beats +=
        rows * (x * !!(p->load & ECHO_NPU_LOAD_X0) + x * !!(p->load & ECHO_NPU_LOAD_X1) +
                y * !!(p->load & ECHO_NPU_LOAD_Y0) + y * !!(p->load & ECHO_NPU_LOAD_Y1));
    cost->write_beats +=
        rows * (d * !!(p->store & ECHO_NPU_STORE_D0) + d * !!(p->store & ECHO_NPU_STORE_D1) +
                !!(p->store & ECHO_NPU_STORE_SCALAR));
  }
  cost->vector_busy = rows * row_cycles + 2 * t->ram_latency + t->unit_cost;
  cost->cycles += cost->vector_busy;
}

// ---- Copy engine ------------------------------------------------------------------------------

static void copy(const echo_timing* t, const echo_command* c, echo_cost* cost) {
  const uint64_t rows = c->p[ECHO_NPU_P_ROWS], cols = c->p[ECHO_NPU_P_COLS];
  const uint64_t size = echo_type_size(c->type_dst), row = beats(t, 1, cols * size);
  uint64_t reads = 0, writes = 0, waits = 2 * (uint64_t)t->ram_latency;
  switch (c->opcode) {
    case ECHO_NPU_OP_MEMCPY: reads = writes = beats(t, 1, c->op[ECHO_DST].bytes); break;
    case ECHO_NPU_OP_COPY:
      reads = c->p[ECHO_NPU_P_COL_STRIDE_SRC] == 1 ? rows * row : rows * cols;
      writes = c->p[ECHO_NPU_P_COL_STRIDE_DST] == 1 ? rows * row : rows * cols;
      break;
    case ECHO_NPU_OP_FILL:
      writes = c->p[ECHO_NPU_P_COL_STRIDE_DST] == 1 ? rows * row : rows * cols;
      break;
    case ECHO_NPU_OP_GATHER:  // indices come a beat at a time
      reads = rows * row + beats(t, rows, c->op[ECHO_SRC2].size);
      writes = rows * row;
      waits += t->ram_latency * ceil_div(rows * c->op[ECHO_SRC2].size, t->bus_bytes);
      break;
  }
  cost->read_beats = reads;
  cost->write_beats = writes;
  cost->copy_busy = max64(reads, writes) + waits + t->unit_cost;
  cost->cycles += cost->copy_busy;
}

// Row after row on the vector unit: the index, both operands, the sum, and the store before the
// next row.
static void scatter_add(const echo_timing* t, const echo_command* c, echo_cost* cost) {
  const uint64_t rows = c->p[ECHO_NPU_P_ROWS], cols = c->p[ECHO_NPU_P_COLS];
  const uint64_t from = beats(t, 1, cols * echo_type_size(c->type1)), to = beats(t, 1, cols * 4);
  const uint64_t blocks = ceil_div(cols, ECHO_NPU_PARTIALS);
  const uint64_t row = from + 2 * to + blocks * (8 + t->block_cost) + 3 * (uint64_t)t->ram_latency;
  cost->read_beats = rows * (1 + from + to);
  cost->write_beats = rows * to;
  cost->uops = rows * cols;
  cost->vector_busy = rows * row + t->unit_cost;
  cost->cycles += cost->vector_busy;
}

echo_cost echo_timing_estimate(const echo_timing* t, const echo_command* c) {
  echo_cost cost = {.cycles = t->packet_cost + t->ram_latency};
  switch (c->opcode) {
    case ECHO_NPU_OP_NOP:
    case ECHO_NPU_OP_REPEAT: break;
    case ECHO_NPU_OP_SYNC:
      cost.write_beats = c->op[ECHO_DST].used ? 1 : 0;
      cost.cycles += c->op[ECHO_DST].used ? t->ram_latency : 0;
      break;
    case ECHO_NPU_OP_MATMUL: matmul(t, c, &cost); break;
    case ECHO_NPU_OP_SCATTER_ADD: scatter_add(t, c, &cost); break;
    case ECHO_NPU_OP_ADD_TENSOR:
    case ECHO_NPU_OP_VECTOR: vector(t, c, &cost); break;
    default: copy(t, c, &cost); break;
  }
  return cost;
}

echo_cost echo_timing_loop(const echo_timing* t, const echo_command* c, uint64_t iterations) {
  echo_cost one = echo_timing_estimate(t, c);
  const uint64_t fetch = t->packet_cost + t->ram_latency;
  return (echo_cost){
      .cycles = fetch + iterations * (one.cycles - fetch),
      .matrix_busy = iterations * one.matrix_busy,
      .macs = iterations * one.macs,
      .vector_busy = iterations * one.vector_busy,
      .uops = iterations * one.uops,
      .copy_busy = iterations * one.copy_busy,
      .read_beats = iterations * one.read_beats,
      .write_beats = iterations * one.write_beats,
  };
}
