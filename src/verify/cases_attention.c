// Cases of attention and rotary positions.
#include <math.h>

#include "ops/reference/element.h"
#include "ops/reference/walk.h"
#include "verify/case.h"

typedef struct attention {
  int lead;
  int64_t heads, kv_heads, queries, keys, size, value_size;
} attention;

static attention draw_attention(hy__case* c) {
  attention a;
  // Of models: a thousand keys, heads of 128 and more, long prompts, many heads of a large batch.
  a.lead = (int)hy__draw_int(c, 0, 1);
  if (hy__is_model(c, 0)) a.lead = 0;
  if (hy__is_model(c, 3)) a.lead = HY_MAX_DIMS - 3;
  a.kv_heads = hy__draw_small_sized(c, 3, 3, 101);
  if (hy__is_model(c, 0) && a.kv_heads > 2) a.kv_heads = 2;
  a.heads = a.kv_heads * hy__draw_small_sized(c, 3, 3, 4);
  a.queries = hy__draw_sized(c, 2, 1013);
  a.keys = hy__draw_bool(c) ? a.queries : hy__draw_size_from_1(c);
  if (a.keys == 0) a.keys = 3;
  if (c->flavour == HY__FLAVOUR_MODEL) a.keys = 1 + hy__draw_sized(c, 0, 20011);
  a.size = hy__draw_size_from_1(c);
  a.value_size = hy__draw_int(c, 0, 3) ? a.size : hy__draw_size_from_1(c);
  if (a.size > 64) a.size = 64;
  if (a.value_size > 64) a.value_size = 64;
  if (hy__is_model(c, 1)) {
    a.size = a.value_size = hy__draw_sized(c, 1, hy__draw_bool(c) ? 128 : 192);
    a.queries = hy__draw_sized(c, 1, 131);
    a.kv_heads = c->main ? 3 : 1;
    a.heads = 3 * a.kv_heads;
  }
  c->terms = a.keys + a.size;
  c->scale = 8;
  c->wide = true;
  return a;
}

static hy_tensor* add_heads(hy__case* c, const attention* a, int64_t heads, int64_t rows,
                            int64_t size) {
  int64_t shape[HY_MAX_DIMS];
  for (int d = 0; d < a->lead; d++) shape[d] = d == 0 ? 2 : 1;
  shape[a->lead] = heads;
  shape[a->lead + 1] = rows;
  shape[a->lead + 2] = size;
  hy_tensor* t = hy__add_input(c, c->dtype, a->lead + 3, shape);
  hy__fill_uniform(c, t, -2, 2);
  return t;
}

// None, of bool, or of numbers that are added; every query sees at least the first key.
static void add_mask(hy__case* c, const attention* a) {
  uint64_t kind = hy__draw(c) % 4;
  if (kind < 2) {
    hy__add_absent(c);
    return;
  }
  bool per_head = hy__draw_bool(c);
  int64_t shape[3] = {per_head ? a->heads : 1, a->queries, a->keys};
  hy_dtype dtype = kind == 2 ? HY_BOOL : c->dtype;
  // Strides of 0 would give the first key of every query the mask of the last.
  hy_tensor* mask = hy__add_unrepeated(c, dtype, 3, shape);
  int64_t numel = hy_tensor_numel(mask);
  for (int64_t i = 0; i < numel; i++) {
    bool seen = i % a->keys == 0 || hy__draw_bool(c);
    if (kind == 2)
      hy__store_i(HY_BOOL, hy__element(mask, i), seen);
    else
      hy__store_f(c->dtype, hy__element(mask, i), seen ? hy__draw_real(c, -1, 1) : -INFINITY);
  }
}

// 0 stands for the usual one.
static double draw_scale(hy__case* c, int64_t size) {
  const double scales[4] = {1 / sqrt((double)size), 0, hy__draw_real(c, 0.1, 1), 0.3};
  return scales[hy__draw(c) % 4];
}

static void draw_attributes(hy__case* c, const attention* a) {
  c->call.attrs.attention.scale = draw_scale(c, a->size);
  c->call.attrs.attention.causal = (hy_causal)hy__draw_int(c, 0, HY_CAUSAL_BOTTOM_RIGHT);
  // A query that sees no key at all has no average to give.
  if (a->queries > a->keys && c->call.attrs.attention.causal == HY_CAUSAL_BOTTOM_RIGHT)
    c->call.attrs.attention.causal = HY_CAUSAL_TOP_LEFT;
}

