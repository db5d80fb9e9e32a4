// Elementwise ops that choose or bound: where, masked_fill, clamp, tril and triu, predicates; and
// addcmul and addcdiv, which have three inputs too. T is the type the op computes in; any strides.
//
// types: f32 f64 f16 bf16 i8 i16 i32 i64 u8 b8

#ifdef WIDE  // an input is f64, though T is narrower
typedef f64 M;
#else
typedef traits<T>::math M;
#endif

DEVICE M operand_of(const hy_gpu_walk& w, int k, i64 offset) {
  return operand<T, M>(w.dtype[k], w.data[k], offset);
}

// A NaN on either side wins; where the bounds cross, the upper one does.
DEVICE M clamped(M x, M low, M high, int has) {
  if (is_nan(x)) return x;
  if ((has & 1) && (x < low || is_nan(low))) x = low;
  if ((has & 2) && !is_nan(x) && (x > high || is_nan(high))) x = high;
  return x;
}

DEVICE M add_product(M x, M a, M b, M value, int op) {
#ifdef INTEGER
  return (M)((u64)x + (u64)value * (u64)a * (u64)b);
#else
  return op == OP_addcmul ? x + value * a * b : x + value * a / b;
#endif
}

template <class I>
DEVICE void choose_of(const hy_gpu_elementwise& e, I rows, I columns) {
  const hy_gpu_walk& w = e.walk;
  const bool in_float = traits<T>::is_float;
  M first = in_float ? (M)e.f[0] : (M)e.i[0], second = in_float ? (M)e.f[1] : (M)e.i[1];
  GRID_STRIDE(i, w.n) {
    i64 at[4];
    walk_offsets<4>(w, (I)i, at);
    M result = 0;
    switch (e.op) {
      case OP_where:
        result = load_any<i64>(w.dtype[1], w.data[1], at[1]) ? operand_of(w, 2, at[2])
                                                             : operand_of(w, 3, at[3]);
        break;
      case OP_masked_fill:
        result = load_any<i64>(w.dtype[2], w.data[2], at[2]) ? first : operand_of(w, 1, at[1]);
        break;
      case OP_clamp: result = clamped(operand_of(w, 1, at[1]), first, second, e.attribute); break;
      case OP_addcmul:
      case OP_addcdiv:
        result =
            add_product(operand_of(w, 1, at[1]), operand_of(w, 2, at[2]), operand_of(w, 3, at[3]), first, e.op);
        break;
      case OP_tril:
      case OP_triu: {
        i64 column = (I)i % columns, row = (I)i / columns % rows;
        bool keep = e.op == OP_tril ? column - row <= e.i[0] : column - row >= e.i[0];
        result = keep ? operand_of(w, 1, at[1]) : (M)0;
        break;
      }
      case OP_isnan: result = is_nan(operand_of(w, 1, at[1])); break;
      case OP_isfinite: result = is_finite(operand_of(w, 1, at[1])); break;
      case OP_logical_not: result = operand_of(w, 1, at[1]) == 0; break;
    }
    bool predicate = e.op >= OP_isnan && e.op <= OP_logical_not;
    store_any(w.dtype[0], w.data[0], at[0], predicate ? result : rounded<T>(result));
  }
}

KERNEL void choose(const hy_gpu_elementwise e, i64 rows, i64 columns) {
  if (e.walk.n < 0x80000000ll)
    choose_of<u32>(e, (u32)rows, (u32)columns);
  else
    choose_of<i64>(e, rows, columns);
}
