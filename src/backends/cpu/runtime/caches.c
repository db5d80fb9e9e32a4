// Sizes of caches, asked of the processor: a virtual machine's /sys may not have them.
#include "backends/cpu/runtime/caches.h"

bool hy__prefetch_into_l1;

#if defined(__x86_64__)
#include <cpuid.h>

// Bytes of the first level for data by one of the two leaves that list caches alike; 0: not there.
static unsigned l1_data_bytes(unsigned leaf) {
  enum { DATA = 1, MOST_CACHES = 8 };
  unsigned a, b, c, d;
  for (unsigned i = 0; i < MOST_CACHES; i++) {
    if (!__get_cpuid_count(leaf, i, &a, &b, &c, &d) || (a & 31) == 0) return 0;
    unsigned level = a >> 5 & 7, ways = (b >> 22) + 1, parts = (b >> 12 & 1023) + 1,
             line = (b & 4095) + 1, sets = c + 1;
    if ((a & 31) == DATA && level == 1) return ways * parts * line * sets;
  }
  return 0;
}

void hy__caches_init(void) {
  enum { INTEL = 4, ROOMY = 48 << 10 };
  const unsigned amd = 0x8000001d;
  unsigned bytes = l1_data_bytes(INTEL);
  if (bytes == 0) bytes = l1_data_bytes(amd);
  hy__prefetch_into_l1 = bytes >= ROOMY;
}
#else
void hy__caches_init(void) {}
#endif
