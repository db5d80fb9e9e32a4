// Making a case: its tensors in memory, its outputs, and the mistakes any op can make.
#include "verify/case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/internal.h"
#include "ops/reference/element.h"
#include "ops/reference/walk.h"

#define IMAGE_BYTES ((size_t)32 << 20)
#define GUARD 64
#define OUTPUT_GUARD 1024  // elements around what an op writes
#define OWN_MISTAKES 8

// Mistakes that any op must refuse.
#define GENERAL_MISTAKES(X)                                     \
  X(COUNT, "an input too few")                                  \
  X(NULL_INPUT, "an input without memory")                      \
  X(NULL_OUTPUT, "an output without memory")                    \
  X(ABSENT_INPUT, "a required input absent")                    \
  X(ABSENT_OUTPUT, "a required output absent")                  \
  X(OUTPUT_SHAPE, "an output of the wrong shape")               \
  X(OUTPUT_DTYPE, "an output of the wrong type")                \
  X(INPUT_DTYPE, "an input of a type the op does not take")     \
  X(LAYOUT, "an output in a layout the op does not write")      \
  X(SELF_OVERLAP, "an output whose elements share memory")      \
  X(PARTIAL_OVERLAP, "an output shifted over an input")         \
  X(MISALIGNED, "an input that is not aligned to its elements") \
  X(FORBIDDEN_ALIAS, "in place where the op's row forbids it")  \
  X(TOO_MANY_DIMS, "an input with more dimensions than exist")

enum {
#define HY_AS_ENUM(name, text) MISTAKE_##name,
  GENERAL_MISTAKES(HY_AS_ENUM)
#undef HY_AS_ENUM
      GENERAL_COUNT
};

const char* hy__flavour_text(hy__flavour flavour) {
  switch (flavour) {
#define HY_AS_CASE(name, text) \
  case HY__FLAVOUR_##name: return text;
    HY__FLAVOUR_MAP(HY_AS_CASE)
#undef HY_AS_CASE
    case HY__FLAVOUR_COUNT: break;
  }
  return "?";
}

hy_status hy__case_create(hy__case** c) {
  *c = calloc(1, sizeof **c);
  if (*c) (*c)->image = aligned_alloc(64, IMAGE_BYTES);
  if (!*c || !(*c)->image) {
    hy__case_destroy(*c);
    *c = NULL;
    return hy_fail(HY_OUT_OF_MEMORY, "no host memory for conformance cases");
  }
  return HY_OK;
}

void hy__case_destroy(hy__case* c) {
  if (c) free(c->image);
  free(c);
}

// ---- memory ----

// Bytes that are NaN in every floating type wherever they are read as one, and that no kernel
// writes by chance. They repeat after PERIOD.
#define PERIOD 4096
static void poison(unsigned char* image, size_t first, size_t last) {
  static unsigned char pattern[PERIOD];  // one thread at a time, as all of conformance
  for (size_t i = 0; pattern[PERIOD - 1] == 0 && i < PERIOD; i++)
    pattern[i] = i & 1 ? 0xff : (unsigned char)(0xf0 | ((i * 0x9e3779b1u) >> 13 & 0xf));
  while (first < last) {
    size_t at = first % PERIOD, n = PERIOD - at < last - first ? PERIOD - at : last - first;
    memcpy(image + first, pattern + at, n);
    first += n;
  }
}

static void* take(hy__case* c, size_t bytes, size_t guard) {
  size_t at = (c->used + guard + 63) / 64 * 64;
  c->too_large |= bytes > IMAGE_BYTES || at + bytes + guard > IMAGE_BYTES;
  if (c->too_large) return NULL;
  poison(c->image, c->used, at + bytes + guard);
  c->used = at + bytes + guard;
  return c->image + at;
}

