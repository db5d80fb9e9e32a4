// Test library for Cambricon: what CNNL's functions compute, by the reference, and the rules that
// it does not have.
#include <stdlib.h>
#include <string.h>

#include "cnnl.h"
#include "ops/reference/element.h"

#define NO_ATTRS ((hy_attrs){.words = {0}})

static int run(const job* j, bool check, hy_op op, int n_in, hy_attrs attrs) {
  hy_tensor out = job_tensor(j, -1);
  return job_reference_of(j, check, op, n_in, j->tensors, 1, &out, attrs);
}

#define PRECISE(i)                                                                    \
  RULE(job_integer(j, i) == CNNL_COMPUTATION_HIGH_PRECISION, "cnnl%s: preference %d", \
       j->row->name, (int)job_integer(j, i))
#define ON_HOST(i)                                                                           \
  RULE(job_integer(j, i) == CNNL_POINTER_MODE_HOST, "cnnl%s: pointer mode %d", j->row->name, \
       (int)job_integer(j, i))

// ---- copies ----

int op_copy(const job* j, bool check) {
  hy_tensor x = job_tensor(j, 0), y = job_tensor(j, 1);
  RULE(x.dtype == y.dtype && x.ndim == y.ndim &&
           !memcmp(x.shape, y.shape, (size_t)x.ndim * sizeof x.shape[0]),
       "cnnlCopy_v2: types or shapes differ");
  for (int d = 0; d < x.ndim; d++)
    RULE(x.stride[d] > 0 || x.shape[d] == 1, "cnnlCopy_v2: a dimension that repeats");
  return run(j, check, HY_OP_copy, 1, NO_ATTRS);
}

int op_expand(const job* j, bool check) {
  hy_tensor x = job_tensor(j, 0), y = job_tensor(j, 1), wide = x;
  RULE(x.dtype == y.dtype && x.ndim <= y.ndim, "cnnlExpand: types or dimensions do not fit");
  wide.ndim = y.ndim;
  for (int d = 0; d < y.ndim; d++) {
    int from = d - (y.ndim - x.ndim);
    bool repeats = from < 0 || x.shape[from] == 1;
    RULE(repeats || x.shape[from] == y.shape[d], "cnnlExpand: shapes that do not fit");
    wide.shape[d] = y.shape[d];
    wide.stride[d] = repeats ? 0 : x.stride[from];
  }
  return job_reference(j, check, 1, &wide, 1, &y, NO_ATTRS);
}

static const struct {
  int cast;
  hy_dtype from, to;
} casts[] = {
    {CNNL_CAST_FLOAT_TO_HALF, HY_F32, HY_F16},      {CNNL_CAST_FLOAT_TO_BFLOAT16, HY_F32, HY_BF16},
    {CNNL_CAST_FLOAT_TO_INT32, HY_F32, HY_I32},     {CNNL_CAST_FLOAT_TO_BOOL, HY_F32, HY_BOOL},
    {CNNL_CAST_HALF_TO_FLOAT, HY_F16, HY_F32},      {CNNL_CAST_HALF_TO_BOOL, HY_F16, HY_BOOL},
    {CNNL_CAST_BFLOAT16_TO_FLOAT, HY_BF16, HY_F32}, {CNNL_CAST_BFLOAT16_TO_BOOL, HY_BF16, HY_BOOL},
    {CNNL_CAST_INT32_TO_FLOAT, HY_I32, HY_F32},     {CNNL_CAST_INT32_TO_INT64, HY_I32, HY_I64},
    {CNNL_CAST_INT32_TO_BOOL, HY_I32, HY_BOOL},     {CNNL_CAST_INT64_TO_INT32, HY_I64, HY_I32},
    {CNNL_CAST_INT8_TO_FLOAT, HY_I8, HY_F32},       {CNNL_CAST_INT8_TO_INT32, HY_I8, HY_I32},
    {CNNL_CAST_UINT8_TO_FLOAT, HY_U8, HY_F32},      {CNNL_CAST_UINT8_TO_INT32, HY_U8, HY_I32},
    {CNNL_CAST_BOOL_TO_FLOAT, HY_BOOL, HY_F32},     {CNNL_CAST_BOOL_TO_INT32, HY_BOOL, HY_I32},
};

