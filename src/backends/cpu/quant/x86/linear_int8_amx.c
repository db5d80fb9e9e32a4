// int8 GEMM microkernel with int8 and int4 weights in AMX tiles, 16 x 64 with scale groups.
//
// The tiles multiply signed bytes, up to 64 along k at once. The int32 sums of a k group go through
// a buffer in L1 into 16 float32 vectors, a row of x each, where both scales meet; the tiles work
// on the next two groups meanwhile. Two groups at a time have tiles of their own: loading one takes
// as long as a product, and neither should wait for the other. A k group is cut into equal steps,
// so that one configuration of the tiles serves all of them.
#include <string.h>

#include "backends/cpu/family.h"
#include "backends/cpu/quant/int8_kernel.h"

#if defined(__x86_64__)
#include "backends/cpu/quant/x86/weights_avx512.h"
#include "backends/cpu/simd/amx.h"

HY__TARGET_AMX

// TILE: rows of a tile, columns of its sums and bytes of a row of words in one.
enum { TILE = 16, ROW = 64, NR = 64 };

// Bytes along k of a step: as many as a tile has that divide the k group.
static int step_of(int64_t k_group) {
  int step = ROW;
  while (k_group % step != 0) step -= 4;
  return step;
}

static void begin(int64_t k_group) {
  int step = step_of(k_group);
  hy__tile_config config = {.palette = 1};
  for (int t = 0; t < 8; t++) {  // the first four are sums
    config.bytes[t] = ROW;
    config.rows[t] = TILE;
  }
  config.bytes[4] = config.bytes[5] = (uint16_t)step;     // x
  config.rows[6] = config.rows[7] = (uint8_t)(step / 4);  // weights
  hy__tile_configure(&config);
}

static void end(void) {
  _tile_release();
}

// Sixteen rows of x, or of weights, are the scales of a k group and then its steps, group after
// group; a panel of weights is four such.
static int64_t tile_bytes(int64_t k, int64_t k_group) {
  return (k + k / k_group * 4) * TILE;
}

static int64_t panel_bytes(const hy__quantized* w, int64_t k_group) {
  return NR / TILE * tile_bytes(w->k, k_group);
}

HY__INLINE __mmask64 first_bytes(int64_t n) {
  return n >= 64 ? ~(__mmask64)0 : ((__mmask64)1 << n) - 1;
}

// [step][row][byte]
static void pack_rows(const hy__int8_rows* x, hy_dtype weights, int64_t first, int m,
                      int64_t k_group, void* tile) {
  (void)weights;
  int step = step_of(k_group);
  __mmask64 bytes = first_bytes(step);
  char* to = tile;
  for (int64_t at = 0; at < x->k; at += k_group) {
    float* scales = (float*)to;
    for (int i = 0; i < TILE; i++)
      scales[i] = i < m ? x->scale[(first + i) * x->scale_row + at / x->group] : 0;
    to += ROW;
    for (int64_t in = at; in < at + k_group; in += step) {
      for (int i = 0; i < TILE; i++, to += step) {
        __m512i row = _mm512_setzero_si512();
        if (i < m) row = _mm512_maskz_loadu_epi8(bytes, x->data + (first + i) * x->row + in);
        _mm512_mask_storeu_epi8(to, bytes, row);
      }
    }
  }
}

// A step of a row of weights as signed bytes.
HY__INLINE __m512i load_weights(const hy__quantized* w, int64_t row, int64_t at, int step) {
  const unsigned char* data = w->data + row * w->row;
  if (w->dtype == HY_I8) return _mm512_maskz_loadu_epi8(first_bytes(step), data + at);
  __m512i words = _mm512_cvtepu8_epi16(
      _mm256_maskz_loadu_epi8((__mmask32)first_bytes(step / 2), data + at / 2));
  __m512i each =
      _mm512_and_si512(_mm512_or_si512(words, _mm512_slli_epi16(words, 4)), _mm512_set1_epi8(15));
  const __m512i sign = _mm512_set1_epi8(8);
  return _mm512_sub_epi8(_mm512_xor_si512(each, sign), sign);
}

