// Fuzz target: tokenizer.json, encoding and decoding.
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "fuzz/fuzz.h"
#include "model/byte_tokenizer.h"
#include "model/nfc.h"
#include "model/tokenizer.h"

static const char* good_json(void) {
  static char* made;
  static const char text[] = "the theme of these threads is the same: then and there, 12 or 13";
  hy__bpe_merge merges[24];
  int count;
  if (made) return made;
  if (hy__bpe_train(text, sizeof text - 1, hy__byte_tokenizer_pattern, 24, merges, &count) != HY_OK)
    __builtin_trap();
  if (hy__byte_tokenizer_json(merges, count, &made) != HY_OK) __builtin_trap();
  return made;
}

// Ids are tokens, and with a good vocabulary of all bytes they stand for the text.
static void encode(const hy__tokenizer* t, bool good, const char* text, size_t length) {
  int32_t ids[4096];
  int64_t count;
  if (hy__tokenizer_encode(t, text, length, true, ids, 4096, &count) != HY_OK) return;
  size_t total = 0;
  for (int64_t i = 0; i < count && i < 4096; i++) {
    size_t size;
    bool special;
    if (ids[i] < 0 || ids[i] >= hy__tokenizer_size(t)) __builtin_trap();
    if (!hy__tokenizer_bytes(t, ids[i], &size, &special)) __builtin_trap();
    total += size;
  }
  char *clean, *normal;
  size_t clean_length, normal_length;
  if (!good || count > 4096) return;
  if (hy__utf8_repair(text, length, &clean, &clean_length) != HY_OK) return;
  if (hy__nfc(clean, clean_length, &normal, &normal_length) != HY_OK) __builtin_trap();
  if (total != normal_length) __builtin_trap();
  hy__mfree(clean);
  hy__mfree(normal);
}

// A good file with some bytes changed, cut or doubled; then a text for it.
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static hy__tokenizer* untouched;
  fuzz_input in = {data, size};
  const char* good = good_json();
  size_t length = strlen(good);
  int changes = fuzz_byte(&in) % 4;
  if (!untouched && hy__tokenizer_parse("good", good, length, &untouched) != HY_OK)
    __builtin_trap();
  if (changes == 0) {
    encode(untouched, true, (const char*)in.data, in.size);
    return 0;
  }
  char* text = malloc(length + 64);
  memcpy(text, good, length);
  for (int i = 0; i < changes; i++) {
    size_t at = (size_t)(fuzz_bits(&in, 3) % length);
    uint8_t kind = fuzz_byte(&in);
    if (kind % 3 == 0) text[at] = (char)fuzz_byte(&in);
    if (kind % 3 == 1) memmove(text + at, text + at + 1, --length - at);
    if (kind % 3 == 2) text[at] = "0123456789[]{},:\"\\ n"[fuzz_byte(&in) % 20];
  }
  hy__tokenizer* changed;
  if (hy__tokenizer_parse("fuzz", text, length, &changed) == HY_OK) {
    encode(changed, false, (const char*)in.data, in.size);
    hy__tokenizer_free(changed);
  }
  free(text);
  return 0;
}
