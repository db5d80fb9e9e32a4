// echo_ops_matrix.c - matrix products, attention, and their gradients.
#include <math.h>

#include "echo_build.h"

static const uint64_t type_sizes[] = {4, 2, 1, 4};

// Elements an operand spans: `rows` rows of `cols`, `ld` apart, in `batch` matrices `stride` apart.
static uint64_t span(uint64_t rows, uint64_t cols, uint64_t ld, uint64_t batch, uint64_t stride) {
  return (batch - 1) * stride + (rows - 1) * ld + cols;
}

echoNpuError echoNpuMatMulEx(void* c, const void* a, const void* b, const echoNpuMatMulDesc* desc,
                             echoNpuStream stream) {
  if (!desc) return echo__fail(ECHO_NPU_ERROR_INVALID_VALUE, "matmul: no description");
  echoNpuMatMulDesc d = *desc;
  if (!d.batch) d.batch = 1;
  if (!d.lda) d.lda = d.trans_a ? d.m : d.k;
  if (!d.ldb) d.ldb = d.trans_b ? d.k : d.n;
  if (!d.ldc) d.ldc = d.n;
  if (d.m == 0 || d.n == 0) return ECHO_NPU_SUCCESS;
  if (d.type_a < 0 || d.type_a > 3 || d.type_b < 0 || d.type_b > 3 || d.type_c < 0 || d.type_c > 3)
    return echo__fail(ECHO_NPU_ERROR_INVALID_VALUE, "matmul: unknown type");
  if (d.k == 0)
    return echo__fail(ECHO_NPU_ERROR_INVALID_VALUE, "matmul %zux%zux0: nothing to sum over", d.m,
                      d.n);
  echo__debug(1, ECHO_NPU_DEBUG_NPU, "MatMul %zux%zux%zu batch=%zu types %d,%d->%d", d.m, d.n, d.k,
              d.batch, d.type_a, d.type_b, d.type_c);
  echo_build build;
  echo__build_begin(&build, stream);
  uint64_t pa = echo__build_address(
      &build, a,
      span(d.trans_a ? d.k : d.m, d.trans_a ? d.m : d.k, d.lda, d.batch, d.stride_a) *
          type_sizes[d.type_a]);
  uint64_t pb = echo__build_address(
      &build, b,
      span(d.trans_b ? d.n : d.k, d.trans_b ? d.k : d.n, d.ldb, d.batch, d.stride_b) *
          type_sizes[d.type_b]);
  uint64_t pc = echo__build_address(
      &build, c, span(d.m, d.n, d.ldc, d.batch, d.stride_c) * type_sizes[d.type_c]);
  echo__build_repeat(&build, (uint64_t[]){d.batch, d.stride_a, d.stride_b, d.stride_c},
                     (uint64_t[]){1, 0, 0, 0});
  echo__build_matmul(&build,
                     &(echo_matmul_args){.flags = (uint32_t)d.type_a << ECHO_NPU_FLAG_T1_SHIFT |
                                                  (uint32_t)d.type_b << ECHO_NPU_FLAG_T2_SHIFT |
                                                  (uint32_t)d.type_c << ECHO_NPU_FLAG_TD_SHIFT |
                                                  (d.trans_a ? ECHO_NPU_FLAG_TRANS_A : 0) |
                                                  (d.trans_b ? ECHO_NPU_FLAG_TRANS_B : 0) |
                                                  (d.accumulate ? ECHO_NPU_FLAG_ACCUMULATE : 0),
                                         .c = pc,
                                         .a = pa,
                                         .b = pb,
                                         .m = d.m,
                                         .n = d.n,
                                         .k = d.k,
                                         .lda = d.lda,
                                         .ldb = d.ldb,
                                         .ldc = d.ldc});
  return echo__build_submit(&build);
}

static echoNpuError product(void* c, int type_c, const void* a, const void* b, int type_ab,
                            size_t batch, size_t m, size_t n, size_t k, int trans_a, int trans_b,
                            echoNpuStream stream) {
  echoNpuMatMulDesc d = {.m = m,
                         .n = n,
                         .k = k,
                         .trans_a = trans_a,
                         .trans_b = trans_b,
                         .type_a = type_ab,
                         .type_b = type_ab,
                         .type_c = type_c,
                         .batch = batch,
                         .stride_a = m * k,
                         .stride_b = n * k,
                         .stride_c = m * n};
  return echoNpuMatMulEx(c, a, b, &d, stream);
}

