// Quantised numbers: bytes, 8-bit floats, and pairs of 4-bit integers, which are two in a byte, the
// even index in the low half.
#ifndef HALYARD_BACKENDS_GPU_KERNELS_QUANTIZED_TYPES_CUH_
#define HALYARD_BACKENDS_GPU_KERNELS_QUANTIZED_TYPES_CUH_

struct i4 {
  u8 pair;
};

template <class M, class Q>
DEVICE M quantized_at(const Q* q, i64 i) {
  return to<M>(q[i]);
}
template <class M>
DEVICE M quantized_at(const i4* q, i64 i) {
  int bits = q[i / 2].pair >> (i % 2 * 4) & 15;
  return (M)(bits < 8 ? bits : bits - 16);
}

// The largest magnitude that is stored.
DEVICE f32 limit_of(i8) { return 127; }
DEVICE f32 limit_of(i4) { return 7; }
DEVICE f32 limit_of(f8e4m3) { return 448; }
DEVICE f32 limit_of(f8e5m2) { return 57344; }

// Where row `row` of `step` numbers begins.
template <class Q>
DEVICE const Q* quantized_row(const Q* q, i64 row, i64 step) {
  return q + row * step;
}
DEVICE const i4* quantized_row(const i4* q, i64 row, i64 step) { return q + row * step / 2; }

#endif  // HALYARD_BACKENDS_GPU_KERNELS_QUANTIZED_TYPES_CUH_