void hy__cases_sdpa(hy__case* c) {
  attention a = draw_attention(c);
  add_heads(c, &a, a.heads, a.queries, a.size);
  add_heads(c, &a, a.kv_heads, a.keys, a.size);
  add_heads(c, &a, a.kv_heads, a.keys, a.value_size);
  add_mask(c, &a);
  draw_attributes(c, &a);
  if (hy__mistake(c, 1, HY_SHAPE, "head sizes that differ")) {
    c->call.n_in = 1;
    add_heads(c, &a, a.kv_heads, a.keys, a.size + 1);
    add_heads(c, &a, a.kv_heads, a.keys, a.size);
    hy__add_absent(c);
  }
  if (hy__mistake(c, 2, HY_SHAPE, "query heads that are no multiple of the key heads")) {
    c->call.n_in = 1;
    add_heads(c, &a, a.heads + 1, a.keys, a.size);
    add_heads(c, &a, a.heads + 1, a.keys, a.size);
    hy__add_absent(c);
  }
  if (hy__mistake(c, 3, HY_SHAPE, "a mask that does not broadcast")) {
    c->call.n_in = 3;
    hy__add_input(c, HY_BOOL, 2, (int64_t[]){a.queries + 1, a.keys + 2});
  }
}

void hy__cases_sdpa_backward(hy__case* c) {
  attention a = draw_attention(c);
  if (a.queries == 0) a.queries = 2;
  hy_tensor in[4], dout;
  dout = *add_heads(c, &a, a.heads, a.queries, a.value_size);
  in[0] = *add_heads(c, &a, a.heads, a.queries, a.size);
  in[1] = *add_heads(c, &a, a.kv_heads, a.keys, a.size);
  in[2] = *add_heads(c, &a, a.kv_heads, a.keys, a.value_size);
  add_mask(c, &a);
  in[3] = c->in[4];
  draw_attributes(c, &a);
  c->call.n_in = 4;
  hy__add_result(c, HY_OP_sdpa, &c->call.attrs, 4, in, 0);
  hy__add_result(c, HY_OP_sdpa, &c->call.attrs, 4, in, 1);
  c->in[c->call.n_in++] = in[3];
  c->terms = a.keys + a.queries * (a.heads / a.kv_heads) + a.size;
  (void)dout;
}

#define MOST_SEQUENCES 130

// Sequences of different lengths in blocks in any order.
void hy__cases_paged_attention(hy__case* c) {
  // Of models: pages of 16 and more, contexts of a thousand, many sequences, heads of 128 and many.
  bool in_pages = hy__is_model(c, 0);
  int64_t kv_heads = hy__draw_small_sized(c, 2, 3, 33),
          heads = kv_heads * hy__draw_small_sized(c, 3, 3, 4);
  int64_t size = hy__draw_small_sized(c, 16, 2, hy__draw_bool(c) ? 128 : 192);
  int64_t block = hy__draw_small_sized(c, 4, 0, hy__draw_bool(c) ? 16 : 32);
  int64_t sequences = hy__draw_small_sized(c, 4, 1, MOST_SEQUENCES);
  int64_t most = hy__draw_small_sized(c, 4, 0, 65);
  if (hy__is_model(c, 1)) {
    block = 4;
    kv_heads = 2;
    heads = 4;
  }
  int64_t length[MOST_SEQUENCES], queries[MOST_SEQUENCES], tokens = 0;
  // Some of the blocks are nobody's.
  int64_t blocks = sequences * most + hy__draw_small_sized(c, 1, 1, 20011);
  for (int s = 0; s < sequences; s++) {
    length[s] = hy__draw_int(c, in_pages ? most * block - 3 : 1, most * block);
    queries[s] = hy__draw_int(c, 1, length[s] < 3 ? length[s] : 3);
    if (in_pages && s == 0 && length[s] > 120) queries[s] = 120;  // a prompt
    tokens += queries[s];
  }
  hy_dtype index = hy__draw_bool(c) ? HY_I32 : HY_I64;
  hy_tensor* t = hy__add_input(c, c->dtype, 3, (int64_t[]){tokens, heads, size});
  hy__fill_uniform(c, t, -2, 2);
  for (int i = 0; i < 2; i++) {
    t = hy__add_input(c, c->dtype, 4, (int64_t[]){blocks, block, kv_heads, size});
    hy__fill_uniform(c, t, -2, 2);
  }
  // Integer inputs describe the batch.
  hy_tensor* table = hy__add_unrepeated(c, index, 2, (int64_t[]){sequences, most});
  for (int64_t i = 0; i < sequences * most; i++)
    hy__store_i(index, hy__element(table, i),
                (i * 7 + 1) % (sequences * most) + (blocks - sequences * most) / 2);
  hy_tensor* start = hy__add_unrepeated(c, index, 1, (int64_t[]){sequences + 1});
  hy_tensor* context = hy__add_unrepeated(c, index, 1, &sequences);
  int64_t at = 0;
  for (int s = 0; s <= sequences; s++) {
    hy__store_i(index, hy__element(start, s), at);
    if (s == sequences) break;
    hy__store_i(index, hy__element(context, s), length[s]);
    at += queries[s];
  }
  c->call.attrs.scale.scale = draw_scale(c, size);
  c->terms = most * block + size;
  c->scale = 8;
  c->wide = true;
  if (hy__mistake_in_data(c, 1, HY_INDEX, "a block that is not there"))
    hy__store_i(index, hy__element(table, 0), blocks);
  if (hy__mistake_in_data(c, 2, HY_INDEX, "a context longer than its blocks"))
    hy__store_i(index, hy__element(context, 0), most * block + 1);
  if (hy__mistake(c, 3, HY_SHAPE, "query heads that are no multiple of the key heads")) {
    hy_tensor kept[6];
    for (int i = 0; i < 6; i++) kept[i] = c->in[i];
    c->call.n_in = 0;
    hy__add_input(c, c->dtype, 3, (int64_t[]){tokens, heads + 1, size});
    kept[1].shape[2] = kept[2].shape[2] = heads + 2;
    for (int i = 1; i < 6; i++) c->in[c->call.n_in++] = kept[i];
  }
}