// Strides of a view in the manner of `style`: which order the dimensions have in memory, how much
// gaps are between elements, which way they run.
static void stride_like(hy__case* c, hy_tensor* t, hy__flavour style, bool is_output) {
  int order[HY_MAX_DIMS];
  for (int d = 0; d < t->ndim; d++) order[d] = d;
  if (style == HY__FLAVOUR_TRANSPOSED) {
    for (int d = t->ndim - 1; d > 0; d--) {
      int other = (int)hy__draw_int(c, 0, d), kept = order[d];
      order[d] = order[other];
      order[other] = kept;
    }
  }
  int64_t stride = 1;
  for (int i = t->ndim - 1; i >= 0; i--) {
    int d = order[i];
    int64_t step = 1, extra = 0;
    if (style == HY__FLAVOUR_GAPS) {
      step = i == t->ndim - 1 ? 2 : hy__draw_int(c, 1, 2);
      extra = hy__draw_int(c, 0, 2);
    }
    t->stride[d] = stride * step;
    if (style == HY__FLAVOUR_EXPANDED && !is_output && hy__draw_bool(c))
      t->stride[d] = 0;
    else
      stride *= (t->shape[d] > 0 ? t->shape[d] : 1) * step + extra;
    if (style == HY__FLAVOUR_NEGATIVE && hy__draw_bool(c)) t->stride[d] = -t->stride[d];
  }
}

static hy_tensor place(hy__case* c, hy_dtype dtype, int ndim, const int64_t* shape, bool is_output,
                       hy__flavour style) {
  hy_tensor t;
  if (hy_tensor_init(&t, NULL, dtype, ndim, shape) != HY_OK || t.layout != HY_LAYOUT_STRIDED) {
    t.data = take(c, (size_t)hy_tensor_numel(&t) + 1, is_output ? OUTPUT_GUARD : GUARD);
    return t;
  }
  if (style == HY__FLAVOUR_MIXED) style = (hy__flavour)hy__draw_int(c, 0, HY__FLAVOUR_MIXED - 1);
  stride_like(c, &t, style, is_output);
  int64_t first, last, size = (int64_t)hy_dtype_size(dtype);
  hy_tensor_extent(&t, &first, &last);
  int64_t shift = style == HY__FLAVOUR_OFFSET ? hy__draw_int(c, 1, 3) * size : 0;
  size_t guard = is_output ? OUTPUT_GUARD * (size_t)size : GUARD;
  char* memory = take(c, (size_t)(last - first + shift), guard);
  t.data = memory ? memory + shift - first : NULL;
  return t;
}

// Memory for an output that hy_infer has described; packed layouts are contiguous.
static hy_tensor place_output(hy__case* c, const hy_tensor* like, hy_dtype dtype,
                              hy__flavour style) {
  bool strided = like->layout == HY_LAYOUT_STRIDED;
  hy_tensor t = place(c, dtype, like->ndim, like->shape, true, strided ? style : HY__FLAVOUR_PLAIN);
  t.layout = like->layout;
  return t;
}

static hy__flavour style_of(const hy__case* c) {
  return c->key.simple ? HY__FLAVOUR_PLAIN : c->flavour;
}

hy_tensor* hy__add_input(hy__case* c, hy_dtype dtype, int ndim, const int64_t* shape) {
  hy_tensor* t = &c->in[c->call.n_in++];
  *t = place(c, dtype, ndim, shape, false, style_of(c));
  hy__fill_any(c, t);
  return t;
}

hy_tensor* hy__add_unrepeated(hy__case* c, hy_dtype dtype, int ndim, const int64_t* shape) {
  bool repeats = c->flavour == HY__FLAVOUR_EXPANDED || c->flavour == HY__FLAVOUR_MIXED;
  return repeats ? hy__add_contiguous(c, dtype, ndim, shape) : hy__add_input(c, dtype, ndim, shape);
}

hy_tensor* hy__add_contiguous(hy__case* c, hy_dtype dtype, int ndim, const int64_t* shape) {
  hy_tensor* t = &c->in[c->call.n_in++];
  *t = place(c, dtype, ndim, shape, false, HY__FLAVOUR_PLAIN);
  if (t->layout == HY_LAYOUT_STRIDED)
    hy__fill_any(c, t);
  else if (t->data)
    for (size_t i = 0; i < hy_tensor_bytes(t); i++)
      ((unsigned char*)t->data)[i] = (unsigned char)hy__draw(c);
  return t;
}

