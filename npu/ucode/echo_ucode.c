// echo_ucode.c - lane programs of the vector unit.
//
// Programs are sequences of micro-operations written with the macros below; a macro with several
// operations (EXP, RECIP, ...) is a subprogram that names the registers it may overwrite.
// On entry R0 = x, R1 = y (and R2 = x', R3 = y' for paired functions); on exit R0 is the result.
#include "echo_ucode.h"

#include <stddef.h>

#include "echo_npu_hw.h"

// The tables below are laid out by hand.
// clang-format off

enum { R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10, R11, R12, R13, R14, R15, S0, S1, S2, S3, S4 };

// ---- Constants --------------------------------------------------------------------------------

#define CONSTANTS(K)                                                                               \
  K(ZERO, 0x00000000) K(ONE, 0x3f800000) K(TWO, 0x40000000) K(HALF, 0x3f000000)                    \
  K(INF, 0x7f800000) K(NAN, 0x7fc00000) K(SIGN, 0x80000000) K(ABS, 0x7fffffff)                     \
  K(MANT, 0x007fffff) K(EXPO, 0x7f800000) K(SIGN_EXPO, 0xff800000)                                 \
  K(I1, 1) K(I23, 23) K(I30, 30) K(I31, 31) K(I126, 126)                                           \
  K(POW2_24, 0x4b800000) K(POW2_40, 0x53800000) K(NEG_POW2_40, 0xd3800000)                         \
  K(POW2_127, 0x7f000000)                                                                          \
  /* exp: clamps, log2(e), ln 2 in two parts, 2 exp(r) = 2 + 2r + r^2 (E2 + ... + E6 r^4) */       \
  K(EXP_MIN, 0xc2aea8f6) K(EXP_MAX, 0x42b20000) K(LOG2E, 0x3fb8aa3b)                               \
  K(LN2_HI, 0x3f317200) K(LN2_LO, 0x35bfbe8e)                                                      \
  K(E2, 0x3f800000) K(E3, 0x3eaaaa47) K(E4, 0x3daaaa2f) K(E5, 0x3c891dab) K(E6, 0x3b36da13)        \
  /* reciprocal of [1,2): minimax quadratic, error 1/99 */                                         \
  K(C0, 0x4007c1f0) K(C1, 0xbfba2e8c) K(C2, 0x3ea57eb5)                                            \
  /* reciprocal square root: integer seed (error 3.5%), 3/8 */                                     \
  K(RSQRT_SEED, 0x5f3759df) K(THREE_EIGHTHS, 0x3ec00000)                                           \
  /* log(1+f) = f - f^2/2 + f^3 (L0 + ... + L8 f^8) on [sqrt(1/2)-1, sqrt(2)-1] */                 \
  K(SQRT_HALF, 0x3f3504f3)                                                                         \
  K(L0, 0x3eaaaaa3) K(L1, 0xbe7ffff7) K(L2, 0x3e4cd2a3) K(L3, 0xbe2ab171) K(L4, 0x3e11995c)        \
  K(L5, 0xbdfda1a7) K(L6, 0x3df32897) K(L7, 0xbdf1748c) K(L8, 0x3d8da072)                          \
  /* sin, cos: 2/pi, pi/2 in three parts, polynomials on [-pi/4, pi/4] */                          \
  K(TWO_OVER_PI, 0x3f22f983) K(PIO2_A, 0x3fc90fdb) K(PIO2_B, 0xb33bbd2e) K(PIO2_C, 0xa6f72ced)     \
  K(RMAX, 0x3f4ccccd) K(RMIN, 0xbf4ccccd)                                                          \
  K(SIN0, 0xbe2aaaa3) K(SIN1, 0x3c0883ab) K(SIN2, 0xb94ca59f)                                      \
  K(COS0, 0x3d2aaaa5) K(COS1, 0xbab60641) K(COS2, 0x37ccff9f)                                      \
  /* tanh below 5/8; above it by exp of at most 20 */                                              \
  K(TANH_SPLIT, 0x3f200000) K(TANH_MAX, 0x41200000)                                                \
  K(T0, 0xbeaaaa99) K(T1, 0x3e08836c) K(T2, 0xbd5c182f) K(T3, 0x3ca8e756) K(T4, 0xbbba1974)        \
  /* erf below 15/16: x + x G(x^2); above it 1 - exp(-H(x)), x at most 4 */                        \
  K(ERF_SPLIT, 0x3f700000) K(FOUR, 0x40800000)                                                     \
  K(G0, 0x3e0375d3) K(G1, 0xbec0936f) K(G2, 0x3de70c81) K(G3, 0xbcdb3a1c) K(G4, 0x3ba353ff)        \
  K(G5, 0xba1bcbbd)                                                                                \
  K(H0, 0x3959106c) K(H1, 0x3f905618) K(H2, 0x3f2323d9) K(H3, 0x3dd4b2a7) K(H4, 0xbcb5c756)        \
  K(H5, 0x3b46d0ea) K(H6, 0xb94c6a9f)                                                              \
  /* gelu: 1/sqrt(2 pi), sqrt(2/pi), the cubic term */                                             \
  K(INV_SQRT_2PI, 0x3ecc422a) K(SQRT_2_OVER_PI, 0x3f4c422a) K(GELU_CUBIC, 0x3d372713)

