// echo_kernels.c - kernel dispatch: picks the table for this processor, and sets its floating-point
// mode.
#include "echo_kernels.h"

#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__)
#include <xmmintrin.h>
#define FTZ_DAZ 0x8040u

uint32_t echo_fp_enter(void) {
  uint32_t saved = _mm_getcsr();
  _mm_setcsr(0x1f80u | FTZ_DAZ);
  return saved;
}
void echo_fp_leave(uint32_t saved) {
  _mm_setcsr(saved);
}

const echo_kernels* echo_kernels_named(const char* name) {
  __builtin_cpu_init();
  if (!strcmp(name, "avx512"))
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                   __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")
               ? &echo_kernels_avx512
               : NULL;
  if (!strcmp(name, "avx2"))
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? &echo_kernels_avx2
                                                                           : NULL;
  return strcmp(name, "scalar") ? NULL : &echo_kernels_scalar;
}
#else
uint32_t echo_fp_enter(void) {
  return 0;
}
void echo_fp_leave(uint32_t saved) {
  (void)saved;
}
const echo_kernels* echo_kernels_named(const char* name) {
  return strcmp(name, "scalar") ? NULL : &echo_kernels_scalar;
}
#endif

const echo_kernels* echo_kernels_best(void) {
  static const char* const order[] = {"avx512", "avx2", "scalar"};
  const char* wanted = getenv("ECHO_NPU_ISA");
  const echo_kernels* found = wanted ? echo_kernels_named(wanted) : NULL;
  for (int i = 0; !found; ++i) found = echo_kernels_named(order[i]);
  return found;
}
