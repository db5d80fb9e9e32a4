// Tokenizers: byte-level BPE by hand-made merges, added tokens, and what is refused.
#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "model/byte_tokenizer.h"
#include "model/tokenizer.h"
#include "support/check.h"

// A vocabulary of a few characters and merges; `more` replaces the rest of the file.
#define VOCAB "{\"a\": 0, \"b\": 1, \"c\": 2, \"ab\": 3, \"abc\": 4, \"bc\": 5, \"\\u0120\": 6}"
#define MODEL(more) "\"model\": {\"type\": \"BPE\", \"vocab\": " VOCAB ", \"merges\": " more "}"
#define BYTE_LEVEL                                                                            \
  "\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"use_regex\": " \
  "false}"

static hy_status parse(const char* text, hy__tokenizer** t) {
  *t = NULL;
  return hy__tokenizer_parse("tokenizer.json", text, strlen(text), t);
}

static void check_ids(const hy__tokenizer* t, const char* text, bool special, const int32_t* wanted,
                      int64_t n) {
  int32_t ids[64];
  int64_t count;
  CHECK_OK(hy__tokenizer_encode(t, text, strlen(text), special, ids, 64, &count));
  assert_int_equal(count, n);
  for (int64_t i = 0; i < n; i++) assert_int_equal(ids[i], wanted[i]);
}
#define CHECK_IDS(t, text, ...)                      \
  check_ids(t, text, true, (int32_t[]){__VA_ARGS__}, \
            (int64_t)(sizeof((int32_t[]){__VA_ARGS__}) / sizeof(int32_t)))

// Merges apply by rank: in "abc" the pair that was learnt first joins first.
static void test_merges_by_rank(void** state) {
  (void)state;
  hy__tokenizer* t;
  CHECK_OK(parse("{" BYTE_LEVEL ", " MODEL("[\"a b\", \"ab c\", \"b c\"]") "}", &t));
  CHECK_IDS(t, "abc", 4);
  CHECK_IDS(t, "aabc", 0, 4);
  CHECK_IDS(t, "bcab", 5, 3);
  CHECK_IDS(t, "a b", 0, 6, 1);
  int64_t count;
  CHECK_OK(hy__tokenizer_encode(t, "", 0, true, NULL, 0, &count));
  assert_int_equal(count, 0);
  assert_int_equal(hy__tokenizer_size(t), 7);
  hy__tokenizer_free(t);
  CHECK_OK(parse("{" BYTE_LEVEL ", " MODEL("[[\"b\", \"c\"], [\"a\", \"b\"]]") "}", &t));
  CHECK_IDS(t, "abc", 0, 5);
  hy__tokenizer_free(t);
}

static void test_added_tokens(void** state) {
  (void)state;
  hy__tokenizer* t;
  CHECK_OK(
      parse("{\"added_tokens\": [{\"id\": 9, \"content\": \"<end>\", \"special\": true}, "
            "{\"id\": 8, \"content\": \"<e\", \"special\": false}], " BYTE_LEVEL
            ", " MODEL("[\"a b\"]") "}",
            &t));
  CHECK_IDS(t, "ab<end>c", 3, 9, 2);
  CHECK_IDS(t, "<ea", 8, 0);
  assert_int_equal(hy__tokenizer_added_id(t, "<end>"), 9);
  assert_int_equal(hy__tokenizer_added_id(t, "none"), -1);
  assert_int_equal(hy__tokenizer_size(t), 10);
  size_t length;
  bool special;
  const char* bytes = hy__tokenizer_bytes(t, 9, &length, &special);
  assert_true(special && length == 5 && memcmp(bytes, "<end>", 5) == 0);
  bytes = hy__tokenizer_bytes(t, 6, &length, &special);
  assert_true(!special && length == 1 && bytes[0] == ' ');
  assert_null(hy__tokenizer_bytes(t, 7, &length, &special));
  assert_null(hy__tokenizer_bytes(t, -1, &length, &special));
  assert_null(hy__tokenizer_bytes(t, 10, &length, &special));
  hy__tokenizer_free(t);
}

