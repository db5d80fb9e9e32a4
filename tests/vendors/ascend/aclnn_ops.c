// Test library for Ascend: aclnn ops that are one op of the reference, and the rules of their
// documents that the reference does not have.
#include <string.h>

#include "aclnn.h"

#define NO_ATTRS ((hy_attrs){.words = {0}})

static int run(const job* j, bool check, int n_in, const hy_tensor* in, hy_tensor out,
               hy_attrs attrs) {
  return job_reference(j, check, n_in, in, 1, &out, attrs);
}

// ---- elementwise ----

int op_unary(const job* j, bool check) {
  return run(j, check, 1, (hy_tensor[]){job_tensor(j, 0)}, job_tensor(j, -1), NO_ATTRS);
}

static int two(const job* j, bool check, hy_attrs attrs) {
  hy_tensor in[] = {job_tensor(j, 0), job_tensor(j, 1)};
  return run(j, check, 2, in, job_tensor(j, -1), attrs);
}

int op_binary(const job* j, bool check) {
  return two(j, check, NO_ATTRS);
}

int op_binary_alpha(const job* j, bool check) {
  return two(j, check, (hy_attrs){.alpha = {job_scalar(j, 2)}});
}

static hy_rounding rounding_of(int64_t mode) {
  return mode == 1 ? HY_ROUND_TRUNC : mode == 2 ? HY_ROUND_FLOOR : HY_ROUND_NONE;
}

int op_div_mod(const job* j, bool check) {
  RULE(job_integer(j, 2) >= 0 && job_integer(j, 2) <= 2, "aclnnDivMod: mode %d",
       (int)job_integer(j, 2));
  return two(j, check, (hy_attrs){.rounding = {rounding_of(job_integer(j, 2))}});
}

static int one(const job* j, bool check, hy_attrs attrs) {
  return run(j, check, 1, (hy_tensor[]){job_tensor(j, 0)}, job_tensor(j, -1), attrs);
}

int op_scalar(const job* j, bool check) {
  return one(j, check, (hy_attrs){.value = {job_scalar(j, 1)}});
}

int op_scalar_alpha(const job* j, bool check) {
  return one(j, check, (hy_attrs){.value_alpha = {job_scalar(j, 1), job_scalar(j, 2)}});
}

int op_scalar_div_mod(const job* j, bool check) {
  RULE(job_integer(j, 2) >= 0 && job_integer(j, 2) <= 2, "aclnnDivMods: mode %d",
       (int)job_integer(j, 2));
  hy_rounding rounding = rounding_of(job_integer(j, 2));
  return one(j, check, (hy_attrs){.value_rounding = {job_scalar(j, 1), rounding}});
}

int op_scalar_first(const job* j, bool check) {
  return run(j, check, 1, (hy_tensor[]){job_tensor(j, 1)}, job_tensor(j, -1),
             (hy_attrs){.value = {job_scalar(j, 0)}});
}

int op_clamp(const job* j, bool check) {
  return one(j, check, (hy_attrs){.clamp = {job_scalar(j, 1), job_scalar(j, 2)}});
}

int op_gelu(const job* j, bool check) {
  RULE(job_integer(j, 1) == 0 || job_integer(j, 1) == 1, "aclnnGeluV2: approximate is %d",
       (int)job_integer(j, 1));
  return one(j, check, (hy_attrs){.gelu = {job_integer(j, 1) == 1}});
}

int op_gelu_backward(const job* j, bool check) {
  const char* how = job_text(j, 2);
  RULE(!strcmp(how, "none") || !strcmp(how, "tanh"), "aclnnGeluBackwardV2: \"%s\"", how);
  return two(j, check, (hy_attrs){.gelu = {!strcmp(how, "tanh")}});
}

// dy where x is above the threshold. The reference compares with 0, and asks y, which agrees there.
int op_threshold(const job* j, bool check) {
  RULE(hy_scalar_f(job_scalar(j, 2)) == 0, "aclnnThresholdBackward: a threshold that is not 0");
  return two(j, check, NO_ATTRS);
}

int op_ternary(const job* j, bool check) {
  hy_tensor in[] = {job_tensor(j, 0), job_tensor(j, 1), job_tensor(j, 2)};
  return run(j, check, 3, in, job_tensor(j, -1), NO_ATTRS);
}

int op_addc(const job* j, bool check) {
  hy_tensor in[] = {job_tensor(j, 0), job_tensor(j, 1), job_tensor(j, 2)};
  return run(j, check, 3, in, job_tensor(j, -1), (hy_attrs){.value = {job_scalar(j, 3)}});
}

