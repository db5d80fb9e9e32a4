// tokenizer.json of bytes and learnt merges, as text.
#include "model/byte_tokenizer.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"

const char hy__byte_tokenizer_pattern[] =
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| "
    "?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

static const char* const specials[] = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};

static bool is_printable(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

// A token as byte-level vocabularies write it: each byte as a character that can be printed.
static void write_letters(FILE* f, const hy__bpe_merge* merges, int32_t token) {
  if (token >= 256) {
    write_letters(f, merges, merges[token - 256].left);
    write_letters(f, merges, merges[token - 256].right);
    return;
  }
  int letter = token;
  if (!is_printable(token)) {
    letter = 256;
    for (int byte = 0; byte < token; byte++) letter += !is_printable(byte);
  }
  fprintf(f, "\\u%04x", (unsigned)letter);
}

static void write_vocabulary(FILE* f, const hy__bpe_merge* merges, int count) {
  for (int i = 0; i < 3; i++)
    fprintf(f, "%s\"%s\": %d", i ? ", " : "", specials[i], HY__BYTE_TOKEN_END + i);
  for (int32_t token = 0; token < 256 + count; token++) {
    fprintf(f, ", \"");
    write_letters(f, merges, token);
    fprintf(f, "\": %d", token < 256 ? token : token - 256 + HY__BYTE_TOKENS);
  }
}

static void write_merges(FILE* f, const hy__bpe_merge* merges, int count) {
  for (int i = 0; i < count; i++) {
    fprintf(f, "%s[\"", i ? ", " : "");
    write_letters(f, merges, merges[i].left);
    fprintf(f, "\", \"");
    write_letters(f, merges, merges[i].right);
    fprintf(f, "\"]");
  }
}

static void write_tokenizer(FILE* f, const hy__bpe_merge* merges, int count) {
  fprintf(f, "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n");
  fprintf(f, "  \"added_tokens\": [");
  for (int i = 0; i < 3; i++)
    fprintf(f,
            "%s\n    {\"id\": %d, \"content\": \"%s\", \"single_word\": false, \"lstrip\": false, "
            "\"rstrip\": false, \"normalized\": false, \"special\": true}",
            i ? "," : "", HY__BYTE_TOKEN_END + i, specials[i]);
  fprintf(
      f,
      "\n  ],\n  \"normalizer\": {\"type\": \"NFC\"},\n  \"pre_tokenizer\": {\"type\": "
      "\"Sequence\", \"pretokenizers\": [\n    {\"type\": \"Split\", \"pattern\": {\"Regex\": \"");
  for (const char* c = hy__byte_tokenizer_pattern; *c; c++)
    fprintf(f, *c == '\\' ? "\\\\" : "%c", *c);
  fprintf(f,
          "\"}, \"behavior\": \"Isolated\", \"invert\": false},\n    {\"type\": \"ByteLevel\", "
          "\"add_prefix_space\": false, \"trim_offsets\": false, \"use_regex\": false}]},\n");
  fprintf(f,
          "  \"post_processor\": null,\n  \"decoder\": {\"type\": \"ByteLevel\", "
          "\"add_prefix_space\": false, \"trim_offsets\": false, \"use_regex\": false},\n");
  fprintf(f,
          "  \"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": null, "
          "\"continuing_subword_prefix\": null, \"end_of_word_suffix\": null, "
          "\"fuse_unk\": false, \"byte_fallback\": false, \"ignore_merges\": false,\n"
          "    \"vocab\": {");
  write_vocabulary(f, merges, count);
  fprintf(f, "},\n    \"merges\": [");
  write_merges(f, merges, count);
  fprintf(f, "]}\n}\n");
}

hy_status hy__byte_tokenizer_json(const hy__bpe_merge* merges, int count, char** text) {
  size_t size;
  *text = NULL;
  char* written = NULL;
  FILE* f = open_memstream(&written, &size);
  if (f) {
    write_tokenizer(f, merges, count);
    if (fclose(f) == 0) *text = hy__strdup(written);
    free(written);
  }
  return *text ? HY_OK : hy_fail(HY_OUT_OF_MEMORY, "no memory for a tokenizer");
}

static hy_status save(const char* folder, const char* name, const char* text) {
  char path[4096];
  hy__writer writer;
  HY_TRY(hy__join_path(folder, name, path, sizeof path));
  HY_TRY(hy__write_begin(path, &writer));
  hy_status status = hy__write(&writer, text, strlen(text));
  if (status == HY_OK) return hy__write_commit(&writer);
  hy__write_abandon(&writer);
  return status;
}

hy_status hy__byte_tokenizer_save(const hy__bpe_merge* merges, int count, const char* folder) {
  char* text;
  HY_TRY(hy__byte_tokenizer_json(merges, count, &text));
  hy_status status = save(folder, "tokenizer.json", text);
  hy__mfree(text);
  if (status == HY_OK)
    status = save(folder, "tokenizer_config.json",
                  "{\"tokenizer_class\": \"Qwen2Tokenizer\", \"eos_token\": "
                  "\"<|endoftext|>\", \"clean_up_tokenization_spaces\": false}\n");
  if (status == HY_OK)
    status = save(folder, "generation_config.json", "{\"eos_token_id\": [256, 258]}\n");
  return status;
}
