// Fused attention and quantised products on the test's device, against the reference (fused.h).
#include "fused.h"

#include <math.h>
#include <stdlib.h>

#include "../common/test_backend.h"
#include "ops/internal.h"
#include "ops/reference/element.h"

enum { MOST_IN = 8, MOST_OUT = 4 };

static hy_tensor host_tensor(hy_dtype dtype, int ndim, const int64_t* shape) {
  hy_tensor t;
  CHECK_OK(hy_tensor_init(&t, NULL, dtype, ndim, shape));
  t.data = calloc(1, hy_tensor_bytes(&t) + 1);
  assert_non_null(t.data);
  return t;
}

static void fill(hy_tensor* t, uint64_t seed, double scale) {
  for (int64_t i = 0; i < hy_tensor_numel(t); i++) {
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    double x = ((double)(seed >> 40) / (1 << 23) - 1) * scale;
    char* at = (char*)t->data + i * (int64_t)hy_dtype_size(t->dtype);
    if (hy_dtype_is_float(t->dtype))
      hy__store_f(t->dtype, at, x);
    else
      hy__store_i(t->dtype, at, (int64_t)x);
  }
}

static hy_tensor on_device(hy_stream* stream, const hy_tensor* t, bool upload) {
  hy_tensor d = *t;
  if (t->dtype == HY_NONE) return d;
  CHECK_OK(hy_alloc(stream, hy_tensor_bytes(t), &d.data));
  // NaN where nothing is written: the allocator may give what the last call has left.
  if (upload)
    CHECK_OK(hy_memcpy(stream, d.data, t->data, hy_tensor_bytes(t), HY_COPY_HOST_TO_DEVICE));
  else
    CHECK_OK(hy_memset(stream, d.data, 0xff, hy_tensor_bytes(t)));
  return d;
}

static bool is_close(hy_stream* stream, const hy_tensor* want, const hy_tensor* there,
                     double tolerance) {
  hy_tensor got = host_tensor(want->dtype, want->ndim, want->shape);
  hy_status status =
      hy_memcpy(stream, got.data, there->data, hy_tensor_bytes(&got), HY_COPY_DEVICE_TO_HOST);
  if (status == HY_OK) status = hy_stream_sync(stream);
  bool close = status == HY_OK;
  if (!close) print_message("%s\n", hy_last_error());
  for (int64_t i = 0; close && i < hy_tensor_numel(&got); i++) {
    int64_t at = i * (int64_t)hy_dtype_size(got.dtype);
    double a = hy__load_f(got.dtype, (char*)got.data + at);
    double b = hy__load_f(want->dtype, (char*)want->data + at);
    close = fabs(a - b) <= tolerance * (1 + fabs(b));
    if (!close) print_message("element %lld: %g, not %g\n", (long long)i, a, b);
  }
  free(got.data);
  return close;
}

// Runs the call on the device, strictly, and by the reference. The stream is its own, for one that
// failed stays so. Frees what is on the host.
static bool agrees(hy_op op, hy_attrs attrs, int n_in, hy_tensor* in, int n_out, hy_tensor* out,
                   double tolerance) {
  hy_tensor there[MOST_IN], got[MOST_OUT];
  hy_stream* stream;
  CHECK_OK(hy_stream_create(test_device, &stream));
  hy_call call = {.op = op, .n_in = n_in, .n_out = n_out, .in = in, .out = out, .attrs = attrs};
  CHECK_OK(hy__reference(&call));
  for (int i = 0; i < n_in; i++) there[i] = on_device(stream, &in[i], true);
  for (int i = 0; i < n_out; i++) got[i] = on_device(stream, &out[i], false);
  call.in = there;
  call.out = got;
  hy_set_strict(true);
  bool agree = hy_run(stream, &call) == HY_OK;
  hy_set_strict(false);
  if (!agree) print_message("%s\n", hy_last_error());
  for (int o = 0; agree && o < n_out; o++) agree = is_close(stream, &out[o], &got[o], tolerance);
  for (int i = 0; i < n_in; i++)
    if (there[i].dtype != HY_NONE) hy_free(test_device, there[i].data);
  for (int i = 0; i < n_out; i++) hy_free(test_device, got[i].data);
  hy_stream_destroy(stream);
  for (int i = 0; i < n_in; i++) free(in[i].data);
  for (int i = 0; i < n_out; i++) free(out[i].data);
  return agree;
}

static hy_tensor random_tensor(hy_dtype dtype, uint64_t seed, double scale, int ndim,
                               const int64_t* shape) {
  hy_tensor t = host_tensor(dtype, ndim, shape);
  fill(&t, seed, scale);
  return t;
}