void hy__add_absent(hy__case* c) {
  c->in[c->call.n_in++] = hy_tensor_absent();
}

hy_tensor* hy__add_optional(hy__case* c, hy_dtype dtype, int ndim, const int64_t* shape) {
  if (hy__draw_present(c)) return hy__add_input(c, dtype, ndim, shape);
  hy__add_absent(c);
  return NULL;
}

hy_tensor* hy__add_output(hy__case* c, hy_dtype dtype, int ndim, const int64_t* shape) {
  hy_tensor* t = &c->out[c->call.n_out++];
  *t = place(c, dtype, ndim, shape, true, style_of(c));
  return t;
}

void hy__add_result(hy__case* c, hy_op op, const hy_attrs* attrs, int n_in, const hy_tensor* in,
                    int output) {
  hy_tensor out[HY_MAX_OUTPUTS];
  hy_call call = {.op = op, .n_in = n_in, .in = in, .out = out, .attrs = *attrs};
  hy_tensor* t = &c->in[c->call.n_in++];
  *t = hy_tensor_absent();
  if (hy_infer(&call, out) != HY_OK) return;
  call.n_out = hy_op_describe(op)->n_outputs;
  for (int i = 0; i < call.n_out; i++) {
    bool wanted = i == output, needed = hy_op_describe(op)->outputs[i].kind != HY_ARGUMENT_OPTIONAL;
    if (wanted || needed)
      out[i] = place_output(c, &out[i], out[i].dtype, wanted ? style_of(c) : HY__FLAVOUR_PLAIN);
    else
      out[i] = hy_tensor_absent();
  }
  if (hy__reference(&call) == HY_OK) *t = out[output];
}

bool hy__mistake(hy__case* c, int n, hy_status status, const char* what) {
  if (c->wrong != n) return false;
  c->expected = status;
  snprintf(c->what, sizeof c->what, "%s", what);
  return true;
}

bool hy__mistake_in_data(hy__case* c, int n, hy_status status, const char* what) {
  return c->by_value |= hy__mistake(c, n, status, what);
}

// ---- outputs ----

static bool same_shape(const hy_tensor* a, const hy_tensor* b) {
  return a->ndim == b->ndim && memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof *a->shape) == 0;
}

static bool steps_over_itself(const hy_tensor* t) {
  for (int d = 0; d < t->ndim; d++) {
    if (t->shape[d] > 1 && t->stride[d] == 0) return true;
  }
  return false;
}

// The input that output o may be, or -1.
static int input_for(const hy__case* c, int o, const hy_tensor* out) {
  for (int i = 0; i < c->call.n_in; i++) {
    const hy_tensor* t = &c->in[i];
    bool allowed = c->info->alias == HY_ALIAS_ANY || (c->info->alias == HY_ALIAS_SLOT && i == o);
    if (allowed && t->dtype == out->dtype && same_shape(t, out) && !steps_over_itself(t)) return i;
  }
  return -1;
}

// The types in which a result of that type may be stored: the category stays or rises.
static uint32_t types_that_hold(hy_dtype dtype) {
  if (HY_DTYPE_BIT(dtype) & HY_FLOAT8S) return HY_DTYPE_BIT(dtype);
  return dtype == HY_BOOL ? HY_ALL_DTYPES : hy_dtype_is_int(dtype) ? HY_NUMBERS : HY_FLOATS;
}

// Which optional outputs a case leaves out, as bits: none when it is plain, all when it is large,
// any otherwise; at least one output is left.
static unsigned absent_outputs(hy__case* c) {
  unsigned optional = 0, all = (1u << c->info->n_outputs) - 1;
  for (int o = 0; o < c->info->n_outputs; o++)
    optional |= (unsigned)(c->info->outputs[o].kind == HY_ARGUMENT_OPTIONAL) << o;
  unsigned kept = 1u << hy__draw_int(c, 0, c->info->n_outputs - 1), drawn = (unsigned)hy__draw(c);
  if (c->flavour == HY__FLAVOUR_PLAIN) return 0;
  unsigned absent = c->flavour == HY__FLAVOUR_LARGE ? optional : optional & drawn;
  return absent == all ? all & ~kept : absent;
}

