// Quantised weights in the order of memory: what is asked for ahead, and which scale comes next.
#ifndef HALYARD_CPU_QUANT_X86_WEIGHTS_STREAM_H_
#define HALYARD_CPU_QUANT_X86_WEIGHTS_STREAM_H_

#include <immintrin.h>

#include "backends/cpu/quant/quantized.h"
#include "backends/cpu/runtime/caches.h"
#include "backends/cpu/runtime/target.h"

// Bytes by which a GEMV asks for weights before it uses them: the hardware's own prefetching stops
// at each page's end. Further where they go into L1; one that has no room for that would lose x to
// them, and they would wait for each other on their way.
static inline int64_t hy__weights_ahead(void) {
  return hy__prefetch_into_l1 ? HY__L1_AHEAD : 4096;
}

HY__INLINE void hy__prefetch(const unsigned char* weights) {
  const char* at = (const char*)weights + hy__weights_ahead();
  if (hy__prefetch_into_l1)
    _mm_prefetch(at, _MM_HINT_T0);
  else
    _mm_prefetch(at, _MM_HINT_T1);
}

// The scales of a row about as far ahead: they are too few to start the hardware's own prefetching.
typedef struct hy__scales_ahead {
  int64_t rows, bytes;
} hy__scales_ahead;

static inline hy__scales_ahead hy__scales_ahead_of(const hy__quantized* w) {
  return (hy__scales_ahead){1 + hy__weights_ahead() / (w->row > 0 ? w->row : 1),
                            w->k / w->group * (int64_t)sizeof(float)};
}

HY__INLINE void hy__prefetch_scales(const hy__quantized* w, int64_t row, hy__scales_ahead ahead) {
  const char* scales = (const char*)(w->scale + (row + ahead.rows) * w->scale_row);
  for (int64_t i = 0; i < ahead.bytes; i += 64) _mm_prefetch(scales + i, _MM_HINT_T1);
}

// How blocks walk along a row's scales: either a block has several, or several blocks have one.
// Divisions that a row is too short for.
typedef struct hy__scale_walk {
  int64_t advance;  // scales, after this many blocks
  int64_t blocks;
} hy__scale_walk;

static inline hy__scale_walk hy__scale_walk_of(const hy__quantized* w, int64_t length) {
  return (hy__scale_walk){w->group < length && w->group < w->k ? length / w->group : 1,
                          (w->group + length - 1) / length};
}

#endif  // HALYARD_CPU_QUANT_X86_WEIGHTS_STREAM_H_
