// Rotary positions: a thread turns a pair of elements, or where halves are in whole vectors of 16
// bytes a vector of them. T is the type of x.
//
// types: f32 f64 f16 bf16

typedef traits<T>::math M;

template <class I>
DEVICE void turn(const hy_gpu_walk& w, i64 out_partner, i64 x_partner, bool inverse) {
  GRID_STRIDE(i, w.n) {
    i64 at[4];
    walk_offsets<4>(w, (I)i, at);
    T* out = (T*)w.data[0] + at[0];
    const T* x = (const T*)w.data[1] + at[1];
    M a = to<M>(x[0]), b = to<M>(x[x_partner]);
    M c = load_any<M>(w.dtype[2], w.data[2], at[2]), s = load_any<M>(w.dtype[3], w.data[3], at[3]);
    if (inverse) s = -s;
    out[0] = from<T>(a * c - b * s);
    out[out_partner] = from<T>(b * c + a * s);
  }
}

// The walk goes over pairs: the output, x, cosine and sine.
KERNEL void rope(const hy_gpu_walk w, i64 out_partner, i64 x_partner, int inverse) {
  if (w.n < 0x80000000ll)
    turn<u32>(w, out_partner, x_partner, inverse);
  else
    turn<i64>(w, out_partner, x_partner, inverse);
}

// The walk goes over vectors of the first half; cosine and sine are f32.
KERNEL void rope_vectors(const hy_gpu_walk w, i64 out_partner, i64 x_partner, int inverse) {
  enum { N = lanes16<T>::n };
  typedef vec<T, N> V;
  GRID_STRIDE(i, w.n) {
    i64 at[4];
    if (w.n < 0x80000000ll)
      walk_offsets<4>(w, (u32)i, at);
    else
      walk_offsets<4>(w, i, at);
    T* out = (T*)w.data[0] + at[0];
    const T* x = (const T*)w.data[1] + at[1];
    V a = *(const V*)x, b = *(const V*)(x + x_partner);
#pragma unroll
    for (int k = 0; k < N; k++) {
      M c = ((const f32*)w.data[2])[at[2] + k], s = ((const f32*)w.data[3])[at[3] + k];
      if (inverse) s = -s;
      M p = to<M>(a.at[k]), q = to<M>(b.at[k]);
      a.at[k] = from<T>(p * c - q * s);
      b.at[k] = from<T>(q * c + p * s);
    }
    *(V*)out = a;
    *(V*)(out + out_partner) = b;
  }
}