int op_masked_fill(const job* j, bool check) {
  hy_tensor in[] = {job_tensor(j, 0), job_tensor(j, 1)};
  return run(j, check, 2, in, in[0], (hy_attrs){.value = {job_scalar(j, 2)}});
}

// The masks of attention are 4 MiB in every call: those the reference would take long for.
static bool is_mask(const hy_tensor* t) {
  return t->dtype == HY_BOOL && t->ndim == 2 && t->shape[1] == 2048 && hy_tensor_is_contiguous(t);
}

int op_tri(const job* j, bool check) {
  hy_tensor in = job_tensor(j, 0), out = job_tensor(j, -1);
  if (check || j->row->op != HY_OP_triu || job_integer(j, 1) != 1 || !is_mask(&in) ||
      !is_mask(&out) || out.shape[0] != in.shape[0] || out.shape[0] > 2048)
    return one(j, check, (hy_attrs){.tri = {job_integer(j, 1)}});
  for (int64_t r = 0; r < out.shape[0]; r++) {
    char* row = (char*)out.data + r * 2048;
    memcpy(row, (const char*)in.data + r * 2048, 2048);
    memset(row, 0, (size_t)(r < 2047 ? r + 1 : 2048));
  }
  return ACL_SUCCESS;
}

int op_fill(const job* j, bool check) {
  hy_tensor out = job_tensor(j, 0);
  if (!check && is_mask(&out)) {
    memset(out.data, hy_scalar_f(job_scalar(j, 1)) != 0, hy_tensor_bytes(&out));
    return ACL_SUCCESS;
  }
  return run(j, check, 0, NULL, job_tensor(j, 0), (hy_attrs){.value = {job_scalar(j, 1)}});
}

int op_arange(const job* j, bool check) {
  hy_tensor out = job_tensor(j, -1);
  double start = hy_scalar_f(job_scalar(j, 0)), end = hy_scalar_f(job_scalar(j, 1)),
         step = hy_scalar_f(job_scalar(j, 2));
  // As many as are in [start, end): size = ceil((end - start) / step).
  double size = (end - start) / step;
  RULE(size > (double)hy_tensor_numel(&out) - 1 && size <= (double)hy_tensor_numel(&out),
       "aclnnArange: %g elements into %lld", size, (long long)hy_tensor_numel(&out));
  return run(j, check, 0, NULL, out, (hy_attrs){.arange = {job_scalar(j, 0), job_scalar(j, 2)}});
}

// The source is broadcast to the destination.
int op_copy(const job* j, bool check) {
  hy_tensor dst = job_tensor(j, 0), src = job_tensor(j, 1), wide = src;
  RULE(src.ndim <= dst.ndim, "aclnnInplaceCopy: %d dimensions into %d", src.ndim, dst.ndim);
  wide.ndim = dst.ndim;
  for (int d = 0; d < dst.ndim; d++) {
    int from = d - (dst.ndim - src.ndim);
    bool repeats = from < 0 || src.shape[from] == 1;
    RULE(repeats || src.shape[from] == dst.shape[d], "aclnnInplaceCopy: shapes that do not fit");
    wide.shape[d] = dst.shape[d];
    wide.stride[d] = repeats ? 0 : src.stride[from];
  }
  return run(j, check, 1, &wide, dst, NO_ATTRS);
}

static int vendor_type(hy_dtype dtype) {
  switch (dtype) {
    case HY_F32: return ACL_FLOAT;
    case HY_F64: return ACL_DOUBLE;
    case HY_F16: return ACL_FLOAT16;
    case HY_BF16: return ACL_BF16;
    case HY_I8: return ACL_INT8;
    case HY_I16: return ACL_INT16;
    case HY_I32: return ACL_INT32;
    case HY_I64: return ACL_INT64;
    case HY_U8: return ACL_UINT8;
    case HY_BOOL: return ACL_BOOL;
    default: return -1;
  }
}

#define TYPE_AGREES(i, out)                                                            \
  RULE(vendor_type((out).dtype) == (int)job_integer(j, i),                             \
       "aclnn%s: type %d, and the output is %s", j->row->name, (int)job_integer(j, i), \
       hy_dtype_name((out).dtype))

int op_cast(const job* j, bool check) {
  hy_tensor out = job_tensor(j, 2);
  TYPE_AGREES(1, out);
  return one(j, check, (hy_attrs){.cast = {out.dtype}});
}

// ---- reductions ----

