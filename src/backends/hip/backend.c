// The hip backend: AMD's HIP runtime, bound at run time, under the kernels of src/backends/gpu/.
#define HIP_BACKEND hip
#define HIP_HYGON false
#define HIP_DESCRIPTION "AMD GPUs, with kernels compiled at run time"
#define HIP_DRIVER_TOOL "rocminfo"
#define HIPRTC_REMEDY "install hiprtc of the same ROCm, and set ROCM_PATH where it is not found"
#define RCCL_REMEDY "the package rccl of ROCm"
#define HIPBLASLT_REMEDY "install hipblaslt of the same ROCm, and set ROCM_PATH if it is not found"
#include "backends/hip/backend.inc"
