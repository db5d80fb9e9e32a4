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
    if (left <= HY__WEIGHTS_AHEAD) ahead += (rows - 1) * w->row;
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

// Four numbers along k to a lane. A tile of lines holds, for each k_group, what its sums start
// with, its scales and its lanes; a panel of weights its scales and its lanes.
enum { MR = 6, NR = 32, HEAD = 16 };  // HEAD: lanes of a row of starts or scales

static int64_t tile_bytes(int64_t k, int64_t k_group) {
  return (k / 4 * MR + k / k_group * 2 * HEAD + 15) / 16 * 64;
}

static int64_t panel_bytes(int64_t k, int64_t k_group) {
  return (k / 4 + k / k_group) * NR * 4;
}

// Sixteen rows of up to 64 bytes as lanes: 16 lanes across each, `lanes` of them stored.
HY__INLINE void store_lanes(__m512i rows[16], int lanes, int width, uint32_t* to) {
  __m512 block[16];
  for (int i = 0; i < 16; i++) block[i] = _mm512_castsi512_ps(rows[i]);
  hy__transpose16(block);
  __mmask16 store = hy__first16(width);
  int64_t step = width < 16 ? width : NR;
  for (int i = 0; i < lanes; i++) _mm512_mask_storeu_ps(to + i * step, store, block[i]);
}

static void pack_rows(const hy__int8_rows* x, hy_dtype weights, int64_t first, int m,
                      int64_t k_group, void* tile) {
  uint32_t* to = tile;
  for (int64_t at = 0; at < x->k; at += k_group) {
    float* scales = (float*)to + HEAD;
    int32_t* starts = (int32_t*)to;
    memset(to, 0, 2 * HEAD * sizeof *to);
    for (int i = 0; i < m; i++) scales[i] = x->scale[(first + i) * x->scale_row + at / x->group];
    __m512i sums[16];
    for (int i = 0; i < 16; i++) sums[i] = _mm512_setzero_si512();
    to += 2 * HEAD;
    for (int64_t in = 0; in < k_group; in += 64) {
      __m512i rows[16];
      int64_t left = k_group - in < 64 ? k_group - in : 64;
      for (int i = 0; i < 16; i++) {
        rows[i] = _mm512_setzero_si512();
        if (i >= m) continue;
        rows[i] =
            _mm512_maskz_loadu_epi8(hy__first64(left), x->data + (first + i) * x->row + at + in);
        sums[i] = hy__lane_sums(sums[i], rows[i]);
      }
      store_lanes(rows, (int)left / 4, MR, to);
      to += left / 4 * MR;
    }
    for (int i = 0; i < m; i++)
      starts[i] = -_mm512_reduce_add_epi32(sums[i]) * (weights == HY_I4 ? 8 : 128);
  }
}

// Up to 64 weights of a row, made unsigned.
HY__INLINE __m512i unsigned_weights(const hy__quantized* w, int64_t row, int64_t at,
                                    int64_t count) {
  const unsigned char* data = w->data + row * w->row;
  if (w->dtype == HY_I8)
    return _mm512_xor_si512(_mm512_maskz_loadu_epi8(hy__first64(count), data + at),
                            _mm512_set1_epi8((char)0x80));
  __m512i words = _mm512_cvtepu8_epi16(
      _mm256_maskz_loadu_epi8((__mmask32)hy__first64(count / 2), data + at / 2));
  __m512i each = _mm512_and_si512(_mm512_or_si512(words, _mm512_slli_epi16(words, 4)),
                                  _mm512_set1_epi16(0x0f0f));
  return _mm512_xor_si512(each, _mm512_set1_epi8(8));
}

// Row `row` of the panel that comes next: its 32 streams are too many for the hardware.
HY__INLINE void prefetch_next(const hy__quantized* w, int64_t row, int64_t at) {
  const unsigned char* data = w->data + (row + NR) * w->row;
  int64_t byte = weight_bytes(w->dtype, at);
  if (byte % 64 == 0) _mm_prefetch((const char*)data + byte, _MM_HINT_T1);
}

static void pack_weights(const hy__quantized* w, int64_t first, int n, int64_t k_group,
                         void* packed) {
  uint32_t* to = packed;
  for (int64_t at = 0; at < w->k; at += k_group) {
    float* scales = (float*)to;
    for (int j = 0; j < NR; j++)
      scales[j] = j < n ? w->scale[(first + j) * w->scale_row + at / w->group] : 0;
    to += NR;
    for (int64_t in = 0; in < k_group; in += 64) {
      int64_t left = k_group - in < 64 ? k_group - in : 64;
      for (int half = 0; half < NR; half += 16) {
        __m512i rows[16];
        for (int j = 0; j < 16; j++) {
          rows[j] = _mm512_setzero_si512();
          if (half + j >= n) continue;
          rows[j] = unsigned_weights(w, first + half + j, at + in, left);
          prefetch_next(w, first + half + j, at + in);
        }
        store_lanes(rows, (int)left / 4, 16, to + half);
      }
      to += left / 4 * NR;
    }
  }
}

HY__INLINE void multiply_rows(int m, int64_t k_groups, int64_t lanes, const int32_t* a,
                              const int32_t* b, float* sums) {
  __m512 low_sum[MR], high_sum[MR];
#pragma GCC unroll 8
  for (int i = 0; i < m; i++) low_sum[i] = high_sum[i] = _mm512_setzero_ps();
  for (int64_t p = 0; p < k_groups; p++) {
    const int32_t* starts = a;
    const float *scales = (const float*)a + HEAD, *columns = (const float*)b;
    a += 2 * HEAD;
    b += NR;
    __m512i low[MR], high[MR];
#pragma GCC unroll 8
    for (int i = 0; i < m; i++) low[i] = high[i] = _mm512_set1_epi32(starts[i]);
    for (int64_t k = 0; k < lanes; k++, a += MR, b += NR) {
      __m512i b0 = _mm512_loadu_si512(b), b1 = _mm512_loadu_si512(b + 16);
#pragma GCC unroll 8
      for (int i = 0; i < m; i++) {
        __m512i x = _mm512_set1_epi32(a[i]);
        low[i] = _mm512_dpbusd_epi32(low[i], b0, x);
        high[i] = _mm512_dpbusd_epi32(high[i], b1, x);
        IN_REGISTER(low[i]);
        IN_REGISTER(high[i]);
      }
    }
    __m512 low_scale = _mm512_loadu_ps(columns), high_scale = _mm512_loadu_ps(columns + 16);
#pragma GCC unroll 8
    for (int i = 0; i < m; i++) {
      __m512 scale = _mm512_set1_ps(scales[i]);
      low_sum[i] =
          _mm512_fmadd_ps(_mm512_mul_ps(scale, low_scale), _mm512_cvtepi32_ps(low[i]), low_sum[i]);
      high_sum[i] = _mm512_fmadd_ps(_mm512_mul_ps(scale, high_scale), _mm512_cvtepi32_ps(high[i]),
                                    high_sum[i]);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < m; i++) {
    _mm512_store_ps(sums + i * NR, low_sum[i]);
    _mm512_store_ps(sums + i * NR + 16, high_sum[i]);
  }
}

static void multiply(int64_t k, int64_t k_group, const void* tile, const void* packed, int m,
                     float* sums) {
  int64_t k_groups = k / k_group, lanes = k_group / 4;
  switch (m) {
#define AS_CASE(rows) \
  case rows: multiply_rows(rows, k_groups, lanes, tile, packed, sums); return;
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