static void add_outputs(hy__case* c) {
  hy_tensor out[HY_MAX_OUTPUTS];
  memset(out, 0, sizeof out);
  bool made = c->call.n_out > 0;  // by an op that creates from nothing
  c->call.in = c->in;
  c->call.out = c->out;
  bool inferred = hy_infer(&c->call, out) == HY_OK;
  if (made) c->result[0] = c->out[0].dtype;
  if (made) return;
  unsigned absent = absent_outputs(c);
  for (int o = 0; o < c->info->n_outputs; o++) {
    bool left_out = (absent >> o & 1) != 0;
    // A call that cannot be inferred is refused before its outputs are looked at.
    if (!inferred) hy_tensor_init(&out[o], NULL, HY_F32, 1, (int64_t[]){1});
    if (left_out) {
      c->out[c->call.n_out++] = hy_tensor_absent();
      continue;
    }
    c->result[o] = out[o].dtype;
    int twin = c->flavour == HY__FLAVOUR_IN_PLACE ? input_for(c, o, &out[o]) : -1;
    if (twin >= 0) {
      c->out[c->call.n_out++] = c->in[twin];
      continue;
    }
    hy_dtype dtype = out[o].dtype;
    if (c->flavour == HY__FLAVOUR_MIXED && c->info->alias == HY_ALIAS_ANY && inferred) {
      dtype = hy__draw_dtype(c, types_that_hold(dtype));
      c->mixed |= dtype != out[o].dtype;
    }
    c->out[c->call.n_out++] = place_output(c, &out[o], dtype, style_of(c));
  }
}

// ---- mistakes ----

static int required_input(const hy__case* c) {
  for (int i = 0; i < c->info->n_inputs; i++) {
    if (c->info->inputs[i].kind == HY_ARGUMENT_REQUIRED && i < c->call.n_in) return i;
  }
  return -1;
}

