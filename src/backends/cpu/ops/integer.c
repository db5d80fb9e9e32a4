// Elementwise arithmetic, bitwise ops and comparisons of integers and bool, with broadcasting. All
// tensors but a comparison's output have one type. Sums and products wrap in two's complement.
#include "backends/cpu/family.h"
#include "backends/cpu/rows/nditer.h"

// clang-format off
#define TYPES(X)                    \
  X(HY_I8, int8_t)         \
  X(HY_U8, uint8_t)        \
  X(HY_I16, int16_t)      \
  X(HY_I32, int32_t)      \
  X(HY_I64, int64_t)

// X(op, value of x, y and the number p): arithmetic, in uint64_t where it wraps.
#define ARITHMETIC(X)                                                   \
  X(add, (uint64_t)x + (uint64_t)p * (uint64_t)y)                       \
  X(sub, (uint64_t)x - (uint64_t)p * (uint64_t)y)                       \
  X(mul, (uint64_t)x * (uint64_t)y)                                     \
  X(add_scalar, (uint64_t)x + (uint64_t)p)                              \
  X(sub_scalar, (uint64_t)x - (uint64_t)p)                              \
  X(mul_scalar, (uint64_t)x * (uint64_t)p)                              \
  X(maximum, x > y ? x : y)                                             \
  X(minimum, x < y ? x : y)                                             \
  X(neg, 0 - (uint64_t)x)                                               \
  X(abs, x > 0 ? (uint64_t)x : 0 - (uint64_t)x)                                  \
  X(relu, x > 0 ? x : 0)                                                         \
  X(bitwise_and, x& y)                                                  \
  X(bitwise_or, x | y)                                                  \
  X(bitwise_xor, x ^ y)                                                 \
  X(bitwise_not, ~x)

#define TESTS(X)                      \
  X(eq, x == y)                       \
  X(ne, x != y)                       \
  X(lt, x < y)                        \
  X(le, x <= y)                       \
  X(gt, x > y)                        \
  X(ge, x >= y)                       \
  X(logical_and, x != 0 && y != 0)    \
  X(logical_or, x != 0 || y != 0)     \
  X(logical_xor, (x != 0) != (y != 0)) \
  X(logical_not, x == 0)              \
  X(eq_scalar, x == p)                \
  X(ne_scalar, x != p)                \
  X(lt_scalar, x < p)                 \
  X(le_scalar, x <= p)                \
  X(gt_scalar, x > p)                 \
  X(ge_scalar, x >= p)

// Of bool, of which any byte but 0 is true.
#define BOOLS(X)                              \
  X(bitwise_and, x != 0 && y != 0)            \
  X(bitwise_or, x != 0 || y != 0)             \
  X(bitwise_xor, (x != 0) != (y != 0))        \
  X(bitwise_not, x == 0)                      \
  X(eq, (x != 0) == (y != 0))                 \
  X(ne, (x != 0) != (y != 0))                 \
  X(logical_and, x != 0 && y != 0)            \
  X(logical_or, x != 0 || y != 0)             \
  X(logical_xor, (x != 0) != (y != 0))        \
  X(logical_not, x == 0)
// clang-format on

typedef struct job {
  hy_op op;
  hy_dtype dtype;
  int n_in;
  int64_t p;
} job;

// Contiguous rows have a loop in which the steps are constants, and which then vectorises.
#define LOOP(from, to, result, s0, s1, s2)                                   \
  for (int64_t i = 0; i < n; i++) {                                          \
    from x = *(const from*)(a + i * (s1)), y = *(const from*)(b + i * (s2)); \
    (void)x, (void)y;                                                        \
    *(to*)(out + i * (s0)) = (to)(result);                                   \
  }
#define ROW(from, to, result)                                                                   \
  {                                                                                             \
    int64_t u = sizeof(from), v = sizeof(to);                                                   \
    if (step[0] == v && step[1] == u && b_step == u)                                            \
      LOOP(from, to, result, (int64_t)sizeof(to), (int64_t)sizeof(from), (int64_t)sizeof(from)) \
    else                                                                                        \
      LOOP(from, to, result, step[0], step[1], b_step)                                          \
    return;                                                                                     \
  }