// Sequences of different lengths, each with one new token; the blocks of one are no other's.
void hy__cases_rope_paged_attention(hy__case* c) {
  // Of models: pages of 16 and more in contexts of a thousand, many sequences, heads of 128 and
  // many.
  bool in_pages = hy__is_model(c, 0);
  int64_t kv_heads = hy__draw_small_sized(c, 2, 3, 33),
          heads = kv_heads * hy__draw_small_sized(c, 9, 3, 4);
  int64_t size = 2 * hy__draw_small_sized(c, 16, 2, hy__draw_bool(c) ? 64 : 96);
  if (c->flavour != HY__FLAVOUR_MODEL && hy__draw_int(c, 0, 3) == 0) size = 64;
  int64_t block = hy__draw_small_sized(c, 16, 0, hy__draw_bool(c) ? 16 : 32);
  int64_t sequences = hy__draw_small_sized(c, 3, 1, MOST_SEQUENCES);
  int64_t most = hy__draw_small_sized(c, c->key.quick ? 4 : 12, 0, 65);
  if (hy__is_model(c, 1)) {
    block = 4;
    kv_heads = 2;
    heads = 4;
  }
  // Some of the blocks are nobody's.
  int64_t blocks = sequences * most + hy__draw_small_sized(c, 1, 1, 20011);
  int64_t nobodys = (blocks - sequences * most + 1) / 2;
  hy_dtype index = hy__draw_bool(c) ? HY_I32 : HY_I64;
  hy_dtype angles = c->dtype == HY_F64 || hy__draw_bool(c) ? c->dtype : HY_F32;
  c->mixed |= angles != c->dtype;
  hy_tensor* t;
  for (int i = 0; i < 2; i++) {
    t = hy__add_unrepeated(c, c->dtype, 4, (int64_t[]){blocks, block, kv_heads, size});
    hy__fill_uniform(c, t, -2, 2);
  }
  t = hy__add_input(c, c->dtype, 3, (int64_t[]){sequences, heads + 2 * kv_heads, size});
  hy__fill_uniform(c, t, -2, 2);
  for (int i = 0; i < 2; i++) {
    t = hy__add_input(c, angles, 2, (int64_t[]){most * block, size / 2});
    hy__fill_uniform(c, t, -1, 1);
  }
  hy_tensor* table = hy__add_unrepeated(c, index, 2, (int64_t[]){sequences, most});
  for (int64_t i = 0; i < sequences * most; i++)
    hy__store_i(index, hy__element(table, i), sequences * most - 1 - i + nobodys);
  hy_tensor* context = hy__add_unrepeated(c, index, 1, &sequences);
  for (int s = 0; s < sequences; s++)
    hy__store_i(index, hy__element(context, s),
                hy__draw_int(c, in_pages ? most * block - 3 : 1, most * block));
  c->call.attrs.scale.scale = draw_scale(c, size);
  c->terms = most * block + size;
  c->scale = 8;
  c->wide = true;
  if (hy__mistake_in_data(c, 1, HY_INDEX, "a block that is not there"))
    hy__store_i(index, hy__element(table, 0), blocks);
  if (hy__mistake_in_data(c, 2, HY_INDEX, "a context longer than its blocks"))
    hy__store_i(index, hy__element(context, 0), most * block + 1);
  if (hy__mistake(c, 3, HY_SHAPE, "heads that leave none for q")) {
    hy_tensor kept[7];
    for (int i = 0; i < 7; i++) kept[i] = c->in[i];
    c->call.n_in = 2;
    hy__add_input(c, c->dtype, 3, (int64_t[]){sequences, 2 * kv_heads - 1, size});
    for (int i = 3; i < 7; i++) c->in[c->call.n_in++] = kept[i];
  }
}

