// test_arithmetic.c - the vector functions against libm in double, with the bounds of docs/isa.md.
#include <math.h>
#include <stdio.h>

#include "bench_model.h"
#include "echo_ucode.h"

#define COUNT 65536
#define X BENCH_DATA
#define Y (BENCH_DATA + 4 * COUNT)
#define D (BENCH_DATA + 8 * COUNT)

static echo_cmodel* model;
static float *x, *y, *d;

static int open_model(void** state) {
  (void)state;
  model = bench_open();
  bench_reset(model);
  x = echo_cmodel_memory(model, X, 4 * COUNT);
  y = echo_cmodel_memory(model, Y, 4 * COUNT);
  d = echo_cmodel_memory(model, D, 4 * COUNT);
  return 0;
}

static int close_model(void** state) {
  (void)state;
  echo_cmodel_destroy(model);
  return 0;
}

static void run(uint32_t fn, uint32_t n, float alpha, float beta) {
  int binary = echo_ucode_loads_y(echo_ucode_find(fn)) != 0;
  echo_npu_packet p = {.opcode = ECHO_NPU_OP_VECTOR,
                       .flags = fn << ECHO_NPU_FLAG_FN_SHIFT,
                       .src1 = X,
                       .src2 = binary ? Y : 0,
                       .dst = D,
                       .param = {1, n, 0, 0, 0, bench_bits(alpha), bench_bits(beta)}};
  assert_int_equal(bench_send(model, &p), 0);
}

static double flushed(double v) {
  return fabs(v) < 0x1p-126 ? copysign(0, v) : v;
}

// Distance in units of the last place of the float nearest to `want`.
static double ulps(float got, double want) {
  if (isnan(want)) return isnan(got) ? 0 : INFINITY;
  float nearest = (float)want;
  if (isinf(nearest)) return got == nearest ? 0 : INFINITY;
  if (isinf(got) || isnan(got)) return INFINITY;
  int e;
  frexp(want == 0 ? 0x1p-126 : want, &e);
  return fabs(got - want) / ldexp(1, (e < -125 ? -125 : e) - 24);
}

static double silu(double v) {
  return v / (1 + exp(-v));
}
static double sigmoid(double v) {
  return 1 / (1 + exp(-v));
}
static double gelu(double v) {
  return 0.5 * v * (1 + erf(v * M_SQRT1_2));
}
static double gelu_tanh(double v) {
  return 0.5 * v * (1 + tanh(sqrt(2 / M_PI) * (v + 0.044715 * v * v * v)));
}
static double rsqrt_(double v) {
  return 1 / sqrt(v);
}
static double recip(double v) {
  return 1 / v;
}

typedef struct unary_case {
  uint32_t fn;
  const char* name;
  double (*f)(double);
  double low, high;
  int logarithmic;          // spread arguments over exponents
  double max_ulp, max_abs;  // pass when either holds
} unary_case;

static const unary_case unary[] = {
    {ECHO_NPU_FN_EXP, "exp", exp, -86.9, 88.72, 0, 2, 0},
    {ECHO_NPU_FN_LOG, "log", log, 0x1p-126, 3e38, 1, 2, 0},
    {ECHO_NPU_FN_LOG, "log near 1", log, 0.7, 1.4, 0, 2, 0},
    {ECHO_NPU_FN_SQRT, "sqrt", sqrt, 0x1p-100, 3e38, 1, 1, 0},
    {ECHO_NPU_FN_SQRT, "sqrt tiny", sqrt, 0x1p-126, 0x1p-100, 1, 2, 0},
    {ECHO_NPU_FN_RSQRT, "rsqrt", rsqrt_, 0x1p-126, 3e38, 1, 2, 0},
    {ECHO_NPU_FN_RECIP, "recip", recip, 0x1p-126, 3e38, 1, 1, 0},
    {ECHO_NPU_FN_SIN, "sin", sin, -131072, 131072, 0, 0, 0x1p-23},
    {ECHO_NPU_FN_COS, "cos", cos, -131072, 131072, 0, 0, 0x1p-23},
    {ECHO_NPU_FN_SIN, "sin small", sin, -7, 7, 0, 0, 0x1p-23},
    {ECHO_NPU_FN_COS, "cos small", cos, -7, 7, 0, 0, 0x1p-23},
    {ECHO_NPU_FN_TANH, "tanh", tanh, -12, 12, 0, 3, 0},
    {ECHO_NPU_FN_TANH, "tanh tiny", tanh, 1e-30, 1, 1, 3, 0},
    {ECHO_NPU_FN_SIGMOID, "sigmoid", sigmoid, -80, 80, 0, 3, 0},
    {ECHO_NPU_FN_SILU, "silu", silu, -80, 80, 0, 4, 0},
    {ECHO_NPU_FN_GELU, "gelu", gelu, -8, 8, 0, 4, 0x1p-22},
    {ECHO_NPU_FN_GELU_TANH, "gelu_tanh", gelu_tanh, -8, 8, 0, 4, 0x1p-22},
};

