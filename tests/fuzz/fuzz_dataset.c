// Fuzz target: JSONL datasets.
#include <string.h>

#include "base/memory.h"
#include "fuzz/fuzz.h"
#include "model/byte_tokenizer.h"
#include "model/dataset.h"

static const hy__tokenizer* tokenizer(void) {
  static hy__tokenizer* made;
  char* text;
  if (made) return made;
  if (hy__byte_tokenizer_json(NULL, 0, &text) != HY_OK) __builtin_trap();
  if (hy__tokenizer_parse("bytes", text, strlen(text), &made) != HY_OK) __builtin_trap();
  hy__mfree(text);
  return made;
}

// What a dataset gives out are tokens, and targets that are tokens or do not count.
static void read_rows(hy__dataset* d, int64_t length) {
  int32_t tokens[64], targets[64];
  for (int64_t step = 0; step < 3; step++) {
    if (hy__dataset_batch(d, step, 2, tokens, targets) != HY_OK) break;
    for (int64_t i = 0; i < 2 * length; i++) {
      if (tokens[i] < 0 || tokens[i] >= HY__BYTE_TOKENS) __builtin_trap();
      if (targets[i] != HY__IGNORE && (targets[i] < 0 || targets[i] >= HY__BYTE_TOKENS))
        __builtin_trap();
    }
  }
  hy__dataset_evaluation(d, 0, 2, tokens, targets);
}

// Lines put together from pieces that fit, now and then, and noise.
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const char* const pieces[] = {
      "{\"text\": \"",
      "\"}\n",
      "{\"messages\": [",
      "{\"role\": \"user\", \"content\": \"",
      "{\"role\": \"assistant\", \"content\": \"",
      "\"}, ",
      "\"}]}\n",
      "\n",
      "word ",
      "<|im_end|>",
      "\\n",
      "\xc3\xa9",
      "\xff",
      "{\"text\": 1}\n",
      "{\"messages\": []}\n",
      "\"",
  };
  static char text[8192];
  fuzz_input in = {data, size};
  hy__dataset_options options = {.length = 2 + fuzz_byte(&in) % 30,
                                 .seed = fuzz_bits(&in, 2),
                                 .evaluation_share = fuzz_byte(&in) / 300.0,
                                 .end = fuzz_byte(&in) % 2 ? HY__BYTE_TOKEN_END : -1};
  size_t length = 0;
  while (in.size > 0 && length + 64 < sizeof text) {
    uint8_t byte = fuzz_byte(&in);
    if (byte >= 240) {
      text[length++] = (char)fuzz_byte(&in);
      continue;
    }
    const char* piece = pieces[byte % 16];
    memcpy(text + length, piece, strlen(piece));
    length += strlen(piece);
  }
  hy__dataset* dataset;
  if (hy__dataset_create(tokenizer(), &options, &dataset) != HY_OK) return 0;
  // What came before a bad line is there all the same.
  hy__dataset_add_jsonl(dataset, "fuzz", text, length);
  read_rows(dataset, options.length);
  hy__dataset_free(dataset);
  return 0;
}
