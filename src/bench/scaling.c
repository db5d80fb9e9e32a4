// How much faster products and attention are with all threads than with one. The floor is how much
// faster the processor's own multiply-adds are, since cores share power and clocks.
#include <float.h>
#include <stdio.h>

#include "bench/call.h"

enum { ROUNDS = 12 };

// The least seconds of the call, and the most multiply-adds a second, with so many threads.
typedef struct speed {
  double seconds, flops;
} speed;

static hy_status time_with(bench_session* session, const hy_call* call, int threads, speed* s) {
  HY_TRY(hy_device_set_threads(session->device, threads));
  bench_multiply_adds(session->device, HY_F32);  // starts the threads
  double flops = bench_multiply_adds(session->device, HY_F32), start = bench_now();
  HY_TRY(hy_run(session->stream, call));
  double taken = bench_now() - start;
  if (taken < s->seconds) s->seconds = taken;
  if (flops > s->flops) s->flops = flops;
  return HY_OK;
}

static hy_status scale(bench_session* session, const hy_call* call, const char* shape) {
  int threads;
  HY_TRY(hy_device_threads(session->device, &threads));
  speed one = {DBL_MAX, 0}, all = {DBL_MAX, 0};
  hy_status status = HY_OK;
  for (int i = 0; i < ROUNDS && status == HY_OK; i++) {
    status = time_with(session, call, 1, &one);
    if (status == HY_OK) status = time_with(session, call, threads, &all);
  }
  HY_TRY(hy_device_set_threads(session->device, threads));
  HY_TRY(status);
  char name[32];
  snprintf(name, sizeof name, "%s 1 to %d", hy_op_name(call->op), threads);
  bench_row row = {.name = name,
                   .shape = shape,
                   .dtype = hy_dtype_name(call->in[0].dtype),
                   .value = one.seconds / all.seconds,
                   .unit = "x",
                   .floor = all.flops / one.flops};
  row.of_floor = row.value / row.floor;
  bench_print(&row);
  return HY_OK;
}

static hy_status product(bench_session* session) {
  hy_tensor in[2], out;
  const int64_t shape[2] = {1024, 1024};
  for (int i = 0; i < 2; i++) HY_TRY(bench_tensor(session, &in[i], HY_F32, 2, shape));
  HY_TRY(bench_tensor(session, &out, HY_F32, 2, shape));
  hy_call call = {.op = HY_OP_mm, .n_in = 2, .n_out = 1, .in = in, .out = &out};
  return scale(session, &call, "1024x1024x1024");
}

static hy_status attention(bench_session* session) {
  hy_tensor in[4], out[2];
  const int64_t shape[4] = {1, 14, 1024, 64};
  for (int i = 0; i < 3; i++) HY_TRY(bench_tensor(session, &in[i], HY_F32, 4, shape));
  HY_TRY(bench_tensor(session, &out[0], HY_F32, 4, shape));
  in[3] = out[1] = hy_tensor_absent();
  hy_call call = {.op = HY_OP_sdpa, .n_in = 4, .n_out = 2, .in = in, .out = out};
  call.attrs.attention.causal = HY_CAUSAL_TOP_LEFT;
  return scale(session, &call, "14x1024x64 causal");
}

hy_status bench_scaling(hy_device* device) {
  bench_session session = {.device = device};
  int threads = 1;
  if (hy_device_is_host(device)) HY_TRY(hy_device_threads(device, &threads));
  if (threads == 1) return HY_OK;
  HY_TRY(hy_stream_default(device, &session.stream));
  hy_status status = product(&session);
  if (status == HY_OK) status = attention(&session);
  bench_end(&session);
  return status;
}
