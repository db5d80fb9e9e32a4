// Layers that read the same input as rows of one matrix.
#include "model/pack.h"
#include "ops/autograd/internal.h"

// Rows first .. first + rows - 1 of a matrix or vector, over its memory.
static hy_status take_rows(hy_array* whole, int64_t first, int64_t rows, hy_array** part) {
  hy_array_release(*part);
  *part = NULL;
  if (!whole) return HY_OK;
  hy_tensor view = *hy_array_tensor(whole);
  view.data = (char*)view.data + hy_tensor_bytes(&view) / (size_t)view.shape[0] * (size_t)first;
  view.shape[0] = rows;
  return hy__array_over(part, whole->storage, &view);
}

static hy_status share_out(const hy__linear* whole, hy__linear* const* parts, const int64_t* rows,
                           int n) {
  int64_t first = 0;
  for (int i = 0; i < n; first += rows[i++]) {
    HY_TRY(take_rows(whole->weight, first, rows[i], &parts[i]->weight));
    HY_TRY(take_rows(whole->scale, first, rows[i], &parts[i]->scale));
    HY_TRY(take_rows(whole->bias, first, rows[i], &parts[i]->bias));
  }
  return HY_OK;
}

typedef struct group {
  hy__linear *whole, *parts[3];
  int64_t rows[3];
  int n;
  bool bias;
} group;

static void groups_of(hy__transformer* model, int64_t layer, group groups[2]) {
  const hy__config* c = &model->config;
  hy__block* b = &model->blocks[layer];
  int64_t q = c->n_heads * c->head_dim, kv = c->n_kv_heads * c->head_dim, f = c->intermediate_size;
  groups[0] = (group){&b->qkv, {&b->q, &b->k, &b->v}, {q, kv, kv}, 3, c->qkv_bias};
  groups[1] = (group){&b->gate_up, {&b->gate, &b->up}, {f, f}, 2, c->mlp_bias};
}

static hy_status allocate(hy_stream* stream, const hy__config* c, hy_dtype dtype, int64_t scales,
                          group* g) {
  int64_t rows = 0;
  for (int i = 0; i < g->n; i++) rows += g->rows[i];
  HY_TRY(hy_array_empty(stream, &g->whole->weight, dtype, 2, (int64_t[]){rows, c->hidden_size}));
  if (scales > 0)
    HY_TRY(hy_array_empty(stream, &g->whole->scale, HY_F32, 2, (int64_t[]){rows, scales}));
  if (g->bias) HY_TRY(hy_array_empty(stream, &g->whole->bias, c->dtype, 1, &rows));
  return share_out(g->whole, g->parts, g->rows, g->n);
}

hy_status hy__transformer_join(hy_stream* stream, hy_weight_format format, hy__transformer* model) {
  const hy__config* c = &model->config;
  hy_dtype dtype = c->dtype;
  int64_t scales = 0;
  if (hy__format_is_packed(format))
    HY_TRY(hy__pack_choose(format, "a layer", c->hidden_size, &dtype, &scales));
  for (int64_t i = 0; i < c->n_layers; i++) {
    group groups[2];
    groups_of(model, i, groups);
    for (int k = 0; k < 2; k++) HY_TRY(allocate(stream, c, dtype, scales, &groups[k]));
  }
  return HY_OK;
}

hy_status hy__transformer_share_out(hy__transformer* model) {
  for (int64_t i = 0; i < model->config.n_layers; i++) {
    group groups[2];
    groups_of(model, i, groups);
    for (int k = 0; k < 2; k++) {
      const group* g = &groups[k];
      if (g->whole->weight) HY_TRY(share_out(g->whole, g->parts, g->rows, g->n));
    }
  }
  return HY_OK;
}
