#include "backends/cpu/runtime/features.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "backends/cpu/family.h"

static hy__isa isa;
static pthread_once_t once = PTHREAD_ONCE_INIT;

const char* hy__isa_name(hy__isa_level level) {
  switch (level) {
    case HY__ISA_SCALAR: return "scalar";
    case HY__ISA_NEON: return "neon";
    case HY__ISA_AVX2: return "avx2";
    case HY__ISA_AVX512: return "avx512";
  }
  return "?";
}

#if defined(__x86_64__)
#include <cpuid.h>

// Linux hands out the large tile registers only on request.
static bool request_tiles(void) {
  enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
  return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}

static void detect(void) {
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) isa.level = HY__ISA_AVX2;
  if (isa.level == HY__ISA_AVX2 && __builtin_cpu_supports("avx512f") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512dq"))
    isa.level = HY__ISA_AVX512;
  if (isa.level != HY__ISA_AVX512) return;
  isa.vnni = __builtin_cpu_supports("avx512vnni");
  isa.avx512_bf16 = __builtin_cpu_supports("avx512bf16");
  unsigned a, b, c, d;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) {
    bool bf16 = d & (1u << 22), tile = d & (1u << 24), int8 = d & (1u << 25);
    if (tile && (bf16 || int8) && request_tiles()) {
      isa.amx_bf16 = bf16;
      isa.amx_int8 = int8;
    }
  }
}
#else
static void detect(void) {
#if defined(__aarch64__)
  isa.level = HY__ISA_NEON;
#endif
}
#endif

static void lower(hy__isa_level level) {
  if (level >= isa.level) return;
  memset(&isa, 0, sizeof isa);
  isa.level = level;
}

static void initialise(void) {
  detect();
  const char* text = secure_getenv("HALYARD_CPU_ISA");
  if (!text || !*text) return;
  for (int level = HY__ISA_SCALAR; level <= HY__ISA_AVX512; level++) {
    if (strcmp(text, hy__isa_name((hy__isa_level)level)) != 0) continue;
    lower((hy__isa_level)level);
    return;
  }
  hy__cpu_host_services->log(1, "HALYARD_CPU_ISA is \"%s\", not scalar, neon, avx2 or avx512",
                             text);
}

const hy__isa* hy__cpu_isa(void) {
  pthread_once(&once, initialise);
  return &isa;
}
