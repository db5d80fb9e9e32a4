// Cases of quantised, sparse and mixture-of-experts layers.
#include <math.h>
#include <string.h>

#include "verify/case.h"

#define QUANTIZED \
  (HY_DTYPE_BIT(HY_I8) | HY_DTYPE_BIT(HY_I4) | HY_DTYPE_BIT(HY_F8E4M3) | HY_DTYPE_BIT(HY_F8E5M2))

static void layered(hy__case* c, int64_t terms, double scale) {
  c->terms = terms > 0 ? terms : 1;
  c->scale = scale;
  c->wide = true;
}

// What is before the last dimension of x: 0 to 2 dimensions; of models, one row, many rows or many
// dimensions.
static int draw_lead(hy__case* c, int64_t* shape) {
  int lead = (int)hy__draw_int(c, 0, 2);
  if (c->flavour == HY__FLAVOUR_MODEL) {
    const int leads[HY__MODEL_SIZES] = {1, 0, 1, HY_MAX_DIMS - 1};
    lead = leads[c->model];
  }
  for (int d = 0; d < lead; d++) shape[d] = d ? hy__draw_small(c, 3) : hy__draw_sized(c, 2, 20011);
  return lead;
}

// x [..., k].
static hy_tensor* add_rows(hy__case* c, int64_t k) {
  int64_t shape[HY_MAX_DIMS];
  int lead = draw_lead(c, shape);
  shape[lead] = k;
  return hy__add_input(c, c->dtype, lead + 1, shape);
}

// Pairs in groups, a row of groups; of models, groups of 128 in rows of 4,096.
static int64_t draw_group(hy__case* c) {
  return 2 * hy__draw_small_sized(c, 8, 0, 64);
}

static int64_t draw_groups(hy__case* c, int64_t most) {
  return hy__draw_small_sized(c, most, 0, 32);
}

// Outputs of a layer; of models a vocabulary, for one row.
static int64_t draw_outputs(hy__case* c) {
  return hy__draw_sized(c, 1, 66047);
}

void hy__cases_quantize(hy__case* c) {
  hy_dtype to = hy__draw_dtype(c, QUANTIZED);
  int64_t group = draw_group(c), groups = draw_groups(c, 3);
  if (hy__is_model(c, 1)) groups = draw_outputs(c);
  bool grouped = c->flavour == HY__FLAVOUR_MODEL || hy__draw_bool(c);
  hy__fill_uniform(c, add_rows(c, group * groups), -4, 4);
  c->call.attrs.quantize.dtype = to;
  c->call.attrs.quantize.group = grouped ? group : 0;
  if (hy__mistake(c, 1, HY_DTYPE, "a type that is not quantised"))
    c->call.attrs.quantize.dtype = HY_I32;
  if (hy__mistake(c, 2, HY_SHAPE, "a group that does not divide the rows"))
    c->call.attrs.quantize.group = group * groups + 1;
}

// A quantised tensor of random bits and positive scales, [..., k] and [..., k / group].
static void add_quantized(hy__case* c, hy_dtype dtype, int ndim, const int64_t* shape,
                          int64_t group) {
  if (dtype == HY_I4) {
    hy__add_contiguous(c, dtype, ndim, shape);
  } else {
    hy_tensor* q = hy__add_input(c, dtype, ndim, shape);
    if (dtype == HY_I8)
      hy__fill_ints(c, q, -127, 127);
    else
      hy__fill_uniform(c, q, -100, 100);
  }
  int64_t scales[HY_MAX_DIMS];
  memcpy(scales, shape, (size_t)ndim * sizeof *shape);
  scales[ndim - 1] = shape[ndim - 1] / group;
  hy__fill_uniform(c, hy__add_input(c, HY_F32, ndim, scales), 0.01, 0.02);
}