// Makes the mistake; false when this op cannot make it.
static bool spoil(hy__case* c, int mistake) {
  int i = required_input(c);
  hy_tensor *in = i >= 0 ? &c->in[i] : NULL, *out = &c->out[0];
  bool out_is_strided = out->layout == HY_LAYOUT_STRIDED;
  c->expected = HY_INVALID_ARGUMENT;
  switch (mistake) {
    case MISTAKE_COUNT:
      if (!in) return false;
      c->call.n_in = i;
      return true;
    case MISTAKE_NULL_INPUT:
      if (!in || hy_tensor_numel(in) == 0) return false;
      in->data = NULL;
      return true;
    case MISTAKE_NULL_OUTPUT:
      if (hy_tensor_numel(out) == 0) return false;
      out->data = NULL;
      return true;
    case MISTAKE_ABSENT_INPUT:
      if (!in) return false;
      *in = hy_tensor_absent();
      return true;
    case MISTAKE_ABSENT_OUTPUT:
      if (c->info->outputs[0].kind == HY_ARGUMENT_OPTIONAL || !in) return false;
      *out = hy_tensor_absent();
      return true;
    case MISTAKE_OUTPUT_SHAPE:
      if (c->info->n_inputs == 0 || out->ndim == HY_MAX_DIMS || !out_is_strided) return false;
      c->expected = HY_SHAPE;
      out->shape[out->ndim] = out->stride[out->ndim] = 1;
      out->ndim++;
      return true;
    case MISTAKE_OUTPUT_DTYPE:
      if (c->info->n_inputs == 0 || !out_is_strided || out->dtype == HY_BOOL) return false;
      c->expected = HY_DTYPE;
      out->dtype = HY_BOOL;
      return true;
    case MISTAKE_INPUT_DTYPE:
      if (!in || in->layout != HY_LAYOUT_STRIDED || (c->info->dtypes & HY_FLOAT8S)) return false;
      c->expected = HY_DTYPE;
      in->dtype = HY_F8E4M3;
      return true;
    case MISTAKE_LAYOUT:
      if (!out_is_strided) return false;
      c->expected = HY_LAYOUT;
      out->layout = HY_LAYOUT_SPARSE_2_4;
      return true;
    case MISTAKE_SELF_OVERLAP:
      if (hy_tensor_numel(out) == 0) return false;
      c->expected = HY_OVERLAP;
      for (int d = 0; d < out->ndim && out_is_strided; d++) {
        if (out->shape[d] < 2) continue;
        out->stride[d] = 0;
        return true;
      }
      return false;
    case MISTAKE_PARTIAL_OVERLAP: {
      if (!in || in->layout != HY_LAYOUT_STRIDED || !out_is_strided || hy_tensor_numel(out) == 0)
        return false;
      size_t a = hy_dtype_size(in->dtype), b = hy_dtype_size(out->dtype), shift = a > b ? a : b;
      if (hy_tensor_bytes(in) <= shift) return false;
      c->expected = HY_OVERLAP;
      out->data = (char*)in->data + shift;
      return true;
    }
    case MISTAKE_MISALIGNED:
      if (!in || in->layout != HY_LAYOUT_STRIDED || hy_dtype_size(in->dtype) < 2 ||
          hy_tensor_numel(in) == 0)
        return false;
      in->data = (char*)in->data + 1;
      return true;
    case MISTAKE_FORBIDDEN_ALIAS:
      if (!in || c->info->alias != HY_ALIAS_NONE || hy_tensor_numel(in) == 0 ||
          hy_tensor_numel(out) == 0 || !out_is_strided)
        return false;
      c->expected = HY_OVERLAP;
      out->data = in->data;
      return true;
    case MISTAKE_TOO_MANY_DIMS:
      if (!in) return false;
      c->expected = HY_SHAPE;
      in->ndim = HY_MAX_DIMS + 1;
      return true;
  }
  return false;
}

static const char* mistake_text(int mistake) {
  static const char* const texts[] = {
#define HY_AS_TEXT(name, text) text,
      GENERAL_MISTAKES(HY_AS_TEXT)
#undef HY_AS_TEXT
  };
  return texts[mistake];
}

// ---- the whole ----

typedef void (*generator)(hy__case* c);
static const generator generators[HY_OP_END] = {
#define HY_OP(id, name, outputs, inputs, attrs, dtypes, dtype_rule, shape_rule, alias, kernel, \
              split, grad, cases, ...)                                                         \
  [id] = hy__cases_##cases,
#include "halyard/ops.def"
};

static int n_dtypes(hy_op op) {
  return __builtin_popcount(hy_op_describe(op)->dtypes);
}

// Valid cases of a type: one of each flavour, MODEL being the last, which has several.
#define VALID (HY__FLAVOUR_COUNT - 1 + HY__MODEL_SIZES)

int hy__case_count(hy_op op) {
  if (!hy_op_describe(op)) return 0;
  return n_dtypes(op) * VALID + OWN_MISTAKES + GENERAL_COUNT;
}

static hy_dtype nth_dtype(uint32_t dtypes, int n) {
  for (int d = 1; d < HY_DTYPE_COUNT; d++) {
    if ((dtypes & HY_DTYPE_BIT(d)) && n-- == 0) return (hy_dtype)d;
  }
  return HY_NONE;
}

// The largest finite value among the floating inputs.
static double largest_input(const hy__case* c) {
  double most = 0;
  for (int i = 0; i < c->call.n_in; i++) most = fmax(most, hy__largest(&c->in[i]));
  return most;
}

