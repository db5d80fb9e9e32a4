// Flash attention: the blocks that the forward and the backward pass are made of.
#include <math.h>

#include "backends/cpu/attention/flash.h"
#include "backends/cpu/runtime/thread_pool.h"
#include "backends/cpu/simd/half.h"
#include "base/math.h"

// Panels of keys to a block: 96 keys in f32, 112 in bf16, 128 in tiles.
enum { PANELS = 16, PAIR_PANELS = 8, MOST_PAIR_KEYS = 128 };

static int64_t offset_of(const hy_tensor* t, int inner, int64_t batch, int64_t head) {
  int at = t->ndim - inner - 1;  // the heads' dimension
  int64_t offset = head * t->stride[at];
  for (int d = at - 1; d >= 0; d--) {
    offset += batch % t->shape[d] * t->stride[d];
    batch /= t->shape[d];
  }
  return offset;
}

hy__matrix hy__head(const hy_tensor* t, int64_t batch, int64_t head) {
  int64_t offset = offset_of(t, 2, batch, head) * (int64_t)hy_dtype_size(t->dtype);
  return (hy__matrix){(char*)t->data + offset, t->dtype, t->stride[t->ndim - 2],
                      t->stride[t->ndim - 1]};
}

char* hy__head_row(const hy_tensor* t, int64_t batch, int64_t head, int64_t row) {
  int64_t offset = offset_of(t, 1, batch, head) + row * t->stride[t->ndim - 1];
  return (char*)t->data + offset * (int64_t)hy_dtype_size(t->dtype);
}

static hy_tensor expand_mask(const hy_tensor* mask, const hy__sdpa* a) {
  if (mask->dtype == HY_NONE) return *mask;
  hy_tensor t = *mask;
  int n = a->q->ndim, missing = n - mask->ndim;
  t.ndim = n;
  for (int d = 0; d < n; d++) {
    bool repeated = d < missing || mask->shape[d - missing] == 1;
    t.shape[d] = d < n - 1 ? a->q->shape[d] : a->keys;
    t.stride[d] = repeated ? 0 : mask->stride[d - missing];
  }
  return t;
}

void hy__sdpa_describe(const hy__cpu_kernels* kernels, const hy__gemm_kernel* pairs,
                       const hy_call* call, int first, int mask_at, hy__sdpa* a) {
  *a = (hy__sdpa){.kernels = kernels, .q = &call->in[first]};
  a->k = a->q + 1;
  a->v = a->q + 2;
  int n = a->q->ndim;
  a->heads = a->q->shape[n - 3];
  a->kv_heads = a->k->shape[n - 3];
  a->group = a->kv_heads > 0 ? a->heads / a->kv_heads : 0;
  a->queries = a->q->shape[n - 2];
  a->keys = a->k->shape[n - 2];
  a->size = a->q->shape[n - 1];
  a->value_size = a->v->shape[n - 1];
  a->batches = 1;
  for (int d = 0; d < n - 3; d++) a->batches *= a->q->shape[d];
  a->causal = call->attrs.attention.causal;
  double scale = call->attrs.attention.scale;
  a->scale = (float)(scale != 0 ? scale : a->size > 0 ? 1 / sqrt((double)a->size) : 1);
  a->mask = expand_mask(&call->in[mask_at], a);
  if (a->q->dtype != HY_BF16) pairs = NULL;
  a->gemm = pairs ? pairs : kernels->gemm.f32;
  // In the softmax the scale costs nothing, but a mask is added to scaled scores, and the largest
  // score stays the largest, and -inf what it is, only with a positive scale.
  bool fused = pairs && a->mask.dtype == HY_NONE && a->scale > 0;
  a->softmax_scale = fused ? a->scale : 1;
  a->block =
      pairs ? min_i64(PAIR_PANELS, MOST_PAIR_KEYS / pairs->mr) * pairs->mr : PANELS * a->gemm->mr;
}

int64_t hy__visible(const hy__sdpa* a, int64_t query) {
  int64_t n = a->causal == HY_CAUSAL_NONE       ? a->keys
              : a->causal == HY_CAUSAL_TOP_LEFT ? query + 1
                                                : query + 1 + a->keys - a->queries;
  return n < 0 ? 0 : n > a->keys ? a->keys : n;
}

// ---- packing ----

int64_t hy__flash_keys_size(const hy__sdpa* a) {
  int64_t widest = a->size > a->value_size ? a->size : a->value_size;
  return round_up(a->keys, a->gemm->mr) * hy__gemm_words(a->gemm, (int)widest);
}

int64_t hy__flash_values_size(const hy__sdpa* a) {
  int64_t widest = a->size > a->value_size ? a->size : a->value_size;
  return round_up(widest, a->gemm->mr) * hy__gemm_words(a->gemm, (int)a->keys);
}

void hy__flash_pack_keys(const hy__sdpa* a, const hy__matrix* k, int64_t columns, int64_t first,
                         int64_t end, float* packed) {
  const hy__gemm_kernel* gemm = a->gemm;
  int64_t words = hy__gemm_words(gemm, (int)columns);
  for (int64_t s = first; s < end; s += gemm->mr)
    gemm->pack_a(k, s, min_i64(gemm->mr, end - s), 0, (int)columns, packed + s * words);
}

