// The parameters of a transformer by name, and their life.
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "model/arch/arch.h"

hy_status hy__transformer_init(hy__transformer* model, const hy__config* config) {
  memset(model, 0, sizeof *model);
  model->config = *config;
  model->blocks = hy__calloc((size_t)config->n_layers, sizeof *model->blocks);
  if (!model->blocks)
    return hy_fail(HY_OUT_OF_MEMORY, "no memory for %lld layers", (long long)config->n_layers);
  return HY_OK;
}

// Among the layers of the whole model.
static long long number_of(const hy__transformer* model, int64_t layer) {
  return (long long)(model->shard.layers.first + layer);
}

static hy__parameter_list parameters_of(hy__transformer* model, int64_t layer) {
  hy__parameter_list l = {.n = 0};
  model->config.arch->list_parameters(&model->config, &model->blocks[layer], &l);
  return l;
}

void hy__transformer_release(hy__transformer* model) {
  for (int64_t i = 0; model->blocks && i < model->config.n_layers; i++) {
    hy__parameter_list l = parameters_of(model, i);
    for (int k = 0; k < l.n; k++) {
      if (l.list[k].linear)
        hy__linear_release(l.list[k].linear);
      else
        hy_array_release(*l.list[k].vector);
    }
    hy__linear_release(&model->blocks[i].qkv);
    hy__linear_release(&model->blocks[i].gate_up);
  }
  hy__mfree(model->blocks);
  hy_array_release(model->embedding);
  hy_array_release(model->embedding_scale);
  hy_array_release(model->norm);
  hy__linear_release(&model->head);
  memset(model, 0, sizeof *model);
}

hy_status hy__transformer_visit_linears(hy__transformer* model, hy__linear_visitor visit,
                                        void* context) {
  for (int64_t i = 0; i < model->config.n_layers; i++) {
    hy__parameter_list l = parameters_of(model, i);
    for (int k = 0; k < l.n; k++) {
      const hy__parameter* p = &l.list[k];
      char name[128];
      if (!p->linear) continue;
      snprintf(name, sizeof name, "model.layers.%lld.%s", number_of(model, i), p->name);
      HY_TRY(visit(context, name, p->linear, p->out, p->in));
    }
  }
  return HY_OK;
}

static hy_status visit_block(hy__transformer* model, int64_t i, hy__parameter_visitor visit,
                             void* context) {
  hy__parameter_list l = parameters_of(model, i);
  for (int k = 0; k < l.n; k++) {
    const hy__parameter* p = &l.list[k];
    char name[160];
    const int64_t shape[2] = {p->out, p->in};
    snprintf(name, sizeof name, "model.layers.%lld.%s.weight", number_of(model, i), p->name);
    HY_TRY(
        visit(context, name, p->linear ? &p->linear->weight : p->vector, p->linear ? 2 : 1, shape));
    if (!p->bias) continue;
    snprintf(name, sizeof name, "model.layers.%lld.%s.bias", number_of(model, i), p->name);
    HY_TRY(visit(context, name, &p->linear->bias, 1, shape));
  }
  return HY_OK;
}

hy_status hy__transformer_visit(hy__transformer* model, hy__parameter_visitor visit,
                                void* context) {
  const hy__config* c = &model->config;
  const int64_t matrix[2] = {hy__shard_vocab(&model->shard, c), c->hidden_size};
  bool last = hy__shard_is_last(&model->shard);
  if (hy__shard_is_first(&model->shard) || (last && c->tied_embeddings))
    HY_TRY(visit(context, "model.embed_tokens.weight", &model->embedding, 2, matrix));
  for (int64_t i = 0; i < c->n_layers; i++) HY_TRY(visit_block(model, i, visit, context));
  if (!last) return HY_OK;
  HY_TRY(visit(context, "model.norm.weight", &model->norm, 1, &c->hidden_size));
  if (!c->tied_embeddings) return visit(context, "lm_head.weight", &model->head.weight, 2, matrix);
  if (!model->head.weight) model->head.weight = hy_array_retain(model->embedding);
  return HY_OK;
}
