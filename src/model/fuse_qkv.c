// Fused projections: q, k and v, and gate and up, as row ranges of one matrix.
#include "model/arch/arch.h"
#include "model/pack.h"

// A fused layer and the layers that are its rows, from the top.
typedef struct group {
  hy__linear *whole, *parts[3];
  int64_t rows[3], columns;
  int n;
  bool bias;
} group;

// False where the architecture lacks one of the parts, or they differ in what they read or in
// having a bias.
static bool complete(group* g, const hy__parameter_list* l) {
  int found = 0;
  for (int k = 0; k < l->n; k++) {
    const hy__parameter* p = &l->list[k];
    for (int i = 0; i < g->n; i++) {
      if (!p->linear || p->linear != g->parts[i]) continue;
      if (found++ > 0 && (p->in != g->columns || p->bias != g->bias)) return false;
      g->rows[i] = p->out;
      g->columns = p->in;
      g->bias = p->bias;
    }
  }
  return found == g->n;
}

static int groups_of(hy__transformer* model, int64_t layer, group groups[2]) {
  hy__tf_block* b = &model->blocks[layer];
  hy__parameter_list l = {.n = 0};
  model->config.arch->list_parameters(&model->config, b, &l);
  group all[2] = {{.whole = &b->qkv, .parts = {&b->q, &b->k, &b->v}, .n = 3},
                  {.whole = &b->gate_up, .parts = {&b->gate, &b->up}, .n = 2}};
  int n = 0;
  for (int i = 0; i < 2; i++) {
    if (complete(&all[i], &l)) groups[n++] = all[i];
  }
  return n;
}

// ---- parts as views ----

static void let_go(void* whole) {
  hy_array_release(whole);
}

// Rows of a matrix or vector over its memory, which they keep alive. Packed types have rows of
// whole bytes and no other views.
static hy_status split_view(hy_stream* stream, hy_array* whole, int64_t first, int64_t rows,
                            hy_array** part) {
  hy_array_release(*part);
  *part = NULL;
  if (!whole) return HY_OK;
  hy_tensor view = *hy_array_tensor(whole);
  view.data = (char*)view.data + hy_tensor_bytes(&view) / (size_t)view.shape[0] * (size_t)first;
  view.shape[0] = rows;
  hy_status status = hy_array_wrap(stream, part, &view, let_go, hy_array_retain(whole));
  if (status != HY_OK) hy_array_release(whole);
  return status;
}

static hy_status split_views(hy_stream* stream, const group* g) {
  int64_t first = 0;
  for (int i = 0; i < g->n; first += g->rows[i++]) {
    hy__linear* part = g->parts[i];
    HY_TRY(split_view(stream, g->whole->weight, first, g->rows[i], &part->weight));
    HY_TRY(split_view(stream, g->whole->scale, first, g->rows[i], &part->scale));
    HY_TRY(split_view(stream, g->whole->bias, first, g->rows[i], &part->bias));
  }
  return HY_OK;
}

static hy_status allocate(hy_stream* stream, const hy__config* c, hy_weight_format format,
                          const group* g) {
  hy_dtype dtype = c->dtype;
  int64_t rows = 0, scales = 0;
  for (int i = 0; i < g->n; i++) rows += g->rows[i];
  if (hy__format_is_packed(format))
    HY_TRY(hy__pack_choose(format, "a layer", g->columns, &dtype, &scales));
  HY_TRY(hy_array_empty(stream, &g->whole->weight, dtype, HY_SIZES(rows, g->columns)));
  if (scales > 0) HY_TRY(hy_array_empty(stream, &g->whole->scale, HY_F32, HY_SIZES(rows, scales)));
  if (g->bias) HY_TRY(hy_array_empty(stream, &g->whole->bias, c->dtype, 1, &rows));
  return split_views(stream, g);
}

hy_status hy__transformer_fuse(hy_stream* stream, hy_weight_format format, hy__transformer* model) {
  for (int64_t i = 0; i < model->config.n_layers; i++) {
    group groups[2];
    int n = groups_of(model, i, groups);
    for (int k = 0; k < n; k++) HY_TRY(allocate(stream, &model->config, format, &groups[k]));
  }
  return HY_OK;
}

hy_status hy__transformer_split(hy_stream* stream, hy__transformer* model) {
  for (int64_t i = 0; i < model->config.n_layers; i++) {
    group groups[2];
    int n = groups_of(model, i, groups);
    for (int k = 0; k < n; k++) {
      if (groups[k].whole->weight) HY_TRY(split_views(stream, &groups[k]));
    }
  }
  return HY_OK;
}

static bool is_part(const group* groups, int n, const hy__linear* layer) {
  for (int k = 0; k < n; k++) {
    for (int i = 0; i < groups[k].n; i++) {
      if (groups[k].parts[i] == layer) return true;
    }
  }
  return false;
}

hy_status hy__transformer_visit_fused(hy__transformer* model, hy__linear_visitor visit,
                                      void* context) {
  for (int64_t i = 0; i < model->config.n_layers; i++) {
    group groups[2];
    int n = groups_of(model, i, groups);
    hy__parameter_list l = {.n = 0};
    model->config.arch->list_parameters(&model->config, &model->blocks[i], &l);
    for (int k = 0; k < l.n; k++) {
      const hy__parameter* p = &l.list[k];
      if (p->linear && !is_part(groups, n, p->linear))
        HY_TRY(visit(context, p->name, p->linear, p->out, p->in));
    }
    for (int k = 0; k < n; k++) {
      const hy_tensor* whole = hy_array_tensor(groups[k].whole->weight);
      HY_TRY(visit(context, "a fused layer", groups[k].whole, whole->shape[0], whole->shape[1]));
    }
  }
  return HY_OK;
}
