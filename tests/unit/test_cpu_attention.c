// The cpu's attention and its gradient at sizes of several panels and blocks, of a few queries over
// many keys and with a paged cache, against the reference, at every level of instructions and with
// one thread or several.
#include <stdio.h>

#include "backends/cpu/simd/half.h"
#include "support/every_level.h"

enum { MOST = 300, COUNT = 40000 };

typedef struct sizes {
  int64_t queries, keys;
  hy_causal causal;
  bool masked;
  int64_t heads, kv_heads, size, value;
  double scale;
} sizes;

static unsigned char memory[5][COUNT * 4];
static float mask[MOST * MOST];

static float draw(void) {
  static uint32_t state = 1;
  state = state * 1664525 + 1013904223;
  return (float)((int32_t)(state >> 8) - (1 << 23)) * 0x1p-22f;
}

static hy_tensor random_tensor(int slot, hy_dtype dtype, int64_t heads, int64_t rows,
                               int64_t columns) {
  for (int64_t i = 0; i < heads * rows * columns; i++)
    hy__store1((char*)memory[slot] + i * (int64_t)hy_dtype_size(dtype), dtype, draw());
  return tensor(memory[slot], dtype, heads, rows, columns);
}

static void attention_call_agrees(const hy__cpu_family* family, hy_call call, const char* what) {
  agree(family, call, (tolerance){0x1p-7, 0x1p-6}, (tolerance){4e-6, 8e-6}, what);
}

// Forward, and the gradient with the reference's output.
static void attention_agrees(const sizes* s, hy_dtype dtype) {
  static float lse[COUNT];
  static unsigned char output[COUNT * 4];
  char what[120];
  snprintf(what, sizeof what, "%lld/%lld heads, %lld queries, %lld keys, causal %d, masked %d, %s",
           (long long)s->heads, (long long)s->kv_heads, (long long)s->queries, (long long)s->keys,
           (int)s->causal, s->masked, hy_dtype_name(dtype));
  hy_tensor in[7] = {random_tensor(0, dtype, s->heads, s->queries, s->value),
                     random_tensor(1, dtype, s->heads, s->queries, s->size),
                     random_tensor(2, dtype, s->kv_heads, s->keys, s->size),
                     random_tensor(3, dtype, s->kv_heads, s->keys, s->value)};
  hy_tensor absent = hy_tensor_absent();
  for (int64_t i = 0; i < s->queries * s->keys; i++) mask[i] = draw() > 0 ? draw() : -INFINITY;
  hy_tensor masks = s->masked ? tensor(mask, HY_F32, s->queries, s->keys) : absent;
  hy_tensor out[2] = {in[0], tensor(lse, HY_F32, s->heads, s->queries)};
  out[0].data = output;
  hy_tensor forward[4] = {in[1], in[2], in[3], masks};
  hy_call call = {.op = HY_OP_sdpa, .n_in = 4, .n_out = 2, .in = forward, .out = out};
  call.attrs.attention = (hy_attrs_attention){.causal = s->causal, .scale = s->scale};
  attention_call_agrees(&hy__cpu_sdpa, call, what);
  assert_int_equal(hy__reference(&call), HY_OK);
  in[4] = out[0];
  in[5] = out[1];
  in[6] = masks;
  hy_tensor grads[3] = {in[1], in[2], in[3]};
  call.op = HY_OP_sdpa_backward;
  call.n_in = 7;
  call.n_out = 3;
  call.in = in;
  call.out = grads;
  attention_call_agrees(&hy__cpu_sdpa_backward, call, what);
}

static void all_agree(const sizes* shapes, int n) {
  for (int i = 0; i < n; i++) {
    attention_agrees(&shapes[i], HY_F32);
    attention_agrees(&shapes[i], HY_BF16);
  }
}

