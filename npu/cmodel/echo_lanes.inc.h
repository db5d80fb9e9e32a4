// echo_lanes.inc.h - the vector unit's inner loops, compiled once per instruction set.
//
// The including file defines NATIVE to 1 when the compiler may use the processor's own fused
// multiply-add (with FTZ and DAZ set by echo_fp_enter), or 0 for the portable rules of
// echo_float.h.
#include <stdint.h>
#include <string.h>

#include "echo_float.h"
#include "echo_kernels.h"
#include "echo_npu_hw.h"
#include "echo_ucode.h"

#define INLINE static inline __attribute__((always_inline))

#if NATIVE
INLINE uint32_t lane_canonical(float f) {
  return f == f ? echo_to_bits(f) : ECHO_QNAN;
}
INLINE uint32_t lane_fma(uint32_t a, uint32_t b, uint32_t c) {
  return lane_canonical(__builtin_fmaf(echo_from_bits(a), echo_from_bits(b), echo_from_bits(c)));
}
INLINE uint32_t lane_mul(uint32_t a, uint32_t b) {
  return lane_canonical(echo_from_bits(a) * echo_from_bits(b));
}
INLINE uint32_t lane_add(uint32_t a, uint32_t c) {
  return lane_canonical(echo_from_bits(a) + echo_from_bits(c));
}
#else
INLINE uint32_t lane_fma(uint32_t a, uint32_t b, uint32_t c) {
  return echo_fma(a, b, c);
}
INLINE uint32_t lane_mul(uint32_t a, uint32_t b) {
  return echo_fma(a, b, 0x80000000u);
}
INLINE uint32_t lane_add(uint32_t a, uint32_t c) {
  return echo_fma(a, 0x3f800000u, c);
}
#endif

// Written without early exits so that the loops vectorise.
INLINE uint32_t lane_max(uint32_t a, uint32_t b) {
  uint32_t r = echo_order_key(a) > echo_order_key(b) ? a : b;
  return (echo_is_nan(a) | echo_is_nan(b)) ? ECHO_QNAN : r;
}
INLINE uint32_t lane_min(uint32_t a, uint32_t b) {
  uint32_t r = echo_order_key(a) < echo_order_key(b) ? a : b;
  return (echo_is_nan(a) | echo_is_nan(b)) ? ECHO_QNAN : r;
}
INLINE int32_t lane_f2i(uint32_t a) {
  float f = __builtin_rintf(echo_from_bits(a));
  float g = f < -0x1p31f ? -0x1p31f : f;
  g = g > 0x1.fffffep30f ? 0x1.fffffep30f : g;
  g = echo_is_nan(a) ? 0.0f : g;
  int32_t i = (int32_t)g;
  return f >= 0x1p31f ? INT32_MAX : i;
}
INLINE float lane_read(uint32_t a) {
  return echo_from_bits(echo_flush(a));
}
INLINE uint32_t lane_mask(int condition) {
  return condition ? 0xffffffffu : 0u;
}

// One loop per mixture of register and broadcast operands, so that constants stay in registers.
#define EACH(EXPRESSION)        \
  for (int j = 0; j < n; ++j) { \
    d[j] = (EXPRESSION);        \
  }
#define LOOP1(f)           \
  if (ka) {                \
    const uint32_t A = *a; \
    EACH(f(A))             \
  } else {                 \
    EACH(f(a[j]))          \
  }
#define LOOP2(f)                   \
  if (!ka && !kb) {                \
    EACH(f(a[j], b[j]))            \
  } else if (!ka) {                \
    const uint32_t B = *b;         \
    EACH(f(a[j], B))               \
  } else if (!kb) {                \
    const uint32_t A = *a;         \
    EACH(f(A, b[j]))               \
  } else {                         \
    const uint32_t A = *a, B = *b; \
    EACH(f(A, B))                  \
  }
