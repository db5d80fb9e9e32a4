// The cpu's attention and its gradient at sizes of several panels and blocks, against the
// reference, at every level of instructions and with one thread or several.
#include <stdio.h>

#include "backends/cpu/simd/half.h"
#include "support/every_level.h"

enum { HEADS = 4, KV_HEADS = 2, MOST = 230, SIZE = 24, VALUE = 20, COUNT = HEADS * MOST * SIZE };

typedef struct sizes {
  int64_t queries, keys;
  hy_causal causal;
  bool masked;
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
  static float lse[HEADS * MOST];
  static unsigned char output[COUNT * 4];
  char what[80];
  snprintf(what, sizeof what, "%lld queries, %lld keys, causal %d, masked %d, %s",
           (long long)s->queries, (long long)s->keys, (int)s->causal, s->masked,
           hy_dtype_name(dtype));
  hy_tensor in[7] = {random_tensor(0, dtype, HEADS, s->queries, VALUE),
                     random_tensor(1, dtype, HEADS, s->queries, SIZE),
                     random_tensor(2, dtype, KV_HEADS, s->keys, SIZE),
                     random_tensor(3, dtype, KV_HEADS, s->keys, VALUE)};
  hy_tensor absent = hy_tensor_absent();
  for (int64_t i = 0; i < s->queries * s->keys; i++) mask[i] = draw() > 0 ? draw() : -INFINITY;
  hy_tensor masks = s->masked ? tensor(mask, HY_F32, s->queries, s->keys) : absent;
  hy_tensor out[2] = {in[0], tensor(lse, HY_F32, HEADS, s->queries)};
  out[0].data = output;
  hy_tensor forward[4] = {in[1], in[2], in[3], masks};
  hy_call call = {.op = HY_OP_sdpa, .n_in = 4, .n_out = 2, .in = forward, .out = out};
  call.attrs.attention = (hy_attrs_attention){.causal = s->causal};
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

static void panels_agree(void** state) {
  (void)state;
  static const sizes shapes[] = {
      {200, 200, HY_CAUSAL_TOP_LEFT, false},     {70, 230, HY_CAUSAL_BOTTOM_RIGHT, false},
      {71, 150, HY_CAUSAL_TOP_LEFT, true},       {150, 70, HY_CAUSAL_TOP_LEFT, false},
      {129, 115, HY_CAUSAL_BOTTOM_RIGHT, false}, {65, 130, HY_CAUSAL_NONE, true},
  };
  for (int i = 0; i < 6; i++) {
    attention_agrees(&shapes[i], HY_F32);
    attention_agrees(&shapes[i], HY_BF16);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(panels_agree)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