void hy__cases_dequantize(hy__case* c) {
  int64_t group = draw_group(c), shape[HY_MAX_DIMS];
  int ndim = draw_lead(c, shape) + 1;
  shape[ndim - 1] = group * (hy__is_model(c, 1) ? draw_outputs(c) : draw_groups(c, 3));
  add_quantized(c, c->dtype, ndim, shape, group);
  c->call.attrs.cast.dtype = hy__draw_dtype(c, HY_FLOATS);
  if (c->flavour == HY__FLAVOUR_SUBNORMAL) hy__fill_uniform(c, &c->in[1], 1e-42, 1e-39);
  if (c->flavour == HY__FLAVOUR_HUGE) hy__fill_uniform(c, &c->in[1], 1e25, 1e35);
  if (hy__mistake(c, 1, HY_DTYPE, "a result that is no float")) c->call.attrs.cast.dtype = HY_I32;
  if (hy__mistake(c, 2, HY_SHAPE, "scales that do not divide the rows")) {
    c->call.n_in = 1;
    shape[ndim - 1]++;
    hy__add_input(c, HY_F32, ndim, shape);
  }
}

void hy__cases_linear_quantized(hy__case* c) {
  hy_dtype dtype = hy__draw_dtype(c, QUANTIZED);
  int64_t group = draw_group(c), k = group * draw_groups(c, 4), n = draw_outputs(c);
  hy__fill_uniform(c, add_rows(c, k), -2, 2);
  add_quantized(c, dtype, 2, (int64_t[]){n, k}, group);
  hy__add_optional(c, c->dtype, 1, &n);
  layered(c, k + 1, 8);
  if (hy__mistake(c, 1, HY_SHAPE, "a bias of the wrong size")) {
    c->call.n_in = 3;
    hy__add_input(c, c->dtype, 1, (int64_t[]){n + 1});
  }
  if (hy__mistake(c, 2, HY_DTYPE, "a weight that is not quantised")) {
    hy_tensor kept[4];
    memcpy(kept, c->in, sizeof kept);
    c->call.n_in = 1;
    hy__add_input(c, HY_F32, 2, (int64_t[]){n, k});
    for (int i = 2; i < 4; i++) c->in[c->call.n_in++] = kept[i];
  }
}

// A norm, a bias, a residual and a gate, each there or not, over a weight of either kind; sizes of
// whole lines of memory among the others.
void hy__cases_fused_linear(hy__case* c) {
  bool quantized = hy__draw_bool(c), gated = hy__draw_bool(c), lines = hy__draw_bool(c);
  if (hy__is_model(c, 0)) quantized = c->main;
  hy_dtype dtype = lines && hy__draw_bool(c) ? HY_I8 : hy__draw_dtype(c, QUANTIZED);
  int64_t group = draw_group(c), k, outs = draw_outputs(c), n = gated ? 2 * outs : outs;
  if (lines && c->flavour != HY__FLAVOUR_MODEL) group = 32;
  k = group * draw_groups(c, 9);
  hy_tensor* x = add_rows(c, k);
  hy__fill_uniform(c, x, -2, 2);
  int ndim = x->ndim;
  int64_t shape[HY_MAX_DIMS];
  memcpy(shape, x->shape, sizeof shape);
  shape[ndim - 1] = outs;
  hy_tensor* norm = hy__add_optional(c, c->dtype, 1, &k);
  if (norm) hy__fill_uniform(c, norm, 0.5, 1.5);
  if (quantized) {
    add_quantized(c, dtype, 2, (int64_t[]){n, k}, group);
  } else {
    hy__fill_uniform(c, hy__add_input(c, c->dtype, 2, (int64_t[]){n, k}), -1, 1);
    hy__add_absent(c);
  }
  hy_tensor* bias = hy__add_optional(c, c->dtype, 1, &n);
  if (bias) hy__fill_uniform(c, bias, -1, 1);
  hy_tensor* residual = hy__add_optional(c, c->dtype, ndim, shape);
  if (residual) hy__fill_uniform(c, residual, -2, 2);
  static const double eps[4] = {1e-5, 1e-6, 0.1, 0.75};
  c->call.attrs.fused_linear.eps = eps[hy__draw_int(c, 0, 3)];
  c->call.attrs.fused_linear.gated = gated;
  c->call.attrs.fused_linear.dtype =
      c->dtype != HY_F64 && hy__draw_int(c, 0, 3) == 0 ? HY_F32 : c->dtype;
  // The gate multiplies two sums, each as large as its terms together.
  layered(c, k + 1, gated ? 4 * (double)(k + 1) : 8);
  if (hy__mistake(c, 1, HY_SHAPE, "a residual of the wrong size")) {
    c->call.n_in = 5;
    shape[ndim - 1] = outs + 1;
    hy__add_input(c, c->dtype, ndim, shape);
  }
  if (hy__mistake(c, 2, HY_DTYPE, "a result of a type of its own"))
    c->call.attrs.fused_linear.dtype = HY_I32;
}

