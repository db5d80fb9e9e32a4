// Scaled dot product attention with grouped query heads, and its gradient.
#include <math.h>

#include "ops/reference/attention.h"
#include "ops/reference/element.h"
#include "ops/reference/scratch.h"
#include "ops/reference/walk.h"

// What one (batch, head) sees of t, whose last `keep` dimensions follow the head's.
static hy_tensor head_of(const hy_tensor* t, int keep, int64_t batch, int64_t head) {
  hy_tensor batches = *t, inner = *t;
  int at = t->ndim - keep - 1;
  batches.ndim = at;
  int64_t offset = hy__offset(&batches, batch) + head * t->stride[at];
  inner.data = (char*)t->data + offset * (int64_t)hy_dtype_size(t->dtype);
  inner.ndim = keep;
  for (int d = 0; d < keep; d++) {
    inner.shape[d] = t->shape[at + 1 + d];
    inner.stride[d] = t->stride[at + 1 + d];
  }
  return inner;
}

static hy_tensor row_of(const hy_tensor* matrix, int64_t row) {
  hy_tensor r = *matrix;
  r.data = (char*)matrix->data + row * matrix->stride[0] * (int64_t)hy_dtype_size(matrix->dtype);
  r.ndim = 1;
  r.shape[0] = matrix->shape[1];
  r.stride[0] = matrix->stride[1];
  return r;
}

static void load_row(const hy_tensor* matrix, int64_t row, double* values) {
  hy_tensor r = row_of(matrix, row);
  hy__load_row_f(r.dtype, r.data, r.stride[0], r.shape[0], values);
}

static void store_row(const hy_tensor* matrix, int64_t row, const double* values) {
  hy_tensor r = row_of(matrix, row);
  hy__store_row_f(r.dtype, r.data, r.stride[0], r.shape[0], values);
}

// How many keys, from the first on, query t may see.
static int64_t visible_keys(hy_causal causal, int64_t t, int64_t queries, int64_t keys) {
  int64_t n = causal == HY_CAUSAL_NONE       ? keys
              : causal == HY_CAUSAL_TOP_LEFT ? t + 1
                                             : t + 1 + keys - queries;
  return n < 0 ? 0 : n > keys ? keys : n;
}

// The sizes of a call whose q, k, v begin at input `first`, and its mask expanded to every score.
typedef struct problem {
  const hy_tensor *q, *k, *v;
  hy_tensor mask;
  int64_t batches, kv_heads, group, queries, keys;
} problem;

static hy_status describe(const hy_call* call, int first, int mask_at, problem* p) {
  p->q = &call->in[first];
  p->k = p->q + 1;
  p->v = p->q + 2;
  int n = p->q->ndim;
  p->queries = p->q->shape[n - 2];
  p->keys = p->k->shape[n - 2];
  p->kv_heads = p->k->shape[n - 3];
  p->group = p->kv_heads > 0 ? p->q->shape[n - 3] / p->kv_heads : 0;
  p->batches = 1;
  for (int d = 0; d < n - 3; d++) p->batches *= p->q->shape[d];
  p->mask = hy_tensor_absent();
  if (!hy__present(&call->in[mask_at])) return HY_OK;
  int64_t shape[HY_MAX_DIMS];
  for (int d = 0; d < n - 1; d++) shape[d] = p->q->shape[d];
  shape[n - 1] = p->keys;
  return hy_expand(&p->mask, &call->in[mask_at], n, shape);
}

static void score(hy__head* head, const problem* p, hy_causal causal, int64_t b, int64_t h,
                  int64_t t) {
  hy_tensor row;
  if (hy__present(&p->mask)) {
    hy_tensor mask = head_of(&p->mask, 2, b, h);
    row = row_of(&mask, t);
  }
  hy__head_score(head, visible_keys(causal, t, p->queries, p->keys),
                 hy__present(&p->mask) ? &row : NULL);
}

hy_status hy__ref_sdpa(const hy_call* call) {
  problem p;
  HY_TRY(describe(call, 0, 3, &p));
  const hy_tensor *out = &call->out[0], *lse = &call->out[1];
  int n = p.q->ndim;
  hy__head head;
  HY_TRY(hy__head_begin(&head, call, p.keys, p.q->shape[n - 1], p.v->shape[n - 1],
                        call->attrs.attention.scale));
  for (int64_t b = 0; b < p.batches; b++) {
    for (int64_t h = 0; h < p.kv_heads * p.group; h++) {
      hy_tensor q = head_of(p.q, 2, b, h), o = head_of(out, 2, b, h);
      if (h % p.group == 0) {
        hy_tensor k = head_of(p.k, 2, b, h / p.group), v = head_of(p.v, 2, b, h / p.group);
        hy__head_load(&head, 0, &k, &v);
      }
      for (int64_t t = 0; t < p.queries; t++) {
        load_row(&q, t, head.q);
        score(&head, &p, call->attrs.attention.causal, b, h, t);
        double sum = hy__head_attend(&head);
        store_row(&o, t, head.out);
        if (hy__present(lse)) {
          hy_tensor l = head_of(lse, 1, b, h);
          hy__store_f(l.dtype, hy__element(&l, t), sum);
        }
      }
    }
  }
  hy__head_end(&head);
  return HY_OK;
}

