#include "model/transformer.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"

// ---- linear layers ----

// dropout(x) A^T B^T * scaling, added to y, which it replaces.
static hy_status add_lora(hy_tape* tape, const hy__lora* lora, hy_array* x, hy__draws* draws,
                          hy_array** y) {
  hy_array *dropped = NULL, *mask = NULL, *low = NULL, *update = NULL, *sum = NULL;
  hy_status status = HY_OK;
  if (lora->dropout > 0 && draws) {
    uint64_t offset = draws->offset;
    draws->offset += (uint64_t)hy_tensor_numel(hy_array_tensor(x)) / 4 + 1;
    status = hy_array_dropout(tape, &dropped, &mask, x, draws->seed, offset, lora->dropout);
  } else {
    dropped = hy_array_retain(x);
  }
  // Adapters may be float32 beside half weights: the update is computed in their type.
  hy_dtype type = hy_array_tensor(lora->a)->dtype, outer = hy_array_tensor(*y)->dtype;
  if (status == HY_OK && hy_array_tensor(dropped)->dtype != type) {
    hy_array* cast = NULL;
    status = hy_array_cast(tape, &cast, dropped, type);
    hy_array_release(dropped);
    dropped = cast;
  }
  if (status == HY_OK) status = hy_array_linear(tape, &low, dropped, lora->a, NULL);
  if (status == HY_OK) status = hy_array_linear(tape, &update, low, lora->b, NULL);
  if (status == HY_OK && outer != type) {
    hy_array* cast = NULL;
    status = hy_array_cast(tape, &cast, update, outer);
    hy_array_release(update);
    update = cast;
  }
  if (status == HY_OK) status = hy_array_add(tape, &sum, *y, update, hy_float(lora->scaling));
  if (status == HY_OK) {
    hy_array_release(*y);
    *y = hy_array_retain(sum);
  }
  hy_array_release(dropped);
  hy_array_release(mask);
  hy_array_release(low);
  hy_array_release(update);
  hy_array_release(sum);
  return status;
}

int64_t hy__int8_group(int64_t size) {
  for (int64_t group = 128; group >= 32; group /= 2) {
    if (size % group == 0) return group;
  }
  return 0;
}

enum { ACTIVATION_GROUP = 32 };

// What several layers take: x, and as int8 once one of them has asked for it.
typedef struct input {
  hy_array* x;
  hy_array *numbers, *scale;
} input;

static void release_input(input* in) {
  hy_array_release(in->numbers);
  hy_array_release(in->scale);
}

static hy_status apply_int8(hy_tape* tape, const hy__linear* layer, input* in, hy_dtype to,
                            hy_array** y) {
  if (!in->numbers) {
    // Activations have outliers, and what shares a scale with one loses its own digits.
    const hy_tensor* x = hy_array_tensor(in->x);
    int64_t group = x->shape[x->ndim - 1] % ACTIVATION_GROUP == 0 ? ACTIVATION_GROUP : 0;
    HY_TRY(hy_array_quantize(tape, &in->numbers, &in->scale, in->x, HY_I8, group));
  }
  return hy_array_linear_int8(tape, y, in->numbers, in->scale, layer->weight, layer->scale,
                              layer->bias, to);
}

static hy_status apply_linear(hy_tape* tape, const hy__linear* layer, input* in, hy__draws* draws,
                              hy_array** y) {
  *y = NULL;
  if (layer->scale && !draws) {
    HY_TRY(apply_int8(tape, layer, in, hy_array_tensor(in->x)->dtype, y));
  } else if (layer->scale) {
    HY_TRY(hy_array_linear_quantized(tape, y, in->x, layer->weight, layer->scale, layer->bias));
  } else {
    HY_TRY(hy_array_linear(tape, y, in->x, layer->weight, layer->bias));
  }
  if (!layer->lora.a) return HY_OK;
  hy_status status = add_lora(tape, &layer->lora, in->x, draws, y);
  if (status != HY_OK) {
    hy_array_release(*y);
    *y = NULL;
  }
  return status;
}