static void unary_functions_meet_their_bounds(void** state) {
  (void)state;
  for (size_t c = 0; c < sizeof unary / sizeof *unary; ++c) {
    const unary_case* u = &unary[c];
    for (int i = 0; i < COUNT; ++i) {
      double t = (double)i / (COUNT - 1);
      x[i] = (float)(u->logarithmic ? exp2(log2(u->low) + t * (log2(u->high) - log2(u->low)))
                                    : u->low + t * (u->high - u->low));
    }
    run(u->fn, COUNT, 0, 0);
    double worst = 0, worst_abs = 0;
    for (int i = 0; i < COUNT; ++i) {
      double want = flushed(u->f(x[i]));
      double e = ulps(d[i], want), a = fabs(d[i] - want);
      if (!isfinite(want) || (fabs(want) < 0x1p-126 && d[i] == 0)) a = 0;
      if (e > worst) worst = e;
      if (a > worst_abs) worst_abs = a;
      if (e > u->max_ulp && !(a <= u->max_abs))
        fail_msg("%s(%a) = %a, not %a: %.2f ulp", u->name, x[i], d[i], want, e);
    }
    print_message("  %-12s worst %6.2f ulp, %.2g absolute\n", u->name, worst, worst_abs);
  }
}

static void divide_and_pow_meet_their_bounds(void** state) {
  (void)state;
  uint64_t seed = 7;
  double worst = 0;
  for (int i = 0; i < COUNT; ++i) {
    uint32_t a = (uint32_t)bench_random(&seed), b = (uint32_t)bench_random(&seed);
    memcpy(&x[i], &a, 4);
    memcpy(&y[i], &b, 4);
  }
  run(ECHO_NPU_FN_DIV, COUNT, 0, 0);
  for (int i = 0; i < COUNT; ++i) {
    double want = flushed(flushed(x[i]) / flushed(y[i])), e = ulps(d[i], want);
    if (e > 1 && !(fabs(want) <= 0x1.000002p-126 && fabs(d[i]) <= 0x1p-126))
      fail_msg("%a / %a = %a, not %a: %.2f ulp", x[i], y[i], d[i], want, e);
    if (isfinite(e) && e > worst) worst = e;
  }
  print_message("  div          worst %6.2f ulp\n", worst);
  worst = 0;
  for (int i = 0; i < COUNT; ++i) {
    x[i] = (float)exp2(((double)(bench_random(&seed) >> 40) / 0x1p24 - 0.5) * 60);
    y[i] = (float)(((double)(bench_random(&seed) >> 40) / 0x1p24 - 0.5) * 16);
  }
  run(ECHO_NPU_FN_POW, COUNT, 0, 0);
  for (int i = 0; i < COUNT; ++i) {
    double want = pow(x[i], y[i]), e = ulps(d[i], want);
    if (fabs(want) < 0x1p-125 || fabs(want) > 0x1.fffffp127) continue;
    double bound = 2 + fabs(y[i] * log(x[i])) * 0x1p-26 / 0x1p-24;
    if (e > bound) fail_msg("pow(%a, %a) = %a, not %a: %.2f ulp", x[i], y[i], d[i], want, e);
    if (e > worst) worst = e;
  }
  print_message("  pow          worst %6.2f ulp\n", worst);
}