#define NAME(n, v) K_##n,
enum { K_FIRST = ECHO_NPU_UOP_CONST_BASE - 1, CONSTANTS(NAME) K_END };
#define VALUE(n, v) v,
const uint32_t echo_ucode_constants[] = {CONSTANTS(VALUE)};
const int echo_ucode_constant_count = K_END - ECHO_NPU_UOP_CONST_BASE;
_Static_assert(K_END - ECHO_NPU_UOP_CONST_BASE <= ECHO_NPU_UCODE_CONSTS, "constant ROM is full");

// ---- Micro-operations -------------------------------------------------------------------------

#define U(op, d, a, b, c)                                                                          \
  ((uint32_t)(op) | (uint32_t)(d) << 5 | (uint32_t)(a) << 9 | (uint32_t)(b) << 16 |                \
   (uint32_t)(c) << 23)
#define MOV(d, a) U(ECHO_NPU_UOP_MOV, d, a, 0, 0)
#define FMA(d, a, b, c) U(ECHO_NPU_UOP_FMA, d, a, b, c)                              // a b + c
#define FNMA(d, a, b, c) (U(ECHO_NPU_UOP_FMA, d, a, b, c) | ECHO_NPU_UOP_NEG_P)      // c - a b
#define FMS(d, a, b, c) (U(ECHO_NPU_UOP_FMA, d, a, b, c) | ECHO_NPU_UOP_NEG_C)       // a b - c
#define MUL(d, a, b) U(ECHO_NPU_UOP_MUL, d, a, b, 0)
#define ADD(d, a, c) U(ECHO_NPU_UOP_ADD, d, a, 0, c)
#define SUB(d, a, c) (U(ECHO_NPU_UOP_ADD, d, a, 0, c) | ECHO_NPU_UOP_NEG_C)
#define MAX(d, a, b) U(ECHO_NPU_UOP_MAX, d, a, b, 0)
#define MIN(d, a, b) U(ECHO_NPU_UOP_MIN, d, a, b, 0)
#define F2I(d, a) U(ECHO_NPU_UOP_F2I, d, a, 0, 0)
#define I2F(d, a) U(ECHO_NPU_UOP_I2F, d, a, 0, 0)
#define IADD(d, a, b) U(ECHO_NPU_UOP_IADD, d, a, b, 0)
#define ISUB(d, a, b) U(ECHO_NPU_UOP_ISUB, d, a, b, 0)
#define AND(d, a, b) U(ECHO_NPU_UOP_AND, d, a, b, 0)
#define OR(d, a, b) U(ECHO_NPU_UOP_OR, d, a, b, 0)
#define XOR(d, a, b) U(ECHO_NPU_UOP_XOR, d, a, b, 0)
#define SHL(d, a, b) U(ECHO_NPU_UOP_SHL, d, a, b, 0)
#define SAR(d, a, b) U(ECHO_NPU_UOP_SAR, d, a, b, 0)
#define CLT(d, a, b) U(ECHO_NPU_UOP_CLT, d, a, b, 0)
#define CLE(d, a, b) U(ECHO_NPU_UOP_CLE, d, a, b, 0)
#define CEQ(d, a, b) U(ECHO_NPU_UOP_CEQ, d, a, b, 0)
#define SEL(d, a, b, c) U(ECHO_NPU_UOP_SEL, d, a, b, c)

// ---- Subprograms ------------------------------------------------------------------------------

// x = exp(x). n = round(x / ln 2), r = x - n ln 2, then 2 exp(r) scaled by 2^(n-1), so that the
// largest results do not overflow early. n = -126 makes the scale, and so the result, zero.
#define EXP(x, t, n)                                                                               \
  MAX(x, x, K_EXP_MIN), MIN(x, x, K_EXP_MAX), MUL(t, x, K_LOG2E), F2I(n, t), I2F(t, n),            \
      FNMA(x, t, K_LN2_HI, x), FNMA(x, t, K_LN2_LO, x), FMA(t, x, K_E6, K_E5), FMA(t, t, x, K_E4), \
      FMA(t, t, x, K_E3), FMA(t, t, x, K_E2), FMA(t, t, x, K_TWO), FMA(t, t, x, K_TWO),            \
      IADD(n, n, K_I126), SHL(n, n, K_I23), MUL(x, t, n)

