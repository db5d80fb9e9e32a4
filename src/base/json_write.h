// Writes JSON to a stream: values in order, commas and escapes by themselves. One line, unless the
// caller breaks it.
#ifndef HALYARD_BASE_JSON_WRITE_H_
#define HALYARD_BASE_JSON_WRITE_H_

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef struct json_writer {
  FILE* file;
  bool needs_comma;
} json_writer;

json_writer json_to(FILE* file);
// A key goes before a value inside an object; NULL inside an array.
void json_begin_object(json_writer* j, const char* key);
void json_end_object(json_writer* j);
void json_begin_array(json_writer* j, const char* key);
void json_end_array(json_writer* j);
void json_text(json_writer* j, const char* key, const char* value);  // NULL writes null
// A text that may hold zeros, and has one behind it.
void json_bytes(json_writer* j, const char* key, const char* value, size_t length);
void json_int(json_writer* j, const char* key, int64_t value);
void json_uint(json_writer* j, const char* key, uint64_t value);
void json_real(json_writer* j, const char* key, double value);  // NaN and infinities write null
void json_bool(json_writer* j, const char* key, bool value);
void json_null(json_writer* j, const char* key);
void json_newline(json_writer* j);

#endif  // HALYARD_BASE_JSON_WRITE_H_
