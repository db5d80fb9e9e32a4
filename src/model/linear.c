// Linear layers: products with float or int8 activations, and LoRA's update.
#include "model/linear.h"

enum { X_GROUP = 32 };   // the fewest numbers of x that share a scale
enum { FEW_ROWS = 64 };  // a product of so many is bound by reading its weight

int64_t hy__int8_group(int64_t size) {
  for (int64_t group = 128; group >= 32; group /= 2) {
    if (size % group == 0) return group;
  }
  return 0;
}

void hy__linear_release(hy__linear* layer) {
  hy_array_release(layer->weight);
  hy_array_release(layer->scale);
  hy_array_release(layer->bias);
  hy_array_release(layer->lora.a);
  hy_array_release(layer->lora.b);
  hy_array_release(layer->lora.train_a);
  hy_array_release(layer->lora.train_b);
}

bool hy__linear_is_fractal_nz(const hy__linear* layer) {
  return layer->weight && hy_array_tensor(layer->weight)->layout == HY_LAYOUT_FRACTAL_NZ;
}

static hy_dtype dtype_of(const hy_array* x) {
  return hy_array_tensor(x)->dtype;
}

static hy_array* as_dtype(hy_scope* s, hy_array* x, hy_dtype dtype) {
  return !x || dtype_of(x) == dtype ? x : hy_s_cast(s, x, dtype);
}

static bool unpacks(const hy_scope* s, hy_array* x) {
  if (s->status != HY_OK) return false;
  const hy_tensor* t = hy_array_tensor(x);
  return hy_tensor_numel(t) > FEW_ROWS * t->shape[t->ndim - 1] &&
         hy_prefers_unpacked(hy_array_device(x));
}

static hy__activations round_to_int8(hy_scope* s, const hy__linear* layer, hy_array* x) {
  hy__activations in = {.x = x};
  // Activations have outliers, and what shares a scale with one loses its own digits.
  int64_t size = hy_s_size(s, x, -1), group = layer->x_group;
  if (group < X_GROUP || size % group != 0) group = size % X_GROUP == 0 ? X_GROUP : 0;
  in.int8 = hy_s_quantize(s, &in.scale, x, HY_I8, group);
  return in;
}

hy__activations hy__activations_for(hy_scope* s, const hy__linear* layer, hy_array* x,
                                    const hy__draws* draws) {
  if (!layer->scale || draws) return (hy__activations){.x = x};
  if (unpacks(s, x)) return (hy__activations){.x = x, .unpacks = true};
  return round_to_int8(s, layer, x);
}

hy_array* hy__linear_floats(hy_scope* s, const hy__linear* layer, hy_array* x) {
  if (!layer->scale) return layer->weight;
  return unpacks(s, x) ? hy_s_dequantize(s, layer->weight, layer->scale, dtype_of(x)) : NULL;
}

static hy_array* drop_out(hy_scope* s, double dropout, hy_array* x, hy__draws* draws) {
  if (!(dropout > 0) || !draws) return x;
  uint64_t offset = draws->offset;
  draws->offset += (uint64_t)hy_tensor_numel(hy_array_tensor(x)) / 4 + 1;
  return hy_s_dropout(s, NULL, x, draws->seed, offset, dropout);
}

// ys[i] becomes ys[i] + scaling * low_i bs[i]^T.
static void add_low_rank(hy_scope* s, hy_array** ys, int n, hy_array* low, hy_array* const* bs,
                         double scaling) {
  hy_array* sums[HY_MAX_OUTPUTS] = {NULL};
  if (s->status == HY_OK)
    HY_SCOPE_TRY(s, hy_array_add_low_rank(s->tape, sums, ys, n, low, bs, scaling));
  for (int i = 0; i < n; i++) ys[i] = hy_scope_keep(s, s->status, sums[i]);
}

// y + scaling * dropout(x) A^T B^T, in the type of the adapter, which may be float32 beside
// halves.
static hy_array* add_lora(hy_scope* s, const hy__lora* lora, hy_array* y, hy_array* x,
                          hy__draws* draws) {
  hy_array* dropped = as_dtype(s, drop_out(s, lora->dropout, x, draws), dtype_of(lora->a));
  hy_array* low = hy_s_linear(s, dropped, lora->a, NULL);
  hy_array* update = as_dtype(s, hy_s_linear(s, low, lora->b, NULL), dtype_of(x));
  return hy_s_add(s, y, update, hy_float(lora->scaling));
}

static hy_array* multiply(hy_scope* s, const hy__linear* l, const hy__activations* in,
                          hy_dtype dtype) {
  if (in->int8)
    return hy_s_linear_int8(s, in->int8, in->scale, l->weight, l->scale, l->bias, dtype);
  if (in->unpacks)
    return hy_s_linear(s, in->x, hy_s_dequantize(s, l->weight, l->scale, dtype), l->bias);
  if (l->scale) return hy_s_linear_quantized(s, in->x, l->weight, l->scale, l->bias);
  if (hy__linear_is_fractal_nz(l)) return hy_s_linear_fractal_nz(s, in->x, l->weight, l->bias);
  return hy_s_linear(s, in->x, l->weight, l->bias);
}

// With adapters in the type of x, of which `dropped` is what they read.
static void apply_trained(hy_scope* s, const hy__linear* const* layers, int n, hy_array* a,
                          hy_array* dropped, const hy__activations* in, hy_array** ys) {
  hy_array *low = hy_s_linear(s, dropped, a, NULL), *bs[HY_MAX_OUTPUTS];
  for (int i = 0; i < n; i++) {
    ys[i] = s->status == HY_OK ? multiply(s, layers[i], in, dtype_of(in->x)) : NULL;
    bs[i] = layers[i]->lora.train_b;
  }
  add_low_rank(s, ys, n, low, bs, layers[0]->lora.scaling);
}

hy_array* hy__linear_apply_to(hy_scope* s, const hy__linear* layer, const hy__activations* in,
                              hy__draws* draws) {
  if (s->status != HY_OK) return NULL;
  const hy__lora* lora = &layer->lora;
  int mark = hy_scope_mark(s);
  if (draws && lora->train_a) {
    hy_array *x = drop_out(s, lora->dropout, in->x, draws), *y;
    apply_trained(s, &layer, 1, lora->train_a, x, in, &y);
    return hy_scope_pop(s, mark, y);
  }
  hy_array* y = multiply(s, layer, in, dtype_of(in->x));
  if (lora->a) y = add_lora(s, lora, y, in->x, draws);
  return hy_scope_pop(s, mark, y);
}

void hy__linear_apply_joint(hy_scope* s, const hy__linear* const* layers, int n, hy_array* a,
                            const hy__activations* in, hy_array** ys) {
  apply_trained(s, layers, n, a, in->x, in, ys);
}

hy_array* hy__linear_apply(hy_scope* s, const hy__linear* layer, hy_array* x, hy__draws* draws) {
  hy__activations in = hy__activations_for(s, layer, x, draws);
  return hy__linear_apply_to(s, layer, &in, draws);
}

hy_array* hy__linear_apply_f32(hy_scope* s, const hy__linear* layer, hy_array* x) {
  if (!layer->scale || layer->lora.a)
    return as_dtype(s, hy__linear_apply(s, layer, x, NULL), HY_F32);
  hy__activations in = round_to_int8(s, layer, x);
  return multiply(s, layer, &in, HY_F32);
}
