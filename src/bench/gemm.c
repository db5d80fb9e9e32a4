// Matrix products: square ones, and those of a small language model, whose weights are read from
// memory each time because there are more of them than any cache holds.
#include <stdio.h>

#include "bench/call.h"

// ---- square ----

static hy_status square(bench_session* session, hy_op op, hy_dtype dtype, int64_t size) {
  hy_tensor in[2], out;
  int64_t shape[2] = {size, size};
  for (int i = 0; i < 2; i++) HY_TRY(bench_tensor(session, &in[i], dtype, 2, shape));
  HY_TRY(bench_tensor(session, &out, op == HY_OP_int_mm ? HY_I32 : dtype, 2, shape));
  hy_call call = {.op = op, .n_in = 2, .n_out = 1, .in = in, .out = &out};
  char text[48];
  snprintf(text, sizeof text, "%lldx%lldx%lld", (long long)size, (long long)size, (long long)size);
  double flops = 2.0 * (double)size * (double)size * (double)size;
  bench_work work = {
      .name = hy_op_name(op), .shape = text, .dtype = dtype, .unit = "GFLOP/s", .amount = flops};
  work.needs = (bench_needs){dtype, flops, 0};
  return bench_calls(session, &work, &call, 1);
}

// ---- layers ----

enum { MAX_COPIES = 64 };
static const double weights_bytes = 192e6;  // more than the caches of most processors

typedef struct layer {
  int64_t m, n, k;
  hy_dtype weight;
  int64_t group;  // of the quantised types
} layer;

static bool quantised(hy_dtype dtype) {
  return dtype == HY_I8 || dtype == HY_I4 || dtype == HY_F8E4M3;
}

// `in` gets the inputs of one call; x and the bias are shared.
static hy_status layer_inputs(bench_session* session, const layer* l, hy_tensor in[4]) {
  HY_TRY(bench_tensor(session, &in[1], l->weight, 2, (int64_t[]){l->n, l->k}));
  in[2] = in[3] = hy_tensor_absent();
  if (!quantised(l->weight)) return HY_OK;
  return bench_tensor(session, &in[2], HY_F32, 2, (int64_t[]){l->n, l->k / l->group});
}

// Bytes that must be read and written at least, and the seconds that takes or the arithmetic does.
static void judge(const layer* l, hy_dtype dtype, bench_work* work) {
  double weights = (double)l->n * (double)l->k * hy_dtype_bits(l->weight) / 8;
  if (quantised(l->weight)) weights += 4.0 * (double)l->n * (double)l->k / (double)l->group;
  double bytes = weights + (double)(l->m * (l->k + l->n)) * (double)hy_dtype_size(dtype);
  double flops = 2.0 * (double)l->m * (double)l->n * (double)l->k;
  work->amount = l->m == 1 ? bytes : flops;
  work->unit = l->m == 1 ? "GB/s" : "GFLOP/s";
  work->needs = (bench_needs){dtype, flops, bytes};
}

static hy_status run_layer(bench_session* session, const layer* l) {
  static hy_tensor in[MAX_COPIES][4];
  static hy_call calls[MAX_COPIES];
  hy_tensor x, out;
  hy_dtype dtype = quantised(l->weight) ? HY_F32 : l->weight;
  HY_TRY(bench_tensor(session, &x, dtype, 2, (int64_t[]){l->m, l->k}));
  HY_TRY(bench_tensor(session, &out, dtype, 2, (int64_t[]){l->m, l->n}));
  double bytes = (double)l->n * (double)l->k * hy_dtype_bits(l->weight) / 8;
  int copies = 1 + (int)(weights_bytes / bytes);
  if (copies > MAX_COPIES) copies = MAX_COPIES;
  for (int i = 0; i < copies; i++) {
    HY_TRY(layer_inputs(session, l, in[i]));
    in[i][0] = x;
    calls[i] = (hy_call){.op = quantised(l->weight) ? HY_OP_linear_quantized : HY_OP_linear,
                         .n_in = quantised(l->weight) ? 4 : 3,
                         .n_out = 1,
                         .in = in[i],
                         .out = &out};
  }
  char text[48];
  snprintf(text, sizeof text, "%lldx%lldx%lld", (long long)l->m, (long long)l->n, (long long)l->k);
  bench_work work = {.name = hy_op_name(calls[0].op), .shape = text, .dtype = l->weight};
  judge(l, dtype, &work);
  hy_status status = bench_calls(session, &work, calls, copies);
  bench_end(session);
  return status;
}

// The weights of Qwen2.5-0.5B: attention's output, the gated layer's two, the joint q, k and v.
static const int64_t weights[][2] = {{896, 896}, {4864, 896}, {896, 4864}, {1152, 896}};

static hy_status layers(bench_session* session, const int64_t* rows, int n_rows,
                        const hy_dtype* dtypes, int n_dtypes) {
  for (int d = 0; d < n_dtypes; d++) {
    for (int w = 0; w < 4; w++) {
      for (int r = 0; r < n_rows; r++) {
        layer l = {rows[r], weights[w][0], weights[w][1], dtypes[d], dtypes[d] == HY_I4 ? 64 : 128};
        HY_TRY(run_layer(session, &l));
      }
    }
  }
  return HY_OK;
}

static hy_status gemm(bench_session* session) {
  static const hy_dtype dtypes[] = {HY_F32, HY_BF16, HY_F16, HY_I8};
  static const int64_t sizes[] = {512, 1024, 2048, 4096, 8192};
  bool host = hy_device_is_host(session->device);
  for (int d = 0; d < 4; d++) {
    // 8192 takes a host minutes, and float32 without tensor cores seconds.
    for (int i = 0; i < (host || dtypes[d] == HY_F32 ? 4 : 5); i++) {
      hy_op op = dtypes[d] == HY_I8 ? HY_OP_int_mm : HY_OP_mm;
      hy_status status = square(session, op, dtypes[d], sizes[i]);
      bench_end(session);
      HY_TRY(status);
    }
  }
  return layers(session, (int64_t[]){4, 16, 64}, 3, (hy_dtype[]){HY_F32, HY_BF16, HY_I8, HY_I4}, 4);
}

static hy_status gemv(bench_session* session) {
  return layers(session, (int64_t[]){1}, 1,
                (hy_dtype[]){HY_F32, HY_BF16, HY_F16, HY_I8, HY_I4, HY_F8E4M3}, 6);
}

static hy_status bench_with(hy_device* device, hy_status (*run)(bench_session* session)) {
  bench_session session;
  hy_status status = bench_begin(&session, device);
  if (status == HY_OK) status = run(&session);
  bench_end(&session);
  return status;
}

hy_status bench_gemm(hy_device* device) {
  return bench_with(device, gemm);
}

hy_status bench_gemv(hy_device* device) {
  return bench_with(device, gemv);
}
