// Chat format: messages as Qwen's templates write them, markers by their ids.
#include "model/chat.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "model/model.h"

bool hy__chat_is_role(const char* role) {
  static const char* const roles[] = {"system", "user", "assistant", "tool"};
  for (size_t i = 0; i < sizeof roles / sizeof roles[0]; i++) {
    if (strcmp(role, roles[i]) == 0) return true;
  }
  return false;
}

hy_status hy__chat_find_markers(const hy__tokenizer* tokenizer, hy__chat_markers* markers) {
  markers->start = hy__tokenizer_added_id(tokenizer, HY__CHAT_START);
  markers->end = hy__tokenizer_added_id(tokenizer, HY__CHAT_END);
  if (markers->start >= 0 && markers->end >= 0) return HY_OK;
  return hy_fail(HY_FORMAT,
                 "the model has no " HY__CHAT_START " and " HY__CHAT_END " to chat with");
}

hy_status hy__chat_text(const char* role, const char* words, size_t length, char** text) {
  size_t head = strlen(role) + 1;
  *text = hy__malloc(head + length + 1);
  if (!*text) return hy_fail(HY_OUT_OF_MEMORY, "no memory for a message of %zu bytes", length);
  memcpy(*text, role, head - 1);
  (*text)[head - 1] = '\n';
  if (length > 0) memcpy(*text + head, words, length);
  (*text)[head + length] = 0;
  return HY_OK;
}

hy_status hy__chat_reserve(hy__chat_ids* ids, int64_t more) {
  if (more <= ids->capacity - ids->n) return HY_OK;
  int64_t capacity = ids->n + more + ids->capacity / 2;
  int32_t* list = hy__realloc(ids->list, (size_t)capacity * sizeof *list);
  if (!list)
    return hy_fail(HY_OUT_OF_MEMORY, "no memory for a conversation of %lld tokens",
                   (long long)capacity);
  ids->list = list;
  ids->capacity = capacity;
  return HY_OK;
}

hy_status hy__chat_put(hy__chat_ids* ids, int32_t id) {
  HY_TRY(hy__chat_reserve(ids, 1));
  ids->list[ids->n++] = id;
  return HY_OK;
}

hy_status hy__chat_put_text(const hy__tokenizer* tokenizer, const char* text, size_t length,
                            hy__chat_ids* ids) {
  int64_t count = (int64_t)length + 16;
  // A byte is at most one token, but normalising can make a text longer.
  for (int turn = 0; turn < 2; turn++) {
    HY_TRY(hy__chat_reserve(ids, count));
    HY_TRY(hy__tokenizer_encode(tokenizer, text, length, HY__ENCODE_PLAIN, ids->list + ids->n,
                                ids->capacity - ids->n, &count));
    if (count <= ids->capacity - ids->n) break;
  }
  ids->n += count;
  return HY_OK;
}

hy_status hy__chat_put_open(const hy__tokenizer* tokenizer, const hy__chat_markers* markers,
                            const char* role, const char* words, size_t length, hy__chat_ids* ids) {
  char* text;
  HY_TRY(hy__chat_text(role, words, length, &text));
  hy_status status = hy__chat_put(ids, markers->start);
  if (status == HY_OK) status = hy__chat_put_text(tokenizer, text, strlen(role) + 1 + length, ids);
  hy__mfree(text);
  return status;
}

hy_status hy__chat_put_end(const hy__tokenizer* tokenizer, const hy__chat_markers* markers,
                           hy__chat_ids* ids) {
  HY_TRY(hy__chat_put(ids, markers->end));
  return hy__chat_put_text(tokenizer, "\n", 1, ids);
}

// ---- the public form ----

static hy_status put_all(const hy__tokenizer* tokenizer, const hy_message* messages, int n,
                         bool answer, hy__chat_ids* ids) {
  hy__chat_markers markers;
  HY_TRY(hy__chat_find_markers(tokenizer, &markers));
  for (int i = 0; i < n; i++) {
    const hy_message* m = &messages[i];
    if (!m->role || !m->content || !hy__chat_is_role(m->role))
      return hy_fail(
          HY_INVALID_ARGUMENT,
          "hy_model_encode_chat: message %d needs a content, and a role of system, user, "
          "assistant and tool",
          i);
    HY_TRY(hy__chat_put_open(tokenizer, &markers, m->role, m->content, strlen(m->content), ids));
    HY_TRY(hy__chat_put_end(tokenizer, &markers, ids));
  }
  return answer ? hy__chat_put_open(tokenizer, &markers, "assistant", "", 0, ids) : HY_OK;
}

hy_status hy_model_encode_chat(const hy_model* model, const hy_message* messages, int n,
                               bool answer, int32_t* ids, int64_t capacity, int64_t* count) {
  if (!model || n < 0 || (n > 0 && !messages) || !count || (!ids && capacity > 0))
    return hy_fail(HY_INVALID_ARGUMENT, "hy_model_encode_chat: an argument is NULL");
  *count = 0;
  HY_TRY(hy__model_need_tokenizer(model));
  hy__chat_ids all = {0};
  hy_status status = put_all(model->tokenizer, messages, n, answer, &all);
  if (status == HY_OK) {
    int64_t fitting = all.n < capacity ? all.n : capacity;
    if (fitting > 0) memcpy(ids, all.list, (size_t)fitting * sizeof *ids);
    *count = all.n;
  }
  hy__mfree(all.list);
  return status;
}
