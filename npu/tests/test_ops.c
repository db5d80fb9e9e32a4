// test_ops.c - the operations of the runtime against plain C, and gradients against differences.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "echo_npu_runtime.h"

#define OK(call) assert_int_equal((call), ECHO_NPU_SUCCESS)
#define MAX 4096

static uint64_t seed = 3;
static float uniform(void) {
  seed = seed * 6364136223846793005u + 1442695040888963407u;
  return (float)(seed >> 40) / 0x1p23f - 1;
}

static void* device(const void* host, size_t bytes) {
  void* p;
  OK(echoNpuMalloc(&p, bytes));
  if (host) OK(echoNpuMemcpy(p, host, bytes, ECHO_NPU_MEMCPY_HOST_TO_DEVICE));
  return p;
}

static void fetch(void* host, const void* p, size_t bytes) {
  OK(echoNpuMemcpy(host, p, bytes, ECHO_NPU_MEMCPY_DEVICE_TO_HOST));
}

static void near(double got, double want, double tolerance, const char* what, size_t i) {
  if (!(fabs(got - want) <= tolerance * (1 + fabs(want))))
    fail_msg("%s[%zu] = %.9g, not %.9g", what, i, got, want);
}

// ---- Elementwise ------------------------------------------------------------------------------

typedef echoNpuError (*unary)(float*, const float*, size_t, echoNpuStream);
static double d_neg(double x) {
  return -x;
}
static double d_rsqrt(double x) {
  return 1 / sqrt(x);
}
static double d_sigmoid(double x) {
  return 1 / (1 + exp(-x));
}
static double d_silu(double x) {
  return x / (1 + exp(-x));
}
static double d_gelu(double x) {
  return 0.5 * x * (1 + erf(x * M_SQRT1_2));
}
static double d_relu(double x) {
  return x > 0 ? x : 0;
}
static double d_same(double x) {
  return x;
}

static void unary_operations(void** state) {
  (void)state;
  static const struct {
    const char* name;
    unary f;
    double (*want)(double);
  } cases[] = {{"Neg", echoNpuNeg, d_neg},    {"Abs", echoNpuAbs, fabs},
               {"Sqrt", echoNpuSqrt, sqrt},   {"Rsqrt", echoNpuRsqrt, d_rsqrt},
               {"Exp", echoNpuExp, exp},      {"Log", echoNpuLog, log},
               {"Cos", echoNpuCos, cos},      {"Sin", echoNpuSin, sin},
               {"Tanh", echoNpuTanh, tanh},   {"Sigmoid", echoNpuSigmoid, d_sigmoid},
               {"SiLU", echoNpuSiLU, d_silu}, {"GELU", echoNpuGELU, d_gelu},
               {"ReLU", echoNpuReLU, d_relu}, {"Clone", echoNpuClone, d_same}};
  enum { N = 1001 };
  float x[N], y[N];
  for (size_t c = 0; c < sizeof cases / sizeof *cases; ++c) {
    int positive = !strcmp(cases[c].name, "Sqrt") || !strcmp(cases[c].name, "Rsqrt") ||
                   !strcmp(cases[c].name, "Log");
    for (int i = 0; i < N; ++i) x[i] = positive ? fabsf(uniform()) * 5 + 0.01f : uniform() * 5;
    float *a = device(x, sizeof x), *b = device(NULL, sizeof x);
    OK(cases[c].f(b, a, N, NULL));
    fetch(y, b, sizeof y);
    for (size_t i = 0; i < N; ++i) near(y[i], cases[c].want(x[i]), 1e-6, cases[c].name, i);
    OK(echoNpuFree(a));
    OK(echoNpuFree(b));
  }
}

