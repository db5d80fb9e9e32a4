// The transformer's forward pass: embedding, blocks of attention and gated MLP, norm, logits.
#include "model/transformer.h"

#include "base/memory.h"
#include "halyard/model.h"
#include "model/arch/arch.h"

// ---- the vocabulary ----

static hy_array* embed_own(hy_scope* s, const hy__transformer* model, hy_array* ids) {
  hy_array* x = hy_s_embedding(s, model->embedding, ids, -1);
  if (!model->embedding_scale) return x;
  hy_array* scale = hy_s_embedding(s, model->embedding_scale, ids, -1);
  return hy_s_dequantize(s, x, scale, model->config.dtype);
}

hy_array* hy__embed(hy_scope* s, const hy__transformer* model, hy_array* ids) {
  if (!model->shard.comm) return embed_own(s, model, ids);
  hy_array *elsewhere, *rows = hy__shard_rows(s, &model->shard, ids, &elsewhere);
  hy_array* x = hy_s_masked_fill(s, embed_own(s, model, rows), elsewhere, hy_int(0));
  return hy__shard_sum(s, &model->shard, x);
}

hy_array* hy__logits(hy_scope* s, const hy__transformer* model, hy_array* x) {
  return hy__linear_apply_f32(s, &model->head, x);
}

// ---- a block ----

hy_array* hy__tf_norm(const hy__tf_pass* p, hy_array* x, hy_array* weight) {
  return hy_s_rms_norm(p->s, x, weight, 1, p->model->config.norm_eps);
}

static hy_array* rotate(const hy__tf_pass* p, hy_array* x) {
  return hy_s_rope(p->s, x, p->cos, p->sin, false, false);
}

// A fused layer serves outside of training, without adapters on its parts, and where each part of
// its output is contiguous, as those of a single token are.
static bool use_fused(const hy__tf_pass* p, const hy__linear* fused, const hy__linear* const* parts,
                      int n, const hy_array* x) {
  bool adapted = false;
  for (int i = 0; i < n; i++) adapted |= parts[i]->lora.a != NULL;
  return fused->weight && !p->draws && !adapted && hy_s_size(p->s, x, 0) == 1;
}

typedef struct qkv {
  hy_array *q, *k, *v;  // (N, H, E), (N, G, E), (N, G, E)
} qkv;

// Heads first .. last - 1 of x (1, heads, E).
static hy_array* some_heads(const hy__tf_pass* p, hy_array* x, int64_t first, int64_t last) {
  return hy_s_slice(p->s, x, 1, first, last, 1);
}

// By one product. Heads of q and k rotate together where no norm comes between.
static qkv project_fused(const hy__tf_pass* p, const hy__tf_block* b, const hy__activations* in) {
  const hy__config* c = &p->model->config;
  int64_t k = c->n_heads, v = k + c->n_kv_heads, end = v + c->n_kv_heads;
  hy_array* all =
      hy_s_view(p->s, hy__linear_apply_to(p->s, &b->qkv, in, NULL), HY_SIZES(1, end, c->head_dim));
  if (b->q_norm)
    return (qkv){rotate(p, hy__tf_norm(p, some_heads(p, all, 0, k), b->q_norm)),
                 rotate(p, hy__tf_norm(p, some_heads(p, all, k, v), b->k_norm)),
                 some_heads(p, all, v, end)};
  hy_array* rotated = rotate(p, some_heads(p, all, 0, v));
  return (qkv){some_heads(p, rotated, 0, k), some_heads(p, rotated, k, v),
               some_heads(p, all, v, end)};
}

// A projection as heads (N, heads, E), normed by head where there is a norm.
static hy_array* as_heads(const hy__tf_pass* p, hy_array* flat, hy_array* norm) {
  hy_array* heads =
      hy_s_view(p->s, flat, HY_SIZES(hy_s_size(p->s, flat, 0), -1, p->model->config.head_dim));
  return norm ? hy__tf_norm(p, heads, norm) : heads;
}

// With adapters that are trained: x meets their A in one product.
static qkv project_joint(const hy__tf_pass* p, const hy__tf_block* b, const hy__activations* in) {
  hy_array* ys[3];
  hy__linear_apply_joint(p->s, (const hy__linear*[]){&b->q, &b->k, &b->v}, 3, b->train_qkv_a, in,
                         ys);
  return (qkv){rotate(p, as_heads(p, ys[0], b->q_norm)), rotate(p, as_heads(p, ys[1], b->k_norm)),
               as_heads(p, ys[2], NULL)};
}

