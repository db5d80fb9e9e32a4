// Qwen's chat format: each message is <|im_start|>role, a line break, its words, <|im_end|>, a line
// break.
#ifndef HALYARD_MODEL_CHAT_H_
#define HALYARD_MODEL_CHAT_H_

#include <stddef.h>

#include "halyard/tensor.h"

#define HY__CHAT_START "<|im_start|>"
#define HY__CHAT_END "<|im_end|>"

typedef struct hy__chat_text {
  char* text;           // terminated; freed by the caller
  size_t length;        // of it all
  size_t content, end;  // where the words begin, and where the token that ends them does end
} hy__chat_text;

bool hy__chat_is_role(const char* role);  // system, user, assistant, tool
// A message by `role`. The words may hold zero bytes.
hy_status hy__chat_render(const char* role, const char* words, size_t length, hy__chat_text* chat);

#endif  // HALYARD_MODEL_CHAT_H_
