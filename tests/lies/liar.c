// The lying backend: the reference, and one way to break what it computed.
#include "lies/liar.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/stub.h"

static const hy_host* host;
static lie current;
static liar_record record;

// ---- elements as bits ----

typedef struct format {
  int exponent, mantissa;  // bits
} format;

static format format_of(hy_dtype dtype) {
  switch (dtype) {
    case HY_F64: return (format){11, 52};
    case HY_F32: return (format){8, 23};
    case HY_BF16: return (format){8, 7};
    case HY_F16: return (format){5, 10};
    case HY_F8E4M3: return (format){4, 3};
    default: return (format){5, 2};
  }
}

static char* element(const hy_tensor* t, int64_t i) {
  int64_t offset = 0;
  for (int d = t->ndim - 1; d >= 0; d--) {
    offset += i % t->shape[d] * t->stride[d];
    i /= t->shape[d];
  }
  return (char*)t->data + offset * (int64_t)hy_dtype_size(t->dtype);
}

static uint64_t bits_at(hy_dtype dtype, const char* at) {
  uint64_t bits = 0;
  memcpy(&bits, at, hy_dtype_size(dtype));  // little-endian, as all of this
  return bits;
}

static void put_bits(hy_dtype dtype, char* at, uint64_t bits) {
  memcpy(at, &bits, hy_dtype_size(dtype));
}

static uint64_t one_bits(format f) {
  return (((uint64_t)1 << (f.exponent - 1)) - 1) << f.mantissa;
}

static double value_at(hy_dtype dtype, const char* at) {
  format f = format_of(dtype);
  uint64_t bits = bits_at(dtype, at), mantissa = bits & (((uint64_t)1 << f.mantissa) - 1);
  int exponent = (int)(bits >> f.mantissa & (((uint64_t)1 << f.exponent) - 1));
  int bias = (1 << (f.exponent - 1)) - 1;
  double sign = bits >> (f.mantissa + f.exponent) & 1 ? -1 : 1;
  if (exponent == (1 << f.exponent) - 1 && dtype != HY_F8E4M3)
    return mantissa ? NAN : sign * INFINITY;
  if (exponent == 0) return sign * ldexp((double)mantissa, 1 - bias - f.mantissa);
  return sign * ldexp((double)(mantissa | (uint64_t)1 << f.mantissa), exponent - bias - f.mantissa);
}

// Far from what it was, in any type.
static void make_wrong(const hy_tensor* t, int64_t i) {
  record.told++;
  if (t->layout != HY_LAYOUT_STRIDED) {
    unsigned char* byte = (unsigned char*)t->data + (t->dtype == HY_I4 ? i / 2 : i);
    *byte ^= t->dtype == HY_I4 && i % 2 ? 0x40 : 0x04;
    return;
  }
  char* at = element(t, i);
  uint64_t bits = bits_at(t->dtype, at);
  if (!hy_dtype_is_float(t->dtype)) {
    put_bits(t->dtype, at, bits ^ (t->dtype == HY_BOOL ? 1 : 4));
    return;
  }
  format f = format_of(t->dtype);
  double value = value_at(t->dtype, at);
  // Half or twice as much, or 32 where that would be little.
  uint64_t much = one_bits(f) + ((uint64_t)5 << f.mantissa);
  bool small = !(fabs(value) >= 16) || isinf(value);
  put_bits(t->dtype, at, small ? much : bits ^ (uint64_t)1 << f.mantissa);
}

static void break_output(const hy_call* call, int o, bool last) {
  const hy_tensor* t = &call->out[o];
  if (o >= call->n_out || hy_tensor_is_absent(t)) {
    for (o = 0; o < call->n_out && hy_tensor_is_absent(&call->out[o]); o++) continue;
    if (o == call->n_out) return;
    t = &call->out[o];
  }
  int64_t numel = hy_tensor_numel(t);
  if (numel > 0) make_wrong(t, last ? numel - 1 : 0);
}

// ---- values ----

typedef struct classified {
  bool negative_zero, subnormal, small, large, nan, infinite, beyond_double, large_int;
} classified;