static qkv project(const hy__tf_pass* p, const hy__tf_block* b, hy_array* x) {
  hy__activations in = hy__activations_for(p->s, &b->q, x, p->draws);
  if (use_fused(p, &b->qkv, (const hy__linear*[]){&b->q, &b->k, &b->v}, 3, x))
    return project_fused(p, b, &in);
  if (p->draws && b->train_qkv_a) return project_joint(p, b, &in);
  int mark = hy_scope_mark(p->s);
  hy_array* q = hy__linear_apply_to(p->s, &b->q, &in, p->draws);
  q = hy_scope_pop(p->s, mark, rotate(p, as_heads(p, q, b->q_norm)));
  mark = hy_scope_mark(p->s);
  hy_array* k = hy__linear_apply_to(p->s, &b->k, &in, p->draws);
  k = hy_scope_pop(p->s, mark, rotate(p, as_heads(p, k, b->k_norm)));
  return (qkv){q, k, as_heads(p, hy__linear_apply_to(p->s, &b->v, &in, p->draws), NULL)};
}

hy_array* hy__tf_attend(const hy__tf_pass* p, const hy__tf_block* b, hy_array* x) {
  const hy__config* c = &p->model->config;
  int mark = hy_scope_mark(p->s), layer = (int)(b - p->model->blocks);
  qkv a = project(p, b, x);
  hy_array* mixed = p->attention->attend(p->attention->context, p->s, layer, a.q, a.k, a.v);
  hy_array* flat = hy_s_view(p->s, mixed, HY_SIZES(-1, c->n_heads * c->head_dim));
  hy_array* out = hy__linear_apply(p->s, &b->o, flat, p->draws);
  return hy_scope_pop(p->s, mark, hy__shard_sum(p->s, &p->model->shard, out));
}

// silu(gate(x)) * up(x)
static hy_array* gated(const hy__tf_pass* p, const hy__tf_block* b, hy_array* x) {
  hy__activations in = hy__activations_for(p->s, &b->gate, x, p->draws);
  hy_array *gate, *up;
  if (use_fused(p, &b->gate_up, (const hy__linear*[]){&b->gate, &b->up}, 2, x)) {
    hy_array* both = hy__linear_apply_to(p->s, &b->gate_up, &in, NULL);
    int64_t size = p->model->config.intermediate_size;
    gate = hy_s_slice(p->s, both, 1, 0, size, 1);
    up = hy_s_slice(p->s, both, 1, size, 2 * size, 1);
  } else {
    gate = hy__linear_apply_to(p->s, &b->gate, &in, p->draws);
    up = hy__linear_apply_to(p->s, &b->up, &in, p->draws);
  }
  hy_array* inner = NULL;
  if (p->s->status == HY_OK) HY_SCOPE_TRY(p->s, hy_array_silu_mul(p->s->tape, &inner, gate, up));
  return hy_scope_keep(p->s, p->s->status, inner);
}

// gated() of x, or of its norm, in a checkpoint: what the function must find again.
typedef struct gated_call {
  const hy__transformer* model;
  const hy__tf_block* block;
  hy_array* norm;  // NULL: x is normed
  hy__draws draws;
  hy__draws* after;  // where the first run leaves them; NULL from then on
} gated_call;

static hy_status run_gated(hy_tape* tape, void* context, hy_array* const* inputs, int n_inputs,
                           hy_array** outputs, int n_outputs) {
  gated_call* call = context;
  (void)n_inputs;
  (void)n_outputs;
  hy__draws draws = call->draws;
  hy_scope s;
  hy_scope_begin(&s, tape);
  hy__tf_pass p = {.s = &s, .model = call->model, .draws = &draws};
  hy_array* x = call->norm ? hy__tf_norm(&p, inputs[0], call->norm) : inputs[0];
  outputs[0] = hy_scope_give(&s, gated(&p, call->block, x));
  if (call->after) *call->after = draws;
  call->after = NULL;
  return hy_scope_end(&s);
}