static void special_values(void** state) {
  (void)state;
  static const struct {
    uint32_t fn;
    float x, y, want;
  } cases[] = {
      {ECHO_NPU_FN_DIV, 1, 0, INFINITY},
      {ECHO_NPU_FN_DIV, -1, 0, -INFINITY},
      {ECHO_NPU_FN_DIV, 0, 0, NAN},
      {ECHO_NPU_FN_DIV, INFINITY, INFINITY, NAN},
      {ECHO_NPU_FN_DIV, 3, INFINITY, 0},
      {ECHO_NPU_FN_DIV, NAN, 1, NAN},
      {ECHO_NPU_FN_DIV, 1, NAN, NAN},
      {ECHO_NPU_FN_DIV, 0, -5, -0.0f},
      {ECHO_NPU_FN_DIV, 0x1.8p127f, 0x1.8p127f, 1},
      {ECHO_NPU_FN_DIV, 0x1p-126f, 0x1p-126f, 1},
      {ECHO_NPU_FN_POW, -2, 3, -8},
      {ECHO_NPU_FN_POW, -2, 2, 4},
      {ECHO_NPU_FN_POW, -2, 0.5f, NAN},
      {ECHO_NPU_FN_POW, 0, 2, 0},
      {ECHO_NPU_FN_POW, 0, -1, INFINITY},
      {ECHO_NPU_FN_POW, -0.0f, 3, -0.0f},
      {ECHO_NPU_FN_POW, -0.0f, 0.9f, 0},
      {ECHO_NPU_FN_POW, -INFINITY, 0.9f, INFINITY},
      {ECHO_NPU_FN_POW, -INFINITY, 3, -INFINITY},
      {ECHO_NPU_FN_POW, NAN, 0, 1},
      {ECHO_NPU_FN_POW, 1, NAN, 1},
      {ECHO_NPU_FN_POW, 1, INFINITY, 1},
      {ECHO_NPU_FN_POW, 2, INFINITY, INFINITY},
      {ECHO_NPU_FN_POW, 2, -INFINITY, 0},
      {ECHO_NPU_FN_POW, INFINITY, -1, 0},
      {ECHO_NPU_FN_POW, 2, 127, 0x1p127f},
      {ECHO_NPU_FN_POW, 2, 128, INFINITY},
      {ECHO_NPU_FN_POW, NAN, 1, NAN},
      {ECHO_NPU_FN_SQRT, -1, 0, NAN},
      {ECHO_NPU_FN_SQRT, -0.0f, 0, -0.0f},
      {ECHO_NPU_FN_SQRT, INFINITY, 0, INFINITY},
      {ECHO_NPU_FN_SQRT, NAN, 0, NAN},
      {ECHO_NPU_FN_SQRT, 4, 0, 2},
      {ECHO_NPU_FN_RSQRT, 0, 0, INFINITY},
      {ECHO_NPU_FN_RSQRT, INFINITY, 0, 0},
      {ECHO_NPU_FN_RSQRT, -4, 0, NAN},
      {ECHO_NPU_FN_RSQRT, NAN, 0, NAN},
      {ECHO_NPU_FN_RECIP, 0, 0, INFINITY},
      {ECHO_NPU_FN_RECIP, -0.0f, 0, -INFINITY},
      {ECHO_NPU_FN_RECIP, -INFINITY, 0, -0.0f},
      {ECHO_NPU_FN_RECIP, NAN, 0, NAN},
      {ECHO_NPU_FN_EXP, INFINITY, 0, INFINITY},
      {ECHO_NPU_FN_EXP, -INFINITY, 0, 0},
      {ECHO_NPU_FN_EXP, NAN, 0, NAN},
      {ECHO_NPU_FN_EXP, 0, 0, 1},
      {ECHO_NPU_FN_LOG, 0, 0, -INFINITY},
      {ECHO_NPU_FN_LOG, 1, 0, 0},
      {ECHO_NPU_FN_LOG, -1, 0, NAN},
      {ECHO_NPU_FN_LOG, INFINITY, 0, INFINITY},
      {ECHO_NPU_FN_LOG, NAN, 0, NAN},
      {ECHO_NPU_FN_SIN, INFINITY, 0, NAN},
      {ECHO_NPU_FN_COS, NAN, 0, NAN},
      {ECHO_NPU_FN_COS, 0, 0, 1},
      {ECHO_NPU_FN_TANH, INFINITY, 0, 1},
      {ECHO_NPU_FN_TANH, -INFINITY, 0, -1},
      {ECHO_NPU_FN_TANH, NAN, 0, NAN},
      {ECHO_NPU_FN_SIGMOID, INFINITY, 0, 1},
      {ECHO_NPU_FN_SIGMOID, -INFINITY, 0, 0},
      {ECHO_NPU_FN_SIGMOID, NAN, 0, NAN},
      {ECHO_NPU_FN_SILU, -1000, 0, -0.0f},
      {ECHO_NPU_FN_SILU, 1000, 0, 1000},
      {ECHO_NPU_FN_SILU, NAN, 0, NAN},
      {ECHO_NPU_FN_GELU, 100, 0, 100},
      {ECHO_NPU_FN_GELU, -100, 0, -0.0f},
      {ECHO_NPU_FN_GELU, NAN, 0, NAN},
      {ECHO_NPU_FN_RELU, -3, 0, 0},
      {ECHO_NPU_FN_RELU, NAN, 0, NAN},
      {ECHO_NPU_FN_MAX, -0.0f, 0.0f, 0.0f},
      {ECHO_NPU_FN_MIN, 0.0f, -0.0f, -0.0f},
      {ECHO_NPU_FN_MAX, NAN, 1, NAN},
      {ECHO_NPU_FN_ADD, 0x1p-126f, -0x1.8p-126f, -0.0f},
      {ECHO_NPU_FN_MUL, 0x1p-70f, 0x1p-70f, 0},
      {ECHO_NPU_FN_ADD, 0x1p-140f, 0, 0},
      {ECHO_NPU_FN_ADD, INFINITY, -INFINITY, NAN},
  };
  const int n = (int)(sizeof cases / sizeof *cases);
  for (int i = 0; i < n; ++i) {
    x[0] = cases[i].x;
    y[0] = cases[i].y;
    run(cases[i].fn, 1, 0, 0);
    float want = cases[i].want;
    uint32_t bits = isnan(want) ? 0x7fc00000u : bench_bits(want);
    if (bench_bits(d[0]) != bits)
      fail_msg("%s(%a, %a) = %a, not %a", echo_ucode_find(cases[i].fn)->name, cases[i].x,
               cases[i].y, d[0], want);
  }
}