void hy__flash_pack_values(const hy__sdpa* a, const hy__matrix* v, int64_t columns, int64_t first,
                           int64_t end, float* packed) {
  const hy__gemm_kernel* gemm = a->gemm;
  hy__matrix across = {v->data, v->dtype, v->column, v->row};
  int64_t lines = round_up(columns, gemm->mr);
  for (int64_t s = first; s < end; s += a->block) {
    int n = min_i64(a->block, end - s), words = hy__gemm_words(gemm, n);
    float* to = packed + hy__gemm_words(gemm, (int)s) * lines;
    for (int64_t c = 0; c < columns; c += gemm->mr)
      gemm->pack_a(&across, c, min_i64(gemm->mr, columns - c), s, n, to + c * words);
  }
}

// ---- blocks ----

void hy__flash_visible_keys(const hy__sdpa* a, int64_t first_query, int queries, int64_t first_key,
                            int keys, int* seen) {
  for (int g = 0; g < HY__QUERY_GROUPS; g++) {
    int last = min_i64((g + 1) * HY__QUERY_GROUP, queries) - 1;
    int64_t visible = hy__visible(a, first_query + last) - first_key;
    seen[g] = visible < 0 ? 0 : min_i64(visible, keys);
  }
}

void hy__flash_scores(const hy__sdpa* a, const float* packed_keys, int64_t first, int n,
                      const int* seen, int64_t columns, const float* queries, float* scores) {
  const hy__gemm_kernel* gemm = a->gemm;
  int64_t words = hy__gemm_words(gemm, (int)columns);
  bool skips = seen && gemm->unit == 1;  // a tile of bf16 takes as long for half of its queries
  int masked = 0;  // queries that see none of a tile's keys: the first ones, by whole groups
  for (int i = 0; i < n; i += gemm->mr) {
    while (skips && seen[masked / HY__QUERY_GROUP] <= i) masked += HY__QUERY_GROUP;
    gemm->multiply((int)columns, packed_keys + (first + i) * words, queries + masked,
                   scores + (int64_t)i * gemm->nr + masked, gemm->nr, min_i64(gemm->mr, n - i),
                   gemm->nr - masked, false);
  }
}

void hy__flash_accumulate(const hy__sdpa* a, const float* packed_values, int64_t first, int n,
                          const int* seen, int64_t columns, const float* scores, float* sums) {
  const hy__gemm_kernel* gemm = a->gemm;
  const float* block =
      packed_values + hy__gemm_words(gemm, (int)first) * round_up(columns, gemm->mr);
  // Packed by whole blocks, of which the n keys may be the first ones only.
  int packed = hy__gemm_words(gemm, min_i64(a->block, a->keys - first));
  // Keys that the first half of the queries does not see are weighed for the others alone; a
  // quarter would not make up for reading and writing the sums once more.
  int half = gemm->nr / 2 / HY__QUERY_GROUP * HY__QUERY_GROUP;
  int common = seen && gemm->unit == 1 && half > 0 ? seen[half / HY__QUERY_GROUP - 1] : n;
  for (int64_t c = 0; c < columns; c += gemm->mr) {
    const float* values = block + c * packed;
    float* to = sums + c * gemm->nr;
    int rows = min_i64(gemm->mr, columns - c);
    gemm->multiply(common, values, scores, to, gemm->nr, rows, gemm->nr, true);
    if (common < n)
      gemm->multiply(n - common, values + (int64_t)common * gemm->mr,
                     scores + (int64_t)common * gemm->nr + half, to + half, gemm->nr, rows,
                     gemm->nr - half, true);
  }
}

void hy__mask_row(const hy__sdpa* a, int64_t batch, int64_t head, int64_t query, int64_t first_key,
                  int keys, int step, float* scores) {
  hy__matrix mask = hy__head(&a->mask, batch, head);
  int64_t size = (int64_t)hy_dtype_size(mask.dtype);
  const char* row = (const char*)mask.data + (query * mask.row + first_key * mask.column) * size;
  for (int s = 0; s < keys; s++) {
    const char* at = row + s * mask.column * size;
    float* score = &scores[s * step];
    if (mask.dtype == HY_BOOL) {
      if (!*(const unsigned char*)at) *score = -INFINITY;
      continue;
    }
    float value = mask.dtype == HY_F64 ? (float)*(const double*)at : hy__load1(at, mask.dtype);
    *score = value == -INFINITY ? -INFINITY : *score + value;
  }
}

void hy__flash_mask(const hy__sdpa* a, int64_t batch, int64_t head, int64_t first_query,
                    int queries, int64_t first_key, int keys, float* scores) {
  int panel = a->gemm->nr;
  if (a->gemm->unit > 1 && a->softmax_scale != a->scale)
    a->kernels->gemm.epilogue((int64_t)keys * panel, scores, a->scale, 0, NULL, 0, scores, 1,
                              HY_F32);
  for (int q = 0; a->mask.dtype != HY_NONE && q < queries; q++)
    hy__mask_row(a, batch, head, first_query + q, first_key, keys, panel, scores + q);
  if (hy__visible(a, first_query) >= first_key + keys) return;
  // Later queries see no less, so that those masked to a key come first.
  int masked = 0;
  for (int s = 0; s < keys; s++) {
    while (masked < queries && hy__visible(a, first_query + masked) <= first_key + s) masked++;
    for (int q = 0; q < masked; q++) scores[s * panel + q] = -INFINITY;
  }
}