int op_cast(const job* j, bool check) {
  hy_tensor x = job_tensor(j, 0), y = job_tensor(j, 1);
  bool fits = false;
  for (size_t i = 0; i < sizeof casts / sizeof casts[0]; i++)
    fits |=
        casts[i].cast == job_integer(j, 2) && casts[i].from == x.dtype && casts[i].to == y.dtype;
  RULE(fits, "cnnlCastDataType: %d is not from %s to %s", (int)job_integer(j, 2),
       hy_dtype_name(x.dtype), hy_dtype_name(y.dtype));
  return run(j, check, HY_OP_cast, 1, (hy_attrs){.cast = {y.dtype}});
}

int op_flip(const job* j, bool check) {
  hy_tensor x = job_tensor(j, 0), y = job_tensor(j, 1);
  RULE(job_integer(j, 1) == 1, "cnnlFlip: %d dimensions", (int)job_integer(j, 1));
  int d = j->args[0].numbers[0];
  RULE(d >= 0 && d < x.ndim, "cnnlFlip: dimension %d", d);
  x.data = (char*)x.data + (x.shape[d] - 1) * x.stride[d] * (int64_t)hy_dtype_size(x.dtype);
  x.stride[d] = -x.stride[d];
  return job_reference(j, check, 1, &x, 1, &y, NO_ATTRS);
}

// ---- one input ----

int op_unary(const job* j, bool check) {
  return run(j, check, j->row->op, 1, NO_ATTRS);
}

int op_preferred(const job* j, bool check) {
  PRECISE(0);
  return op_unary(j, check);
}

int op_log(const job* j, bool check) {
  PRECISE(0);
  RULE(job_integer(j, 1) == CNNL_LOG_E, "cnnlLog_v2: base %d", (int)job_integer(j, 1));
  return op_unary(j, check);
}

#define NO_FACTORS(a, b)                                                                   \
  RULE(!j->args[a].present && !j->args[b].present, "cnnl%s: alpha and beta are not taken", \
       j->row->name)

static hy_op activation(int mode, bool backward) {
  switch (mode) {
    case CNNL_ACTIVATION_SIGMOID: return backward ? HY_OP_sigmoid_backward : HY_OP_sigmoid;
    case CNNL_ACTIVATION_TANH: return backward ? HY_OP_tanh_backward : HY_OP_tanh;
    case CNNL_ACTIVATION_SILU: return backward ? HY_OP_silu_backward : HY_OP_silu;
    case CNNL_ACTIVATION_GELU: return backward ? HY_OP_gelu_backward : HY_OP_gelu;
    case CNNL_ACTIVATION_RELU: return backward ? HY_OP_NONE : HY_OP_relu;
    default: return HY_OP_NONE;
  }
}

int op_activation(const job* j, bool check) {
  const op_desc* d = job_desc(j, 0);
  hy_op op = activation(d->op, false);
  NO_FACTORS(1, 4);
  RULE(op != HY_OP_NONE, "cnnlActivationForward: mode %d", d->op);
  return run(j, check, op, 1, (hy_attrs){.gelu = {d->approximate}});
}

int op_activation_backward(const job* j, bool check) {
  const op_desc* d = job_desc(j, 0);
  hy_op op = activation(d->op, true);
  hy_tensor y = job_tensor(j, 0), x = job_tensor(j, 2), out = job_tensor(j, 3);
  bool by_output = d->op == CNNL_ACTIVATION_SIGMOID || d->op == CNNL_ACTIVATION_TANH;
  NO_FACTORS(1, 8);
  RULE(op != HY_OP_NONE, "cnnlActivationBackward: mode %d", d->op);
  RULE((y.dtype != HY_NONE) == by_output && (x.dtype != HY_NONE) != by_output,
       "cnnlActivationBackward: mode %d takes its %s", d->op, by_output ? "output" : "input");
  hy_tensor in[] = {job_tensor(j, 1), by_output ? y : x};
  return job_reference_of(j, check, op, 2, in, 1, &out, (hy_attrs){.gelu = {d->approximate}});
}

