// Products of bfloat16 in AMX tiles.
#include "backends/cpu/kernels.h"

#if defined(__x86_64__)
#define UNIT 2
#define PRODUCT _tile_dpbf16ps
#define ADD(a, b) _mm512_castps_si512(_mm512_add_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b)))
#include "backends/cpu/gemm_amx.h"

const hy__gemm_kernel hy__gemm_amx_bf16 = {.rows = ROWS,
                                           .panel = PANEL,
                                           .unit = UNIT,
                                           .align = TILE,
                                           .pack_a = pack_a,
                                           .pack_b = pack_b,
                                           .multiply = multiply};
#endif
