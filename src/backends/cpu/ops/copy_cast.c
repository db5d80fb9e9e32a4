// Copy, cast, cat, stack, where, masked_fill and fill. What only moves elements goes by their size,
// not their type.
#include <string.h>

#include "backends/cpu/family.h"
#include "backends/cpu/rows/nditer.h"
#include "backends/cpu/simd/half.h"

enum { ROW = 512 };

// Calls DO(type) with an unsigned integer as wide as an element.
#define BY_SIZE(size, DO)        \
  switch (size) {                \
    case 1: DO(uint8_t); break;  \
    case 2: DO(uint16_t); break; \
    case 4: DO(uint32_t); break; \
    default: DO(uint64_t);       \
  }

typedef struct job {
  const hy__cpu_kernels* kernels;
  int64_t size;
  uint64_t value;     // the bits of an element, in its first `size` bytes
  hy_dtype from, to;  // of a conversion
  bool nontemporal;   // stores of copies and conversions pass the caches by
} job;

static void copy_row(const void* context, int64_t n, char* const* at, const int64_t* step) {
  const job* j = context;
  if (step[0] == j->size && step[1] == j->size) {
    int64_t bytes = n * j->size;
    if (j->nontemporal && (uintptr_t)at[0] % 64 == 0 && bytes % 4 == 0)
      j->kernels->rows->identity[HY__ROW_F32](bytes / 4, (const void*[]){at[1]}, 0, 0, at[0], true);
    else
      memmove(at[0], at[1], (size_t)bytes);
    return;
  }
#define COPY(type) \
  for (int64_t i = 0; i < n; i++) *(type*)(at[0] + i * step[0]) = *(type*)(at[1] + i * step[1])
  BY_SIZE(j->size, COPY)
#undef COPY
}

// The steps of contiguous rows are constants in a copy of the loop, which then vectorises.
#define ROWS_OF(type, rest_contiguous, BODY)                                      \
  if (step[0] == sizeof(type) && (rest_contiguous)) {                             \
    _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) BODY(type, sizeof(type)) \
  } else {                                                                        \
    for (int64_t i = 0; i < n; i++) BODY(type, 0)                                 \
  }

static void where_row(const void* context, int64_t n, char* const* at, const int64_t* step) {
  const job* j = context;
  bool contiguous = step[1] == 1 && step[2] == j->size && step[3] == j->size;
#define STEP(k, fixed) ((fixed) ? (int64_t)(fixed) : step[k])
#define WHERE(type, fixed)                                                                   \
  {                                                                                          \
    type a = *(type*)(at[2] + i * STEP(2, fixed)), b = *(type*)(at[3] + i * STEP(3, fixed)); \
    *(type*)(at[0] + i * STEP(0, fixed)) = at[1][i * ((fixed) ? 1 : step[1])] ? a : b;       \
  }
#define CHOOSE(type) ROWS_OF(type, contiguous, WHERE)
  BY_SIZE(j->size, CHOOSE)
#undef CHOOSE
#undef WHERE
}

static void masked_fill_row(const void* context, int64_t n, char* const* at, const int64_t* step) {
  const job* j = context;
  bool contiguous = step[1] == j->size && step[2] == 1;
#define MASKED(type, fixed)                                      \
  {                                                              \
    type a = *(type*)(at[1] + i * STEP(1, fixed));               \
    *(type*)(at[0] + i * STEP(0, fixed)) =                       \
        at[2][i * ((fixed) ? 1 : step[2])] ? (type)j->value : a; \
  }
#define CHOOSE(type) ROWS_OF(type, contiguous, MASKED)
  BY_SIZE(j->size, CHOOSE)
#undef CHOOSE
#undef MASKED
}

static void fill_row(const void* context, int64_t n, char* const* at, const int64_t* step) {
  const job* j = context;
#define FILL(type, fixed) *(type*)(at[0] + i * STEP(0, fixed)) = (type)j->value;
#define CHOOSE(type) ROWS_OF(type, true, FILL)
  BY_SIZE(j->size, CHOOSE)
#undef CHOOSE
#undef FILL
#undef STEP
}

static bool is_f32_or_half(hy_dtype dtype) {
  return dtype == HY_F32 || dtype == HY_BF16 || dtype == HY_F16;
}

// X(dtype, type): the types that convert through int64_t, or double where one side is floating.
#define INTEGERS(X)  \
  X(HY_I8, int8_t)   \
  X(HY_U8, uint8_t)  \
  X(HY_I16, int16_t) \
  X(HY_I32, int32_t) \
  X(HY_I64, int64_t)