static void binary_operations(void** state) {
  (void)state;
  enum { N = 700 };
  float x[N], y[N], z[N];
  for (int i = 0; i < N; ++i) x[i] = uniform() + 2, y[i] = uniform() * 3 + 4;
  float *a = device(x, sizeof x), *b = device(y, sizeof y), *c = device(NULL, sizeof z);
  OK(echoNpuAddTensor(c, a, b, N, NULL));
  fetch(z, c, sizeof z);
  for (size_t i = 0; i < N; ++i) assert_true(z[i] == x[i] + y[i]);
  OK(echoNpuAddTensorAlpha(c, a, b, -0.7f, N, NULL));
  fetch(z, c, sizeof z);
  for (size_t i = 0; i < N; ++i) assert_true(z[i] == fmaf(-0.7f, y[i], x[i]));
  OK(echoNpuSubTensor(c, a, b, N, NULL));
  fetch(z, c, sizeof z);
  for (size_t i = 0; i < N; ++i) assert_true(z[i] == x[i] - y[i]);
  OK(echoNpuMulTensor(c, a, b, N, NULL));
  fetch(z, c, sizeof z);
  for (size_t i = 0; i < N; ++i) assert_true(z[i] == x[i] * y[i]);
  OK(echoNpuDivTensor(c, a, b, N, NULL));
  fetch(z, c, sizeof z);
  for (size_t i = 0; i < N; ++i) near(z[i], (double)x[i] / y[i], 1.2e-7, "div", i);
  OK(echoNpuAddScalar(c, a, 2.5f, N, NULL));
  fetch(z, c, sizeof z);
  for (size_t i = 0; i < N; ++i) assert_true(z[i] == x[i] + 2.5f);
  OK(echoNpuMulScalar(c, a, -1.5f, N, NULL));
  fetch(z, c, sizeof z);
  for (size_t i = 0; i < N; ++i) assert_true(z[i] == x[i] * -1.5f);
  static const float exponents[] = {2, 3, 0.5f, -1.7f};
  for (int e = 0; e < 4; ++e) {
    OK(echoNpuPow(c, a, exponents[e], N, NULL));
    fetch(z, c, sizeof z);
    for (size_t i = 0; i < N; ++i) near(z[i], pow(x[i], exponents[e]), 3e-7, "pow", i);
  }
  OK(echoNpuPowTensor(c, a, b, N, NULL));
  fetch(z, c, sizeof z);
  for (size_t i = 0; i < N; ++i) near(z[i], pow(x[i], y[i]), 5e-7, "pow tensor", i);
  OK(echoNpuAddTensor(c, a, b, 0, NULL));
  assert_int_equal(echoNpuAddTensor(c, a, NULL, N, NULL), ECHO_NPU_ERROR_INVALID_POINTER);
  assert_int_equal(echoNpuAddTensor(c, x, b, N, NULL), ECHO_NPU_ERROR_INVALID_POINTER);
  uint16_t half[N];
  OK(echoNpuCast(c, ECHO_NPU_BF16, a, ECHO_NPU_F32, N, NULL));
  fetch(half, c, sizeof half);
  for (size_t i = 0; i < N; ++i) {
    uint32_t w = (uint32_t)half[i] << 16;
    float f;
    memcpy(&f, &w, 4);
    near(f, x[i], 0x1p-8, "bf16", i);
  }
  OK(echoNpuFree(a));
  OK(echoNpuFree(b));
  OK(echoNpuFree(c));
}

// ---- Rows -------------------------------------------------------------------------------------