static classified classify(hy_dtype dtype, const char* at) {
  classified c = {0};
  uint64_t bits = bits_at(dtype, at);
  if (!hy_dtype_is_float(dtype)) {
    int shift = 64 - hy_dtype_bits(dtype);
    int64_t value =
        dtype == HY_U8 || dtype == HY_BOOL ? (int64_t)bits : (int64_t)(bits << shift) >> shift;
    c.beyond_double = dtype == HY_I64 && (double)value < 0x1p63 && (int64_t)(double)value != value;
    c.large_int = value > (1 << 30) || value < -(1 << 30);
    return c;
  }
  double value = value_at(dtype, at), size = fabs(value);
  format f = format_of(dtype);
  int highest = (1 << (f.exponent - 1)) - 1;
  c.negative_zero = value == 0 && signbit(value);
  // Not the last few steps, which a function may be off by.
  c.subnormal = size >= ldexp(1, -highest - 12) && size < ldexp(1, 1 - highest);
  c.small = value != 0 && size < 0x1p-20;
  c.large = isfinite(value) && size >= ldexp(1, highest * 3 / 4);
  c.nan = isnan(value);
  c.infinite = isinf(value);
  return c;
}

static bool concerns(lie_kind kind, classified c) {
  switch (kind) {
    case LIE_ZERO_SIGN: return c.negative_zero;
    case LIE_FLUSHED: return c.subnormal;
    case LIE_SMALL_LOST: return c.small;
    case LIE_LARGE_WRONG: return c.large;
    case LIE_NAN_LOST: return c.nan;
    case LIE_INFINITY_LOST: return c.infinite;
    case LIE_THROUGH_DOUBLE: return c.beyond_double;
    case LIE_LARGE_INT: return c.large_int;
    default: return false;
  }
}

static bool is_about_values(lie_kind kind) {
  return kind >= LIE_ZERO_SIGN && kind <= LIE_LARGE_INT;
}

uint64_t liar_values(const hy_call* call) {
  uint64_t found = 0;
  for (int o = 0; o < call->n_out; o++) {
    const hy_tensor* t = &call->out[o];
    if (hy_tensor_is_absent(t) || t->layout != HY_LAYOUT_STRIDED) continue;
    int64_t numel = hy_tensor_numel(t), size = (int64_t)hy_dtype_size(t->dtype);
    bool contiguous = hy_tensor_is_contiguous(t);
    for (int64_t i = 0; i < numel; i++) {
      classified c = classify(t->dtype, contiguous ? (char*)t->data + i * size : element(t, i));
      for (int kind = LIE_ZERO_SIGN; kind <= LIE_LARGE_INT; kind++)
        found |= (uint64_t)concerns((lie_kind)kind, c) << kind;
    }
  }
  return found;
}

static void break_values(const hy_call* call) {
  for (int o = 0; o < call->n_out; o++) {
    const hy_tensor* t = &call->out[o];
    if (hy_tensor_is_absent(t) || t->layout != HY_LAYOUT_STRIDED) continue;
    int64_t numel = hy_tensor_numel(t);
    format f = format_of(t->dtype);
    for (int64_t i = 0; i < numel; i++) {
      char* at = element(t, i);
      uint64_t bits = bits_at(t->dtype, at);
      if (!concerns(current.kind, classify(t->dtype, at))) continue;
      record.told++;
      switch (current.kind) {
        case LIE_ZERO_SIGN:
        case LIE_FLUSHED:
        case LIE_SMALL_LOST: bits = 0; break;
        case LIE_NAN_LOST:
        case LIE_INFINITY_LOST: bits = one_bits(f); break;
        case LIE_LARGE_WRONG: bits ^= (uint64_t)1 << (f.mantissa - 1); break;
        case LIE_THROUGH_DOUBLE: bits = (uint64_t)(int64_t)(double)(int64_t)bits; break;
        default: bits ^= 4; break;
      }
      put_bits(t->dtype, at, bits);
    }
  }
}

// Elements of output 0 by the elements of the first input of its shape.
static void break_by_input(const hy_call* call) {
  const hy_tensor *out = &call->out[0], *in = NULL;
  for (int i = 0; i < call->n_in && !in; i++) {
    const hy_tensor* t = &call->in[i];
    if (t->ndim == out->ndim && t->layout == HY_LAYOUT_STRIDED && hy_dtype_is_float(t->dtype) &&
        t->data != out->data &&
        memcmp(t->shape, out->shape, (size_t)t->ndim * sizeof *t->shape) == 0)
      in = t;
  }
  if (!in || hy_tensor_is_absent(out) || out->layout != HY_LAYOUT_STRIDED) return;
  int64_t numel = hy_tensor_numel(out);
  for (int64_t i = 0; i < numel; i++) {
    double size = fabs(value_at(in->dtype, element(in, i)));
    if (current.kind == LIE_FAR ? size > (double)current.a && isfinite(size)
                                : size > 0 && size < ldexp(1, -(int)current.a))
      make_wrong(out, i);
  }
}