int op_threshold(const job* j, bool check) {
  hy_tensor in[] = {job_tensor(j, 1), job_tensor(j, 0)}, out = job_tensor(j, 2);
  RULE(hy_scalar_f(job_number(j, 4)) == 0, "cnnlThresholdBackward: a threshold that is not 0");
  return job_reference(j, check, 2, in, 1, &out, NO_ATTRS);
}

// ---- two inputs ----

int op_op_tensor(const job* j, bool check) {
  const op_desc* d = job_desc(j, 0);
  hy_tensor c = job_tensor(j, 2);
  hy_scalar one = job_factor(j, 1), alpha = job_factor(j, 4), beta = job_factor(j, 9);
  RULE(one.kind != HY_NONE && alpha.kind != HY_NONE && beta.kind != HY_NONE,
       "cnnlOpTensor: a factor is NULL");
  RULE(hy_scalar_f(one) == 1 && hy_scalar_f(beta) == 0, "cnnlOpTensor: alpha1 %g, beta %g",
       hy_scalar_f(one), hy_scalar_f(beta));
  RULE((d->dtype == CNNL_DTYPE_INT32) == (c.dtype == HY_I32), "cnnlOpTensor: computed in type %d",
       d->dtype);
  RULE(d->nan == CNNL_PROPAGATE_NAN, "cnnlOpTensor: NaN would be lost");
  if (d->op == CNNL_OP_TENSOR_MUL) {
    RULE(hy_scalar_f(alpha) == 1, "cnnlOpTensor: a product with alpha2");
    return run(j, check, HY_OP_mul, 2, NO_ATTRS);
  }
  return run(j, check, d->op == CNNL_OP_TENSOR_ADD ? HY_OP_add : HY_OP_sub, 2,
             (hy_attrs){.alpha = {alpha}});
}

int op_binary(const job* j, bool check) {
  if (j->args[0].kind == 'E') PRECISE(0);
  return run(j, check, j->row->op, 2, NO_ATTRS);
}

static int divide(const job* j, bool check, hy_rounding rounding) {
  PRECISE(0);
  return run(j, check, HY_OP_div, 2, (hy_attrs){.rounding = {rounding}});
}

int op_div(const job* j, bool check) {
  return divide(j, check, HY_ROUND_NONE);
}

int op_floor_div(const job* j, bool check) {
  return divide(j, check, HY_ROUND_FLOOR);
}

int op_trunc_div(const job* j, bool check) {
  return divide(j, check, HY_ROUND_TRUNC);
}

int op_bits(const job* j, bool check) {
  int64_t op = job_integer(j, 0);
  RULE(op >= CNNL_CYCLE_BAND_OP && op <= CNNL_CYCLE_BXOR_OP, "cnnlBitCompute_v2: op %d", (int)op);
  return run(j, check,
             op == CNNL_CYCLE_BAND_OP  ? HY_OP_bitwise_and
             : op == CNNL_CYCLE_BOR_OP ? HY_OP_bitwise_or
                                       : HY_OP_bitwise_xor,
             2, NO_ATTRS);
}

int op_logic(const job* j, bool check) {
  static const hy_op ops[] = {HY_OP_eq, HY_OP_ne, HY_OP_gt,          HY_OP_ge,
                              HY_OP_lt, HY_OP_le, HY_OP_logical_and, HY_OP_logical_or};
  int64_t op = job_integer(j, 0);
  RULE(op >= 0 && op <= CNNL_LOGIC_OP_OR, "cnnlLogicOp: op %d", (int)op);
  RULE(job_tensor(j, 0).dtype == job_tensor(j, 1).dtype && job_tensor(j, 2).dtype == HY_BOOL,
       "cnnlLogicOp: types that do not fit");
  return run(j, check, ops[op], 2, NO_ATTRS);
}