hy_status hy__case_make(hy__case* c, const hy__case_key* key) {
  unsigned char* image = c->image;
  memset(c, 0, sizeof *c);
  c->image = image;
  c->key = *key;
  c->info = hy_op_describe(key->op);
  if (!c->info) return hy_fail(HY_NOT_FOUND, "%d is no op", (int)key->op);
  if (key->index < 0 || key->index >= hy__case_count(key->op))
    return hy_fail(HY_NOT_FOUND, "%s has cases 0 to %d, not %d", c->info->name,
                   hy__case_count(key->op) - 1, key->index);
  int dtypes = n_dtypes(key->op), mistake = key->index - dtypes * VALID;
  c->random = key->seed * 0x2545f4914f6cdd1du ^ (uint64_t)key->op << 32 ^ (uint64_t)key->index;
  hy__draw(c);
  c->call.op = key->op;
  c->terms = 1;
  if (mistake < 0) {
    int flavour = key->index / dtypes;
    c->flavour = (hy__flavour)(flavour < HY__FLAVOUR_MODEL ? flavour : HY__FLAVOUR_MODEL);
    c->model = flavour - c->flavour;
    c->dtype = nth_dtype(c->info->dtypes, key->index % dtypes);
    c->main =
        (key->seed + (uint64_t)c->model) % (uint64_t)dtypes == (uint64_t)(key->index % dtypes);
    // A quick run keeps one size of an op, and of many types half for each layout.
    bool kept = c->main && (key->seed + (uint64_t)key->op) % HY__MODEL_SIZES == (uint64_t)c->model;
    if (c->flavour != HY__FLAVOUR_MODEL)
      kept = dtypes <= 2 || c->flavour == HY__FLAVOUR_PLAIN || c->flavour > HY__FLAVOUR_TINY ||
             (key->seed + (uint64_t)key->index % (uint64_t)dtypes + (uint64_t)c->flavour) % 2 == 0;
    c->missing = key->quick && !kept;
  } else {
    c->dtype = nth_dtype(c->info->dtypes, 0);
    if (mistake < OWN_MISTAKES) c->wrong = mistake + 1;
  }
  if (key->simple && (c->flavour == HY__FLAVOUR_SPECIAL || c->flavour < HY__FLAVOUR_MIXED))
    c->flavour = HY__FLAVOUR_PLAIN;
  if (!c->missing) generators[key->op](c);
  if (c->missing) return hy_fail(HY_NOT_FOUND, "%s has no such case", c->info->name);
  if (c->wrong > 0 && c->expected == HY_OK)
    return hy_fail(HY_NOT_FOUND, "%s has no such mistake", c->info->name);
  add_outputs(c);
  if (c->too_large)
    return hy_fail(HY_OUT_OF_MEMORY, "a case of %s needs more than %zu MiB", c->info->name,
                   IMAGE_BYTES >> 20);
  if (mistake >= OWN_MISTAKES) {
    snprintf(c->what, sizeof c->what, "%s", mistake_text(mistake - OWN_MISTAKES));
    if (!spoil(c, mistake - OWN_MISTAKES))
      return hy_fail(HY_NOT_FOUND, "%s cannot make this mistake: %s", c->info->name, c->what);
  }
  if (!c->wide) c->scale = mistake < 0 ? largest_input(c) : 1;
  return HY_OK;
}

bool hy__case_is_promised(const hy__case* c) {
  if (c->expected != HY_OK || c->mixed) return false;
  for (int i = 0; i < c->call.n_in; i++) {
    if (hy__present(&c->in[i]) && !hy_tensor_is_contiguous(&c->in[i])) return false;
  }
  for (int i = 0; i < c->call.n_out; i++) {
    if (hy__present(&c->out[i]) && !hy_tensor_is_contiguous(&c->out[i])) return false;
  }
  return true;
}

void hy__case_describe(const hy__case* c, char* buffer, size_t size) {
  hy_call_describe(&c->call, buffer, size);
  for (int o = 0; o < c->call.n_out; o++) {
    for (int i = 0; i < c->call.n_in; i++) {
      size_t used = strlen(buffer);
      if (hy__present(&c->out[o]) && hy__present(&c->in[i]) && c->out[o].data &&
          c->out[o].data == c->in[i].data)
        snprintf(buffer + used, size - used, ", %s = in[%d]", c->info->outputs[o].name, i);
    }
  }
}