// y = 1 / m for m in [1, 2): quadratic guess, two Newton steps.
#define RECIP_UNIT(y, m, e)                                                                        \
  FMA(y, m, K_C2, K_C1), FMA(y, y, m, K_C0), FNMA(e, m, y, K_ONE), FMA(y, y, e, y),                \
      FNMA(e, m, y, K_ONE), FMA(y, y, e, y)

// y = 1 / x for positive normal x up to 2^127 (whose reciprocal flushes to zero).
#define RECIP_POSITIVE(y, x, m, e)                                                                 \
  AND(m, x, K_MANT), OR(m, m, K_ONE), RECIP_UNIT(y, m, e), AND(m, x, K_EXPO),                      \
      ISUB(m, K_POW2_127, m), MUL(y, y, m)

// x = 1 / x for any x. R15 is overwritten too.
#define RECIP(x, y, m, e)                                                                          \
  RECIP_POSITIVE(y, x, m, e), AND(m, x, K_SIGN), OR(y, y, m), CEQ(e, x, K_ZERO),                   \
      OR(R15, m, K_INF), SEL(y, e, R15, y), AND(e, x, K_ABS), CEQ(e, e, K_INF), SEL(y, e, m, y),   \
      CEQ(e, x, x), SEL(x, e, y, K_NAN)

// y = rsqrt(x) for positive normal x: integer seed, two cubic steps.
#define RSQRT_STEP(y, x, h, e)                                                                     \
  MUL(h, x, y), FNMA(e, h, y, K_ONE), FMA(h, e, K_THREE_EIGHTHS, K_HALF), MUL(h, h, e),            \
      FMA(y, h, y, y)
#define RSQRT_POSITIVE(y, x, h, e)                                                                 \
  SAR(h, x, K_I1), ISUB(y, K_RSQRT_SEED, h), RSQRT_STEP(y, x, h, e), RSQRT_STEP(y, x, h, e)

// x = rsqrt(x) for any x.
#define RSQRT(x, y, h, e)                                                                          \
  RSQRT_POSITIVE(y, x, h, e), CEQ(e, x, K_INF), SEL(y, e, K_ZERO, y), AND(h, x, K_SIGN),           \
      OR(h, h, K_INF), CEQ(e, x, K_ZERO), SEL(y, e, h, y), CLE(e, K_ZERO, x), SEL(x, e, y, K_NAN)

// x = 2^k (1 + f): splits positive normal x.
#define LOG_SPLIT(x, k, f)                                                                         \
  ISUB(f, x, K_SQRT_HALF), SAR(k, f, K_I23), AND(f, f, K_MANT), IADD(f, f, K_SQRT_HALF),           \
      SUB(f, f, K_ONE), I2F(k, k)
// p = (log(1+f) - f + f^2/2) / f^3
#define LOG_POLY(p, f)                                                                             \
  FMA(p, f, K_L8, K_L7), FMA(p, p, f, K_L6), FMA(p, p, f, K_L5), FMA(p, p, f, K_L4),               \
      FMA(p, p, f, K_L3), FMA(p, p, f, K_L2), FMA(p, p, f, K_L1), FMA(p, p, f, K_L0)
// y = log(x) for positive normal x.
#define LOG_POSITIVE(y, x, k, f, z)                                                                \
  LOG_SPLIT(x, k, f), LOG_POLY(y, f), MUL(z, f, f), MUL(y, y, f), MUL(y, y, z),                    \
      FMA(y, k, K_LN2_LO, y), FNMA(y, z, K_HALF, y), ADD(y, f, y), FMA(y, k, K_LN2_HI, y)
// x = log(x) for any x.
#define LOG(x, y, k, f, z)                                                                         \
  LOG_POSITIVE(y, x, k, f, z), CEQ(f, x, K_INF), SEL(y, f, K_INF, y), OR(z, K_INF, K_SIGN),        \
      CEQ(f, x, K_ZERO), SEL(y, f, z, y), CLE(f, K_ZERO, x), SEL(x, f, y, K_NAN)

// n = round(x / (pi/2)), r = x - n pi/2, kept in [-0.8, 0.8] when x is beyond the accurate range.
#define TRIG_REDUCE(x, n, r, t)                                                                    \
  MUL(t, x, K_TWO_OVER_PI), F2I(n, t), I2F(t, n), FNMA(r, t, K_PIO2_A, x),                         \
      FNMA(r, t, K_PIO2_B, r), FNMA(r, t, K_PIO2_C, r), MIN(r, r, K_RMAX), MAX(r, r, K_RMIN)
