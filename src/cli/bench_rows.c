// halyard bench elementwise, softmax, norm: ops that read and write each element about once. Their
// floor is the time of copying as many bytes, measured in the same run.
#include <float.h>
#include <stdio.h>

#include "cli/bench_call.h"

enum { ROWS = 4096, COLUMNS = 4096 };

static hy_status copy_rate(bench_session* session, double* rate) {
  hy_tensor in, out;
  HY_TRY(bench_tensor(session, &in, HY_F32, 1, (int64_t[]){ROWS * COLUMNS}));
  HY_TRY(bench_tensor(session, &out, HY_F32, 1, (int64_t[]){ROWS * COLUMNS}));
  hy_call call = {.op = HY_OP_copy, .n_in = 1, .n_out = 1, .in = &in, .out = &out};
  double best = DBL_MAX;
  for (int i = 0; i < 10; i++) {
    double start = bench_now();
    HY_TRY(hy_run(session->stream, &call));
    HY_TRY(hy_stream_sync(session->stream));
    double taken = bench_now() - start;
    if (taken < best) best = taken;
  }
  *rate = 2 * (double)hy_tensor_bytes(&in) / best;
  bench_end(session);
  return HY_OK;
}

static hy_status row(bench_session* session, double rate, hy_op op, hy_dtype dtype, int n_in,
                     hy_attrs attrs) {
  hy_tensor in[3], out[3] = {0};
  bool is_norm = op == HY_OP_rms_norm || op == HY_OP_layer_norm;
  HY_TRY(bench_tensor(session, &in[0], dtype, 2, (int64_t[]){ROWS, COLUMNS}));
  for (int i = 1; i < n_in; i++) {
    HY_TRY(bench_tensor(session, &in[i], dtype, is_norm ? 1 : 2,
                        is_norm ? (int64_t[]){COLUMNS} : (int64_t[]){ROWS, COLUMNS}));
  }
  HY_TRY(bench_tensor(session, &out[0], dtype, 2, (int64_t[]){ROWS, COLUMNS}));
  hy_call call = {.op = op, .n_in = n_in, .in = in, .out = out, .attrs = attrs};
  call.n_out = hy_op_describe(op)->n_outputs;
  double bytes = (double)hy_tensor_bytes(&out[0]);
  for (int i = 0; i < n_in; i++) bytes += (double)hy_tensor_bytes(&in[i]);
  bench_work work = {.name = hy_op_name(op),
                     .shape = "4096x4096",
                     .dtype = dtype,
                     .unit = "GB/s",
                     .amount = bytes,
                     .least = bytes / rate};
  hy_status status = bench_calls(session, &work, &call, 1);
  bench_end(session);
  return status;
}

static hy_status elementwise(bench_session* session, double rate, hy_dtype dtype) {
  hy_attrs attrs = {.alpha = {hy_int(1)}};
  HY_TRY(row(session, rate, HY_OP_add, dtype, 2, attrs));
  HY_TRY(row(session, rate, HY_OP_mul, dtype, 2, attrs));
  attrs = (hy_attrs){.gelu = {false}};
  HY_TRY(row(session, rate, HY_OP_exp, dtype, 1, attrs));
  HY_TRY(row(session, rate, HY_OP_silu, dtype, 1, attrs));
  return row(session, rate, HY_OP_gelu, dtype, 1, attrs);
}

static hy_status softmax(bench_session* session, double rate, hy_dtype dtype) {
  hy_attrs attrs = {.dim = {-1}};
  HY_TRY(row(session, rate, HY_OP_softmax, dtype, 1, attrs));
  return row(session, rate, HY_OP_log_softmax, dtype, 1, attrs);
}

static hy_status norm(bench_session* session, double rate, hy_dtype dtype) {
  hy_attrs attrs = {.norm = {1, 1e-6}};
  HY_TRY(row(session, rate, HY_OP_rms_norm, dtype, 2, attrs));
  return row(session, rate, HY_OP_layer_norm, dtype, 3, attrs);
}

static hy_status bench_with(hy_device* device,
                            hy_status (*run)(bench_session* session, double rate, hy_dtype dtype)) {
  bench_session session;
  double rate = 0;
  hy_status status = bench_begin(&session, device);
  if (status == HY_OK) status = copy_rate(&session, &rate);
  if (status == HY_OK) status = run(&session, rate, HY_F32);
  if (status == HY_OK) status = run(&session, rate, HY_BF16);
  bench_end(&session);
  return status;
}

hy_status bench_elementwise(hy_device* device) {
  return bench_with(device, elementwise);
}

hy_status bench_softmax(hy_device* device) {
  return bench_with(device, softmax);
}

hy_status bench_norm(hy_device* device) {
  return bench_with(device, norm);
}
