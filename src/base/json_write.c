// A JSON writer: values in order, commas and escapes by themselves.
#include "base/json_write.h"

#include <math.h>
#include <string.h>

json_writer json_to(FILE* file) {
  return (json_writer){file, false};
}

// Bytes of the UTF-8 character at p, 0 where there is none: no overlong forms or surrogates.
static int utf8_length(const unsigned char* p) {
  int n = p[0] < 0x80   ? 1
          : p[0] < 0xc2 ? 0
          : p[0] < 0xe0 ? 2
          : p[0] < 0xf0 ? 3
          : p[0] < 0xf5 ? 4
                        : 0;
  for (int i = 1; i < n; i++) {
    if ((p[i] & 0xc0) != 0x80) return 0;
  }
  bool bad = n > 2 && ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) ||
                       (p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] > 0x8f));
  return bad ? 0 : n;
}

// JSON is UTF-8: a byte that is no part of a character is written as U+FFFD.
static void put_string(json_writer* j, const char* text, size_t length) {
  fputc('"', j->file);
  int n;
  const unsigned char* end = (const unsigned char*)text + length;
  for (const unsigned char* p = (const unsigned char*)text; p<end; p += n> 0 ? n : 1) {
    n = utf8_length(p);
    if (n == 0)
      fputs("\\ufffd", j->file);
    else if (n > 1)
      fwrite(p, 1, (size_t)n, j->file);
    else if (*p == '"' || *p == '\\')
      fprintf(j->file, "\\%c", *p);
    else if (*p == '\n')
      fputs("\\n", j->file);
    else if (*p == '\t')
      fputs("\\t", j->file);
    else if (*p < 0x20)
      fprintf(j->file, "\\u%04x", *p);
    else
      fputc(*p, j->file);
  }
  fputc('"', j->file);
}

static void start(json_writer* j, const char* key) {
  if (j->needs_comma) fputs(", ", j->file);
  j->needs_comma = true;
  if (!key) return;
  put_string(j, key, strlen(key));
  fputs(": ", j->file);
}

void json_begin_object(json_writer* j, const char* key) {
  start(j, key);
  fputc('{', j->file);
  j->needs_comma = false;
}

void json_end_object(json_writer* j) {
  fputc('}', j->file);
  j->needs_comma = true;
}

void json_begin_array(json_writer* j, const char* key) {
  start(j, key);
  fputc('[', j->file);
  j->needs_comma = false;
}

void json_end_array(json_writer* j) {
  fputc(']', j->file);
  j->needs_comma = true;
}

void json_text(json_writer* j, const char* key, const char* value) {
  json_bytes(j, key, value, value ? strlen(value) : 0);
}

void json_bytes(json_writer* j, const char* key, const char* value, size_t length) {
  start(j, key);
  if (value)
    put_string(j, value, length);
  else
    fputs("null", j->file);
}

void json_int(json_writer* j, const char* key, int64_t value) {
  start(j, key);
  fprintf(j->file, "%lld", (long long)value);
}

void json_uint(json_writer* j, const char* key, uint64_t value) {
  start(j, key);
  fprintf(j->file, "%llu", (unsigned long long)value);
}

void json_real(json_writer* j, const char* key, double value) {
  start(j, key);
  if (isfinite(value))
    fprintf(j->file, "%.9g", value);
  else
    fputs("null", j->file);
}

void json_bool(json_writer* j, const char* key, bool value) {
  start(j, key);
  fputs(value ? "true" : "false", j->file);
}

void json_null(json_writer* j, const char* key) {
  start(j, key);
  fputs("null", j->file);
}

void json_newline(json_writer* j) {
  fputc('\n', j->file);
  j->needs_comma = false;
}
