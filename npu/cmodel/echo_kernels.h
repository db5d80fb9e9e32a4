// echo_kernels.h - inner loops of the model, one table per instruction set; all give the same bits.
#ifndef ECHO_KERNELS_H
#define ECHO_KERNELS_H

#include <stdint.h>

#define ECHO_BLOCK 512  // columns a lane program runs over at a time; a multiple of the partials
#define ECHO_MAX_MR 16
#define ECHO_MAX_NR 32
#define ECHO_SKINNY_ROWS 2
#define ECHO_SKINNY_COLS 128

typedef struct echo_lanes {
  uint32_t r[16][ECHO_BLOCK];
} __attribute__((aligned(64))) echo_lanes;

typedef struct echo_kernels {
  const char* name;
  int mr, nr;  // register tile of the matrix kernels

  // c[m][n] += sum over k ascending of a[k][m] b[k][n]; a is k x mr packed, b is k x nr packed.
  // With canonical, NaNs are stored as the one NaN.
  void (*tile_f32)(int64_t k, int rows, const float* a, const float* b, float* c, int64_t ldc,
                   int canonical);
  // The same for 16-bit pairs: a is (k/2) x mr x 2, b is (k/2) x nr x 2.
  void (*tile_i8)(int64_t pairs, int rows, const int16_t* a, const int16_t* b, int32_t* c,
                  int64_t ldc);
  // Transpose-packs 16 or fewer columns: out[k * stride + n] = in[n * ld + k].
  void (*pack_transposed)(int64_t k, int n, const float* in, int64_t ld, float* out, int stride);

  // Few rows against ECHO_SKINNY_COLS columns of b where it is, unpacked: b is k x n (ldb steps
  // k), or n x k when transposed. a is k x mr packed. NULL: use tiles.
  void (*skinny)(int64_t k, int rows, const float* a, const float* b, int64_t ldb, int transposed,
                 float* c, int64_t ldc, int canonical);

  void (*run)(echo_lanes* lanes, const uint32_t* program, int length, const uint32_t* scalars,
              int n);
  void (*load)(uint32_t* out, const void* in, int type, int64_t n);
  void (*store)(void* out, const uint32_t* in, int type, int64_t n);
  void (*reduce)(uint32_t* partials, const uint32_t* in, int kind, int n);
  uint32_t (*tree)(uint32_t* partials, int kind);
} echo_kernels;

extern const echo_kernels echo_kernels_scalar;
#if defined(__x86_64__)
extern const echo_kernels echo_kernels_avx2;
extern const echo_kernels echo_kernels_avx512;
#endif

// The best table for this processor; ECHO_NPU_ISA=scalar|avx2|avx512 asks for another.
const echo_kernels* echo_kernels_best(void);
// The table by name, or NULL if this processor cannot run it.
const echo_kernels* echo_kernels_named(const char* name);

// Puts the calling thread in the arithmetic mode of the model; returns what to pass to leave.
uint32_t echo_fp_enter(void);
void echo_fp_leave(uint32_t saved);

#endif  // ECHO_KERNELS_H
