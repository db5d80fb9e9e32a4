// Conformance cases for tests in other languages: libhalyard_verify, used by tests/torch through
// ctypes. A case is described by one line of JSON with the addresses of its tensors.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/json_write.h"
#include "ops/internal.h"
#include "verify/case.h"
#include "verify/gradients.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT int hyv_op_count(void) {
  return hy_op_count();
}

EXPORT const char* hyv_op_name(int op) {
  const hy_op_info* info = hy_op_at(op);
  return info ? info->name : NULL;
}

EXPORT int hyv_is_differentiable(int op) {
  const hy_op_info* info = hy_op_at(op);
  return info && info->differentiable;
}

EXPORT int hyv_case_count(int op) {
  const hy_op_info* info = hy_op_at(op);
  return info ? hy__case_count(info->op) : 0;
}

EXPORT const char* hyv_last_error(void) {
  return hy_last_error();
}

EXPORT const char* hyv_status_name(int status) {
  return hy_status_name((hy_status)status);
}

EXPORT hy__case* hyv_create(void) {
  hy__case* c = NULL;
  return hy__case_create(&c) == HY_OK ? c : NULL;
}

EXPORT void hyv_destroy(hy__case* c) {
  hy__case_destroy(c);
}

// A status: HY_NOT_FOUND where the op has no such case.
EXPORT int hyv_make(hy__case* c, int op, uint64_t seed, int index, int quick) {
  const hy_op_info* info = hy_op_at(op);
  if (!info) return HY_NOT_FOUND;
  hy__case_key key = {.op = info->op, .seed = seed, .index = index, .quick = quick != 0};
  return (int)hy__case_make(c, &key);
}

// Runs the checked reference in place: the outputs, and inputs that share their memory, change.
EXPORT int hyv_reference(hy__case* c) {
  return (int)hy__reference(&c->call);
}

// ---- gradients ----

static hy__gradients gradients;

// Computes the gradients of a case on the cpu; see hy__case_gradients. A status; HY_UNSUPPORTED
// where the case has none.
EXPORT int hyv_gradients(hy__case* c) {
  hy__gradients_free(&gradients);
  if (!hy__case_has_gradients(c)) return HY_UNSUPPORTED;
  hy_device* device;
  hy_stream* stream;
  HY_TRY(hy_device_get("cpu", &device));
  HY_TRY(hy_stream_default(device, &stream));
  return (int)hy__case_gradients(c, stream, &gradients);
}

EXPORT int hyv_has_gradients(hy__case* c) {
  return hy__case_has_gradients(c);
}

EXPORT int hyv_input_has_gradient(hy__case* c, int i) {
  return hy__input_has_gradient(c, i);
}

// Address of the gradient of input i, or NULL; valid until the next hyv_gradients.
EXPORT void* hyv_gradient(int i) {
  return i >= 0 && i < gradients.n ? gradients.of[i] : NULL;
}

// ---- description ----

static void put_tensor(json_writer* j, const hy_tensor* t, const char* name) {
  if (!hy__present(t)) {
    json_null(j, NULL);
    return;
  }
  json_begin_object(j, NULL);
  json_text(j, "name", name);
  json_text(j, "dtype", hy_dtype_name(t->dtype));
  json_text(j, "layout", hy_layout_name(t->layout));
  json_uint(j, "address", (uint64_t)(uintptr_t)t->data);
  int ndim = t->ndim <= HY_MAX_DIMS ? t->ndim : 0;
  json_begin_array(j, "shape");
  for (int d = 0; d < ndim; d++) json_int(j, NULL, t->shape[d]);
  json_end_array(j);
  json_begin_array(j, "stride");
  for (int d = 0; d < ndim; d++) json_int(j, NULL, t->stride[d]);
  json_end_array(j);
  json_end_object(j);
}

// In hexadecimal digits: nothing is lost, infinities and NaN included.
static void put_double(json_writer* j, const char* name, double value) {
  char digits[40];
  snprintf(digits, sizeof digits, "%a", value);
  json_begin_object(j, name);
  json_text(j, "f64", digits);
  json_end_object(j);
}

static void put_attr(json_writer* j, const hy_attr_field* field, const hy_attrs* attrs) {
  const char* at = (const char*)attrs + field->offset;
#define IS(name) (strcmp(field->type, #name) == 0)
#define AS(type) (*(const type*)at)
  if (IS(hy_scalar)) {
    hy_scalar s = AS(hy_scalar);
    if (s.kind == HY_NONE)
      json_null(j, field->name);
    else if (s.kind == HY_F64)
      put_double(j, field->name, s.as.f);
    else if (s.kind == HY_BOOL)
      json_bool(j, field->name, s.as.i != 0);
    else
      json_int(j, field->name, s.as.i);
  } else if (IS(int64_t)) {
    json_int(j, field->name, AS(int64_t));
  } else if (IS(uint64_t)) {
    json_uint(j, field->name, AS(uint64_t));
  } else if (IS(double)) {
    put_double(j, field->name, AS(double));
  } else if (IS(bool)) {
    json_bool(j, field->name, AS(bool));
  } else if (IS(hy_dtype)) {
    json_text(j, field->name, hy_dtype_name(AS(hy_dtype)));
  } else if (IS(hy_equation)) {
    json_text(j, field->name, AS(hy_equation).text);
  } else if (IS(hy_pair)) {
    json_begin_array(j, field->name);
    json_int(j, NULL, AS(hy_pair).h);
    json_int(j, NULL, AS(hy_pair).w);
    json_end_array(j);
  } else if (IS(hy_dims)) {
    json_begin_array(j, field->name);
    for (int i = 0; i < AS(hy_dims).n; i++) json_int(j, NULL, AS(hy_dims).dim[i]);
    json_end_array(j);
  } else {
    json_int(j, field->name, AS(int));
  }
#undef AS
#undef IS
}

// The caller frees the text by hyv_free.
EXPORT char* hyv_describe(hy__case* c) {
  char* text = NULL;
  size_t size;
  FILE* file = open_memstream(&text, &size);
  if (!file) return NULL;
  const hy_op_info* info = c->info;
  char words[800];
  json_writer j = json_to(file);
  json_begin_object(&j, NULL);
  json_text(&j, "op", info->name);
  json_text(&j, "call", hy_call_describe(&c->call, words, sizeof words));
  json_text(&j, "flavour", hy__flavour_text(c->flavour));
  json_int(&j, "expected", c->expected);
  json_text(&j, "what", c->what);
  json_bool(&j, "own_mistake", c->wrong > 0);
  json_bool(&j, "mixed", c->mixed);
  json_int(&j, "terms", c->terms);
  json_real(&j, "scale", c->scale);
  json_begin_array(&j, "inputs");
  for (int i = 0; i < c->call.n_in; i++)
    put_tensor(&j, &c->in[i], info->inputs[i < info->n_inputs ? i : info->n_inputs - 1].name);
  json_end_array(&j);
  json_begin_array(&j, "outputs");
  for (int i = 0; i < c->call.n_out; i++) put_tensor(&j, &c->out[i], info->outputs[i].name);
  json_end_array(&j);
  json_begin_object(&j, "attrs");
  for (int i = 0; i < info->n_attrs; i++) put_attr(&j, &info->attrs[i], &c->call.attrs);
  json_end_object(&j);
  json_end_object(&j);
  if (fclose(file) != 0) {
    free(text);
    return NULL;
  }
  return text;
}

EXPORT void hyv_free(char* text) {
  free(text);
}
