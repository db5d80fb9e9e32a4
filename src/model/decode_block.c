// A decoding step in the op table's fused rows where the device has kernels for them (norm,
// product, gate and residual in one; rotary positions, cache and attention in one), else in plain
// ops. A prompt in the same blocks, whose products are bound by the device's arithmetic: q, k and v
// of one product, gate and up of another, residuals added by the products.
#include "model/decode_block.h"

#include "halyard/model.h"
#include "model/arch/arch.h"

// Up to FEW_ROWS a product is bound by reading its weight, and what is fused with it is free, the
// norm too. Up to MANY_ROWS that holds for quantised weights but for the norm, which is worth a
// kernel of its own; weights of halves go to the device's best plain product.
enum { FEW_ROWS = 4, MANY_ROWS = 64 };

static bool has_kernel(const hy_array* x, hy_op op, hy_dtype dtype) {
  hy_placement placement;
  return hy_place_op(hy_array_device(x), op, dtype, &placement) == HY_OK &&
         placement.reason == HY_SUPPORT_YES;
}

static bool is_adapted(const hy__tf_block* b) {
  return b->q.lora.a || b->k.lora.a || b->v.lora.a || b->o.lora.a || b->gate.lora.a ||
         b->up.lora.a || b->down.lora.a;
}

// Whether every block is Llama's and all here, without adapters and with its projections in one
// matrix.
static bool is_plain(const hy__transformer* model) {
  if (model->shard.comm || model->config.arch->block != hy__tf_decoder_block) return false;
  for (int64_t i = 0; i < model->config.n_layers; i++) {
    const hy__tf_block* b = &model->blocks[i];
    if (b->q_norm || is_adapted(b) || !b->qkv.weight || !b->gate_up.weight) return false;
  }
  return true;
}

// ---- fused ----

typedef struct fused {
  hy_scope* s;
  const hy__transformer* model;
  const hy__rope* rope;
  bool few, many;  // rows, and a kernel for them
  const hy__decode_state* d;
  const hy__kv_pass* prompt;  // in place of d
} fused;

// silu(first half) * second half of the last dimension.
static hy_array* gate(hy_scope* s, hy_array* both) {
  int64_t size = hy_s_size(s, both, 1) / 2;
  return hy_s_mul(s, hy_s_silu(s, hy_s_slice(s, both, 1, 0, size, 1)),
                  hy_s_slice(s, both, 1, size, 2 * size, 1));
}

// layer(norm(x)), gated or not, plus the residual; norm and residual may be NULL.
static hy_array* apply(const fused* f, const hy__linear* layer, hy_array* norm, hy_array* x,
                       bool gated, hy_array* residual) {
  const hy__config* c = &f->model->config;
  if (f->few)
    return hy_s_fused_linear(f->s, x, norm, layer->weight, layer->scale, layer->bias, residual,
                             c->norm_eps, gated, c->dtype);
  int mark = hy_scope_mark(f->s);
  if (norm) x = hy_s_rms_norm(f->s, x, norm, 1, c->norm_eps);
  if (f->many && layer->scale)
    return hy_scope_pop(f->s, mark,
                        hy_s_fused_linear(f->s, x, NULL, layer->weight, layer->scale, layer->bias,
                                          residual, c->norm_eps, gated, c->dtype));
  hy_array* weight = residual && !gated && !layer->bias ? hy__linear_floats(f->s, layer, x) : NULL;
  if (weight)
    return hy_scope_pop(
        f->s, mark,
        hy_s_addmm(f->s, residual, x, hy_s_transpose(f->s, weight, 0, 1), hy_int(1), hy_int(1)));
  hy_array* y = hy__linear_apply(f->s, layer, x, NULL);
  if (gated) y = gate(f->s, y);
  if (residual) y = hy_s_add(f->s, residual, y, hy_int(1));
  return hy_scope_pop(f->s, mark, y);
}

static hy_array* attend(const fused* f, int layer, hy_array* qkv) {
  const hy__decode_state* d = f->d;
  hy_array *cos = f->rope->cos, *sin = f->rope->sin;
  return f->prompt ? hy__kv_pass_attend(f->s, f->prompt, layer, qkv, cos, sin)
                   : hy__kv_cache_step(f->s, d->cache, layer, qkv, cos, sin, d->table, d->lengths);
}

static hy_array* block(const fused* f, int layer, hy_array* x) {
  const hy__config* c = &f->model->config;
  const hy__tf_block* b = &f->model->blocks[layer];
  int64_t heads = c->n_heads + 2 * c->n_kv_heads;
  int mark = hy_scope_mark(f->s);
  hy_array* qkv = hy_s_view(f->s, apply(f, &b->qkv, b->input_norm, x, false, NULL),
                            HY_SIZES(-1, heads, c->head_dim));
  hy_array* flat = hy_s_view(f->s, attend(f, layer, qkv), HY_SIZES(-1, c->n_heads * c->head_dim));
  // Of a prompt's last layer nobody reads more than the last tokens.
  if (f->prompt && layer == c->n_layers - 1) {
    flat = hy_s_index_select(f->s, flat, f->prompt->last, 0);
    x = hy_s_index_select(f->s, x, f->prompt->last, 0);
  }
  x = hy_scope_pop(f->s, mark, apply(f, &b->o, NULL, flat, false, x));
  hy_array* hidden = apply(f, &b->gate_up, b->post_norm, x, true, NULL);
  return apply(f, &b->down, NULL, hidden, false, x);
}

