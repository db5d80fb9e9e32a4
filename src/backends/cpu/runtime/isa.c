// Instruction sets as feature bits: asking the processor and the system.
#include "backends/cpu/runtime/isa.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "backends/common/host.h"
#include "base/env.h"

static uint32_t isa;
static pthread_once_t once = PTHREAD_ONCE_INIT;

const char* hy__isa_name(uint32_t bits) {
  return bits & HY__ISA_AVX512 ? "avx512"
         : bits & HY__ISA_AVX2 ? "avx2"
         : bits & HY__ISA_NEON ? "neon"
                               : "scalar";
}

#if defined(__x86_64__)
#include <cpuid.h>

// Linux hands out the large tile registers only on request.
static bool request_tiles(void) {
  enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
  return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}

static uint32_t detect(void) {
  uint32_t bits = 0;
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) bits |= HY__ISA_AVX2;
  // Kernels of AVX-512 use AVX2 and FMA beside it.
  if (!bits || !__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512dq"))
    return bits;
  bits |= HY__ISA_AVX512;
  if (__builtin_cpu_supports("avx512vnni")) bits |= HY__ISA_AVX512_VNNI;
  if (__builtin_cpu_supports("avx512bf16")) bits |= HY__ISA_AVX512_BF16;
  if (__builtin_cpu_supports("avx512vbmi")) bits |= HY__ISA_AVX512_VBMI;
  unsigned a, b, c, d;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return bits;
  bool bf16 = d & (1u << 22), tile = d & (1u << 24), int8 = d & (1u << 25);
  if (tile && (bf16 || int8) && request_tiles()) {
    if (bf16) bits |= HY__ISA_AMX_BF16;
    if (int8) bits |= HY__ISA_AMX_INT8;
  }
  return bits;
}
#else
static uint32_t detect(void) {
#if defined(__aarch64__)
  return HY__ISA_NEON;
#else
  return 0;
#endif
}
#endif

// What HALYARD_CPU_ISA leaves.
static const struct {
  const char* name;
  uint32_t bits;
} limits[] = {{"scalar", 0},
              {"neon", HY__ISA_NEON},
              {"avx2", ~(uint32_t)HY__ISA_AVX512_FAMILY},
              {"avx512", ~(uint32_t)0}};

// False for a name that is none of them.
static bool read_limit(const char* text, uint32_t* bits) {
  for (int i = 0; i < 4; i++) {
    if (strcmp(text, limits[i].name) != 0) continue;
    *bits = limits[i].bits;
    return true;
  }
  return false;
}

static void initialise(void) {
  uint32_t bits = ~(uint32_t)0;
  const char* text = hy__env("HALYARD_CPU_ISA");
  if (text) read_limit(text, &bits);
  isa = detect() & bits;
}

hy_status hy__cpu_isa_check(void) {
  uint32_t bits;
  const char* text = hy__env("HALYARD_CPU_ISA");
  if (!text || read_limit(text, &bits)) return HY_OK;
  return hy__backend_host->fail(
      HY_INVALID_ARGUMENT, "HALYARD_CPU_ISA is \"%s\"; give scalar, neon, avx2 or avx512", text);
}

uint32_t hy__cpu_isa(void) {
  pthread_once(&once, initialise);
  return isa;
}
