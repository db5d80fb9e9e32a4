// int8 GEMV and GEMM microkernel with int8 and int4 weights in AVX-512 VNNI.
//
// The instruction multiplies unsigned by signed bytes. The weights are made unsigned by adding 128
// (int4: 8), which is one xor; what that adds, 128 times the sum of the row of x, is the same for
// every row of weights, and the sums start at its negative. All of it is exact.
#include <string.h>

#include "backends/cpu/family.h"
#include "backends/cpu/quant/int8_kernel.h"

#if defined(__x86_64__)
#include "backends/cpu/quant/x86/weights_avx512.h"

HY__TARGET_VNNI

HY__INLINE __mmask64 first64(int64_t n) {
  return n >= 64 ? ~(__mmask64)0 : ((__mmask64)1 << (n > 0 ? n : 0)) - 1;
}

// -offset times the sums of each lane's four numbers.
HY__INLINE __m512i counterweight(__m512i sums, hy_dtype weights) {
  return _mm512_sub_epi32(_mm512_setzero_si512(),
                          _mm512_slli_epi32(sums, weights == HY_I4 ? 3 : 7));
}

HY__INLINE __m512i lane_sums(__m512i sums, __m512i x) {
  return _mm512_dpbusd_epi32(sums, _mm512_set1_epi8(1), x);
}

// ---- dot products ----

// 64 bytes of weights meet a block of a line: 64 numbers, or 128 for int4, whose bytes hold an even
// number below an odd one. Lane i holds numbers 4 i .. or 8 i .. of the block.
enum { BYTES = 64 };

typedef struct block {
  __m512i start;
  __m512 scale;
  __m512i x[2];  // int4: the even numbers and the odd ones; int8: only the first
} block;

static bool takes(const hy__int8_rows* x, const hy__quantized* w) {
  int64_t lane = w->dtype == HY_I4 ? 8 : 4, length = lane * 16;
  bool even_w = w->group == w->k || w->group == 32 || w->group == 64 || w->group % length == 0;
  return even_w && (x->group == x->k || x->group % lane == 0);
}

static int64_t block_bytes(hy_dtype weights) {
  return (int64_t)sizeof(block) - (weights == HY_I4 ? 0 : BYTES);
}

static int64_t row_bytes(const hy__int8_rows* x, const hy__quantized* w) {
  int64_t length = w->dtype == HY_I4 ? 2 * BYTES : BYTES;
  return (x->k + length - 1) / length * block_bytes(w->dtype);
}

HY__INLINE __m512i bytes_of(__m512i words_a, __m512i words_b) {
  return _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi16_epi8(words_a)),
                            _mm512_cvtepi16_epi8(words_b), 1);
}

static __m512 lane_scales(const hy__int8_rows* x, int64_t i, int64_t at, int64_t length) {
  const float* scale = x->scale + i * x->scale_row;
  int64_t lane = length / 16;
  if (x->group == x->k || x->group == 32 || x->group == 64 || x->group % length == 0)
    return hy__block_scales(scale + at / x->group, x->group, length, x->k - at);
  float each[16] = {0};
  for (int l = 0; l < 16 && at + l * lane < x->k; l++) each[l] = scale[(at + l * lane) / x->group];
  return _mm512_loadu_ps(each);
}

static void order(const hy__int8_rows* x, const hy__quantized* w, int64_t i, void* line) {
  bool nibbles = w->dtype == HY_I4;
  int64_t length = nibbles ? 2 * BYTES : BYTES, step = block_bytes(w->dtype);
  const signed char* data = x->data + i * x->row;
  char* to = line;
  for (int64_t at = 0; at < x->k; at += length, to += step) {
    block* b = (block*)to;
    __m512i first = _mm512_maskz_loadu_epi8(first64(x->k - at), data + at);
    b->scale = lane_scales(x, i, at, length);
    if (!nibbles) {
      b->x[0] = first;
      b->start = counterweight(lane_sums(_mm512_setzero_si512(), first), HY_I8);
      continue;
    }
    __m512i second = _mm512_maskz_loadu_epi8(first64(x->k - at - 64), data + at + 64);
    b->x[0] = bytes_of(first, second);
    b->x[1] = bytes_of(_mm512_srli_epi16(first, 8), _mm512_srli_epi16(second, 8));
    b->start = counterweight(lane_sums(lane_sums(_mm512_setzero_si512(), b->x[0]), b->x[1]), HY_I4);
  }
}

