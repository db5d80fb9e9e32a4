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

enum { N = lanes16<T>::n };
typedef vec<T, N> V;

// N angles from element `at` on, which are f32 or of x's type.
DEVICE void read_angles(M (&to_angles)[N], int dtype, const void* angles, i64 at) {
  enum { WIDE = N < 4 ? N : 4 };
  if (dtype == DT_F32) {
#pragma unroll
    for (int k = 0; k < N; k += WIDE) {
      const vec<f32, WIDE> some = *(const vec<f32, WIDE>*)((const f32*)angles + at + k);
#pragma unroll
      for (int e = 0; e < WIDE; e++) to_angles[k + e] = some.at[e];
    }
  } else {
    const V all = *(const V*)((const T*)angles + at);
#pragma unroll
    for (int k = 0; k < N; k++) to_angles[k] = to<M>(all.at[k]);
  }
}

// The walk goes over vectors of the first half.
KERNEL void rope_vectors(const hy_gpu_walk w, i64 out_partner, i64 x_partner, int inverse) {
  GRID_STRIDE(i, w.n) {
    i64 at[4];
    if (w.n < 0x80000000ll)
      walk_offsets<4>(w, (u32)i, at);
    else
      walk_offsets<4>(w, i, at);
    T* out = (T*)w.data[0] + at[0];
    const T* x = (const T*)w.data[1] + at[1];
    V a = *(const V*)x, b = *(const V*)(x + x_partner);
    M cosine[N], sine[N];
    read_angles(cosine, w.dtype[2], w.data[2], at[2]);
    read_angles(sine, w.dtype[3], w.data[3], at[3]);
#pragma unroll
    for (int k = 0; k < N; k++) {
      M c = cosine[k], s = inverse ? -sine[k] : sine[k];
      M p = to<M>(a.at[k]), q = to<M>(b.at[k]);
      a.at[k] = from<T>(p * c - q * s);
      b.at[k] = from<T>(q * c + p * s);
    }
    *(V*)out = a;
    *(V*)(out + out_partner) = b;
  }
}