static hy_array* fused_logits(const fused* f) {
  hy_scope* s = f->s;
  const hy__transformer* model = f->model;
  const hy__linear* head = &model->head;
  int mark = hy_scope_mark(s);
  hy_array* x = hy__embed(s, model, f->d->tokens);
  for (int64_t i = 0; i < model->config.n_layers; i++)
    x = hy_scope_pop(s, mark, block(f, (int)i, x));
  if (f->few)
    return hy_s_fused_linear(s, x, model->norm, head->weight, head->scale, head->bias, NULL,
                             model->config.norm_eps, false, HY_F32);
  x = hy_s_rms_norm(s, x, model->norm, 1, model->config.norm_eps);
  if (f->many && head->scale)
    return hy_s_fused_linear(s, x, NULL, head->weight, head->scale, head->bias, NULL, 0, false,
                             HY_F32);
  // A choice among halves needs no floats of them.
  if (!head->scale && has_kernel(x, HY_OP_sample, model->config.dtype))
    return hy__linear_apply(s, head, x, NULL);
  return hy__logits(s, model, x);
}

// ---- plain ----

// Where the new tokens' keys and values go: table[b, p / block] * block + p % block.
static hy_array* slots_of(hy_scope* s, const hy__decode_state* d, hy_array* positions) {
  int64_t batch = hy_s_size(s, positions, 0);
  hy_array* at = hy_s_div_scalar(s, positions, hy_int(HY__KV_BLOCK), HY_ROUND_FLOOR);
  hy_array* block = hy_s_gather(s, d->table, hy_s_view(s, at, HY_SIZES(batch, 1)), 1);
  hy_array* moved = hy_s_sub(s, hy_s_view(s, block, HY_SIZES(batch)), at, hy_int(1));
  return hy_s_add(s, hy_s_mul_scalar(s, moved, hy_int(HY__KV_BLOCK)), positions, hy_int(1));
}

static hy_array* plain_logits(hy_scope* s, const hy__transformer* model,
                              const hy__decode_state* d) {
  hy_array* positions = hy_s_sub_scalar(s, d->lengths, hy_int(1), hy_int(1));
  hy__kv_pass pass = {.cache = d->cache,
                      .tokens = hy_s_size(s, d->tokens, 0),
                      .ids = d->tokens,
                      .positions = positions,
                      .slots = slots_of(s, d, positions),
                      .block_table = d->table,
                      .query_start = d->starts,
                      .context_length = d->lengths};
  hy__tf_attention attention = hy__attend_cached(&pass);
  hy__tf_pass p = {.s = s, .model = model, .attention = &attention};
  hy__rope_both(s, d->rope, positions, &p.cos, &p.sin);
  return hy__logits(s, model, hy__transformer_apply(&p, d->tokens));
}

hy_array* hy__decode_logits(hy_scope* s, const hy__transformer* model, const hy__decode_state* d) {
  hy_dtype dtype = model->config.dtype;
  if (!is_plain(model) || !has_kernel(d->tokens, HY_OP_rope_paged_attention, dtype))
    return plain_logits(s, model, d);
  int64_t rows = hy_s_size(s, d->tokens, 0);
  bool has_fused = has_kernel(d->tokens, HY_OP_fused_linear, dtype);
  fused f = {.s = s,
             .model = model,
             .rope = d->rope,
             .few = has_fused && rows <= FEW_ROWS,
             .many = has_fused && rows <= MANY_ROWS,
             .d = d};
  return fused_logits(&f);
}

// ---- prompts ----

bool hy__prompt_is_fused(const hy__transformer* model) {
  hy_dtype dtype = model->config.dtype;
  return is_plain(model) && has_kernel(model->norm, HY_OP_rope_cache, dtype) &&
         has_kernel(model->norm, HY_OP_paged_attention, dtype);
}

hy_array* hy__prompt_logits(hy_scope* s, const hy__transformer* model, const hy__rope* rope,
                            const hy__kv_pass* pass, const hy_generate_options* options) {
  const fused f = {.s = s, .model = model, .rope = rope, .prompt = pass};
  int mark = hy_scope_mark(s);
  hy_array* x = hy__embed(s, model, pass->ids);
  for (int64_t i = 0; i < model->config.n_layers; i++) {
    HY_SCOPE_TRY(s, hy__tf_ask(options));
    x = hy_scope_pop(s, mark, block(&f, (int)i, x));
  }
  return hy__logits(s, model, hy_s_rms_norm(s, x, model->norm, 1, model->config.norm_eps));
}