#define SIZES(...)                                                               \
  (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (const int64_t[]) { \
    __VA_ARGS__                                                                  \
  }

static hy_tensor integers(hy_dtype dtype, int n, const int64_t* values) {
  int64_t size = n;
  hy_tensor t = host_tensor(dtype, 1, &size);
  for (int i = 0; i < n; i++)
    hy__store_i(dtype, (char*)t.data + (size_t)i * hy_dtype_size(dtype), values[i]);
  return t;
}

bool fused_paged_attention(int64_t block, int64_t size, const int64_t* queries,
                           const int64_t* keys) {
  const int64_t table[] = {5, 2, 7, 1, 0, 0, 4, 6, 3};
  int64_t start[4] = {0};
  for (int i = 0; i < 3; i++) start[i + 1] = start[i] + queries[i];
  hy_tensor in[] = {random_tensor(HY_BF16, 1, 1, SIZES(start[3], 4, size)),
                    random_tensor(HY_BF16, 2, 1, SIZES(8, block, 2, size)),
                    random_tensor(HY_BF16, 3, 1, SIZES(8, block, 2, size)),
                    integers(HY_I64, 9, table),
                    integers(HY_I64, 4, start),
                    integers(HY_I64, 3, keys)};
  in[3].ndim = 2;
  in[3].shape[0] = in[3].shape[1] = in[3].stride[0] = 3;
  in[3].stride[1] = 1;
  hy_tensor out = host_tensor(HY_BF16, SIZES(start[3], 4, size));
  return agrees(HY_OP_paged_attention, (hy_attrs){.scale = {0}}, 6, in, 1, &out, 0.01);
}

// q, k, v, no mask.
static void attention_inputs(hy_tensor in[4]) {
  in[0] = random_tensor(HY_F16, 4, 1, SIZES(2, 4, 9, 64));
  in[1] = random_tensor(HY_F16, 5, 1, SIZES(2, 2, 12, 64));
  in[2] = random_tensor(HY_F16, 6, 1, SIZES(2, 2, 12, 64));
  in[3] = hy_tensor_absent();
}

bool fused_attention(hy_causal causal) {
  hy_attrs attrs = {.attention = {.causal = causal}};
  hy_tensor in[4],
      out[] = {host_tensor(HY_F16, SIZES(2, 4, 9, 64)), host_tensor(HY_F32, SIZES(2, 4, 9))};
  attention_inputs(in);
  return agrees(HY_OP_sdpa, attrs, 4, in, 2, out, 0.005);
}

bool fused_attention_backward(hy_causal causal) {
  hy_attrs attrs = {.attention = {.causal = causal}};
  hy_tensor forward[4],
      out[] = {host_tensor(HY_F16, SIZES(2, 4, 9, 64)), host_tensor(HY_F32, SIZES(2, 4, 9))};
  attention_inputs(forward);
  hy_call call = {
      .op = HY_OP_sdpa, .n_in = 4, .n_out = 2, .in = forward, .out = out, .attrs = attrs};
  CHECK_OK(hy__reference(&call));
  hy_tensor in[] = {random_tensor(HY_F16, 7, 1, SIZES(2, 4, 9, 64)),
                    forward[0],
                    forward[1],
                    forward[2],
                    out[0],
                    out[1],
                    hy_tensor_absent()};
  hy_tensor grads[] = {host_tensor(HY_F16, SIZES(2, 4, 9, 64)),
                       host_tensor(HY_F16, SIZES(2, 2, 12, 64)),
                       host_tensor(HY_F16, SIZES(2, 2, 12, 64))};
  return agrees(HY_OP_sdpa_backward, attrs, 7, in, 3, grads, 0.01);
}

bool fused_quantised_product(hy_dtype dtype, hy_dtype weights, int64_t n_groups) {
  hy_tensor weight = host_tensor(weights, SIZES(192, 128)), bytes = weight;
  bytes.dtype = HY_U8;
  bytes.shape[1] = (int64_t)hy_tensor_bytes(&weight) / 192;
  fill(&bytes, 9, 255);
  hy_tensor in[] = {random_tensor(dtype, 8, 1, SIZES(3, 5, 128)), weight,
                    random_tensor(HY_F32, 10, 0.01, SIZES(192, n_groups)), hy_tensor_absent()};
  for (int64_t k = 0; k < 192 * n_groups; k++) ((float*)in[2].data)[k] += 0.02f;
  hy_tensor out = host_tensor(dtype, SIZES(3, 5, 192));
  // Scales of groups are rounded to 8 bits in bf16, and the sums are of about 10.
  return agrees(HY_OP_linear_quantized, (hy_attrs){.words = {0}}, 4, in, 1, &out,
                n_groups > 1 ? 0.05 : 0.012);
}
