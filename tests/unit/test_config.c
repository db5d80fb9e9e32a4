// config.json: both of transformers' styles, what each architecture adds, and refusals by name.
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "model/arch/arch.h"
#include "support/check.h"

#define SIZES                                                                                    \
  "\"vocab_size\": 100, \"hidden_size\": 64, \"intermediate_size\": 96, \"num_hidden_layers\": " \
  "2, \"num_attention_heads\": 4"

static hy_status parse(const char* more, hy__config* c) {
  char text[1024];
  int n = snprintf(text, sizeof text, "{%s, %s}", SIZES, more);
  return hy__config_parse("config.json", text, (size_t)n, c);
}

static void test_defaults(void** state) {
  (void)state;
  hy__config c;
  CHECK_OK(parse("\"model_type\": \"llama\"", &c));
  assert_ptr_equal(c.arch, &hy__arch_llama);
  assert_int_equal(c.vocab_size, 100);
  assert_int_equal(c.hidden_size, 64);
  assert_int_equal(c.intermediate_size, 96);
  assert_int_equal(c.n_layers, 2);
  assert_int_equal(c.n_heads, 4);
  assert_int_equal(c.n_kv_heads, 4);
  assert_int_equal(c.head_dim, 16);
  assert_int_equal(c.max_positions, 2048);
  assert_int_equal(c.dtype, HY_F32);
  assert_int_equal(c.rope, HY__ROPE_DEFAULT);
  assert_true(c.rope_theta == 10000 && c.norm_eps == 1e-6);
  assert_false(c.tied_embeddings || c.qkv_bias || c.o_bias || c.mlp_bias || c.head_norm);
}

static void test_architectures(void** state) {
  (void)state;
  hy__config c;
  CHECK_OK(parse("\"model_type\": \"qwen2\", \"architectures\": [\"Qwen2ForCausalLM\"]", &c));
  assert_ptr_equal(c.arch, &hy__arch_qwen2);
  assert_true(c.qkv_bias && !c.o_bias && !c.mlp_bias && !c.head_norm);
  CHECK_OK(parse("\"model_type\": \"qwen3\", \"attention_bias\": true, \"head_dim\": 32", &c));
  assert_true(c.qkv_bias && c.o_bias && c.head_norm && c.head_dim == 32);
  CHECK_OK(parse("\"model_type\": \"llama\", \"mlp_bias\": true", &c));
  assert_true(!c.qkv_bias && c.mlp_bias && !c.head_norm);
  // Whoever asks for another learns which there are.
  CHECK_FAILS(HY_FORMAT, "\"gemma\" is not supported; there are qwen2, qwen3, llama",
              parse("\"model_type\": \"gemma\"", &c));
  CHECK_FAILS(HY_FORMAT, "model_type", parse("\"x\": 1", &c));
  CHECK_FAILS(HY_FORMAT, "Qwen2ForCausalLM",
              parse("\"model_type\": \"qwen2\", \"architectures\": [\"Other\"]", &c));
}

static void test_rope_in_both_styles(void** state) {
  (void)state;
  hy__config c;
  CHECK_OK(
      parse("\"model_type\": \"llama\", \"rope_theta\": 5000.0, \"rope_scaling\": {\"type\": "
            "\"linear\", \"factor\": 4.0}",
            &c));
  assert_true(c.rope == HY__ROPE_LINEAR && c.rope_factor == 4 && c.rope_theta == 5000);
  CHECK_OK(
      parse("\"model_type\": \"llama\", \"rope_parameters\": {\"rope_theta\": 5000.0, "
            "\"rope_type\": \"llama3\", \"factor\": 8.0, \"low_freq_factor\": 1.0, "
            "\"high_freq_factor\": 4.0, \"original_max_position_embeddings\": 64}",
            &c));
  assert_true(c.rope == HY__ROPE_LLAMA3 && c.rope_factor == 8 && c.rope_original_positions == 64);
  CHECK_FAILS(HY_FORMAT, "yarn",
              parse("\"model_type\": \"llama\", \"rope_scaling\": {\"type\": \"yarn\"}", &c));
}

static void test_refusals(void** state) {
  (void)state;
  static const struct {
    const char *key, *value;
  } wrong[] = {{"hidden_size", "-1"},
               {"num_key_value_heads", "3"},
               {"hidden_act", "\"gelu\""},
               {"use_sliding_window", "true"},
               {"quantization_config", "{}"},
               {"torch_dtype", "\"int8\""},
               {"head_dim", "15"},
               {"rope_theta", "0.5"},
               {"vocab_size", "\"many\""},
               {"partial_rotary_factor", "0.5"}};
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
    hy__config c;
    char more[200];
    snprintf(more, sizeof more, "\"model_type\": \"llama\", \"%s\": %s", wrong[i].key,
             wrong[i].value);
    hy_status status = parse(more, &c);
    if (status != HY_FORMAT) fail_msg("%s: %s", more, hy_status_name(status));
    const char* named = i == 1 ? "share 3 key-value heads" : i == 5 ? "int8" : wrong[i].key;
    if (!strstr(hy_last_error(), named)) fail_msg("%s: %s", more, hy_last_error());
  }
}

