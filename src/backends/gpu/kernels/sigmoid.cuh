// The logistic function, for every kernel that must round as another does.
#ifndef HALYARD_BACKENDS_GPU_KERNELS_SIGMOID_CUH_
#define HALYARD_BACKENDS_GPU_KERNELS_SIGMOID_CUH_

// By the exponential that cannot overflow, so that small results are not lost; in f64 as the reference
// has it.
template <class M>
DEVICE M sigmoid(M x) {
  if (same<M, f64>::value) return 1 / (1 + m_exp(-x));
  M e = m_exp(-m_abs(x)), large = 1 / (1 + e);
  return x < 0 ? e * large : large;
}

#endif  // HALYARD_BACKENDS_GPU_KERNELS_SIGMOID_CUH_
