// GEMV of one int8 row of x in AVX-512 VNNI: rows of weights as one stream of whole blocks.
//
// Short rows are seldom whole blocks (896 int4 weights are 1.75), and a masked block costs as much
// as a whole one. Where the rows follow each other without gaps, two or four of them are whole
// blocks together: x is laid out as often, and the block in which one row ends and the next begins
// is multiplied once and added to both, each in its own lanes.
#ifndef HALYARD_CPU_QUANT_X86_GEMV_INT8_VNNI_H_
#define HALYARD_CPU_QUANT_X86_GEMV_INT8_VNNI_H_

#include <stddef.h>
#include <string.h>

#include "backends/cpu/quant/int8_kernel.h"
#include "backends/cpu/quant/x86/lanes_vnni.h"

HY__TARGET_VNNI

typedef struct x_block {
  __m512i start;
  __m512 scale;
  __m512i x[2 * HY__BLOCK_VECTORS];  // int8: only the first half
} x_block;

HY__INLINE int64_t block_bytes(hy_dtype weights) {
  return (int64_t)(offsetof(x_block, x) + sizeof(__m512i) * (size_t)hy__number_vectors(weights));
}

HY__INLINE int64_t weight_bytes(hy_dtype weights, int64_t k) {
  return weights == HY_I4 ? k / 2 : k;
}

// ---- x ----

// Rows of weights that are whole blocks together, and the bytes of all of them: so many that x, as
// often, stays in L1 beside the weights. Fewer rows than LEAST_ROWS do not earn the laying out.
enum { MAX_TURN = 4, MAX_TURN_BLOCKS = 8, LEAST_ROWS = 256, LEAST_LANE = HY__BLOCK / 16 };

// 1 where the rows are not laid out so.
static int turn_of(const hy__int8_rows* x, const hy__quantized* w) {
  int64_t bytes = weight_bytes(w->dtype, w->k), numbers = hy__block_numbers(w->dtype);
  int turn = 1;
  while (turn < MAX_TURN && bytes * turn % HY__BLOCK != 0) turn *= 2;
  bool whole = bytes * turn % HY__BLOCK == 0 && bytes >= HY__BLOCK;
  bool scaled = w->group < numbers && x->group < numbers && w->scale_row * w->group == w->k;
  return x->m == 1 && w->n >= LEAST_ROWS && whole && scaled && w->row == bytes &&
                 bytes * turn <= MAX_TURN_BLOCKS * HY__BLOCK
             ? turn
             : 1;
}

static int64_t blocks_of(hy_dtype weights, int64_t k) {
  return (k + hy__block_numbers(weights) - 1) / hy__block_numbers(weights);
}

static int64_t row_bytes(const hy__int8_rows* x, const hy__quantized* w) {
  return blocks_of(w->dtype, x->k * turn_of(x, w)) * block_bytes(w->dtype);
}

HY__INLINE void order_row(hy_dtype weights, const hy__int8_rows* x, int64_t i, char* to) {
  const int64_t numbers = hy__block_numbers(weights);
  const hy__lane_scales walk = hy__lane_scales_of(x->group, x->k, weights);
  const float* scale = x->scale + i * x->scale_row;
  int64_t block_in_group = 0;
  for (int64_t at = 0; at < x->k; at += numbers, to += block_bytes(weights)) {
    x_block* b = (x_block*)to;
    __m512i sums = hy__order_block(weights, x->data + i * x->row + at, x->k - at, b->x);
    b->start = hy__counterweight(sums, weights);
    b->scale = hy__load_lane_scales(&walk, scale, x->k - at >= numbers);
    if (++block_in_group == walk.blocks) {
      scale += walk.advance;
      block_in_group = 0;
    }
  }
}