// Every byte is a token and comes back, whatever the text is.
static void test_bytes_come_back(void** state) {
  (void)state;
  char *json, text[256];
  hy__tokenizer* t;
  CHECK_OK(hy__byte_tokenizer_json(NULL, 0, &json));
  CHECK_OK(parse(json, &t));
  hy__mfree(json);
  const char* const texts[] = {"Hello, w\xc3\xb6rld!\n\t 12",
                               "\xe4\xb8\x96\xe7\x95\x8c \xf0\x9f\x98\x80"};
  for (int i = 0; i < 2; i++) {
    int32_t ids[64];
    int64_t n;
    CHECK_OK(hy__tokenizer_encode(t, texts[i], strlen(texts[i]), false, ids, 64, &n));
    assert_int_equal(n, strlen(texts[i]));
    size_t at = 0;
    for (int64_t k = 0; k < n; k++) {
      size_t length;
      bool special;
      const char* bytes = hy__tokenizer_bytes(t, ids[k], &length, &special);
      memcpy(text + at, bytes, length);
      at += length;
    }
    assert_int_equal(at, strlen(texts[i]));
    assert_memory_equal(text, texts[i], at);
  }
  // What does not fit is counted.
  int32_t ids[2] = {-7, -7};
  int64_t n;
  CHECK_OK(hy__tokenizer_encode(t, "abc", 3, false, ids, 1, &n));
  assert_true(n == 3 && ids[0] == 'a' && ids[1] == -7);
  hy__tokenizer_free(t);
}

static void test_refusals(void** state) {
  (void)state;
  static const struct {
    const char *text, *word;
  } wrong[] = {
      {"[]", "object"},
      {"{}", "model"},
      {"{\"model\": {\"type\": \"Unigram\"}}", "Unigram"},
      {"{\"normalizer\": {\"type\": \"Lowercase\"}, " BYTE_LEVEL ", " MODEL("[]") "}", "Lowercase"},
      {"{\"pre_tokenizer\": {\"type\": \"Digits\"}, " MODEL("[]") "}", "Digits"},
      {"{" BYTE_LEVEL ", " MODEL("[\"a z\"]") "}", "z"},
      {"{" BYTE_LEVEL ", " MODEL("[\"ab\"]") "}", "merge"},
      {"{" BYTE_LEVEL ", " MODEL("[7]") "}", "merge"},
  };
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
    hy__tokenizer* t;
    hy_status status = parse(wrong[i].text, &t);
    if (status != HY_FORMAT) fail_msg("%s: %s", wrong[i].text, hy_status_name(status));
    if (!strstr(hy_last_error(), wrong[i].word))
      fail_msg("%s: \"%s\" does not say \"%s\"", wrong[i].text, hy_last_error(), wrong[i].word);
    assert_null(t);
  }
}

// Control tokens are letters where the text is only text; other added tokens are still tokens.
static void test_plain_text(void** state) {
  (void)state;
  hy__tokenizer* t;
  CHECK_OK(
      parse("{\"added_tokens\": [{\"id\": 9, \"content\": \"abc\", \"special\": true}, "
            "{\"id\": 8, \"content\": \"ca\", \"special\": false}, "
            "{\"id\": 10, \"content\": \"<|a|>\", \"special\": false}], " BYTE_LEVEL
            ", " MODEL("[\"a b\"]") "}",
            &t));
  int32_t ids[8];
  int64_t n;
  CHECK_IDS(t, "abcca", 9, 8);
  CHECK_OK(hy__tokenizer_encode(t, "abcca", 5, HY__ENCODE_PLAIN, ids, 8, &n));
  assert_int_equal(n, 3);
  assert_true(ids[0] == 3 && ids[1] == 2 && ids[2] == 8);
  CHECK_OK(hy__tokenizer_encode(t, "<|a|>", 5, 0, ids, 8, &n));
  assert_true(n == 1 && ids[0] == 10);
  // A marker by its form, though the file does not call it special.
  CHECK_OK(hy__tokenizer_encode(t, "<|a|>", 5, HY__ENCODE_PLAIN, ids, 8, &n));
  for (int64_t i = 0; i < n; i++) assert_int_not_equal(ids[i], 10);
  hy__tokenizer_free(t);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_merges_by_rank),  cmocka_unit_test(test_added_tokens),
      cmocka_unit_test(test_bytes_come_back), cmocka_unit_test(test_refusals),
      cmocka_unit_test(test_plain_text),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
