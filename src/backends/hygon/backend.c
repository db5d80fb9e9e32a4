// The hygon backend: Hygon's DCUs through DTK, whose runtime has HIP's functions.
#define HIP_BACKEND hygon
#define HIP_HYGON true
#define HIP_DESCRIPTION "Hygon DCUs, with kernels compiled at run time"
#define HIP_DRIVER_TOOL "hy-smi"
#define HIPRTC_REMEDY "install hiprtc of the same DTK, and source its env.sh"
#define RCCL_REMEDY "librccl.so of DTK"
#define HIPBLASLT_REMEDY "install hipblaslt of the same DTK, and source its env.sh"
#include "backends/hip/backend.inc"
