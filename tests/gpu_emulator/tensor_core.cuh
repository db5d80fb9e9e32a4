// tensor_core.cuh of the emulator: the same functions, by what their PTX is documented to do. Copies
// become visible only when they are waited for, so that a missing wait shows.
#ifndef HALYARD_TESTS_GPU_EMULATOR_TENSOR_CORE_CUH_
#define HALYARD_TESTS_GPU_EMULATOR_TENSOR_CORE_CUH_

extern "C" {
void emu_copy_async(void* to, const void* from, int bytes);
void emu_copy_async_4(void* to, const void* from, int bytes);
void emu_copy_commit(void);
void emu_copy_wait(int pending);
}

inline void copy_async_16(void* shared, const void* global, int bytes) {
  emu_copy_async(shared, global, bytes);
}
inline void copy_async_4(void* shared, const void* global, int bytes) {
  emu_copy_async_4(shared, global, bytes);
}
inline void copy_async_commit() { emu_copy_commit(); }
template <int pending>
inline void copy_async_wait() {
  emu_copy_wait(pending);
}

template <bool transposed>
inline void load_matrices(unsigned (&r)[4], const void* row) {
  if ((size_t)row % 16) __builtin_trap();
  const void* rows[32];
  memcpy(emu_now->slots[emu_now->lane], &row, sizeof row);
  emu_barrier_warp(0xffffffffu);
  for (int l = 0; l < 32; l++) memcpy(&rows[l], emu_now->slots[l], sizeof row);
  int i = emu_now->lane / 4, j = emu_now->lane % 4 * 2;
  for (int m = 0; m < 4; m++) {
    unsigned low, high;
    if (transposed) {
      low = ((const u16*)rows[8 * m + j])[i];
      high = ((const u16*)rows[8 * m + j + 1])[i];
    } else {
      low = ((const u16*)rows[8 * m + i])[j];
      high = ((const u16*)rows[8 * m + i])[j + 1];
    }
    r[m] = low | high << 16;
  }
  emu_barrier_warp(0xffffffffu);
}

struct emu_operands {
  unsigned a[4], b[2];
};
inline f32 emu_half(f16, unsigned bits) { return f16_to_f32((u16)bits); }
inline f32 emu_half(bf16, unsigned bits) { return bf16_to_f32((u16)bits); }

template <class T>
inline void mma(T kind, float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  emu_operands mine = {{a[0], a[1], a[2], a[3]}, {b0, b1}}, all[32];
  memcpy(emu_now->slots[emu_now->lane], &mine, sizeof mine);
  emu_barrier_warp(0xffffffffu);
  for (int l = 0; l < 32; l++) memcpy(&all[l], emu_now->slots[l], sizeof mine);
  emu_barrier_warp(0xffffffffu);
  int g = emu_now->lane / 4, t = emu_now->lane % 4;
  for (int i = 0; i < 4; i++) {
    int row = g + i / 2 * 8, column = 2 * t + i % 2;
    for (int k = 0; k < 16; k++) {
      unsigned x = all[row % 8 * 4 + k % 8 / 2].a[row / 8 + k / 8 * 2] >> (k % 2 * 16);
      unsigned y = all[column * 4 + k % 8 / 2].b[k / 8] >> (k % 2 * 16);
      c[i] += emu_half(kind, x) * emu_half(kind, y);
    }
  }
}

#define MMA_LANES 32
#define MMA_ROWS 2
#define MMA_REGISTERS 4
#define MMA_ROW_XOR(value, bit) SHFL_XOR(value, 1 << (bit))
inline int mma_row(int lane) { return lane / 4; }
inline int mma_column(int lane, int pair) { return 8 * pair + lane % 4 * 2; }
inline bool mma_first_of_row(int lane) { return lane % 4 == 0; }

template <class T>
inline void mma_16x16(T kind, float (&first)[4], float (&second)[4], const unsigned (&a)[4],
                      const unsigned (&b)[4]) {
  mma(kind, first, a, b[0], b[2]);
  mma(kind, second, a, b[1], b[3]);
}

inline void mma(i8, int (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  emu_operands mine = {{a[0], a[1], a[2], a[3]}, {b0, b1}}, all[32];
  memcpy(emu_now->slots[emu_now->lane], &mine, sizeof mine);
  emu_barrier_warp(0xffffffffu);
  for (int l = 0; l < 32; l++) memcpy(&all[l], emu_now->slots[l], sizeof mine);
  emu_barrier_warp(0xffffffffu);
  int g = emu_now->lane / 4, t = emu_now->lane % 4;
  for (int i = 0; i < 4; i++) {
    int row = g + i / 2 * 8, column = 2 * t + i % 2;
    for (int k = 0; k < 32; k++) {
      unsigned x = all[row % 8 * 4 + k % 16 / 4].a[row / 8 + k / 16 * 2] >> (k % 4 * 8);
      unsigned y = all[column * 4 + k % 16 / 4].b[k / 16] >> (k % 4 * 8);
      c[i] += (int)(i8)x * (i8)y;
    }
  }
}

inline unsigned pack_pair(f16, float low, float high) {
  return f32_to_f16(low) | (unsigned)f32_to_f16(high) << 16;
}
inline unsigned pack_pair(bf16, float low, float high) {
  return f32_to_bf16(low) | (unsigned)f32_to_bf16(high) << 16;
}

template <class T>
inline unsigned fma_pair(T kind, unsigned a, unsigned b, unsigned c) {
  return pack_pair(kind, fmaf(emu_half(kind, a), emu_half(kind, b), emu_half(kind, c)),
                   fmaf(emu_half(kind, a >> 16), emu_half(kind, b >> 16), emu_half(kind, c >> 16)));
}

inline float exp2_approx(float x) { return exp2f(x); }

#endif  // HALYARD_TESTS_GPU_EMULATOR_TENSOR_CORE_CUH_
