// Rotary positions: a thread turns a pair of elements. T is the type of x.
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
