// Flash attention of bf16 in AMX tiles, which are emulated in plain C: its packing, the zeros that
// whole tiles read and the tiles' configuration.
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "backends/cpu/runtime/isa.h"
#include "backends/cpu/simd/half.h"

#if defined(__x86_64__)
#include "support/emulated_tiles.h"

static atomic_int products;

static void multiply_pairs(int c, int a, int b) {
  atomic_fetch_add(&products, 1);
  assert_int_equal(shape.bytes[a], 4 * shape.rows[b]);  // the instruction would raise SIGILL
  for (int i = 0; i < shape.rows[c]; i++) {
    for (int j = 0; j < shape.bytes[c] / 4; j++) {
      float sum;
      uint16_t x[32], y[2];
      memcpy(&sum, &tiles[c][i][4 * j], sizeof sum);
      memcpy(x, tiles[a][i], sizeof x);
      for (int k = 0; k < shape.bytes[a] / 2; k += 2) {
        memcpy(y, &tiles[b][k / 2][4 * j], sizeof y);
        for (int l = 0; l < 2; l++)
          sum += hy__load1(&x[k + l], HY_BF16) * hy__load1(&y[l], HY_BF16);
      }
      memcpy(&tiles[c][i][4 * j], &sum, sizeof sum);
    }
  }
}

#undef _tile_dpbf16ps
#define _tile_dpbf16ps multiply_pairs
#define hy__gemm_bf16_amx emulated
#include "backends/cpu/gemm/x86/bf16_amx.c"  // NOLINT(bugprone-suspicious-include)

static void init_with_tiles(hy__cpu_kernels* kernels, uint32_t isa) {
  hy__cpu_kernels_init(kernels, isa);
  if (kernels->attention.bf16_forward) kernels->attention.bf16_forward = &emulated;
}
#define hy__cpu_kernels_init init_with_tiles
#include "support/every_level.h"

enum { HEADS = 4, KV_HEADS = 2, MOST = 300, MOST_SIZE = 80 };

static uint16_t memory[3][HEADS * MOST * MOST_SIZE], output[HEADS * MOST * MOST_SIZE];
static float mask[MOST * MOST], lse[HEADS * MOST];

static float draw(void) {
  static uint32_t state = 1;
  state = state * 1664525 + 1013904223;
  return (float)((int32_t)(state >> 8) - (1 << 23)) * 0x1p-22f;
}

static hy_tensor random_tensor(int slot, int64_t heads, int64_t rows, int64_t columns) {
  for (int64_t i = 0; i < heads * rows * columns; i++)
    hy__store1(&memory[slot][i], HY_BF16, draw());
  return tensor(memory[slot], HY_BF16, heads, rows, columns);
}

static void check(int64_t queries, int64_t keys, int64_t size, int64_t value, hy_causal causal,
                  bool masked) {
  for (int64_t i = 0; i < queries * keys; i++) mask[i] = draw() > 0 ? draw() : -INFINITY;
  hy_tensor in[4] = {random_tensor(0, HEADS, queries, size), random_tensor(1, KV_HEADS, keys, size),
                     random_tensor(2, KV_HEADS, keys, value),
                     masked ? tensor(mask, HY_F32, queries, keys) : hy_tensor_absent()};
  hy_tensor out[2] = {tensor(output, HY_BF16, HEADS, queries, value),
                      tensor(lse, HY_F32, HEADS, queries)};
  hy_call call = {.op = HY_OP_sdpa, .n_in = 4, .n_out = 2, .in = in, .out = out};
  call.attrs.attention = (hy_attrs_attention){.causal = causal};
  char what[100];
  snprintf(
      what, sizeof what, "%lld queries, %lld keys of %lld, values of %lld, causal %d, masked %d",
      (long long)queries, (long long)keys, (long long)size, (long long)value, (int)causal, masked);
  agree(&hy__cpu_sdpa, call, (tolerance){0x1p-7, 0x1p-6}, (tolerance){4e-6, 8e-6}, what);
}

static void tiles_agree(void** state) {
  (void)state;
  if (!(hy__cpu_isa() & HY__ISA_AVX512_BF16)) {
    print_message("compiled, not run: this processor has no AVX-512 BF16\n");
    skip();
  }
  check(200, 200, 64, 64, HY_CAUSAL_BOTTOM_RIGHT, false);
  check(70, 300, 64, 64, HY_CAUSAL_BOTTOM_RIGHT, false);
  check(65, 130, 24, 20, HY_CAUSAL_NONE, true);
  check(150, 227, 33, 17, HY_CAUSAL_BOTTOM_RIGHT, false);  // odd everywhere
  check(300, 30, 8, 64, HY_CAUSAL_BOTTOM_RIGHT, false);    // most see nothing; less than a tile
  check(67, 113, 40, 70, HY_CAUSAL_TOP_LEFT, true);
  check(64, 96, 80, 80, HY_CAUSAL_NONE, false);
  assert_true(products > 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(tiles_agree)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
#else
int main(void) {
  return 0;
}
#endif
