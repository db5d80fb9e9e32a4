// The cpu's functions of floats against the C library's of doubles: the worst error, in units in
// the last place, over a dense sweep of f32 and over every bf16. The bounds are those that
// docs/backends/cpu.md states.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "backends/cpu/simd/half.h"
#include "halyard/ops.h"
#include "support/isa_levels.h"

static double sigmoid(double x) {
  return 1 / (1 + exp(-x));
}

static double silu(double x) {
  return x / (1 + exp(-x));
}

static double gelu(double x) {
  return 0.5 * x * erfc(-x * 0.70710678118654752440);
}

static double gelu_tanh(double x) {
  return x * sigmoid(2 * 0.79788456080286535588 * (x + 0.044715 * x * x * x));
}

static double inverse_root(double x) {
  return 1 / sqrt(x);
}

// Results below `least` in size are held to its unit: where tails are less exact, or 0 instead of
// less than the least normal number.
typedef struct function {
  const char* name;
  size_t offset;  // of its maps
  double (*exact)(double x);
  double units, least, bf16_units, bf16_least;
} function;

static const function functions[] = {
    {"exp", offsetof(hy__rows, exp), exp, 1.1, 0, 0.51, 0},
    {"log", offsetof(hy__rows, log), log, 1.0, 0, 0.51, 0},
    {"sin", offsetof(hy__rows, sin), sin, 1.6, 0, 0.51, 0},
    {"cos", offsetof(hy__rows, cos), cos, 1.6, 0, 0.51, 0},
    {"tanh", offsetof(hy__rows, tanh), tanh, 1.5, 0, 0.51, 0},
    {"erf", offsetof(hy__rows, erf), erf, 1.2, 0, 0.51, 0},
    {"sigmoid", offsetof(hy__rows, sigmoid), sigmoid, 2.5, 0x1p-119, 0.51, 0x1p-119},
    {"silu", offsetof(hy__rows, silu), silu, 3.5, 0x1p-112, 0.51, 0x1p-112},
    {"gelu", offsetof(hy__rows, gelu), gelu, 2.5, 0x1p-2, 0.7, 0x1p-17},
    {"gelu_tanh", offsetof(hy__rows, gelu_tanh), gelu_tanh, 2.5, 0x1p-2, 0.51, 0x1p-17},
    {"rsqrt", offsetof(hy__rows, rsqrt), inverse_root, 1.6, 0, 0.51, 0},
};

// How far y is from x, in units of a type with `bits` of fraction at x.
static double distance(double x, double y, int bits, double least) {
  if (isnan(x) || isnan(y)) return isnan(x) && isnan(y) ? 0 : INFINITY;
  if (isinf(x) || isinf(y) || fabs(x) > 0x1.fffffep127)
    return fabs(y) > 0x1.fep127 && (x > 0) == (y > 0) && fabs(x) > 0x1.fdp127 ? 0 : INFINITY;
  int e;
  frexp(fmax(fabs(x), fmax(least, 0x1p-126)), &e);
  return fabs(x - y) / ldexp(1, e - 1 - bits);
}

static void f32_stays_within_the_stated_units(void** state) {
  (void)state;
  enum { STEP = 4099, N = 4096 };
  static float x[N], y[N];
  for (size_t f = 0; f < sizeof functions / sizeof functions[0]; f++) {
    const function* g = &functions[f];
    for (isa_level level = ISA_AVX2; level < ISA_LEVELS; level++) {
      const char* rows = (const char*)kernels_up_to(level)->rows;
      hy__map* const* map = (hy__map* const*)(rows + g->offset);
      double worst = 0;
      float where = 0;
      for (uint64_t bits = 0; bits < (uint64_t)1 << 32; bits += (uint64_t)STEP * N) {
        for (int i = 0; i < N; i++) x[i] = hy__bits_to_float((uint32_t)(bits + (uint64_t)i * STEP));
        map[HY__ROW_F32](N, (const void*[]){x}, 1, 0, y, false);
        for (int i = 0; i < N; i++) {
          double off = distance(g->exact((double)x[i]), (double)y[i], 23, g->least);
          if (off > worst) {
            worst = off;
            where = x[i];
          }
        }
      }
      print_message("%-10s %s %.2f units, at %g\n", g->name, hy__isa_name(isa_up_to(level)), worst,
                    (double)where);
      if (!(worst <= g->units))
        fail_msg("%s is off by %.2f units at %.9g, %.2f are stated", g->name, worst, (double)where,
                 g->units);
    }
  }
}

