#include "model/byte_tokenizer.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/internal.h"
#include "model/file.h"

static const char* const specials[] = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};

static bool is_printable(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

// Each byte as the character that byte-level vocabularies write for it.
static void write_vocabulary(FILE* f) {
  for (int byte = 0, next = 256; byte < 256; byte++)
    fprintf(f, "%s\"\\u%04x\": %d", byte ? ", " : "", is_printable(byte) ? byte : next++, byte);
}

static void write_tokenizer(FILE* f) {
  fprintf(f, "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n");
  fprintf(f, "  \"added_tokens\": [");
  for (int i = 0; i < 3; i++)
    fprintf(f,
            "%s\n    {\"id\": %d, \"content\": \"%s\", \"single_word\": false, \"lstrip\": false, "
            "\"rstrip\": false, \"normalized\": false, \"special\": true}",
            i ? "," : "", HY__BYTE_TOKEN_END + i, specials[i]);
  fprintf(f, "\n  ],\n  \"normalizer\": null,\n");
  fprintf(f,
          "  \"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
          "\"trim_offsets\": false, \"use_regex\": false},\n");
  fprintf(f,
          "  \"post_processor\": null,\n  \"decoder\": {\"type\": \"ByteLevel\", "
          "\"add_prefix_space\": false, \"trim_offsets\": false, \"use_regex\": false},\n");
  fprintf(f,
          "  \"model\": {\"type\": \"BPE\", \"dropout\": null, \"unk_token\": null, "
          "\"continuing_subword_prefix\": null, \"end_of_word_suffix\": null, "
          "\"fuse_unk\": false, \"byte_fallback\": false, \"ignore_merges\": false,\n"
          "    \"vocab\": {");
  write_vocabulary(f);
  fprintf(f, "},\n    \"merges\": []}\n}\n");
}

hy_status hy__byte_tokenizer_json(char** text) {
  size_t size;
  *text = NULL;
  char* written = NULL;
  FILE* f = open_memstream(&written, &size);
  if (f) {
    write_tokenizer(f);
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

hy_status hy__byte_tokenizer_save(const char* folder) {
  char* text;
  HY_TRY(hy__byte_tokenizer_json(&text));
  hy_status status = save(folder, "tokenizer.json", text);
  hy__mfree(text);
  if (status == HY_OK)
    status = save(folder, "tokenizer_config.json",
                  "{\"tokenizer_class\": \"PreTrainedTokenizerFast\", \"eos_token\": "
                  "\"<|endoftext|>\", \"clean_up_tokenization_spaces\": false}\n");
  if (status == HY_OK)
    status = save(folder, "generation_config.json", "{\"eos_token_id\": [256, 258]}\n");
  return status;
}