#define LOOP3(f)               \
  if (kc) {                    \
    const uint32_t C = *c;     \
    if (kb) {                  \
      const uint32_t B = *b;   \
      if (ka) {                \
        const uint32_t A = *a; \
        EACH(f(A, B, C))       \
      } else {                 \
        EACH(f(a[j], B, C))    \
      }                        \
    } else if (ka) {           \
      const uint32_t A = *a;   \
      EACH(f(A, b[j], C))      \
    } else {                   \
      EACH(f(a[j], b[j], C))   \
    }                          \
  } else if (kb) {             \
    const uint32_t B = *b;     \
    if (ka) {                  \
      const uint32_t A = *a;   \
      EACH(f(A, B, c[j]))      \
    } else {                   \
      EACH(f(a[j], B, c[j]))   \
    }                          \
  } else if (ka) {             \
    const uint32_t A = *a;     \
    EACH(f(A, b[j], c[j]))     \
  } else {                     \
    EACH(f(a[j], b[j], c[j]))  \
  }

#define DO_MOV(x) (x)
#define DO_F2I(x) ((uint32_t)lane_f2i(x))
#define DO_I2F(x) (echo_to_bits((float)(int32_t)(x)))
#define DO_FMA(x, y, z) lane_fma((x) ^ flip_p, y, (z) ^ flip_c)
#define DO_MUL(x, y) lane_mul((x) ^ flip_p, y)
#define DO_ADD(x, y) lane_add((x) ^ flip_p, (y) ^ flip_c)
#define DO_IADD(x, y) ((x) + (y))
#define DO_ISUB(x, y) ((x) - (y))
#define DO_AND(x, y) ((x) & (y))
#define DO_OR(x, y) ((x) | (y))
#define DO_XOR(x, y) ((x) ^ (y))
#define DO_SHL(x, y) ((x) << ((y)&31))
#define DO_SHR(x, y) ((x) >> ((y)&31))
#define DO_SAR(x, y) ((uint32_t)((int32_t)(x) >> ((y)&31)))
#define DO_CLT(x, y) lane_mask(lane_read(x) < lane_read(y))
#define DO_CLE(x, y) lane_mask(lane_read(x) <= lane_read(y))
#define DO_CEQ(x, y) lane_mask(lane_read(x) == lane_read(y))
#define DO_SEL(x, y, z) ((int32_t)(x) < 0 ? (y) : (z))

static const uint32_t* operand(const echo_lanes* lanes, const uint32_t* scalars, uint32_t index,
                               int* broadcast) {
  *broadcast = index >= ECHO_NPU_UOP_SCALAR_BASE;
  if (index < ECHO_NPU_UOP_SCALAR_BASE) return lanes->r[index];
  if (index < ECHO_NPU_UOP_CONST_BASE) return &scalars[index - ECHO_NPU_UOP_SCALAR_BASE];
  return &echo_ucode_constants[index - ECHO_NPU_UOP_CONST_BASE];
}

static void lanes_run(echo_lanes* lanes, const uint32_t* program, int length,
                      const uint32_t* scalars, int n) {
  for (int pc = 0; pc < length; ++pc) {
    const uint32_t word = program[pc];
    const uint32_t flip_p = (word & ECHO_NPU_UOP_NEG_P) << 1, flip_c = word & ECHO_NPU_UOP_NEG_C;
    int ka, kb, kc;
    const uint32_t* a = operand(lanes, scalars, word >> 9 & 127, &ka);
    const uint32_t* b = operand(lanes, scalars, word >> 16 & 127, &kb);
    const uint32_t* c = operand(lanes, scalars, word >> 23 & 127, &kc);
    uint32_t* d = lanes->r[word >> 5 & 15];
    switch (word & 31) {
      case ECHO_NPU_UOP_MOV: LOOP1(DO_MOV) break;
      case ECHO_NPU_UOP_FMA: LOOP3(DO_FMA) break;
      case ECHO_NPU_UOP_MUL: LOOP2(DO_MUL) break;
      case ECHO_NPU_UOP_ADD: b = c, kb = kc; LOOP2(DO_ADD) break;
      case ECHO_NPU_UOP_MAX: LOOP2(lane_max) break;
      case ECHO_NPU_UOP_MIN: LOOP2(lane_min) break;
      case ECHO_NPU_UOP_F2I: LOOP1(DO_F2I) break;
      case ECHO_NPU_UOP_I2F: LOOP1(DO_I2F) break;
      case ECHO_NPU_UOP_IADD: LOOP2(DO_IADD) break;
      case ECHO_NPU_UOP_ISUB: LOOP2(DO_ISUB) break;
      case ECHO_NPU_UOP_AND: LOOP2(DO_AND) break;
      case ECHO_NPU_UOP_OR: LOOP2(DO_OR) break;
      case ECHO_NPU_UOP_XOR: LOOP2(DO_XOR) break;
      case ECHO_NPU_UOP_SHL: LOOP2(DO_SHL) break;
      case ECHO_NPU_UOP_SHR: LOOP2(DO_SHR) break;
      case ECHO_NPU_UOP_SAR: LOOP2(DO_SAR) break;
      case ECHO_NPU_UOP_CLT: LOOP2(DO_CLT) break;
      case ECHO_NPU_UOP_CLE: LOOP2(DO_CLE) break;
      case ECHO_NPU_UOP_CEQ: LOOP2(DO_CEQ) break;
      case ECHO_NPU_UOP_SEL: LOOP3(DO_SEL) break;
    }
  }
}