static int reduce(const job* j, bool check, bool keep) {
  int n;
  const int64_t* dims = job_ints(j, 1, &n);
  hy_attrs attrs = {.reduce = {.keepdim = keep}};
  RULE(n <= HY_MAX_DIMS, "aclnn%s: %d dimensions", j->row->name, n);
  for (int i = 0; i < n; i++) attrs.reduce.dims.dim[i] = dims[i];
  attrs.reduce.dims.n = n;
  hy_tensor x = job_tensor(j, 0);
  RULE(hy_tensor_numel(&x) > 0, "aclnn%s: nothing to reduce", j->row->name);
  return one(j, check, attrs);
}

int op_reduce(const job* j, bool check) {
  return reduce(j, check, job_integer(j, 2));
}

int op_reduce_typed(const job* j, bool check) {
  hy_tensor out = job_tensor(j, 4);
  TYPE_AGREES(3, out);
  return reduce(j, check, job_integer(j, 2));
}

int op_reduce_one(const job* j, bool check) {
  hy_tensor out = job_tensor(j, -1);
  RULE(out.dtype == HY_I64 || out.dtype == HY_I32, "aclnn%s: indices of type %s", j->row->name,
       hy_dtype_name(out.dtype));
  return one(j, check,
             (hy_attrs){.reduce = {hy_one_dim(job_integer(j, 1)), job_integer(j, 2) != 0}});
}

int op_reduce_two(const job* j, bool check) {
  hy_tensor in = job_tensor(j, 0), out[] = {job_tensor(j, 3), job_tensor(j, 4)};
  hy_attrs attrs = {.reduce = {hy_one_dim(job_integer(j, 1)), job_integer(j, 2) != 0}};
  return job_reference(j, check, 1, &in, 2, out, attrs);
}

int op_sort(const job* j, bool check) {
  hy_tensor in = job_tensor(j, 0), out[] = {job_tensor(j, 4), job_tensor(j, 5)};
  return job_reference(j, check, 1, &in, 2, out,
                       (hy_attrs){.sort = {job_integer(j, 2), job_integer(j, 3) != 0}});
}

int op_topk(const job* j, bool check) {
  hy_tensor in = job_tensor(j, 0), out[] = {job_tensor(j, 5), job_tensor(j, 6)};
  hy_attrs attrs = {.topk = {job_integer(j, 1), job_integer(j, 2), job_integer(j, 3) != 0,
                             job_integer(j, 4) != 0}};
  return job_reference(j, check, 1, &in, 2, out, attrs);
}

int op_along(const job* j, bool check) {
  return one(j, check, (hy_attrs){.dim = {job_integer(j, 1)}});
}

int op_along_two(const job* j, bool check) {
  return two(j, check, (hy_attrs){.dim = {job_integer(j, 2)}});
}

// ---- norms ----

static int norm_shape(const job* j, const hy_tensor* x, int n, const int64_t* shape) {
  RULE(n >= 1 && n <= x->ndim, "aclnn%s: %d normalised dimensions", j->row->name, n);
  for (int d = 0; d < n; d++)
    RULE(shape[d] == x->shape[x->ndim - n + d], "aclnn%s: the normalised shape is not x's",
         j->row->name);
  return ACL_SUCCESS;
}

#define NORM_SHAPE(x, n, shape)             \
  do {                                      \
    int code_ = norm_shape(j, x, n, shape); \
    if (code_) return code_;                \
  } while (0)
#define MUST_BE_F32(t, what)                                                  \
  RULE((t).dtype == HY_F32, "aclnn%s: " what " is %s, not f32", j->row->name, \
       hy_dtype_name((t).dtype))

int op_layer_norm(const job* j, bool check) {
  int n;
  const int64_t* shape = job_ints(j, 1, &n);
  hy_tensor in[] = {job_tensor(j, 0), job_tensor(j, 2), job_tensor(j, 3)};
  hy_tensor out[] = {job_tensor(j, 5), job_tensor(j, 6), job_tensor(j, 7)};
  NORM_SHAPE(&in[0], n, shape);
  return job_reference(j, check, 3, in, 3, out, (hy_attrs){.norm = {n, job_real(j, 4)}});
}