hy_status hy__linear_apply(hy_tape* tape, const hy__linear* layer, hy_array* x, hy__draws* draws,
                           hy_array** y) {
  input in = {.x = x};
  hy_status status = apply_linear(tape, layer, &in, draws, y);
  release_input(&in);
  return status;
}

// ---- the vocabulary ----

hy_status hy__embed(hy_tape* tape, const hy__transformer* model, hy_array* ids, hy_array** x) {
  *x = NULL;
  if (!model->embedding_scale) return hy_array_embedding(tape, x, model->embedding, ids, -1);
  hy_array *numbers = NULL, *scale = NULL;
  hy_status status = hy_array_embedding(tape, &numbers, model->embedding, ids, -1);
  if (status == HY_OK) status = hy_array_embedding(tape, &scale, model->embedding_scale, ids, -1);
  if (status == HY_OK) status = hy_array_dequantize(tape, x, numbers, scale, model->config.dtype);
  hy_array_release(numbers);
  hy_array_release(scale);
  return status;
}

hy_status hy__logits(hy_tape* tape, const hy__transformer* model, hy_array* x, hy_array** logits) {
  hy_array* scores = NULL;
  *logits = NULL;
  if (model->head.scale && !model->head.lora.a) {
    input in = {.x = x};
    hy_status status = apply_int8(tape, &model->head, &in, HY_F32, logits);
    release_input(&in);
    return status;
  }
  HY_TRY(hy__linear_apply(tape, &model->head, x, NULL, &scores));
  hy_status status = hy_array_cast(tape, logits, scores, HY_F32);
  hy_array_release(scores);
  return status;
}

// ---- rotary positions ----

static double rope_frequency(const hy__config* c, int64_t i) {
  double frequency = pow(c->rope_theta, -2.0 * (double)i / (double)c->head_dim);
  if (c->rope == HY__ROPE_DEFAULT) return frequency;
  if (c->rope == HY__ROPE_LINEAR) return frequency / c->rope_factor;
  // Llama 3: waves longer than the original context are stretched, short ones kept, those between
  // blended.
  double wave = 2 * 3.14159265358979323846 / frequency,
         original = (double)c->rope_original_positions;
  if (wave < original / c->rope_high_factor) return frequency;
  if (wave > original / c->rope_low_factor) return frequency / c->rope_factor;
  double smooth =
      (original / wave - c->rope_low_factor) / (c->rope_high_factor - c->rope_low_factor);
  return (1 - smooth) * frequency / c->rope_factor + smooth * frequency;
}

hy_status hy__rope_tables(hy_stream* stream, const hy__config* config, const int64_t* positions,
                          int64_t n, hy_array** cos_out, hy_array** sin_out) {
  int64_t half = config->head_dim / 2;
  *cos_out = *sin_out = NULL;
  float* table = hy__malloc((size_t)(2 * n * half + 1) * sizeof *table);
  if (!table)
    return hy_fail(HY_OUT_OF_MEMORY, "no memory for the rotary positions of %lld tokens",
                   (long long)n);
  float *cosines = table, *sines = table + n * half;
  for (int64_t j = 0; j < half; j++) {
    // In float, as the models were trained: the frequency rounds before it meets the position.
    float frequency = (float)rope_frequency(config, j);
    for (int64_t i = 0; i < n; i++) {
      float angle = (float)positions[i] * frequency;
      cosines[i * half + j] = (float)cos(angle);
      sines[i * half + j] = (float)sin(angle);
    }
  }
  const int64_t shape[3] = {n, 1, half};
  hy_status status = hy_array_from_host(stream, cos_out, HY_F32, 3, shape, cosines);
  if (status == HY_OK) status = hy_array_from_host(stream, sin_out, HY_F32, 3, shape, sines);
  if (status != HY_OK) {
    hy_array_release(*cos_out);
    *cos_out = NULL;
  }
  hy__mfree(table);
  return status;
}

// ---- a block ----

