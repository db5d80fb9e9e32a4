// A vendor's BLASLt library (cuBLASLt, hipBLASLt), bound at run time, as provider of matrix
// products: what a backend says of its own, and the provider's functions.
#ifndef HALYARD_BACKENDS_GPU_BLASLT_H_
#define HALYARD_BACKENDS_GPU_BLASLT_H_

#include "backends/gpu/gpu.h"

struct hy__gpu_blaslt {
  const char* name;    // "cuBLASLt"
  const char* prefix;  // of its functions, "cublasLt"
  uint32_t dtypes;     // whose products it has, HY_DTYPE_BIT
  // A handle is of one stream, or of one graph: it must not be in use on two at once.
  bool handle_per_stream;
  size_t handle_bytes;  // device memory that must be free before a handle is made
  // Its enumerators. Those that both libraries agree on are in blaslt.c.
  int compute_f32, compute_f64, compute_i32;
  int as_is, transposed;
  int desc_transpose_a, desc_transpose_b, desc_epilogue, desc_bias;
  int desc_bias_type;  // 0: not set, a bias has the output's type
  int layout_batch, layout_stride;
  size_t algo_bytes;  // of its struct for an algorithm

#define HY_BLASLT(field, suffix, parameters) int(*field) parameters;
#include "backends/gpu/blaslt.def"
};

// Binds the functions; the message of a failure names the one that is missing.
hy_status hy__gpu_blaslt_bind(hy__gpu_blaslt* lt, void* library, hy_probe* report);
// A handle for the current device.
hy_status hy__gpu_blaslt_open(const hy__gpu_api* api, const hy__gpu_blaslt* lt, void** handle);

// The provider's, where the backend's api has its library.
hy_support hy__gpu_blaslt_supports(void* device, const hy_call* call);
hy_status hy__gpu_blaslt_run(void* device, void* stream, const hy_call* call);

#endif  // HALYARD_BACKENDS_GPU_BLASLT_H_
