// One step of an optimizer, in the type of computation throughout; the parameter moves by the state
// before that is rounded to its type. T is f32, or f64 for parameters of f64.
//
// types: f32 f64
// options: -DT=f32 -DPARAM=bf16 -DSTATE=bf16 -DGRAD=bf16
// options: -DT=f32 -DPARAM=bf16 -DSTATE=f32 -DGRAD=bf16

typedef T M;
#ifndef PARAM
#define PARAM T
#define STATE T
#define GRAD T
#endif

struct adamw_step {
  M beta1, beta2, rest1, rest2, decay, step_size, eps, root_correction;
  bool maximize;
  __device__ __forceinline__ adamw_step(const hy_gpu_adamw& a)
      : beta1((M)a.beta1), beta2((M)a.beta2), rest1((M)(1 - a.beta1)), rest2((M)(1 - a.beta2)),
        decay((M)(1 - a.lr * a.weight_decay)), step_size((M)a.step_size), eps((M)a.eps),
        root_correction((M)a.root_correction), maximize(a.maximize) {}
  __device__ __forceinline__ void take(M& param, M& m, M& v, M g) const {
    if (maximize) g = -g;
    m = beta1 * m + rest1 * g;
    v = beta2 * v + rest2 * g * g;
    param = param * decay - step_size * m / (m_sqrt(v) / root_correction + eps);
  }
};

// The walk: new_param, new_m, new_v, param, m, v, grad.
KERNEL void adamw(const hy_gpu_walk w, const hy_gpu_adamw a) {
  const adamw_step step(a);
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
    step.take(param, m, v, g);
    store_any(w.dtype[0], w.data[0], at[0], param);
    store_any(w.dtype[1], w.data[1], at[1], m);
    store_any(w.dtype[2], w.data[2], at[2], v);
  }
}

// As many neighbours as are 16 bytes of the smallest type, in lines of 16 bytes.
enum { SMALLEST = sizeof(PARAM) < sizeof(GRAD) ? sizeof(PARAM) : sizeof(GRAD) };
enum { EACH = 16 / (SMALLEST < sizeof(STATE) ? (int)SMALLEST : (int)sizeof(STATE)) };
template <class A>
struct neighbours {
  enum { N = lanes16<A>::n };
  vec<A, N> line[EACH / N];
  __device__ __forceinline__ void load(const void* all, i64 i) {
#pragma unroll
    for (int l = 0; l < EACH / N; l++) line[l] = ((const vec<A, N>*)all)[i * (EACH / N) + l];
  }
  __device__ __forceinline__ void store(void* all, i64 i) const {
#pragma unroll
    for (int l = 0; l < EACH / N; l++) ((vec<A, N>*)all)[i * (EACH / N) + l] = line[l];
  }
  __device__ __forceinline__ A& at(int e) { return line[e / N].at[e % N]; }
};

// The same of contiguous tensors in vectors, whose types are PARAM, STATE and GRAD.
KERNEL void adamw_vectors(const hy_gpu_walk w, const hy_gpu_adamw a) {
  const adamw_step step(a);
  GRID_STRIDE(i, w.n / EACH) {
    neighbours<PARAM> params;
    neighbours<STATE> ms, vs;
    neighbours<GRAD> grads;
    params.load(w.data[3], i);
    ms.load(w.data[4], i);
    vs.load(w.data[5], i);
    grads.load(w.data[6], i);
#pragma unroll
    for (int e = 0; e < EACH; e++) {
      M param = to<M>(params.at(e)), m = to<M>(ms.at(e)), v = to<M>(vs.at(e));
      step.take(param, m, v, to<M>(grads.at(e)));
      params.at(e) = from<PARAM>(param);
      ms.at(e) = from<STATE>(m);
      vs.at(e) = from<STATE>(v);
    }
    params.store(w.data[0], i);
    ms.store(w.data[1], i);
    vs.store(w.data[2], i);
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