static hy_array* checkpoint_gated(const hy__tf_pass* p, const hy__tf_block* b, hy_array* x,
                                  hy_array* norm) {
  hy_scope* s = p->s;
  if (s->status != HY_OK) return NULL;
  gated_call* call = hy__malloc(sizeof *call);
  if (!call) return hy_scope_keep(s, hy_fail(HY_OUT_OF_MEMORY, "no memory for a checkpoint"), NULL);
  *call = (gated_call){p->model, b, norm, *p->draws, p->draws};
  hy_array* out = NULL;
  hy_status status = hy_checkpoint(s->tape, run_gated, call, hy__mfree, &x, 1, &out, 1);
  return hy_scope_keep(s, status, out);
}

// The MLP of x, or of its norm where there is one.
static hy_array* mlp(const hy__tf_pass* p, const hy__tf_block* b, hy_array* x, hy_array* norm) {
  int mark = hy_scope_mark(p->s);
  hy_array* inner = p->recompute_mlp ? checkpoint_gated(p, b, x, norm)
                                     : gated(p, b, norm ? hy__tf_norm(p, x, norm) : x);
  hy_array* out = hy__linear_apply(p->s, &b->down, inner, p->draws);
  return hy_scope_pop(p->s, mark, hy__shard_sum(p->s, &p->model->shard, out));
}

hy_array* hy__tf_mlp(const hy__tf_pass* p, const hy__tf_block* b, hy_array* x) {
  return mlp(p, b, x, NULL);
}

hy_array* hy__tf_decoder_block(const hy__tf_pass* p, const hy__tf_block* b, hy_array* x) {
  int mark = hy_scope_mark(p->s);
  hy_array* attended = hy__tf_attend(p, b, hy__tf_norm(p, x, b->input_norm));
  x = hy_scope_pop(p->s, mark, hy_s_add(p->s, x, attended, hy_int(1)));
  return hy_s_add(p->s, x, mlp(p, b, x, b->post_norm), hy_int(1));
}

hy_status hy__tf_ask(const hy_generate_options* options) {
  if (!options || !options->on_progress || options->on_progress(options->progress_context, 0))
    return HY_OK;
  return hy_fail(HY_CANCELLED, "cancelled while the prompt was read");
}

hy_array* hy__transformer_blocks(const hy__tf_pass* p, hy_array* x) {
  const hy__transformer* model = p->model;
  int mark = hy_scope_mark(p->s);
  for (int64_t i = 0; i < model->config.n_layers; i++) {
    HY_SCOPE_TRY(p->s, hy__tf_ask(p->options));
    x = hy_scope_pop(p->s, mark, model->config.arch->block(p, &model->blocks[i], x));
  }
  return x;
}

hy_array* hy__transformer_apply(const hy__tf_pass* p, hy_array* ids) {
  int mark = hy_scope_mark(p->s);
  hy_array* x = hy__transformer_blocks(p, hy__embed(p->s, p->model, ids));
  return hy_scope_pop(p->s, mark, hy__tf_norm(p, x, p->model->norm));
}

// ---- attention among whole sequences ----

// (N, heads, E) as (batch, heads, length, E), without a copy.
static hy_array* by_sequence(hy_scope* s, int64_t length, hy_array* x) {
  hy_array* split = hy_s_view(s, x, HY_SIZES(-1, length, hy_s_size(s, x, 1), hy_s_size(s, x, 2)));
  return hy_s_transpose(s, split, 1, 2);
}

static hy_array* attend_whole(void* context, hy_scope* s, int layer, hy_array* q, hy_array* k,
                              hy_array* v) {
  (void)layer;
  int64_t length = ((const hy__whole_sequences*)context)->length;
  hy_array* mixed = hy_s_sdpa(s, by_sequence(s, length, q), by_sequence(s, length, k),
                              by_sequence(s, length, v), NULL, 0, HY_CAUSAL_TOP_LEFT);
  hy_array* back = hy_s_contiguous(s, hy_s_transpose(s, mixed, 1, 2));
  return hy_s_view(s, back, HY_SIZES(-1, hy_s_size(s, q, 1), hy_s_size(s, q, 2)));
}

hy__tf_attention hy__attend_whole(hy__whole_sequences* sequences) {
  return (hy__tf_attention){attend_whole, sequences};
}