// A list of arrays to release at the end: each function gathers its results in one.
enum { MAX_TEMPORARIES = 24 };
typedef struct temporaries {
  hy_array* list[MAX_TEMPORARIES];
  int count;
} temporaries;

static hy_array** temporary(temporaries* t) {
  t->list[t->count] = NULL;
  return &t->list[t->count++];
}

static void release_all(temporaries* t) {
  while (t->count > 0) hy_array_release(t->list[--t->count]);
}

// Projects x to heads (N, heads, E), normed by head where the family does, rotated where `cos` is
// given.
static hy_status project_heads(hy_tape* tape, const hy__config* c, const hy__linear* layer,
                               int64_t heads, hy_array* head_norm, input* x, hy_array* cos,
                               hy_array* sin, hy__draws* draws, hy_array** out) {
  temporaries t = {.count = 0};
  hy_array **flat = temporary(&t), **split = temporary(&t), **normed = temporary(&t);
  hy_array* last = NULL;
  hy_status status = apply_linear(tape, layer, x, draws, flat);
  if (status == HY_OK)
    status = hy_array_view(tape, split, *flat, 3, (int64_t[]){-1, heads, c->head_dim});
  if (status == HY_OK) last = *split;
  if (status == HY_OK && head_norm) {
    status = hy_array_rms_norm(tape, normed, NULL, last, head_norm, 1, c->norm_eps);
    last = *normed;
  }
  if (status == HY_OK) {
    if (cos)
      status = hy_array_rope(tape, out, last, cos, sin, false, false);
    else
      *out = hy_array_retain(last);
  }
  release_all(&t);
  return status;
}

// Whether a joined layer serves: outside of training, without adapters on its parts, and where the
// parts of its output lie in one piece each, as those of a single token do.
static bool use_joined(const hy__linear* whole, const hy__linear* a, const hy__linear* b,
                       const hy__linear* c, const hy_array* x, const hy__draws* draws) {
  return whole->weight && !draws && !a->lora.a && !b->lora.a && !(c && c->lora.a) &&
         hy_array_tensor(x)->shape[0] == 1;
}

// q, k and v of a single token by one product. Heads of q and k turn together where no norm comes
// between.
static hy_status project_joined(hy_tape* tape, const hy__config* c, const hy__block* block,
                                input* in, hy_array* cos, hy_array* sin, hy_array** q, hy_array** k,
                                hy_array** v) {
  int64_t queries = c->n_heads, turned = queries + c->n_kv_heads, all = turned + c->n_kv_heads;
  temporaries t = {.count = 0};
  hy_array **flat = temporary(&t), **heads = temporary(&t), **front = temporary(&t);
  hy_array **both = temporary(&t), **raw_q = temporary(&t), **raw_k = temporary(&t);
  hy_array **normed_q = temporary(&t), **normed_k = temporary(&t);
  hy_status status = apply_linear(tape, &block->qkv, in, NULL, flat);
  if (status == HY_OK)
    status = hy_array_view(tape, heads, *flat, 3, (int64_t[]){1, all, c->head_dim});
  if (status == HY_OK) status = hy_array_slice(tape, v, *heads, 1, turned, all, 1);
  if (!block->q_norm) {
    if (status == HY_OK) status = hy_array_slice(tape, front, *heads, 1, 0, turned, 1);
    if (status == HY_OK) status = hy_array_rope(tape, both, *front, cos, sin, false, false);
    if (status == HY_OK) status = hy_array_slice(tape, q, *both, 1, 0, queries, 1);
    if (status == HY_OK) status = hy_array_slice(tape, k, *both, 1, queries, turned, 1);
  } else {
    if (status == HY_OK) status = hy_array_slice(tape, raw_q, *heads, 1, 0, queries, 1);
    if (status == HY_OK) status = hy_array_slice(tape, raw_k, *heads, 1, queries, turned, 1);
    if (status == HY_OK)
      status = hy_array_rms_norm(tape, normed_q, NULL, *raw_q, block->q_norm, 1, c->norm_eps);
    if (status == HY_OK)
      status = hy_array_rms_norm(tape, normed_k, NULL, *raw_k, block->k_norm, 1, c->norm_eps);
    if (status == HY_OK) status = hy_array_rope(tape, q, *normed_q, cos, sin, false, false);
    if (status == HY_OK) status = hy_array_rope(tape, k, *normed_k, cos, sin, false, false);
  }
  release_all(&t);
  return status;
}

