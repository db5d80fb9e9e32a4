// The vocabulary of gradient rules.
//
// A rule is a few lines: it reads the gradient of the output (g->dy) and what its row saved
// (g_in, g_out), computes with the g_ functions, and gives each input its gradient (g_give). The
// g_ functions are those of a scope (halyard/scope.h): failure sticks, so rules need no checks,
// and what they return lives until the rule is done.
#ifndef HALYARD_OPS_AUTOGRAD_GRAD_H_
#define HALYARD_OPS_AUTOGRAD_GRAD_H_

#include "halyard/scope.h"
#include "ops/autograd/internal.h"

struct hy__grad {
  hy_scope scope;  // what the rule computes
  hy__node* node;
  hy_array* dy;                 // of output 0
  hy_array* const* dys;         // of all outputs; NULL where none arrived
  hy_array* dx[HY_MAX_INPUTS];  // what was given; owned
};

// HY__RULE(name, what input 0 needs, what input 1 needs ...) { ... }
#define HY__RULE(rule, ...)                                                 \
  static void run_##rule(hy__grad* g);                                      \
  const hy__grad_rule hy__grad_##rule = {#rule, run_##rule, {__VA_ARGS__}}; \
  static void run_##rule(hy__grad* g)
#define IN(i) HY__NEED_IN(i)
#define OUT(i) HY__NEED_OUT(i)
#define LIST HY__NEED_LIST
#define NO_GRADIENT HY__NO_GRADIENT

// ---- the call that is differentiated ----

static inline const hy_attrs* g_attrs(const hy__grad* g) {
  return &g->node->step.attrs;
}
static inline bool g_wants(const hy__grad* g, int i) {
  return g->node->in[i].slot != NULL;
}
// Shape and type of input i; no memory unless it was saved.
static inline const hy_tensor* g_shape(const hy__grad* g, int i) {
  return &g->node->in[i].saved.view;
}
hy_array* g_in(hy__grad* g, int i);  // NULL where an optional input was absent
hy_array* g_out(hy__grad* g, int i);

// Input i's gradient is `value`, summed to its shape and cast to its type. Ignored where the input
// wants none.
void g_give(hy__grad* g, int i, hy_array* value);

// Input i's gradient is alpha a b, of matrices, in i's shape. Added in place to what has gathered
// where that may be.
void g_give_mm(hy__grad* g, int i, hy_array* a, hy_array* b, double alpha);

// What input i's gradient has come to so far, where it may be added to in place; else NULL.
// Borrowed.
hy_array* g_gathered(hy__grad* g, int i);

// ---- computing ----

// Output `which` of an op; the others are not computed where they are optional.
hy_array* g_op(hy__grad* g, hy_op op, const hy_attrs* attrs, hy_array* const* in, int n_in,
               int which);
// Runs a backward row whose output k is the gradient of input k, for those that are wanted.
void g_give_all(hy__grad* g, hy_op op, const hy_attrs* attrs, hy_array* const* in, int n_in);
#define G_LIST(...) \
  (hy_array*[]){__VA_ARGS__}, (int)(sizeof((hy_array*[]){__VA_ARGS__}) / sizeof(hy_array*))

hy_array* g_full(hy__grad* g, hy_dtype dtype, int ndim, const int64_t* shape, double value);
hy_array* g_identity(hy__grad* g, hy_dtype dtype, int64_t n);
hy_array* g_as_strided(hy__grad* g, hy_array* x, int ndim, const int64_t* shape,
                       const int64_t* stride);
// [a, b, c] -> [a * b, c]
hy_array* g_rows(hy__grad* g, hy_array* x);
// What a reduction of `like` over `dims` gave, with the reduced dimensions put back as size 1.
hy_array* g_unreduce(hy__grad* g, hy_array* reduced, const hy_tensor* like, const hy_dims* dims);