// x = sin of the reduced angle in quadrant n; adding 0 * x makes infinity and NaN a NaN.
#define TRIG(x, n, r, z, s, c)                                                                     \
  MUL(z, r, r), FMA(s, z, K_SIN2, K_SIN1), FMA(s, s, z, K_SIN0), MUL(s, s, z), FMA(s, s, r, r),    \
      FMA(c, z, K_COS2, K_COS1), FMA(c, c, z, K_COS0), MUL(c, c, z), SUB(c, c, K_HALF),            \
      FMA(c, c, z, K_ONE), SHL(z, n, K_I31), SEL(s, z, c, s), SHL(z, n, K_I30),                    \
      AND(z, z, K_SIGN), XOR(s, s, z), FMA(x, x, K_ZERO, s)

// y = 1 / (1 + exp(-x)); x is kept. A NaN in x is not kept.
#define SIGMOID_OF(y, x, t, n, m)                                                                  \
  XOR(m, x, K_SIGN), EXP(m, t, n), ADD(m, m, K_ONE), MIN(m, m, K_POW2_127),                        \
      RECIP_POSITIVE(y, m, t, n)

// y = tanh(x); x is kept. Below 5/8 an odd polynomial, above it 1 - 2 / (exp(2|x|) + 1).
#define TANH_OF(y, x, a, t, n, m, z)                                                               \
  AND(a, x, K_ABS), MIN(m, a, K_TANH_MAX), ADD(m, m, m), EXP(m, t, n), ADD(m, m, K_ONE),           \
      RECIP_POSITIVE(y, m, t, n), FNMA(y, y, K_TWO, K_ONE), AND(t, x, K_SIGN), OR(y, y, t),        \
      MUL(z, x, x), FMA(t, z, K_T4, K_T3), FMA(t, t, z, K_T2), FMA(t, t, z, K_T1),                 \
      FMA(t, t, z, K_T0), MUL(t, t, z), FMA(t, t, x, x), CLT(m, a, K_TANH_SPLIT),                  \
      SEL(y, m, t, y), CEQ(m, x, x), SEL(y, m, y, K_NAN)

// y = erf(x); x is kept. A NaN in x gives 1.
#define ERF_OF(y, x, a, t, n, m)                                                                   \
  AND(a, x, K_ABS), MIN(m, a, K_FOUR), FMA(y, m, K_H6, K_H5), FMA(y, y, m, K_H4),                  \
      FMA(y, y, m, K_H3), FMA(y, y, m, K_H2), FMA(y, y, m, K_H1), FMA(y, y, m, K_H0),              \
      XOR(y, y, K_SIGN), EXP(y, t, n), SUB(y, K_ONE, y), AND(t, x, K_SIGN), OR(y, y, t),           \
      MUL(m, x, x), FMA(t, m, K_G5, K_G4), FMA(t, t, m, K_G3), FMA(t, t, m, K_G2),                 \
      FMA(t, t, m, K_G1), FMA(t, t, m, K_G0), FMA(t, t, x, x), CLT(m, a, K_ERF_SPLIT),             \
      SEL(y, m, t, y)

// ---- Lane programs ----------------------------------------------------------------------------

#define PROGRAM(name, ...) static const uint32_t name[] = {__VA_ARGS__}

PROGRAM(p_add, ADD(R0, R0, R1));
PROGRAM(p_sub, SUB(R0, R0, R1));
PROGRAM(p_mul, MUL(R0, R0, R1));
PROGRAM(p_max, MAX(R0, R0, R1));
PROGRAM(p_min, MIN(R0, R0, R1));
PROGRAM(p_axpy, FMA(R0, R1, S0, R0));
PROGRAM(p_eq, CEQ(R0, R0, R1), AND(R0, R0, K_ONE));
PROGRAM(p_lt, CLT(R0, R0, R1), AND(R0, R0, K_ONE));
PROGRAM(p_le, CLE(R0, R0, R1), AND(R0, R0, K_ONE));