static void panels_agree(void** state) {
  (void)state;
  static const sizes shapes[] = {
      {200, 200, HY_CAUSAL_TOP_LEFT, false, 4, 2, 24, 20, 0},
      {70, 230, HY_CAUSAL_BOTTOM_RIGHT, false, 4, 2, 24, 20, 0},
      {71, 150, HY_CAUSAL_TOP_LEFT, true, 4, 2, 24, 20, 0},
      {150, 70, HY_CAUSAL_TOP_LEFT, false, 4, 2, 24, 20, 0},
      {129, 115, HY_CAUSAL_BOTTOM_RIGHT, false, 4, 2, 24, 20, 0},
      {65, 130, HY_CAUSAL_NONE, true, 4, 2, 24, 20, 0},
      {150, 227, HY_CAUSAL_BOTTOM_RIGHT, false, 3, 1, 33, 17, 0},  // odd everywhere
      {300, 30, HY_CAUSAL_BOTTOM_RIGHT, false, 2, 2, 16, 64, 0},   // most queries see nothing
      {67, 113, HY_CAUSAL_TOP_LEFT, false, 2, 1, 40, 70, -0.3},
  };
  all_agree(shapes, sizeof shapes / sizeof *shapes);
}

static void few_queries_agree(void** state) {
  (void)state;
  static const sizes shapes[] = {
      {1, 300, HY_CAUSAL_NONE, false, 7, 1, 64, 64, 0},   // more than one chunk of keys
      {1, 270, HY_CAUSAL_NONE, true, 2, 2, 40, 33, 0},    // a query to a key head
      {1, 131, HY_CAUSAL_NONE, false, 16, 1, 33, 17, 0},  // as many as are few
      {3, 97, HY_CAUSAL_BOTTOM_RIGHT, false, 6, 2, 24, 70, -0.3},
      {5, 2, HY_CAUSAL_BOTTOM_RIGHT, false, 3, 1, 16, 16, 0},  // three queries see nothing
      {2, 259, HY_CAUSAL_TOP_LEFT, true, 8, 8, 7, 5, 0},
  };
  all_agree(shapes, sizeof shapes / sizeof *shapes);
}

// Sequences of one, three and forty new tokens in KV blocks of five keys, number i of which is
// (i * step + shift) % BLOCKS.
static void blocks_agree(int step, int shift) {
  enum { HEADS = 6, KV_HEADS = 2, SIZE = 24, BLOCK = 5, BLOCKS = 9 };
  static const hy_dtype dtypes[] = {HY_F32, HY_BF16};
  int32_t table[3 * BLOCKS], start[4] = {0, 1, 4, 44}, length[3] = {43, 12, 41};
  for (int i = 0; i < 3 * BLOCKS; i++) table[i] = (i * step + shift) % BLOCKS;
  for (int d = 0; d < 2; d++) {
    hy_tensor in[6] = {random_tensor(0, dtypes[d], 44, HEADS, SIZE),
                       random_tensor(1, dtypes[d], BLOCKS * BLOCK, KV_HEADS, SIZE),
                       random_tensor(2, dtypes[d], BLOCKS * BLOCK, KV_HEADS, SIZE),
                       tensor(table, HY_I32, 3, BLOCKS),
                       tensor(start, HY_I32, 4),
                       tensor(length, HY_I32, 3)};
    for (int i = 1; i < 3; i++)
      in[i] = tensor(in[i].data, dtypes[d], BLOCKS, BLOCK, KV_HEADS, SIZE);
    hy_tensor out = in[0];
    hy_call call = {.op = HY_OP_paged_attention, .n_in = 6, .n_out = 1, .in = in, .out = &out};
    attention_call_agrees(&hy__cpu_paged_attention, call, hy_dtype_name(dtypes[d]));
  }
}

static void paged_agrees(void** state) {
  (void)state;
  blocks_agree(7, 0);  // no two are neighbours
  blocks_agree(1, 0);  // all are
  blocks_agree(1, 4);  // five are, then four
}

// ---- kernels beside the generic ones ----

enum { QUERIES = 32, KEYS = 50, LINES = 9, COLUMNS = 150 };

// Every step-th of n numbers.
static void all_close(const float* got, const float* want, int n, int step, const char* what) {
  for (int i = 0; i < n; i += step) {
    if (!is_close((double)got[i], (double)want[i], (tolerance){8e-6, 8e-6}))
      fail_msg("%s %d is %.9g and should be %.9g", what, i, (double)got[i], (double)want[i]);
  }
}

// The first eight columns hold one special number each, the next ones the same in every fourth,
// seventh and tenth row.
static void draw_scores(float* scores) {
  static const float special[8] = {-INFINITY, -INFINITY, INFINITY, NAN, -100, -88, -87, 0};
  for (int s = 0; s < KEYS; s++) {
    for (int q = 0; q < QUERIES; q++)
      scores[s * QUERIES + q] = s % (q / 8 * 3 + 1) == 0 ? special[q % 8] : 8 * draw();
  }
}

