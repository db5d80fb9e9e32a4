// echo_timing.c - performance model: cycles of each unit for a command, from the RTL's own
// schedule.
#include "echo_timing.h"

#include <stdlib.h>
#include <string.h>

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
      .settle_cost = 10,
      .bus_bytes = 64,
      .burst_beats = 16,
      .read_beats = 64,
      .write_bursts = 64,
      .fma_latency = 4,
      .ram_latency = ram_latency,
      .bus_cost = 8,
      .packet_cost = 9,
      .locate_cost = 15,
      .unit_cost = 9,
      .block_cost = 13,
      .uop_loop = 7,
      .tree_cost = 80,
  };
}

echo_timing echo_timing_from_environment(void) {
  echo_timing t = echo_timing_of(number("ECHO_NPU_ARRAY", 16, 4, 128),
                                 number("ECHO_NPU_RAM_LATENCY", 40, 1, 10000));
  const char* bus = getenv("ECHO_NPU_RTL_BUS");
  const char* stall = bus ? strstr(bus, "stall=") : NULL;
  const unsigned long percent = stall ? strtoul(stall + strlen("stall="), NULL, 10) : 0;
  if (percent < 100) t.stall_percent = (uint32_t)percent;
  return t;
}

// Cycles in which a channel of the bus that stalls now and then moves `count` beats.
static uint64_t stalled(const echo_timing* t, uint64_t count) {
  return ceil_div(100 * count, 100 - t->stall_percent);
}

// Beats to move `rows` rows of `bytes` each.
static uint64_t beats(const echo_timing* t, uint64_t rows, uint64_t bytes) {
  return rows * ceil_div(bytes, t->bus_bytes);
}

// Cycles to move `rows` rows of `columns` elements between bus and scratchpad: one group a cycle.
static uint64_t moves(const echo_timing* t, uint64_t rows, uint64_t columns) {
  return rows * ceil_div(columns, t->n < ECHO_NPU_LANES ? t->n : ECHO_NPU_LANES);
}

// Cycles in which `count` beats arrive after the first, in runs of `run` beats: the reader asks for
// a burst when it has room for the longest, so that far memory is slow however wide its bus.
static uint64_t arrival(const echo_timing* t, uint64_t count, uint64_t run) {
  const uint64_t burst = run < t->burst_beats ? run : t->burst_beats;
  const uint64_t flying = t->read_beats - t->burst_beats + burst;
  const uint64_t trip = t->ram_latency + t->bus_cost + stalled(t, burst);
  if (trip <= stalled(t, flying) || count == 0) return stalled(t, count);
  const uint64_t waits = (count - 1) / flying;
  return stalled(t, count) + waits * (trip - stalled(t, flying));
}