static void row_operations(void** state) {
  (void)state;
  enum { R = 7, C = 333 };
  float x[R * C], w[C], bias[C], y[R * C];
  for (int i = 0; i < R * C; ++i) x[i] = uniform() * 4;
  for (int i = 0; i < C; ++i) w[i] = uniform(), bias[i] = uniform();
  float *a = device(x, sizeof x), *pw = device(w, sizeof w), *pb = device(bias, sizeof bias),
        *o = device(NULL, sizeof x);
  double mean[R], top[R], sum[R], var[R], sq[R];
  for (int r = 0; r < R; ++r) {
    mean[r] = sum[r] = var[r] = sq[r] = 0, top[r] = -1e30;
    for (int c = 0; c < C; ++c)
      sum[r] += x[r * C + c], sq[r] += (double)x[r * C + c] * x[r * C + c];
    mean[r] = sum[r] / C;
    for (int c = 0; c < C; ++c) {
      var[r] += pow(x[r * C + c] - mean[r], 2) / C;
      if (x[r * C + c] > top[r]) top[r] = x[r * C + c];
    }
  }
  OK(echoNpuSum(o, a, R, C, NULL));
  fetch(y, o, 4 * R);
  for (size_t r = 0; r < R; ++r) near(y[r], sum[r], 1e-5, "sum", r);
  OK(echoNpuMean(o, a, R, C, NULL));
  fetch(y, o, 4 * R);
  for (size_t r = 0; r < R; ++r) near(y[r], mean[r], 1e-6, "mean", r);
  OK(echoNpuMax(o, a, R, C, NULL));
  fetch(y, o, 4 * R);
  for (size_t r = 0; r < R; ++r) near(y[r], top[r], 0, "max", r);
  OK(echoNpuSoftmax(o, a, R, C, NULL));
  fetch(y, o, sizeof y);
  for (int r = 0; r < R; ++r) {
    double total = 0;
    for (int c = 0; c < C; ++c) total += exp(x[r * C + c] - top[r]);
    for (int c = 0; c < C; ++c)
      near(y[r * C + c], exp(x[r * C + c] - top[r]) / total, 1e-6, "softmax", 0);
  }
  OK(echoNpuRMSNorm(o, a, pw, R, C, 1e-6f, NULL));
  fetch(y, o, sizeof y);
  for (int i = 0; i < R * C; ++i)
    near(y[i], x[i] / sqrt(sq[i / C] / C + 1e-6) * w[i % C], 2e-6, "rms", (size_t)i);
  OK(echoNpuLayerNorm(o, a, pw, pb, R, C, 1e-5f, NULL));
  fetch(y, o, sizeof y);
  for (int i = 0; i < R * C; ++i)
    near(y[i], (x[i] - mean[i / C]) / sqrt(var[i / C] + 1e-5) * w[i % C] + bias[i % C], 3e-6,
         "layer", (size_t)i);
  OK(echoNpuFree(a));
  OK(echoNpuFree(pw));
  OK(echoNpuFree(pb));
  OK(echoNpuFree(o));
}

static void rope_rotates(void** state) {
  (void)state;
  enum { T = 5, H = 3, D = 16 };
  float x[T * H * D], table[T * D], y[T * H * D];
  for (int i = 0; i < T * H * D; ++i) x[i] = uniform();
  for (int t = 0; t < T; ++t)
    for (int j = 0; j < D / 2; ++j) {
      double angle = t * pow(10000, -2.0 * j / D);
      table[t * D + j] = (float)cos(angle);
      table[t * D + D / 2 + j] = (float)sin(angle);
    }
  float *a = device(x, sizeof x), *p = device(table, sizeof table), *o = device(NULL, sizeof y);
  OK(echoNpuRope(o, a, p, T, H, D, NULL));
  fetch(y, o, sizeof y);
  for (int t = 0; t < T; ++t)
    for (int h = 0; h < H; ++h)
      for (int j = 0; j < D / 2; ++j) {
        int i = (t * H + h) * D + j;
        float c = table[t * D + j], s = table[t * D + D / 2 + j];
        near(y[i], x[i] * c - x[i + D / 2] * s, 1e-6, "rope", (size_t)i);
        near(y[i + D / 2], x[i + D / 2] * c + x[i] * s, 1e-6, "rope", (size_t)i);
      }
  OK(echoNpuFree(a));
  OK(echoNpuFree(p));
  OK(echoNpuFree(o));
}

// ---- Matrices ---------------------------------------------------------------------------------

static void reference_matmul(double* c, const float* a, const float* b, int m, int n, int k, int ta,
                             int tb) {
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < n; ++j) {
      c[i * n + j] = 0;
      for (int q = 0; q < k; ++q)
        c[i * n + j] +=
            (double)(ta ? a[q * m + i] : a[i * k + q]) * (tb ? b[j * k + q] : b[q * n + j]);
    }
}

