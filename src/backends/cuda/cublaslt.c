// cuBLASLt, bound at run time, as provider of matrix products (src/backends/gpu/blaslt.c).
#include <stdio.h>

#include "backends/cuda/cuda.h"
#include "backends/gpu/blaslt.h"

// Of cublasLt.h and cublas_api.h, CUDA 12 and 13.
static hy__gpu_blaslt lt = {
    .name = "cuBLASLt",
    .prefix = "cublasLt",
    .dtypes = HY_FLOATS | HY_DTYPE_BIT(HY_I8),
    .compute_f32 = 68,
    .compute_f64 = 70,
    .compute_i32 = 72,
    .as_is = 0,
    .transposed = 1,
    .desc_transpose_a = 3,
    .desc_transpose_b = 4,
    .desc_epilogue = 7,
    .desc_bias = 8,
    .layout_batch = 5,
    .layout_stride = 6,
    .algo_bytes = 64,
};

static hy_status probe(hy_probe* report) {
  void* library = hy__cuda_api.compiler_number >= 13000 ? hy__cuda_open("libcublasLt.so.13") : NULL;
  if (!library) library = hy__cuda_open("libcublasLt.so.12");
  if (!library) {
    snprintf(report->remedy, sizeof report->remedy,
             "install cuBLAS (pip install nvidia-cublas, or the CUDA toolkit); products run on the "
             "backend's own kernels meanwhile");
    return hy__backend_host->fail(HY_UNAVAILABLE, "no libcublasLt.so.13 or .12 was found");
  }
  hy__cuda_path(library, report->library, sizeof report->library);
  report->stage = HY_STAGE_LOADED;
  HY_TRY(hy__gpu_blaslt_bind(&lt, library, report));
  hy__cuda_api.blaslt = &lt;
  report->stage = HY_STAGE_READY;
  return HY_OK;
}

const hy_provider hy__cuda_cublaslt = {
    .size = sizeof(hy_provider),
    .name = "cublaslt",
    .version = HY_VERSION_STRING,
    .probe = probe,
    .supports = hy__gpu_blaslt_supports,
    .run = hy__gpu_blaslt_run,
};