// x / y: mantissas are divided in [1, 2), then the exponent difference is applied in two halves.
// When either is zero, infinite or NaN the answer is x * (1/y as an extreme: 0, 1 or infinity).
PROGRAM(p_div, AND(R2, R0, K_MANT), OR(R2, R2, K_ONE), AND(R3, R1, K_MANT), OR(R3, R3, K_ONE),
        RECIP_UNIT(R4, R3, R5), MUL(R6, R2, R4), FNMA(R5, R3, R6, R2), FMA(R6, R5, R4, R6),
        AND(R2, R0, K_EXPO), AND(R3, R1, K_EXPO), ISUB(R2, R2, R3), SAR(R3, R2, K_I1),
        AND(R3, R3, K_SIGN_EXPO), ISUB(R2, R2, R3), IADD(R3, R3, K_ONE), IADD(R2, R2, K_ONE),
        MUL(R6, R6, R3), MUL(R6, R6, R2), XOR(R2, R0, R1), AND(R2, R2, K_SIGN), OR(R6, R6, R2),
        AND(R3, R1, K_ABS), AND(R2, R0, K_ABS), CLT(R7, K_ZERO, R2), CLT(R8, R2, K_INF),
        AND(R7, R7, R8), CLT(R8, K_ZERO, R3), AND(R7, R7, R8), CLT(R9, R3, K_INF), AND(R7, R7, R9),
        AND(R2, R1, K_SIGN), SEL(R4, R8, K_ONE, K_INF), CEQ(R5, R3, K_INF), SEL(R4, R5, K_ZERO, R4),
        OR(R4, R4, R2), CEQ(R5, R1, R1), SEL(R4, R5, R4, K_NAN), MUL(R0, R0, R4),
        SEL(R0, R7, R6, R0));

// x^y = exp(y log |x|), with the logarithm and the product carried in two floats.
PROGRAM(p_pow,
        // log |x| = R5 + R6
        AND(R2, R0, K_ABS), LOG_SPLIT(R2, R3, R4), LOG_POLY(R5, R4), MUL(R7, R4, R4),
        FMS(R8, R4, R4, R7), MUL(R9, R4, R7), FNMA(R10, R7, K_HALF, R4), SUB(R11, R4, R10),
        FNMA(R11, R7, K_HALF, R11), FMA(R6, R9, R5, R11), FNMA(R6, R8, K_HALF, R6),
        MUL(R7, R3, K_LN2_HI), ADD(R5, R7, R10), SUB(R8, R5, R7), SUB(R8, R10, R8), ADD(R6, R6, R8),
        FMA(R6, R3, K_LN2_LO, R6), ADD(R7, R5, R6), SUB(R8, R7, R5), SUB(R6, R6, R8), MOV(R5, R7),
        // R9 = exp(y (R5 + R6))
        MIN(R7, R1, K_POW2_40), MAX(R7, R7, K_NEG_POW2_40), MUL(R9, R7, R5), FMS(R10, R7, R5, R9),
        FMA(R10, R7, R6, R10), EXP(R9, R11, R12), FMA(R10, R9, R10, R9), CLT(R11, R9, K_INF),
        SEL(R9, R11, R10, R9),
        // x = 0, infinite: 0 or infinity by the sign of y
        CLT(R3, R1, K_ZERO), SEL(R4, R3, K_INF, K_ZERO), SEL(R5, R3, K_ZERO, K_INF),
        CEQ(R6, R2, K_ZERO), SEL(R9, R6, R4, R9), CEQ(R6, R2, K_INF), SEL(R9, R6, R5, R9),
        // x < 0: y must be whole; an odd y keeps the sign
        F2I(R3, R7), I2F(R4, R3), CEQ(R4, R4, R7), AND(R5, R7, K_ABS), CLE(R6, K_POW2_24, R5),
        OR(R4, R4, R6), CLT(R5, R5, K_POW2_24), SHL(R3, R3, K_I31), AND(R3, R3, R5),
        AND(R3, R3, R4), AND(R3, R3, R0), OR(R9, R9, R3), CLT(R5, R0, K_ZERO), CLT(R6, R2, K_INF), AND(R5, R5, R6),
        SEL(R6, R4, R9, K_NAN), SEL(R9, R5, R6, R9),
        // NaN; x^0 = 1^y = 1
        CEQ(R3, R0, R0), SEL(R9, R3, R9, K_NAN), CEQ(R3, R1, R1), SEL(R9, R3, R9, K_NAN),
        CEQ(R3, R1, K_ZERO), CEQ(R4, R0, K_ONE), OR(R3, R3, R4), SEL(R0, R3, K_ONE, R9));

// g (s + z s (1 - s)), s = sigmoid(z)
PROGRAM(p_silu_bwd, SIGMOID_OF(R2, R1, R3, R4, R5), FNMA(R3, R2, R2, R2), FMA(R2, R1, R3, R2),
        MUL(R0, R0, R2));
