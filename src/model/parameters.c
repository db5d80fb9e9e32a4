// The parameters of a transformer by name, and their life.
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "model/transformer.h"

hy_status hy__transformer_init(hy__transformer* model, const hy__config* config) {
  memset(model, 0, sizeof *model);
  model->config = *config;
  model->blocks = hy__calloc((size_t)config->n_layers, sizeof *model->blocks);
  if (!model->blocks)
    return hy_fail(HY_OUT_OF_MEMORY, "no memory for %lld layers", (long long)config->n_layers);
  return HY_OK;
}

static void release_linear(hy__linear* layer) {
  hy_array_release(layer->weight);
  hy_array_release(layer->scale);
  hy_array_release(layer->bias);
  hy_array_release(layer->lora.a);
  hy_array_release(layer->lora.b);
}

void hy__transformer_release(hy__transformer* model) {
  for (int64_t i = 0; model->blocks && i < model->config.n_layers; i++) {
    hy__block* b = &model->blocks[i];
    hy__linear* linears[] = {&b->q,  &b->k,    &b->v,   &b->o,      &b->gate,
                             &b->up, &b->down, &b->qkv, &b->gate_up};
    for (int l = 0; l < 9; l++) release_linear(linears[l]);
    hy_array_release(b->input_norm);
    hy_array_release(b->post_norm);
    hy_array_release(b->q_norm);
    hy_array_release(b->k_norm);
  }
  hy__mfree(model->blocks);
  hy_array_release(model->embedding);
  hy_array_release(model->embedding_scale);
  hy_array_release(model->norm);
  release_linear(&model->head);
  memset(model, 0, sizeof *model);
}

// The linear layers of a block, with the names of model hubs and their sizes.
typedef struct place {
  const char* name;
  hy__linear* layer;
  int64_t out, in;
  bool bias;
} place;

static int places_of(hy__transformer* model, int64_t i, place* places) {
  const hy__config* c = &model->config;
  hy__block* b = &model->blocks[i];
  int64_t d = c->hidden_size, q = c->n_heads * c->head_dim, kv = c->n_kv_heads * c->head_dim,
          f = c->intermediate_size;
  const place all[] = {
      {"self_attn.q_proj", &b->q, q, d, c->qkv_bias},
      {"self_attn.k_proj", &b->k, kv, d, c->qkv_bias},
      {"self_attn.v_proj", &b->v, kv, d, c->qkv_bias},
      {"self_attn.o_proj", &b->o, d, q, c->o_bias},
      {"mlp.gate_proj", &b->gate, f, d, c->mlp_bias},
      {"mlp.up_proj", &b->up, f, d, c->mlp_bias},
      {"mlp.down_proj", &b->down, d, f, c->mlp_bias},
  };
  memcpy(places, all, sizeof all);
  return (int)(sizeof all / sizeof all[0]);
}

hy_status hy__transformer_visit_linears(hy__transformer* model, hy__linear_visitor visit,
                                        void* context) {
  for (int64_t i = 0; i < model->config.n_layers; i++) {
    place places[7];
    int n = places_of(model, i, places);
    for (int p = 0; p < n; p++) {
      char name[128];
      snprintf(name, sizeof name, "model.layers.%lld.%s", (long long)i, places[p].name);
      HY_TRY(visit(context, name, places[p].layer, places[p].out, places[p].in));
    }
  }
  return HY_OK;
}

static hy_status visit_vector(hy__parameter_visitor visit, void* context, int64_t layer,
                              const char* part, hy_array** slot, int64_t size) {
  char name[128];
  snprintf(name, sizeof name, "model.layers.%lld.%s.weight", (long long)layer, part);
  return visit(context, name, slot, 1, &size);
}

static hy_status visit_block(hy__transformer* model, int64_t i, hy__parameter_visitor visit,
                             void* context) {
  const hy__config* c = &model->config;
  hy__block* b = &model->blocks[i];
  HY_TRY(visit_vector(visit, context, i, "input_layernorm", &b->input_norm, c->hidden_size));
  place places[7];
  int n = places_of(model, i, places);
  for (int p = 0; p < n; p++) {
    char name[160];
    const int64_t shape[2] = {places[p].out, places[p].in};
    snprintf(name, sizeof name, "model.layers.%lld.%s.weight", (long long)i, places[p].name);
    HY_TRY(visit(context, name, &places[p].layer->weight, 2, shape));
    if (!places[p].bias) continue;
    snprintf(name, sizeof name, "model.layers.%lld.%s.bias", (long long)i, places[p].name);
    HY_TRY(visit(context, name, &places[p].layer->bias, 1, shape));
  }
  if (c->family == HY__FAMILY_QWEN3) {
    HY_TRY(visit_vector(visit, context, i, "self_attn.q_norm", &b->q_norm, c->head_dim));
    HY_TRY(visit_vector(visit, context, i, "self_attn.k_norm", &b->k_norm, c->head_dim));
  }
  return visit_vector(visit, context, i, "post_attention_layernorm", &b->post_norm, c->hidden_size);
}

hy_status hy__transformer_visit(hy__transformer* model, hy__parameter_visitor visit,
                                void* context) {
  const hy__config* c = &model->config;
  const int64_t matrix[2] = {c->vocab_size, c->hidden_size};
  HY_TRY(visit(context, "model.embed_tokens.weight", &model->embedding, 2, matrix));
  for (int64_t i = 0; i < c->n_layers; i++) HY_TRY(visit_block(model, i, visit, context));
  HY_TRY(visit(context, "model.norm.weight", &model->norm, 1, &c->hidden_size));
  if (!c->tied_embeddings) return visit(context, "lm_head.weight", &model->head.weight, 2, matrix);
  if (!model->head.weight) model->head.weight = hy_array_retain(model->embedding);
  return HY_OK;
}