void hy__cases_linear_int8(hy__case* c) {
  static const int64_t sizes[] = {2, 4, 6, 10, 16, 32, 64, 128};
  hy_dtype to =
      hy__draw_dtype(c, HY_DTYPE_BIT(HY_F32) | HY_DTYPE_BIT(HY_BF16) | HY_DTYPE_BIT(HY_F16));
  hy_dtype weight = hy__draw_bool(c) || c->flavour == HY__FLAVOUR_GAPS ? HY_I8 : HY_I4;
  // The finer groups of one side divide those of the other, or a row is one group.
  int64_t fine = c->key.quick || c->flavour == HY__FLAVOUR_MODEL ? 2 * hy__draw_small(c, 4)
                                                                 : sizes[hy__draw_int(c, 0, 7)];
  if (hy__is_model(c, 0)) fine = draw_group(c);
  int64_t coarse = fine * hy__draw_small(c, 3), k = coarse * draw_groups(c, 3);
  if (hy__draw_int(c, 0, 3) == 0 && c->flavour != HY__FLAVOUR_MODEL) coarse = k;
  bool finer_x = hy__draw_bool(c);
  int64_t shape[HY_MAX_DIMS], n = draw_outputs(c);
  int lead = draw_lead(c, shape);
  shape[lead] = k;
  add_quantized(c, HY_I8, lead + 1, shape, finer_x ? fine : coarse);
  add_quantized(c, weight, 2, (int64_t[]){n, k}, finer_x ? coarse : fine);
  hy__add_optional(c, to, 1, &n);
  c->call.attrs.cast.dtype = to;
  layered(c, k + 1, 8);
  if (hy__mistake(c, 1, HY_DTYPE, "a result that is no float")) c->call.attrs.cast.dtype = HY_I32;
  if (hy__mistake(c, 2, HY_SHAPE, "a bias of the wrong size")) {
    c->call.n_in = 4;
    hy__add_input(c, to, 1, (int64_t[]){n + 1});
  }
}

void hy__cases_sparsify_2_4(hy__case* c) {
  hy__has_sizes_to(c, 2);
  int64_t rows = hy__draw_sized(c, 1, 20011), columns = 8 * hy__draw_small_sized(c, 6, 0, 2503);
  hy__add_input(c, c->dtype, 2, (int64_t[]){rows, columns});
  if (hy__mistake(c, 1, HY_SHAPE, "rows that are no multiple of 8")) {
    c->call.n_in = 0;
    hy__add_input(c, c->dtype, 2, (int64_t[]){2, 12});
  }
}

// x, the outputs of the op that packs a weight [n, k], and a bias or none.
static void add_packed_layer(hy__case* c, hy_op packs, int outputs, int64_t n, int64_t k) {
  hy__fill_uniform(c, add_rows(c, k), -2, 2);
  hy_tensor weight = *hy__add_input(c, c->dtype, 2, (int64_t[]){n, k});
  hy__fill_uniform(c, &weight, -2, 2);
  hy_attrs none;
  memset(&none, 0, sizeof none);
  c->call.n_in = 1;
  for (int i = 0; i < outputs; i++) hy__add_result(c, packs, &none, 1, &weight, i);
  hy__add_optional(c, c->dtype, 1, &n);
}