// g (Phi(z) + z phi(z))
PROGRAM(p_gelu_bwd, MUL(R2, R1, K_SQRT_HALF), ERF_OF(R3, R2, R4, R5, R6, R7),
        FMA(R3, R3, K_HALF, K_HALF), MUL(R2, R2, R2), XOR(R2, R2, K_SIGN), EXP(R2, R5, R6),
        MUL(R2, R2, K_INV_SQRT_2PI), FMA(R2, R1, R2, R3), MUL(R0, R0, R2));
PROGRAM(p_tanh_bwd, FNMA(R2, R1, R1, K_ONE), MUL(R0, R0, R2));
PROGRAM(p_sigmoid_bwd, FNMA(R2, R1, R1, R1), MUL(R0, R0, R2));
PROGRAM(p_relu_bwd, CLT(R2, K_ZERO, R1), AND(R0, R0, R2));
PROGRAM(p_silu_mul, SIGMOID_OF(R2, R0, R3, R4, R5), MUL(R0, R0, R2), MUL(R0, R0, R1));

PROGRAM(p_move, MOV(R0, R0));
PROGRAM(p_neg, XOR(R0, R0, K_SIGN));
PROGRAM(p_abs, AND(R0, R0, K_ABS));
PROGRAM(p_scale, FMA(R0, R0, S0, S1));
PROGRAM(p_relu, MAX(R0, R0, K_ZERO));
// x rsqrt(x) and one correction; 0 and infinity are their own roots.
PROGRAM(p_sqrt, RSQRT_POSITIVE(R1, R0, R2, R3), MUL(R2, R0, R1), FNMA(R3, R2, R2, R0),
        MUL(R1, R1, K_HALF), FMA(R2, R3, R1, R2), CEQ(R3, R0, K_INF), SEL(R2, R3, R0, R2),
        CEQ(R3, R0, K_ZERO), AND(R1, R0, K_SIGN), SEL(R2, R3, R1, R2), CLE(R3, K_ZERO, R0),
        SEL(R0, R3, R2, K_NAN));
PROGRAM(p_rsqrt, RSQRT(R0, R1, R2, R3));
PROGRAM(p_recip, RECIP(R0, R1, R2, R3));
PROGRAM(p_exp, EXP(R0, R1, R2));
PROGRAM(p_log, LOG(R0, R1, R2, R3, R4));
PROGRAM(p_sin, TRIG_REDUCE(R0, R1, R2, R3), TRIG(R0, R1, R2, R3, R4, R5));
PROGRAM(p_cos, TRIG_REDUCE(R0, R1, R2, R3), IADD(R1, R1, K_I1), TRIG(R0, R1, R2, R3, R4, R5));
PROGRAM(p_tanh, TANH_OF(R1, R0, R2, R3, R4, R5, R6), MOV(R0, R1));
PROGRAM(p_sigmoid, SIGMOID_OF(R1, R0, R2, R3, R4), CEQ(R2, R0, R0), SEL(R0, R2, R1, K_NAN));
PROGRAM(p_silu, SIGMOID_OF(R1, R0, R2, R3, R4), MUL(R0, R0, R1));
PROGRAM(p_gelu, MUL(R1, R0, K_SQRT_HALF), ERF_OF(R2, R1, R3, R4, R5, R6),
        FMA(R2, R2, K_HALF, K_HALF), MUL(R0, R0, R2));
PROGRAM(p_gelu_tanh, MUL(R1, R0, R0), MUL(R1, R1, K_GELU_CUBIC), FMA(R1, R1, R0, R0),
        MUL(R1, R1, K_SQRT_2_OVER_PI), TANH_OF(R2, R1, R3, R4, R5, R6, R7),
        FMA(R2, R2, K_HALF, K_HALF), MUL(R0, R0, R2));

PROGRAM(p_square, MUL(R0, R0, R0));
PROGRAM(p_mul_beta, MUL(R0, R0, S1));

// Softmax: S2 = max, S3 = 1 / sum (or log of it); the exponentials are computed twice, stored once.
PROGRAM(p_softmax_max, MUL(R0, R0, S0));
PROGRAM(p_softmax_sum, FMS(R0, R0, S0, S2), EXP(R0, R1, R2));
PROGRAM(p_softmax_out, FMS(R0, R0, S0, S2), EXP(R0, R1, R2), MUL(R0, R0, S3));
PROGRAM(p_softmax_mask_max, FMA(R0, R0, S0, R1));
PROGRAM(p_softmax_mask_sum, FMA(R0, R0, S0, R1), SUB(R0, R0, S2), EXP(R0, R1, R2));
PROGRAM(p_softmax_mask_out, FMA(R0, R0, S0, R1), SUB(R0, R0, S2), EXP(R0, R1, R2), MUL(R0, R0, S3));
PROGRAM(p_log_softmax_out, FMS(R0, R0, S0, S2), SUB(R0, R0, S3));
PROGRAM(p_softmax_bwd_out, SUB(R0, R0, S2), MUL(R0, R0, R1), MUL(R0, R0, S0));