// [step][k / 4][column], four numbers to a word.
HY__INLINE void pack_columns(const hy__quantized* w, int64_t first, int n, int64_t k_group,
                             char* to) {
  int step = step_of(k_group);
  for (int64_t at = 0; at < w->k; at += k_group) {
    float* scales = (float*)to;
    for (int j = 0; j < TILE; j++)
      scales[j] = j < n ? w->scale[(first + j) * w->scale_row + at / w->group] : 0;
    to += ROW;
    for (int64_t in = at; in < at + k_group; in += step) {
      __m512 block[TILE];
#pragma GCC unroll 16
      for (int j = 0; j < TILE; j++) {
        block[j] = _mm512_setzero_ps();
        if (j < n) block[j] = _mm512_castsi512_ps(load_weights(w, first + j, in, step));
      }
      hy__transpose16(block);
      for (int l = 0; l < step / 4; l++, to += ROW) _mm512_store_ps((float*)to, block[l]);
    }
  }
}

static void pack_weights(const hy__quantized* w, int64_t first, int n, int64_t k_group,
                         void* packed) {
  char* to = packed;
  for (int j = 0; j < NR; j += TILE, to += tile_bytes(w->k, k_group))
    pack_columns(w, first + j, n - j, k_group, to);
}

typedef struct groups {
  int64_t n, bytes;           // k groups, and bytes of one in a tile of rows
  int64_t steps, step_bytes;  // of a group, and bytes of one
  int step;
} groups;

// A step of each of two k groups into the sums of tiles `first` and `second`.
#define MULTIPLY_STEP(first, second, at)                \
  do {                                                  \
    _tile_loadd(4, a + ROW + (at), p->step);            \
    _tile_loadd(6, b + ROW + (at), ROW);                \
    _tile_loadd(5, a + p->bytes + ROW + (at), p->step); \
    _tile_loadd(7, b + p->bytes + ROW + (at), ROW);     \
    _tile_dpbssd(first, 4, 6);                          \
    _tile_dpbssd(second, 5, 7);                         \
  } while (0)

// The sums of the two k groups at a and b into memory.
#define MULTIPLY_PAIR(first, second)                                                        \
  do {                                                                                      \
    _tile_zero(first);                                                                      \
    _tile_zero(second);                                                                     \
    for (int64_t s = 0; s < p->steps; s++) MULTIPLY_STEP(first, second, s * p->step_bytes); \
    _tile_stored(first, whole[first], ROW);                                                 \
    _tile_stored(second, whole[second], ROW);                                               \
  } while (0)

// The same of the last k group of an odd number.
#define MULTIPLY_LAST(sums_tile)                            \
  do {                                                      \
    _tile_zero(sums_tile);                                  \
    for (int64_t s = 0; s < p->steps; s++) {                \
      _tile_loadd(4, a + ROW + s * p->step_bytes, p->step); \
      _tile_loadd(6, b + ROW + s * p->step_bytes, ROW);     \
      _tile_dpbssd(sums_tile, 4, 6);                        \
    }                                                       \
    _tile_stored(sums_tile, whole[sums_tile], ROW);         \
  } while (0)

HY__INLINE __m512 sums_of_row(const int32_t whole[TILE * TILE], int i) {
  return _mm512_cvtepi32_ps(_mm512_load_si512(whole + i * TILE));
}

HY__INLINE void add_scaled(const int32_t whole[TILE * TILE], const char* a, const char* b,
                           __m512 sums[TILE]) {
  const float* scales = (const float*)a;
  __m512 columns = _mm512_load_ps((const float*)b);
#pragma GCC unroll 16
  for (int i = 0; i < TILE; i++)
    sums[i] = _mm512_fmadd_ps(sums_of_row(whole, i),
                              _mm512_mul_ps(columns, _mm512_set1_ps(scales[i])), sums[i]);
}

