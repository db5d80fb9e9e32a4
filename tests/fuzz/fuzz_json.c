// Fuzz target: the JSON reader.
#include <string.h>

#include "base/json_read.h"
#include "fuzz/fuzz.h"

static size_t walk(const hy__json* value) {
  size_t count = 1;
  if (value->kind == HY__JSON_STRING && value->text[value->length] != 0) __builtin_trap();
  for (const hy__json* m = value->first; m; m = m->next) {
    if (value->kind == HY__JSON_OBJECT && hy__json_get(value, m->key) == NULL &&
        strlen(m->key) == m->key_length)
      __builtin_trap();
    count += walk(m);
  }
  return count;
}

// Half of the inputs are turned into text that looks like JSON, for noise alone is refused at its
// first byte.
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const char pieces[][9] = {"{", "}",      "[",    "]",    ",", ":",  "\"a\"", "\"\\u00e9\"",
                                   "1", "-2.5e3", "true", "null", " ", "\"", "\\",    "\xc3\xa9"};
  static char text[8192];
  size_t length = 0;
  if (size > 0 && data[0] % 2) {
    for (size_t i = 1; i < size && length + 9 < sizeof text; i++) {
      const char* piece = pieces[data[i] % 16];
      memcpy(text + length, piece, strlen(piece));
      length += strlen(piece);
    }
  } else {
    length = size < sizeof text ? size : sizeof text;
    memcpy(text, data, length);
  }
  hy__json_document* document;
  if (hy__json_parse("fuzz", text, length, &document) == HY_OK) {
    walk(hy__json_root(document));
    hy__json_free(document);
  }
  return 0;
}