// A relative error of the statistics by mean^2 / variance units of the arithmetic.
static void lose_variance(const hy_call* call) {
  const hy_tensor* x = &call->in[call->op == HY_OP_batch_norm_update ? 2 : 0];
  int64_t numel = hy_tensor_numel(x);
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < numel; i++) sum += value_at(x->dtype, element(x, i));
  double mean = numel ? sum / (double)numel : 0;
  for (int64_t i = 0; i < numel; i++) {
    double apart = value_at(x->dtype, element(x, i)) - mean;
    squares += apart * apart;
  }
  double unit = x->dtype == HY_F64 ? 0x1p-53 : 0x1p-24;
  double error = squares > 0 ? mean * mean * (double)numel / squares * unit : 0;
  for (int o = 0; o < call->n_out; o++) {
    const hy_tensor* t = &call->out[o];
    bool is_mean = o == (call->op == HY_OP_batch_norm_update ? 0 : 1);
    if (hy_tensor_is_absent(t) || (t->dtype != HY_F32 && t->dtype != HY_F64) || is_mean) continue;
    int64_t n = hy_tensor_numel(t);
    for (int64_t i = 0; i < n; i++) {
      double value = value_at(t->dtype, element(t, i)), lost = value * (1 + error);
      float narrow = (float)lost;
      memcpy(element(t, i), t->dtype == HY_F64 ? (void*)&lost : (void*)&narrow,
             hy_dtype_size(t->dtype));
      record.told += lost != value;
    }
  }
}

// ---- attributes ----

typedef struct field {
  const char *name, *type;
  size_t offset;
} field;

#define AS_FIELD(kind, type, name) {#name, #type, offsetof(hy_attrs_##kind, name)},
#define AS_FIELDS(kind) \
  static const field kind##_fields[] = {HY_ATTRS_##kind(AS_FIELD, kind){NULL, NULL, 0}};
HY_ATTR_KINDS(AS_FIELDS)
AS_FIELDS(none)

static const field* const fields[HY_OP_END] = {
#define HY_OP(id, name, outputs, inputs, attrs, ...) [id] = attrs##_fields,
#include "halyard/ops.def"
};

// What each type's values are that an attribute is taken to have; see lies_of_attribute.
static hy_attrs with_attribute(const hy_call* call) {
  hy_attrs attrs = call->attrs;
  const field* f = &fields[call->op][current.a];
  char* at = (char*)&attrs + f->offset;
#define IS(name) (strcmp(f->type, #name) == 0)
#define AS(type) (*(type*)at)
  if (current.kind == LIE_CAPPED) {
    if (IS(int64_t) && AS(int64_t) > current.b) AS(int64_t) = current.b;
    if (IS(uint64_t)) AS(uint64_t) &= 0xffffffff;
    if (IS(double) && AS(double) > (double)current.b) AS(double) = (double)current.b;
  } else if (IS(bool)) {
    AS(bool) = current.b != 0;
  } else if (IS(int64_t)) {
    AS(int64_t) = current.b;
  } else if (IS(uint64_t)) {
    AS(uint64_t) = (uint64_t)current.b;
  } else if (IS(double)) {
    const double values[] = {0, 1, 0.5, 1e-5, 0.1, 0.9, 0.999, 1e-8};
    AS(double) = values[current.b];
  } else if (IS(hy_scalar)) {
    AS(hy_scalar) = hy_int(current.b);
  } else if (IS(hy_dtype)) {
    AS(hy_dtype) = HY_F32;
  } else if (IS(hy_pair)) {
    hy_pair* pair = (hy_pair*)at;
    *pair = current.b < 2    ? (hy_pair){current.b, current.b}
            : current.b == 2 ? (hy_pair){pair->h, pair->h}
                             : (hy_pair){pair->w, pair->w};
  } else if (IS(hy_dims)) {
    AS(hy_dims).n = 0;
  } else if (!IS(hy_equation)) {
    AS(int) = (int)current.b;  // the enums
  }
#undef AS
#undef IS
  return attrs;
}

static bool shares_memory(const hy_call* call) {
  for (int o = 0; o < call->n_out; o++) {
    for (int i = 0; i < call->n_in; i++) {
      if (!hy_tensor_is_absent(&call->out[o]) && !hy_tensor_is_absent(&call->in[i]) &&
          call->out[o].data == call->in[i].data)
        return true;
    }
  }
  return false;
}

