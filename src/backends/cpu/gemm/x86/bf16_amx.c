// The bf16 GEMM microkernel in AMX tiles, and a skinny GEMM that reads weights in place.
#include "backends/cpu/family.h"

#if defined(__x86_64__)
#define UNIT 2
#define PRODUCT _tile_dpbf16ps
#include "backends/cpu/gemm/x86/amx_tmpl.h"

HY__TARGET_AMX

// Lanes of up to sixteen rows of w, from the byte `at` of each on, as a tile: in place, or
// where something is missing, in `buffer` with zeros in its place.
static void load_rows(const char* w, int64_t row, int rows, int64_t at, int64_t bytes, char* buffer,
                      const char** from, int64_t* step) {
  *from = w + at;
  *step = row;
  if (rows >= TILE && bytes - at >= TILE * 4) return;
  for (int r = 0; r < TILE; r++)
    _mm512_storeu_si512(buffer + r * TILE * 4,
                        load_bytes(w + r * row + at, r < rows ? bytes - at : 0));
  *from = buffer;
  *step = TILE * 4;
}

// Rows of w are the left operand here, so that they need no packing; the sums come out transposed.
static void dot(const hy__matrix* w, int64_t first, int rows, int64_t k, const float* x, int lines,
                float* out, int64_t out_line) {
  char buffer[2][TILE * TILE * 4] __attribute__((aligned(64)));
  int64_t row = w->row * SIZE, bytes = k * SIZE;
  for (int done = 0; done < rows; done += 2 * TILE) {
    const char* data = hy__matrix_at(w, first + done, 0);
    int left = rows - done;
    _tile_zero(0);
    _tile_zero(1);
    for (int64_t at = 0; at < bytes; at += TILE * 4, x += TILE * NR) {
      const char* from;
      int64_t step;
      _tile_loadd(6, x, NR * 4);
      load_rows(data, row, left, at, bytes, buffer[0], &from, &step);
      hy__tile_memory_written();
      _tile_loadd(4, from, step);
      PRODUCT(0, 4, 6);
      if (left <= TILE) continue;
      load_rows(data + TILE * row, row, left - TILE, at, bytes, buffer[1], &from, &step);
      hy__tile_memory_written();
      _tile_loadd(5, from, step);
      PRODUCT(1, 5, 6);
    }
    x -= (bytes + TILE * 4 - 1) / (TILE * 4) * TILE * NR;
    for (int half = 0; half < 2 && half * TILE < left; half++) {
      float sums[TILE * TILE] __attribute__((aligned(64)));
      if (half == 0)
        _tile_stored(0, sums, TILE * 4);
      else
        _tile_stored(1, sums, TILE * 4);
      __m512 block[TILE];
      for (int r = 0; r < TILE; r++) block[r] = _mm512_load_ps(sums + r * TILE);
      hy__transpose16(block);
      for (int l = 0; l < lines; l++)
        _mm512_mask_storeu_ps(out + l * out_line + done + half * TILE,
                              hy__first16(left - half * TILE), block[l]);
    }
  }
}

HY__TARGET_END

const hy__gemm_kernel hy__gemm_bf16_amx = {.mr = MR,
                                           .nr = NR,
                                           .kc = HY__GEMM_MAX_KC,
                                           .unit = UNIT,
                                           .align = TILE,
                                           .pack_a = pack_a,
                                           .pack_b = pack_b,
                                           .begin = begin,
                                           .end = end,
                                           .multiply = multiply,
                                           .in_place = in_place,
                                           .multiply_in_place = multiply_in_place,
                                           .skinny = dot};
#endif