static void bf16_stays_within_the_stated_units(void** state) {
  (void)state;
  static uint16_t x[65536], y[65536];
  for (int i = 0; i < 65536; i++) x[i] = (uint16_t)i;
  for (size_t f = 0; f < sizeof functions / sizeof functions[0]; f++) {
    const function* g = &functions[f];
    for (isa_level level = ISA_SCALAR; level < ISA_LEVELS; level++) {
      const char* rows = (const char*)kernels_up_to(level)->rows;
      hy__map* const* map = (hy__map* const*)(rows + g->offset);
      double worst = 0;
      int where = 0;
      map[HY__ROW_BF16](65536, (const void*[]){x}, 1, 0, y, false);
      for (int i = 0; i < 65536; i++) {
        double want = g->exact((double)hy__from_bf16((uint16_t)i));
        double off = distance(want, (double)hy__from_bf16(y[i]), 7, g->bf16_least);
        if (off > worst) {
          worst = off;
          where = i;
        }
      }
      print_message("%-10s bf16 %s %.3f units, at %g\n", g->name, hy__isa_name(isa_up_to(level)),
                    worst, (double)hy__from_bf16((uint16_t)where));
      if (!(worst <= g->bf16_units))
        fail_msg("%s of bf16 is off by %.3f units at %.9g, %.3f are stated", g->name, worst,
                 (double)hy__from_bf16((uint16_t)where), g->bf16_units);
    }
  }
}

// A row of rows.h that is an op has a row in the cpu's ops.def too, where it is found; the rest of
// the family is the arithmetic with a number.
static void every_map_is_offered_and_every_offer_has_a_map(void** state) {
  (void)state;
  static const bool has_map[HY_OP_END] = {
#define OF(name, ...) [HY_OP_##name] = true,
      HY__OP_MAPS(OF) HY__TESTS(OF)
#undef OF
#define OF(name, ...) [HY_OP_##name##_scalar] = true,
          HY__COMPARISONS(OF) OF(add) OF(sub) OF(rsub) OF(mul) OF(div) OF(pow) OF(rpow)
#undef OF
  };
  bool offered[HY_OP_END] = {false};
#define HY_CPU_OP(op, family, dtypes) \
  offered[HY_OP_##op] = &hy__cpu_##family == &hy__cpu_elementwise;
#include "backends/cpu/ops.def"
  for (int op = 0; op < HY_OP_END; op++) {
    if (offered[op] != has_map[op])
      fail_msg("%s is in %s alone", hy_op_name((hy_op)op), offered[op] ? "ops.def" : "rows.h");
  }
}

// Odd functions of -0, and what rounds to it from below.
static void zero_keeps_its_sign(void** state) {
  (void)state;
  static const struct {
    const char* name;
    size_t offset;
    float x;
  } cases[] = {
      {"sin", offsetof(hy__rows, sin), -0.0f},
      {"tanh", offsetof(hy__rows, tanh), -0.0f},
      {"erf", offsetof(hy__rows, erf), -0.0f},
      {"silu", offsetof(hy__rows, silu), -0.0f},
      {"gelu", offsetof(hy__rows, gelu), -0.0f},
      {"gelu_tanh", offsetof(hy__rows, gelu_tanh), -0.0f},
      {"sqrt", offsetof(hy__rows, sqrt), -0.0f},
      {"cube", offsetof(hy__rows, cube), -0.0f},
      {"floor", offsetof(hy__rows, floor), -0.0f},
      {"ceil", offsetof(hy__rows, ceil), -0.75f},
      {"ceil", offsetof(hy__rows, ceil), -0.25f},
      {"round", offsetof(hy__rows, round), -0.5f},
      {"trunc", offsetof(hy__rows, trunc), -0.75f},
      {"trunc", offsetof(hy__rows, trunc), -0.0f},
  };
  enum { N = 37 };  // whole vectors and a rest
  for (size_t f = 0; f < sizeof cases / sizeof cases[0]; f++) {
    for (isa_level level = ISA_SCALAR; level < ISA_LEVELS; level++) {
      hy__map* const* map =
          (hy__map* const*)((const char*)kernels_up_to(level)->rows + cases[f].offset);
      for (int sign = -1; sign <= 1; sign += 2) {
        float x[N], y[N];
        uint16_t half[N], result[N];
        for (int i = 0; i < N; i++) {
          x[i] = sign < 0 ? cases[f].x : fabsf(cases[f].x);
          if (sign > 0 && x[i] != 0) x[i] = 0.0f;
          hy__store1(&half[i], HY_BF16, x[i]);
        }
        map[HY__ROW_F32](N, (const void*[]){x}, 0, 0, y, false);
        map[HY__ROW_BF16](N, (const void*[]){half}, 0, 0, result, false);
        for (int i = 0; i < N; i++) {
          float z = hy__load1(&result[i], HY_BF16);
          if (y[i] != 0 || !signbit(y[i]) != (sign > 0))
            fail_msg("%s(%g) is %g in f32, level %d", cases[f].name, (double)x[i], (double)y[i],
                     (int)level);
          if (z != 0 || !signbit(z) != (sign > 0))
            fail_msg("%s(%g) is %g in bf16, level %d", cases[f].name, (double)x[i], (double)z,
                     (int)level);
        }
      }
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_map_is_offered_and_every_offer_has_a_map),
      cmocka_unit_test(f32_stays_within_the_stated_units),
      cmocka_unit_test(bf16_stays_within_the_stated_units),
      cmocka_unit_test(zero_keeps_its_sign),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