static size_t copy_outputs(const hy_call* call, char* to, bool back) {
  size_t used = 0;
  for (int o = 0; o < call->n_out; o++) {
    const hy_tensor* t = &call->out[o];
    if (hy_tensor_is_absent(t)) continue;
    int64_t first = 0, last = (int64_t)hy_tensor_bytes(t);
    if (t->layout == HY_LAYOUT_STRIDED) hy_tensor_extent(t, &first, &last);
    size_t size = (size_t)(last - first);
    if (to && !back) memcpy(to + used, (char*)t->data + first, size);
    if (to && back) memcpy((char*)t->data + first, to + used, size);
    used += size;
  }
  return used;
}

static hy_status run_with_attribute(const hy_call* call) {
  hy_call other = *call;
  other.attrs = with_attribute(call);
  bool differs = memcmp(other.attrs.words, call->attrs.words, sizeof other.attrs.words) != 0;
  hy_status status = host->reference(call);
  if (!differs || status != HY_OK || shares_memory(call)) return status;
  record.meant++;
  size_t size = copy_outputs(call, NULL, false);
  char* honest = malloc(2 * size + 1);
  if (!honest) return host->fail(HY_OUT_OF_MEMORY, "no memory to lie");
  copy_outputs(call, honest, false);
  if (host->reference(&other) != HY_OK) {
    record.refused++;
    copy_outputs(call, honest, true);
  } else {
    copy_outputs(call, honest + size, false);
    record.told += memcmp(honest, honest + size, size) != 0;
  }
  free(honest);
  return HY_OK;
}

// ---- which calls ----

static bool any_tensor(const hy_call* call, bool (*is)(const hy_tensor*, int64_t), int64_t limit) {
  for (int i = 0; i < call->n_in; i++) {
    if (!hy_tensor_is_absent(&call->in[i]) && is(&call->in[i], limit)) return true;
  }
  for (int o = 0; o < call->n_out; o++) {
    if (!hy_tensor_is_absent(&call->out[o]) && is(&call->out[o], limit)) return true;
  }
  return false;
}

static bool has_more_elements(const hy_tensor* t, int64_t limit) {
  return hy_tensor_numel(t) > limit;
}

static bool has_more_dims(const hy_tensor* t, int64_t limit) {
  return t->ndim > limit;
}

static bool is_longer(const hy_tensor* t, int64_t limit) {
  for (int d = 0; d < t->ndim; d++) {
    if (t->shape[d] > limit) return true;
  }
  return false;
}

static bool is_present(const hy_tensor* tensors, int n, int64_t i) {
  return i < n && !hy_tensor_is_absent(&tensors[i]);
}

// Read as contiguous, it must stay inside the memory that it has.
static bool can_be_misread(const hy_tensor* t) {
  if (hy_tensor_is_absent(t) || t->layout != HY_LAYOUT_STRIDED || hy_tensor_is_contiguous(t))
    return false;
  int64_t first, last;
  hy_tensor_extent(t, &first, &last);
  return first == 0 && last >= (int64_t)hy_tensor_bytes(t) && hy_tensor_numel(t) > 1;
}

bool liar_applies(const lie* l, const hy_call* call) {
  if (call->op != l->op) return false;
  const hy_tensor* first = call->n_in > 0 ? &call->in[0] : &call->out[0];
  switch (l->kind) {
    case LIE_LAST:
    case LIE_FIRST: return is_present(call->out, call->n_out, l->a);
    case LIE_DTYPE: return (int64_t)first->dtype == l->a;
    case LIE_NUMEL: return any_tensor(call, has_more_elements, l->a);
    case LIE_NDIM: return any_tensor(call, has_more_dims, l->a);
    case LIE_LONG: return any_tensor(call, is_longer, l->a);
    case LIE_AXIS:
      return is_present(call->in, call->n_in, l->a) && call->in[l->a].ndim >= l->b &&
             call->in[l->a].shape[call->in[l->a].ndim - l->b] > l->c;
    case LIE_INPUTS: return call->n_in > l->a;
    case LIE_ONE_ROW:
      return first->ndim > 0 && hy_tensor_numel(first) == first->shape[first->ndim - 1] &&
             hy_tensor_numel(&call->out[0]) > l->a;
    case LIE_CONTIGUOUS:
      return is_present(call->in, call->n_in, l->a) && can_be_misread(&call->in[l->a]);
    case LIE_IN_PLACE: return shares_memory(call);
    case LIE_NO_OUTPUT: return !is_present(call->out, call->n_out, l->a);
    case LIE_OUTPUT: return is_present(call->out, call->n_out, l->a);
    case LIE_NO_INPUT: return !is_present(call->in, call->n_in, l->a);
    case LIE_INPUT: return is_present(call->in, call->n_in, l->a);
    default: return true;
  }
}

// ---- the provider ----

