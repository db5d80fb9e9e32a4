// Qwen's chat format: each message is <|im_start|>role, a line break, its words, <|im_end|>, a line
// break.
//
// The two markers are put in by their ids, and everything between them is encoded as plain text, so
// that no words can end a message or begin another.
#ifndef HALYARD_MODEL_CHAT_H_
#define HALYARD_MODEL_CHAT_H_

#include <stddef.h>

#include "model/tokenizer.h"

#define HY__CHAT_START "<|im_start|>"
#define HY__CHAT_END "<|im_end|>"

typedef struct hy__chat_markers {
  int32_t start, end;
} hy__chat_markers;

bool hy__chat_is_role(const char* role);  // system, user, assistant, tool
// HY_FORMAT where the tokenizer has no such markers.
hy_status hy__chat_find_markers(const hy__tokenizer* tokenizer, hy__chat_markers* markers);

// Token ids that grow.
typedef struct hy__chat_ids {
  int32_t* list;  // freed by the caller
  int64_t n, capacity;
} hy__chat_ids;

hy_status hy__chat_reserve(hy__chat_ids* ids, int64_t more);
hy_status hy__chat_put(hy__chat_ids* ids, int32_t id);
// Plain text.
hy_status hy__chat_put_text(const hy__tokenizer* tokenizer, const char* text, size_t length,
                            hy__chat_ids* ids);
// A message without its end; with no words, the beginning of an answer. The words may hold zero
// bytes.
hy_status hy__chat_put_open(const hy__tokenizer* tokenizer, const hy__chat_markers* markers,
                            const char* role, const char* words, size_t length, hy__chat_ids* ids);
// The end of a message.
hy_status hy__chat_put_end(const hy__tokenizer* tokenizer, const hy__chat_markers* markers,
                           hy__chat_ids* ids);

// "role\nwords", terminated, to encode in one piece; freed by the caller.
hy_status hy__chat_text(const char* role, const char* words, size_t length, char** text);

#endif  // HALYARD_MODEL_CHAT_H_