// Cycles that `bursts` written bursts wait for answers to earlier ones.
static uint64_t answers(const echo_timing* t, uint64_t bursts) {
  return bursts / t->write_bursts * (t->ram_latency + t->bus_cost);
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

// Beats of `rows` runs of `bytes` whose starts are `stride` apart; unaligned ones touch one more.
static uint64_t run_beats(const echo_timing* t, uint64_t rows, uint64_t bytes, uint64_t stride,
                          const echo_operand* o) {
  if (rows > 1 && stride % t->bus_bytes)
    return rows * (bytes + t->bus_bytes - o->size) / t->bus_bytes;
  return beats(t, rows, o->addr % t->bus_bytes + bytes);
}

// Loading one operand's part of a chunk: `across` rows or columns of the tile by `k`.
static uint64_t load_cycles(const echo_timing* t, const echo_operand* o, int k_outside,
                            uint64_t stride, uint64_t across, uint64_t k, uint64_t* bus) {
  const uint64_t runs = k_outside ? k : across, length = k_outside ? across : k;
  const uint64_t count = run_beats(t, runs, length * o->size, stride * o->size, o);
  *bus += count;
  return max64(moves(t, runs, length), arrival(t, count, ceil_div(count, runs)));
}

// The engine's machines as they wait for each other. Times are cycles since the start.
typedef struct pipeline {
  uint64_t loaded, computed, stored;  // ends of the last load, chunk and tile
  uint64_t computed_before, stored_before;
} pipeline;

static void run_chunk(const echo_timing* t, pipeline* p, uint64_t load, uint64_t compute) {
  // A buffer is asked for again when the array has left it.
  p->loaded = max64(p->loaded, p->computed_before + t->ram_latency + t->bus_cost) + load;
  p->computed_before = p->computed;
  p->computed = max64(p->computed, p->loaded) + compute;
}

static void run_tile(const echo_timing* t, const echo_command* c, const tiling* s, uint64_t rows,
                     uint64_t cols, pipeline* p, echo_cost* cost) {
  const int ta = (c->flags & ECHO_NPU_FLAG_TRANS_A) != 0,
            tb = (c->flags & ECHO_NPU_FLAG_TRANS_B) != 0;
  const uint64_t steps = max64(ceil_div(rows, t->n) * ceil_div(cols, t->n), t->slot_loop);
  const echo_operand* dst = &c->op[ECHO_DST];
  const uint64_t ldc = (uint64_t)c->p[ECHO_NPU_P_STRIDE_DST] * dst->size;
  const uint64_t tile_beats = run_beats(t, rows, cols * dst->size, ldc, dst);
  // The bank of accumulators is free when its last tile has been stored.
  p->computed = max64(p->computed, p->stored_before);
  if (c->flags & ECHO_NPU_FLAG_ACCUMULATE) {
    p->loaded = max64(p->loaded, p->stored_before + t->ram_latency + t->bus_cost) +
                max64(moves(t, rows, cols), arrival(t, tile_beats, ceil_div(tile_beats, rows)));
    cost->read_beats += tile_beats;
  }
  for (uint64_t k = 0; k < c->p[ECHO_NPU_P_K]; k += s->chunk) {
    const uint64_t rest = c->p[ECHO_NPU_P_K] - k, kc = rest < s->chunk ? rest : s->chunk;
    uint64_t load = load_cycles(t, &c->op[ECHO_SRC1], ta, c->p[ECHO_NPU_P_STRIDE1], rows, kc,
                                &cost->read_beats);
    load += load_cycles(t, &c->op[ECHO_SRC2], !tb, c->p[ECHO_NPU_P_STRIDE2], cols, kc,
                        &cost->read_beats);
    run_chunk(t, p, load, kc * steps);
  }
  // Two more cycles a row: its run is announced, its first word is read.
  const uint64_t bursts = rows * ceil_div(cols * dst->size, t->bus_bytes * t->burst_beats);
  const uint64_t store =
      max64(max64(moves(t, rows, cols) + 2 * rows, stalled(t, tile_beats)), answers(t, bursts));
  p->stored_before = p->stored;
  p->stored = max64(p->stored, p->computed + t->settle_cost) + store;
  cost->write_beats += tile_beats;
}

static void matmul(const echo_timing* t, const echo_command* c, echo_cost* cost) {
  const uint64_t m = c->p[ECHO_NPU_P_ROWS], n = c->p[ECHO_NPU_P_COLS], k = c->p[ECHO_NPU_P_K];
  const tiling s = tiles_of(t, m, n);
  pipeline p = {.loaded = t->ram_latency + t->bus_cost};
  for (uint64_t row = 0; row < m; row += s.rows)
    for (uint64_t col = 0; col < n; col += s.cols)
      run_tile(t, c, &s, m - row < s.rows ? m - row : s.rows, n - col < s.cols ? n - col : s.cols,
               &p, cost);
  cost->matrix_busy = p.stored + t->ram_latency + t->unit_cost;
  cost->macs = m * n * k;
  cost->cycles += cost->matrix_busy;
}

// ---- Vector unit ------------------------------------------------------------------------------

// One after the other: load the block, run the program, store the result.
static uint64_t block_cycles(const echo_timing* t, const echo_command* c, const echo_ucode_pass* p,
                             uint64_t columns) {
  const uint64_t lane_beats = ceil_div(columns, ECHO_NPU_LANES);
  const int from_memory = c->op[ECHO_SRC2].used && !(c->flags & ECHO_NPU_FLAG_SRC2_BCAST);
  uint64_t moved = 0;
  if (p->load & ECHO_NPU_LOAD_X0) moved += lane_beats;
  if (p->load & ECHO_NPU_LOAD_X1) moved += lane_beats;
  if (p->load & ECHO_NPU_LOAD_Y0 && from_memory) moved += lane_beats;
  if (p->load & ECHO_NPU_LOAD_Y1) moved += lane_beats;
  if (p->store & ECHO_NPU_STORE_D0) moved += lane_beats;
  if (p->store & ECHO_NPU_STORE_D1) moved += lane_beats;
  return moved + max64(lane_beats, t->uop_loop) * (p->lane_len + (p->reduce ? 1u : 0u)) +
         t->block_cost;
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
    if (p->reduce) row_cycles += t->tree_cost + (uint64_t)p->post_len * t->uop_loop;
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
  const uint64_t run = ceil_div(ECHO_NPU_PARTIALS * s1, t->bus_bytes);
  const uint64_t bus = max64(arrival(t, cost->read_beats, run), stalled(t, cost->write_beats));
  cost->vector_busy = max64(rows * row_cycles, bus) + 2 * t->ram_latency + t->unit_cost;
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
    case ECHO_NPU_OP_GATHER:  // indices come a beat at a time, when the rows before have been read
      reads = rows * row + beats(t, rows, c->op[ECHO_SRC2].size);
      writes = rows * row;
      waits = t->ram_latency + (2 * (uint64_t)t->ram_latency + t->bus_cost) *
                                   ceil_div(rows * c->op[ECHO_SRC2].size, t->bus_bytes);
      break;
  }
  cost->read_beats = reads;
  cost->write_beats = writes;
  const uint64_t run = c->opcode == ECHO_NPU_OP_MEMCPY ? reads : ceil_div(reads, rows);
  const uint64_t bursts = c->opcode == ECHO_NPU_OP_MEMCPY
                              ? ceil_div(writes, t->burst_beats)
                              : rows * ceil_div(ceil_div(writes, rows), t->burst_beats);
  cost->copy_busy = max64(max64(arrival(t, reads, run), stalled(t, writes)), answers(t, bursts)) +
                    waits + t->unit_cost;
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
  const int retires_at_once = c->opcode == ECHO_NPU_OP_NOP || c->opcode == ECHO_NPU_OP_REPEAT ||
                              (c->opcode == ECHO_NPU_OP_SYNC && !c->op[ECHO_DST].used);
  if (!retires_at_once) cost.cycles += t->locate_cost;
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
