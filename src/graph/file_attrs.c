// Attributes of a call in a graph file, field by field as the op table describes them. Numbers that
// JSON would round are text.
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "graph/file.h"

#define IS(name) (strcmp(field->type, #name) == 0)

static bool is_enum(const hy_attr_field* field) {
  return IS(hy_rounding) || IS(hy_reduction) || IS(hy_scatter_mode) || IS(hy_causal);
}

// ---- writing ----

static void write_real(json_writer* j, const char* key, double value) {
  char text[40];
  snprintf(text, sizeof text, "%.17g", value);
  json_text(j, key, text);
}

static void write_scalar(json_writer* j, const char* key, const hy_scalar* s) {
  json_begin_object(j, key);
  json_text(j, "kind", hy_dtype_name(s->kind));
  if (s->kind == HY_F64) {
    write_real(j, "value", s->as.f);
  } else if (s->kind != HY_NONE) {
    char text[40];
    snprintf(text, sizeof text, "%" PRId64, s->as.i);
    json_text(j, "value", text);
  }
  json_end_object(j);
}

static void write_dims(json_writer* j, const char* key, const int64_t* dims, int64_t n) {
  json_begin_array(j, key);
  for (int64_t i = 0; i < n; i++) json_int(j, NULL, dims[i]);
  json_end_array(j);
}

static void write_field(json_writer* j, const hy_attr_field* field, const hy_attrs* attrs) {
  const void* at = (const char*)attrs + field->offset;
  char text[HY_MAX_EQUATION + 1] = "";
  if (IS(hy_scalar)) {
    write_scalar(j, field->name, at);
  } else if (IS(int64_t) || IS(uint64_t)) {
    uint64_t bits;
    memcpy(&bits, at, sizeof bits);
    if (IS(int64_t))
      snprintf(text, sizeof text, "%" PRId64, (int64_t)bits);
    else
      snprintf(text, sizeof text, "%" PRIu64, bits);
    json_text(j, field->name, text);
  } else if (IS(double)) {
    write_real(j, field->name, *(const double*)at);
  } else if (IS(bool)) {
    json_bool(j, field->name, *(const bool*)at);
  } else if (IS(hy_dtype)) {
    json_text(j, field->name, hy_dtype_name(*(const hy_dtype*)at));
  } else if (IS(hy_pair)) {
    write_dims(j, field->name, at, 2);
  } else if (IS(hy_dims)) {
    const hy_dims* dims = at;
    write_dims(j, field->name, dims->dim, dims->n);
  } else if (IS(hy_equation)) {
    memcpy(text, at, HY_MAX_EQUATION);
    json_text(j, field->name, text);
  } else if (is_enum(field)) {
    int32_t value;
    memcpy(&value, at, sizeof value);
    json_int(j, field->name, value);
  }
}

void hy__attrs_write(json_writer* j, const char* key, const hy_call* call) {
  const hy_op_info* info = hy_op_describe(call->op);
  json_begin_object(j, key);
  for (int i = 0; i < info->n_attrs; i++) write_field(j, &info->attrs[i], &call->attrs);
  json_end_object(j);
}

// ---- reading ----

static hy_status bad_field(const hy_attr_field* field) {
  return hy_fail(HY_FORMAT, "a graph file: the attribute \"%s\" is no %s", field->name,
                 field->type);
}

static bool read_signed(const char* text, int64_t* value) {
  char* end;
  errno = 0;
  *value = strtoll(text, &end, 10);
  return !errno && end != text && !*end;
}

static bool read_real(const char* text, double* value) {
  char* end;
  *value = strtod(text, &end);
  return end != text && !*end;
}

static bool read_scalar(const hy__json* from, hy_scalar* s) {
  const hy__json *kind = hy__json_get(from, "kind"), *value = hy__json_get(from, "value");
  *s = hy_no_scalar();
  if (!kind || kind->kind != HY__JSON_STRING) return false;
  if (strcmp(kind->text, hy_dtype_name(HY_NONE)) == 0) return true;
  s->kind = hy_dtype_from_name(kind->text);
  if (!value || value->kind != HY__JSON_STRING) return false;
  if (s->kind == HY_F64) return read_real(value->text, &s->as.f);
  if (s->kind == HY_BOOL) return read_signed(value->text, &s->as.i) && (s->as.i | 1) == 1;
  return s->kind == HY_I64 && read_signed(value->text, &s->as.i);
}

static bool read_dims(const hy__json* from, int64_t* dims, size_t most, int64_t* n) {
  if (from->kind != HY__JSON_ARRAY || from->length > most) return false;
  *n = 0;
  for (const hy__json* m = from->first; m; m = m->next) {
    if (!m->is_integer) return false;
    dims[(*n)++] = m->integer;
  }
  return true;
}

static bool read_text_field(const hy__json* from, const hy_attr_field* field, void* at) {
  if (from->kind != HY__JSON_STRING) return false;
  if (IS(int64_t)) return read_signed(from->text, at);
  if (IS(double)) return read_real(from->text, at);
  if (IS(uint64_t)) {
    char* end;
    errno = 0;
    *(uint64_t*)at = strtoull(from->text, &end, 10);
    return !errno && end != from->text && !*end;
  }
  if (IS(hy_dtype)) {
    *(hy_dtype*)at = hy_dtype_from_name(from->text);
    return *(hy_dtype*)at != HY_NONE || strcmp(from->text, hy_dtype_name(HY_NONE)) == 0;
  }
  if (!IS(hy_equation) || from->length >= HY_MAX_EQUATION) return false;
  memcpy(at, from->text, from->length);
  return true;
}

static bool read_field(const hy__json* from, const hy_attr_field* field, hy_attrs* attrs) {
  void* at = (char*)attrs + field->offset;
  if (IS(hy_scalar)) return read_scalar(from, at);
  if (IS(hy_dims)) return read_dims(from, ((hy_dims*)at)->dim, HY_MAX_DIMS, &((hy_dims*)at)->n);
  if (IS(hy_pair)) {
    int64_t n = 0;
    return read_dims(from, at, 2, &n) && n == 2;
  }
  if (IS(bool)) {
    *(bool*)at = from->boolean;
    return from->kind == HY__JSON_BOOL;
  }
  if (is_enum(field)) {
    int32_t value =
        from->is_integer && from->integer >= 0 && from->integer < 16 ? (int32_t)from->integer : -1;
    memcpy(at, &value, sizeof value);
    return value >= 0;
  }
  return read_text_field(from, field, at);
}

hy_status hy__attrs_read(const hy__json* object, hy_op op, hy_attrs* attrs) {
  const hy_op_info* info = hy_op_describe(op);
  memset(attrs, 0, sizeof *attrs);
  for (int i = 0; i < info->n_attrs; i++) {
    const hy__json* from = hy__json_get(object, info->attrs[i].name);
    if (from && !read_field(from, &info->attrs[i], attrs)) return bad_field(&info->attrs[i]);
  }
  return HY_OK;
}