HY__INLINE __m512 add_block(hy_dtype dtype, __m512i bytes, const block* b, __m512 scales,
                            __m512 sum) {
  __m512i products;
  if (dtype == HY_I4) {
    __m512i unsign = _mm512_xor_si512(bytes, _mm512_set1_epi8((char)0x88));
    __m512i low = _mm512_and_si512(unsign, _mm512_set1_epi8(15));
    __m512i high = _mm512_and_si512(_mm512_srli_epi16(unsign, 4), _mm512_set1_epi8(15));
    products = _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(b->start, low, b->x[0]), high, b->x[1]);
  } else {
    __m512i unsign = _mm512_xor_si512(bytes, _mm512_set1_epi8((char)0x80));
    products = _mm512_dpbusd_epi32(b->start, unsign, b->x[0]);
  }
  return _mm512_fmadd_ps(_mm512_cvtepi32_ps(products), _mm512_mul_ps(scales, b->scale), sum);
}

// Up to PAIR rows of weights with m rows of x: as two rows where x is too large for L1, of which
// each of its blocks is then read half as often, else one after another in the order of memory.
enum { PAIR = 2, X_FOR_PAIRS = 24 << 10 };

HY__INLINE void dot_rows(hy_dtype dtype, int rows, bool near, const hy__quantized* w,
                         hy__scale_walk walk, int64_t first, const char* lines, int64_t line_size,
                         int m, float* out, int64_t ldo) {
  const int64_t length = dtype == HY_I4 ? 2 * BYTES : BYTES, step = block_bytes(dtype);
  const unsigned char* data = w->data + first * w->row;
  const float* scale = w->scale + first * w->scale_row;
  int64_t block_in_group = 0;
  __m512 sums[PAIR][HY__INT8_MAX_M];
#pragma GCC unroll 2
  for (int r = 0; r < rows; r++) {
#pragma GCC unroll 4
    for (int l = 0; l < m; l++) sums[r][l] = _mm512_setzero_ps();
  }
  int64_t left = w->k;
  for (; left >= length; left -= length, data += BYTES, lines += step) {
    // What a pair has ahead of its end is that of the next pair.
    const unsigned char* ahead = data + HY__WEIGHTS_AHEAD / rows;
    if (rows > 1 && left * BYTES <= HY__WEIGHTS_AHEAD / rows * length) ahead += (rows - 1) * w->row;
#pragma GCC unroll 2
    for (int r = 0; r < rows; r++) {
      hy__prefetch(ahead + r * w->row, near);
      __m512i bytes = _mm512_loadu_si512(data + r * w->row);
      __m512 scales = hy__block_scales(scale + r * w->scale_row, w->group, length, length);
#pragma GCC unroll 4
      for (int l = 0; l < m; l++)
        sums[r][l] =
            add_block(dtype, bytes, (const block*)(lines + l * line_size), scales, sums[r][l]);
    }
    if (++block_in_group == walk.blocks) {
      scale += walk.advance;
      block_in_group = 0;
    }
  }
  __mmask64 mask = first64(dtype == HY_I4 ? left / 2 : left);
  for (int r = 0; r < rows && left > 0; r++) {
    __m512i bytes = _mm512_maskz_loadu_epi8(mask, data + r * w->row);
    __m512 scales = hy__block_scales(scale + r * w->scale_row, w->group, length, left);
    for (int l = 0; l < m; l++)
      sums[r][l] =
          add_block(dtype, bytes, (const block*)(lines + l * line_size), scales, sums[r][l]);
  }
#pragma GCC unroll 2
  for (int r = 0; r < rows; r++) {
#pragma GCC unroll 4
    for (int l = 0; l < m; l++) out[l * ldo + r] = _mm512_reduce_add_ps(sums[r][l]);
  }
}

