// Results do not depend on the number of threads: the same bits with one, two and three.
#include <stdlib.h>
#include <string.h>

#include "backends/cpu/runtime/thread_pool.h"
#include "backends/cpu/simd/half.h"
#include "reference_call.h"

enum { COUNT = 1 << 19, OUTPUTS = 3, MOST_THREADS = 3 };
static unsigned char inputs[5][COUNT * 4], results[MOST_THREADS][OUTPUTS][COUNT * 4];

static void fill(hy_dtype dtype) {
  uint32_t state = 1;
  for (int n = 0; n < 5; n++) {
    for (int i = 0; i < COUNT; i++) {
      state = state * 1664525 + 1013904223;
      float x = (float)((int32_t)(state >> 8) - (1 << 23)) * 0x1p-22f;
      hy__store1(inputs[n] + i * (int64_t)hy_dtype_size(dtype), dtype, x);
    }
  }
}

static void same_bits(hy_call* call, hy_tensor* out) {
  hy_device* device;
  hy_stream* stream;
  assert_int_equal(hy_device_get("cpu", &device), HY_OK);
  assert_int_equal(hy_stream_default(device, &stream), HY_OK);
  int before = hy__pool_threads();
  call->out = out;
  for (int t = 0; t < MOST_THREADS; t++) {
    hy__pool_set_threads(t + 1);
    for (int o = 0; o < call->n_out; o++) out[o].data = results[t][o];
    if (hy_run(stream, call) != HY_OK) fail_msg("%s", hy_last_error());
    for (int o = 0; o < call->n_out; o++)
      assert_memory_equal(results[t][o], results[0][o], hy_tensor_bytes(&out[o]));
  }
  hy__pool_set_threads(before);
}

static const hy_dtype dtypes[] = {HY_F32, HY_BF16};

static void products(void** state) {
  (void)state;
  static const int64_t sizes[][3] = {{1, 500, 896}, {5, 333, 896},   {16, 300, 640},
                                     {17, 97, 900}, {150, 260, 700}, {64, 1000, 300}};
  for (int d = 0; d < 2; d++) {
    fill(dtypes[d]);
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
      int64_t m = sizes[s][0], n = sizes[s][1], k = sizes[s][2];
      hy_tensor out = tensor(NULL, dtypes[d], m, n);
      hy_tensor layer[3] = {tensor(inputs[0], dtypes[d], m, k), tensor(inputs[1], dtypes[d], n, k),
                            tensor(inputs[2], dtypes[d], n)};
      hy_call call = {.op = HY_OP_linear, .n_in = 3, .n_out = 1, .in = layer};
      same_bits(&call, &out);
      hy_tensor pair[2] = {layer[0], tensor(inputs[1], dtypes[d], k, n)};
      call = (hy_call){.op = HY_OP_mm, .n_in = 2, .n_out = 1, .in = pair};
      same_bits(&call, &out);
    }
  }
}

static void quantised_products(void** state) {
  (void)state;
  // 80 rows of weights are few panels: the rows of x are divided among threads too.
  enum { K = 896, GROUP = 32 };
  static const hy_dtype weights[] = {HY_I8, HY_I4};
  static const int64_t rows[] = {1, 3, 40}, columns[] = {1001, 80};
  fill(HY_F32);
  for (int i = 0; i < COUNT; i++)
    for (int n = 0; n < 2; n++) inputs[n][i] = (unsigned char)((i * 37 + i / 251 * 5) % 255 - 127);
  for (int c = 0; c < 12; c++) {
    int64_t m = rows[c % 3], n = columns[c / 3 % 2];
    hy_tensor in[5] = {tensor(inputs[0], HY_I8, m, K), tensor(inputs[2], HY_F32, m, K / GROUP),
                       tensor(inputs[1], weights[c / 6], n, K),
                       tensor(inputs[3], HY_F32, n, K / GROUP), hy_tensor_absent()};
    hy_tensor out = tensor(NULL, HY_F32, m, n);
    hy_call call = {.op = HY_OP_linear_int8, .n_in = 5, .n_out = 1, .in = in};
    call.attrs.cast.dtype = HY_F32;
    same_bits(&call, &out);
  }
}

