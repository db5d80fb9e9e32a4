// echo_npu_compat.h - the names and argument orders of the published sketch of the ECHO NPU, over
// echo_npu_runtime.h. Code written for the sketch compiles against this header as it is.
//
// The sketch is C++ with everything in namespace echo_npu, errors without a message, and matrices
// as M, K, N where the runtime has m, n, k. Operations go to the default stream of the thread's
// device: they have ended after echoNpuDeviceSynchronize or a copy. Enumerators of errors and
// copies are the runtime's; some errors have other numbers than in the sketch, so compare by name.
//
// In C the functions with a short name are there, without a namespace.
#ifndef ECHO_NPU_COMPAT_H
#define ECHO_NPU_COMPAT_H

#include "echo_npu_runtime.h"

#ifdef __cplusplus
#include <string>
#include <vector>
#define ECHO_NPU_COMPAT inline
namespace echo_npu {
#else
#define ECHO_NPU_COMPAT static inline
#endif

typedef echoNpuError EchoNpuError;
typedef echoNpuMemcpyKind EchoNpuMemcpyKind;
// The sketch's error for everything else; the runtime always knows better and never returns it.
#define ECHO_NPU_ERROR_UNKNOWN ((echoNpuError)999)

typedef enum NpuStatus {
  NPU_STATUS_IDLE = ECHO_NPU_STATUS_IDLE,
  NPU_STATUS_BUSY = ECHO_NPU_STATUS_BUSY,
  NPU_STATUS_DONE = ECHO_NPU_STATUS_DONE,
  NPU_STATUS_ERROR = ECHO_NPU_STATUS_ERROR
} NpuStatus;

// What the thread's device says between two jobs.
ECHO_NPU_COMPAT EchoNpuError getStatus(NpuStatus* status) {
  echoNpuDeviceProperties properties;
  int device;
  EchoNpuError error = status ? echoNpuGetDevice(&device) : ECHO_NPU_ERROR_INVALID_VALUE;
  if (!error) error = echoNpuGetDeviceProperties(device, &properties);
  if (!error) *status = (NpuStatus)properties.status;
  return error;
}

// output = input1 + alpha input2
ECHO_NPU_COMPAT EchoNpuError addTensor(float* output, const float* input1, const float* input2,
                                       size_t num_elements, float alpha) {
  return echoNpuAddTensorAlpha(output, input1, input2, alpha, num_elements, NULL);
}

// output [B, M, N] = input1 [B, M, K] input2 [B, K, N]
ECHO_NPU_COMPAT EchoNpuError batchMatMul(float* output, const float* input1, const float* input2,
                                         int64_t B, int64_t M, int64_t K, int64_t N) {
  if (B < 0 || M < 0 || K < 0 || N < 0) return ECHO_NPU_ERROR_INVALID_VALUE;
  return echoNpuBatchMatMul(output, input1, input2, (size_t)B, (size_t)M, (size_t)N, (size_t)K, 0,
                            0, NULL);
}

// output [M, N] = input1 [M, K] input2 [K, N]
ECHO_NPU_COMPAT EchoNpuError matMul(float* output, const float* input1, const float* input2,
                                    int64_t M, int64_t K, int64_t N) {
  if (M < 0 || K < 0 || N < 0) return ECHO_NPU_ERROR_INVALID_VALUE;
  return echoNpuMatMul(output, input1, input2, (size_t)M, (size_t)N, (size_t)K, 0, 0, NULL);
}

// input1 and input2 one after the other along dim; all other dimensions are the same in both.
ECHO_NPU_COMPAT EchoNpuError cat(float* output, const float* input1, const float* input2, int dim,
                                 const int64_t* shape1, const int64_t* shape2,
                                 const int64_t* output_shape, int ndim) {
  size_t outer = 1, inner[2] = {1, 1};
  if (!shape1 || !shape2 || !output_shape || dim < 0 || dim >= ndim)
    return ECHO_NPU_ERROR_INVALID_VALUE;
  for (int i = 0; i < ndim; ++i) {
    const int64_t want = i == dim ? shape1[i] + shape2[i] : shape1[i];
    if (shape1[i] < 0 || shape2[i] < 0 || output_shape[i] != want ||
        (i != dim && shape2[i] != shape1[i]))
      return ECHO_NPU_ERROR_INVALID_VALUE;
    if (i < dim) outer *= (size_t)shape1[i];
    if (i >= dim) inner[0] *= (size_t)shape1[i];
    if (i >= dim) inner[1] *= (size_t)shape2[i];
  }
  const void* inputs[2] = {input1, input2};
  return echoNpuCat(output, inputs, inner, 2, outer, sizeof(float), NULL);
}

// Eight-bit integers: input / scale + zero_point.
ECHO_NPU_COMPAT EchoNpuError quantize(int8_t* output, const float* input, size_t num_elements,
                                      float scale, int8_t zero_point) {
  return echoNpuQuantize(output, input, scale, zero_point, num_elements, NULL);
}

// Makes a backend (cmodel, rtlmodel, fpga, asic) the one that devices are counted in.
ECHO_NPU_COMPAT EchoNpuError setDefaultBackend(const char* name) {
  return echoNpuSetDefaultBackend(name);
}

// The names of the backends that have a device here.
#ifdef __cplusplus
inline std::vector<std::string> listBackends() {
  const char* names[ECHO_NPU_BACKENDS];
  int count = 0;
  if (::echoNpuListBackends(names, &count)) count = 0;
  return std::vector<std::string>(names, names + count);
}

using ::echoNpuDeviceSynchronize;
using ::echoNpuFree;
using ::echoNpuGetDevice;
using ::echoNpuGetDeviceCount;
using ::echoNpuGetErrorString;
using ::echoNpuMalloc;
using ::echoNpuMemcpy;
using ::echoNpuMemset;
using ::echoNpuSetDevice;

inline EchoNpuError setDefaultBackend(const std::string& name) {
  return ::echoNpuSetDefaultBackend(name.c_str());
}
inline EchoNpuError echoNpuAddTensor(float* output, const float* input1, const float* input2,
                                     size_t num_elements, float alpha = 1.0f) {
  return addTensor(output, input1, input2, num_elements, alpha);
}
inline EchoNpuError echoNpuMatMul(float* output, const float* input1, const float* input2,
                                  int64_t M, int64_t K, int64_t N) {
  return matMul(output, input1, input2, M, K, N);
}
inline EchoNpuError echoNpuBatchMatMul(float* output, const float* input1, const float* input2,
                                       int64_t B, int64_t M, int64_t K, int64_t N) {
  return batchMatMul(output, input1, input2, B, M, K, N);
}
inline EchoNpuError echoNpuCat(float* output, const float* input1, const float* input2, int dim,
                               const int64_t* shape1, const int64_t* shape2,
                               const int64_t* output_shape, int ndim) {
  return cat(output, input1, input2, dim, shape1, shape2, output_shape, ndim);
}
inline EchoNpuError echoNpuQuantize(int8_t* output, const float* input, size_t num_elements,
                                    float scale, int8_t zero_point) {
  return quantize(output, input, num_elements, scale, zero_point);
}

}  // namespace echo_npu
#else
ECHO_NPU_COMPAT int listBackends(const char* names[ECHO_NPU_BACKENDS]) {
  int count = 0;
  return echoNpuListBackends(names, &count) ? 0 : count;
}
#endif

#endif  // ECHO_NPU_COMPAT_H
