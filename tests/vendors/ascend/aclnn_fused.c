// Test library for Ascend: the fused ops, by hand where no op of the reference is the same.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "aclnn.h"
#include "ops/reference/element.h"

#define NO_ATTRS ((hy_attrs){.words = {0}})

static void* host(size_t bytes) {
  void* memory = calloc(1, bytes ? bytes : 1);
  if (!memory) abort();
  return memory;
}

static hy_tensor on_host(hy_dtype dtype, int ndim, const int64_t* shape) {
  hy_tensor t;
  hy_tensor_init(&t, NULL, dtype, ndim, shape);
  t.data = host(hy_tensor_bytes(&t));
  return t;
}

static char* element(const hy_tensor* t, const int64_t* index) {
  int64_t at = 0;
  for (int d = 0; d < t->ndim; d++) at += index[d] * t->stride[d];
  return (char*)t->data + at * (int64_t)hy_dtype_size(t->dtype);
}

// ---- cumsum ----

int op_cumsum(const job* j, bool check) {
  hy_tensor in = job_tensor(j, 0), out = job_tensor(j, 4);
  hy_attrs attrs = {.scan = {job_integer(j, 1), job_integer(j, 3) != 0}};
  RULE(!job_integer(j, 2), "aclnnCumsumV2: exclusive, which nobody asks for here");
  return job_reference(j, check, 1, &in, 1, &out, attrs);
}

// ---- RMS norm ----

static hy_tensor widened(const job* j, bool check, const hy_tensor* t) {
  hy_tensor wide = on_host(HY_F32, t->ndim, t->shape);
  if (!check) job_reference_of(j, false, HY_OP_cast, 1, t, 1, &wide, (hy_attrs){.cast = {HY_F32}});
  return wide;
}

// The gradient of gamma is f32, whatever the rest is; the reference has one type for all.
int op_rms_norm_grad(const job* j, bool check) {
  hy_tensor rstd = job_tensor(j, 2), dx = job_tensor(j, 4), dgamma = job_tensor(j, 5);
  RULE(rstd.dtype == HY_F32 && dgamma.dtype == HY_F32, "aclnnRmsNormGrad: rstd and dgamma are f32");
  for (int i = 0; i < 4; i++)
    RULE(i == 2 || job_tensor(j, i).dtype == dx.dtype, "aclnnRmsNormGrad: types that differ");
  hy_tensor in[4];
  for (int i = 0; i < 4; i++) {
    hy_tensor given = job_tensor(j, i);
    in[i] = i == 2 ? rstd : widened(j, check, &given);
  }
  hy_tensor wide = on_host(HY_F32, dx.ndim, dx.shape), out[] = {wide, dgamma};
  int code = job_reference(j, check, 4, in, 2, out, (hy_attrs){.norm = {in[3].ndim, 0}});
  if (!code && !check)
    code = job_reference_of(j, false, HY_OP_cast, 1, &wide, 1, &dx, (hy_attrs){.cast = {dx.dtype}});
  for (int i = 0; i < 4; i++)
    if (i != 2) free(in[i].data);
  free(wide.data);
  return code;
}

// ---- quantised weights ----

// Element (row, column) of a matrix of i8, or of i4, two a byte and the even one low.
static double weight_at(const hy_tensor* w, int64_t row, int64_t column) {
  int64_t at = row * w->stride[0] + column * w->stride[1];
  if (w->dtype == HY_I8) return ((const int8_t*)w->data)[at];
  int nibble = ((const uint8_t*)w->data)[at / 2] >> (at % 2 ? 4 : 0) & 15;
  return nibble < 8 ? nibble : nibble - 16;
}