echoNpuError echoNpuMatMul(float* c, const float* a, const float* b, size_t m, size_t n, size_t k,
                           int trans_a, int trans_b, echoNpuStream stream) {
  return product(c, ECHO_NPU_F32, a, b, ECHO_NPU_F32, 1, m, n, k, trans_a, trans_b, stream);
}
echoNpuError echoNpuMatMulBF16(float* c, const uint16_t* a, const uint16_t* b, size_t m, size_t n,
                               size_t k, int trans_a, int trans_b, echoNpuStream stream) {
  return product(c, ECHO_NPU_F32, a, b, ECHO_NPU_BF16, 1, m, n, k, trans_a, trans_b, stream);
}
echoNpuError echoNpuMatMulI8(int32_t* c, const int8_t* a, const int8_t* b, size_t m, size_t n,
                             size_t k, int trans_a, int trans_b, echoNpuStream stream) {
  return product(c, ECHO_NPU_I32, a, b, ECHO_NPU_I8, 1, m, n, k, trans_a, trans_b, stream);
}
echoNpuError echoNpuBatchMatMul(float* c, const float* a, const float* b, size_t batch, size_t m,
                                size_t n, size_t k, int trans_a, int trans_b,
                                echoNpuStream stream) {
  return product(c, ECHO_NPU_F32, a, b, ECHO_NPU_F32, batch, m, n, k, trans_a, trans_b, stream);
}

// C = op(A) op(B). With A as it is, dA = dC op(B)^T; with A transposed, dA = op(B) dC^T; likewise
// for B.
echoNpuError echoNpuBatchMatMulBackward(float* da, float* db, const float* dc, const float* a,
                                        const float* b, size_t batch, size_t m, size_t n, size_t k,
                                        int trans_a, int trans_b, echoNpuStream stream) {
  echoNpuError error = ECHO_NPU_SUCCESS;
  const int f = ECHO_NPU_F32;
  if (da)
    error = trans_a ? product(da, f, b, dc, f, batch, k, m, n, trans_b, 1, stream)
                    : product(da, f, dc, b, f, batch, m, k, n, 0, !trans_b, stream);
  if (error || !db) return error;
  return trans_b ? product(db, f, dc, a, f, batch, n, k, m, 1, trans_a, stream)
                 : product(db, f, a, dc, f, batch, k, n, m, !trans_a, 0, stream);
}

echoNpuError echoNpuMatMulBackward(float* da, float* db, const float* dc, const float* a,
                                   const float* b, size_t m, size_t n, size_t k, int trans_a,
                                   int trans_b, echoNpuStream stream) {
  return echoNpuBatchMatMulBackward(da, db, dc, a, b, 1, m, n, k, trans_a, trans_b, stream);
}

// ---- Attention --------------------------------------------------------------------------------

// Operands of the loops over (batch * kv head, query head of the group): q-like operands move with
// every head, k-like ones with the kv head, scores with every head.
typedef struct attention {
  uint64_t kv, group, q_len, kv_len, dim;  // kv counts batch * kv_heads
  uint64_t q_size, kv_size, score_size;    // elements per head
  uint64_t mask;
  float scale;
  const echoNpuSdpaDesc* desc;
} attention;

enum { PER_HEAD_Q, PER_KV, PER_HEAD_SCORE };

static uint64_t outer_stride(const attention* t, int kind) {
  return kind == PER_KV ? t->kv_size : t->group * (kind == PER_HEAD_Q ? t->q_size : t->score_size);
}
static uint64_t inner_stride(const attention* t, int kind) {
  return kind == PER_KV ? 0 : kind == PER_HEAD_Q ? t->q_size : t->score_size;
}

static void each_head(echo_build* b, const attention* t, int src1, int src2, int dst) {
  echo__build_repeat(
      b, (uint64_t[]){t->kv, outer_stride(t, src1), outer_stride(t, src2), outer_stride(t, dst)},
      (uint64_t[]){t->group, inner_stride(t, src1), inner_stride(t, src2), inner_stride(t, dst)});
}