typedef struct softmax_state {
  float scores[KEYS * QUERIES], max[QUERIES], total[QUERIES], sums[3 * QUERIES];
} softmax_state;

static void softmax_kernels_agree(void** state) {
  (void)state;
  static const int seen[][2] = {{KEYS, KEYS}, {0, 17}, {0, 0}};
  static softmax_state first, want, got;
  for (size_t i = 0; i < sizeof seen / sizeof *seen; i++) {
    draw_scores(first.scores);
    for (int q = 0; q < QUERIES; q++) {
      first.max[q] = q % 2 == 0 ? -INFINITY : q % 4 == 1 ? 40 : draw();
      first.total[q] = q % 2 == 0 ? 0 : 3;
    }
    for (int r = 0; r < 3 * QUERIES; r++) first.sums[r] = draw();
    want = first;
    hy__online_softmax_generic(want.scores, seen[i], KEYS, QUERIES, want.max, want.total, want.sums,
                               3);
    for (isa_level level = ISA_AVX2; level < ISA_LEVELS; level++) {
      got = first;
      kernels_up_to(level)->attention.online_softmax(got.scores, seen[i], KEYS, QUERIES, got.max,
                                                     got.total, got.sums, 3);
      all_close(got.total, want.total, QUERIES, 1, "total");
      for (int q = 0; q < QUERIES; q++) {
        if (isnan(want.total[q])) continue;  // then so is the result, whatever the others are
        all_close(got.scores + q, want.scores + q, KEYS * QUERIES - q, QUERIES, "weight");
        all_close(got.max + q, want.max + q, 1, 1, "maximum");
        all_close(got.sums + q, want.sums + q, 3 * QUERIES - q, QUERIES, "sum");
      }
    }
  }
}

static void exp_columns_agree(void** state) {
  (void)state;
  static float first[KEYS * QUERIES], want[KEYS * QUERIES], got[KEYS * QUERIES];
  float base[QUERIES];
  draw_scores(first);
  for (int q = 0; q < QUERIES; q++)
    base[q] = q % 7 == 0 ? -INFINITY : q % 7 == 1 ? INFINITY : q % 7 == 2 ? -70 : draw();
  memcpy(want, first, sizeof want);
  hy__exp_columns_generic(want, KEYS, QUERIES, base);
  for (isa_level level = ISA_AVX2; level < ISA_LEVELS; level++) {
    memcpy(got, first, sizeof got);
    kernels_up_to(level)->attention.exp_columns(got, KEYS, QUERIES, base);
    all_close(got, want, KEYS * QUERIES, 1, "exponential");
  }
}

static void weighted_sums_agree(void** state) {
  (void)state;
  static const hy_dtype dtypes[] = {HY_F32, HY_BF16, HY_F16};
  static float p[LINES * KEYS], first[LINES * COLUMNS], want[LINES * COLUMNS], got[LINES * COLUMNS];
  for (int i = 0; i < LINES * KEYS; i++) p[i] = draw();
  for (int i = 0; i < LINES * COLUMNS; i++) first[i] = draw();
  for (int d = 0; d < 3; d++) {
    for (int n = 1; n < COLUMNS; n += n < 40 ? 1 : 9) {
      random_tensor(0, dtypes[d], 1, KEYS, n);
      for (int m = 1; m <= LINES; m++) {
        hy__matrix v = {memory[0], dtypes[d], n, 1};
        memcpy(want, first, sizeof want);
        hy__weighted_sum_generic(&v, KEYS, n, p, KEYS, m, want, COLUMNS);
        for (isa_level level = ISA_AVX2; level < ISA_LEVELS; level++) {
          memcpy(got, first, sizeof got);
          kernels_up_to(level)->attention.weighted_sum(&v, KEYS, n, p, KEYS, m, got, COLUMNS);
          all_close(got, want, LINES * COLUMNS, 1, "sum");
        }
      }
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(panels_agree),      cmocka_unit_test(few_queries_agree),
      cmocka_unit_test(paged_agrees),      cmocka_unit_test(softmax_kernels_agree),
      cmocka_unit_test(exp_columns_agree), cmocka_unit_test(weighted_sums_agree)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