// y = x [M, K] times weight [K, N], whose columns have a scale each, or one for each group of rows.
int op_weight_quant(const job* j, bool check) {
  hy_tensor x = job_tensor(j, 0), w = job_tensor(j, 1), scale = job_tensor(j, 2),
            y = job_tensor(j, 8);
  int64_t m = x.shape[0], k = x.shape[1], n = w.shape[1];
  for (int i = 3; i <= 6; i++)
    RULE(job_tensor(j, i).dtype == HY_NONE, "aclnnWeightQuantBatchMatmulV2: argument %d", i);
  RULE(x.ndim == 2 && w.ndim == 2 && y.ndim == 2 && w.shape[0] == k && y.shape[0] == m &&
           y.shape[1] == n,
       "aclnnWeightQuantBatchMatmulV2: shapes that do not fit");
  RULE(scale.dtype == x.dtype && y.dtype == x.dtype,
       "aclnnWeightQuantBatchMatmulV2: x, y and the scale differ in type");
  RULE(w.dtype == HY_I8 || w.dtype == HY_I4, "aclnnWeightQuantBatchMatmulV2: weights of type %s",
       hy_dtype_name(w.dtype));
  int64_t group = job_integer(j, 7), groups = group > 0 ? (k + group - 1) / group : 1;
  RULE(group == 0 || (group >= 32 && group < k && group % 32 == 0),
       "aclnnWeightQuantBatchMatmulV2: groups of %lld", (long long)group);
  RULE(scale.ndim == 2 && scale.shape[0] == groups && scale.shape[1] == n,
       "aclnnWeightQuantBatchMatmulV2: scales that do not fit the groups");
  RULE(group == 0 || (w.stride[0] == 1) == (scale.stride[0] == 1),
       "aclnnWeightQuantBatchMatmulV2: one of weight and scale is transposed");
  RULE(k % 32 == 0 && n % 32 == 0, "aclnnWeightQuantBatchMatmulV2: sizes that are not aligned");
  if (check) return ACL_SUCCESS;
  for (int64_t row = 0; row < m; row++) {
    for (int64_t column = 0; column < n; column++) {
      double sum = 0;
      for (int64_t i = 0; i < k; i++) {
        const char* factor = element(&scale, (int64_t[]){group ? i / group : 0, column});
        sum += hy__load_f(x.dtype, element(&x, (int64_t[]){row, i})) * weight_at(&w, i, column) *
               hy__load_f(scale.dtype, factor);
      }
      hy__store_f(y.dtype, element(&y, (int64_t[]){row, column}), sum);
    }
  }
  return ACL_SUCCESS;
}

int op_anti_quant(const job* j, bool check) {
  hy_tensor x = job_tensor(j, 0), scale = job_tensor(j, 1), y = job_tensor(j, 5);
  RULE(scale.dtype == HY_F32 && hy_tensor_numel(&scale) == 1,
       "aclnnAscendAntiQuant: one f32 scale for all is what is tested here");
  RULE(job_tensor(j, 2).dtype == HY_NONE && !job_integer(j, 4),
       "aclnnAscendAntiQuant: no offset, no root");
  RULE((y.dtype == HY_F16 && job_integer(j, 3) == ACL_FLOAT16) ||
           (y.dtype == HY_BF16 && job_integer(j, 3) == ACL_BF16),
       "aclnnAscendAntiQuant: dstType %d, and the output is %s", (int)job_integer(j, 3),
       hy_dtype_name(y.dtype));
  RULE(y.ndim == x.ndim && !memcmp(y.shape, x.shape, sizeof x.shape),
       "aclnnAscendAntiQuant: shapes that differ");
  if (check) return ACL_SUCCESS;
  // The reference has a scale for each row.
  hy_tensor scales = on_host(HY_F32, x.ndim, x.shape);
  free(scales.data);
  scales.shape[x.ndim - 1] = 1;
  for (int d = 0; d < x.ndim; d++) scales.stride[d] = 0;
  scales.data = scale.data;
  hy_tensor in[] = {x, scales};
  return job_reference(j, false, 2, in, 1, &y, (hy_attrs){.cast = {y.dtype}});
}

// ---- attention ----

#define ABSENT(i) \
  RULE(job_tensor(j, i).dtype == HY_NONE, "aclnn%s: argument %d is not for this", j->row->name, i)

// The mask of modes 2 and 3 is compressed: 2048 x 2048, true above the diagonal, which hides.
static int check_triangle(const job* j, const hy_tensor* mask, bool check) {
  RULE(
      mask->dtype == HY_BOOL && mask->ndim == 2 && mask->shape[0] == 2048 && mask->shape[1] == 2048,
      "aclnn%s: the compressed mask is bool [2048, 2048]", j->row->name);
  for (int64_t r = 0; !check && r < 2048; r += 31) {
    for (int64_t c = 0; c < 2048; c += 7)
      RULE((*element(mask, (int64_t[]){r, c}) != 0) == (c > r),
           "aclnn%s: the compressed mask is not the triangle", j->row->name);
  }
  return ACL_SUCCESS;
}

static int causal_of(const job* j, int64_t mode, const hy_tensor* mask, bool check,
                     hy_causal* causal) {
  *causal = mode == 2 ? HY_CAUSAL_TOP_LEFT : mode == 3 ? HY_CAUSAL_BOTTOM_RIGHT : HY_CAUSAL_NONE;
  if (mode == 0) {
    RULE(mask->dtype == HY_NONE, "aclnn%s: a mask with sparse mode 0", j->row->name);
    return ACL_SUCCESS;
  }
  RULE(mode == 2 || mode == 3, "aclnn%s: sparse mode %d", j->row->name, (int)mode);
  return check_triangle(j, mask, check);
}