static void order(const hy__int8_rows* x, const hy__quantized* w, int64_t i, void* row) {
  enum { MAX_NUMBERS = 2 * HY__BLOCK * MAX_TURN_BLOCKS };
  signed char numbers[MAX_NUMBERS];
  float scales[MAX_NUMBERS / LEAST_LANE];
  hy__int8_rows all = *x;
  int turn = turn_of(x, w);
  if (turn > 1) {
    int64_t groups = x->k / x->group;
    for (int t = 0; t < turn; t++) {
      memcpy(numbers + t * x->k, x->data + i * x->row, (size_t)x->k);
      memcpy(scales + t * groups, x->scale + i * x->scale_row, (size_t)groups * sizeof *scales);
    }
    all = (hy__int8_rows){numbers, 1, turn * x->k, 0, scales, 0, x->group};
  }
  if (w->dtype == HY_I4)
    order_row(HY_I4, &all, i, row);
  else
    order_row(HY_I8, &all, i, row);
}

// ---- products ----

// The lanes of a block, added up as integers. The odd numbers of int4 stay where they are, 16 times
// as large, and are shifted once for all.
HY__INLINE __m512 dot_block(hy_dtype dtype, const unsigned char* data, const hy__rest* rest,
                            const x_block* b) {
  __m512i w[HY__BLOCK_VECTORS], lanes = b->start, others = _mm512_setzero_si512();
  hy__load_block(data, rest, w);
#pragma GCC unroll 4
  for (int v = 0; v < HY__BLOCK_VECTORS; v++) {
    if (dtype == HY_I4) {
      lanes = _mm512_dpbusd_epi32(lanes, hy__even_numbers(w[v]), b->x[v]);
      others = _mm512_dpbusd_epi32(others, hy__odd_numbers_16(w[v]), b->x[HY__BLOCK_VECTORS + v]);
    } else if (v % 2 == 0) {
      lanes = _mm512_dpbusd_epi32(lanes, hy__unsigned_bytes(w[v]), b->x[v]);
    } else {
      others = _mm512_dpbusd_epi32(others, hy__unsigned_bytes(w[v]), b->x[v]);
    }
  }
  if (dtype == HY_I4) others = _mm512_srai_epi32(others, 4);
  return _mm512_cvtepi32_ps(_mm512_add_epi32(lanes, others));
}

// Where a row of a turn ends: whole blocks, then the lanes of the next block that are still its.
typedef struct row_end {
  int64_t blocks;
  __mmask16 lanes;
} row_end;

typedef struct row_products {
  const hy__quantized* w;
  hy__lane_scales walk;
  hy__rest rest;
  const char* x;
  bool long_x;
} row_products;

// A row's place: what it reads next.
typedef struct row_cursor {
  const unsigned char* data;
  const float* scale;
  const char* x;
  int64_t block_in_group;
} row_cursor;

// Rows of int8 are one stream, which the hardware prefetches by itself but for a page's beginning:
// one line of a block is asked for, and all four got in its way. Scales are a second stream, and
// beside as many as int4 has, or where x takes so much of L1 that lines are lost again, the
// hardware falls behind when both cores read. Into an L1 that has room for them all go.
enum { LONG_X = 16 << 10, FURTHER = 2496, SCALES_AHEAD = 1024 };

HY__INLINE void prefetch_block(hy_dtype dtype, const row_products* p, const row_cursor* c) {
  if (hy__prefetch_into_l1)
    hy__prefetch_block(c->data);
  else if (dtype == HY_I4 || p->long_x)
    hy__prefetch_block(c->data + FURTHER);
  else
    hy__prefetch(c->data);
  _mm_prefetch((const char*)c->scale + SCALES_AHEAD, _MM_HINT_T1);
}

// The products of a block and their scales; moves on.
HY__INLINE __m512 next_block(hy_dtype dtype, const row_products* p, row_cursor* c, __m512* scales) {
  const x_block* b = (const x_block*)c->x;
  prefetch_block(dtype, p, c);
  __m512 products = dot_block(dtype, c->data, NULL, b);
  *scales = _mm512_mul_ps(hy__load_lane_scales(&p->walk, c->scale, true), b->scale);
  c->data += HY__BLOCK;
  c->x += block_bytes(dtype);
  if (++c->block_in_group == p->walk.blocks) {
    c->scale += p->walk.advance;
    c->block_in_group = 0;
  }
  return products;
}