void hy__cases_linear_sparse_2_4(hy__case* c) {
  int64_t n = hy__draw_size_from_1(c), k = 8 * hy__draw_small_sized(c, 6, 0, 512);
  if (hy__is_model(c, 1)) n = draw_outputs(c);
  add_packed_layer(c, HY_OP_sparsify_2_4, 2, n, k);
  layered(c, k / 2 + 1, 4);
  if (hy__mistake(c, 1, HY_LAYOUT, "codes in plain layout")) c->in[2].layout = HY_LAYOUT_STRIDED;
}

void hy__cases_pack_fractal_nz(hy__case* c) {
  hy__has_sizes_to(c, 2);
  int64_t rows = 16 * hy__draw_sized(c, 1, 1251),
          columns = 16 * hy__draw_small_sized(c, 6, 0, 1251);
  hy__add_input(c, c->dtype, 2, (int64_t[]){rows, columns});
  if (hy__mistake(c, 1, HY_SHAPE, "rows that are no multiple of 16")) {
    c->call.n_in = 0;
    hy__add_input(c, c->dtype, 2, (int64_t[]){16, 24});
  }
}

void hy__cases_linear_fractal_nz(hy__case* c) {
  int64_t n = 16 * hy__draw_small_sized(c, 6, 1, 512), k = 16 * hy__draw_small_sized(c, 6, 0, 256);
  if (hy__is_model(c, 1)) n = (draw_outputs(c) + 15) / 16 * 16;
  add_packed_layer(c, HY_OP_pack_fractal_nz, 1, n, k);
  layered(c, k + 1, 4);
  if (hy__mistake(c, 1, HY_LAYOUT, "a weight in plain layout")) c->in[1].layout = HY_LAYOUT_STRIDED;
}

void hy__cases_fused_moe(hy__case* c) {
  int64_t tokens = hy__draw_sized(c, 3, 10007), size = hy__draw_small_sized(c, 12, 1, 20011);
  int64_t hidden = hy__draw_small_sized(c, 10, 2, 4099);
  int64_t experts = hy__is_model(c, 1) ? 4 : hy__draw_small_sized(c, 5, 0, 130),
          chosen = hy__draw_small_sized(c, 3, 0, 8);
  hy__fill_uniform(c, hy__add_input(c, c->dtype, 2, (int64_t[]){tokens, size}), -1, 1);
  hy__fill_uniform(c, hy__add_input(c, c->dtype, 3, (int64_t[]){experts, 2 * hidden, size}), -1, 1);
  hy__fill_uniform(c, hy__add_input(c, c->dtype, 3, (int64_t[]){experts, size, hidden}), -1, 1);
  hy__fill_uniform(c, hy__add_input(c, c->dtype, 2, (int64_t[]){tokens, chosen}), 0, 1);
  hy_tensor* id =
      hy__add_input(c, hy__draw_bool(c) ? HY_I32 : HY_I64, 2, (int64_t[]){tokens, chosen});
  hy__fill_ints(c, id, 0, experts - 1);
  layered(c, 64 + (size + hidden * chosen) / 16, 2 * sqrt((double)size) + 8);
  if (hy__mistake_in_data(c, 1, HY_INDEX, "an expert that is not there"))
    hy__fill_ints(c, id, experts, experts);
  if (hy__mistake(c, 2, HY_SHAPE, "experts of the wrong size")) {
    hy_tensor kept[5];
    memcpy(kept, c->in, sizeof kept);
    c->call.n_in = 2;
    hy__add_input(c, c->dtype, 3, (int64_t[]){experts, size + 1, hidden});
    for (int i = 3; i < 5; i++) c->in[c->call.n_in++] = kept[i];
  }
}