// What is written is read back, for every architecture.
static void test_saved_is_loaded(void** state) {
  (void)state;
  static const char* const texts[] = {
      "\"model_type\": \"qwen2\", \"tie_word_embeddings\": true, \"torch_dtype\": \"bfloat16\"",
      "\"model_type\": \"qwen3\", \"attention_bias\": true, \"num_key_value_heads\": 2",
      "\"model_type\": \"llama\", \"mlp_bias\": true, \"rope_theta\": 123456.789, "
      "\"rope_scaling\": "
      "{\"rope_type\": \"llama3\", \"factor\": 8.5, \"low_freq_factor\": 1.0, "
      "\"high_freq_factor\": 4.0, \"original_max_position_embeddings\": 64}",
      "\"model_type\": \"llama\", \"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 3.0}"};
  char folder[] = "/tmp/halyard_config_XXXXXX", path[64];
  assert_non_null(mkdtemp(folder));
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
    hy__config c, back;
    CHECK_OK(parse(texts[i], &c));
    CHECK_OK(hy__config_save(folder, &c));
    CHECK_OK(hy__config_load(folder, &back));
    assert_memory_equal(&c, &back, sizeof c);
  }
  snprintf(path, sizeof path, "%s/config.json", folder);
  assert_int_equal(unlink(path), 0);
  assert_int_equal(rmdir(folder), 0);
}

// As transformers 5 reads it: rope_scaling is taken whole unless it is empty.
static void test_rope_in_both_at_once(void** state) {
  (void)state;
  hy__config c;
#define BOTH(scaling, parameters) \
  "\"model_type\": \"llama\", \"rope_scaling\": " scaling ", \"rope_parameters\": " parameters
  CHECK_OK(parse(BOTH("{\"type\": \"linear\", \"factor\": 4.0}",
                      "{\"rope_type\": \"default\", \"rope_theta\": 5000.0}"),
                 &c));
  assert_true(c.rope == HY__ROPE_LINEAR && c.rope_factor == 4 && c.rope_theta == 10000);
  CHECK_OK(parse(BOTH("{\"type\": \"linear\", \"factor\": 4.0, \"rope_theta\": 700.0}",
                      "{\"rope_theta\": 5000.0}") ", \"rope_theta\": 600.0",
                 &c));
  assert_true(c.rope == HY__ROPE_LINEAR && c.rope_theta == 700);
  CHECK_OK(parse(BOTH("{}", "{\"rope_type\": \"linear\", \"factor\": 2.0, \"rope_theta\": 5000.0}"),
                 &c));
  assert_true(c.rope == HY__ROPE_LINEAR && c.rope_factor == 2 && c.rope_theta == 5000);
  CHECK_OK(parse(BOTH("null", "{\"rope_theta\": 5000.0}"), &c));
  assert_true(c.rope == HY__ROPE_DEFAULT && c.rope_theta == 5000);
  CHECK_FAILS(
      HY_FORMAT, "yarn",
      parse(BOTH("{\"rope_type\": \"yarn\", \"factor\": 2.0}", "{\"rope_type\": \"default\"}"),
            &c));
  CHECK_FAILS(HY_FORMAT, "needs a \"factor\"",
              parse("\"model_type\": \"llama\", \"rope_scaling\": {\"type\": \"linear\"}", &c));
  CHECK_FAILS(HY_FORMAT, "low_freq_factor",
              parse("\"model_type\": \"llama\", \"rope_scaling\": {\"rope_type\": \"llama3\", "
                    "\"factor\": 8.0}",
                    &c));
  CHECK_FAILS(HY_FORMAT, "some layers",
              parse("\"model_type\": \"llama\", \"rope_parameters\": {\"full_attention\": "
                    "{\"rope_type\": \"default\"}}",
                    &c));
  CHECK_FAILS(HY_FORMAT, "\"rope_scaling\" is no JSON object",
              parse("\"model_type\": \"llama\", \"rope_scaling\": 3", &c));
#undef BOTH
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_defaults),
      cmocka_unit_test(test_architectures),
      cmocka_unit_test(test_rope_in_both_styles),
      cmocka_unit_test(test_refusals),
      cmocka_unit_test(test_saved_is_loaded),
      cmocka_unit_test(test_rope_in_both_at_once),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
