// Chat format: messages as Qwen's templates write them.
#include "model/chat.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"

bool hy__chat_is_role(const char* role) {
  static const char* const roles[] = {"system", "user", "assistant", "tool"};
  for (size_t i = 0; i < sizeof roles / sizeof roles[0]; i++) {
    if (strcmp(role, roles[i]) == 0) return true;
  }
  return false;
}

hy_status hy__chat_render(const char* role, const char* words, size_t length, hy__chat_text* chat) {
  size_t head = strlen(HY__CHAT_START) + strlen(role) + 1, tail = strlen(HY__CHAT_END);
  chat->length = head + length + tail + 1;
  chat->content = head;
  chat->end = head + length + tail;
  chat->text = hy__malloc(chat->length + 1);
  if (!chat->text) return hy_fail(HY_OUT_OF_MEMORY, "no memory for a message of %zu bytes", length);
  snprintf(chat->text, head + 1, HY__CHAT_START "%s\n", role);
  memcpy(chat->text + head, words, length);
  snprintf(chat->text + head + length, tail + 2, HY__CHAT_END "\n");
  return HY_OK;
}