// alpha x + beta, rounded once.
int op_transform(const job* j, bool check) {
  hy_tensor x = job_tensor(j, 0), y = job_tensor(j, 1);
  hy_scalar alpha = job_factor(j, 1), beta = job_factor(j, 4);
  ON_HOST(0);
  RULE(alpha.kind != HY_NONE && beta.kind != HY_NONE, "cnnlTransform_v2: a factor is NULL");
  if (check) return run(j, check, HY_OP_copy, 1, NO_ATTRS);
  int64_t size = (int64_t)hy_dtype_size(x.dtype);
  for (int64_t i = 0; i < hy_tensor_numel(&x); i++) {
    const char* from = (const char*)x.data + i * size;
    char* to = (char*)y.data + i * size;
    if (x.dtype == HY_I32)
      hy__store_i(HY_I32, to, hy_scalar_i(alpha) * hy__load_i(HY_I32, from) + hy_scalar_i(beta));
    else
      hy__store_f(x.dtype, to, hy_scalar_f(alpha) * hy__load_f(x.dtype, from) + hy_scalar_f(beta));
  }
  return CNNL_STATUS_SUCCESS;
}

// ---- creation, masks, three inputs ----

// A number on the host has the tensor's type, and this library reads no halves.
#define NO_HALVES(t) \
  RULE((t).dtype != HY_F16 && (t).dtype != HY_BF16, "cnnl%s: a half on the host", j->row->name)

int op_fill(const job* j, bool check) {
  hy_tensor out = job_tensor(j, 0);
  ON_HOST(0);
  NO_HALVES(out);
  return job_reference(j, check, 0, NULL, 1, &out, (hy_attrs){.value = {job_number(j, 1)}});
}

int op_arange(const job* j, bool check) {
  hy_tensor out = job_tensor(j, 0);
  PRECISE(0);
  NO_HALVES(out);
  return job_reference(j, check, 0, NULL, 1, &out,
                       (hy_attrs){.arange = {job_number(j, 1), job_number(j, 2)}});
}

int op_clip(const job* j, bool check) {
  ON_HOST(0);
  NO_HALVES(job_tensor(j, 0));
  return run(j, check, HY_OP_clamp, 1, (hy_attrs){.clamp = {job_number(j, 3), job_number(j, 4)}});
}

int op_select(const job* j, bool check) {
  RULE(job_tensor(j, 1).dtype != HY_BOOL && job_tensor(j, 1).dtype != HY_U8, "cnnlSelectV2: of %s",
       hy_dtype_name(job_tensor(j, 1).dtype));
  return run(j, check, HY_OP_where, 3, NO_ATTRS);
}

int op_addc(const job* j, bool check) {
  RULE(j->args[2].present, "cnnl%s: alpha is NULL", j->row->name);
  return run(j, check, j->row->op, 3, (hy_attrs){.value = {job_factor(j, 2)}});
}

int op_tri(const job* j, bool check) {
  return run(j, check, job_integer(j, 1) ? HY_OP_triu : HY_OP_tril, 1,
             (hy_attrs){.tri = {job_integer(j, 0)}});
}

// ---- reductions ----

// The reference's indices are i64; CNNL's here are i32.
static int narrowed(const job* j, bool check, hy_op op, const hy_tensor* in, hy_tensor* out,
                    void* to, hy_attrs attrs) {
  hy_tensor outs[2] = {*out, *out};
  int64_t n = hy_tensor_numel(out), *wide = calloc((size_t)n + 1, sizeof *wide);
  if (!wide) abort();
  outs[1].dtype = HY_I64;
  outs[1].data = wide;
  int code = job_reference_of(j, check, op, 1, in, 2, outs, attrs);
  for (int64_t i = 0; !check && i < n; i++) ((int32_t*)to)[i] = (int32_t)wide[i];
  free(wide);
  return code;
}

