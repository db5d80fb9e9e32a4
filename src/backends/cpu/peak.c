// Peak FLOP/s and bandwidth (the roofline), measured with the widest instructions there are.
#include "backends/cpu/peak.h"

#include <string.h>
#include <time.h>

#include "backends/common/host.h"
#include "backends/cpu/runtime/caches.h"
#include "backends/cpu/runtime/isa.h"
#include "backends/cpu/runtime/target.h"
#include "backends/cpu/runtime/thread_pool.h"
#include "backends/cpu/simd/amx.h"

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// ---- multiply-adds ----

// Twelve chains cover the latency of any processor. KEEP makes the compiler believe that the sums
// are used, so that it neither drops nor reorders them.
enum { CHAINS = 12, ROUNDS = 100000 };
#define DOZEN(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)
#define START(c) s##c = x,
#define STEP(c)           \
  s##c = ADD(s##c, x, x); \
  KEEP(s##c);
#define DEFINE_PRODUCTS(name, vector, zero)            \
  static void name(void* context, int64_t i) {         \
    vector x = zero, DOZEN(START) last = x;            \
    for (int r = 0; r < ROUNDS; r++) {                 \
      DOZEN(STEP)                                      \
    }                                                  \
    last = s0;                                         \
    memcpy((float*)context + i, &last, sizeof(float)); \
  }

#if defined(__x86_64__)
#include <immintrin.h>
#define KEEP(x) __asm__ volatile("" : "+v"(x))
HY__TARGET_AVX512
#define ADD _mm512_fmadd_ps
DEFINE_PRODUCTS(f32_avx512, __m512, _mm512_setzero_ps())
#undef ADD
HY__TARGET_END
HY__TARGET_BF16
#define ADD(a, b, c) _mm512_dpbf16_ps(a, (__m512bh)(b), (__m512bh)(c))
DEFINE_PRODUCTS(bf16_avx512, __m512, _mm512_setzero_ps())
#undef ADD
HY__TARGET_END
HY__TARGET_VNNI
#define ADD _mm512_dpbusd_epi32
DEFINE_PRODUCTS(i8_vnni, __m512i, _mm512_setzero_si512())
#undef ADD
HY__TARGET_END
HY__TARGET_AVX2
#define ADD _mm256_fmadd_ps
DEFINE_PRODUCTS(f32_avx2, __m256, _mm256_setzero_ps())
#undef ADD
#define ADD(a, b, c) \
  _mm256_add_epi32(a, _mm256_madd_epi16(_mm256_maddubs_epi16(b, c), _mm256_set1_epi16(1)))
DEFINE_PRODUCTS(i8_avx2, __m256i, _mm256_setzero_si256())
#undef ADD
HY__TARGET_END
#define ADD(a, b, c) _mm_add_ps(_mm_mul_ps(a, b), c)
DEFINE_PRODUCTS(f32_plain, __m128, _mm_setzero_ps())
#undef ADD
#define ADD(a, b, c) _mm_add_epi32(a, _mm_madd_epi16(b, c))
DEFINE_PRODUCTS(i8_plain, __m128i, _mm_setzero_si128())
#undef ADD
enum { I8_PLAIN = 8 };

// Four tiles of sums, as the product has them; a twelfth of the rounds.
HY__TARGET_AMX
static void begin_tiles(void) {
  hy__tile_config config = {.palette = 1};
  for (int t = 0; t < 6; t++) {
    config.bytes[t] = 64;
    config.rows[t] = 16;
  }
  hy__tile_configure(&config);
  _tile_zero(4);
  _tile_zero(5);
}

#define DEFINE_TILES(name, product)            \
  static void name(void* context, int64_t i) { \
    (void)context, (void)i;                    \
    begin_tiles();                             \
    for (int r = 0; r < ROUNDS; r += 4) {      \
      product(0, 4, 5);                        \
      product(1, 4, 5);                        \
      product(2, 4, 5);                        \
      product(3, 4, 5);                        \
    }                                          \
    _tile_release();                           \
  }
DEFINE_TILES(i8_amx, _tile_dpbssd)
DEFINE_TILES(bf16_amx, _tile_dpbf16ps)
HY__TARGET_END
#elif defined(__aarch64__)
#include <arm_neon.h>
#define KEEP(x) __asm__ volatile("" : "+w"(x))
#define ADD vfmaq_f32
DEFINE_PRODUCTS(f32_plain, float32x4_t, vdupq_n_f32(0))
#undef ADD
#define HALVES(x) vget_low_s16(vreinterpretq_s16_s32(x))
#define ADD(a, b, c) vmlal_s16(a, HALVES(b), HALVES(c))
DEFINE_PRODUCTS(i8_plain, int32x4_t, vdupq_n_s32(0))
#undef ADD
enum { I8_PLAIN = 4 };
#else
#define KEEP(x) __asm__ volatile("" : "+r"(x))
#define ADD(a, b, c) ((a) * (b) + (c))
DEFINE_PRODUCTS(f32_plain, float, 0)
DEFINE_PRODUCTS(i8_plain, int32_t, 0)
#undef ADD
enum { I8_PLAIN = 1 };
#endif

// Multiply-adds of one of the CHAINS * ROUNDS steps of a task.
typedef struct products {
  hy__task task;
  double width;
} products;

static products widest(hy_dtype dtype) {
  products plain = {dtype == HY_I8 ? i8_plain : f32_plain, dtype == HY_I8 ? I8_PLAIN : 4};
#if defined(__x86_64__)
  uint32_t isa = hy__cpu_isa();
  const double of_tile = 16.0 * 16 * 64 / CHAINS;
  if (dtype == HY_I8 && isa & HY__ISA_AMX_INT8) return (products){i8_amx, of_tile};
  if (dtype == HY_I8 && isa & HY__ISA_AVX512_VNNI) return (products){i8_vnni, 64};
  if (dtype == HY_I8 && isa & HY__ISA_AVX2) return (products){i8_avx2, 32};
  if (dtype == HY_BF16 && isa & HY__ISA_AMX_BF16) return (products){bf16_amx, of_tile / 2};
  if (dtype == HY_BF16 && isa & HY__ISA_AVX512_BF16) return (products){bf16_avx512, 32};
  if (dtype != HY_I8 && isa & HY__ISA_AVX512) return (products){f32_avx512, 16};
  if (dtype != HY_I8 && isa & HY__ISA_AVX2) return (products){f32_avx2, 8};
#endif
  return plain;
}

static double multiply_adds(hy_dtype dtype) {
  products p = widest(dtype);
  int threads = hy__pool_threads();
  float sums[256];
  double start = now();
  hy__pool_run(p.task, sums, threads);
  return 2 * p.width * CHAINS * ROUNDS * threads / (now() - start);
}

// ---- memory ----

enum { PIECE = 1 << 20, LINE = 64 };

typedef struct span {
  char* to;
  const char* from;
  size_t bytes;
} span;

static size_t piece_of(const span* s, int64_t i) {
  size_t left = s->bytes - (size_t)i * PIECE;
  return left < PIECE ? left : PIECE;
}

// Loads as wide as the processor has, added up so that they happen, and prefetched as weights are.
#define DEFINE_READ(name, vector, load, add)                                            \
  static void name(void* context, int64_t i) {                                          \
    const span* s = context;                                                            \
    const char *p = s->from + (size_t)i * PIECE, *end = p + piece_of(s, i) / 512 * 512; \
    const bool ahead = hy__prefetch_into_l1;                                            \
    vector a = load(p), b = a, c = a, d = a;                                            \
    for (; p < end; p += 4 * sizeof(vector)) {                                          \
      for (size_t at = 0; ahead && at < 4 * sizeof(vector); at += LINE)                 \
        __builtin_prefetch(p + at + HY__L1_AHEAD);                                      \
      a = add(a, load(p));                                                              \
      b = add(b, load(p + sizeof(vector)));                                             \
      c = add(c, load(p + 2 * sizeof(vector)));                                         \
      d = add(d, load(p + 3 * sizeof(vector)));                                         \
    }                                                                                   \
    a = add(add(a, b), add(c, d));                                                      \
    KEEP(a);                                                                            \
  }

#if defined(__x86_64__)
#define LOAD512(p) _mm512_loadu_si512(p)
#define LOAD256(p) _mm256_loadu_si256((const __m256i*)(p))
#define LOAD128(p) _mm_loadu_si128((const __m128i*)(p))
HY__TARGET_AVX512
DEFINE_READ(read_avx512, __m512i, LOAD512, _mm512_xor_si512)
HY__TARGET_END
HY__TARGET_AVX2
DEFINE_READ(read_avx2, __m256i, LOAD256, _mm256_xor_si256)
HY__TARGET_END
DEFINE_READ(read_plain, __m128i, LOAD128, _mm_xor_si128)
#elif defined(__aarch64__)
#define LOAD128(p) vld1q_u8((const uint8_t*)(p))
DEFINE_READ(read_plain, uint8x16_t, LOAD128, veorq_u8)
#else
#define LOAD64(p) (*(const uint64_t*)(p))
#define XOR64(a, b) ((a) ^ (b))
DEFINE_READ(read_plain, uint64_t, LOAD64, XOR64)
#endif

static void copy_piece(void* context, int64_t i) {
  const span* s = context;
  memcpy(s->to + (size_t)i * PIECE, s->from + (size_t)i * PIECE, piece_of(s, i));
}

static double run_pieces(hy__task task, span* s) {
  double start = now();
  hy__pool_run(task, s, (int64_t)((s->bytes + PIECE - 1) / PIECE));
  return now() - start;
}

static double read_rate(const void* memory, size_t bytes) {
  hy__task task = read_plain;
#if defined(__x86_64__)
  uint32_t isa = hy__cpu_isa();
  if (isa & HY__ISA_AVX2) task = isa & HY__ISA_AVX512 ? read_avx512 : read_avx2;
#endif
  span s = {NULL, memory, bytes};
  return (double)bytes / run_pieces(task, &s);
}

static double copy_rate(void* to, const void* from, size_t bytes) {
  span s = {to, from, bytes};
  return 2.0 * (double)bytes / run_pieces(copy_piece, &s);
}

hy_status hy__cpu_peak(void* device, hy_peak kind, hy_dtype dtype, void* dst, const void* src,
                       size_t bytes, double* per_second) {
  (void)device;
  switch (kind) {
    case HY_PEAK_MULTIPLY_ADD: *per_second = multiply_adds(dtype); return HY_OK;
    case HY_PEAK_READ: *per_second = read_rate(src, bytes); return HY_OK;
    case HY_PEAK_COPY: *per_second = copy_rate(dst, src, bytes); return HY_OK;
  }
  return hy__backend_host->fail(HY_UNSUPPORTED, "cpu: peak %d is not measured", (int)kind);
}