static int check_heads(const job* j, const hy_tensor* q, const hy_tensor* k, int64_t heads) {
  RULE(strcmp(job_text(j, j->row->op == HY_OP_sdpa ? 13 : 18), "BNSD") == 0,
       "aclnn%s: layout \"%s\"", j->row->name, job_text(j, j->row->op == HY_OP_sdpa ? 13 : 18));
  RULE(q->ndim == 4 && k->ndim == 4, "aclnn%s: BNSD has four dimensions", j->row->name);
  RULE(heads == q->shape[1], "aclnn%s: %d heads, and the query has %d", j->row->name, (int)heads,
       (int)q->shape[1]);
  RULE(q->shape[3] % 16 == 0 && q->shape[3] <= 512, "aclnn%s: heads of size %d", j->row->name,
       (int)q->shape[3]);
  return ACL_SUCCESS;
}

// The largest score and the sum of exponentials are each eight times over: [B, N, S, 8], f32.
static int check_statistic(const job* j, const hy_tensor* t, const hy_tensor* q) {
  RULE(t->dtype == HY_F32 && t->ndim == 4 && t->shape[0] == q->shape[0] &&
           t->shape[1] == q->shape[1] && t->shape[2] == q->shape[2] && t->shape[3] == 8,
       "aclnn%s: a softmax statistic is f32 [B, N, S, 8]", j->row->name);
  return ACL_SUCCESS;
}

#define CHECKED(call)        \
  do {                       \
    int code_ = (call);      \
    if (code_) return code_; \
  } while (0)

static int check_inner_precise(const job* j, int64_t value) {
  RULE(value >= 0 && value <= 3, "aclnn%s: inner precision %lld", j->row->name, (long long)value);
  return ACL_SUCCESS;
}

int op_flash_attention(const job* j, bool check) {
  hy_tensor in[] = {job_tensor(j, 0), job_tensor(j, 1), job_tensor(j, 2), hy_tensor_absent()};
  hy_tensor mask = job_tensor(j, 6), most = job_tensor(j, 16), sum = job_tensor(j, 17);
  hy_attrs attrs = {.attention = {.scale = job_real(j, 8)}};
  for (int i = 3; i < 6; i++) ABSENT(i);
  ABSENT(18);
  CHECKED(check_inner_precise(j, job_integer(j, 14)));
  CHECKED(check_heads(j, &in[0], &in[1], job_integer(j, 12)));
  CHECKED(check_statistic(j, &most, &in[0]));
  CHECKED(check_statistic(j, &sum, &in[0]));
  CHECKED(causal_of(j, job_integer(j, 15), &mask, check, &attrs.attention.causal));
  RULE(job_real(j, 9) == 1, "aclnnFlashAttentionScore: keepProb %g", job_real(j, 9));
  hy_tensor lse = on_host(HY_F32, 3, in[0].shape), out[] = {job_tensor(j, 19), lse};
  int code = job_reference(j, check, 4, in, 2, out, attrs);
  for (int64_t i = 0; !code && !check && i < hy_tensor_numel(&most); i++) {
    // Any split of lse into a largest score and a sum is one that a tiling may come to.
    float total = ((float*)lse.data)[i / 8];
    ((float*)most.data)[i] = total - 0.5f;
    ((float*)sum.data)[i] = expf(0.5f);
  }
  free(lse.data);
  return code;
}

int op_flash_attention_grad(const job* j, bool check) {
  hy_tensor q = job_tensor(j, 0), mask = job_tensor(j, 7), most = job_tensor(j, 8),
            sum = job_tensor(j, 9);
  hy_attrs attrs = {.attention = {.scale = job_real(j, 13)}};
  ABSENT(4);
  ABSENT(5);
  ABSENT(6);
  ABSENT(10);
  ABSENT(24);
  CHECKED(check_inner_precise(j, job_integer(j, 19)));
  RULE(job_real(j, 14) == 1, "aclnnFlashAttentionScoreGrad: keepProb %g", job_real(j, 14));
  hy_tensor lse = on_host(HY_F32, 3, q.shape);
  hy_tensor in[] = {job_tensor(j, 3),  q,   job_tensor(j, 1),  job_tensor(j, 2),
                    job_tensor(j, 11), lse, hy_tensor_absent()};
  hy_tensor out[] = {job_tensor(j, 21), job_tensor(j, 22), job_tensor(j, 23)};
  int code = check_heads(j, &q, &in[2], job_integer(j, 17));
  if (!code) code = check_statistic(j, &most, &q);
  if (!code) code = check_statistic(j, &sum, &q);
  if (!code) code = causal_of(j, job_integer(j, 20), &mask, check, &attrs.attention.causal);
  if (!code && !check) {
    for (int64_t i = 0; i < hy_tensor_numel(&lse); i++)
      ((float*)lse.data)[i] = ((float*)most.data)[8 * i] + logf(((float*)sum.data)[8 * i]);
  }
  if (!code) code = job_reference(j, check, 7, in, 3, out, attrs);
  free(lse.data);
  return code;
}