// Two k groups with one scale of the weights: those of x come first, which saves a product.
HY__INLINE void add_shared(int32_t whole[2][TILE * TILE], const char* a, const char* next_a,
                           const char* b, __m512 sums[TILE]) {
  const float *scales = (const float*)a, *next = (const float*)next_a;
  __m512 columns = _mm512_load_ps((const float*)b);
#pragma GCC unroll 16
  for (int i = 0; i < TILE; i++) {
    __m512 both = _mm512_mul_ps(sums_of_row(whole[0], i), _mm512_set1_ps(scales[i]));
    both = _mm512_fmadd_ps(sums_of_row(whole[1], i), _mm512_set1_ps(next[i]), both);
    sums[i] = _mm512_fmadd_ps(both, columns, sums[i]);
  }
}

HY__INLINE void add_pair(bool shared, const groups* p, int32_t whole[2][TILE * TILE], const char* a,
                         const char* b, __m512 sums[TILE]) {
  if (shared) {
    add_shared(whole, a, a + p->bytes, b, sums);
    return;
  }
  add_scaled(whole[0], a, b, sums);
  add_scaled(whole[1], a + p->bytes, b + p->bytes, sums);
}

HY__INLINE void multiply_tile(bool shared, const groups* p, const char* a, const char* b,
                              float* out) {
  int32_t whole[4][TILE * TILE] __attribute__((aligned(64)));
  int64_t pairs = p->n / 2;
  __m512 sums[TILE];
#pragma GCC unroll 16
  for (int i = 0; i < TILE; i++) sums[i] = _mm512_setzero_ps();
  for (int64_t g = 0; g < pairs; g++, a += 2 * p->bytes, b += 2 * p->bytes) {
    if (g % 2 != 0)
      MULTIPLY_PAIR(2, 3);
    else
      MULTIPLY_PAIR(0, 1);
    if (g > 0)
      add_pair(shared, p, whole + (g % 2 != 0 ? 0 : 2), a - 2 * p->bytes, b - 2 * p->bytes, sums);
  }
  if (p->n % 2 != 0 && pairs % 2 != 0)
    MULTIPLY_LAST(2);
  else if (p->n % 2 != 0)
    MULTIPLY_LAST(0);
  if (pairs > 0)
    add_pair(shared, p, whole + (pairs % 2 != 0 ? 0 : 2), a - 2 * p->bytes, b - 2 * p->bytes, sums);
  if (p->n % 2 != 0) add_scaled(whole[pairs % 2 != 0 ? 2 : 0], a, b, sums);
#pragma GCC unroll 16
  for (int i = 0; i < TILE; i++) _mm512_store_ps(out + i * NR, sums[i]);
}

static void multiply(const hy__int8_rows* x, int64_t first, const hy__quantized* w, int64_t k_group,
                     const void* tile, const void* packed, int m, float* sums) {
  (void)x, (void)first, (void)m;  // the tile has them all, and zeros past them
  int step = step_of(k_group);
  const groups p = {w->k / k_group, tile_bytes(k_group, k_group), k_group / step,
                    (int64_t)step * TILE, step};
  const char* columns = packed;
  bool shared = w->group % (2 * k_group) == 0;
  hy__tile_memory_written();
  for (int j = 0; j < NR; j += TILE, columns += tile_bytes(w->k, k_group)) {
    if (shared)
      multiply_tile(true, &p, tile, columns, sums + j);
    else
      multiply_tile(false, &p, tile, columns, sums + j);
  }
}

HY__TARGET_END

const hy__int8_kernel hy__int8_amx = {.mr = TILE,
                                      .nr = NR,
                                      .multiple = 4,
                                      .begin = begin,
                                      .end = end,
                                      .tile_bytes = tile_bytes,
                                      .panel_bytes = panel_bytes,
                                      .pack_rows = pack_rows,
                                      .pack_weights = pack_weights,
                                      .multiply = multiply};
#endif
