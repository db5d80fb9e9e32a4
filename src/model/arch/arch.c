// The table of architectures, and the list of parameters that several share.
#include "model/arch/arch.h"

#include <string.h>

static const hy__arch* const table[] = {
#define HY_ARCH(name) &hy__arch_##name,
#include "model/arch/archs.def"
#undef HY_ARCH
};
enum { N_ARCHS = sizeof table / sizeof table[0] };

hy_status hy__arch_find(const char* model_type, const hy__arch** arch) {
  char known[512] = "";
  for (int i = 0; i < N_ARCHS; i++) {
    *arch = table[i];
    if (strcmp(table[i]->model_type, model_type) == 0) return HY_OK;
    size_t at = strlen(known);
    snprintf(known + at, sizeof known - at, "%s%s", i ? ", " : "", table[i]->model_type);
  }
  return hy_fail(HY_FORMAT, "the model type \"%s\" is not supported; there are %s", model_type,
                 known);
}

void hy__list_vector(hy__parameter_list* l, const char* name, hy_array** slot, int64_t size) {
  l->list[l->n++] = (hy__parameter){.name = name, .vector = slot, .out = size};
}

void hy__list_linear(hy__parameter_list* l, const char* name, hy__linear* layer, int64_t out,
                     int64_t in, bool bias) {
  l->list[l->n++] =
      (hy__parameter){.name = name, .linear = layer, .out = out, .in = in, .bias = bias};
}

void hy__list_decoder_parameters(const hy__config* c, hy__tf_block* b, hy__parameter_list* l) {
  int64_t d = c->hidden_size, q = c->n_heads * c->head_dim, kv = c->n_kv_heads * c->head_dim,
          f = c->intermediate_size;
  hy__list_vector(l, "input_layernorm", &b->input_norm, d);
  hy__list_linear(l, "self_attn.q_proj", &b->q, q, d, c->qkv_bias);
  hy__list_linear(l, "self_attn.k_proj", &b->k, kv, d, c->qkv_bias);
  hy__list_linear(l, "self_attn.v_proj", &b->v, kv, d, c->qkv_bias);
  hy__list_linear(l, "self_attn.o_proj", &b->o, d, q, c->o_bias);
  hy__list_linear(l, "mlp.gate_proj", &b->gate, f, d, c->mlp_bias);
  hy__list_linear(l, "mlp.up_proj", &b->up, f, d, c->mlp_bias);
  hy__list_linear(l, "mlp.down_proj", &b->down, d, f, c->mlp_bias);
  if (c->head_norm) {
    hy__list_vector(l, "self_attn.q_norm", &b->q_norm, c->head_dim);
    hy__list_vector(l, "self_attn.k_norm", &b->k_norm, c->head_dim);
  }
  hy__list_vector(l, "post_attention_layernorm", &b->post_norm, d);
}
