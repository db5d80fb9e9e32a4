// The cuda backend: NVIDIA's driver, bound at run time, under the kernels of src/backends/gpu/.
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "backends/cuda/cuda.h"
#include "halyard/device.h"
#include "use_providers.h"

static void ahead_option(int major, int minor, char* option, size_t size) {
  // The instructions that Hopper has and its successors lack are in a target of their own.
  snprintf(option, size, "--gpu-architecture=sm_%d%d%s", major, minor, major == 9 ? "a" : "");
}

static void arch_option(const hy__gpu_api* api, int index, char* option, size_t size) {
  enum { MAJOR = 75, MINOR = 76 };  // attributes
  int major = 0, minor = 0;
  api->driver.device_attribute(&major, MAJOR, index);
  api->driver.device_attribute(&minor, MINOR, index);
  ahead_option(major, minor, option, size);
}

static void* open_nccl(char* path, size_t size) {
  void* library = hy__cuda_open("libnccl.so.2");
  if (library) hy__cuda_path(library, path, size);
  return library;
}

hy__gpu_api hy__cuda_api = {
    .name = "cuda",
    .compiler_name = "NVRTC",
    .visible_variable = "CUDA_VISIBLE_DEVICES",
    .driver_tool = "nvidia-smi",
    .least_driver = 12000,
    .capabilities = HY_CAP_FP32 | HY_CAP_FP16 | HY_CAP_BF16 | HY_CAP_FP64 | HY_CAP_FP8 |
                    HY_CAP_INT8 | HY_CAP_INT4 | HY_CAP_SPARSE_2_4 | HY_CAP_FLASH_ATTENTION |
                    HY_CAP_PAGED_ATTENTION | HY_CAP_FUSED_MOE,
    .bind_compiler = hy__cuda_bind_nvrtc,
    .arch_option = arch_option,
    .parallel_option = "--split-compile=0",
    .ahead_compiler = "nvcc",
    .ahead_option = ahead_option,
    .nccl_name = "NCCL",
    .nccl_remedy = "pip install nvidia-nccl-cu13, or NVIDIA's packages",
    .open_nccl = open_nccl,
};

// Whether the PCI bus shows a device of NVIDIA's. In a container or a virtual machine it may not
// show one that is there.
static bool on_the_bus(void) {
  hy_hardware list[64];
  int n = hy_list_hardware(list, 64);
  for (int i = 0; i < n && i < 64; i++)
    if (list[i].vendor_id == 0x10de) return true;
  return false;
}

static hy_status bind_driver(hy_probe* report) {
  void* library = NULL;
  bool here = on_the_bus();
  if (here) report->stage = HY_STAGE_FOUND;
  if (hy__backend_host->open_library("libcuda.so.1", "/usr/lib/wsl/lib /usr/local/nvidia/lib64",
                                     report, &library) != HY_OK) {
    char reason[320];
    snprintf(reason, sizeof reason, "%.300s", hy__backend_host->last_error());
    snprintf(report->remedy, sizeof report->remedy,
             "%sinstall the NVIDIA driver, which brings "
             "libcuda.so.1",
             here ? "" : "on a machine with an NVIDIA GPU, ");
    report->reason[0] = 0;  // the library's own words are part of ours
    return hy__backend_host->fail(HY_UNAVAILABLE, "%s NVIDIA GPU is on the PCI bus, %s %s",
                                  here ? "an" : "no", here ? "but" : "and", reason);
  }
#define HY_CUDA_DRIVER(field, symbol)                                                           \
  *(void**)&hy__cuda_api.driver.field = dlsym(library, symbol);                                 \
  if (!hy__cuda_api.driver.field) {                                                             \
    snprintf(report->remedy, sizeof report->remedy, "install a newer driver");                  \
    return hy__backend_host->fail(HY_UNAVAILABLE, "%.200s has no %s", report->library, symbol); \
  }
#define HY_CUDA_OPTIONAL(field, symbol) \
  *(void**)&hy__cuda_api.driver.field = dlsym(library, symbol);
#include "backends/cuda/cuda.def"
  report->stage = HY_STAGE_SYMBOLS;
  return HY_OK;
}

static hy_status probe(hy_probe* report, int* device_count) {
  *device_count = 0;
  HY_TRY(bind_driver(report));
  return hy__gpu_probe(&hy__cuda_api, report, device_count);
}

static hy_status device_info(int index, hy_device_info* info) {
  HY_TRY(hy__gpu_device_info(&hy__cuda_api, index, info));
  hy__cuda_add_nvml(info);
  return HY_OK;
}

static hy_status device_open(int index, void** device) {
  return hy__gpu_device_open(&hy__cuda_api, index, device);
}

static hy_status pointer_device(const void* address, int32_t* index) {
  return hy__gpu_pointer_device(&hy__cuda_api, address, index);
}

static hy_provider own = {
    .size = sizeof(hy_provider),
    .name = "cuda",
    .version = HY_VERSION_STRING,
    .declares = hy__gpu_declarations,
    .supports = hy__gpu_supports,
    .run = hy__gpu_run,
};

// clang-format off
static const hy_provider* const providers[] = {
    HY_IF_CUBLASLT(&hy__cuda_cublaslt)
    HY_IF_CUDNN(&hy__cuda_cudnn)
    HY_IF_CUSPARSELT(&hy__cuda_cusparselt)
    HY_IF_MHA(&hy__cuda_mha)
    &own,
    HY_IF_TRITON(&hy__cuda_triton)
};
// clang-format on

static const hy_backend backend = {
    .size = sizeof(hy_backend),
    .abi = HY_ABI_VERSION,
    .name = "cuda",
    .version = HY_VERSION_STRING,
    .description = "NVIDIA GPUs, with kernels compiled at run time",
    .probe = probe,
    .device_info = device_info,
    .device_open = device_open,
    .pointer_device = pointer_device,
    HY__GPU_BACKEND_SLOTS,
    .providers = providers,
    .n_providers = (int)(sizeof providers / sizeof providers[0]),
};

hy_status hy__backend_cuda(uint32_t max_abi, const hy_host* services, const hy_backend** out);
hy_status hy__backend_cuda(uint32_t max_abi, const hy_host* services, const hy_backend** out) {
  (void)max_abi;
  hy__backend_host = services;
  own.n_declares = hy__gpu_n_declarations;
  *out = &backend;
  return HY_OK;
}
