// The ascend backend over the test library: what conformance's shapes do not reach (fused
// attention, fused quantised products), weights in FRACTAL_NZ, a model's tokens, and every call
// failing once.
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../common/test_backend.h"
#include "model/create.h"
#include "model/load.h"
#include "model/model.h"
#include "ops/internal.h"
#include "ops/reference/element.h"
#include "support/tiny_model.h"

static int set_up(void** state) {
  (void)state;
  return test_backend_open("ascend", ASCEND_HOME "/lib64/libascendcl.so");
}

// ---- fused ops against the reference ----

enum { MOST = 8 };
typedef struct problem {
  hy_call call;
  hy_tensor in[MOST], out[4], want[4];
} problem;

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

static hy_tensor on_device(const hy_tensor* t, bool upload) {
  hy_tensor d = *t;
  if (t->dtype == HY_NONE) return d;
  CHECK_OK(hy_alloc(test_stream, hy_tensor_bytes(t), &d.data));
  if (upload)
    CHECK_OK(hy_memcpy(test_stream, d.data, t->data, hy_tensor_bytes(t), HY_COPY_HOST_TO_DEVICE));
  return d;
}

// Runs the call on the device and by the reference, strictly, and compares.
static void compare(hy_op op, hy_attrs attrs, int n_in, hy_tensor* in, int n_out, hy_tensor* out,
                    double tolerance) {
  hy_tensor there[MOST], got[4];
  hy_call call = {.op = op, .n_in = n_in, .n_out = n_out, .in = in, .out = out, .attrs = attrs};
  CHECK_OK(hy__reference(&call));
  for (int i = 0; i < n_in; i++) there[i] = on_device(&in[i], true);
  for (int i = 0; i < n_out; i++) got[i] = on_device(&out[i], false);
  call.in = there;
  call.out = got;
  hy_set_strict(true);
  CHECK_OK(hy_run(test_stream, &call));
  hy_set_strict(false);
  for (int o = 0; o < n_out; o++) {
    hy_tensor back = host_tensor(out[o].dtype, out[o].ndim, out[o].shape);
    CHECK_OK(hy_memcpy(test_stream, back.data, got[o].data, hy_tensor_bytes(&back),
                       HY_COPY_DEVICE_TO_HOST));
    CHECK_OK(hy_stream_sync(test_stream));
    for (int64_t i = 0; i < hy_tensor_numel(&back); i++) {
      int64_t at = i * (int64_t)hy_dtype_size(back.dtype);
      double a = hy__load_f(back.dtype, (char*)back.data + at);
      double b = hy__load_f(out[o].dtype, (char*)out[o].data + at);
      if (!(fabs(a - b) <= tolerance * (1 + fabs(b))))
        fail_msg("output %d, element %lld: %g, not %g", o, (long long)i, a, b);
    }
    free(back.data);
  }
  for (int i = 0; i < n_in; i++)
    if (there[i].dtype != HY_NONE) hy_free(test_device, there[i].data);
  for (int i = 0; i < n_out; i++) hy_free(test_device, got[i].data);
  for (int i = 0; i < n_in; i++) free(in[i].data);
  for (int i = 0; i < n_out; i++) free(out[i].data);
  test_backend_no_misuse();
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

// Three sequences with these many new tokens and keys, in blocks in any order. Says whether the
// fused op ran.
static bool runs_fused(int64_t block, int64_t size, const int64_t* queries, const int64_t* keys) {
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
  long before = test_vendor.calls_of("aclnnFusedInferAttentionScoreV3");
  compare(HY_OP_paged_attention, (hy_attrs){.scale = {0}}, 6, in, 1, &out, 0.01);
  return test_vendor.calls_of("aclnnFusedInferAttentionScoreV3") > before;
}

// Steps of one token in small blocks, prompts in those of 128; the rest is right all the same.
static void paged_attention_is_fused(void** state) {
  (void)state;
  const int64_t one[] = {1, 1, 1}, some[] = {20, 1, 1}, odd[] = {2, 0, 1}, keys[] = {37, 16, 40};
  assert_true(runs_fused(16, 64, one, keys));
  assert_true(runs_fused(16, 128, one, keys));
  assert_true(runs_fused(128, 64, some, keys));
  assert_false(runs_fused(16, 64, some, keys));
  assert_false(runs_fused(16, 64, odd, keys));
  assert_false(runs_fused(8, 64, one, (const int64_t[]){20, 8, 24}));
}

static void attention_and_its_gradient_are_fused(void** state) {
  (void)state;
  for (int causal = HY_CAUSAL_NONE; causal <= HY_CAUSAL_BOTTOM_RIGHT; causal++) {
    hy_attrs attrs = {.attention = {.causal = (hy_causal)causal}};
    hy_tensor q = random_tensor(HY_F16, 4, 1, SIZES(2, 4, 9, 64));
    hy_tensor k = random_tensor(HY_F16, 5, 1, SIZES(2, 2, 12, 64));
    hy_tensor v = random_tensor(HY_F16, 6, 1, SIZES(2, 2, 12, 64));
    hy_tensor out = host_tensor(HY_F16, SIZES(2, 4, 9, 64));
    hy_tensor lse = host_tensor(HY_F32, SIZES(2, 4, 9));
    hy_tensor forward[] = {q, k, v, hy_tensor_absent()}, results[] = {out, lse};
    hy_call call = {
        .op = HY_OP_sdpa, .n_in = 4, .n_out = 2, .in = forward, .out = results, .attrs = attrs};
    CHECK_OK(hy__reference(&call));
    hy_tensor in[] = {
        random_tensor(HY_F16, 7, 1, SIZES(2, 4, 9, 64)), q, k, v, out, lse, hy_tensor_absent()};
    hy_tensor grads[] = {host_tensor(HY_F16, SIZES(2, 4, 9, 64)),
                         host_tensor(HY_F16, SIZES(2, 2, 12, 64)),
                         host_tensor(HY_F16, SIZES(2, 2, 12, 64))};
    hy_tensor again[] = {random_tensor(HY_F16, 4, 1, SIZES(2, 4, 9, 64)),
                         random_tensor(HY_F16, 5, 1, SIZES(2, 2, 12, 64)),
                         random_tensor(HY_F16, 6, 1, SIZES(2, 2, 12, 64)), hy_tensor_absent()};
    hy_tensor outs[] = {host_tensor(HY_F16, SIZES(2, 4, 9, 64)),
                        host_tensor(HY_F32, SIZES(2, 4, 9))};
    long before = test_vendor.calls_of("aclnnFlashAttentionScore");
    compare(HY_OP_sdpa, attrs, 4, again, 2, outs, 0.005);
    assert_true(test_vendor.calls_of("aclnnFlashAttentionScore") == before + 1);
    before = test_vendor.calls_of("aclnnFlashAttentionScoreGrad");
    compare(HY_OP_sdpa_backward, attrs, 7, in, 3, grads, 0.01);
    assert_true(test_vendor.calls_of("aclnnFlashAttentionScoreGrad") == before + 1);
  }
}

static void quantised_products_are_fused(void** state) {
  (void)state;
  const hy_dtype types[] = {HY_F16, HY_BF16}, weights[] = {HY_I8, HY_I4};
  const int64_t groups[] = {1, 2, 4};
  for (int i = 0; i < 12; i++) {
    hy_dtype dtype = types[i % 2];
    int64_t n_groups = groups[i / 4];
    hy_tensor weight = host_tensor(weights[i / 2 % 2], SIZES(192, 128)), bytes = weight;
    bytes.dtype = HY_U8;
    bytes.shape[1] = (int64_t)hy_tensor_bytes(&weight) / 192;
    fill(&bytes, 9, 255);
    hy_tensor in[] = {random_tensor(dtype, 8, 1, SIZES(3, 5, 128)), weight,
                      random_tensor(HY_F32, 10, 0.01, SIZES(192, n_groups)), hy_tensor_absent()};
    for (int64_t k = 0; k < 192 * n_groups; k++) ((float*)in[2].data)[k] += 0.02f;
    hy_tensor out = host_tensor(dtype, SIZES(3, 5, 192));
    long before = test_vendor.calls_of("aclnnWeightQuantBatchMatmulV2");
    // Scales of groups are rounded to 8 bits in bf16, and the sums are of about 10.
    compare(HY_OP_linear_quantized, (hy_attrs){.words = {0}}, 4, in, 1, &out,
            n_groups > 1 ? 0.05 : 0.012);
    assert_true(test_vendor.calls_of("aclnnWeightQuantBatchMatmulV2") == before + 1);
  }
}

// ---- weights in FRACTAL_NZ ----

enum { VOCABULARY = 48, PROMPT = 5, TOKENS = 8 };

// What follows a prompt.
typedef struct answer {
  float logits[VOCABULARY];
  int32_t ids[TOKENS];
} answer;

static void ask(const char* folder, bool device_layout, answer* a) {
  const hy_load_options options = {.device_layout = device_layout};
  const int32_t prompt[PROMPT] = {3, 1, 4, 1, 5};
  hy_generate_options o;
  hy_generate_result result;
  hy_model* model;
  hy_generate_defaults(&o);
  o.max_tokens = TOKENS;
  CHECK_OK(hy_model_load_with(test_device, folder, &options, &model));
  hy_set_strict(true);
  CHECK_OK(hy_model_logits(model, prompt, PROMPT, a->logits));
  CHECK_OK(hy_model_generate(model, prompt, PROMPT, &o, NULL, NULL, a->ids, &result));
  hy_set_strict(false);
  if (device_layout) {
    assert_int_equal(hy__transformer_save(model->stream, &model->transformer, folder),
                     HY_INVALID_ARGUMENT);
    assert_non_null(strstr(hy_last_error(), "device_layout"));
  }
  hy_model_free(model);
}

// Packed once, when it is loaded: seven layers in each of two blocks, and the head.
static void a_models_weights_are_packed_for_the_device(void** state) {
  (void)state;
  char folder[] = "/tmp/halyard_fractal_nz_XXXXXX", file[64];
  answer plain = {.ids = {0}}, packed = {.ids = {0}};
  hy_device_info info = {.size = sizeof info};
  long (*uncast)(void);
  void* library = dlopen(ASCEND_HOME "/lib64/libopapi.so", RTLD_NOW | RTLD_NOLOAD);
  *(void**)&uncast = test_symbol(library, "ascend_products_of_uncast_weights");
  CHECK_OK(hy_device_describe(test_device, &info));
  assert_non_null(strstr(info.properties, "linear_weights=fractal_nz\n"));
  assert_non_null(mkdtemp(folder));
  hy__config c = tiny_config(&hy__arch_qwen2, 64, HY_BF16);
  c.vocab_size = VOCABULARY;
  c.n_layers = 2;
  c.qkv_bias = true;
  hy_model* model;
  CHECK_OK(hy__model_create(test_device, &c, NULL, -1, 7, &model));
  CHECK_OK(hy__transformer_save(model->stream, &model->transformer, folder));
  hy_model_free(model);
  long casts = test_vendor.calls_of("aclnnNpuFormatCast");
  ask(folder, false, &plain);
  assert_int_equal(test_vendor.calls_of("aclnnNpuFormatCast"), casts);
  long products = test_vendor.calls_of("aclnnMatmulWeightNz"), foreign = uncast();
  ask(folder, true, &packed);
  assert_int_equal(test_vendor.calls_of("aclnnNpuFormatCast"), casts + 2 * 7 + 1);
  assert_true(test_vendor.calls_of("aclnnMatmulWeightNz") >= products + 2 * (2 * 7 + 1));
  assert_int_equal(uncast(), foreign);
  for (int i = 0; i < VOCABULARY; i++) {
    float want = plain.logits[i], got = packed.logits[i];
    if (!(fabsf(want - got) <= 0.02f * (1 + fabsf(want))))
      fail_msg("logit %d is %g, not %g", i, got, want);
  }
  assert_memory_equal(plain.ids, packed.ids, sizeof plain.ids);
  const char* const files[] = {"config.json", "model.safetensors"};
  for (int i = 0; i < 2; i++) {
    snprintf(file, sizeof file, "%s/%s", folder, files[i]);
    unlink(file);
  }
  rmdir(folder);
  test_backend_no_misuse();
}

static void a_model_writes_what_it_writes_on_the_cpu(void** state) {
  (void)state;
  test_backend_generates("ascend");
}

static void every_call_fails_once(void** state) {
  (void)state;
  test_backend_survives("ascend", (const int[]){107000, 207018, 507015}, 3);
}

// HcclResult: parameter, memory, not supported, timeout, remote.
static void every_call_of_hccl_fails_once(void** state) {
  (void)state;
  test_backend_collectives_survive("ascend", (const int[]){1, 3, 5, 9, 21}, 5);
}

static void a_link_is_lost(void** state) {
  (void)state;
  test_backend_loses_link(ASCEND_HOME "/lib64/libhccl.so", "HCCL");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(paged_attention_is_fused),
      cmocka_unit_test(attention_and_its_gradient_are_fused),
      cmocka_unit_test(quantised_products_are_fused),
      cmocka_unit_test(a_models_weights_are_packed_for_the_device),
      cmocka_unit_test(a_model_writes_what_it_writes_on_the_cpu),
      cmocka_unit_test(every_call_fails_once),
      cmocka_unit_test(every_call_of_hccl_fails_once),
      cmocka_unit_test(a_link_is_lost),
  };
  return cmocka_run_group_tests(tests, set_up, test_backend_close);
}