static void matmul_and_gradient(void** state) {
  (void)state;
  enum { B = 3, M = 7, N = 9, K = 11 };
  float a[B * M * K], b[B * K * N], g[B * M * N], out[B * M * N], ga[B * M * K], gb[B * K * N];
  double want[M * N], wa[M * K], wb[K * N];
  for (int i = 0; i < B * M * K; ++i) a[i] = uniform();
  for (int i = 0; i < B * K * N; ++i) b[i] = uniform();
  for (int i = 0; i < B * M * N; ++i) g[i] = uniform();
  float *pa = device(a, sizeof a), *pb = device(b, sizeof b), *pg = device(g, sizeof g),
        *pc = device(NULL, sizeof out), *da = device(NULL, sizeof a), *db = device(NULL, sizeof b);
  for (int t = 0; t < 4; ++t) {
    int ta = t & 1, tb = t >> 1;
    OK(echoNpuBatchMatMul(pc, pa, pb, B, M, N, K, ta, tb, NULL));
    fetch(out, pc, sizeof out);
    OK(echoNpuBatchMatMulBackward(da, db, pg, pa, pb, B, M, N, K, ta, tb, NULL));
    fetch(ga, da, sizeof ga);
    fetch(gb, db, sizeof gb);
    for (int q = 0; q < B; ++q) {
      const float *xa = a + q * M * K, *xb = b + q * K * N, *xg = g + q * M * N;
      reference_matmul(want, xa, xb, M, N, K, ta, tb);
      for (size_t i = 0; i < M * N; ++i) near(out[(size_t)q * M * N + i], want[i], 1e-6, "bmm", i);
      memset(wa, 0, sizeof wa);
      memset(wb, 0, sizeof wb);
      for (int i = 0; i < M; ++i)
        for (int j = 0; j < N; ++j)
          for (int s = 0; s < K; ++s) {
            int ia = ta ? s * M + i : i * K + s, ib = tb ? j * K + s : s * N + j;
            wa[ia] += (double)xg[i * N + j] * xb[ib];
            wb[ib] += (double)xg[i * N + j] * xa[ia];
          }
      for (size_t i = 0; i < M * K; ++i) near(ga[(size_t)q * M * K + i], wa[i], 1e-6, "da", i);
      for (size_t i = 0; i < K * N; ++i) near(gb[(size_t)q * K * N + i], wb[i], 1e-6, "db", i);
    }
  }
  OK(echoNpuMatMul(pc, pa, pb, M, N, K, 0, 1, NULL));
  fetch(out, pc, 4 * M * N);
  reference_matmul(want, a, b, M, N, K, 0, 1);
  for (size_t i = 0; i < M * N; ++i) near(out[i], want[i], 1e-6, "mm", i);

  // bf16 and int8 on values both hold exactly
  int8_t i8a[M * K], i8b[K * N];
  int32_t i32[M * N];
  for (int i = 0; i < M * K; ++i) i8a[i] = (int8_t)(i * 37), a[i] = i8a[i];
  for (int i = 0; i < K * N; ++i) i8b[i] = (int8_t)(i * 91), b[i] = i8b[i];
  reference_matmul(want, a, b, M, N, K, 0, 1);
  OK(echoNpuMemcpy(pa, i8a, sizeof i8a, ECHO_NPU_MEMCPY_DEFAULT));
  OK(echoNpuMemcpy(pb, i8b, sizeof i8b, ECHO_NPU_MEMCPY_DEFAULT));
  OK(echoNpuMatMulI8((int32_t*)pc, (int8_t*)pa, (int8_t*)pb, M, N, K, 0, 1, NULL));
  fetch(i32, pc, sizeof i32);
  for (int i = 0; i < M * N; ++i) assert_true(i32[i] == want[i]);
  OK(echoNpuCast(da, ECHO_NPU_BF16, pa, ECHO_NPU_I8, M * K, NULL));
  OK(echoNpuCast(db, ECHO_NPU_BF16, pb, ECHO_NPU_I8, K * N, NULL));
  OK(echoNpuMatMulBF16(pc, (uint16_t*)da, (uint16_t*)db, M, N, K, 0, 1, NULL));
  fetch(out, pc, 4 * M * N);
  for (int i = 0; i < M * N; ++i) assert_true(out[i] == want[i]);
  float* all[] = {pa, pb, pg, pc, da, db};
  for (int i = 0; i < 6; ++i) OK(echoNpuFree(all[i]));
}

enum { SB = 2, SH = 4, SKV = 2, SQ = 5, SK = 7, SD = 8 };

