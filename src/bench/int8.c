// Layers of int8 activations and int8 or int4 weights, in the groups that models use, and the
// rounding of the activations before them.
#include <stdio.h>

#include "bench/call.h"

enum { MAX_COPIES = 64, X_GROUP = 32 };
static const double weights_bytes = 192e6;  // more than the caches of most processors

typedef struct layer {
  int64_t m, n, k;
  hy_dtype weight;
} layer;

static int64_t group_of(const layer* l) {
  return l->weight == HY_I4 ? 32 : 128;
}

// One line reads all weights and scales; with more lines the products of bytes decide.
static void judge(const layer* l, bench_work* work) {
  double products = (double)l->n * (double)l->k;
  double bytes = products * (hy_dtype_bits(l->weight) / 8.0 + 4.0 / (double)group_of(l)) +
                 (double)(l->m * (l->k + 4 * l->n));
  work->amount = l->m == 1 ? bytes : 2.0 * (double)l->m * products;
  work->unit = l->m == 1 ? "GB/s" : "GFLOP/s";
  work->needs = (bench_needs){HY_I8, 2.0 * (double)l->m * products, bytes};
}

static hy_status run_layer(bench_session* session, const layer* l) {
  static hy_tensor in[MAX_COPIES][5];
  static hy_call calls[MAX_COPIES];
  hy_tensor x, x_scale, out;
  HY_TRY(bench_tensor(session, &x, HY_I8, 2, (int64_t[]){l->m, l->k}));
  HY_TRY(bench_tensor(session, &x_scale, HY_F32, 2, (int64_t[]){l->m, l->k / X_GROUP}));
  HY_TRY(bench_tensor(session, &out, HY_F32, 2, (int64_t[]){l->m, l->n}));
  double bytes = (double)l->n * (double)l->k * hy_dtype_bits(l->weight) / 8;
  int copies = 1 + (int)(weights_bytes / bytes);
  if (copies > MAX_COPIES) copies = MAX_COPIES;
  for (int i = 0; i < copies; i++) {
    in[i][0] = x;
    in[i][1] = x_scale;
    HY_TRY(bench_tensor(session, &in[i][2], l->weight, 2, (int64_t[]){l->n, l->k}));
    HY_TRY(bench_tensor(session, &in[i][3], HY_F32, 2, (int64_t[]){l->n, l->k / group_of(l)}));
    in[i][4] = hy_tensor_absent();
    calls[i] = (hy_call){.op = HY_OP_linear_int8,
                         .n_in = 5,
                         .n_out = 1,
                         .in = in[i],
                         .out = &out,
                         .attrs = {.cast = {HY_F32}}};
  }
  char text[48];
  snprintf(text, sizeof text, "%lldx%lldx%lld", (long long)l->m, (long long)l->n, (long long)l->k);
  bench_work work = {.name = "linear_int8", .shape = text, .dtype = l->weight};
  judge(l, &work);
  return bench_calls(session, &work, calls, copies);
}

static hy_status run_quantize(bench_session* session, int64_t m, int64_t k) {
  hy_tensor x, out[2];
  HY_TRY(bench_tensor(session, &x, HY_BF16, 2, (int64_t[]){m, k}));
  HY_TRY(bench_tensor(session, &out[0], HY_I8, 2, (int64_t[]){m, k}));
  HY_TRY(bench_tensor(session, &out[1], HY_F32, 2, (int64_t[]){m, k / X_GROUP}));
  hy_call call = {.op = HY_OP_quantize, .n_in = 1, .n_out = 2, .in = &x, .out = out};
  call.attrs.quantize = (hy_attrs_quantize){.dtype = HY_I8, .group = X_GROUP};
  char text[48];
  snprintf(text, sizeof text, "%lldx%lld", (long long)m, (long long)k);
  bench_work work = {.name = "quantize",
                     .shape = text,
                     .dtype = HY_BF16,
                     .unit = "GB/s",
                     .amount = 3.0 * (double)(m * k)};
  work.needs.bytes = work.amount;
  return bench_calls(session, &work, &call, 1);
}

// The weights of Qwen2.5-0.5B's blocks.
static const int64_t weights[][2] = {{896, 896}, {4864, 896}, {896, 4864}, {128, 896}};

static hy_status run_all(bench_session* session) {
  static const int64_t rows[] = {1, 4, 64, 512};
  for (int d = 0; d < 2; d++) {
    for (int w = 0; w < 4; w++) {
      for (int r = 0; r < 4; r++) {
        layer l = {rows[r], weights[w][0], weights[w][1], d ? HY_I4 : HY_I8};
        hy_status status = run_layer(session, &l);
        bench_end(session);
        HY_TRY(status);
      }
    }
  }
  HY_TRY(run_quantize(session, 1, 4864));
  return run_quantize(session, 512, 4864);
}

hy_status bench_int8(hy_device* device) {
  bench_session session;
  hy_status status = bench_begin(&session, device);
  if (status == HY_OK) status = run_all(&session);
  bench_end(&session);
  return status;
}