static hy_support supports(void* device, const hy_call* call) {
  (void)device;
  static bool asked_by_run;
  if (current.kind != LIE_REFUSES || call->op != current.op) return HY_SUPPORT_YES;
  asked_by_run = !asked_by_run;
  record.told++;
  return asked_by_run ? HY_SUPPORT_YES : HY_SUPPORT_NO_SHAPE;
}

static hy_status misread(const hy_call* call) {
  hy_tensor in[HY_MAX_INPUTS];
  hy_call other = *call;
  memcpy(in, call->in, (size_t)call->n_in * sizeof *in);
  hy_tensor* t = &in[current.a];
  int64_t stride = 1;
  for (int d = t->ndim - 1; d >= 0; d--) {
    t->stride[d] = stride;
    stride *= t->shape[d];
  }
  other.in = in;
  record.told++;
  return host->reference(&other);
}

static hy_status run(void* device, void* stream, const hy_call* call) {
  (void)device, (void)stream;
  record.calls++;
  if (current.kind == LIE_NONE || !liar_applies(&current, call)) return host->reference(call);
  switch (current.kind) {
    case LIE_NOTHING: record.told++; return HY_OK;
    case LIE_FIXED:
    case LIE_CAPPED: return run_with_attribute(call);
    case LIE_CONTIGUOUS: return misread(call);
    default: break;
  }
  hy_status status = host->reference(call);
  if (status != HY_OK) return status;
  switch (current.kind) {
    case LIE_LAST: break_output(call, (int)current.a, true); break;
    case LIE_FIRST: break_output(call, (int)current.a, false); break;
    case LIE_FAR:
    case LIE_NEAR: break_by_input(call); break;
    case LIE_NAIVE_VARIANCE: lose_variance(call); break;
    case LIE_REFUSES: break;
    default:
      if (is_about_values(current.kind))
        break_values(call);
      else
        break_output(call, 0, true);
  }
  return HY_OK;
}

void liar_tell(const lie* l) {
  memset(&current, 0, sizeof current);
  memset(&record, 0, sizeof record);
  if (l) current = *l;
}

liar_record liar_recorded(void) {
  return record;
}

static const char* const words[] = {"truth",
#define LIE_AS_WORD(name, text) text,
                                    LIE_MAP(LIE_AS_WORD)
#undef LIE_AS_WORD
};

const char* liar_describe(const lie* l, char* buffer, size_t size) {
  snprintf(buffer, size, "%s:%s:%lld:%lld:%lld", host ? host->op_name(l->op) : "?", words[l->kind],
           (long long)l->a, (long long)l->b, (long long)l->c);
  return buffer;
}

// ---- the backend ----

static const hy_declaration declares[] = {
#define HY_OP(id, name, outputs, inputs, attrs, dtypes, ...) {HY_OP_##name, dtypes},
#include "halyard/ops.def"
};

static const hy_provider provider = {.size = sizeof(hy_provider),
                                     .name = "lies",
                                     .version = "1",
                                     .declares = declares,
                                     .n_declares = sizeof declares / sizeof declares[0],
                                     .supports = supports,
                                     .run = run};
static const hy_provider* const providers[] = {&provider};

// The stub's devices and memory, and the provider above.
static hy_backend backend;

// "mm:axis:1:0:100" in the environment; what cannot be read is the truth.
static void read_lie(const char* text) {
  lie l = {HY_OP_NONE, LIE_NONE, 0, 0, 0};
  char op[40], kind[40];
  long long a = 0, b = 0, c = 0;
  liar_tell(NULL);
  if (!text || sscanf(text, "%39[^:]:%39[^:]:%lld:%lld:%lld", op, kind, &a, &b, &c) < 2) return;
  for (int i = 1; i < HY_OP_END; i++) {
    if (strcmp(host->op_name((hy_op)i), op) == 0) l.op = (hy_op)i;
  }
  for (size_t i = 1; i < sizeof words / sizeof words[0]; i++) {
    if (strcmp(words[i], kind) == 0) l.kind = (lie_kind)i;
  }
  l.a = a, l.b = b, l.c = c;
  liar_tell(&l);
}

__attribute__((visibility("default"))) hy_status halyard_backend_query(uint32_t abi,
                                                                       const hy_host* services,
                                                                       const hy_backend** table) {
  (void)abi;
  host = services;
  stub_reset();
  backend = stub_backend("liar");
  backend.description = "computes by the reference, and lies in one way";
  backend.providers = providers;
  backend.n_providers = 1;
  *table = &backend;
  read_lie(getenv("HALYARD_LIE"));
  return HY_OK;
}