// Tokens at any position, some of them not kept.
void hy__cases_rope_cache(hy__case* c) {
  int64_t kv_heads = hy__draw_small_sized(c, 2, 3, 33),
          heads = kv_heads * hy__draw_small_sized(c, 9, 3, 4);
  int64_t size = 2 * hy__draw_small_sized(c, 16, 2, hy__draw_bool(c) ? 64 : 96);
  int64_t block = hy__draw_small_sized(c, 16, 0, hy__draw_bool(c) ? 16 : 32);
  int64_t tokens = hy__draw_small_sized(c, 5, 1, c->key.quick ? 700 : 9001);
  if (hy__is_model(c, 1)) {
    block = 2;
    kv_heads = 2;
    heads = 4;
  }
  int64_t positions = hy__draw_int(c, 1, 2 * tokens);
  int64_t blocks = (tokens + block - 1) / block + hy__draw_small_sized(c, 1, 1, 20011);
  int64_t slots = blocks * block;
  hy_dtype index = hy__draw_bool(c) ? HY_I32 : HY_I64;
  hy_dtype angles = c->dtype == HY_F64 || hy__draw_bool(c) ? c->dtype : HY_F32;
  c->mixed |= angles != c->dtype;
  hy_tensor* t;
  for (int i = 0; i < 2; i++) {
    t = hy__add_unrepeated(c, c->dtype, 4, (int64_t[]){blocks, block, kv_heads, size});
    hy__fill_uniform(c, t, -2, 2);
  }
  t = hy__add_input(c, c->dtype, 3, (int64_t[]){tokens, heads + 2 * kv_heads, size});
  hy__fill_uniform(c, t, -2, 2);
  for (int i = 0; i < 2; i++) {
    t = hy__add_input(c, angles, 2, (int64_t[]){positions, size / 2});
    hy__fill_uniform(c, t, -1, 1);
  }
  hy_tensor* position = hy__add_unrepeated(c, index, 1, &tokens);
  hy_tensor* slot = hy__add_unrepeated(c, index, 1, &tokens);
  for (int64_t i = 0; i < tokens; i++) {
    hy__store_i(index, hy__element(position, i), hy__draw_int(c, 0, positions - 1));
    hy__store_i(index, hy__element(slot, i), i % 7 == 3 ? -1 : slots - 1 - i);
  }
  c->scale = 4;
  c->wide = true;
  if (hy__mistake_in_data(c, 1, HY_INDEX, "a position behind the tables"))
    hy__store_i(index, hy__element(position, 0), positions);
  if (hy__mistake_in_data(c, 2, HY_INDEX, "a slot that is not there"))
    hy__store_i(index, hy__element(slot, 0), slots);
}

void hy__cases_rope(hy__case* c) {
  int64_t shape[HY_MAX_DIMS], half[HY_MAX_DIMS];
  hy__has_sizes_to(c, 4);
  int ndim = (int)hy__draw_int(c, 1, 4);
  if (c->flavour == HY__FLAVOUR_MODEL) ndim = c->model == 2 ? HY_MAX_DIMS : 3;
  for (int d = 0; d < ndim; d++)
    shape[d] = d == 0 ? hy__draw_sized(c, 1, 20011) : hy__draw_small(c, 5);
  shape[ndim - 1] = 2 * hy__draw_small_sized(c, 8, 0, 64);
  if (ndim > 2 && c->flavour == HY__FLAVOUR_MODEL && c->model != 2)
    shape[1] = hy__draw_small_sized(c, 5, 3, 33001);
  for (int d = 0; d < ndim; d++) half[d] = d + 2 >= ndim ? shape[d] : 1;
  half[ndim - 1] = shape[ndim - 1] / 2;
  int skip = ndim > 2 && hy__draw_bool(c) ? ndim - 2 : 0;
  bool wide = hy__draw_bool(c) && c->dtype != HY_F64;
  c->mixed |= wide && c->dtype != HY_F32;
  hy__add_input(c, c->dtype, ndim, shape);
  for (int i = 0; i < 2; i++) {
    hy_tensor* t = hy__add_input(c, wide ? HY_F32 : c->dtype, ndim - skip, half + skip);
    hy__fill_uniform(c, t, -1, 1);
  }
  c->call.attrs.rope.interleaved = hy__draw_bool(c);
  c->call.attrs.rope.inverse = hy__draw_int(c, 0, 3) == 0;
  c->scale = 2 * hy__largest(&c->in[0]);
  c->wide = true;
  if (hy__mistake(c, 1, HY_SHAPE, "an odd last dimension")) {
    c->call.n_in = 0;
    hy__add_input(c, c->dtype, 2, (int64_t[]){2, 5});
    hy__add_input(c, c->dtype, 2, (int64_t[]){2, 2});
    hy__add_input(c, c->dtype, 2, (int64_t[]){2, 2});
  }
}
