// The int8 microkernel in AMX tiles, compiled once more with tiles emulated in plain C: processors
// with AVX-512 and without AMX test its packing, its steps and its scales too.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backends/cpu/runtime/isa.h"
#include "support/close.h"

#if defined(__x86_64__)
#include "support/emulated_tiles.h"

static void multiply_bytes(int c, int a, int b) {
  assert_int_equal(shape.bytes[a], 4 * shape.rows[b]);  // the instruction would raise SIGILL
  for (int i = 0; i < shape.rows[c]; i++) {
    for (int j = 0; j < shape.bytes[c] / 4; j++) {
      int32_t sum;
      memcpy(&sum, &tiles[c][i][4 * j], sizeof sum);
      for (int k = 0; k < shape.bytes[a]; k++)
        sum += tiles[a][i][k] * tiles[b][k / 4][4 * j + k % 4];
      memcpy(&tiles[c][i][4 * j], &sum, sizeof sum);
    }
  }
}

#undef _tile_dpbssd
#define _tile_dpbssd multiply_bytes
#define hy__int8_amx emulated
#include "backends/cpu/quant/x86/linear_int8_amx.c"  // NOLINT(bugprone-suspicious-include)

enum { M = 16, N = 64, MAX_K = 768 };

static uint32_t random_state = 3;
static unsigned draw(void) {
  random_state = random_state * 1664525 + 1013904223;
  return random_state >> 16;
}

static int weight_at(const hy__quantized* w, int64_t row, int64_t c) {
  if (w->dtype == HY_I8) return (signed char)w->data[row * w->row + c];
  int nibble = w->data[row * w->row + c / 2] >> (c % 2 * 4) & 15;
  return nibble < 8 ? nibble : nibble - 16;
}

// Rows past m and columns past n of the panel do not exist.
static void check(hy_dtype dtype, int64_t k, int64_t x_group, int64_t w_group, int m, int n) {
  static signed char x_data[M * MAX_K];
  static unsigned char w_data[2 * N * MAX_K];  // asked for a panel ahead
  static float x_scale[M * MAX_K / 4], w_scale[N * MAX_K / 4];
  float sums[M * N] __attribute__((aligned(64)));
  for (size_t i = 0; i < sizeof x_data; i++) x_data[i] = (signed char)draw();
  for (size_t i = 0; i < sizeof w_data; i++) w_data[i] = (unsigned char)draw();
  for (int i = 0; i < M * MAX_K / 4; i++) x_scale[i] = 0.5f + (float)(draw() % 64) / 64;
  for (int i = 0; i < N * MAX_K / 4; i++) w_scale[i] = 0.5f + (float)(draw() % 64) / 64;
  hy__int8_rows x = {x_data, m, k, k, x_scale, k / x_group, x_group};
  int64_t row = dtype == HY_I4 ? k / 2 : k;
  hy__quantized w = {w_data, dtype, n, k, row, w_scale, k / w_group, w_group};
  int64_t group = x_group < w_group ? x_group : w_group;
  void* tile = aligned_alloc(64, (size_t)emulated.tile_bytes(k, group));
  void* panel = aligned_alloc(64, (size_t)emulated.panel_bytes(&w, group));
  emulated.begin(group);
  emulated.pack_rows(&x, dtype, 0, m, group, tile);
  emulated.pack_weights(&w, 0, n, group, panel);
  emulated.multiply(&x, 0, &w, group, tile, panel, m, sums);
  emulated.end();
  free(tile);
  free(panel);
  for (int i = 0; i < m; i++) {
    for (int j = 0; j < n; j++) {
      double want = 0;
      for (int64_t c = 0; c < k; c++)
        want += (double)x_data[i * k + c] * weight_at(&w, j, c) *
                (double)x_scale[i * (k / x_group) + c / x_group] *
                (double)w_scale[j * (k / w_group) + c / w_group];
      if (!is_close((double)sums[i * N + j], want, (tolerance){1e-5, 1}))
        fail_msg("k %lld, groups %lld and %lld: [%d, %d] is %.9g and should be %.9g", (long long)k,
                 (long long)x_group, (long long)w_group, i, j, (double)sums[i * N + j], want);
    }
  }
}

static void multiplies_by_group(void** state) {
  (void)state;
  if (!(hy__cpu_isa() & HY__ISA_AVX512)) {
    print_message("compiled, not run: this processor has no AVX-512\n");
    skip();
  }
  for (int i = 0; i < 2; i++) {
    hy_dtype dtype = i ? HY_I4 : HY_I8;
    check(dtype, 768, 32, 128, M, N);
    check(dtype, 640, 64, 128, M, N);
    check(dtype, 640, 64, 32, M, N);
    check(dtype, 768, 32, 32, 1, N);
    check(dtype, 768, 768, 128, 15, 33);
    check(dtype, 160, 32, 32, M, N);    // two groups at a time, and one
    check(dtype, 96, 32, 96, M, N);     // three that share a scale
    check(dtype, 512, 128, 256, M, N);  // two steps a group
    check(dtype, 288, 96, 288, M, 1);   // steps of 48
    check(dtype, 36, 36, 12, 5, N);     // steps of 12
    check(dtype, 4, 4, 4, M, N);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(multiplies_by_group)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
#else
int main(void) {
  return 0;
}
#endif
