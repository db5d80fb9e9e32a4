// Portable kernels: the rules of echo_float.h, one lane at a time.
#define NATIVE 0
#include "echo_lanes.inc.h"

enum { MR = 4, NR = 8 };

static void tile_f32(int64_t k, int rows, const float* a, const float* b, float* c, int64_t ldc,
                     int canonical) {
  (void)canonical;
  for (int m = 0; m < rows; ++m)
    for (int n = 0; n < NR; ++n) {
      uint32_t acc = echo_to_bits(c[m * ldc + n]);
      for (int64_t i = 0; i < k; ++i)
        acc = echo_fma(echo_to_bits(a[i * MR + m]), echo_to_bits(b[i * NR + n]), acc);
      c[m * ldc + n] = echo_from_bits(acc);
    }
}

static void tile_i8(int64_t pairs, int rows, const int16_t* a, const int16_t* b, int32_t* c,
                    int64_t ldc) {
  for (int m = 0; m < rows; ++m)
    for (int n = 0; n < NR; ++n) {
      uint32_t acc = (uint32_t)c[m * ldc + n];
      for (int64_t i = 0; i < pairs; ++i)
        acc += (uint32_t)(a[(i * MR + m) * 2] * b[(i * NR + n) * 2] +
                          a[(i * MR + m) * 2 + 1] * b[(i * NR + n) * 2 + 1]);
      c[m * ldc + n] = (int32_t)acc;
    }
}

static void pack_transposed(int64_t k, int n, const float* in, int64_t ld, float* out, int stride) {
  for (int j = 0; j < n; ++j)
    for (int64_t i = 0; i < k; ++i) out[i * stride + j] = in[j * ld + i];
}

const echo_kernels echo_kernels_scalar = {
    "scalar", MR,        NR,         tile_f32,    tile_i8,      pack_transposed,
    NULL,     lanes_run, lanes_load, lanes_store, lanes_reduce, lanes_tree,
};
