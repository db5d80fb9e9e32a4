// halyard bench image: the ops of convolutional networks, in a block of ResNet's shape.
#include "bench/call.h"

enum { IMAGES = 8, CHANNELS = 64, SIZE = 56, COPIED = 64 << 20 };

typedef struct bench {
  bench_session* session;
  hy_dtype dtype;
  hy_tensor x, half, vector, kernel;
  bench_copies copies;
} bench;

// A convolution, or its two gradients, of which each takes as many products.
static hy_status convolution(bench* b, const hy_call* call, int products) {
  double flops = 2.0 * products * IMAGES * CHANNELS * CHANNELS * SIZE * SIZE * 9;
  bench_work work = {.name = hy_op_name(call->op),
                     .shape = "8x64x56x56 3x3",
                     .dtype = b->dtype,
                     .unit = "GFLOP/s",
                     .amount = flops,
                     .needs = {b->dtype, flops, 0}};
  return bench_calls(b->session, &work, call, 1);
}

static hy_status convolutions(bench* b) {
  hy_tensor absent = hy_tensor_absent(), y, dx, dweight;
  const int64_t shape[4] = {IMAGES, CHANNELS, SIZE, SIZE};
  HY_TRY(bench_tensor(b->session, &y, b->dtype, 4, shape));
  HY_TRY(bench_tensor(b->session, &dx, b->dtype, 4, shape));
  HY_TRY(bench_tensor(b->session, &dweight, b->dtype, 4, b->kernel.shape));
  hy_tensor in[3] = {b->x, b->kernel, absent};
  hy_call call = {.op = HY_OP_conv2d, .n_in = 3, .n_out = 1, .in = in, .out = &y};
  call.attrs.conv = (hy_attrs_conv){{1, 1}, {1, 1}, {1, 1}, 1};
  HY_TRY(convolution(b, &call, 1));
  hy_tensor back[3] = {y, b->x, b->kernel}, grads[3] = {dx, dweight, absent};
  call.op = HY_OP_conv2d_backward;
  call.n_out = 3;
  call.in = back;
  call.out = grads;
  return convolution(b, &call, 2);
}

// An op whose floor is to read and write its tensors once.
static hy_status pass(bench* b, hy_call call) {
  bench_work work = {.name = hy_op_name(call.op),
                     .shape = "8x64x56x56",
                     .dtype = b->dtype,
                     .unit = "GB/s",
                     .copies = &b->copies};
  for (int i = 0; i < call.n_in; i++) work.amount += (double)hy_tensor_bytes(&call.in[i]);
  for (int i = 0; i < call.n_out; i++) work.amount += (double)hy_tensor_bytes(&call.out[i]);
  return bench_calls(b->session, &work, &call, 1);
}

static hy_status passes(bench* b) {
  hy_tensor absent = hy_tensor_absent(), out, dy, statistic[2], index;
  const int64_t pooled[4] = {IMAGES, CHANNELS, SIZE / 2, SIZE / 2}, channels[1] = {CHANNELS};
  HY_TRY(bench_tensor(b->session, &out, b->dtype, 4, b->x.shape));
  HY_TRY(bench_tensor(b->session, &dy, b->dtype, 4, b->x.shape));
  HY_TRY(bench_tensor(b->session, &index, HY_I64, 4, pooled));
  for (int i = 0; i < 2; i++) HY_TRY(bench_tensor(b->session, &statistic[i], HY_F32, 1, channels));
  hy_tensor norm[5] = {b->x, b->vector, b->vector, absent, absent};
  hy_tensor normed[3] = {out, statistic[0], statistic[1]};
  hy_call call = {.op = HY_OP_batch_norm, .n_in = 5, .n_out = 3, .in = norm, .out = normed};
  call.attrs.batch_norm = (hy_attrs_batch_norm){true, 0.1, 1e-5};
  HY_TRY(pass(b, call));
  hy_tensor back[5] = {dy, b->x, statistic[0], statistic[1], b->vector};
  hy_tensor grads[3] = {out};
  for (int i = 1; i < 3; i++) HY_TRY(bench_tensor(b->session, &grads[i], b->dtype, 1, channels));
  call.op = HY_OP_batch_norm_backward;
  call.in = back;
  call.out = grads;
  HY_TRY(pass(b, call));
  hy_tensor most[2] = {b->half, index};
  call = (hy_call){.op = HY_OP_max_pool2d, .n_in = 1, .n_out = 2, .in = &b->x, .out = most};
  call.attrs.max_pool = (hy_attrs_max_pool){{2, 2}, {2, 2}, {0, 0}, {1, 1}, false};
  HY_TRY(pass(b, call));
  call = (hy_call){.op = HY_OP_avg_pool2d, .n_in = 1, .n_out = 1, .in = &b->x, .out = &b->half};
  call.attrs.avg_pool = (hy_attrs_avg_pool){{2, 2}, {2, 2}, {0, 0}, false, true, 0};
  return pass(b, call);
}

static hy_status bench_type(bench_session* session, hy_dtype dtype) {
  bench b = {.session = session, .dtype = dtype};
  const int64_t images[4] = {IMAGES, CHANNELS, SIZE, SIZE}, copied[1] = {COPIED};
  const int64_t pooled[4] = {IMAGES, CHANNELS, SIZE / 2, SIZE / 2}, channels[1] = {CHANNELS};
  const int64_t weights[4] = {CHANNELS, CHANNELS, 3, 3};
  HY_TRY(bench_tensor(session, &b.x, dtype, 4, images));
  HY_TRY(bench_tensor(session, &b.half, dtype, 4, pooled));
  HY_TRY(bench_tensor(session, &b.vector, dtype, 1, channels));
  HY_TRY(bench_tensor(session, &b.kernel, dtype, 4, weights));
  HY_TRY(bench_tensor(session, &b.copies.from, HY_U8, 1, copied));
  HY_TRY(bench_tensor(session, &b.copies.to, HY_U8, 1, copied));
  HY_TRY(convolutions(&b));
  return passes(&b);
}

hy_status bench_image(hy_device* device) {
  bench_session session;
  hy_status status = bench_begin(&session, device);
  if (status == HY_OK) status = bench_type(&session, HY_F32);
  bench_end(&session);
  if (status == HY_OK) status = bench_type(&session, HY_BF16);
  bench_end(&session);
  return status;
}