int op_reduce(const job* j, bool check) {
  const op_desc* d = job_desc(j, 0);
  hy_tensor x = job_tensor(j, 0), y = job_tensor(j, 1);
  hy_attrs attrs = {.reduce = {.keepdim = true}};
  static const hy_op ops[] = {HY_OP_sum, HY_OP_mean, HY_OP_NONE, HY_OP_max,
                              HY_OP_min, HY_OP_all,  HY_OP_any};
  NO_FACTORS(3, 8);
  RULE(cnnl_type(d->dtype) == x.dtype && x.dtype == y.dtype, "cnnlReduce: type %d", d->dtype);
  RULE(d->nan == CNNL_PROPAGATE_NAN, "cnnlReduce: NaN would be lost");
  RULE((x.dtype == HY_BOOL) == (d->op == CNNL_REDUCE_AND || d->op == CNNL_REDUCE_OR),
       "cnnlReduce: op %d of %s", d->op, hy_dtype_name(x.dtype));
  attrs.reduce.dims.n = d->n_axes;
  for (int i = 0; i < d->n_axes; i++) {
    RULE(d->axes[i] >= 0 && d->axes[i] < x.ndim, "cnnlReduce: axis %d", d->axes[i]);
    attrs.reduce.dims.dim[i] = d->axes[i];
  }
  bool indices = d->indices == CNNL_REDUCE_FLATTENED_INDICES;
  size_t bytes = indices ? (size_t)hy_tensor_numel(&y) * sizeof(int32_t) : 0;
  RULE((size_t)job_integer(j, 6) == bytes && j->args[7].present == indices,
       "cnnlReduce: %zu bytes of indices, %lld were given", bytes, (long long)job_integer(j, 6));
  if (indices)
    return narrowed(j, check, d->op == CNNL_REDUCE_MAX ? HY_OP_max_dim : HY_OP_min_dim, &x, &y,
                    j->args[7].memory, attrs);
  RULE(ops[d->op] != HY_OP_NONE, "cnnlReduce: op %d", d->op);
  return run(j, check, ops[d->op], 1, attrs);
}

int op_cumsum(const job* j, bool check) {
  RULE(!job_integer(j, 3) && !job_integer(j, 4), "cnnlCumsum_v2: exclusive or reverse");
  RULE(job_tensor(j, 0).dtype == HY_F32, "cnnlCumsum_v2: of halves");
  return run(j, check, HY_OP_cumsum, 1, (hy_attrs){.scan = {job_integer(j, 2), false}});
}

// A stable sort, of which the first k are taken.
int op_topk(const job* j, bool check) {
  hy_tensor x = job_tensor(j, 0), y = job_tensor(j, 1), index = job_tensor(j, 2);
  int64_t k = job_integer(j, 2), dim = job_integer(j, 3);
  RULE(dim >= 0 && dim < x.ndim && k >= 1 && k <= x.shape[dim] && y.shape[dim] == k &&
           index.shape[dim] == k && y.ndim == x.ndim && y.dtype == x.dtype,
       "cnnlTopKTensor_v3: k is %d, and the output does not fit", (int)k);
  RULE(index.dtype == HY_I32, "cnnlTopKTensor_v3: indices of %s", hy_dtype_name(index.dtype));
  RULE(job_integer(j, 6), "cnnlTopKTensor_v3: which of equal ones comes first is open");
  if (check) return CNNL_STATUS_SUCCESS;
  hy_tensor sorted;
  hy_tensor_init(&sorted, NULL, x.dtype, x.ndim, x.shape);
  size_t n = (size_t)hy_tensor_numel(&x);
  sorted.data = calloc(n, hy_dtype_size(x.dtype));
  int32_t* places = calloc(n, sizeof *places);
  if (!sorted.data || !places) abort();
  int code = narrowed(j, check, HY_OP_sort, &x, &sorted, places,
                      (hy_attrs){.sort = {dim, job_integer(j, 4) != 0}});
  hy_tensor head = sorted, all = sorted;
  all.data = places;
  all.dtype = HY_I32;
  head.shape[dim] = all.shape[dim] = k;
  if (!code) code = job_reference_of(j, false, HY_OP_copy, 1, &head, 1, &y, NO_ATTRS);
  if (!code) code = job_reference_of(j, false, HY_OP_copy, 1, &all, 1, &index, NO_ATTRS);
  free(sorted.data);
  free(places);
  return code;
}

