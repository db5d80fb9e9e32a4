// The cuda backend: NVIDIA's driver, bound at run time, under the kernels of src/backends/gpu/.
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "backends/cuda/cuda.h"
#include "halyard/device.h"
#include "use_providers.h"

static void arch_option(int major, int minor, char* option, size_t size) {
  // The instructions that Hopper has and its successors lack are in a target of their own.
  snprintf(option, size, "--gpu-architecture=sm_%d%d%s", major, minor, major == 9 ? "a" : "");
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
    .least_driver = 12000,
    .capabilities = HY_CAP_FP32 | HY_CAP_FP16 | HY_CAP_BF16 | HY_CAP_FP64 | HY_CAP_FP8 |
                    HY_CAP_INT8 | HY_CAP_INT4 | HY_CAP_SPARSE_2_4 | HY_CAP_FLASH_ATTENTION |
                    HY_CAP_PAGED_ATTENTION | HY_CAP_FUSED_MOE,
    .bind_compiler = hy__cuda_bind_nvrtc,
    .arch_option = arch_option,
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
  return hy__gpu_device_info(&hy__cuda_api, index, info);
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
    .supports_chain = hy__gpu_supports_chain,
    .run_chain = hy__gpu_run_chain,
};

// clang-format off
static const hy_provider* const providers[] = {
    HY_IF_CUBLASLT(&hy__cuda_cublaslt)
    &own,
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
    .device_close = hy__gpu_device_close,
    .device_sync = hy__gpu_device_sync,
    .memory_alloc = hy__gpu_memory_alloc,
    .memory_free = hy__gpu_memory_free,
    .memory_info = hy__gpu_memory_info,
    .host_alloc = hy__gpu_host_alloc,
    .host_free = hy__gpu_host_free,
    .copy = hy__gpu_copy_bytes,
    .set = hy__gpu_set_bytes,
    .stream_create = hy__gpu_stream_create,
    .stream_destroy = hy__gpu_stream_destroy,
    .stream_sync = hy__gpu_stream_sync,
    .stream_query = hy__gpu_stream_query,
    .stream_error = hy__gpu_stream_error,
    .event_create = hy__gpu_event_create,
    .event_destroy = hy__gpu_event_destroy,
    .event_record = hy__gpu_event_record,
    .event_query = hy__gpu_event_query,
    .event_sync = hy__gpu_event_sync,
    .event_elapsed = hy__gpu_event_elapsed,
    .stream_wait_event = hy__gpu_stream_wait_event,
    .stream_native = hy__gpu_stream_native,
    .stream_wrap = hy__gpu_stream_wrap,
    .stream_priority_range = hy__gpu_stream_priority_range,
    .stream_create_with_priority = hy__gpu_stream_create_with_priority,
    .pointer_device = pointer_device,
    .capture_begin = hy__gpu_capture_begin,
    .capture_end = hy__gpu_capture_end,
    .graph_launch = hy__gpu_graph_launch,
    .graph_destroy = hy__gpu_graph_destroy,
    .peer_access = hy__gpu_peer_access,
    .copy_peer = hy__gpu_copy_peer,
    .memory_export = hy__gpu_memory_export,
    .memory_import = hy__gpu_memory_import,
    .memory_close = hy__gpu_memory_close,
    .compile = hy__gpu_user_compile,
    .compile_flags = hy__gpu_compile_flags,
    .module_kernel = hy__gpu_module_kernel,
    .kernel_launch = hy__gpu_kernel_launch,
    .module_destroy = hy__gpu_module_destroy,
    .comm_unique_id = hy__gpu_comm_unique_id,
    .comm_init_rank = hy__gpu_comm_init_rank,
    .comm_destroy = hy__gpu_comm_destroy,
    .comm_abort = hy__gpu_comm_abort,
    .comm_async_error = hy__gpu_comm_async_error,
    .all_reduce = hy__gpu_all_reduce,
    .all_gather = hy__gpu_all_gather,
    .reduce_scatter = hy__gpu_reduce_scatter,
    .broadcast = hy__gpu_broadcast,
    .send = hy__gpu_send,
    .recv = hy__gpu_recv,
    .barrier = hy__gpu_barrier,
    .group_begin = hy__gpu_group_begin,
    .group_end = hy__gpu_group_end,
    .peak = hy__gpu_peak,
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
