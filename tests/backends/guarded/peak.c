// Peaks of the guarded device: a sample of multiply-adds, reads and copies by the calling thread.
#include <string.h>
#include <time.h>

#include "guarded.h"

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double multiply_adds(void) {
  enum { STEPS = 1 << 18, CHAINS = 8 };
  volatile float kept[CHAINS];
  float x[CHAINS] = {0};
  double start = now();
  for (int i = 0; i < STEPS; i++) {
    for (int k = 0; k < CHAINS; k++) x[k] = x[k] * 0.5f + 1;
  }
  for (int k = 0; k < CHAINS; k++) kept[k] = x[k];
  (void)kept[0];
  return 2.0 * STEPS * CHAINS / (now() - start);
}

static uint64_t sum_words(const char* from, size_t bytes) {
  uint64_t sum = 0;
  for (size_t i = 0; i + 8 <= bytes; i += 8) {
    uint64_t word;
    memcpy(&word, from + i, 8);
    sum += word;
  }
  return sum;
}

hy_status guarded_peak(void* device, hy_peak kind, hy_dtype dtype, void* dst, const void* src,
                       size_t bytes, double* per_second) {
  guarded_device* d = device;
  char *from, *to;
  (void)dtype;
  guarded_device_wait(d);
  if (kind == HY_PEAK_MULTIPLY_ADD) {
    *per_second = multiply_adds();
    return HY_OK;
  }
  HY_TRY(guarded_memory_reach(&d->memory, src, bytes, &from));
  if (kind == HY_PEAK_COPY) HY_TRY(guarded_memory_reach(&d->memory, dst, bytes, &to));
  double start = now();
  if (kind == HY_PEAK_COPY) {
    memcpy(to, from, bytes);
  } else {
    volatile uint64_t kept = sum_words(from, bytes);
    (void)kept;
  }
  *per_second = (kind == HY_PEAK_COPY ? 2.0 : 1.0) * (double)bytes / (now() - start);
  return HY_OK;
}