static int softmax(const job* j, bool check, int n_in, const hy_tensor* in, hy_op plain,
                   hy_op log) {
  hy_tensor out = job_tensor(j, -1);
  int64_t algorithm = job_integer(j, 0), mode = job_integer(j, 1);
  RULE(algorithm == CNNL_SOFTMAX_ACCURATE || algorithm == CNNL_SOFTMAX_LOG, "cnnl%s: algorithm %d",
       j->row->name, (int)algorithm);
  RULE(mode == CNNL_SOFTMAX_MODE_LOW_DIMENSION && out.ndim == 3, "cnnl%s: mode %d of %d dimensions",
       j->row->name, (int)mode, out.ndim);
  return job_reference_of(j, check, algorithm == CNNL_SOFTMAX_LOG ? log : plain, n_in, in, 1, &out,
                          (hy_attrs){.dim = {2}});
}

int op_softmax(const job* j, bool check) {
  NO_FACTORS(2, 5);
  return softmax(j, check, 1, j->tensors, HY_OP_softmax, HY_OP_log_softmax);
}

int op_softmax_backward(const job* j, bool check) {
  hy_tensor in[] = {job_tensor(j, 1), job_tensor(j, 0)};
  NO_FACTORS(2, 7);
  return softmax(j, check, 2, in, HY_OP_softmax_backward, HY_OP_log_softmax_backward);
}

// ---- norms ----

static int check_norm(const job* j, int axis_at) {
  hy_tensor x = job_tensor(j, 0), weight = job_tensor(j, 1);
  RULE(job_integer(j, axis_at) == 1 && x.ndim == 2, "cnnl%s: axis %d of %d dimensions",
       j->row->name, (int)job_integer(j, axis_at), x.ndim);
  RULE(weight.dtype == x.dtype && weight.ndim == 1 && weight.shape[0] == x.shape[1],
       "cnnl%s: the weight does not fit", j->row->name);
  hy_tensor last = job_tensor(j, -1);
  RULE(last.ndim == 1 && last.shape[0] == x.shape[0], "cnnl%s: statistics of %d dimensions",
       j->row->name, last.ndim);
  return CNNL_STATUS_SUCCESS;
}

// The reference keeps the dimension of a statistic.
static hy_tensor kept(hy_tensor t) {
  t.ndim = 2;
  t.shape[1] = t.stride[0] = t.stride[1] = 1;
  return t;
}

int op_layer_norm(const job* j, bool check) {
  int code = check_norm(j, 2);
  if (code) return code;
  hy_tensor out[] = {job_tensor(j, 3), kept(job_tensor(j, 4)), kept(job_tensor(j, 5))};
  return job_reference(j, check, 3, j->tensors, 3, out, (hy_attrs){.norm = {1, j->args[6].real}});
}

// What becomes of the statistics is not public: rubbish here.
int op_rms_norm(const job* j, bool check) {
  int code = check_norm(j, 0);
  if (code) return code;
  RULE(job_tensor(j, 2).dtype == HY_NONE, "cnnlRmsNormForward: a bias, which nobody has here");
  hy_tensor out[] = {job_tensor(j, 3), hy_tensor_absent()}, rms = job_tensor(j, 4);
  if (!check) memset(rms.data, 0xa5, hy_tensor_bytes(&rms));
  return job_reference(j, check, 2, j->tensors, 2, out, (hy_attrs){.norm = {1, j->args[6].real}});
}

// ---- products ----

static hy_tensor turned(hy_tensor t, bool turn) {
  if (!turn) return t;
  int a = t.ndim - 2, b = t.ndim - 1;
  int64_t shape = t.shape[a], stride = t.stride[a];
  t.shape[a] = t.shape[b];
  t.stride[a] = t.stride[b];
  t.shape[b] = shape;
  t.stride[b] = stride;
  return t;
}

