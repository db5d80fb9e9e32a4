// int8 GEMV and GEMM microkernel with int8 and int4 weights in AVX-512 VNNI.
//
// The instruction multiplies unsigned by signed bytes. The weights are made unsigned by adding 128
// (int4: 8), which is one xor; what that adds, 128 times the sum of the row of x, is the same for
// every row of weights, and the sums start at its negative. All of it is exact.
#include <string.h>

#include "backends/cpu/family.h"
#include "backends/cpu/quant/int8_kernel.h"

#if defined(__x86_64__)
#include "backends/cpu/quant/x86/gemv_int8_vnni.h"

HY__TARGET_VNNI

// Keeps a vector in a register. Left alone, GCC reads what several instructions use from memory
// each time, and copies the sums of tiles back and forth until it runs out of registers.
#define IN_REGISTER(x) __asm__("" : "+v"(x))

// ---- dot products ----

static bool takes(const hy__int8_rows* x, const hy__quantized* w) {
  return hy__lanes_take(w->group, w->k, w->dtype) && hy__lanes_take(x->group, x->k, w->dtype);
}

// `rows` rows of weights, one or PAIR, with m rows of x. With several rows of x a pair reads each
// of their blocks half as often; with one, a row after another in the order of memory is faster.
enum { PAIR = 2 };

typedef struct products {
  const hy__quantized* w;
  hy__lane_scales walk;
  hy__rest rest;
  const char* x;
  int64_t x_row;
} products;

HY__INLINE void add_block(hy_dtype dtype, int rows, int m, const products* p,
                          const unsigned char* data, const float* scale, const hy__rest* rest,
                          const char* x, __m512 sums[PAIR][HY__INT8_MAX_M]) {
  __m512i w[PAIR][HY__BLOCK_VECTORS], lanes[PAIR][HY__INT8_MAX_M];
#pragma GCC unroll 2
  for (int r = 0; r < rows; r++) hy__load_block(data + r * p->w->row, rest, w[r]);
#pragma GCC unroll 8
  for (int v = 0; v < hy__number_vectors(dtype); v++) {
    __m512i weights[PAIR];
#pragma GCC unroll 2
    for (int r = 0; r < rows; r++) weights[r] = hy__unsigned_numbers(dtype, w[r], v);
#pragma GCC unroll 4
    for (int i = 0; i < m; i++) {
      const x_block* b = (const x_block*)(x + i * p->x_row);
      __m512i numbers = b->x[v], start = b->start;
      if (rows > 1) IN_REGISTER(numbers);
      if (rows > 1 && v == 0) IN_REGISTER(start);
#pragma GCC unroll 2
      for (int r = 0; r < rows; r++)
        lanes[r][i] = _mm512_dpbusd_epi32(v == 0 ? start : lanes[r][i], weights[r], numbers);
    }
  }
#pragma GCC unroll 2
  for (int r = 0; r < rows; r++) {
    __m512 scales = hy__load_lane_scales(&p->walk, scale + r * p->w->scale_row, !rest);
#pragma GCC unroll 4
    for (int i = 0; i < m; i++) {
      const x_block* b = (const x_block*)(x + i * p->x_row);
      sums[r][i] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(lanes[r][i]), _mm512_mul_ps(scales, b->scale),
                                   sums[r][i]);
    }
  }
}

