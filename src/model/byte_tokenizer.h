// The smallest tokenizer.json there is: one token for each byte, and the tokens of chats.
#ifndef HALYARD_MODEL_BYTE_TOKENIZER_H_
#define HALYARD_MODEL_BYTE_TOKENIZER_H_

#include "halyard/status.h"

enum {
  HY__BYTE_TOKEN_END = 256,  // <|endoftext|>, then <|im_start|> and <|im_end|>
  HY__BYTE_TOKENS = 259,
};

// The file's text, terminated; freed by the caller with hy__mfree.
hy_status hy__byte_tokenizer_json(char** text);
// Writes tokenizer.json, tokenizer_config.json and generation_config.json into a folder, as
// transformers reads them.
hy_status hy__byte_tokenizer_save(const char* folder);

#endif  // HALYARD_MODEL_BYTE_TOKENIZER_H_
