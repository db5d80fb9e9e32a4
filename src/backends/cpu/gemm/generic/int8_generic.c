// The int8 GEMM microkernel in plain C: a word holds one number, widened. Sums wrap, as int32 does.
#include "backends/cpu/family.h"

enum { MR = 4, NR = 8 };

static void pack(const char* data, int64_t line, int64_t along, int lines, int depth, int width,
                 float* packed) {
  int32_t* to = (int32_t*)packed;
  for (int k = 0; k < depth; k++) {
    for (int i = 0; i < width; i++)
      to[k * width + i] = i < lines ? (signed char)data[i * line + k * along] : 0;
  }
}

static void pack_a(const hy__matrix* a, int64_t i, int m, int64_t k, int depth, float* packed) {
  pack(hy__matrix_at(a, i, k), a->row, a->column, m, depth, MR, packed);
}

static void pack_b(const hy__matrix* b, int64_t k, int depth, int64_t j, int n, float* packed) {
  pack(hy__matrix_at(b, k, j), b->column, b->row, n, depth, NR, packed);
}

static void multiply(int depth, const float* packed_a, const float* packed_b, float* c,
                     int64_t stride, int m, int n, bool accumulate) {
  const uint32_t *a = (const uint32_t*)packed_a, *b = (const uint32_t*)packed_b;
  uint32_t sums[MR][NR] = {{0}}, *to = (uint32_t*)c;
  for (int k = 0; k < depth; k++) {
    for (int i = 0; i < MR; i++) {
      for (int j = 0; j < NR; j++) sums[i][j] += a[k * MR + i] * b[k * NR + j];
    }
  }
  for (int i = 0; i < m; i++) {
    for (int j = 0; j < n; j++)
      to[i * stride + j] = accumulate ? to[i * stride + j] + sums[i][j] : sums[i][j];
  }
}

const hy__gemm_kernel hy__gemm_int8_generic = {.mr = MR,
                                               .nr = NR,
                                               .kc = 384,
                                               .unit = 1,
                                               .align = 1,
                                               .pack_a = pack_a,
                                               .pack_b = pack_b,
                                               .multiply = multiply};
