// A call in words, for messages, logs, traces and failing conformance cases.
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "ops/internal.h"

typedef struct text {
  char* buffer;
  size_t size, used;
} text;

static void append(text* t, const char* format, ...) __attribute__((format(printf, 2, 3)));
static void append(text* t, const char* format, ...) {
  if (t->used + 1 >= t->size) return;
  va_list arguments;
  va_start(arguments, format);
  int n = vsnprintf(t->buffer + t->used, t->size - t->used, format, arguments);
  va_end(arguments);
  if (n > 0) t->used += (size_t)n;
  if (t->used >= t->size) t->used = t->size - 1;
}

static void append_scalar(text* t, hy_scalar s) {
  if (s.kind == HY_NONE)
    append(t, "none");
  else if (s.kind == HY_F64)
    append(t, "%.17g", s.as.f);
  else if (s.kind == HY_BOOL)
    append(t, s.as.i ? "true" : "false");
  else
    append(t, "%lld", (long long)s.as.i);
}

static void append_attr(text* t, const hy_attr_field* field, const hy_attrs* attrs) {
  const char* at = (const char*)attrs + field->offset;
  append(t, "%s=", field->name);
#define IS(name) (strcmp(field->type, #name) == 0)
#define AS(type) (*(const type*)at)
  if (IS(hy_scalar))
    append_scalar(t, AS(hy_scalar));
  else if (IS(int64_t))
    append(t, "%lld", (long long)AS(int64_t));
  else if (IS(uint64_t))
    append(t, "%llu", (unsigned long long)AS(uint64_t));
  else if (IS(double))
    append(t, "%.17g", AS(double));
  else if (IS(bool))
    append(t, AS(bool) ? "true" : "false");
  else if (IS(hy_dtype))
    append(t, "%s", hy_dtype_name(AS(hy_dtype)));
  else if (IS(hy_pair))
    append(t, "(%lld, %lld)", (long long)AS(hy_pair).h, (long long)AS(hy_pair).w);
  else if (IS(hy_equation))
    append(t, "'%.*s'", HY_MAX_EQUATION, AS(hy_equation).text);
  else if (IS(hy_dims)) {
    const hy_dims* dims = (const hy_dims*)at;
    append(t, "[");
    for (int i = 0; i < dims->n && i < HY_MAX_DIMS; i++)
      append(t, i ? ", %lld" : "%lld", (long long)dims->dim[i]);
    append(t, "]");
  } else
    append(t, "%d", AS(int));  // the enums
#undef AS
#undef IS
}

static void append_tensors(text* t, const hy_tensor* tensors, int n) {
  char one[200];
  for (int i = 0; tensors && i < n; i++)
    append(t, i ? ", %s" : "%s", hy_tensor_describe(&tensors[i], one, sizeof one));
}

const char* hy_call_describe(const hy_call* call, char* buffer, size_t size) {
  if (!buffer || size == 0) return "";
  text t = {buffer, size, 0};
  buffer[0] = 0;
  const hy_op_info* info = call ? hy_op_describe(call->op) : NULL;
  if (!info) {
    append(&t, "op %d", call ? (int)call->op : 0);
    return buffer;
  }
  append(&t, "%s(", info->name);
  append_tensors(&t, call->in, call->n_in);
  for (int i = 0; i < info->n_attrs; i++) {
    append(&t, i ? ", " : "; ");
    append_attr(&t, &info->attrs[i], &call->attrs);
  }
  append(&t, ") -> ");
  append_tensors(&t, call->out, call->n_out);
  return buffer;
}

hy_status hy__call_fail(const hy_call* call, hy_status status, const char* format, ...) {
  char what[400], words[500];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(what, sizeof what, format, arguments);
  va_end(arguments);
  return hy_fail(status, "%s: %s; in %s", hy_op_name(call->op), what,
                 hy_call_describe(call, words, sizeof words));
}