static echoNpuError attention_of(const echoNpuSdpaDesc* d, attention* t) {
  if (!d || d->kv_heads == 0 || d->heads % d->kv_heads || d->dim == 0)
    return echo__fail(ECHO_NPU_ERROR_INVALID_VALUE,
                      "sdpa: heads must be a multiple of kv_heads, and dim not 0");
  if (d->causal && !d->causal_first && d->q_len > d->kv_len)
    return echo__fail(ECHO_NPU_ERROR_INVALID_VALUE,
                      "sdpa: causal with q_len %zu above kv_len %zu needs causal_first", d->q_len,
                      d->kv_len);
  *t = (attention){.kv = d->batch * d->kv_heads,
                   .group = d->heads / d->kv_heads,
                   .q_len = d->q_len,
                   .kv_len = d->kv_len,
                   .dim = d->dim,
                   .q_size = d->q_len * d->dim,
                   .kv_size = d->kv_len * d->dim,
                   .score_size = d->q_len * d->kv_len,
                   .scale = d->scale != 0 ? d->scale : 1.0f / sqrtf((float)d->dim),
                   .desc = d};
  return ECHO_NPU_SUCCESS;
}

// scores = a b^T for every head, `a` per head and `b` per kv head.
static void scores(echo_build* b, const attention* t, uint64_t to, uint64_t a, uint64_t k) {
  each_head(b, t, PER_HEAD_Q, PER_KV, PER_HEAD_SCORE);
  echo__build_matmul(b, &(echo_matmul_args){.flags = ECHO_NPU_FLAG_TRANS_B,
                                            .c = to,
                                            .a = a,
                                            .b = k,
                                            .m = t->q_len,
                                            .n = t->kv_len,
                                            .k = t->dim,
                                            .lda = t->dim,
                                            .ldb = t->dim,
                                            .ldc = t->kv_len});
}

// The softmax of the scaled and masked scores, in place.
static void probabilities(echo_build* b, const attention* t, uint64_t p) {
  const echoNpuSdpaDesc* d = t->desc;
  uint64_t heads = t->kv * t->group, mask = 0;
  if (d->mask)
    mask = echo__build_address(b, d->mask, ((heads - 1) * d->mask_stride + t->score_size) * 4);
  echo_vector_args v = {.fn = d->mask ? ECHO_NPU_FN_SOFTMAX_MASK : ECHO_NPU_FN_SOFTMAX,
                        .flags = d->causal ? ECHO_NPU_FLAG_CAUSAL : 0,
                        .dst = p,
                        .x = p,
                        .y = mask,
                        .rows = t->q_len,
                        .cols = t->kv_len,
                        .stride_x = t->kv_len,
                        .stride_y = d->mask ? t->kv_len : 0,
                        .stride_dst = t->kv_len,
                        .alpha = t->scale};
  if (d->causal || d->mask)
    echo__build_repeat(b, (uint64_t[]){heads, t->score_size, d->mask_stride, t->score_size},
                       (uint64_t[]){1, 0, 0, 0});
  else
    v.rows = heads * t->q_len;
  echo__build_vector(b, &v);
  if (d->causal && !b->error)
    b->packets[b->count - 1].param[ECHO_NPU_P_CAUSAL] =
        (uint32_t)(d->causal_first ? d->causal_first : t->kv_len - t->q_len + 1);
}

// to = scores k for every head.
static void weighted(echo_build* b, const attention* t, uint64_t to, uint64_t p, uint64_t k) {
  each_head(b, t, PER_HEAD_SCORE, PER_KV, PER_HEAD_Q);
  echo__build_matmul(b, &(echo_matmul_args){.c = to,
                                            .a = p,
                                            .b = k,
                                            .m = t->q_len,
                                            .n = t->dim,
                                            .k = t->kv_len,
                                            .lda = t->kv_len,
                                            .ldb = t->dim,
                                            .ldc = t->dim});
}

// to += scores^T a over the heads of each group, from zero.
static void gathered(echo_build* b, const attention* t, uint64_t to, uint64_t p, uint64_t a) {
  echo__build_packet(b,
                     (echo_npu_packet){.opcode = ECHO_NPU_OP_FILL,
                                       .dst = to,
                                       .param = {1, (uint32_t)(t->kv * t->kv_size), 0, 0, 0, 1}});
  each_head(b, t, PER_HEAD_SCORE, PER_HEAD_Q, PER_KV);
  echo__build_matmul(b,
                     &(echo_matmul_args){.flags = ECHO_NPU_FLAG_TRANS_A | ECHO_NPU_FLAG_ACCUMULATE,
                                         .c = to,
                                         .a = p,
                                         .b = a,
                                         .m = t->kv_len,
                                         .n = t->dim,
                                         .k = t->q_len,
                                         .lda = t->kv_len,
                                         .ldb = t->dim,
                                         .ldc = t->dim});
}