int op_matmul(const job* j, bool check) {
  const op_desc* d = job_desc(j, 0);
  hy_tensor in[] = {job_tensor(j, 2), turned(job_tensor(j, 0), d->trans_a),
                    turned(job_tensor(j, 1), d->trans_b)};
  hy_tensor out = job_tensor(j, 3);
  hy_scalar alpha = job_factor(j, 2), beta = job_factor(j, 7);
  RULE(alpha.kind != HY_NONE && beta.kind != HY_NONE, "cnnlMatMul_v2: a factor is NULL");
  RULE(d->use_beta || hy_scalar_f(beta) == 0, "cnnlMatMul_v2: a beta that is not used");
  RULE(in[0].ndim == 2 && in[1].ndim == 2 && in[2].ndim == 2, "cnnlMatMul_v2: no matrices");
  RULE(in[0].dtype == out.dtype && in[1].dtype == out.dtype && in[2].dtype == out.dtype,
       "cnnlMatMul_v2: types that differ");
  if (d->use_beta && hy_scalar_f(beta) != 0)
    return job_reference(j, check, 3, in, 1, &out, (hy_attrs){.addmm = {beta, alpha}});
  if (hy_scalar_f(alpha) == 1)
    return job_reference_of(j, check, HY_OP_mm, 2, in + 1, 1, &out, NO_ATTRS);
  hy_tensor number = {.dtype = out.dtype, .ndim = 2, .shape = {1, 1}, .stride = {1, 1}};
  char zero[8] = {0};
  number.data = zero;
  in[0] = number;
  return job_reference(j, check, 3, in, 1, &out, (hy_attrs){.addmm = {hy_float(0), alpha}});
}

int op_batch_matmul(const job* j, bool check) {
  const op_desc* d = job_desc(j, 0);
  hy_tensor in[] = {turned(job_tensor(j, 0), d->trans_a), turned(job_tensor(j, 1), d->trans_b)};
  hy_tensor out = job_tensor(j, 2);
  RULE(hy_scalar_f(job_factor(j, 2)) == 1 && hy_scalar_f(job_factor(j, 7)) == 0,
       "cnnlBatchMatMulBCast_v2: alpha or beta");
  return job_reference(j, check, 2, in, 1, &out, NO_ATTRS);
}

// ---- indices ----

#define INDEX(i)                                                             \
  RULE(job_tensor(j, i).dtype == HY_I32 || job_tensor(j, i).dtype == HY_I64, \
       "cnnl%s: indices of %s", j->row->name, hy_dtype_name(job_tensor(j, i).dtype))

int op_indexed(const job* j, bool check) {
  INDEX(1);
  return run(j, check, j->row->op, 2, (hy_attrs){.dim = {job_integer(j, 0)}});
}

int op_index_add(const job* j, bool check) {
  INDEX(1);
  return run(j, check, HY_OP_index_add, 3, (hy_attrs){.dim = {job_integer(j, 0)}});
}

int op_index_put(const job* j, bool check) {
  hy_tensor in[MAX_LIST] = {job_tensor(j, 0), job_tensor(j, 1)}, out = job_tensor(j, 2);
  RULE(j->n_listed <= 8, "cnnlIndexPut: %d indices", j->n_listed);
  RULE(job_integer(j, 10), "cnnlIndexPut: not deterministic");
  for (int i = 0; i < j->n_listed; i++) in[2 + i] = j->listed[i];
  return job_reference(j, check, 2 + j->n_listed, in, 1, &out,
                       (hy_attrs){.accumulate = {job_integer(j, 9) != 0}});
}

int op_embedding_backward(const job* j, bool check) {
  hy_tensor in[] = {job_tensor(j, 1), job_tensor(j, 0)}, out = job_tensor(j, 2);
  RULE(!job_integer(j, 1), "cnnlEmbeddingBackward: scale_grad_by_freq");
  return job_reference(j, check, 2, in, 1, &out,
                       (hy_attrs){.rows = {out.shape[0], job_integer(j, 0)}});
}

int op_concat(const job* j, bool check) {
  hy_tensor out = job_tensor(j, 0);
  return job_reference(j, check, j->n_listed, j->listed, 1, &out,
                       (hy_attrs){.dim = {job_integer(j, 1)}});
}
