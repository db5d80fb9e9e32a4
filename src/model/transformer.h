// A decoder-only transformer (Qwen2, Qwen3, Llama) as mathematics over arrays; names no device.
//
// Tokens of all sequences lie one behind the other in one dimension of N: a prompt and single
// decoding steps of others may share one pass. What differs between training and inference is only
// how attention finds its keys, hence hy__attention.
//
// Shapes in comments: N tokens, D hidden, H heads, G key-value heads, E head size, F intermediate,
// V vocabulary.
#ifndef HALYARD_MODEL_TRANSFORMER_H_
#define HALYARD_MODEL_TRANSFORMER_H_

#include "halyard/array.h"
#include "model/config.h"

// A low-rank update of a linear layer: y += scaling * dropout(x) A^T B^T.
typedef struct hy__lora {
  hy_array *a, *b;  // (R, in), (out, R); NULL where the layer has none
  double scaling, dropout;
} hy__lora;

// y = x W^T + bias. With `scale` the weight is quantised (i8, packed i4 or f8 in groups).
typedef struct hy__linear {
  hy_array *weight, *scale,
      *bias;  // (out, in), (out, in / group), (out); scale and bias may be NULL
  hy__lora lora;
} hy__linear;

typedef struct hy__block {
  hy_array *input_norm, *post_norm;  // (D)
  hy_array *q_norm, *k_norm;         // (E), Qwen3 only
  hy__linear q, k, v, o, gate, up, down;
  // Where the memory of q, k and v, and of gate and up, lies in a row (hy__transformer_join): for a
  // single token one product is faster than several.
  hy__linear qkv, gate_up;
} hy__block;

typedef struct hy__transformer {
  hy__config config;
  hy_array* embedding;        // (V, D)
  hy_array* embedding_scale;  // (V, D / group) where it is quantised, else NULL
  hy__block* blocks;          // n_layers
  hy_array* norm;             // (D)
  hy__linear head;            // (V, D); its weight is the embedding where they are tied
} hy__transformer;

// Where attention of one layer finds its keys: q (N, H, E), k and v (N, G, E) of this pass, out (N,
// H, E).
typedef struct hy__attention {
  hy_status (*attend)(void* context, hy_tape* tape, int layer, hy_array* q, hy_array* k,
                      hy_array* v, hy_array** out);
  void* context;
} hy__attention;

// Random draws of one pass (LoRA's dropout); each draw takes its own stretch of Philox offsets.
typedef struct hy__draws {
  uint64_t seed, offset;
} hy__draws;

// cos and sin of the positions: (N, 1, E / 2) each, f32.
hy_status hy__rope_tables(hy_stream* stream, const hy__config* config, const int64_t* positions,
                          int64_t n, hy_array** cos, hy_array** sin);

// How many numbers of a row share a scale where a row of `size` weights becomes int8: 128, 64 or 32
// where they divide it, else 0, the whole row.
int64_t hy__int8_group(int64_t size);

// y (N, out) of x (N, in). `draws` is NULL outside of training: then there is no dropout, and
// quantised weights meet activations that are rounded to int8 in groups.
hy_status hy__linear_apply(hy_tape* tape, const hy__linear* layer, hy_array* x, hy__draws* draws,
                           hy_array** y);

// ids (N) i64 -> x (N, D) of the model's type.
hy_status hy__embed(hy_tape* tape, const hy__transformer* model, hy_array* ids, hy_array** x);
// x (N, D) -> (N, V) f32.
hy_status hy__logits(hy_tape* tape, const hy__transformer* model, hy_array* x, hy_array** logits);

// One block: x (N, D) -> out (N, D).
hy_status hy__block_apply(hy_tape* tape, const hy__transformer* model, int layer, hy_array* x,
                          hy_array* cos, hy_array* sin, const hy__attention* attention,
                          hy__draws* draws, hy_array** out);

// ids (N) i64 -> the last norm's output (N, D), before the head.
hy_status hy__transformer_apply(hy_tape* tape, const hy__transformer* model, hy_array* ids,
                                hy_array* cos, hy_array* sin, const hy__attention* attention,
                                hy__draws* draws, hy_array** out);

// Attention among the tokens of the pass alone, n / length sequences of one length, causal: for
// training.
typedef struct hy__whole_sequences {
  int64_t length;
} hy__whole_sequences;
hy__attention hy__attend_whole(hy__whole_sequences* sequences);

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

// A transformer of the config with all arrays NULL.
hy_status hy__transformer_init(hy__transformer* model, const hy__config* config);

#endif  // HALYARD_MODEL_TRANSFORMER_H_
