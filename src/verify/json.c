#include "verify/json.h"

#include <math.h>
#include <string.h>

json json_to(FILE* file) {
  return (json){file, false};
}

static void put_string(json* j, const char* text) {
  fputc('"', j->file);
  for (const unsigned char* p = (const unsigned char*)text; *p; p++) {
    if (*p == '"' || *p == '\\')
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

static void start(json* j, const char* key) {
  if (j->needs_comma) fputs(", ", j->file);
  j->needs_comma = true;
  if (!key) return;
  put_string(j, key);
  fputs(": ", j->file);
}

void json_begin_object(json* j, const char* key) {
  start(j, key);
  fputc('{', j->file);
  j->needs_comma = false;
}

void json_end_object(json* j) {
  fputc('}', j->file);
  j->needs_comma = true;
}

void json_begin_array(json* j, const char* key) {
  start(j, key);
  fputc('[', j->file);
  j->needs_comma = false;
}

void json_end_array(json* j) {
  fputc(']', j->file);
  j->needs_comma = true;
}

void json_text(json* j, const char* key, const char* value) {
  start(j, key);
  if (value)
    put_string(j, value);
  else
    fputs("null", j->file);
}

void json_int(json* j, const char* key, int64_t value) {
  start(j, key);
  fprintf(j->file, "%lld", (long long)value);
}

void json_uint(json* j, const char* key, uint64_t value) {
  start(j, key);
  fprintf(j->file, "%llu", (unsigned long long)value);
}

void json_real(json* j, const char* key, double value) {
  start(j, key);
  if (isfinite(value))
    fprintf(j->file, "%.9g", value);
  else
    fputs("null", j->file);
}

void json_bool(json* j, const char* key, bool value) {
  start(j, key);
  fputs(value ? "true" : "false", j->file);
}

void json_null(json* j, const char* key) {
  start(j, key);
  fputs("null", j->file);
}

void json_newline(json* j) {
  fputc('\n', j->file);
  j->needs_comma = false;
}