HY__INLINE void dot_rows(hy_dtype dtype, int rows, int m, const products* p, int64_t first,
                         float* out, int64_t ldo) {
  const hy__quantized* w = p->w;
  const unsigned char* data = w->data + first * w->row;
  const float* scale = w->scale + first * w->scale_row;
  const char* x = p->x;
  int64_t left = dtype == HY_I4 ? w->k / 2 : w->k, block_in_group = 0;
  __m512 sums[PAIR][HY__INT8_MAX_M];
#pragma GCC unroll 2
  for (int r = 0; r < rows; r++) {
#pragma GCC unroll 4
    for (int i = 0; i < m; i++) sums[r][i] = _mm512_setzero_ps();
  }
  for (; left > 0; left -= HY__BLOCK, data += HY__BLOCK, x += block_bytes(dtype)) {
    // What a pair has ahead of its end is that of the next pair.
    const unsigned char* ahead = data;
    if (left <= hy__weights_ahead()) ahead += (rows - 1) * w->row;
#pragma GCC unroll 2
    for (int r = 0; r < rows; r++) hy__prefetch_block(ahead + r * w->row);
    if (left < HY__BLOCK) {
      add_block(dtype, rows, m, p, data, scale, &p->rest, x, sums);
      break;
    }
    add_block(dtype, rows, m, p, data, scale, NULL, x, sums);
    if (++block_in_group == p->walk.blocks) {
      scale += p->walk.advance;
      block_in_group = 0;
    }
  }
#pragma GCC unroll 2
  for (int r = 0; r < rows; r++) {
#pragma GCC unroll 4
    for (int i = 0; i < m; i++) out[i * ldo + r] = _mm512_reduce_add_ps(sums[r][i]);
  }
}

HY__INLINE void all_rows(hy_dtype dtype, int m, const products* p, int64_t first, int n, float* out,
                         int64_t ldo) {
  hy__scales_ahead ahead = hy__scales_ahead_of(p->w);
  for (int r = 0; r < n; r += n - r < PAIR ? 1 : PAIR) {
    for (int i = 0; i < PAIR; i++) hy__prefetch_scales(p->w, first + r + i, ahead);
    if (n - r < PAIR)
      dot_rows(dtype, 1, m, p, first + r, out + r, ldo);
    else
      dot_rows(dtype, PAIR, m, p, first + r, out + r, ldo);
  }
}

static void gemv(const hy__int8_rows* x, const hy__quantized* w, int64_t first, int n,
                 const void* rows, int m, float* out, int64_t ldo) {
  const hy__lane_scales walk = hy__lane_scales_of(w->group, w->k, w->dtype);
  const hy__rest rest = hy__rest_of(weight_bytes(w->dtype, w->k));
  if (m == 1) {
    const row_products one = {w, walk, rest, rows, row_bytes(x, w) > LONG_X};
    if (w->dtype == HY_I4)
      one_row(HY_I4, x, &one, first, n, out);
    else
      one_row(HY_I8, x, &one, first, n, out);
    return;
  }
  const products p = {w, walk, rest, rows, row_bytes(x, w)};
  switch (m + (w->dtype == HY_I4 ? 4 : 0)) {
    case 2: all_rows(HY_I8, 2, &p, first, n, out, ldo); return;
    case 3: all_rows(HY_I8, 3, &p, first, n, out, ldo); return;
    case 4: all_rows(HY_I8, 4, &p, first, n, out, ldo); return;
    case 6: all_rows(HY_I4, 2, &p, first, n, out, ldo); return;
    case 7: all_rows(HY_I4, 3, &p, first, n, out, ldo); return;
    default: all_rows(HY_I4, 4, &p, first, n, out, ldo); return;
  }
}

// ---- tiles ----

// Four numbers along k to a lane. x is read in place; a tile of it holds, for each k group, what
// its sums start with and its scales. A panel of weights holds its lanes, k ascending, then its
// scales.
enum { MR = 6, NR = 32, CHUNK = 32 };  // CHUNK: numbers of x that are summed at once

static int64_t tile_bytes(int64_t k, int64_t k_group) {
  return (k / k_group * 2 * MR + 15) / 16 * 64;
}

static int64_t panel_bytes(const hy__quantized* w, int64_t k_group) {
  (void)k_group;  // scales are those of the weights' own groups
  return (w->k / 4 + w->k / w->group) * NR * 4;
}

// A chunk of two rows of x.
HY__INLINE __m512i load_rows(const signed char* x, int64_t row, int m, __mmask32 bytes) {
  __m256i first = _mm256_maskz_loadu_epi8(m > 0 ? bytes : 0, x);
  return _mm512_inserti64x4(_mm512_castsi256_si512(first),
                            _mm256_maskz_loadu_epi8(m > 1 ? bytes : 0, x + row), 1);
}

