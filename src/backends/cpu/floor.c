#include "backends/cpu/floor.h"

#include <string.h>
#include <time.h>

#include "backends/cpu/isa.h"
#include "backends/cpu/pool.h"
#include "backends/cpu/target.h"

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
#define DEFINE_FLOPS(name, vector, zero)               \
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
DEFINE_FLOPS(flops_avx512, __m512, _mm512_setzero_ps())
#undef ADD
HY__TARGET_END
HY__TARGET_AVX2
#define ADD _mm256_fmadd_ps
DEFINE_FLOPS(flops_avx2, __m256, _mm256_setzero_ps())
#undef ADD
HY__TARGET_END
#define ADD(a, b, c) _mm_add_ps(_mm_mul_ps(a, b), c)
DEFINE_FLOPS(flops_plain, __m128, _mm_setzero_ps())
#elif defined(__aarch64__)
#include <arm_neon.h>
#define KEEP(x) __asm__ volatile("" : "+w"(x))
#define ADD vfmaq_f32
DEFINE_FLOPS(flops_plain, float32x4_t, vdupq_n_f32(0))
#else
#define KEEP(x) __asm__ volatile("" : "+r"(x))
#define ADD(a, b, c) ((a) * (b) + (c))
DEFINE_FLOPS(flops_plain, float, 0)
#endif

double hy__floor_flops(void) {
  hy__task task = flops_plain;
  int width = 4;
#if defined(__x86_64__)
  hy__isa_level level = hy__cpu_isa()->level;
  if (level == HY__ISA_AVX512) {
    task = flops_avx512;
    width = 16;
  } else if (level == HY__ISA_AVX2) {
    task = flops_avx2;
    width = 8;
  }
#endif
  int threads = hy__pool_threads();
  float sums[256];
  double start = now();
  hy__pool_run(task, sums, threads);
  return 2.0 * width * CHAINS * ROUNDS * threads / (now() - start);
}

// ---- memory ----

enum { PIECE = 1 << 20 };

typedef struct span {
  char* to;
  const char* from;
  size_t bytes;
} span;

static size_t piece_of(const span* s, int64_t i) {
  size_t left = s->bytes - (size_t)i * PIECE;
  return left < PIECE ? left : PIECE;
}

// Eight streams of sums within a page's reach of each other; plain C that any compiler vectorises.
static void read_piece(void* context, int64_t i) {
  const span* s = context;
  const uint64_t* p = (const uint64_t*)(s->from + (size_t)i * PIECE);
  uint64_t sums[32] = {0};
  for (size_t n = piece_of(s, i) / sizeof sums; n > 0; n--, p += 32) {
    for (int c = 0; c < 32; c++) sums[c] += p[c];
  }
  for (int c = 1; c < 32; c++) sums[0] += sums[c];
  __asm__ volatile("" ::"r"(sums[0]));
}

static void copy_piece(void* context, int64_t i) {
  const span* s = context;
  memcpy(s->to + (size_t)i * PIECE, s->from + (size_t)i * PIECE, piece_of(s, i));
}

static double run_pieces(hy__task task, span* s) {
  double start = now();
  hy__pool_run(task, s, (int64_t)((s->bytes + PIECE - 1) / PIECE));
  return now() - start;
}

double hy__floor_read(const void* memory, size_t bytes) {
  span s = {NULL, memory, bytes};
  return (double)bytes / run_pieces(read_piece, &s);
}

double hy__floor_copy(void* to, const void* from, size_t bytes) {
  span s = {to, from, bytes};
  return 2.0 * (double)bytes / run_pieces(copy_piece, &s);
}