HY__INLINE void all_rows(hy_dtype dtype, const hy__quantized* w, int64_t first, int n,
                         const char* lines, int64_t line_size, int m, float* out, int64_t ldo) {
  hy__scales_ahead ahead = hy__scales_ahead_of(w);
  hy__scale_walk walk = hy__scale_walk_of(w, dtype == HY_I4 ? 2 * BYTES : BYTES);
  int64_t x_bytes = m * line_size;
  bool pairs = m > 1 && x_bytes > X_FOR_PAIRS;
  // int8 has few scales, and one row of x leaves it enough of L1.
  bool near = !pairs && (x_bytes <= HY__X_IN_L1 || (dtype == HY_I8 && m == 1));
  int step = pairs ? PAIR : 1;
  for (int r = 0; r < n; r += n - r < step ? 1 : step) {
    for (int i = 0; i < step && !near; i++) hy__prefetch_scales(w, first + r + i, ahead);
    if (m > 1 && pairs && n - r >= PAIR)
      dot_rows(dtype, PAIR, false, w, walk, first + r, lines, line_size, m, out + r, ldo);
    else if (near)
      dot_rows(dtype, 1, true, w, walk, first + r, lines, line_size, m, out + r, ldo);
    else
      dot_rows(dtype, 1, false, w, walk, first + r, lines, line_size, m, out + r, ldo);
  }
}

static void gemv(const hy__int8_rows* x, const hy__quantized* w, int64_t first, int rows,
                 const void* lines, int m, float* out, int64_t ldo) {
  int64_t size = row_bytes(x, w);
  switch (m + (w->dtype == HY_I4 ? 4 : 0)) {
    case 1: all_rows(HY_I8, w, first, rows, lines, size, 1, out, ldo); return;
    case 2: all_rows(HY_I8, w, first, rows, lines, size, 2, out, ldo); return;
    case 3: all_rows(HY_I8, w, first, rows, lines, size, 3, out, ldo); return;
    case 4: all_rows(HY_I8, w, first, rows, lines, size, 4, out, ldo); return;
    case 5: all_rows(HY_I4, w, first, rows, lines, size, 1, out, ldo); return;
    case 6: all_rows(HY_I4, w, first, rows, lines, size, 2, out, ldo); return;
    case 7: all_rows(HY_I4, w, first, rows, lines, size, 3, out, ldo); return;
    default: all_rows(HY_I4, w, first, rows, lines, size, 4, out, ldo); return;
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
        rows[i] = _mm512_maskz_loadu_epi8(first64(left), x->data + (first + i) * x->row + at + in);
        sums[i] = lane_sums(sums[i], rows[i]);
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
    return _mm512_xor_si512(_mm512_maskz_loadu_epi8(first64(count), data + at),
                            _mm512_set1_epi8((char)0x80));
  __m512i words =
      _mm512_cvtepu8_epi16(_mm256_maskz_loadu_epi8((__mmask32)first64(count / 2), data + at / 2));
  __m512i each = _mm512_and_si512(_mm512_or_si512(words, _mm512_slli_epi16(words, 4)),
                                  _mm512_set1_epi16(0x0f0f));
  return _mm512_xor_si512(each, _mm512_set1_epi8(8));
}

// Row `row` of the panel that comes next: its 32 streams are too many for the hardware.
HY__INLINE void prefetch_next(const hy__quantized* w, int64_t row, int64_t at) {
  const unsigned char* data = w->data + (row + NR) * w->row;
  _mm_prefetch((const char*)data + (w->dtype == HY_I4 ? at / 2 : at), _MM_HINT_T1);
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

// Keeps a sum in the register that the instruction adds to: left alone, GCC copies it back and
// forth and runs out of registers.
#define IN_PLACE(x) __asm__("" : "+v"(x))

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
        IN_PLACE(low[i]);
        IN_PLACE(high[i]);
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