// Prefill and decode over a paged KV cache: layout TND, cumulative query lengths, one key length a
// sequence, caches [blocks, block size, heads * size], causal from the bottom right.
int op_infer_attention(const job* j, bool check) {
  int n_k, n_v, n_q_lengths, n_kv_lengths;
  hy_tensor q = job_tensor(j, 0), mask = job_tensor(j, 4), table = job_tensor(j, 14),
            out = job_tensor(j, 40);
  const hy_tensor *keys = job_list(j, 1, &n_k), *values = job_list(j, 2, &n_v);
  const int64_t *q_ends = job_ints(j, 5, &n_q_lengths), *kv = job_ints(j, 6, &n_kv_lengths);
  int64_t heads = job_integer(j, 27), kv_heads = job_integer(j, 32), block = job_integer(j, 35);
  ABSENT(3);
  for (int i = 7; i < 27; i++)
    if (i != 14 && i != 23) ABSENT(i);
  RULE(strcmp(job_text(j, 31), "TND") == 0, "aclnnFusedInferAttentionScoreV3: layout \"%s\"",
       job_text(j, 31));
  RULE(n_k == 1 && n_v == 1 && q_ends && kv && n_q_lengths == n_kv_lengths,
       "aclnnFusedInferAttentionScoreV3: lists or lengths that do not fit");
  RULE(q.ndim == 3 && q.shape[1] == heads && kv_heads >= 1 && heads % kv_heads == 0,
       "aclnnFusedInferAttentionScoreV3: heads");
  RULE(block >= 16 && block % 16 == 0 && block <= 512,
       "aclnnFusedInferAttentionScoreV3: blocks of %d", (int)block);
  CHECKED(check_inner_precise(j, job_integer(j, 34)));
  RULE(!job_integer(j, 36) && !job_integer(j, 38) && !job_integer(j, 39),
       "aclnnFusedInferAttentionScoreV3: a mode of quantisation and nothing quantised");
  bool one_each = true;
  for (int i = 0; i < n_q_lengths; i++) one_each &= q_ends[i] == i + 1;
  RULE(one_each || block % 128 == 0,
       "aclnnFusedInferAttentionScoreV3: blocks of %d for more than a token each", (int)block);
  RULE(heads <= 256 && heads / kv_heads <= 64 && kv_heads * q.shape[2] <= 65535,
       "aclnnFusedInferAttentionScoreV3: %d heads of %d", (int)heads, (int)kv_heads);
  RULE(q.shape[2] == 64 || q.shape[2] == 128, "aclnnFusedInferAttentionScoreV3: heads of size %d",
       (int)q.shape[2]);
  hy_tensor cache[2] = {keys[0], values[0]};
  for (int i = 0; i < 2; i++) {
    RULE(cache[i].ndim == 3 && cache[i].shape[1] == block &&
             cache[i].shape[2] == kv_heads * q.shape[2] && hy_tensor_is_contiguous(&cache[i]),
         "aclnnFusedInferAttentionScoreV3: a cache is [blocks, block size, heads * size]");
    cache[i].ndim = 4;
    cache[i].shape[2] = kv_heads;
    cache[i].shape[3] = q.shape[2];
    cache[i].stride[2] = q.shape[2];
    cache[i].stride[3] = 1;
  }
  RULE(table.dtype == HY_I32 && table.ndim == 2 && table.shape[0] == n_kv_lengths,
       "aclnnFusedInferAttentionScoreV3: the block table is i32 [sequences, blocks]");
  RULE(!job_integer(j, 37) && job_integer(j, 33) == 3,
       "aclnnFusedInferAttentionScoreV3: sparse mode %d", (int)job_integer(j, 33));
  CHECKED(check_triangle(j, &mask, check));
  int64_t one_more = n_kv_lengths + 1, count = n_kv_lengths;
  hy_tensor start = on_host(HY_I64, 1, &one_more), context = on_host(HY_I64, 1, &count);
  memcpy((int64_t*)start.data + 1, q_ends, (size_t)count * sizeof *q_ends);
  memcpy(context.data, kv, (size_t)count * sizeof *kv);
  hy_tensor wide = on_host(HY_I64, 2, table.shape);
  int code = check ? 0
                   : job_reference_of(j, false, HY_OP_cast, 1, &table, 1, &wide,
                                      (hy_attrs){.cast = {HY_I64}});
  hy_tensor in[] = {q, cache[0], cache[1], wide, start, context};
  if (!code) code = job_reference(j, check, 6, in, 1, &out, (hy_attrs){.scale = {job_real(j, 28)}});
  free(start.data);
  free(context.data);
  free(wide.data);
  return code;
}
