// A JSON reader: the whole text becomes a tree in one arena.
#include "base/json_read.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

// ---- the arena ----

typedef struct chunk {
  struct chunk* next;
  size_t used, size;
  max_align_t memory[];
} chunk;

struct hy__json_document {
  chunk* chunks;
  hy__json* root;
};

static void* take(hy__json_document* document, size_t bytes) {
  bytes = (bytes + 15) & ~(size_t)15;
  chunk* c = document->chunks;
  if (!c || c->size - c->used < bytes) {
    size_t size = bytes > 65536 ? bytes : 65536;
    c = hy__malloc(sizeof *c + size);
    if (!c) return NULL;
    c->next = document->chunks;
    c->used = 0;
    c->size = size;
    document->chunks = c;
  }
  void* p = (char*)c->memory + c->used;
  c->used += bytes;
  return p;
}

void hy__json_free(hy__json_document* document) {
  if (!document) return;
  while (document->chunks) {
    chunk* next = document->chunks->next;
    hy__mfree(document->chunks);
    document->chunks = next;
  }
  hy__mfree(document);
}

const hy__json* hy__json_root(const hy__json_document* document) {
  return document->root;
}

// ---- the parser ----

typedef struct parser {
  const char* name;
  const char *start, *at, *end;
  hy__json_document* document;
} parser;

static hy_status fail_at(const parser* p, const char* where, const char* what) {
  int line = 1;
  const char* line_start = p->start;
  for (const char* c = p->start; c < where; c++) {
    if (*c != '\n') continue;
    line++;
    line_start = c + 1;
  }
  return hy_fail(HY_FORMAT, "%s: line %d, column %d: %s", p->name, line,
                 (int)(where - line_start) + 1, what);
}

static hy_status out_of_memory(const parser* p) {
  return hy_fail(HY_OUT_OF_MEMORY, "%s: no memory to read it", p->name);
}

static void skip_space(parser* p) {
  while (p->at < p->end && (*p->at == ' ' || *p->at == '\t' || *p->at == '\n' || *p->at == '\r'))
    p->at++;
}

static bool take_char(parser* p, char c) {
  if (p->at >= p->end || *p->at != c) return false;
  p->at++;
  return true;
}

// Length of the UTF-8 sequence at `s`, 0 where it is none: no overlong forms, surrogates or values
// past U+10FFFF.
static int utf8_length(const unsigned char* s, const unsigned char* end) {
  int n = s[0] < 0x80                   ? 1
          : s[0] >= 0xc2 && s[0] < 0xe0 ? 2
          : s[0] >= 0xe0 && s[0] < 0xf0 ? 3
          : s[0] >= 0xf0 && s[0] < 0xf5 ? 4
                                        : 0;
  if (n == 0 || end - s < n) return 0;
  for (int i = 1; i < n; i++) {
    if ((s[i] & 0xc0) != 0x80) return 0;
  }
  if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) ||
      (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f))
    return 0;
  return n;
}

static char* put_utf8(char* out, uint32_t c) {
  if (c < 0x80) {
    *out++ = (char)c;
  } else if (c < 0x800) {
    *out++ = (char)(0xc0 | c >> 6);
    *out++ = (char)(0x80 | (c & 0x3f));
  } else if (c < 0x10000) {
    *out++ = (char)(0xe0 | c >> 12);
    *out++ = (char)(0x80 | (c >> 6 & 0x3f));
    *out++ = (char)(0x80 | (c & 0x3f));
  } else {
    *out++ = (char)(0xf0 | c >> 18);
    *out++ = (char)(0x80 | (c >> 12 & 0x3f));
    *out++ = (char)(0x80 | (c >> 6 & 0x3f));
    *out++ = (char)(0x80 | (c & 0x3f));
  }
  return out;
}

static bool take_hex4(parser* p, uint32_t* value) {
  if (p->end - p->at < 4) return false;
  *value = 0;
  for (int i = 0; i < 4; i++) {
    char c = *p->at++;
    int digit = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : -1;
    if (digit < 0) return false;
    *value = *value << 4 | (uint32_t)digit;
  }
  return true;
}