echoNpuError echoNpuSDPA(float* out, const float* q, const float* k, const float* v,
                         const echoNpuSdpaDesc* desc, echoNpuStream stream) {
  attention t;
  echo_build b;
  echoNpuError error = attention_of(desc, &t);
  if (error) return error;
  const uint64_t heads = t.kv * t.group;
  if (heads * t.q_size == 0 || t.kv_len == 0) return ECHO_NPU_SUCCESS;
  echo__debug(1, ECHO_NPU_DEBUG_NPU, "SDPA batch=%zu heads=%zu/%zu q=%zu kv=%zu dim=%zu%s",
              desc->batch, desc->heads, desc->kv_heads, desc->q_len, desc->kv_len, desc->dim,
              desc->causal ? " causal" : "");
  echo__build_begin(&b, stream);
  uint64_t pq = echo__build_address(&b, q, heads * t.q_size * 4);
  uint64_t pk = echo__build_address(&b, k, t.kv * t.kv_size * 4);
  uint64_t pv = echo__build_address(&b, v, t.kv * t.kv_size * 4);
  uint64_t po = echo__build_address(&b, out, heads * t.q_size * 4);
  uint64_t p = echo__build_scratch(&b, heads * t.score_size * 4);
  scores(&b, &t, p, pq, pk);
  probabilities(&b, &t, p);
  weighted(&b, &t, po, p, pv);
  return echo__build_submit(&b);
}

// With P the probabilities: dV = P^T dO, dP = dO V^T, dS = scale P (dP - sum(dP P)), dQ = dS K, dK
// = dS^T Q.
echoNpuError echoNpuSDPABackward(float* dq, float* dk, float* dv, const float* dout, const float* q,
                                 const float* k, const float* v, const echoNpuSdpaDesc* desc,
                                 echoNpuStream stream) {
  attention t;
  echo_build b;
  echoNpuError error = attention_of(desc, &t);
  if (error) return error;
  const uint64_t heads = t.kv * t.group;
  if (heads * t.q_size == 0 || t.kv_len == 0) return ECHO_NPU_SUCCESS;
  if (t.kv * t.kv_size > ECHO_NPU_MAX_DIM)
    return echo__fail(ECHO_NPU_ERROR_INVALID_VALUE, "sdpa: keys are above %d elements",
                      ECHO_NPU_MAX_DIM);
  echo__debug(1, ECHO_NPU_DEBUG_NPU, "SDPABackward heads=%zu q=%zu kv=%zu", desc->heads,
              desc->q_len, desc->kv_len);
  echo__build_begin(&b, stream);
  uint64_t pq = echo__build_address(&b, q, heads * t.q_size * 4);
  uint64_t pk = echo__build_address(&b, k, t.kv * t.kv_size * 4);
  uint64_t pv = echo__build_address(&b, v, t.kv * t.kv_size * 4);
  uint64_t pg = echo__build_address(&b, dout, heads * t.q_size * 4);
  uint64_t p = echo__build_scratch(&b, heads * t.score_size * 4);
  uint64_t dp = echo__build_scratch(&b, heads * t.score_size * 4);
  scores(&b, &t, p, pq, pk);
  probabilities(&b, &t, p);
  if (dv) gathered(&b, &t, echo__build_address(&b, dv, t.kv * t.kv_size * 4), p, pg);
  if (dq || dk) {
    scores(&b, &t, dp, pg, pv);
    echo__build_vector(&b, &(echo_vector_args){.fn = ECHO_NPU_FN_SOFTMAX_BWD,
                                               .dst = dp,
                                               .x = dp,
                                               .y = p,
                                               .rows = heads * t.q_len,
                                               .cols = t.kv_len,
                                               .stride_x = t.kv_len,
                                               .stride_y = t.kv_len,
                                               .stride_dst = t.kv_len,
                                               .alpha = t.scale});
  }
  if (dq) weighted(&b, &t, echo__build_address(&b, dq, heads * t.q_size * 4), dp, pk);
  if (dk) gathered(&b, &t, echo__build_address(&b, dk, t.kv * t.kv_size * 4), dp, pq);
  return echo__build_submit(&b);
}