// Gradients of one kv head, summed over its group of query heads.
typedef struct gradients {
  double *dq, *dk, *dv, *dout,
      *out;  // [size], [keys, size], [keys, value_size], [value_size] twice
} gradients;

// With probabilities p = exp(score - lse) and delta = dout . out:
//   dv += p dout,  ds = p (dout . v - delta),  dq = scale sum(ds k),  dk += scale ds q
static void backward_row(hy__head* head, double lse, gradients* g) {
  double delta = 0;
  for (int64_t d = 0; d < head->value_size; d++) delta += g->dout[d] * g->out[d];
  for (int64_t d = 0; d < head->size; d++) g->dq[d] = 0;
  for (int64_t s = 0; s < head->keys; s++) {
    if (head->scores[s] == -INFINITY) continue;
    double p = exp(head->scores[s] - lse), dp = 0;
    const double* v = head->v + s * head->value_size;
    double *dv = g->dv + s * head->value_size, *dk = g->dk + s * head->size;
    for (int64_t d = 0; d < head->value_size; d++) {
      dp += g->dout[d] * v[d];
      dv[d] += p * g->dout[d];
    }
    double ds = p * (dp - delta) * head->scale;
    for (int64_t d = 0; d < head->size; d++) {
      g->dq[d] += ds * head->k[d * head->keys + s];
      dk[d] += ds * head->q[d];
    }
  }
}

hy_status hy__ref_sdpa_backward(const hy_call* call) {
  problem p;
  HY_TRY(describe(call, 1, 6, &p));
  int n = p.q->ndim;
  int64_t size = p.q->shape[n - 1], value_size = p.v->shape[n - 1];
  hy__head head;
  HY_TRY(hy__head_begin(&head, call, p.keys, size, value_size, call->attrs.attention.scale));
  gradients g;
  g.dk = hy__scratch(call, p.keys + 2, size + value_size);
  if (!g.dk) {
    hy__head_end(&head);
    return HY_OUT_OF_MEMORY;
  }
  g.dv = g.dk + p.keys * size;
  g.dq = g.dv + p.keys * value_size;
  g.dout = g.dq + size;
  g.out = g.dout + value_size;
  for (int64_t b = 0; b < p.batches; b++) {
    for (int64_t kv = 0; kv < p.kv_heads; kv++) {
      hy_tensor k = head_of(p.k, 2, b, kv), v = head_of(p.v, 2, b, kv);
      hy__head_load(&head, 0, &k, &v);
      for (int64_t i = 0; i < p.keys * (size + value_size); i++) g.dk[i] = 0;
      for (int64_t h = kv * p.group; h < (kv + 1) * p.group; h++) {
        hy_tensor dout = head_of(&call->in[0], 2, b, h), q = head_of(p.q, 2, b, h);
        hy_tensor out = head_of(&call->in[4], 2, b, h), lse = head_of(&call->in[5], 1, b, h);
        for (int64_t t = 0; t < p.queries; t++) {
          load_row(&q, t, head.q);
          load_row(&dout, t, g.dout);
          load_row(&out, t, g.out);
          score(&head, &p, call->attrs.attention.causal, b, h, t);
          backward_row(&head, hy__load_f(lse.dtype, hy__element(&lse, t)), &g);
          if (hy__present(&call->out[0])) {
            hy_tensor dq = head_of(&call->out[0], 2, b, h);
            store_row(&dq, t, g.dq);
          }
        }
      }
      for (int64_t s = 0; s < p.keys; s++) {
        if (hy__present(&call->out[1])) {
          hy_tensor dk = head_of(&call->out[1], 2, b, kv);
          store_row(&dk, s, g.dk + s * size);
        }
        if (hy__present(&call->out[2])) {
          hy_tensor dv = head_of(&call->out[2], 2, b, kv);
          store_row(&dv, s, g.dv + s * value_size);
        }
      }
    }
  }
  hy__mfree(g.dk);
  hy__head_end(&head);
  return HY_OK;
}