static hy_status project(hy_tape* tape, const hy__config* c, const hy__block* block, input* in,
                         hy_array* cos, hy_array* sin, hy__draws* draws, hy_array** q, hy_array** k,
                         hy_array** v) {
  if (use_joined(&block->qkv, &block->q, &block->k, &block->v, in->x, draws))
    return project_joined(tape, c, block, in, cos, sin, q, k, v);
  HY_TRY(project_heads(tape, c, &block->q, c->n_heads, block->q_norm, in, cos, sin, draws, q));
  HY_TRY(project_heads(tape, c, &block->k, c->n_kv_heads, block->k_norm, in, cos, sin, draws, k));
  return project_heads(tape, c, &block->v, c->n_kv_heads, NULL, in, NULL, NULL, draws, v);
}

// x + o(attention(norm(x)))
static hy_status attention_half(hy_tape* tape, const hy__transformer* model, int layer, hy_array* x,
                                hy_array* cos, hy_array* sin, const hy__attention* attention,
                                hy__draws* draws, hy_array** out) {
  const hy__config* c = &model->config;
  const hy__block* block = &model->blocks[layer];
  temporaries t = {.count = 0};
  hy_array **normed = temporary(&t), **q = temporary(&t), **k = temporary(&t), **v = temporary(&t);
  hy_array **mixed = temporary(&t), **flat = temporary(&t), **projected = temporary(&t);
  hy_status status = hy_array_rms_norm(tape, normed, NULL, x, block->input_norm, 1, c->norm_eps);
  input in = {.x = *normed};
  if (status == HY_OK) status = project(tape, c, block, &in, cos, sin, draws, q, k, v);
  release_input(&in);
  if (status == HY_OK)
    status = attention->attend(attention->context, tape, layer, *q, *k, *v, mixed);
  if (status == HY_OK)
    status = hy_array_view(tape, flat, *mixed, 2, (int64_t[]){-1, c->n_heads * c->head_dim});
  if (status == HY_OK) status = hy__linear_apply(tape, &block->o, *flat, draws, projected);
  if (status == HY_OK) status = hy_array_add(tape, out, x, *projected, hy_int(1));
  release_all(&t);
  return status;
}

static hy_status gate_and_up(hy_tape* tape, int64_t size, const hy__block* block, input* in,
                             hy__draws* draws, hy_array** gate, hy_array** up) {
  if (!use_joined(&block->gate_up, &block->gate, &block->up, NULL, in->x, draws)) {
    HY_TRY(apply_linear(tape, &block->gate, in, draws, gate));
    return apply_linear(tape, &block->up, in, draws, up);
  }
  hy_array* both = NULL;
  hy_status status = apply_linear(tape, &block->gate_up, in, NULL, &both);
  if (status == HY_OK) status = hy_array_slice(tape, gate, both, 1, 0, size, 1);
  if (status == HY_OK) status = hy_array_slice(tape, up, both, 1, size, 2 * size, 1);
  hy_array_release(both);
  return status;
}

