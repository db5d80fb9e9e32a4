// Guard pages (mprotect): the handler of SIGSEGV notes who was touched and opens the page, so that
// the call that went astray ends as any other, and its failure can be told with its case.
#include "verify/fence.h"

#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

enum { FENCE_BYTES = 1 << 16 };

typedef struct fence {
  unsigned char* base;
  size_t bytes;  // before the guard pages
  atomic_int touched;
} fence;

static fence fences[HY__FENCES];
static struct sigaction before;
static bool installed;

static void on_fault(int signal, siginfo_t* info, void* context) {
  const unsigned char* at = info->si_addr;
  for (int i = 0; i < HY__FENCES; i++) {
    fence* f = &fences[i];
    if (!f->base || at < f->base + f->bytes || at >= f->base + f->bytes + FENCE_BYTES) continue;
    atomic_store(&f->touched, 1);
    mprotect(f->base + f->bytes, FENCE_BYTES, PROT_READ | PROT_WRITE);
    return;
  }
  if (before.sa_flags & SA_SIGINFO) {
    before.sa_sigaction(signal, info, context);
  } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
    before.sa_handler(signal);
  } else {
    sigaction(SIGSEGV, &before, NULL);  // the same instruction faults again, and ends the process
  }
}

hy_status hy__fence_open(void) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  if (sigaction(SIGSEGV, &action, &before) != 0)
    return hy_fail(HY_INTERNAL, "no handler of SIGSEGV can be set");
  installed = true;
  return HY_OK;
}

static void release(fence* f) {
  if (f->base) munmap(f->base, f->bytes + FENCE_BYTES);
  f->base = NULL;
  f->bytes = 0;
}

void hy__fence_close(void) {
  if (installed) sigaction(SIGSEGV, &before, NULL);
  installed = false;
  for (int i = 0; i < HY__FENCES; i++) release(&fences[i]);
}

static bool grow(fence* f, size_t bytes) {
  size_t size = (bytes + FENCE_BYTES - 1) / FENCE_BYTES * FENCE_BYTES;
  release(f);
  void* base =
      mmap(NULL, size + FENCE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) return false;
  f->base = base;
  f->bytes = size;
  return mprotect(f->base + size, FENCE_BYTES, PROT_NONE) == 0;
}

unsigned char* hy__fence_end(int number, size_t bytes) {
  if (number >= HY__FENCES || !installed) return NULL;
  fence* f = &fences[number];
  if ((!f->base || f->bytes < bytes) && !grow(f, bytes)) return NULL;
  return f->base + f->bytes;
}

int hy__fence_touched(void) {
  int found = -1;
  for (int i = 0; i < HY__FENCES; i++) {
    if (!atomic_exchange(&fences[i].touched, 0)) continue;
    found = i;
    mprotect(fences[i].base + fences[i].bytes, FENCE_BYTES, PROT_NONE);
  }
  return found;
}
