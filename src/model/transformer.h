// A decoder-only transformer as mathematics over arrays; names no device.
//
// Tokens of all sequences are concatenated in one dimension of N: a prompt and single decoding
// steps of others may share one pass. What differs between training and inference is only how
// attention finds its keys, hence hy__tf_attention. What differs between architectures is in
// src/model/arch.
//
// Shapes in comments: N tokens, D hidden, H heads, G key-value heads, E head size, F intermediate,
// V vocabulary.
#ifndef HALYARD_MODEL_TRANSFORMER_H_
#define HALYARD_MODEL_TRANSFORMER_H_

#include "model/config.h"
#include "model/linear.h"
#include "model/shard.h"

typedef struct hy__tf_block {
  hy_array *input_norm, *post_norm;  // (D)
  hy_array *q_norm, *k_norm;         // (E); NULL where the architecture has none
  hy__linear q, k, v, o, gate, up, down;
  // Where the memory of q, k and v, and of gate and up, is contiguous (hy__transformer_fuse): for a
  // single token one product is faster than several.
  hy__linear qkv, gate_up;
  // The A of q, k and v as one matrix, which passes of a trainer read where all three are trained
  // alike; else NULL.
  hy_array* train_qkv_a;
} hy__tf_block;

typedef struct hy__transformer {
  hy__config config;          // of this rank's part, but for the vocabulary
  hy__shard shard;            // which part that is
  hy_array* embedding;        // (V, D)
  hy_array* embedding_scale;  // (V, D / group) where it is quantised, else NULL
  hy__tf_block* blocks;       // n_layers
  hy_array* norm;             // (D)
  hy__linear head;            // (V, D); its weight is the embedding where they are tied
} hy__transformer;

// Where attention of one layer finds its keys: q (N, H, E), k and v (N, G, E) of this pass -> (N,
// H, E).
typedef struct hy__tf_attention {
  hy_array* (*attend)(void* context, hy_scope* s, int layer, hy_array* q, hy_array* k, hy_array* v);
  void* context;
} hy__tf_attention;

// What all blocks share while tokens pass through them.
typedef struct hy__tf_pass {
  hy_scope* s;
  const hy__transformer* model;
  hy_array *cos, *sin;  // of the tokens' positions, (N, 1, E / 2) f32
  const hy__tf_attention* attention;
  hy__draws* draws;    // NULL outside of training
  bool recompute_mlp;  // the backward computes gate and up again in place of keeping them
  const struct hy_generate_options*
      options;  // on_progress is asked between layers; NULL: nobody is
} hy__tf_pass;

// HY_CANCELLED where on_progress of the options says so; NULL, or none: HY_OK.
hy_status hy__tf_ask(const struct hy_generate_options* options);
// ids (N) i64 -> x (N, D) of the model's type.
hy_array* hy__embed(hy_scope* s, const hy__transformer* model, hy_array* ids);
// x (N, D) through the blocks -> (N, D).
hy_array* hy__transformer_blocks(const hy__tf_pass* p, hy_array* x);
// ids (N) i64 -> the last norm's output (N, D), before the head.
hy_array* hy__transformer_apply(const hy__tf_pass* p, hy_array* ids);
// x (N, D) -> (N, V) f32; V: the tokens of this rank's shard.
hy_array* hy__logits(hy_scope* s, const hy__transformer* model, hy_array* x);

// ---- what blocks are made of: x (N, D) -> (N, D) ----

hy_array* hy__tf_norm(const hy__tf_pass* p, hy_array* x, hy_array* weight);         // RMSNorm
hy_array* hy__tf_attend(const hy__tf_pass* p, const hy__tf_block* b, hy_array* x);  // o(attention)
hy_array* hy__tf_mlp(const hy__tf_pass* p, const hy__tf_block* b, hy_array* x);     // gated SiLU
// Llama's block, which others share: x + attend(norm(x)), then that + mlp(norm(that)).
hy_array* hy__tf_decoder_block(const hy__tf_pass* p, const hy__tf_block* b, hy_array* x);

// Attention among the tokens of the pass alone, n / length sequences of one length, causal: for
// training.
typedef struct hy__whole_sequences {
  int64_t length;
} hy__whole_sequences;
hy__tf_attention hy__attend_whole(hy__whole_sequences* sequences);

// ---- parameters ----

// A transformer of the config with all arrays NULL.
hy_status hy__transformer_init(hy__transformer* model, const hy__config* config);
// Releases the arrays; NULL entries are fine. The blocks' list too.
void hy__transformer_release(hy__transformer* model);

// Walks all parameters by the names that model hubs use ("model.layers.0.self_attn.q_proj.weight").
typedef hy_status (*hy__parameter_visitor)(void* context, const char* name, hy_array** slot,
                                           int ndim, const int64_t* shape);
hy_status hy__transformer_visit(hy__transformer* model, hy__parameter_visitor visit, void* context);
// Walks the linear layers of the blocks ("model.layers.0.self_attn.q_proj").
typedef hy_status (*hy__linear_visitor)(void* context, const char* name, hy__linear* layer,
                                        int64_t out, int64_t in);
hy_status hy__transformer_visit_linears(hy__transformer* model, hy__linear_visitor visit,
                                        void* context);

#endif  // HALYARD_MODEL_TRANSFORMER_H_