static void gradients_follow_their_functions(void** state) {
  (void)state;
  static const struct {
    uint32_t fn;
    double (*f)(double);
  } cases[] = {{ECHO_NPU_FN_SILU_BWD, silu}, {ECHO_NPU_FN_GELU_BWD, gelu}};
  for (int c = 0; c < 2; ++c) {
    for (int i = 0; i < COUNT; ++i) x[i] = 1, y[i] = (float)(-10 + 20.0 * i / COUNT);
    run(cases[c].fn, COUNT, 0, 0);
    for (int i = 0; i < COUNT; ++i) {
      double h = 1e-5, want = (cases[c].f(y[i] + h) - cases[c].f(y[i] - h)) / (2 * h);
      if (!(fabs(d[i] - want) <= 0x1p-20))
        fail_msg("gradient %d at %g: %g not %g", c, y[i], d[i], want);
    }
  }
  for (int i = 0; i < 100; ++i) x[i] = 2, y[i] = (float)(i - 50) / 50;
  run(ECHO_NPU_FN_TANH_BWD, 100, 0, 0);
  for (int i = 0; i < 100; ++i) assert_true(fabs(d[i] - 2 * (1 - y[i] * y[i])) < 1e-6);
  run(ECHO_NPU_FN_SIGMOID_BWD, 100, 0, 0);
  for (int i = 0; i < 100; ++i) assert_true(fabs(d[i] - 2 * y[i] * (1 - y[i])) < 1e-6);
  run(ECHO_NPU_FN_RELU_BWD, 100, 0, 0);
  for (int i = 0; i < 100; ++i) assert_true(d[i] == (y[i] > 0 ? 2 : 0));
}