static void reference_sdpa(double* out, const float* q, const float* k, const float* v,
                           const echoNpuSdpaDesc* d, const float* mask) {
  for (int b = 0; b < SB; ++b)
    for (int h = 0; h < SH; ++h)
      for (int i = 0; i < SQ; ++i) {
        double s[SK], top = -1e30, sum = 0;
        int kv = (b * SKV + h / (SH / SKV)) * SK, head = b * SH + h;
        int seen = d->causal ? (int)(SK - SQ + 1) + i : SK;
        for (int j = 0; j < seen; ++j) {
          s[j] = mask ? mask[(head * SQ + i) * SK + j] : 0;
          for (int c = 0; c < SD; ++c)
            s[j] += (double)q[(head * SQ + i) * SD + c] * k[(kv + j) * SD + c] / sqrt(SD);
          if (s[j] > top) top = s[j];
        }
        for (int j = 0; j < seen; ++j) sum += s[j] = exp(s[j] - top);
        for (int c = 0; c < SD; ++c) {
          out[(head * SQ + i) * SD + c] = 0;
          for (int j = 0; j < seen; ++j)
            out[(head * SQ + i) * SD + c] += s[j] / sum * v[(kv + j) * SD + c];
        }
      }
}

static double sdpa_loss(const float* q, const float* k, const float* v, const echoNpuSdpaDesc* d,
                        const float* mask, const float* g) {
  static double out[SB * SH * SQ * SD];
  double loss = 0;
  reference_sdpa(out, q, k, v, d, mask);
  for (int i = 0; i < SB * SH * SQ * SD; ++i) loss += out[i] * g[i];
  return loss;
}

static void attention_and_gradient(void** state) {
  (void)state;
  enum { NQ = SB * SH * SQ * SD, NK = SB * SKV * SK * SD, NM = SB * SH * SQ * SK };
  static float q[NQ], k[NK], v[NK], g[NQ], mask[NM], out[NQ], grad[3][NQ > NK ? NQ : NK];
  static double want[NQ];
  for (int i = 0; i < NQ; ++i) q[i] = uniform() * 2, g[i] = uniform();
  for (int i = 0; i < NK; ++i) k[i] = uniform() * 2, v[i] = uniform();
  for (int i = 0; i < NM; ++i) mask[i] = uniform();
  float *pq = device(q, sizeof q), *pk = device(k, sizeof k), *pv = device(v, sizeof v),
        *pg = device(g, sizeof g), *pm = device(mask, sizeof mask), *po = device(NULL, sizeof out),
        *dq = device(NULL, sizeof q), *dk = device(NULL, sizeof k), *dv = device(NULL, sizeof v);
  size_t before, after;
  OK(echoNpuMemGetInfo(&before, NULL));
  for (int mode = 0; mode < 3; ++mode) {
    echoNpuSdpaDesc d = {SB, SH, SKV, SQ, SK, SD, 0, mode == 1, 0, mode == 2 ? pm : NULL, SQ * SK};
    const float* m = mode == 2 ? mask : NULL;
    OK(echoNpuSDPA(po, pq, pk, pv, &d, NULL));
    fetch(out, po, sizeof out);
    reference_sdpa(want, q, k, v, &d, m);
    for (size_t i = 0; i < NQ; ++i) near(out[i], want[i], 2e-6, "sdpa", i);
    OK(echoNpuSDPABackward(dq, dk, dv, pg, pq, pk, pv, &d, NULL));
    fetch(grad[0], dq, sizeof q);
    fetch(grad[1], dk, sizeof k);
    fetch(grad[2], dv, sizeof v);
    float* inputs[3] = {q, k, v};
    for (int w = 0; w < 3; ++w)
      for (int i = 0; i < (w ? NK : NQ); i += 13) {
        float keep = inputs[w][i];
        inputs[w][i] = keep + 0x1p-10f;
        double up = sdpa_loss(q, k, v, &d, m, g);
        inputs[w][i] = keep - 0x1p-10f;
        double down = sdpa_loss(q, k, v, &d, m, g);
        inputs[w][i] = keep;
        near(grad[w][i], (up - down) / 0x1p-9, 2e-4,
             w == 0   ? "dq"
             : w == 1 ? "dk"
                      : "dv",
             (size_t)i);
      }
  }
  OK(echoNpuDeviceSynchronize());
  OK(echoNpuMemGetInfo(&after, NULL));
  assert_int_equal(before, after);
  float* all[] = {pq, pk, pv, pg, pm, po, dq, dk, dv};
  for (int i = 0; i < 9; ++i) OK(echoNpuFree(all[i]));
}

