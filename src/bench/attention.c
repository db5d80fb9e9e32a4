// Attention: prefill and training shapes with its gradient, and decoding over a long cache.
#include <stdio.h>

#include "bench/call.h"

typedef struct shape {
  int64_t heads, kv_heads, queries, keys, size;
  hy_causal causal;
} shape;

// Products of queries, keys and values that must be made: twice over for scores and sums.
static double flops_of(const shape* s) {
  double seen = (double)s->queries * (double)s->keys;
  if (s->causal == HY_CAUSAL_TOP_LEFT) seen /= 2;
  return 4.0 * (double)s->heads * seen * (double)s->size;
}

static double bytes_of(const shape* s, hy_dtype dtype) {
  double keys = 2.0 * (double)s->kv_heads * (double)s->keys;
  double queries = 2.0 * (double)s->heads * (double)s->queries;
  return (keys + queries) * (double)s->size * (double)hy_dtype_size(dtype);
}

static bench_needs needs(const shape* s, hy_dtype dtype, double passes) {
  return (bench_needs){dtype, passes * flops_of(s), passes * bytes_of(s, dtype)};
}

static hy_status tensors(bench_session* session, const shape* s, hy_dtype dtype, hy_tensor* q,
                         hy_tensor* k, hy_tensor* v, hy_tensor* out) {
  int64_t rows[4] = {1, s->heads, s->queries, s->size};
  int64_t cache[4] = {1, s->kv_heads, s->keys, s->size};
  HY_TRY(bench_tensor(session, q, dtype, 4, rows));
  HY_TRY(bench_tensor(session, k, dtype, 4, cache));
  HY_TRY(bench_tensor(session, v, dtype, 4, cache));
  return bench_tensor(session, out, dtype, 4, rows);
}

static hy_status forward(bench_session* session, const shape* s, hy_dtype dtype, const char* text) {
  hy_tensor in[4], out[2] = {hy_tensor_absent(), hy_tensor_absent()};
  in[3] = hy_tensor_absent();
  HY_TRY(tensors(session, s, dtype, &in[0], &in[1], &in[2], &out[0]));
  hy_call call = {.op = HY_OP_sdpa, .n_in = 4, .n_out = 2, .in = in, .out = out};
  call.attrs.attention.causal = s->causal;
  bench_work work = {.name = "sdpa", .shape = text, .dtype = dtype, .unit = "ms"};
  work.needs = needs(s, dtype, 1);
  return bench_calls(session, &work, &call, 1);
}

static hy_status backward(bench_session* session, const shape* s, hy_dtype dtype,
                          const char* text) {
  hy_tensor in[7], grads[3], out[2];
  HY_TRY(tensors(session, s, dtype, &in[1], &in[2], &in[3], &in[0]));
  HY_TRY(tensors(session, s, dtype, &grads[0], &grads[1], &grads[2], &in[4]));
  HY_TRY(bench_tensor(session, &in[5], HY_F32, 3, (int64_t[]){1, s->heads, s->queries}));
  in[6] = hy_tensor_absent();
  // The gradient wants the output and the sums of this very attention.
  hy_tensor inputs[4] = {in[1], in[2], in[3], hy_tensor_absent()};
  out[0] = in[4];
  out[1] = in[5];
  hy_call call = {.op = HY_OP_sdpa, .n_in = 4, .n_out = 2, .in = inputs, .out = out};
  call.attrs.attention.causal = s->causal;
  HY_TRY(hy_run(session->stream, &call));
  call.op = HY_OP_sdpa_backward;
  call.n_in = 7;
  call.n_out = 3;
  call.in = in;
  call.out = grads;
  bench_work work = {.name = "sdpa_backward", .shape = text, .dtype = dtype, .unit = "ms"};
  work.needs = needs(s, dtype, 2.5);
  return bench_calls(session, &work, &call, 1);
}

static hy_status run(bench_session* session) {
  static const shape shapes[] = {
      {14, 14, 1024, 1024, 64, HY_CAUSAL_TOP_LEFT},
      {14, 2, 1024, 1024, 64, HY_CAUSAL_TOP_LEFT},
      {14, 2, 256, 256, 64, HY_CAUSAL_TOP_LEFT},
      {14, 2, 1, 4096, 64, HY_CAUSAL_NONE},
      // A device apart has time for those that papers tell of.
      {512, 512, 1024, 1024, 64, HY_CAUSAL_TOP_LEFT},
      {128, 128, 4096, 4096, 64, HY_CAUSAL_TOP_LEFT},
      {32, 32, 16384, 16384, 64, HY_CAUSAL_TOP_LEFT},
      {64, 64, 4096, 4096, 128, HY_CAUSAL_TOP_LEFT},
  };
  enum { EVERYWHERE = 4, ALL = sizeof shapes / sizeof shapes[0] };
  static const hy_dtype dtypes[] = {HY_F32, HY_BF16};
  bool host = hy_device_is_host(session->device);
  for (int d = 0; d < 2; d++) {
    for (int i = 0; i < (host || dtypes[d] == HY_F32 ? EVERYWHERE : ALL); i++) {
      const shape* s = &shapes[i];
      char text[64];
      snprintf(text, sizeof text, "%lld/%lldx%lldx%lldx%lld%s", (long long)s->heads,
               (long long)s->kv_heads, (long long)s->queries, (long long)s->keys,
               (long long)s->size, s->causal == HY_CAUSAL_NONE ? "" : " causal");
      hy_status status = forward(session, s, dtypes[d], text);
      if (status == HY_OK && s->queries > 1) status = backward(session, s, dtypes[d], text);
      bench_end(session);
      HY_TRY(status);
    }
  }
  return HY_OK;
}

hy_status bench_attention(hy_device* device) {
  bench_session session;
  hy_status status = bench_begin(&session, device);
  if (status == HY_OK) status = run(&session);
  bench_end(&session);
  return status;
}