static bool is_integer(hy_dtype dtype) {
  return (HY_DTYPE_BIT(dtype) & (HY_INTS | HY_BOOLS)) != 0;
}

static void load_integers(int64_t n, const char* from, int64_t step, hy_dtype dtype, int64_t* row) {
  switch (dtype) {
#define AS_CASE(dtype, type)                                                             \
  case dtype:                                                                            \
    for (int64_t i = 0; i < n; i++) row[i] = (int64_t) * (const type*)(from + i * step); \
    return;
    INTEGERS(AS_CASE)
#undef AS_CASE
    default:
      for (int64_t i = 0; i < n; i++) row[i] = from[i * step] != 0;
  }
}

static void store_integers(int64_t n, const int64_t* row, char* to, int64_t step, hy_dtype dtype) {
  switch (dtype) {
#define AS_CASE(dtype, type)                                                \
  case dtype:                                                               \
    for (int64_t i = 0; i < n; i++) *(type*)(to + i * step) = (type)row[i]; \
    return;
    INTEGERS(AS_CASE)
#undef AS_CASE
    default:
      for (int64_t i = 0; i < n; i++) to[i * step] = row[i] != 0;
  }
}

// A float as an integer: truncated, at most the ends of the type.
static int64_t saturate(hy_scalar s, hy_dtype dtype) {
  int bits = hy_dtype_bits(dtype);
  int64_t high = dtype == HY_U8 ? UINT8_MAX : INT64_MAX >> (64 - bits);
  int64_t low = dtype == HY_U8 ? 0 : -high - 1, value = hy_scalar_i(s);
  return value < low ? low : value > high ? high : value;
}

// From an integer or bool, or to one from f32 or a half; the reference has the rest.
static void convert_integers(const void* context, int64_t n, char* const* at, const int64_t* step) {
  const job* j = context;
  int64_t row[ROW];
  float wide[ROW];
  for (int64_t i = 0; i < n; i += ROW) {
    int64_t count = n - i < ROW ? n - i : ROW;
    const char* from = at[1] + i * step[1];
    char* to = at[0] + i * step[0];
    if (is_integer(j->from)) {
      load_integers(count, from, step[1], j->from, row);
    } else {
      j->kernels->gemm.widen(count, from, step[1] / (int64_t)hy_dtype_size(j->from), j->from, wide);
      for (int64_t k = 0; k < count; k++) row[k] = saturate(hy_float((double)wide[k]), j->to);
      if (j->to == HY_BOOL)
        for (int64_t k = 0; k < count; k++) row[k] = wide[k] != 0;
    }
    if (is_integer(j->to)) {
      store_integers(count, row, to, step[0], j->to);
    } else {
      for (int64_t k = 0; k < count; k++) wide[k] = (float)row[k];
      j->kernels->gemm.epilogue(count, wide, 1, 0, NULL, 0, to,
                                step[0] / (int64_t)hy_dtype_size(j->to), j->to);
    }
  }
}

static void convert_row(const void* context, int64_t n, char* const* at, const int64_t* step) {
  const job* j = context;
  int64_t size[2] = {(int64_t)hy_dtype_size(j->to), (int64_t)hy_dtype_size(j->from)};
  const hy__rows* rows = j->kernels->rows;
  bool nontemporal = j->nontemporal && (uintptr_t)at[0] % 64 == 0;
  if (step[0] == size[0] && step[1] == size[1] && j->from == HY_BF16 && j->to == HY_F32) {
    rows->widen(n, (const uint16_t*)at[1], (float*)at[0], nontemporal);
    return;
  }
  if (step[0] == size[0] && step[1] == size[1] && j->from == HY_F32 && j->to == HY_BF16) {
    rows->narrow(n, (const float*)at[1], (uint16_t*)at[0], nontemporal);
    return;
  }
  float row[ROW];
  for (int64_t i = 0; i < n; i += ROW) {
    int64_t count = n - i < ROW ? n - i : ROW;
    const char* from = at[1] + i * step[1];
    char* to = at[0] + i * step[0];
    bool is_wide = j->from == HY_F32 && step[1] == 4;
    float* wide = j->to == HY_F32 && step[0] == 4 ? (float*)to : row;
    if (!is_wide) j->kernels->gemm.widen(count, from, step[1] / size[1], j->from, wide);
    if (wide == row)
      j->kernels->gemm.epilogue(count, is_wide ? (const float*)from : row, 1, 0, NULL, 0, to,
                                step[0] / size[0], j->to);
  }
}

