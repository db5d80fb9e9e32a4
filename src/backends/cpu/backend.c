// The cpu backend: the host itself as a device. Always there; its kernels of last resort are the
// library's reference, so that it runs every op.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/common/host.h"
#include "backends/common/smoke_test.h"
#include "backends/cpu/host_info.h"
#include "backends/cpu/peak.h"
#include "backends/cpu/provider.h"
#include "backends/cpu/runtime/huge_pages.h"
#include "backends/cpu/runtime/isa.h"
#include "backends/cpu/runtime/scratch.h"
#include "backends/cpu/runtime/thread_pool.h"
#include "base/env.h"
#include "use_providers.h"

static const hy_backend backend;

static hy_status read_threads(int* n);

static hy_status probe(hy_probe* report, int* device_count) {
  int unused;
  report->stage = HY_STAGE_DEVICES;
  *device_count = 1;
  HY_TRY(hy__cpu_isa_check());
  HY_TRY(read_threads(&unused));
  return hy__smoke_test(&backend, 0, report);
}

// The instruction sets in use, by name, a space between.
static void name_isa(char* text, size_t size) {
  uint32_t isa = hy__cpu_isa();
  size_t length = 0;
  text[0] = 0;
#define AS_NAME(name, bit, word)             \
  if (isa & HY__ISA_##name && length < size) \
    length += (size_t)snprintf(text + length, size - length, "%s%s", length ? " " : "", word);
  HY__ISA_MAP(AS_NAME)
#undef AS_NAME
}

static hy_status device_info(int index, hy_device_info* info) {
  if (index != 0)
    return hy__backend_host->fail(HY_NOT_FOUND, "cpu: there is no device %d, only 0", index);
  hy__cpu_host h;
  hy__cpu_read_host("", &h);
  snprintf(info->name, sizeof info->name, "%s", h.model);
  snprintf(info->driver_version, sizeof info->driver_version, "%s", h.kernel);
  char features[160];
  name_isa(features, sizeof features);
  // A tile has 64 bytes along k, and half of them would be idle with groups of 32.
  const char* group = hy__cpu_isa() & HY__ISA_AMX_INT8 ? "activation_group=64\n" : "";
  snprintf(info->properties, sizeof info->properties, "features=%s\ncaches=%s\n%s", features,
           h.caches, group);
  info->memory_total = h.memory_total;
  info->memory_free = h.memory_free;
  info->core_count = h.cores;
  // What the reference computes; the 8-bit and 4-bit types are those of quantised weights.
  info->dtypes = HY_ALL_DTYPES | HY_FLOAT8S | HY_DTYPE_BIT(HY_I4);
  info->capabilities = HY_CAP_FP32 | HY_CAP_FP64 | HY_CAP_FP16 | HY_CAP_BF16 | HY_CAP_FP8 |
                       HY_CAP_INT8 | HY_CAP_INT4 | HY_CAP_SPARSE_2_4 | HY_CAP_FLASH_ATTENTION |
                       HY_CAP_PAGED_ATTENTION | HY_CAP_FUSED_MOE;
  return HY_OK;
}

static hy_status set_threads(void* device, int32_t n) {
  (void)device;
  if (n < 1 || n > HY__MAX_THREADS)
    return hy__backend_host->fail(
        HY_INVALID_ARGUMENT, "cpu: %d threads; give a number from 1 to %d", n, HY__MAX_THREADS);
  hy__pool_set_threads(n);
  return HY_OK;
}

static hy_status threads(void* device, int32_t* n) {
  (void)device;
  *n = hy__pool_threads();
  return HY_OK;
}

// HALYARD_THREADS; where it is not set, the cores that affinity and control groups leave us.
static hy_status read_threads(int* n) {
  const char* text = hy__env("HALYARD_THREADS");
  if (!text) {
    *n = hy__cpu_usable_cores("");
    return HY_OK;
  }
  char* end;
  errno = 0;
  long value = strtol(text, &end, 10);
  if (errno || end == text || *end || value < 1 || value > HY__MAX_THREADS)
    return hy__backend_host->fail(HY_INVALID_ARGUMENT,
                                  "HALYARD_THREADS is \"%s\"; give a number from 1 to %d", text,
                                  HY__MAX_THREADS);
  *n = (int)value;
  return HY_OK;
}

static hy_status device_open(int index, void** device) {
  static char the_device;
  if (index != 0)
    return hy__backend_host->fail(HY_NOT_FOUND, "cpu: there is no device %d, only 0", index);
  int n;
  HY_TRY(read_threads(&n));
  hy__pool_set_threads(n);
  *device = &the_device;
  return HY_OK;
}

// The pool's threads, and with them their scratch; the caller's scratch too. Other threads of the
// program keep theirs until they end.
static void device_close(void* device) {
  (void)device;
  hy__pool_stop();
  hy__scratch_release();
}

static hy_status memory_alloc(void* device, size_t bytes, void** address) {
  (void)device;
  *address = hy__page_alloc(bytes);
  if (!*address)
    return hy__backend_host->fail(HY_OUT_OF_MEMORY, "cpu: the system has no %zu bytes left", bytes);
  return HY_OK;
}

static void memory_free(void* device, void* address) {
  (void)device;
  free(address);
}

static hy_status memory_info(void* device, uint64_t* free_bytes, uint64_t* total_bytes) {
  (void)device;
  hy__cpu_read_memory("", total_bytes, free_bytes);
  return HY_OK;
}

static hy_status copy(void* device, void* stream, void* dst, const void* src, size_t bytes,
                      hy_copy_kind kind) {
  (void)device;
  (void)stream;
  (void)kind;
  memmove(dst, src, bytes);
  return HY_OK;
}

static hy_status set(void* device, void* stream, void* dst, int value, size_t bytes) {
  (void)device;
  (void)stream;
  memset(dst, value, bytes);
  return HY_OK;
}

// In the order in which they are asked, less what USE_<PROVIDER>=OFF leaves out.
// clang-format off
static const hy_provider* const providers[] = {
    HY_IF_XEON(&hy__cpu_avx512)
    HY_IF_NATIVE(&hy__cpu_native)
    HY_IF_OPENBLAS(&hy__cpu_openblas)
    HY_IF_MKL(&hy__cpu_mkl)
    HY_IF_MKLDNN(&hy__cpu_mkldnn)
    HY_IF_OPENMP(&hy__cpu_openmp)
    HY_IF_NNPACK(&hy__cpu_nnpack)
    HY_IF_XEON(&hy__cpu_xeon)
    &hy__cpu_reference_mt,
};
// clang-format on

static const hy_backend backend = {
    .size = sizeof(hy_backend),
    .abi = HY_ABI_VERSION,
    .flags = HY_BACKEND_HOST_MEMORY,
    .name = "cpu",
    .version = HY_VERSION_STRING,
    .description = "the host's processor",
    .probe = probe,
    .device_info = device_info,
    .device_open = device_open,
    .device_close = device_close,
    .memory_alloc = memory_alloc,
    .memory_free = memory_free,
    .memory_info = memory_info,
    .copy = copy,
    .set = set,
    .providers = providers,
    .n_providers = (int)(sizeof providers / sizeof providers[0]),
    .set_threads = set_threads,
    .threads = threads,
    .peak = hy__cpu_peak,
};

hy_status hy__backend_cpu(uint32_t max_abi, const hy_host* services, const hy_backend** out);
hy_status hy__backend_cpu(uint32_t max_abi, const hy_host* services, const hy_backend** out) {
  (void)max_abi;
  hy__backend_host = services;
  *out = &backend;
  return HY_OK;
}