static void lanes_load(uint32_t* out, const void* in, int type, int64_t n) {
  switch (type) {
    case ECHO_NPU_F32: memcpy(out, in, (size_t)n * 4); break;
    case ECHO_NPU_BF16: {
      const uint16_t* p = in;
      for (int64_t j = 0; j < n; ++j) out[j] = (uint32_t)p[j] << 16;
      break;
    }
    case ECHO_NPU_I8: {
      const int8_t* p = in;
      for (int64_t j = 0; j < n; ++j) out[j] = echo_to_bits((float)p[j]);
      break;
    }
    case ECHO_NPU_I32: {
      const int32_t* p = in;
      for (int64_t j = 0; j < n; ++j) out[j] = echo_to_bits((float)p[j]);
      break;
    }
  }
}

static void lanes_store(void* out, const uint32_t* in, int type, int64_t n) {
  switch (type) {
    case ECHO_NPU_F32: memcpy(out, in, (size_t)n * 4); break;
    case ECHO_NPU_BF16: {
      uint16_t* p = out;
      for (int64_t j = 0; j < n; ++j) {
        uint32_t i = in[j], r = (i + 0x7fffu + ((i >> 16) & 1)) >> 16;
        p[j] = (uint16_t)(echo_is_nan(i) ? 0x7fc0u : r);
      }
      break;
    }
    case ECHO_NPU_I8: {
      int8_t* p = out;
      for (int64_t j = 0; j < n; ++j) {
        int32_t i = lane_f2i(in[j]);
        i = i < -128 ? -128 : i;
        p[j] = (int8_t)(i > 127 ? 127 : i);
      }
      break;
    }
    case ECHO_NPU_I32: {
      int32_t* p = out;
      for (int64_t j = 0; j < n; ++j) p[j] = lane_f2i(in[j]);
      break;
    }
  }
}

static void lanes_reduce(uint32_t* partials, const uint32_t* in, int kind, int n) {
  for (int at = 0; at < n; at += ECHO_NPU_PARTIALS) {
    int m = n - at < ECHO_NPU_PARTIALS ? n - at : ECHO_NPU_PARTIALS;
    if (kind == ECHO_NPU_REDUCE_SUM)
      for (int p = 0; p < m; ++p) partials[p] = lane_add(partials[p], in[at + p]);
    else
      for (int p = 0; p < m; ++p) partials[p] = lane_max(partials[p], in[at + p]);
  }
}

static uint32_t lanes_tree(uint32_t* partials, int kind) {
  for (int h = ECHO_NPU_PARTIALS / 2; h; h /= 2)
    for (int p = 0; p < h; ++p)
      partials[p] = kind == ECHO_NPU_REDUCE_SUM ? lane_add(partials[p], partials[p + h])
                                                : lane_max(partials[p], partials[p + h]);
  return partials[0];
}
