// The int8 GEMM microkernel in AMX tiles.
#include "backends/cpu/family.h"

#if defined(__x86_64__)
#define UNIT 4
#define PRODUCT _tile_dpbssd
#include "backends/cpu/gemm/x86/amx_tmpl.h"

const hy__gemm_kernel hy__gemm_int8_amx = {.mr = MR,
                                           .nr = NR,
                                           .kc = HY__GEMM_MAX_KC,
                                           .unit = UNIT,
                                           .align = TILE,
                                           .pack_a = pack_a,
                                           .pack_b = pack_b,
                                           .begin = begin,
                                           .end = end,
                                           .multiply = multiply,
                                           .in_place = in_place,
                                           .multiply_in_place = multiply_in_place};
#endif
