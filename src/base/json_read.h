// Reading JSON: the whole text becomes a tree in one arena.
//
// Strict by RFC 8259: UTF-8 only, no comments, no trailing commas, no lone surrogates, numbers as
// written there. Nesting is limited to HY__JSON_DEPTH. Thread-safe as long as each document is used
// by one thread.
#ifndef HALYARD_BASE_JSON_READ_H_
#define HALYARD_BASE_JSON_READ_H_

#include <stddef.h>
#include <stdint.h>

#include "halyard/tensor.h"

#define HY__JSON_DEPTH 64

typedef enum hy__json_kind {
  HY__JSON_NULL,
  HY__JSON_BOOL,
  HY__JSON_NUMBER,
  HY__JSON_STRING,
  HY__JSON_ARRAY,
  HY__JSON_OBJECT,
} hy__json_kind;

typedef struct hy__json {
  hy__json_kind kind;
  bool boolean;
  bool is_integer;  // the number is written as an integer and fits `integer`
  int64_t integer;
  double number;
  const char* text;  // of a string: terminated, and may contain zero bytes before its end
  size_t length;     // bytes of a string, members of an array or object
  const char* key;   // of a member of an object; NULL elsewhere
  size_t key_length;
  struct hy__json *first, *next;  // members in order
} hy__json;

typedef struct hy__json_document hy__json_document;

// `name` is for messages: HY_FORMAT ones give the line and column. The text may go away afterwards.
hy_status hy__json_parse(const char* name, const char* text, size_t length,
                         hy__json_document** document);
void hy__json_free(hy__json_document* document);  // NULL is fine
const hy__json* hy__json_root(const hy__json_document* document);

// The member of that key (the last, where a key stands twice), or NULL; NULL also when `object` is
// no object or NULL.
const hy__json* hy__json_get(const hy__json* object, const char* key);

// A member with a value of the given kind; `fallback` where it is absent or null, HY_FORMAT where
// it is of another kind.
hy_status hy__json_get_int(const hy__json* object, const char* key, int64_t fallback,
                           int64_t* value);
hy_status hy__json_get_real(const hy__json* object, const char* key, double fallback,
                            double* value);
hy_status hy__json_get_bool(const hy__json* object, const char* key, bool fallback, bool* value);
hy_status hy__json_get_text(const hy__json* object, const char* key, const char* fallback,
                            const char** value);

#endif  // HALYARD_BASE_JSON_READ_H_
