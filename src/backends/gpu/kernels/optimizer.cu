// One step of an optimizer, in the type of computation throughout; the parameter moves by the state
// before that is rounded to its type. T is f32, or f64 for parameters of f64.
//
// types: f32 f64

typedef T M;

// The walk: new_param, new_m, new_v, param, m, v, grad.
KERNEL void adamw(const hy_gpu_walk w, const hy_gpu_adamw a) {
  M beta1 = (M)a.beta1, beta2 = (M)a.beta2, rest1 = (M)(1 - a.beta1), rest2 = (M)(1 - a.beta2);
  M decay = (M)(1 - a.lr * a.weight_decay), step_size = (M)a.step_size, eps = (M)a.eps;
  M root_correction = (M)a.root_correction;
  GRID_STRIDE(i, w.n) {
    i64 at[7];
    if (w.ndim == 1) {
#pragma unroll
      for (int k = 0; k < 7; k++) at[k] = i * w.stride[k][0];
    } else {
      walk_offsets<7>(w, i, at);
    }
    M param = load_any<M>(w.dtype[3], w.data[3], at[3]), m = load_any<M>(w.dtype[4], w.data[4], at[4]);
    M v = load_any<M>(w.dtype[5], w.data[5], at[5]), g = load_any<M>(w.dtype[6], w.data[6], at[6]);
    if (a.maximize) g = -g;
    m = beta1 * m + rest1 * g;
    v = beta2 * v + rest2 * g * g;
    param = param * decay - step_size * m / (m_sqrt(v) / root_correction + eps);
    store_any(w.dtype[0], w.data[0], at[0], param);
    store_any(w.dtype[1], w.data[1], at[1], m);
    store_any(w.dtype[2], w.data[2], at[2], v);
  }
}

// The walk: new_param, new_velocity, param, velocity, grad; the velocities may have no data.
KERNEL void sgd(const hy_gpu_walk w, const hy_gpu_sgd a) {
  GRID_STRIDE(i, w.n) {
    i64 at[5];
    walk_offsets<5>(w, i, at);
    M param = load_any<M>(w.dtype[2], w.data[2], at[2]), g = load_any<M>(w.dtype[4], w.data[4], at[4]);
    M velocity = w.data[3] ? load_any<M>(w.dtype[3], w.data[3], at[3]) : (M)0;
    M slope = a.maximize ? -g : g;
    if (a.weight_decay != 0) slope += (M)a.weight_decay * param;
    if (a.momentum != 0) {
      velocity = a.first ? slope : (M)a.momentum * velocity + (M)(1 - a.dampening) * slope;
      slope = a.nesterov ? slope + (M)a.momentum * velocity : velocity;
    }
    store_any(w.dtype[0], w.data[0], at[0], param - (M)a.lr * slope);
    if (w.data[1]) store_any(w.dtype[1], w.data[1], at[1], velocity);
  }
}