int op_layer_norm_backward(const job* j, bool check) {
  int n, n_mask;
  const int64_t *shape = job_ints(j, 2, &n), *mask = job_ints(j, 7, &n_mask);
  hy_tensor in[] = {job_tensor(j, 0), job_tensor(j, 1), job_tensor(j, 3), job_tensor(j, 4),
                    job_tensor(j, 5)};
  hy_tensor out[] = {job_tensor(j, 8), job_tensor(j, 9), job_tensor(j, 10)};
  NORM_SHAPE(&in[0], n, shape);
  RULE(n_mask == 3, "aclnnLayerNormBackward: a mask of %d", n_mask);
  for (int i = 0; i < 3; i++)
    RULE((mask[i] != 0) == (out[i].dtype != HY_NONE),
         "aclnnLayerNormBackward: the mask and output %d do not agree", i);
  return job_reference(j, check, 5, in, 3, out, (hy_attrs){.norm = {n, 0}});
}

int op_rms_norm(const job* j, bool check) {
  hy_tensor in[] = {job_tensor(j, 0), job_tensor(j, 1)};
  hy_tensor out[] = {job_tensor(j, 3), job_tensor(j, 4)};
  NORM_SHAPE(&in[0], in[1].ndim, in[1].shape);
  MUST_BE_F32(out[1], "rstd");
  return job_reference(j, check, 2, in, 2, out, (hy_attrs){.norm = {in[1].ndim, job_real(j, 2)}});
}

// ---- products ----

// cubeMathType 0 keeps the type, which these chips cannot for f32.
static int check_cube(const job* j, int64_t mode, const hy_tensor* x) {
  RULE(mode >= 0 && mode <= 3, "aclnn%s: cubeMathType %d", j->row->name, (int)mode);
  RULE(x->dtype != HY_F32 || mode != 0 || ascend_has_bf16(),
       "aclnn%s: this chip has no products in f32", j->row->name);
  return ACL_SUCCESS;
}

int op_product(const job* j, bool check) {
  hy_tensor in[] = {job_tensor(j, 0), job_tensor(j, 1)};
  int code = check_cube(j, job_integer(j, 3), &in[0]);
  RULE(in[0].dtype == in[1].dtype, "aclnn%s: %s times %s", j->row->name, hy_dtype_name(in[0].dtype),
       hy_dtype_name(in[1].dtype));
  return code ? code : run(j, check, 2, in, job_tensor(j, 2), NO_ATTRS);
}

int op_addmm(const job* j, bool check) {
  hy_tensor in[] = {job_tensor(j, 0), job_tensor(j, 1), job_tensor(j, 2)};
  int code = check_cube(j, job_integer(j, 6), &in[1]);
  hy_attrs attrs = {.addmm = {job_scalar(j, 3), job_scalar(j, 4)}};
  return code ? code : run(j, check, 3, in, job_tensor(j, 5), attrs);
}

// ---- indices ----

int op_embedding(const job* j, bool check) {
  return two(j, check, (hy_attrs){.padding = {-1}});
}

int op_embedding_backward(const job* j, bool check) {
  RULE(!job_integer(j, 4), "aclnnEmbeddingDenseBackward: scaleGradByFreq");
  hy_attrs attrs = {.rows = {job_integer(j, 2), job_integer(j, 3)}};
  return two(j, check, attrs);
}

int op_indexed(const job* j, bool check) {
  hy_tensor in[] = {job_tensor(j, 0), job_tensor(j, 2)};
  return run(j, check, 2, in, job_tensor(j, 3), (hy_attrs){.dim = {job_integer(j, 1)}});
}

int op_index_add(const job* j, bool check) {
  hy_tensor in[] = {job_tensor(j, 0), job_tensor(j, 2), job_tensor(j, 3)};
  RULE(hy_scalar_f(job_scalar(j, 4)) == 1, "aclnnIndexAdd: alpha is not 1");
  return run(j, check, 3, in, job_tensor(j, 5), (hy_attrs){.dim = {job_integer(j, 1)}});
}

int op_index_put(const job* j, bool check) {
  int n;
  const hy_tensor* indices = job_list(j, 1, &n);
  hy_tensor in[HY_MAX_INPUTS] = {job_tensor(j, 0), job_tensor(j, 2)};
  RULE(n <= HY_MAX_DIMS, "aclnnIndexPutImpl: %d indices", n);
  for (int i = 0; i < n; i++) in[2 + i] = indices[i];
  return run(j, check, 2 + n, in, in[0], (hy_attrs){.accumulate = {job_integer(j, 3) != 0}});
}

int op_join(const job* j, bool check) {
  int n;
  const hy_tensor* in = job_list(j, 0, &n);
  return run(j, check, n, in, job_tensor(j, 2), (hy_attrs){.dim = {job_integer(j, 1)}});
}
