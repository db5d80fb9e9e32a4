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
#include "fused.h"
#include "model/create.h"
#include "model/load.h"
#include "model/model.h"
#include "support/tiny_model.h"

static int set_up(void** state) {
  (void)state;
  return test_backend_open("ascend", ASCEND_HOME "/lib64/libascendcl.so");
}

// ---- fused ops against the reference ----

// Says whether the fused op ran.
static bool runs_fused(int64_t block, int64_t size, const int64_t* queries, const int64_t* keys) {
  long before = test_vendor.calls_of("aclnnFusedInferAttentionScoreV3");
  assert_true(fused_paged_attention(block, size, queries, keys));
  test_backend_no_misuse();
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
    long before = test_vendor.calls_of("aclnnFlashAttentionScore");
    assert_true(fused_attention((hy_causal)causal));
    assert_true(test_vendor.calls_of("aclnnFlashAttentionScore") == before + 1);
    before = test_vendor.calls_of("aclnnFlashAttentionScoreGrad");
    assert_true(fused_attention_backward((hy_causal)causal));
    assert_true(test_vendor.calls_of("aclnnFlashAttentionScoreGrad") == before + 1);
    test_backend_no_misuse();
  }
}

static void quantised_products_are_fused(void** state) {
  (void)state;
  const hy_dtype types[] = {HY_F16, HY_BF16}, weights[] = {HY_I8, HY_I4};
  const int64_t groups[] = {1, 2, 4};
  for (int i = 0; i < 12; i++) {
    long before = test_vendor.calls_of("aclnnWeightQuantBatchMatmulV2");
    assert_true(fused_quantised_product(types[i % 2], weights[i / 2 % 2], groups[i / 4]));
    assert_true(test_vendor.calls_of("aclnnWeightQuantBatchMatmulV2") == before + 1);
    test_backend_no_misuse();
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

static void lora_steps_are_those_of_the_cpu(void** state) {
  (void)state;
  test_backend_trains("ascend");
}

static void every_call_fails_once(void** state) {
  (void)state;
  test_backend_survives("ascend", (const int[]){107000, 207018, 507015}, 3);
}

static bool attention(void) {
  return fused_attention(HY_CAUSAL_TOP_LEFT);
}
static bool attention_backward(void) {
  return fused_attention_backward(HY_CAUSAL_TOP_LEFT);
}
static bool paged_attention(void) {
  return fused_paged_attention(16, 64, (const int64_t[]){1, 1, 1}, (const int64_t[]){37, 16, 40});
}
static bool quantised_product(void) {
  return fused_quantised_product(HY_F16, HY_I8, 2);
}

static void every_entry_point_fails_once(void** state) {
  (void)state;
  static bool (*const fused[])(void) = {attention, attention_backward, paged_attention,
                                        quantised_product};
  static const char* const names[] = {
#define HY_ACL(type, name, arguments) #name,
#define HY_ACL_META(type, name, arguments) #name,
#define HY_ACL_OPTIONAL(type, name, arguments) #name,
#include "backends/ascend/acl.def"
#define HY_ACLNN(name, arguments) "aclnn" #name "GetWorkspaceSize", "aclnn" #name,
#include "backends/ascend/aclnn.def"
      NULL};
  test_backend_entries_survive("ascend", (const int[]){161002, 207018, 507015}, 3, fused, 4,
                               "aclrtSetDevice", names);
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
      cmocka_unit_test(lora_steps_are_those_of_the_cpu),
      cmocka_unit_test(every_call_fails_once),
      cmocka_unit_test(every_entry_point_fails_once),
      cmocka_unit_test(every_call_of_hccl_fails_once),
      cmocka_unit_test(a_link_is_lost),
  };
  return cmocka_run_group_tests(tests, set_up, test_backend_close);
}