// x + down(silu(gate(norm(x))) * up(norm(x)))
static hy_status mlp_half(hy_tape* tape, const hy__transformer* model, int layer, hy_array* x,
                          hy__draws* draws, hy_array** out) {
  const hy__block* block = &model->blocks[layer];
  temporaries t = {.count = 0};
  hy_array **normed = temporary(&t), **gate = temporary(&t), **up = temporary(&t);
  hy_array **active = temporary(&t), **product = temporary(&t), **down = temporary(&t);
  hy_status status =
      hy_array_rms_norm(tape, normed, NULL, x, block->post_norm, 1, model->config.norm_eps);
  input in = {.x = *normed};
  if (status == HY_OK)
    status = gate_and_up(tape, model->config.intermediate_size, block, &in, draws, gate, up);
  release_input(&in);
  if (status == HY_OK) status = hy_array_silu(tape, active, *gate);
  if (status == HY_OK) status = hy_array_mul(tape, product, *active, *up);
  if (status == HY_OK) status = hy__linear_apply(tape, &block->down, *product, draws, down);
  if (status == HY_OK) status = hy_array_add(tape, out, x, *down, hy_int(1));
  release_all(&t);
  return status;
}

hy_status hy__block_apply(hy_tape* tape, const hy__transformer* model, int layer, hy_array* x,
                          hy_array* cos, hy_array* sin, const hy__attention* attention,
                          hy__draws* draws, hy_array** out) {
  hy_array* middle = NULL;
  *out = NULL;
  hy_status status = attention_half(tape, model, layer, x, cos, sin, attention, draws, &middle);
  if (status == HY_OK) status = mlp_half(tape, model, layer, middle, draws, out);
  hy_array_release(middle);
  return status;
}

hy_status hy__transformer_apply(hy_tape* tape, const hy__transformer* model, hy_array* ids,
                                hy_array* cos, hy_array* sin, const hy__attention* attention,
                                hy__draws* draws, hy_array** out) {
  hy_array* x = NULL;
  *out = NULL;
  hy_status status = hy__embed(tape, model, ids, &x);
  for (int layer = 0; layer < model->config.n_layers && status == HY_OK; layer++) {
    hy_array* next = NULL;
    status = hy__block_apply(tape, model, layer, x, cos, sin, attention, draws, &next);
    hy_array_release(x);
    x = next;
  }
  if (status == HY_OK)
    status = hy_array_rms_norm(tape, out, NULL, x, model->norm, 1, model->config.norm_eps);
  hy_array_release(x);
  return status;
}

// ---- attention among whole sequences ----

// (N, heads, E) as (batch, heads, length, E), without a copy.
static hy_status by_sequence(hy_tape* tape, int64_t length, hy_array* x, hy_array** out) {
  const hy_tensor* shape = hy_array_tensor(x);
  hy_array* split = NULL;
  hy_status status =
      hy_array_view(tape, &split, x, 4, (int64_t[]){-1, length, shape->shape[1], shape->shape[2]});
  if (status == HY_OK) status = hy_array_transpose(tape, out, split, 1, 2);
  hy_array_release(split);
  return status;
}

static hy_status attend_whole(void* context, hy_tape* tape, int layer, hy_array* q, hy_array* k,
                              hy_array* v, hy_array** out) {
  (void)layer;
  int64_t length = ((const hy__whole_sequences*)context)->length;
  const hy_tensor* shape = hy_array_tensor(q);
  int64_t flat[3] = {shape->shape[0], shape->shape[1], shape->shape[2]};
  temporaries t = {.count = 0};
  hy_array **qs = temporary(&t), **ks = temporary(&t), **vs = temporary(&t),
           **mixed = temporary(&t);
  hy_array **back = temporary(&t), **whole = temporary(&t);
  hy_status status = by_sequence(tape, length, q, qs);
  if (status == HY_OK) status = by_sequence(tape, length, k, ks);
  if (status == HY_OK) status = by_sequence(tape, length, v, vs);
  if (status == HY_OK)
    status = hy_array_sdpa(tape, mixed, NULL, *qs, *ks, *vs, NULL, 0, HY_CAUSAL_TOP_LEFT);
  if (status == HY_OK) status = hy_array_transpose(tape, back, *mixed, 1, 2);
  if (status == HY_OK) status = hy_array_contiguous(tape, whole, *back);
  if (status == HY_OK) status = hy_array_view(tape, out, *whole, 3, flat);
  release_all(&t);
  return status;
}

hy__attention hy__attend_whole(hy__whole_sequences* sequences) {
  return (hy__attention){attend_whole, sequences};
}
