// Scope: the arrays it owns, the failure that sticks, and one function for each row of the op
// table. Written over the public functions of arrays.
#include "halyard/scope.h"

#include <string.h>

#include "base/memory.h"
#include "ops/internal.h"
#include "ops/wrap.h"

// ---- what a scope owns ----

void hy_scope_begin(hy_scope* s, hy_tape* tape) {
  s->tape = tape;
  s->status = HY_OK;
  s->n = 0;
  s->capacity = HY_SCOPE_ROOM;
  s->list = s->room;
}

hy_status hy_scope_end(hy_scope* s) {
  while (s->n > 0) hy_array_release(s->list[--s->n]);
  if (s->list != s->room) hy__mfree(s->list);
  s->list = s->room;
  return s->status;
}

hy_array* hy_scope_give(const hy_scope* s, hy_array* array) {
  return s->status == HY_OK ? hy_array_retain(array) : NULL;
}

static hy_status grow(hy_scope* s) {
  int capacity = 2 * s->capacity;
  hy_array** old = s->list == s->room ? NULL : s->list;
  hy_array** grown = hy__realloc(old, (size_t)capacity * sizeof *grown);
  if (!grown) return hy_fail(HY_OUT_OF_MEMORY, "no host memory for a scope of %d arrays", capacity);
  if (!old) memcpy(grown, s->room, sizeof s->room);
  s->list = grown;
  s->capacity = capacity;
  return HY_OK;
}

hy_array* hy_scope_keep(hy_scope* s, hy_status status, hy_array* array) {
  if (status == HY_OK && s->n == s->capacity) status = grow(s);
  if (status != HY_OK) {
    hy_array_release(array);
    s->status = status;
    return NULL;
  }
  return s->list[s->n++] = array;
}

hy_array* hy_scope_pop(hy_scope* s, int mark, hy_array* result) {
  hy_array* kept = NULL;
  while (s->n > mark) {
    hy_array* array = s->list[--s->n];
    if (array == result && !kept)
      kept = array;
    else
      hy_array_release(array);
  }
  if (kept) s->list[s->n++] = kept;
  return s->status == HY_OK ? result : NULL;
}

// ---- making, shapes, views ----

int64_t hy_s_size(const hy_scope* s, const hy_array* x, int dim) {
  if (s->status != HY_OK || !x) return 0;
  const hy_tensor* t = hy_array_tensor(x);
  if (dim < 0) dim += t->ndim;
  return dim >= 0 && dim < t->ndim ? t->shape[dim] : 0;
}

// The functions of array.h, as expressions.
#define KEEP(call)                     \
  hy_array* out = NULL;                \
  if (s->status != HY_OK) return NULL; \
  hy_status status = call;             \
  return hy_scope_keep(s, status, out)

hy_array* hy_s_empty(hy_scope* s, hy_dtype dtype, int ndim, const int64_t* shape) {
  KEEP(hy_array_empty(hy_tape_stream(s->tape), &out, dtype, ndim, shape));
}

hy_array* hy_s_zeros(hy_scope* s, hy_dtype dtype, int ndim, const int64_t* shape) {
  KEEP(hy_array_zeros(hy_tape_stream(s->tape), &out, dtype, ndim, shape));
}

hy_array* hy_s_from_host(hy_scope* s, hy_dtype dtype, int ndim, const int64_t* shape,
                         const void* data) {
  KEEP(hy_array_from_host(hy_tape_stream(s->tape), &out, dtype, ndim, shape, data));
}

hy_array* hy_s_view(hy_scope* s, hy_array* x, int ndim, const int64_t* shape) {
  KEEP(hy_array_view(s->tape, &out, x, ndim, shape));
}

static hy_status reshape(hy_scope* s, hy_array** out, hy_array* x, int ndim, const int64_t* shape) {
  hy_status status = hy_array_view(s->tape, out, x, ndim, shape);
  if (status != HY_LAYOUT) return status;
  hy_array* dense = hy_s_clone(s, x);
  return dense ? hy_array_view(s->tape, out, dense, ndim, shape) : s->status;
}

hy_array* hy_s_reshape(hy_scope* s, hy_array* x, int ndim, const int64_t* shape) {
  KEEP(reshape(s, &out, x, ndim, shape));
}

hy_array* hy_s_transpose(hy_scope* s, hy_array* x, int dim0, int dim1) {
  KEEP(hy_array_transpose(s->tape, &out, x, dim0, dim1));
}

hy_array* hy_s_permute(hy_scope* s, hy_array* x, const int* dims) {
  KEEP(hy_array_permute(s->tape, &out, x, dims));
}

hy_array* hy_s_expand(hy_scope* s, hy_array* x, int ndim, const int64_t* shape) {
  KEEP(hy_array_expand(s->tape, &out, x, ndim, shape));
}

hy_array* hy_s_slice(hy_scope* s, hy_array* x, int dim, int64_t start, int64_t stop, int64_t step) {
  KEEP(hy_array_slice(s->tape, &out, x, dim, start, stop, step));
}