hy_array* g_unary(hy__grad* g, hy_op op, hy_array* x);
hy_array* g_binary(hy__grad* g, hy_op op, hy_array* a, hy_array* b);    // no attributes, or alpha 1
hy_array* g_compare(hy__grad* g, hy_op op, hy_array* x, double value);  // eq_scalar and so on
hy_array* g_scale(hy__grad* g, hy_array* x, double factor);
hy_array* g_cast(hy__grad* g, hy_array* x, hy_dtype dtype);  // x itself where it has the type
hy_array* g_mask(hy__grad* g, hy_array* x, hy_array* mask);  // x where the mask is false, else 0

static inline hy_array* g_zeros(hy__grad* g, const hy_tensor* like) {
  return hy_s_zeros(&g->scope, like->dtype, like->ndim, like->shape);
}
static inline hy_array* g_dense(hy__grad* g, hy_array* x) {
  return x ? hy_s_contiguous(&g->scope, x) : NULL;
}
static inline hy_array* g_reshape(hy__grad* g, hy_array* x, int ndim, const int64_t* shape) {
  return hy_s_reshape(&g->scope, x, ndim, shape);
}
static inline hy_array* g_permute(hy__grad* g, hy_array* x, const int* dims) {
  return hy_s_permute(&g->scope, x, dims);
}
static inline hy_array* g_transpose(hy__grad* g, hy_array* x) {  // the last two dimensions
  return hy_s_transpose(&g->scope, x, -2, -1);
}
static inline hy_array* g_expand(hy__grad* g, hy_array* x, const hy_tensor* like) {
  return hy_s_expand(&g->scope, x, like->ndim, like->shape);
}
static inline hy_array* g_slice(hy__grad* g, hy_array* x, int dim, int64_t start, int64_t stop,
                                int64_t step) {
  return hy_s_slice(&g->scope, x, dim, start, stop, step);
}
static inline hy_array* g_flip(hy__grad* g, hy_array* x, int dim) {
  return hy_s_flip(&g->scope, x, dim);
}
static inline hy_array* g_select(hy__grad* g, hy_array* x, int dim, int64_t index) {
  return hy_s_select(&g->scope, x, dim, index);
}
static inline void g_copy_into(hy__grad* g, hy_array* to, hy_array* from) {
  hy_s_copy_into(&g->scope, to, from);
}
static inline void g_add_into(hy__grad* g, hy_array* to, hy_array* from) {
  hy_s_add_into(&g->scope, to, from);
}
static inline hy_array* g_power(hy__grad* g, hy_array* x, double exponent) {
  return hy_s_pow_scalar(&g->scope, x, hy_float(exponent));
}
static inline hy_array* g_sum(hy__grad* g, hy_array* x, const hy_dims* dims, bool keepdim) {
  return hy_s_sum(&g->scope, x, *dims, keepdim);
}
static inline hy_array* g_neg(hy__grad* g, hy_array* x) {
  return hy_s_neg(&g->scope, x);
}
static inline hy_array* g_not(hy__grad* g, hy_array* x) {
  return hy_s_logical_not(&g->scope, x);
}
static inline hy_array* g_add(hy__grad* g, hy_array* a, hy_array* b) {
  return hy_s_add(&g->scope, a, b, hy_int(1));
}
static inline hy_array* g_sub(hy__grad* g, hy_array* a, hy_array* b) {
  return hy_s_sub(&g->scope, a, b, hy_int(1));
}
static inline hy_array* g_mul(hy__grad* g, hy_array* a, hy_array* b) {
  return hy_s_mul(&g->scope, a, b);
}
static inline hy_array* g_div(hy__grad* g, hy_array* a, hy_array* b) {
  return hy_s_div(&g->scope, a, b, HY_ROUND_NONE);
}
static inline hy_array* g_mm(hy__grad* g, hy_array* a, hy_array* b) {
  return hy_s_mm(&g->scope, a, b);
}

#endif  // HALYARD_OPS_AUTOGRAD_GRAD_H_