// The sums of halves of three vectors: of row 0, row 1 and so on.
HY__INLINE __m512i sum_halves(const __m512i v[MR / 2]) {
  __m512i a =
      _mm512_add_epi32(_mm512_unpacklo_epi32(v[0], v[1]), _mm512_unpackhi_epi32(v[0], v[1]));
  __m512i b =
      _mm512_add_epi32(_mm512_unpacklo_epi32(v[2], v[2]), _mm512_unpackhi_epi32(v[2], v[2]));
  __m512i c = _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
  c = _mm512_add_epi32(c, _mm512_shuffle_i32x4(c, c, 0xb1));
  return _mm512_permutexvar_epi32(
      _mm512_setr_epi32(0, 8, 1, 9, 2, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), c);
}

static void pack_rows(const hy__int8_rows* x, hy_dtype weights, int64_t first, int m,
                      int64_t k_group, void* tile) {
  int32_t* heads = tile;
  for (int64_t at = 0; at < x->k; at += k_group, heads += 2 * MR) {
    __m512i sums[MR / 2] = {_mm512_setzero_si512(), _mm512_setzero_si512(), _mm512_setzero_si512()};
    for (int64_t in = 0; in < k_group; in += CHUNK) {
      int64_t left = k_group - in < CHUNK ? k_group - in : CHUNK;
      const signed char* from = x->data + first * x->row + at + in;
#pragma GCC unroll 3
      for (int p = 0; p < MR / 2; p++)
        sums[p] = hy__lane_sums(sums[p], load_rows(from + 2 * p * x->row, x->row, m - 2 * p,
                                                   (__mmask32)hy__first64(left)));
    }
    _mm512_mask_storeu_epi32(heads, 0x3f, hy__counterweight(sum_halves(sums), weights));
    float* scales = (float*)(heads + MR);
    for (int i = 0; i < MR; i++)
      scales[i] = i < m ? x->scale[(first + i) * x->scale_row + at / x->group] : 0;
  }
}

// Up to 64 weights of a row, made unsigned.
HY__INLINE __m512i unsigned_weights(hy_dtype dtype, const unsigned char* data, int64_t at,
                                    int64_t count) {
  if (dtype == HY_I8)
    return hy__unsigned_bytes(_mm512_maskz_loadu_epi8(hy__first64(count), data + at));
  __m512i words = _mm512_cvtepu8_epi16(
      _mm256_maskz_loadu_epi8((__mmask32)hy__first64(count / 2), data + at / 2));
  return hy__even_numbers(_mm512_or_si512(words, _mm512_slli_epi16(words, 4)));
}

// Sixteen rows of 16 lanes become 16 rows across them, of which `lanes` are stored.
HY__INLINE void store_across(__m512 rows[16], int64_t lanes, float* to) {
  hy__transpose16(rows);
  for (int64_t i = 0; i < lanes; i++) _mm512_storeu_ps(to + i * NR, rows[i]);
}

HY__INLINE void pack_columns(hy_dtype dtype, const hy__quantized* w, int64_t first, int n,
                             float* to) {
  const unsigned char* data = w->data + first * w->row;
  const float* scale = w->scale + first * w->scale_row;
  __m512 rows[16];
  for (int64_t at = 0; at < w->k; at += 64, to += 16 * NR) {
    int64_t left = w->k - at < 64 ? w->k - at : 64;
    for (int j = 0; j < 16; j++)
      rows[j] = _mm512_castsi512_ps(j < n ? unsigned_weights(dtype, data + j * w->row, at, left)
                                          : _mm512_setzero_si512());
    store_across(rows, left / 4, to);
    if (left < 64) to -= (64 - left) / 4 * NR;
  }
  for (int64_t at = 0, groups = w->k / w->group; at < groups; at += 16, to += 16 * NR) {
    __mmask16 mask = hy__first16(groups - at);
    for (int j = 0; j < 16; j++)
      rows[j] = _mm512_maskz_loadu_ps(j < n ? mask : 0, scale + j * w->scale_row + at);
    store_across(rows, groups - at < 16 ? groups - at : 16, to);
  }
}

