// Scope: computing with arrays as mathematics, without releasing and unwinding by hand.
//
//   hy_scope s;
//   hy_scope_begin(&s, tape);
//   hy_array* h = hy_s_relu(&s, hy_s_linear(&s, x, weight, bias));
//   *out = hy_scope_give(&s, hy_s_add(&s, x, h, hy_int(1)));
//   return hy_scope_end(&s);
//
// What an hy_s_ function returns belongs to the scope and lives until the scope ends or is popped.
// Failure sticks: after the first one every hy_s_ function does nothing and returns NULL, so that a
// formula needs no checks; hy_scope_end tells. Arguments that failed before are NULL then, and
// their shapes must not be read: hy_s_size answers 0.
//
// A scope lives on the stack of the thread that uses its tape. It costs a store for each array.
#ifndef HALYARD_SCOPE_H_
#define HALYARD_SCOPE_H_

#include "halyard/array.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { HY_SCOPE_ROOM = 32 };  // arrays that a scope holds without allocating

typedef struct hy_scope {
  hy_tape* tape;
  hy_status status;  // the first failure
  // The rest is the scope's own.
  int n, capacity;
  hy_array** list;
  hy_array* room[HY_SCOPE_ROOM];
} hy_scope;

HY_API void hy_scope_begin(hy_scope* scope, hy_tape* tape);
// Releases everything; returns the first failure.
HY_API hy_status hy_scope_end(hy_scope* scope);
// A reference of the caller's own to an array that outlives the scope; NULL after a failure.
HY_API hy_array* hy_scope_give(const hy_scope* scope, hy_array* array);
// Takes over a fresh reference, or the failure that came instead of one.
HY_API hy_array* hy_scope_keep(hy_scope* scope, hy_status status, hy_array* array);
// For calls that give out no array: HY_SCOPE_TRY(&s, hy_backward(tape, loss, NULL));
#define HY_SCOPE_TRY(scope, call) \
  ((scope)->status == HY_OK ? ((scope)->status = (call)) : (scope)->status)

// Where the scope stands, to return to: pop releases what was made since, all but `result`, which
// may be NULL, and returns that.
static inline int hy_scope_mark(const hy_scope* scope) {
  return scope->n;
}
HY_API hy_array* hy_scope_pop(hy_scope* scope, int mark, hy_array* result);

// ---- Making, shapes, views: as in array.h ----

// HY_SIZES(-1, heads, size): the number of dimensions and their sizes.
#define HY_SIZES(...)                                                            \
  (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (const int64_t[]) { \
    __VA_ARGS__                                                                  \
  }

// The size of a dimension, counted from the end where negative; 0 after a failure.
HY_API int64_t hy_s_size(const hy_scope* s, const hy_array* x, int dim);

HY_API hy_array* hy_s_empty(hy_scope* s, hy_dtype dtype, int ndim, const int64_t* shape);
HY_API hy_array* hy_s_zeros(hy_scope* s, hy_dtype dtype, int ndim, const int64_t* shape);
HY_API hy_array* hy_s_from_host(hy_scope* s, hy_dtype dtype, int ndim, const int64_t* shape,
                                const void* data);

HY_API hy_array* hy_s_view(hy_scope* s, hy_array* x, int ndim, const int64_t* shape);
// A view where strides allow one, else of a copy.
HY_API hy_array* hy_s_reshape(hy_scope* s, hy_array* x, int ndim, const int64_t* shape);
HY_API hy_array* hy_s_transpose(hy_scope* s, hy_array* x, int dim0, int dim1);
HY_API hy_array* hy_s_permute(hy_scope* s, hy_array* x, const int* dims);
HY_API hy_array* hy_s_expand(hy_scope* s, hy_array* x, int ndim, const int64_t* shape);
HY_API hy_array* hy_s_slice(hy_scope* s, hy_array* x, int dim, int64_t start, int64_t stop,
                            int64_t step);
HY_API hy_array* hy_s_select(hy_scope* s, hy_array* x, int dim, int64_t index);
HY_API hy_array* hy_s_flip(hy_scope* s, hy_array* x, int dim);
HY_API hy_array* hy_s_contiguous(hy_scope* s, hy_array* x);  // x itself where it is

// ---- Ops ----

// Any op of the table, as hy_array_apply; the results belong to the scope.
HY_API void hy_s_apply(hy_scope* s, hy_op op, hy_array* const* inputs, int n_inputs,
                       const hy_attrs* attrs, hy_array** const* outputs, int n_outputs);
// Into an array that exists, as hy_array_apply_into.
HY_API void hy_s_apply_into(hy_scope* s, hy_op op, hy_array* const* inputs, int n_inputs,
                            const hy_attrs* attrs, hy_array* output);
HY_API void hy_s_copy_into(hy_scope* s, hy_array* to, hy_array* from);  // to = from
HY_API void hy_s_add_into(hy_scope* s, hy_array* to, hy_array* from);   // to += from

// hy_s_add(s, a, b, hy_int(1)) and so on, one function for each row of the op table: returns the
// first output. Further ones are parameters, NULL where not wanted; optional ones are not computed
// (hy_s_apply gives them). An op without inputs (fill, arange, random) takes an array that exists,
// writes it and returns it. (The macros walk the row's arguments as a sequence; src/ops/wrap.h says
// how.)
#define HY_S_END_(...) __VA_ARGS__##_END
#define HY_S_END(...) HY_S_END_(__VA_ARGS__)
#define HY_S_RESULT(kind, name) HY_S_MORE_A
#define HY_S_MORE_A(kind, name) HY_S_##kind(name) HY_S_MORE_B
#define HY_S_MORE_B(kind, name) HY_S_##kind(name) HY_S_MORE_A
#define HY_S_MORE_A_END
#define HY_S_MORE_B_END
#define HY_S_INPUTS(kind, name) HY_S_##kind(name) HY_S_INPUT_A
#define HY_S_INPUT_A(kind, name) HY_S_##kind(name) HY_S_INPUT_B
#define HY_S_INPUT_B(kind, name) HY_S_##kind(name) HY_S_INPUT_A
#define HY_S_INPUTS_END , hy_array* into
#define HY_S_INPUT_A_END
#define HY_S_INPUT_B_END
#define HY_S_OUT(name) , hy_array** name
#define HY_S_OPTIONAL(name)
#define HY_S_IN(name) , hy_array* name
#define HY_S_LIST(name) , hy_array *const *name, int n_##name
#define HY_S_ATTR(kind, type, name) , type name
#define HY_S_PROTOTYPE(name, outputs, inputs, attrs)                                           \
  hy_array* hy_s_##name(hy_scope* s HY_S_END(HY_S_RESULT outputs) HY_S_END(HY_S_INPUTS inputs) \
                            HY_ATTRS_##attrs(HY_S_ATTR, attrs))

#define HY_OUT(name) (OUT, name)
#define HY_OUT_OPT(name) (OPTIONAL, name)
#define HY_IN(name) (IN, name)
#define HY_IN_OPT(name) (IN, name)
#define HY_IN_LIST(name) (LIST, name)
#define HY_OP(id, name, outputs, inputs, attrs, ...) \
  HY_API HY_S_PROTOTYPE(name, outputs, inputs, attrs);
#include "halyard/ops.def"

#ifdef __cplusplus
}
#endif
#endif  // HALYARD_SCOPE_H_
