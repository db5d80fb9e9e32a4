// Random numbers, bit for bit those of src/ops/reference/random.c: element i takes word i % 4 of
// Philox block offset + i / 4. A thread makes the four elements of a block. Arithmetic that decides
// bits is in f64, rounded at every step as the host does it.

struct draw {
  int op;
  u64 seed, offset;
  f64 a, b;
};

DEVICE f64 round_to(int dtype, f64 value) {
  switch (dtype) {
    case DT_F32: return (f32)value;
    case DT_F16: return rounded<f16>(value);
    case DT_BF16: return rounded<bf16>(value);
    default: return value;
  }
}

DEVICE f64 uniform(const draw& d, int dtype, u32 w) {
  int precision = dtype == DT_F64 ? 32 : dtype == DT_F32 ? 24 : dtype == DT_F16 ? 11 : 8;
  f64 u = __dmul_rn((f64)(w >> (32 - precision)), 1.0 / (f64)(1ull << precision));
  f64 value = round_to(dtype, __dadd_rn(d.a, __dmul_rn(u, d.b - d.a)));
  return value >= d.b ? d.a : value;
}

// Box and Muller; u and v are exact in f32.
DEVICE f64 normal(const draw& d, bool in_f64, u32 w0, u32 w1, bool second) {
  if (in_f64) {
    f64 u = ((f64)(w0 >> 8) + 1) / 16777216.0, v = (f64)(w1 >> 8) / 16777216.0;
    f64 radius = sqrt(-2 * log(u)), angle = 2 * 3.14159265358979323846 * v;
    return d.a + d.b * radius * (second ? sin(angle) : cos(angle));
  }
  f32 u = ((f32)(w0 >> 8) + 1) / 16777216.0f, v = (f32)(w1 >> 8) / 16777216.0f;
  f32 radius = sqrtf(-2 * logf(u)), turn = second ? sinpif(2 * v) : cospif(2 * v);
  return d.a + d.b * (f64)(radius * turn);
}

DEVICE i64 randint(const draw& d, u32 w) {
  u64 range = (u64)(d.b - d.a);
  return (i64)d.a + (i64)(((u64)w * range) >> 32);
}

DEVICE bool bernoulli(f64 p, u32 w) {
  return (f64)w < p * 4294967296.0;
}

KERNEL void random_fill(const hy_gpu_view out, i64 n, int op, u64 seed, u64 offset, f64 a, f64 b) {
  draw d = {op, seed, offset, a, b};
  GRID_STRIDE(quad, (n + 3) / 4) {
    philox_block block = philox(seed, offset + (u64)quad);
#pragma unroll
    for (int k = 0; k < 4; k++) {
      i64 i = quad * 4 + k;
      if (i >= n) break;
      i64 at = view_offset(out, i);
      u32 w = block.word[k];
      if (op == OP_uniform)
        store_any(out.dtype, out.data, at, uniform(d, out.dtype, w));
      else if (op == OP_normal)
        store_any(out.dtype, out.data, at,
                  normal(d, out.dtype == DT_F64, block.word[k & ~1], block.word[k | 1], k & 1));
      else if (op == OP_randint)
        store_any(out.dtype, out.data, at, randint(d, w));
      else
        store_any(out.dtype, out.data, at, (i64)bernoulli(a, w));
    }
  }
}

// What is dropped is multiplied by 0, so that NaN and infinity show.
KERNEL void dropout(const hy_gpu_view out, const hy_gpu_view mask, const hy_gpu_view x, i64 n,
                    u64 seed, u64 offset, f64 keep, f64 scale) {
  GRID_STRIDE(quad, (n + 3) / 4) {
    philox_block block = philox(seed, offset + (u64)quad);
#pragma unroll
    for (int k = 0; k < 4; k++) {
      i64 i = quad * 4 + k;
      if (i >= n) break;
      bool kept = bernoulli(keep, block.word[k]);
      f64 value = load_any<f64>(x.dtype, x.data, view_offset(x, i));
      store_any(out.dtype, out.data, view_offset(out, i), value * (kept ? scale : 0.0));
      ((u8*)mask.data)[view_offset(mask, i)] = kept;
    }
  }
}