static void run_row(const void* context, int64_t n, char* const* at, const int64_t* step) {
  const job* j = context;
  const char *a = at[1], *b = at[j->n_in];
  char* out = at[0];
  int64_t p = j->p, b_step = step[j->n_in];
  // clang-format off
#define AS_CASE(name, result) case HY_OP_##name: ROW(type, type, result)
#define AS_TEST(name, result) case HY_OP_##name: ROW(type, uint8_t, result)
#define AS_BOOL(name, result) case HY_OP_##name: ROW(uint8_t, uint8_t, result)
  // clang-format on
#define BY_OP(of, element) \
  if (j->dtype == (of)) {  \
    typedef element type;  \
    switch (j->op) {       \
      ARITHMETIC(AS_CASE)  \
      TESTS(AS_TEST)       \
      default: return;     \
    }                      \
  }
  TYPES(BY_OP)
  switch (j->op) {
    BOOLS(AS_BOOL)
    default: return;
  }
#undef BY_OP
#undef AS_BOOL
#undef AS_TEST
#undef AS_CASE
}

#define AS_CASE(name, result) case HY_OP_##name:
static bool is_test(hy_op op) {
  switch (op) {
    TESTS(AS_CASE) return true;
    default: return false;
  }
}

static bool takes_bool(hy_op op) {
  switch (op) {
    BOOLS(AS_CASE) return true;
    default: return false;
  }
}
#undef AS_CASE

// The number that an op has beside its tensors; only whole ones are for this family.
static hy_scalar number_of(const hy_call* call) {
  switch (call->op) {
    case HY_OP_add:
    case HY_OP_sub: return call->attrs.alpha.alpha;
    case HY_OP_add_scalar:
    case HY_OP_sub_scalar:
    case HY_OP_mul_scalar:
    case HY_OP_eq_scalar:
    case HY_OP_ne_scalar:
    case HY_OP_lt_scalar:
    case HY_OP_le_scalar:
    case HY_OP_gt_scalar:
    case HY_OP_ge_scalar: return call->attrs.value.value;
    default: return hy_int(1);
  }
}

static hy_status run(const hy__cpu_kernels* kernels, const hy_call* call) {
  (void)kernels;
  job j = {.op = call->op, .dtype = call->in[0].dtype, .n_in = call->n_in};
  j.p = number_of(call).as.i;
  if (call->op == HY_OP_add_scalar || call->op == HY_OP_sub_scalar)
    j.p = (int64_t)((uint64_t)j.p * (uint64_t)call->attrs.value_alpha.alpha.as.i);
  const hy_tensor* tensors[3] = {&call->out[0], &call->in[0], &call->in[call->n_in - 1]};
  hy__nditer loop;
  hy__nditer_init(&loop, call->n_in + 1, tensors);
  hy__nditer_run(&loop, run_row, &j, 1);
  return HY_OK;
}

static hy_support supports(const hy_call* call) {
  hy_dtype dtype = call->in[0].dtype;
  if (call->in[call->n_in - 1].dtype != dtype) return HY_SUPPORT_NO_DTYPE;
  if (call->out[0].dtype != (is_test(call->op) ? HY_BOOL : dtype)) return HY_SUPPORT_NO_DTYPE;
  hy_scalar number = number_of(call);
  bool has_alpha = call->op == HY_OP_add_scalar || call->op == HY_OP_sub_scalar;
  if (number.kind != HY_I64 || (has_alpha && call->attrs.value_alpha.alpha.kind != HY_I64))
    return HY_SUPPORT_NO_ATTRIBUTE;
  // A comparison takes its number in the tensor's type.
  int bits = hy_dtype_bits(dtype);
  int64_t most = bits >= 64 ? INT64_MAX : ((int64_t)1 << (bits - 1)) - 1;
  bool fits = number.as.i <= most && number.as.i >= (dtype == HY_U8 ? 0 : -most);
  if (is_test(call->op) && !fits) return HY_SUPPORT_NO_ATTRIBUTE;
  return dtype != HY_BOOL || takes_bool(call->op) ? HY_SUPPORT_YES : HY_SUPPORT_NO_DTYPE;
}

const hy__cpu_family hy__cpu_integer = {supports, run};