PROGRAM(p_norm_post, FMA(R0, R0, S1, S0), RSQRT(R0, R1, R2, R3));
PROGRAM(p_rms_out, MUL(R0, R0, S2), MUL(R0, R0, R1));
PROGRAM(p_centre_square, SUB(R0, R0, S2), MUL(R0, R0, R0));
PROGRAM(p_layer_out, SUB(R0, R0, S2), MUL(R0, R0, S3), MUL(R0, R0, R1));

// R0, R2 = the halves of x; R1, R3 = cos, sin.
PROGRAM(p_rope, MUL(R4, R2, R3), FMS(R4, R0, R1, R4), MUL(R5, R0, R3), FMA(R1, R2, R1, R5),
        MOV(R0, R4));
PROGRAM(p_rope_bwd, MUL(R4, R2, R3), FMA(R4, R0, R1, R4), MUL(R5, R0, R3), FMS(R1, R2, R1, R5),
        MOV(R0, R4));

// ---- Functions --------------------------------------------------------------------------------

#define X ECHO_NPU_LOAD_X0
#define XY (ECHO_NPU_LOAD_X0 | ECHO_NPU_LOAD_Y0)
#define PAIRS (XY | ECHO_NPU_LOAD_X1 | ECHO_NPU_LOAD_Y1)
#define LEN(p) (sizeof(p) / sizeof(p)[0])

#define STORE(load, p) {p, LEN(p), NULL, 0, load, ECHO_NPU_REDUCE_NONE, ECHO_NPU_STORE_D0}
#define STORE2(load, p) \
  {p, LEN(p), NULL, 0, load, ECHO_NPU_REDUCE_NONE, ECHO_NPU_STORE_D0 | ECHO_NPU_STORE_D1}
