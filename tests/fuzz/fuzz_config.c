// A good config.json with values and bytes changed. What is accepted must be possible: sizes that
// fit each other and do not overflow when they are multiplied.
#include <string.h>

#include "fuzz/fuzz.h"
#include "model/create.h"

static const char good[] =
    "{\"model_type\":\"qwen2\",\"vocab_size\":320,\"hidden_size\":64,\"intermediate_size\":128,"
    "\"num_hidden_layers\":3,\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_dim\":16,"
    "\"max_position_embeddings\":512,\"rms_norm_eps\":1e-06,\"hidden_act\":\"silu\","
    "\"tie_word_embeddings\":true,\"dtype\":\"bfloat16\",\"rope_parameters\":{\"rope_type\":"
    "\"llama3\",\"rope_theta\":10000.0,\"factor\":8.0,\"low_freq_factor\":1.0,"
    "\"high_freq_factor\":4.0,\"original_max_position_embeddings\":64}}";

static const char* const values[] = {
    "0",       "-1",          "1",         "9223372036854775807",
    "1e308",   "-1e400",      "null",      "true",
    "[]",      "{}",          "\"\"",      "1.5",
    "\"f16\"", "\"float32\"", "\"qwen3\"", "\"llama\"",
    "65536",   "2147483648",
};

// Puts a value from the list behind the nth colon, in place of what is there.
static size_t replace_value(char* text, size_t length, uint8_t which, const char* value) {
  char* at = text;
  for (int i = 0; i <= which % 24; i++) {
    char* next = memchr(at, ':', (size_t)(text + length - at));
    if (!next) break;
    at = next + 1;
  }
  size_t start = (size_t)(at - text), old = strcspn(at, ",}"), size = strlen(value);
  memmove(text + start + size, text + start + old, length - start - old + 1);
  memcpy(text + start, value, size);
  return length - old + size;
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  char text[2048];
  size_t length = sizeof good - 1;
  fuzz_input in = {data, size};
  memcpy(text, good, sizeof good);
  for (int n = fuzz_byte(&in) % 6; n > 0; n--) {
    uint8_t which = fuzz_byte(&in), kind = fuzz_byte(&in);
    if (kind % 4 == 0) {
      text[fuzz_bits(&in, 2) % length] = (char)fuzz_byte(&in);
      if (memchr(text, 0, length)) return 0;
    } else {
      length = replace_value(text, length, which, values[kind % 18]);
    }
  }
  hy__config c;
  if (hy__config_parse("fuzz", text, length, &c) != HY_OK) return 0;
  if (c.vocab_size < 1 || c.hidden_size < 1 || c.n_layers < 1 || c.n_kv_heads < 1 ||
      c.head_dim < 1 || c.head_dim % 2 || c.n_heads % c.n_kv_heads || c.max_positions < 1)
    __builtin_trap();
  if (hy__config_parameters(&c) < 1) __builtin_trap();
  return 0;
}
