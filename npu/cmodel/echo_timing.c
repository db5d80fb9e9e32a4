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

echo_timing echo_timing_from_environment(void) {
  return (echo_timing){
      .n = number("ECHO_NPU_ARRAY", 16, 4, 128),
      .accumulators = 16,
      .bus_bytes = 64,
      .fma_latency = 5,
      .ram_latency = number("ECHO_NPU_RAM_LATENCY", 40, 1, 10000),
      .packet_cost = 24,
      .pass_cost = 12,
  };
}

// Beats to move `rows` rows of `bytes` each from a common, unknown alignment.
static uint64_t beats(const echo_timing* t, uint64_t rows, uint64_t bytes) {
  return rows * ceil_div(bytes, t->bus_bytes);
}

// Output tiles of 4n rows by (accumulators/4)n columns; operands stream once per tile while the
// previous tile computes, so a tile costs the larger of computing and loading.
static void tile(const echo_timing* t, const echo_command* c, uint64_t count, uint64_t rows,
                 uint64_t cols, echo_cost* cost) {
  const uint64_t k = c->p[ECHO_NPU_P_K];
  const uint64_t s1 = echo_type_size(c->type1), s2 = echo_type_size(c->type2);
  if (!count || !rows || !cols) return;
  uint64_t steps = max64(ceil_div(rows, t->n) * ceil_div(cols, t->n), t->fma_latency);
  uint64_t stores = beats(t, rows, cols * echo_type_size(c->type_dst));
  uint64_t loads =
      (c->flags & ECHO_NPU_FLAG_TRANS_A ? beats(t, k, rows * s1) : beats(t, rows, k * s1)) +
      (c->flags & ECHO_NPU_FLAG_TRANS_B ? beats(t, cols, k * s2) : beats(t, k, cols * s2)) +
      (c->flags & ECHO_NPU_FLAG_ACCUMULATE ? stores : 0);
  cost->matrix_busy += count * (max64(k * steps, loads) + stores);
  cost->read_beats += count * loads;
  cost->write_beats += count * stores;
}

static void matmul(const echo_timing* t, const echo_command* c, echo_cost* cost) {
  const uint64_t m = c->p[ECHO_NPU_P_ROWS], n = c->p[ECHO_NPU_P_COLS];
  const uint64_t tm = 4 * t->n, tn = t->accumulators / 4 * t->n;
  tile(t, c, (m / tm) * (n / tn), tm, tn, cost);
  tile(t, c, m / tm, tm, n % tn, cost);
  tile(t, c, n / tn, m % tm, tn, cost);
  tile(t, c, 1, m % tm, n % tn, cost);
  cost->macs = m * n * c->p[ECHO_NPU_P_K];
  cost->matrix_busy += 2 * t->ram_latency;
  cost->cycles += cost->matrix_busy;
}

// A micro-operation issues one beat of lanes a cycle over blocks of up to 128 columns, no faster
// than the latency of the unit lets the next one start.
static uint64_t program_cycles(const echo_timing* t, uint64_t columns, uint64_t length) {
  uint64_t full = columns / ECHO_NPU_PARTIALS, rest = columns % ECHO_NPU_PARTIALS;
  uint64_t cycles = full * length * (ECHO_NPU_PARTIALS / ECHO_NPU_LANES);
  if (rest) cycles += length * max64(ceil_div(rest, ECHO_NPU_LANES), t->fma_latency);
  return cycles;
}

static void vector(const echo_timing* t, const echo_command* c, echo_cost* cost) {
  const uint64_t rows = c->p[0], cols = c->p[1];
  uint64_t row_cycles = 0;
  for (int i = 0; i < c->fn->passes; ++i) {
    const echo_ucode_pass* p = &c->fn->pass[i];
    uint64_t loads = 0;
    if (p->load & ECHO_NPU_LOAD_X0) loads += beats(t, 1, cols * echo_type_size(c->type1));
    if (p->load & ECHO_NPU_LOAD_X1) loads += beats(t, 1, cols * echo_type_size(c->type1));
    if (c->op[ECHO_SRC2].used && p->load & ECHO_NPU_LOAD_Y0)
      loads +=
          c->flags & ECHO_NPU_FLAG_SRC2_BCAST ? 1 : beats(t, 1, cols * echo_type_size(c->type2));
    if (p->load & ECHO_NPU_LOAD_Y1) loads += beats(t, 1, cols * echo_type_size(c->type2));
    uint64_t stores = 0, dst = echo_type_size(c->type_dst);
    if (p->store & ECHO_NPU_STORE_D0) stores += beats(t, 1, cols * dst);
    if (p->store & ECHO_NPU_STORE_D1) stores += beats(t, 1, cols * dst);
    if (p->store & ECHO_NPU_STORE_SCALAR) stores += 1;
    uint64_t length = p->lane_len + (p->reduce ? 1u : 0u);
    uint64_t compute = program_cycles(t, cols, length) + p->post_len * (uint64_t)t->fma_latency;
    if (p->reduce) compute += 7 * (uint64_t)t->fma_latency;
    row_cycles += max64(compute, loads) + stores + t->pass_cost;
    cost->uops += rows * (cols * p->lane_len + p->post_len);
    cost->read_beats += rows * loads;
    cost->write_beats += rows * stores;
  }
  cost->vector_busy = rows * row_cycles + 2 * t->ram_latency;
  cost->cycles += cost->vector_busy;
}

static void copy(const echo_timing* t, const echo_command* c, echo_cost* cost) {
  const uint64_t rows = c->p[0], cols = c->p[1], size = echo_type_size(c->type_dst);
  uint64_t reads = 0, writes = 0;
  switch (c->opcode) {
    case ECHO_NPU_OP_MEMCPY: reads = writes = beats(t, 1, c->op[ECHO_DST].bytes); break;
    case ECHO_NPU_OP_COPY:
      reads = c->p[3] == 1 ? beats(t, rows, cols * size) : rows * cols;
      writes = c->p[5] == 1 ? beats(t, rows, cols * size) : rows * cols;
      break;
    case ECHO_NPU_OP_FILL: writes = c->p[5] == 1 ? beats(t, rows, cols * size) : rows * cols; break;
    case ECHO_NPU_OP_GATHER: reads = writes = rows + beats(t, rows, cols * size); break;
    case ECHO_NPU_OP_SCATTER_ADD:
      writes = beats(t, rows, cols * 4);
      reads = rows + writes + beats(t, rows, cols * echo_type_size(c->type1));
      break;
  }
  cost->read_beats = reads;
  cost->write_beats = writes;
  cost->copy_busy = max64(reads, writes) + 2 * t->ram_latency;
  cost->cycles += cost->copy_busy;
}

echo_cost echo_timing_estimate(const echo_timing* t, const echo_command* c) {
  echo_cost cost = {.cycles = t->packet_cost};
  switch (c->opcode) {
    case ECHO_NPU_OP_NOP:
    case ECHO_NPU_OP_REPEAT: break;
    case ECHO_NPU_OP_SYNC:
      cost.write_beats = c->op[ECHO_DST].used ? 1 : 0;
      cost.cycles += c->op[ECHO_DST].used ? t->ram_latency : 0;
      break;
    case ECHO_NPU_OP_MATMUL: matmul(t, c, &cost); break;
    case ECHO_NPU_OP_ADD_TENSOR:
    case ECHO_NPU_OP_VECTOR: vector(t, c, &cost); break;
    default: copy(t, c, &cost); break;
  }
  return cost;
}