static hy_status parse_escape(parser* p, char** out) {
  const char* start = p->at - 1;
  char c = p->at < p->end ? *p->at++ : 0;
  const char *from = "\"\\/bfnrt", *to = "\"\\/\b\f\n\r\t", *found = c ? strchr(from, c) : NULL;
  if (found) {
    *(*out)++ = to[found - from];
    return HY_OK;
  }
  uint32_t code, low;
  if (c != 'u' || !take_hex4(p, &code))
    return fail_at(p, start, "an escape that JSON does not have");
  if (code >= 0xd800 && code < 0xdc00) {
    if (!take_char(p, '\\') || !take_char(p, 'u') || !take_hex4(p, &low) || low < 0xdc00 ||
        low > 0xdfff)
      return fail_at(p, start, "half of a surrogate pair");
    code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
  } else if (code >= 0xdc00 && code < 0xe000) {
    return fail_at(p, start, "half of a surrogate pair");
  }
  *out = put_utf8(*out, code);
  return HY_OK;
}

// The opening quote has been read. No escape is shorter than what it stands for, so the text up to
// the closing quote bounds the result.
static hy_status parse_string(parser* p, const char** text, size_t* length) {
  const char* start = p->at - 1;
  const char* close = p->at;
  while (close < p->end && *close != '"') close += *close == '\\' ? 2 : 1;
  if (close >= p->end) return fail_at(p, start, "a string that does not end");
  char* buffer = take(p->document, (size_t)(close - p->at) + 1);
  if (!buffer) return out_of_memory(p);
  char* out = buffer;
  while (p->at < close) {
    unsigned char c = (unsigned char)*p->at;
    if (c < 0x20) return fail_at(p, p->at, "a control character inside a string");
    if (c == '\\') {
      p->at++;
      HY_TRY(parse_escape(p, &out));
      continue;
    }
    int n = utf8_length((const unsigned char*)p->at, (const unsigned char*)close);
    if (n == 0) return fail_at(p, p->at, "bytes that are not UTF-8");
    memcpy(out, p->at, (size_t)n);
    out += n;
    p->at += n;
  }
  *out = 0;
  p->at = close + 1;
  *text = buffer;
  *length = (size_t)(out - buffer);
  return HY_OK;
}

static bool is_digit(const parser* p) {
  return p->at < p->end && *p->at >= '0' && *p->at <= '9';
}

static hy_status parse_number(parser* p, hy__json* value) {
  const char* start = p->at;
  bool whole = true;
  take_char(p, '-');
  if (!is_digit(p)) return fail_at(p, start, "a value was expected");
  if (!take_char(p, '0')) {
    while (is_digit(p)) p->at++;
  }
  if (take_char(p, '.')) {
    whole = false;
    if (!is_digit(p)) return fail_at(p, start, "digits are missing after the point");
    while (is_digit(p)) p->at++;
  }
  if (p->at < p->end && (*p->at == 'e' || *p->at == 'E')) {
    whole = false;
    p->at++;
    if (!take_char(p, '+')) take_char(p, '-');
    if (!is_digit(p)) return fail_at(p, start, "digits are missing in the exponent");
    while (is_digit(p)) p->at++;
  }
  char digits[128];
  size_t length = (size_t)(p->at - start);
  if (length >= sizeof digits) return fail_at(p, start, "a number of more than 127 characters");
  memcpy(digits, start, length);
  digits[length] = 0;
  value->kind = HY__JSON_NUMBER;
  value->number = strtod(digits, NULL);
  if (!isfinite(value->number)) return fail_at(p, start, "a number too large");
  errno = 0;
  value->integer = whole ? strtoll(digits, NULL, 10) : 0;
  value->is_integer = whole && errno == 0;
  return HY_OK;
}

static bool take_word(parser* p, const char* word) {
  size_t length = strlen(word);
  if ((size_t)(p->end - p->at) < length || memcmp(p->at, word, length) != 0) return false;
  p->at += length;
  return true;
}

static hy_status parse_value(parser* p, int depth, hy__json** out);

static hy_status parse_members(parser* p, int depth, hy__json* value) {
  bool object = value->kind == HY__JSON_OBJECT;
  char close = object ? '}' : ']';
  hy__json** link = &value->first;
  skip_space(p);
  if (take_char(p, close)) return HY_OK;
  for (;;) {
    const char* key = NULL;
    size_t key_length = 0;
    skip_space(p);
    if (object) {
      if (!take_char(p, '"')) return fail_at(p, p->at, "a key in quotes was expected");
      HY_TRY(parse_string(p, &key, &key_length));
      skip_space(p);
      if (!take_char(p, ':')) return fail_at(p, p->at, "':' was expected after the key");
    }
    hy__json* member;
    HY_TRY(parse_value(p, depth + 1, &member));
    member->key = key;
    member->key_length = key_length;
    *link = member;
    link = &member->next;
    value->length++;
    skip_space(p);
    if (take_char(p, close)) return HY_OK;
    if (!take_char(p, ','))
      return fail_at(p, p->at, object ? "',' or '}' was expected" : "',' or ']' was expected");
  }
}