static void attend(hy_dtype dtype, int64_t queries, int64_t keys) {
  enum { HEADS = 6, KV_HEADS = 2, SIZE = 32 };
  hy_tensor q = tensor(inputs[0], dtype, 1, HEADS, queries, SIZE);
  hy_tensor k = tensor(inputs[1], dtype, 1, KV_HEADS, keys, SIZE);
  hy_tensor v = tensor(inputs[2], dtype, 1, KV_HEADS, keys, SIZE);
  hy_tensor in[4] = {q, k, v, hy_tensor_absent()}, out[3] = {q, q};
  out[1] = tensor(NULL, HY_F32, 1, HEADS, queries);
  hy_call call = {.op = HY_OP_sdpa, .n_in = 4, .n_out = 2, .in = in};
  call.attrs.attention.causal = HY_CAUSAL_BOTTOM_RIGHT;
  same_bits(&call, out);
  hy_tensor back[7] = {tensor(inputs[3], dtype, 1, HEADS, queries, SIZE),
                       q,
                       k,
                       v,
                       out[0],
                       out[1],
                       hy_tensor_absent()};
  back[4].data = memcpy(inputs[4], results[0][0], hy_tensor_bytes(&out[0]));
  back[5].data = inputs[4] + hy_tensor_bytes(&out[0]);
  memcpy(back[5].data, results[0][1], hy_tensor_bytes(&out[1]));
  call.op = HY_OP_sdpa_backward;
  call.n_in = 7;
  call.n_out = 3;
  call.in = back;
  hy_tensor grads[3] = {q, k, v};
  same_bits(&call, grads);
}

static void attention(void** state) {
  (void)state;
  for (int d = 0; d < 2; d++) {
    fill(dtypes[d]);
    attend(dtypes[d], 200, 200);
    attend(dtypes[d], 1, 1500);
  }
}

static void rows(void** state) {
  (void)state;
  for (int d = 0; d < 2; d++) {
    fill(dtypes[d]);
    hy_tensor in[2] = {tensor(inputs[0], dtypes[d], 300, 700), tensor(inputs[1], dtypes[d], 700)};
    hy_tensor out[2] = {in[0], hy_tensor_absent()};
    hy_call call = {.op = HY_OP_rms_norm, .n_in = 2, .n_out = 2, .in = in};
    call.attrs.norm.norm_dims = 1;
    call.attrs.norm.eps = 1e-6;
    same_bits(&call, out);
    call = (hy_call){.op = HY_OP_softmax, .n_in = 1, .n_out = 1, .in = in};
    call.attrs.dim.dim = 1;
    same_bits(&call, out);
    hy_tensor whole = tensor(inputs[0], dtypes[d], COUNT / 2), total = whole;
    total.ndim = 0;
    call = (hy_call){.op = HY_OP_sum, .n_in = 1, .n_out = 1, .in = &whole};
    same_bits(&call, &total);
    hy_tensor column = tensor(NULL, dtypes[d], 700);
    call.in = in;
    call.attrs.reduce.dims = hy_one_dim(0);
    same_bits(&call, &column);
    hy_tensor step[3] = {in[0], tensor(inputs[2], dtypes[d], 300, 700),
                         tensor(inputs[3], dtypes[d], 300, 700)};
    hy_tensor stepped[2] = {in[0], in[0]};
    call = (hy_call){.op = HY_OP_sgd, .n_in = 3, .n_out = 2, .in = step};
    call.attrs.sgd = (hy_attrs_sgd){0.1, 0.9, 0, 0.01, false, false, false};
    same_bits(&call, stepped);
  }
}

static void images(void** state) {
  (void)state;
  for (int d = 0; d < 2; d++) {
    fill(dtypes[d]);
    hy_tensor x = tensor(inputs[0], dtypes[d], 3, 37, 40, 41), absent = hy_tensor_absent();
    hy_tensor vector = tensor(inputs[1], dtypes[d], 37),
              norm[5] = {x, vector, vector, absent, absent};
    hy_tensor statistic = tensor(inputs[3], HY_F32, 37), out[3] = {x, statistic, statistic};
    hy_call call = {.op = HY_OP_batch_norm, .n_in = 5, .n_out = 3, .in = norm};
    call.attrs.batch_norm = (hy_attrs_batch_norm){true, 0.1, 1e-5};
    same_bits(&call, out);
    hy_tensor back[5] = {tensor(inputs[2], dtypes[d], 3, 37, 40, 41), x, statistic, statistic,
                         vector};
    hy_tensor grads[3] = {x, vector, vector};
    call.op = HY_OP_batch_norm_backward;
    call.in = back;
    same_bits(&call, grads);
    hy_tensor pooled[2] = {tensor(NULL, dtypes[d], 3, 37, 20, 20),
                           tensor(NULL, HY_I64, 3, 37, 20, 20)};
    call = (hy_call){.op = HY_OP_max_pool2d, .n_in = 1, .n_out = 2, .in = &x};
    call.attrs.max_pool = (hy_attrs_max_pool){{2, 2}, {2, 2}, {0, 0}, {1, 1}, false};
    same_bits(&call, pooled);
    hy_tensor above[2] = {tensor(inputs[2], dtypes[d], 3, 37, 20, 21), x};
    call = (hy_call){.op = HY_OP_avg_pool2d_backward, .n_in = 2, .n_out = 1, .in = above};
    call.attrs.avg_pool = (hy_attrs_avg_pool){{3, 3}, {2, 2}, {1, 1}, false, true, 0};
    hy_tensor dx = x;
    same_bits(&call, &dx);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(products),  cmocka_unit_test(quantised_products),
      cmocka_unit_test(attention), cmocka_unit_test(rows),
      cmocka_unit_test(images),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