hy_array* hy_s_select(hy_scope* s, hy_array* x, int dim, int64_t index) {
  KEEP(hy_array_select(s->tape, &out, x, dim, index));
}

hy_array* hy_s_flip(hy_scope* s, hy_array* x, int dim) {
  KEEP(hy_array_flip(s->tape, &out, x, dim));
}

hy_array* hy_s_contiguous(hy_scope* s, hy_array* x) {
  if (s->status == HY_OK && x && hy_tensor_is_contiguous(hy_array_tensor(x))) return x;
  KEEP(hy_array_contiguous(s->tape, &out, x));
}

// ---- ops ----

void hy_s_apply(hy_scope* s, hy_op op, hy_array* const* inputs, int n_inputs, const hy_attrs* attrs,
                hy_array** const* outputs, int n_outputs) {
  HY_SCOPE_TRY(s, hy_array_apply(s->tape, op, inputs, n_inputs, attrs, outputs, n_outputs));
  bool made = s->status == HY_OK;
  for (int i = 0; i < n_outputs; i++) {
    if (outputs[i]) *outputs[i] = made ? hy_scope_keep(s, s->status, *outputs[i]) : NULL;
  }
}

void hy_s_apply_into(hy_scope* s, hy_op op, hy_array* const* inputs, int n_inputs,
                     const hy_attrs* attrs, hy_array* output) {
  HY_SCOPE_TRY(s, hy_array_apply_into(s->tape, op, inputs, n_inputs, attrs, &output, 1));
}

void hy_s_copy_into(hy_scope* s, hy_array* to, hy_array* from) {
  hy_s_apply_into(s, HY_OP_copy, &from, 1, NULL, to);
}

void hy_s_add_into(hy_scope* s, hy_array* to, hy_array* from) {
  const hy_attrs attrs = {.alpha = {hy_int(1)}};
  hy_s_apply_into(s, HY_OP_add, (hy_array*[]){to, from}, 2, &attrs, to);
}

// What a row's function is made of.
#define RESULT(kind, name) MORE_A
#define MORE_A(kind, name) PUT_##kind(name) MORE_B
#define MORE_B(kind, name) PUT_##kind(name) MORE_A
#define MORE_A_END
#define MORE_B_END
#define PUT(kind, name) PUT_##kind(name) PUT_A
#define PUT_A(kind, name) PUT_##kind(name) PUT_B
#define PUT_B(kind, name) PUT_##kind(name) PUT_A
#define PUT_END return create(s, op, &attrs, into);
#define PUT_A_END
#define PUT_B_END
#define PUT_OUT(name) outs[n_out++] = name;
#define PUT_OPTIONAL(name) outs[n_out++] = NULL;
#define PUT_IN(name) ins[n_in++] = name;
#define PUT_LIST(name) n_in = put_list(s, op, &in, ins, n_in, name, n_##name);
#define PUT_ATTR(kind, type, name) attrs.kind.name = name;

static int put_list(hy_scope* s, hy_op op, hy_array* const** in, hy_array** ins, int n_in,
                    hy_array* const* list, int n) {
  bool whole = hy__joins(op);  // it is all the inputs, and may be longer than a call
  if (n < 0 || (n > 0 && !list) || (!whole && n > HY_MAX_INPUTS - n_in)) {
    s->status = hy_fail(HY_INVALID_ARGUMENT, "%s: a list of %d arrays %s", hy_op_name(op), n,
                        n > 0 && !list ? "is NULL" : "does not fit in one call");
    return n_in;
  }
  if (whole) {
    *in = list;
    return n;
  }
  for (int i = 0; i < n; i++) ins[n_in++] = list[i];
  return n_in;
}

static hy_array* create(hy_scope* s, hy_op op, const hy_attrs* attrs, hy_array* into) {
  hy_s_apply_into(s, op, NULL, 0, attrs, into);
  return s->status == HY_OK ? into : NULL;
}

#define HY_OUT(name) (OUT, name)
#define HY_OUT_OPT(name) (OPTIONAL, name)
#define HY_IN(name) (IN, name)
#define HY_IN_OPT(name) (IN, name)
#define HY_IN_LIST(name) (LIST, name)
#define HY_OP(id, name, outputs, inputs, kind, ...)                             \
  HY_S_PROTOTYPE(name, outputs, inputs, kind) {                                 \
    const hy_op op = HY_OP_##name;                                              \
    hy_array *ins[HY_MAX_INPUTS], *const *in = ins;                             \
    hy_array *result = NULL, **outs[HY_MAX_OUTPUTS] = {&result};                \
    int n_in = 0, n_out = 1;                                                    \
    hy_attrs attrs;                                                             \
    memset(&attrs, 0, sizeof attrs);                                            \
    HY_ATTRS_##kind(PUT_ATTR, kind) HY__END(RESULT outputs) HY__END(PUT inputs) \
        hy_s_apply(s, op, in, n_in, &attrs, outs, n_out);                       \
    return result;                                                              \
  }
#include "halyard/ops.def"