#define REDUCE(kind, load, p) {p, LEN(p), NULL, 0, load, ECHO_NPU_REDUCE_##kind, 0}
#define REDUCE_POST(kind, load, p, q) {p, LEN(p), q, LEN(q), load, ECHO_NPU_REDUCE_##kind, 0}
#define RESULT(kind, load, p) \
  {p, LEN(p), NULL, 0, load, ECHO_NPU_REDUCE_##kind, ECHO_NPU_STORE_SCALAR}
#define RESULT_POST(kind, load, p, q) \
  {p, LEN(p), q, LEN(q), load, ECHO_NPU_REDUCE_##kind, ECHO_NPU_STORE_SCALAR}

// clang-format off
const echo_ucode_function echo_ucode_functions[] = {
    {ECHO_NPU_FN_ADD, 1, "add", {STORE(XY, p_add)}},
    {ECHO_NPU_FN_SUB, 1, "sub", {STORE(XY, p_sub)}},
    {ECHO_NPU_FN_MUL, 1, "mul", {STORE(XY, p_mul)}},
    {ECHO_NPU_FN_DIV, 1, "div", {STORE(XY, p_div)}},
    {ECHO_NPU_FN_POW, 1, "pow", {STORE(XY, p_pow)}},
    {ECHO_NPU_FN_MAX, 1, "max", {STORE(XY, p_max)}},
    {ECHO_NPU_FN_MIN, 1, "min", {STORE(XY, p_min)}},
    {ECHO_NPU_FN_AXPY, 1, "axpy", {STORE(XY, p_axpy)}},
    {ECHO_NPU_FN_EQ, 1, "eq", {STORE(XY, p_eq)}},
    {ECHO_NPU_FN_LT, 1, "lt", {STORE(XY, p_lt)}},
    {ECHO_NPU_FN_LE, 1, "le", {STORE(XY, p_le)}},
    {ECHO_NPU_FN_SILU_BWD, 1, "silu_bwd", {STORE(XY, p_silu_bwd)}},
    {ECHO_NPU_FN_GELU_BWD, 1, "gelu_bwd", {STORE(XY, p_gelu_bwd)}},
    {ECHO_NPU_FN_TANH_BWD, 1, "tanh_bwd", {STORE(XY, p_tanh_bwd)}},
    {ECHO_NPU_FN_SIGMOID_BWD, 1, "sigmoid_bwd", {STORE(XY, p_sigmoid_bwd)}},
    {ECHO_NPU_FN_RELU_BWD, 1, "relu_bwd", {STORE(XY, p_relu_bwd)}},
    {ECHO_NPU_FN_SILU_MUL, 1, "silu_mul", {STORE(XY, p_silu_mul)}},
    {ECHO_NPU_FN_MOVE, 1, "move", {STORE(X, p_move)}},
    {ECHO_NPU_FN_NEG, 1, "neg", {STORE(X, p_neg)}},
    {ECHO_NPU_FN_ABS, 1, "abs", {STORE(X, p_abs)}},
    {ECHO_NPU_FN_SQRT, 1, "sqrt", {STORE(X, p_sqrt)}},
    {ECHO_NPU_FN_RSQRT, 1, "rsqrt", {STORE(X, p_rsqrt)}},
    {ECHO_NPU_FN_RECIP, 1, "recip", {STORE(X, p_recip)}},
    {ECHO_NPU_FN_EXP, 1, "exp", {STORE(X, p_exp)}},
    {ECHO_NPU_FN_LOG, 1, "log", {STORE(X, p_log)}},
    {ECHO_NPU_FN_SIN, 1, "sin", {STORE(X, p_sin)}},
    {ECHO_NPU_FN_COS, 1, "cos", {STORE(X, p_cos)}},
    {ECHO_NPU_FN_TANH, 1, "tanh", {STORE(X, p_tanh)}},
    {ECHO_NPU_FN_SIGMOID, 1, "sigmoid", {STORE(X, p_sigmoid)}},
    {ECHO_NPU_FN_SILU, 1, "silu", {STORE(X, p_silu)}},
    {ECHO_NPU_FN_GELU, 1, "gelu", {STORE(X, p_gelu)}},
    {ECHO_NPU_FN_GELU_TANH, 1, "gelu_tanh", {STORE(X, p_gelu_tanh)}},
    {ECHO_NPU_FN_RELU, 1, "relu", {STORE(X, p_relu)}},
    {ECHO_NPU_FN_SCALE, 1, "scale", {STORE(X, p_scale)}},
    {ECHO_NPU_FN_ROW_SUM, 1, "row_sum", {RESULT(SUM, X, p_move)}},
    {ECHO_NPU_FN_ROW_MEAN, 1, "row_mean", {RESULT_POST(SUM, X, p_move, p_mul_beta)}},
    {ECHO_NPU_FN_ROW_MAX, 1, "row_max", {RESULT(MAX, X, p_move)}},
    {ECHO_NPU_FN_ROW_MIN, 1, "row_min", {RESULT_POST(MAX, X, p_neg, p_neg)}},
    {ECHO_NPU_FN_ROW_SUMSQ, 1, "row_sumsq", {RESULT(SUM, X, p_square)}},
    {ECHO_NPU_FN_ROW_DOT, 1, "row_dot", {RESULT(SUM, XY, p_mul)}},
    {ECHO_NPU_FN_SOFTMAX, 3, "softmax",
     {REDUCE(MAX, X, p_softmax_max), REDUCE_POST(SUM, X, p_softmax_sum, p_recip), STORE(X, p_softmax_out)}},
    {ECHO_NPU_FN_SOFTMAX_MASK, 3, "softmax_mask",
     {REDUCE(MAX, XY, p_softmax_mask_max), REDUCE_POST(SUM, XY, p_softmax_mask_sum, p_recip),
      STORE(XY, p_softmax_mask_out)}},
    {ECHO_NPU_FN_LOG_SOFTMAX, 3, "log_softmax",
     {REDUCE(MAX, X, p_softmax_max), REDUCE_POST(SUM, X, p_softmax_sum, p_log), STORE(X, p_log_softmax_out)}},
    {ECHO_NPU_FN_SOFTMAX_BWD, 2, "softmax_bwd", {REDUCE(SUM, XY, p_mul), STORE(XY, p_softmax_bwd_out)}},
    {ECHO_NPU_FN_RMS_NORM, 2, "rms_norm", {REDUCE_POST(SUM, X, p_square, p_norm_post), STORE(XY, p_rms_out)}},
    {ECHO_NPU_FN_LAYER_NORM, 3, "layer_norm",
     {REDUCE_POST(SUM, X, p_move, p_mul_beta), REDUCE_POST(SUM, X, p_centre_square, p_norm_post),
      STORE(XY, p_layer_out)}},
    {ECHO_NPU_FN_ROPE, 1, "rope", {STORE2(PAIRS, p_rope)}},
    {ECHO_NPU_FN_ROPE_BWD, 1, "rope_bwd", {STORE2(PAIRS, p_rope_bwd)}},
};
// clang-format on
const int echo_ucode_function_count = (int)LEN(echo_ucode_functions);

const echo_ucode_function* echo_ucode_find(uint32_t id) {
  for (int i = 0; i < echo_ucode_function_count; ++i)
    if (echo_ucode_functions[i].id == id) return &echo_ucode_functions[i];
  return NULL;
}
// clang-format on
