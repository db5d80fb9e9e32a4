// What the sizes of caches decide: where and how far ahead weights are prefetched.
#ifndef HALYARD_CPU_RUNTIME_CACHES_H_
#define HALYARD_CPU_RUNTIME_CACHES_H_

#include <stdbool.h>

// Whether a GEMV prefetches weights into L1, this far ahead. 48 KiB hold these beside x (Ice Lake,
// Sapphire Rapids, Zen 5); from 32 KiB (Zen 4) they push x out, and go to L2, or are left to the
// hardware. Set by hy__caches_init, before the first kernel runs.
extern bool hy__prefetch_into_l1;
enum { HY__L1_AHEAD = 8 << 10 };

// Asks the processor; more calls change nothing.
void hy__caches_init(void);

#endif  // HALYARD_CPU_RUNTIME_CACHES_H_