// Every kernel set must give the same bits as the portable rules, on every function, for values
// from everywhere: random patterns are full of subnormals, infinities and NaNs.
static void kernel_sets_agree(void** state) {
  (void)state;
  static const char* const sets[] = {"avx2", "avx512"};
  enum { ROWS = 3, COLS = 700 };
  uint32_t* reference = malloc(sizeof(uint32_t) * 2 * ROWS * COLS);
  assert_non_null(reference);
  uint64_t seed = 11;
  for (int i = 0; i < echo_ucode_function_count; ++i)
    for (int wild = 0; wild < 2; ++wild) {
      const echo_ucode_function* f = &echo_ucode_functions[i];
      for (int j = 0; j < 2 * ROWS * COLS; ++j) {
        uint32_t a = (uint32_t)bench_random(&seed), b = (uint32_t)bench_random(&seed);
        if (!wild) {
          a = bench_bits((float)(int32_t)a / 0x1p29f);
          b = bench_bits((float)(int32_t)b / 0x1p29f);
        }
        memcpy(&x[j], &a, 4);
        memcpy(&y[j], &b, 4);
      }
      echo_npu_packet p = {.opcode = ECHO_NPU_OP_VECTOR,
                           .flags = (uint32_t)f->id << ECHO_NPU_FLAG_FN_SHIFT,
                           .src1 = X,
                           .src2 = echo_ucode_loads_y(f) ? Y : 0,
                           .dst = D,
                           .param = {ROWS, COLS, 2 * COLS, echo_ucode_loads_y(f) ? 2 * COLS : 0,
                                     2 * COLS, bench_bits(0.5f), bench_bits(1.0f / COLS)}};
      assert_int_equal(echo_cmodel_use_kernels(model, "scalar"), 0);
      memset(d, 0, sizeof(uint32_t) * 2 * ROWS * COLS);
      assert_int_equal(bench_send(model, &p), 0);
      memcpy(reference, d, sizeof(uint32_t) * 2 * ROWS * COLS);
      for (int s = 0; s < 2; ++s) {
        if (echo_cmodel_use_kernels(model, sets[s]) != 0) continue;
        memset(d, 0, sizeof(uint32_t) * 2 * ROWS * COLS);
        assert_int_equal(bench_send(model, &p), 0);
        for (int j = 0; j < 2 * ROWS * COLS; ++j)
          if (reference[j] != bench_bits(d[j]))
            fail_msg("%s on %s: %08x, scalar %08x at %d (x %08x y %08x)", f->name, sets[s],
                     bench_bits(d[j]), reference[j], j, bench_bits(x[j]), bench_bits(y[j]));
      }
    }
  free(reference);
}

static void conversions(void** state) {
  (void)state;
  const float from[] = {0.5f, 1.5f, -2.5f, 127.6f, -1000, 3e9f, -3e9f, NAN, 1e-40f};
  const int8_t to8[] = {0, 2, -2, 127, -128, 127, -128, 0, 0};
  const int32_t to32[] = {0, 2, -2, 128, -1000, INT32_MAX, INT32_MIN, 0, 0};
  const uint16_t to16[] = {0x3f00, 0x3fc0, 0xc020, 0x42ff, 0xc47a, 0x4f33, 0xcf33, 0x7fc0, 0x0001};
  memcpy(x, from, sizeof from);
  echo_npu_packet p = {.opcode = ECHO_NPU_OP_VECTOR, .src1 = X, .dst = D, .param = {1, 9}};
  const uint32_t move = ECHO_NPU_FN_MOVE << ECHO_NPU_FLAG_FN_SHIFT;
  p.flags = move | ECHO_NPU_I8 << ECHO_NPU_FLAG_TD_SHIFT;
  assert_int_equal(bench_send(model, &p), 0);
  assert_memory_equal(d, to8, sizeof to8);
  p.flags = move | ECHO_NPU_I32 << ECHO_NPU_FLAG_TD_SHIFT;
  assert_int_equal(bench_send(model, &p), 0);
  assert_memory_equal(d, to32, sizeof to32);
  p.flags = move | ECHO_NPU_BF16 << ECHO_NPU_FLAG_TD_SHIFT;
  assert_int_equal(bench_send(model, &p), 0);
  assert_memory_equal(d, to16, sizeof to16);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(unary_functions_meet_their_bounds),
      cmocka_unit_test(divide_and_pow_meet_their_bounds),
      cmocka_unit_test(special_values),
      cmocka_unit_test(gradients_follow_their_functions),
      cmocka_unit_test(kernel_sets_agree),
      cmocka_unit_test(conversions),
  };
  return cmocka_run_group_tests(tests, open_model, close_model);
}