// ---- Rearranging ------------------------------------------------------------------------------

static void embedding_and_cat(void** state) {
  (void)state;
  enum { ROWS = 11, DIM = 6, COUNT = 5 };
  float table[ROWS * DIM], out[COUNT * DIM], grad[ROWS * DIM];
  int64_t index[COUNT] = {3, 0, 10, 3, 7};
  for (int i = 0; i < ROWS * DIM; ++i) table[i] = uniform();
  float *t = device(table, sizeof table), *o = device(NULL, sizeof out),
        *g = device(NULL, sizeof grad);
  int64_t* p = device(index, sizeof index);
  OK(echoNpuEmbedding(o, t, p, COUNT, DIM, ROWS, NULL));
  fetch(out, o, sizeof out);
  for (int i = 0; i < COUNT; ++i)
    assert_memory_equal(out + i * DIM, table + index[i] * DIM, DIM * 4);
  OK(echoNpuEmbeddingBackward(g, o, p, COUNT, DIM, ROWS, NULL));
  fetch(grad, g, sizeof grad);
  for (int c = 0; c < DIM; ++c) {
    assert_true(grad[3 * DIM + c] == 2 * table[3 * DIM + c]);
    assert_true(grad[1 * DIM + c] == 0);
  }
  index[2] = 11;
  OK(echoNpuMemcpy(p, index, sizeof index, ECHO_NPU_MEMCPY_DEFAULT));
  OK(echoNpuEmbedding(o, t, p, COUNT, DIM, ROWS, NULL));
  assert_int_equal(echoNpuDeviceSynchronize(), ECHO_NPU_ERROR_FAULT);
  assert_non_null(strstr(echoNpuGetLastErrorMessage(), "index"));

  const size_t inner[] = {4, 2};
  const void* parts[] = {t, o};
  OK(echoNpuCat(g, parts, inner, 2, 3, 4, NULL));
  fetch(grad, g, sizeof grad);
  fetch(out, o, sizeof out);
  for (int r = 0; r < 3; ++r) {
    assert_memory_equal(grad + r * 6, table + r * 4, 16);
    assert_memory_equal(grad + r * 6 + 4, out + r * 2, 8);
  }
  void* back[] = {t, NULL};
  OK(echoNpuMemset(t, 0, sizeof table));
  OK(echoNpuCatBackward(back, g, inner, 2, 3, 4, NULL));
  fetch(out, t, 48);
  assert_memory_equal(out, table, 48);
  OK(echoNpuFree(t));
  OK(echoNpuFree(o));
  OK(echoNpuFree(g));
  OK(echoNpuFree(p));
}

static void strided_copies(void** state) {
  (void)state;
  const size_t shape[6] = {2, 3, 2, 4, 3, 5}, source[6] = {360, 5, 180, 15, 60, 1};
  static uint8_t in[720 * 8], out[720 * 8], again[720 * 8];
  for (size_t i = 0; i < sizeof in; ++i) in[i] = (uint8_t)(i * 31 + i / 256);
  void *a = device(in, sizeof in), *b = device(NULL, sizeof out), *c = device(NULL, sizeof out);
  for (size_t size = 1; size <= 8; size *= 2) {
    OK(echoNpuContiguous(b, a, shape, source, 6, size, NULL));
    fetch(out, b, sizeof out);
    size_t at = 0, i[6];
    for (i[0] = 0; i[0] < 2; ++i[0])
      for (i[1] = 0; i[1] < 3; ++i[1])
        for (i[2] = 0; i[2] < 2; ++i[2])
          for (i[3] = 0; i[3] < 4; ++i[3])
            for (i[4] = 0; i[4] < 3; ++i[4])
              for (i[5] = 0; i[5] < 5; ++i[5], ++at) {
                size_t from = 0;
                for (int d = 0; d < 6; ++d) from += i[d] * source[d];
                assert_memory_equal(out + at * size, in + from * size, size);
              }
    OK(echoNpuContiguousBackward(c, b, shape, source, 6, size, NULL));
    fetch(again, c, sizeof again);
    assert_memory_equal(again, in, 720 * size);
  }
  OK(echoNpuFree(a));
  OK(echoNpuFree(b));
  OK(echoNpuFree(c));
}