HY__INLINE __m512 add_blocks(hy_dtype dtype, const row_products* p, int64_t blocks, row_cursor* c,
                             __m512 sum) {
  for (; blocks > 0; blocks--) {
    __m512 scales, products = next_block(dtype, p, c, &scales);
    sum = _mm512_fmadd_ps(products, scales, sum);
  }
  return sum;
}

static row_cursor start_of(const row_products* p, int64_t row) {
  return (row_cursor){p->w->data + row * p->w->row, p->w->scale + row * p->w->scale_row, p->x, 0};
}

// One row, whose last block is masked.
HY__INLINE __m512 dot_row(hy_dtype dtype, const row_products* p, int64_t row) {
  row_cursor c = start_of(p, row);
  int64_t bytes = weight_bytes(dtype, p->w->k);
  __m512 sum = add_blocks(dtype, p, bytes / HY__BLOCK, &c, _mm512_setzero_ps());
  if (bytes % HY__BLOCK == 0) return sum;
  const x_block* b = (const x_block*)c.x;
  prefetch_block(dtype, p, &c);
  __m512 scales = _mm512_mul_ps(hy__load_lane_scales(&p->walk, c.scale, false), b->scale);
  return _mm512_fmadd_ps(dot_block(dtype, c.data, &p->rest, b), scales, sum);
}

// `turn` rows from `row` on.
HY__INLINE void dot_turn(hy_dtype dtype, const row_products* p, const row_end* ends, int turn,
                         int64_t row, __m512* sums) {
  row_cursor c = start_of(p, row);
  __m512 sum = _mm512_setzero_ps();
  for (int t = 0; t < turn; t++) {
    sum = add_blocks(dtype, p, ends[t].blocks, &c, sum);
    __mmask16 mine = ends[t].lanes;
    sums[t] = sum;
    sum = _mm512_setzero_ps();
    if (mine == 0) continue;
    __m512 scales, products = next_block(dtype, p, &c, &scales);
    sums[t] = _mm512_mask3_fmadd_ps(products, scales, sums[t], mine);
    sum = _mm512_maskz_mul_ps((__mmask16)~mine, products, scales);
  }
}

static void ends_of(int64_t bytes, int turn, row_end* ends) {
  int64_t begun = 0;  // vectors of the first block that the row before has taken
  for (int t = 0; t < turn; t++) {
    int64_t vectors = bytes / 64 - (begun ? HY__BLOCK_VECTORS - begun : 0);
    int64_t left = vectors % HY__BLOCK_VECTORS;
    ends[t] = (row_end){vectors / HY__BLOCK_VECTORS, (__mmask16)(0x1111 * ((1 << left) - 1))};
    begun = left;
  }
}

HY__INLINE void one_row(hy_dtype dtype, const hy__int8_rows* x, const row_products* p,
                        int64_t first, int n, float* out) {
  row_end ends[MAX_TURN];
  int turn = turn_of(x, p->w);
  ends_of(weight_bytes(dtype, p->w->k), turn, ends);
  for (int r = 0; r < n; r += 16) {
    __m512 sums[16];
    int rows = n - r < 16 ? n - r : 16, i = 0;
    for (; turn > 1 && i + turn <= rows; i += turn)
      dot_turn(dtype, p, ends, turn, first + r + i, sums + i);
    for (; i < rows; i++) sums[i] = dot_row(dtype, p, first + r + i);
    for (; i < 16; i++) sums[i] = _mm512_setzero_ps();
    _mm512_mask_storeu_ps(out + r, hy__first16(rows), hy__sum_lanes(sums));
  }
}

HY__TARGET_END

#endif  // HALYARD_CPU_QUANT_X86_GEMV_INT8_VNNI_H_
