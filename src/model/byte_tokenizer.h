// A tokenizer.json made here, in Qwen2's form: one token for each byte, the tokens of chats, and
// merges of bytes. transformers keeps to that form for every model of this type, so that merges
// have to be learnt with its pattern.
#ifndef HALYARD_MODEL_BYTE_TOKENIZER_H_
#define HALYARD_MODEL_BYTE_TOKENIZER_H_

#include "model/bpe_train.h"

enum {
  HY__BYTE_TOKEN_END = 256,  // <|endoftext|>, then <|im_start|> and <|im_end|>
  HY__BYTE_TOKENS = 259,     // and one more for each merge
};

// Qwen2's pattern, by which texts are cut before bytes merge.
extern const char hy__byte_tokenizer_pattern[];

// The file's text, terminated; freed by the caller with hy__mfree.
hy_status hy__byte_tokenizer_json(const hy__bpe_merge* merges, int count, char** text);
// Writes tokenizer.json, tokenizer_config.json and generation_config.json into a folder, as
// transformers reads them.
hy_status hy__byte_tokenizer_save(const hy__bpe_merge* merges, int count, const char* folder);

#endif  // HALYARD_MODEL_BYTE_TOKENIZER_H_
