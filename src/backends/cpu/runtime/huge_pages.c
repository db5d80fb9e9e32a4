// Huge pages (transparent, 2 MiB) for large buffers.
#include "backends/cpu/runtime/huge_pages.h"

#include <stdbool.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { HUGE_PAGE = 2 << 20, CACHE_LINE = 64 };

void* hy__page_alloc(size_t bytes) {
  void* memory;
  bool huge = bytes >= HUGE_PAGE;
  if (posix_memalign(&memory, huge ? HUGE_PAGE : CACHE_LINE, bytes ? bytes : 1) != 0) return NULL;
#if defined(MADV_HUGEPAGE)
  // A wish: where the system refuses, the memory is as good as any.
  if (huge) (void)madvise(memory, bytes / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE);
#endif
  return memory;
}
