// The ascend backend: Huawei's NPUs through CANN, bound at run time. Written against the published
// interface and tested with the libraries of tests/vendors/ascend; never run on the chip.
#include <stdio.h>
#include <string.h>

#include "backends/ascend/ascend.h"
#include "backends/common/collectives.h"
#include "backends/common/smoke_test.h"
#include "halyard/device.h"

enum { REPEATED_INIT = 100002, MAX_DEVICES = 64 };

static int n_devices, device_map[MAX_DEVICES];
static hy_backend backend;

static bool on_the_bus(void) {
  hy_hardware list[64];
  int n = hy_list_hardware(list, 64);
  for (int i = 0; i < n && i < 64; i++)
    if (list[i].vendor_id == 0x19e5) return true;
  return false;
}

// Loads the libraries, or says in one sentence what is there and what is not.
static hy_status bind(hy_probe* report) {
  bool here = on_the_bus();
  if (here) report->stage = HY_STAGE_FOUND;
  hy_status status = hy__ascend_bind(report);
  if (status == HY_OK) return HY_OK;
  char reason[320];
  snprintf(reason, sizeof reason, "%.300s", hy__backend_host->last_error());
  snprintf(report->remedy, sizeof report->remedy,
           "%sinstall the Ascend driver and CANN, and source its set_env.sh",
           here ? "" : "on a machine with a Huawei Ascend NPU, ");
  report->reason[0] = 0;
  return hy__backend_host->fail(status, "%s Huawei Ascend NPU is on the PCI bus, %s %s",
                                here ? "a" : "no", here ? "but" : "and", reason);
}

static hy_status start(void) {
  int error = hy__acl.aclInit(NULL);
  return error && error != REPEATED_INIT ? hy__ascend_fail(error, "aclInit") : HY_OK;
}

// ASCEND_RT_VISIBLE_DEVICES is the runtime's own; ASCEND_DEVICE_ID names one of what it leaves.
static hy_status find_devices(void) {
  uint32_t count = 0;
  int error = hy__acl.aclrtGetDeviceCount(&count);
  if (error) return hy__ascend_fail(error, "counting devices");
  if (count > MAX_DEVICES) count = MAX_DEVICES;
  return hy__backend_host->visible_devices("ASCEND_DEVICE_ID", (int)count, device_map, &n_devices);
}

static hy_status probe(hy_probe* report, int* device_count) {
  int32_t version[3];
  *device_count = n_devices = 0;
  HY_TRY(bind(report));
  snprintf(report->remedy, sizeof report->remedy, "look at npu-smi info");
  HY_TRY(start());
  int error = hy__acl.aclrtGetVersion(&version[0], &version[1], &version[2]);
  if (error) return hy__ascend_fail(error, "asking AscendCL for its version");
  report->stage = HY_STAGE_VERSION;
  HY_TRY(find_devices());
  if (n_devices == 0)
    return hy__backend_host->fail(HY_UNAVAILABLE, "ascend: AscendCL shows no device");
  report->stage = HY_STAGE_DEVICES;
  HY_TRY(hy__smoke_test(&backend, 0, report));
  report->remedy[0] = 0;
  *device_count = n_devices;
  return HY_OK;
}

static uint32_t capabilities(const hy__ascend_chip* chip) {
  uint32_t all = HY_CAP_FP16;
  if (chip->fp32_products)
    all |= HY_CAP_FP32 | HY_CAP_INT4 | HY_CAP_FLASH_ATTENTION | HY_CAP_PAGED_ATTENTION;
  if (chip->bf16) all |= HY_CAP_BF16;
  return all;
}

static hy_status device_info(int index, hy_device_info* info) {
  const char* soc = hy__acl.aclrtGetSocName();
  const hy__ascend_chip* chip = hy__ascend_chip_of(soc);
  int32_t version[3] = {0};
  size_t free_bytes = 0, total = 0;
  hy__vendor_device device = {&hy__ascend_vendor, device_map[index]};
  HY__VENDOR_CALL(&device, "the size of memory",
                  hy__ascend_vendor.memory_info(&free_bytes, &total));
  hy__acl.aclrtGetVersion(&version[0], &version[1], &version[2]);
  snprintf(info->name, sizeof info->name, "%s (%s)", soc ? soc : "Ascend", chip->series);
  info->memory_free = free_bytes;
  info->memory_total = total;
  info->capabilities = capabilities(chip);
  info->dtypes = HY_DTYPE_BIT(HY_F32) | HY_DTYPE_BIT(HY_F16) | HY_INTS | HY_BOOLS |
                 (chip->bf16 ? HY_DTYPE_BIT(HY_BF16) : 0);
  snprintf(info->sdk_version, sizeof info->sdk_version, "AscendCL %d.%d.%d", version[0], version[1],
           version[2]);
  snprintf(info->properties, sizeof info->properties, "soc=%s\n" HY__CCL_PROPERTY "%s",
           soc ? soc : "", hy__ascend_packs_weights(chip) ? "linear_weights=fractal_nz\n" : "");
  return HY_OK;
}

static hy_status device_open(int index, void** device) {
  return hy__ascend_device_open(device_map[index], device);
}

static const hy_provider* const providers[] = {&hy__ascend_provider};

static hy_backend backend = {
    .size = sizeof(hy_backend),
    .abi = HY_ABI_VERSION,
    .name = "ascend",
    .version = HY_VERSION_STRING,
    .description = "Huawei Ascend NPUs, through CANN's aclnn ops",
    .probe = probe,
    .device_info = device_info,
    .device_open = device_open,
    .device_close = hy__ascend_device_close,
    .stream_create = hy__ascend_stream_create,
    .stream_destroy = hy__ascend_stream_destroy,
    HY__VENDOR_SLOTS,
    HY__CCL_SLOTS,
    .providers = providers,
    .n_providers = 1,
};

hy_status hy__backend_ascend(uint32_t max_abi, const hy_host* services, const hy_backend** out);
hy_status hy__backend_ascend(uint32_t max_abi, const hy_host* services, const hy_backend** out) {
  (void)max_abi;
  hy__backend_host = services;
  // The table is read once, now: what it holds depends on what is installed. Failures are the
  // probe's to tell.
  hy_probe quiet = {.size = sizeof quiet};
  if (hy__ascend_bind(&quiet) == HY_OK && start() == HY_OK)
    hy__ascend_declare(hy__ascend_chip_of(hy__acl.aclrtGetSocName()));
  // Older releases cannot capture: the library then replays calls one by one.
  if (!hy__acl.aclmdlRICaptureBegin || !hy__acl.aclmdlRICaptureEnd ||
      !hy__acl.aclmdlRIExecuteAsync || !hy__acl.aclmdlRIDestroy) {
    backend.capture_begin = NULL;
    backend.capture_end = NULL;
    backend.graph_launch = NULL;
    backend.graph_destroy = NULL;
  }
  *out = &backend;
  return HY_OK;
}
