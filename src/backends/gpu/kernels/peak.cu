// Peaks (the roofline): multiply-adds in registers, reads and copies of memory in lines of 16 bytes.
typedef vec<u32, 4> line;

// Chains that do not wait for one another; the result is kept only where it cannot be.
template <class M>
DEVICE void multiply_adds(int steps, M factor, M* never) {
  M x[16];
#pragma unroll
  for (int i = 0; i < 16; i++) x[i] = (M)(threadIdx.x + i);
  for (int s = 0; s < steps; s++) {
#pragma unroll
    for (int i = 0; i < 16; i++) x[i] = x[i] * factor + (M)1;
  }
  M sum = 0;
#pragma unroll
  for (int i = 0; i < 16; i++) sum += x[i];
  if (sum == (M)-1) *never = sum;
}
KERNEL void peak_f32(int steps, f32 factor, f32* never) { multiply_adds(steps, factor, never); }
KERNEL void peak_f64(int steps, f64 factor, f64* never) { multiply_adds(steps, factor, never); }

KERNEL void peak_read(const line* from, i64 lines, u32* never) {
  u32 any = 0;
  GRID_STRIDE(i, lines) {
    line v = from[i];
    any |= v.at[0] ^ v.at[1] ^ v.at[2] ^ v.at[3];
  }
  if (any == 0x9e3779b9u) *never = any;
}

KERNEL void peak_copy(line* to_line, const line* from_line, i64 lines) {
  GRID_STRIDE(i, lines) to_line[i] = from_line[i];
}