static void pack_weights(const hy__quantized* w, int64_t first, int n, int64_t k_group,
                         void* packed) {
  (void)k_group;
  for (int half = 0; half < NR; half += 16) {
    if (w->dtype == HY_I4)
      pack_columns(HY_I4, w, first + half, n - half, (float*)packed + half);
    else
      pack_columns(HY_I8, w, first + half, n - half, (float*)packed + half);
  }
}

typedef struct tile_shape {
  int64_t k_groups, lanes;  // of the row, and of a k group
  int64_t row;              // bytes from one row of x to the next
  int64_t shared;           // k groups that share a scale of the weights
} tile_shape;

HY__INLINE int32_t load_four(const signed char* x) {
  int32_t four;
  memcpy(&four, x, sizeof four);
  return four;
}

// The products of a k group, as floats.
HY__INLINE void multiply_group(int m, int64_t lanes, const int32_t* starts, const signed char* x,
                               int64_t row, const int32_t* b, __m512 low[MR], __m512 high[MR]) {
  __m512i low_sum[MR], high_sum[MR];
#pragma GCC unroll 8
  for (int i = 0; i < m; i++) low_sum[i] = high_sum[i] = _mm512_set1_epi32(starts[i]);
#pragma GCC unroll 8
  for (int64_t k = 0; k < lanes; k++, x += 4, b += NR) {
    __m512i b0 = _mm512_loadu_si512(b), b1 = _mm512_loadu_si512(b + 16);
#pragma GCC unroll 8
    for (int i = 0; i < m; i++) {
      __m512i four = _mm512_set1_epi32(load_four(x + i * row));
      low_sum[i] = _mm512_dpbusd_epi32(low_sum[i], b0, four);
      high_sum[i] = _mm512_dpbusd_epi32(high_sum[i], b1, four);
      IN_REGISTER(low_sum[i]);
      IN_REGISTER(high_sum[i]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < m; i++) {
    low[i] = _mm512_cvtepi32_ps(low_sum[i]);
    high[i] = _mm512_cvtepi32_ps(high_sum[i]);
  }
}

// Scales of weights as many as k groups: each product of two scales is used once.
HY__INLINE void multiply_rows(int m, int64_t lanes, const tile_shape* s, const signed char* x,
                              const int32_t* heads, const int32_t* b, float* sums) {
  const float* columns = (const float*)(b + s->k_groups * lanes * NR);
  __m512 low_sum[MR], high_sum[MR];
#pragma GCC unroll 8
  for (int i = 0; i < m; i++) low_sum[i] = high_sum[i] = _mm512_setzero_ps();
  for (int64_t p = 0; p < s->k_groups; p++, heads += 2 * MR, columns += NR) {
    const float* scales = (const float*)(heads + MR);
    __m512 low[MR], high[MR];
    multiply_group(m, lanes, heads, x, s->row, b, low, high);
    x += lanes * 4;
    b += lanes * NR;
    __m512 low_scale = _mm512_loadu_ps(columns), high_scale = _mm512_loadu_ps(columns + 16);
#pragma GCC unroll 8
    for (int i = 0; i < m; i++) {
      __m512 scale = _mm512_set1_ps(scales[i]);
      low_sum[i] = _mm512_fmadd_ps(_mm512_mul_ps(scale, low_scale), low[i], low_sum[i]);
      high_sum[i] = _mm512_fmadd_ps(_mm512_mul_ps(scale, high_scale), high[i], high_sum[i]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < m; i++) {
    _mm512_store_ps(sums + i * NR, low_sum[i]);
    _mm512_store_ps(sums + i * NR + 16, high_sum[i]);
  }
}

// Scales of weights that several k groups share: the scales of x are applied first, which saves the
// products of scales. Registers do not hold both kinds of sums; the outer ones are in L1.
HY__INLINE void multiply_shared(int m, int64_t lanes, const tile_shape* s, const signed char* x,
                                const int32_t* heads, const int32_t* b, float* sums) {
  const float* columns = (const float*)(b + s->k_groups * lanes * NR);
#pragma GCC unroll 16
  for (int i = 0; i < 2 * m; i++) _mm512_store_ps(sums + 16 * i, _mm512_setzero_ps());
  for (int64_t p = 0; p < s->k_groups; p += s->shared, columns += NR) {
    __m512 low_sum[MR], high_sum[MR];
#pragma GCC unroll 8
    for (int i = 0; i < m; i++) low_sum[i] = high_sum[i] = _mm512_setzero_ps();
    for (int64_t q = 0; q < s->shared; q++, heads += 2 * MR) {
      const float* scales = (const float*)(heads + MR);
      __m512 low[MR], high[MR];
      multiply_group(m, lanes, heads, x, s->row, b, low, high);
      x += lanes * 4;
      b += lanes * NR;
#pragma GCC unroll 8
      for (int i = 0; i < m; i++) {
        __m512 scale = _mm512_set1_ps(scales[i]);
        low_sum[i] = _mm512_fmadd_ps(low[i], scale, low_sum[i]);
        high_sum[i] = _mm512_fmadd_ps(high[i], scale, high_sum[i]);
        IN_REGISTER(low_sum[i]);
        IN_REGISTER(high_sum[i]);
      }
    }
    // Otherwise GCC keeps the outer sums in registers that it lacks, and spills them twice.
    __asm__ volatile("" ::: "memory");
    __m512 low_scale = _mm512_loadu_ps(columns), high_scale = _mm512_loadu_ps(columns + 16);
#pragma GCC unroll 8
    for (int i = 0; i < m; i++) {
      float* to = sums + i * NR;
      _mm512_store_ps(to, _mm512_fmadd_ps(low_sum[i], low_scale, _mm512_load_ps(to)));
      _mm512_store_ps(to + 16, _mm512_fmadd_ps(high_sum[i], high_scale, _mm512_load_ps(to + 16)));
    }
  }
}

static void multiply(const hy__int8_rows* x, int64_t first, const hy__quantized* w, int64_t k_group,
                     const void* tile, const void* packed, int m, float* sums) {
  const tile_shape s = {w->k / k_group, k_group / 4, x->row, w->group / k_group};
  const signed char* rows = x->data + first * x->row;
  // Groups of 32, whose lanes are unrolled.
  if (m == MR && s.lanes == CHUNK / 4) {
    if (s.shared > 1)
      multiply_shared(MR, CHUNK / 4, &s, rows, tile, packed, sums);
    else
      multiply_rows(MR, CHUNK / 4, &s, rows, tile, packed, sums);
    return;
  }
  switch (m + (s.shared > 1 ? MR : 0)) {
#define AS_CASE(lines)                                                             \
  case lines: multiply_rows(lines, s.lanes, &s, rows, tile, packed, sums); return; \
  case MR + (lines): multiply_shared(lines, s.lanes, &s, rows, tile, packed, sums); return;
    AS_CASE(1)
    AS_CASE(2)
    AS_CASE(3)
    AS_CASE(4)
    AS_CASE(5)
    AS_CASE(6)
#undef AS_CASE
    default: return;
  }
}

HY__TARGET_END

const hy__int8_kernel hy__int8_vnni = {.takes = takes,
                                       .row_bytes = row_bytes,
                                       .order = order,
                                       .gemv = gemv,
                                       .mr = MR,
                                       .nr = NR,
                                       .multiple = 4,
                                       .tile_bytes = tile_bytes,
                                       .panel_bytes = panel_bytes,
                                       .pack_rows = pack_rows,
                                       .pack_weights = pack_weights,
                                       .multiply = multiply};
#endif