// ---- Gradients --------------------------------------------------------------------------------

static void elementwise_gradients(void** state) {
  (void)state;
  enum { N = 100 };
  float x[N], y[N], g[N], o[N], r[N];
  for (int i = 0; i < N; ++i)
    x[i] = uniform() + 2, y[i] = uniform() + 3, g[i] = uniform(), o[i] = sqrtf(x[i]);
  float *a = device(x, sizeof x), *b = device(y, sizeof y), *dg = device(g, sizeof g),
        *out = device(o, sizeof o), *da = device(NULL, sizeof r), *db = device(NULL, sizeof r);
#define CHECK(p, want)   \
  fetch(r, p, sizeof r); \
  for (size_t i = 0; i < N; ++i) near(r[i], (want), 1e-6, #want, i);
  OK(echoNpuAddTensorBackward(da, db, dg, N, NULL));
  CHECK(da, g[i]) CHECK(db, g[i]) OK(echoNpuSubTensorBackward(da, db, dg, N, NULL));
  CHECK(da, g[i]) CHECK(db, -g[i]) OK(echoNpuMulTensorBackward(da, db, dg, a, b, N, NULL));
  CHECK(da, (double)g[i] * y[i])
  CHECK(db, (double)g[i] * x[i]) OK(echoNpuDivTensorBackward(da, db, dg, a, b, N, NULL));
  CHECK(da, (double)g[i] / y[i])
  CHECK(db, -(double)g[i] * x[i] / y[i] / y[i]) OK(echoNpuAddScalarBackward(da, dg, N, NULL));
  CHECK(da, g[i])
  OK(echoNpuMulScalarBackward(da, dg, 3, N, NULL));
  CHECK(da, 3.0 * g[i])
  OK(echoNpuNegBackward(da, dg, N, NULL));
  CHECK(da, -g[i])
  OK(echoNpuCloneBackward(da, dg, N, NULL));
  CHECK(da, g[i])
  OK(echoNpuSqrtBackward(da, dg, out, N, NULL));
  CHECK(da, g[i] / (2.0 * o[i]))
  OK(echoNpuRsqrtBackward(da, dg, out, N, NULL));
  CHECK(da, -0.5 * g[i] * o[i] * o[i] * o[i])
  OK(echoNpuPowBackward(da, dg, a, 2.5f, N, NULL));
  CHECK(da, g[i] * 2.5 * pow(x[i], 1.5))
  OK(echoNpuCosBackward(da, dg, a, N, NULL));
  CHECK(da, -g[i] * sin(x[i]))
  OK(echoNpuSinBackward(da, dg, a, N, NULL));
  CHECK(da, g[i] * cos(x[i]))
  OK(echoNpuSiLUBackward(da, dg, a, N, NULL));
  CHECK(da, g[i] * d_sigmoid(x[i]) * (1 + x[i] * (1 - d_sigmoid(x[i]))))
  OK(echoNpuMeanBackward(da, dg, 5, 20, NULL));
  CHECK(da, g[i / 20] / 20.0)
  OK(echoNpuSoftmaxBackward(da, dg, out, 5, 20, NULL));
  fetch(r, da, sizeof r);
  for (size_t row = 0; row < 5; ++row) {
    double dot = 0;
    for (size_t i = 0; i < 20; ++i) dot += (double)g[row * 20 + i] * o[row * 20 + i];
    for (size_t i = row * 20; i < row * 20 + 20; ++i)
      near(r[i], o[i] * (g[i] - dot), 2e-6, "softmax", i);
  }
  float* all[] = {a, b, dg, out, da, db};
  for (int i = 0; i < 6; ++i) OK(echoNpuFree(all[i]));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(unary_operations),      cmocka_unit_test(binary_operations),
      cmocka_unit_test(row_operations),        cmocka_unit_test(rope_rotates),
      cmocka_unit_test(matmul_and_gradient),   cmocka_unit_test(attention_and_gradient),
      cmocka_unit_test(embedding_and_cat),     cmocka_unit_test(strided_copies),
      cmocka_unit_test(elementwise_gradients),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
