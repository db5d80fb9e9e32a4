// What the files of the cuda backend share.
#ifndef HALYARD_BACKENDS_CUDA_CUDA_H_
#define HALYARD_BACKENDS_CUDA_CUDA_H_

#include "backends/gpu/gpu.h"

extern hy__gpu_api hy__cuda_api;

// Loads a library of the CUDA toolkit by its soname from wherever it may be, or gives NULL; and
// the file that a loaded library came from.
void* hy__cuda_open(const char* soname);
void hy__cuda_path(void* library, char* path, size_t size);

hy_status hy__cuda_bind_nvrtc(hy__gpu_api* api, hy_probe* report);

// What NVML knows of the device at this moment, added to its description; nothing without NVML.
void hy__cuda_add_nvml(hy_device_info* info);

extern const hy_provider hy__cuda_cublaslt, hy__cuda_cudnn, hy__cuda_cusparselt, hy__cuda_mha,
    hy__cuda_triton;

#endif  // HALYARD_BACKENDS_CUDA_CUDA_H_