// The bits of a number in a type; an integer in a narrower one wraps.
static uint64_t bits_of(hy_scalar s, hy_dtype dtype) {
  switch (dtype) {
    case HY_F64: {
      double x = hy_scalar_f(s);
      uint64_t bits;
      memcpy(&bits, &x, sizeof bits);
      return bits;
    }
    case HY_F32: return hy__float_to_bits((float)hy_scalar_f(s));
    case HY_BF16: return hy__float_to_bf16((float)hy_scalar_f(s));
    case HY_F16: return hy__float_to_f16((float)hy_scalar_f(s));
    case HY_BOOL: return hy_scalar_f(s) != 0;
    default: return (uint64_t)(s.kind == HY_F64 ? saturate(s, dtype) : hy_scalar_i(s));
  }
}

static int joined_dim(const hy_call* call) {
  int64_t dim = call->attrs.dim.dim;
  return (int)(dim < 0 ? dim + call->out[0].ndim : dim);
}

// cat and stack: each tensor is copied to its place.
static hy_status join(const hy_call* call) {
  int dim = joined_dim(call);
  hy_tensor place = call->out[0];
  job j = {.size = (int64_t)hy_dtype_size(place.dtype)};
  for (int k = 0; k < call->n_in; k++) {
    const hy_tensor* x = &call->in[k];
    place.shape[dim] = call->op == HY_OP_cat ? x->shape[dim] : 1;
    hy_tensor from = place;
    from.data = x->data;
    for (int d = 0; d < place.ndim; d++) {
      int own = call->op == HY_OP_cat || d < dim ? d : d - 1;
      from.stride[d] = call->op == HY_OP_stack && d == dim ? 0 : x->stride[own];
    }
    hy__nditer loop;
    hy__nditer_init(&loop, 2, (const hy_tensor*[]){&place, &from});
    if (hy_tensor_numel(x) > 0) hy__nditer_run(&loop, copy_row, &j, 1);
    place.data = (char*)place.data + place.shape[dim] * place.stride[dim] * j.size;
  }
  return HY_OK;
}

static hy_status run(const hy__cpu_kernels* kernels, const hy_call* call) {
  if (call->op == HY_OP_cat || call->op == HY_OP_stack) return join(call);
  const hy_tensor* tensors[4] = {&call->out[0]};
  for (int i = 0; i < call->n_in; i++) tensors[i + 1] = &call->in[i];
  hy_dtype dtype = call->out[0].dtype;
  job j = {.kernels = kernels, .size = (int64_t)hy_dtype_size(dtype), .to = dtype};
  j.nontemporal = hy__use_nontemporal(call);
  hy__nditer_body* body = copy_row;
  switch (call->op) {
    case HY_OP_where: body = where_row; break;
    case HY_OP_masked_fill: body = masked_fill_row; break;
    case HY_OP_fill: body = fill_row; break;
    default:
      j.from = call->in[0].dtype;
      if (j.from != j.to)
        body = is_integer(j.from) || is_integer(j.to) ? convert_integers : convert_row;
  }
  if (call->op == HY_OP_masked_fill || call->op == HY_OP_fill)
    j.value = bits_of(call->attrs.value.value, dtype);
  hy__nditer loop;
  hy__nditer_init(&loop, call->n_in + 1, tensors);
  hy__nditer_run(&loop, body, &j, 1);
  return HY_OK;
}

static hy_support supports(const hy_call* call) {
  hy_dtype to = call->out[0].dtype;
  if (call->op == HY_OP_fill) return HY_SUPPORT_YES;
  if (call->op == HY_OP_cat || call->op == HY_OP_stack) {
    for (int k = 0; k < call->n_in; k++) {
      if (call->in[k].dtype != to) return HY_SUPPORT_NO_DTYPE;
      if (call->op == HY_OP_cat && call->in[k].ndim != call->out[0].ndim)
        return HY_SUPPORT_NO_SHAPE;
    }
    return HY_SUPPORT_YES;
  }
  if (call->op == HY_OP_where) {
    bool alike = call->in[1].dtype == to && call->in[2].dtype == to;
    return alike ? HY_SUPPORT_YES : HY_SUPPORT_NO_DTYPE;
  }
  hy_dtype from = call->in[0].dtype;
  hy_dtype type = call->op == HY_OP_cast ? call->attrs.cast.dtype : from;
  // An output of another type than the op's would be rounded twice.
  if (type != to) return HY_SUPPORT_NO_DTYPE;
  if (from == to) return HY_SUPPORT_YES;
  bool known = (is_f32_or_half(from) || is_integer(from)) && (is_f32_or_half(to) || is_integer(to));
  return known ? HY_SUPPORT_YES : HY_SUPPORT_NO_DTYPE;
}

const hy__cpu_family hy__cpu_copy_cast = {supports, run};