static hy_status parse_value(parser* p, int depth, hy__json** out) {
  if (depth > HY__JSON_DEPTH) return fail_at(p, p->at, "values nested too deeply");
  hy__json* value = take(p->document, sizeof *value);
  if (!value) return out_of_memory(p);
  memset(value, 0, sizeof *value);
  *out = value;
  skip_space(p);
  if (p->at >= p->end) return fail_at(p, p->at, "the text ends where a value was expected");
  switch (*p->at) {
    case '{':
    case '[':
      value->kind = *p->at++ == '{' ? HY__JSON_OBJECT : HY__JSON_ARRAY;
      return parse_members(p, depth, value);
    case '"':
      p->at++;
      value->kind = HY__JSON_STRING;
      return parse_string(p, &value->text, &value->length);
    case 't':
    case 'f':
      value->kind = HY__JSON_BOOL;
      value->boolean = *p->at == 't';
      if (!take_word(p, value->boolean ? "true" : "false"))
        return fail_at(p, p->at, "a value was expected");
      return HY_OK;
    case 'n':
      if (!take_word(p, "null")) return fail_at(p, p->at, "a value was expected");
      return HY_OK;
    default: return parse_number(p, value);
  }
}

hy_status hy__json_parse(const char* name, const char* text, size_t length,
                         hy__json_document** document) {
  hy__json_document* d = hy__calloc(1, sizeof *d);
  if (!d) return hy_fail(HY_OUT_OF_MEMORY, "%s: no memory to read it", name);
  parser p = {.name = name, .start = text, .at = text, .end = text + length, .document = d};
  hy_status status = parse_value(&p, 0, &d->root);
  if (status == HY_OK) {
    skip_space(&p);
    if (p.at != p.end) status = fail_at(&p, p.at, "more text after the value");
  }
  if (status != HY_OK) {
    hy__json_free(d);
    d = NULL;
  }
  *document = d;
  return status;
}

// ---- looking things up ----

const hy__json* hy__json_get(const hy__json* object, const char* key) {
  if (!object || object->kind != HY__JSON_OBJECT) return NULL;
  const hy__json* found = NULL;
  size_t length = strlen(key);
  for (const hy__json* m = object->first; m; m = m->next) {
    if (m->key_length == length && memcmp(m->key, key, length) == 0) found = m;
  }
  return found;
}

static bool is_given(const hy__json* value) {
  return value && value->kind != HY__JSON_NULL;
}

hy_status hy__json_get_int(const hy__json* object, const char* key, int64_t fallback,
                           int64_t* value) {
  const hy__json* member = hy__json_get(object, key);
  *value = is_given(member) ? member->integer : fallback;
  if (is_given(member) && !member->is_integer)
    return hy_fail(HY_FORMAT, "\"%s\" must be a whole number", key);
  return HY_OK;
}

hy_status hy__json_get_real(const hy__json* object, const char* key, double fallback,
                            double* value) {
  const hy__json* member = hy__json_get(object, key);
  *value = is_given(member) ? member->number : fallback;
  if (is_given(member) && member->kind != HY__JSON_NUMBER)
    return hy_fail(HY_FORMAT, "\"%s\" must be a number", key);
  return HY_OK;
}

hy_status hy__json_get_bool(const hy__json* object, const char* key, bool fallback, bool* value) {
  const hy__json* member = hy__json_get(object, key);
  *value = is_given(member) ? member->boolean : fallback;
  if (is_given(member) && member->kind != HY__JSON_BOOL)
    return hy_fail(HY_FORMAT, "\"%s\" must be true or false", key);
  return HY_OK;
}

hy_status hy__json_get_text(const hy__json* object, const char* key, const char* fallback,
                            const char** value) {
  const hy__json* member = hy__json_get(object, key);
  *value = is_given(member) ? member->text : fallback;
  if (is_given(member) && member->kind != HY__JSON_STRING)
    return hy_fail(HY_FORMAT, "\"%s\" must be a text", key);
  return HY_OK;
}
