// halyard info: devices, capabilities, and for each missing backend the reason and the remedy.
#include <string.h>

#include "base/json_write.h"
#include "cli/cli.h"

static int run(int argc, char** argv);
const cli_command cli_info = {"info", "",
                              "Show devices and capabilities, and why a backend is missing",
                              "halyard info --json", run};

static const char* state_name(hy_backend_state state) {
  switch (state) {
    case HY_BACKEND_AVAILABLE: return "available";
    case HY_BACKEND_MISSING: return "missing";
    case HY_BACKEND_FAILED: return "failed";
  }
  return "?";
}

static const char* stage_name(hy_stage stage) {
  switch (stage) {
#define HY_AS_CASE(name, value, key, text) \
  case HY_STAGE_##name: return key;
    HY_STAGE_MAP(HY_AS_CASE)
#undef HY_AS_CASE
  }
  return "?";
}

typedef struct capability {
  const char* name;
  uint32_t bit;
} capability;
static const capability capabilities[] = {
#define HY_AS_ROW(name, bit, key) {key, HY_CAP_##name},
    HY_CAPABILITY_MAP(HY_AS_ROW)
#undef HY_AS_ROW
};
#define N_CAPABILITIES ((int)(sizeof capabilities / sizeof capabilities[0]))

// The default device's name, or NULL where it cannot be had and hy_last_error says why.
static const char* default_selector(void) {
  hy_device* device;
  return hy_device_get(NULL, &device) == HY_OK ? hy_device_selector(device) : NULL;
}

// ---- for machines ----

static void write_device(json_writer* j, const char* backend, int index) {
  hy_device_info info;
  if (hy_backend_device_info(backend, index, &info) != HY_OK) return;
  json_begin_object(j, NULL);
  json_int(j, "id", index);
  json_text(j, "name", info.name);
  json_uint(j, "memory_total", info.memory_total);
  json_uint(j, "memory_free", info.memory_free);
  json_int(j, "cores", info.core_count);
  json_int(j, "compute_major", info.compute_major);
  json_int(j, "compute_minor", info.compute_minor);
  json_text(j, "driver_version", info.driver_version);
  json_text(j, "sdk_version", info.sdk_version);
  json_text(j, "pci", info.pci);
  json_text(j, "properties", info.properties);
  json_begin_object(j, "capabilities");
  for (int i = 0; i < N_CAPABILITIES; i++)
    json_bool(j, capabilities[i].name, (info.capabilities & capabilities[i].bit) != 0);
  json_end_object(j);
  json_end_object(j);
}

static void write_backend(json_writer* j, const hy_backend_report* backend) {
  json_begin_object(j, NULL);
  json_text(j, "name", backend->name);
  json_text(j, "version", backend->version);
  json_text(j, "state", state_name(backend->state));
  json_text(j, "stage", stage_name(backend->probe.stage));
  json_text(j, "reason", backend->probe.reason);
  json_text(j, "remedy", backend->probe.remedy);
  json_begin_array(j, "devices");
  for (int i = 0; i < backend->device_count; i++) write_device(j, backend->name, i);
  json_end_array(j);
  json_begin_array(j, "providers");
  hy_provider_report provider;
  for (int i = 0; hy_backend_provider_at(backend->name, i, &provider) == HY_OK; i++) {
    json_begin_object(j, NULL);
    json_text(j, "name", provider.name);
    json_text(j, "version", provider.version);
    json_text(j, "state", provider.available ? "available" : "missing");
    json_text(j, "reason", provider.probe.reason);
    json_text(j, "remedy", provider.probe.remedy);
    json_text(j, "library", provider.probe.library);
    json_end_object(j);
  }
  json_end_array(j);
  json_end_object(j);
}

static void write_json(const hy_hardware* hardware, int n_hardware) {
  json_writer j = json_to(stdout);
  json_begin_object(&j, NULL);
  json_text(&j, "version", hy_version());
  json_text(&j, "default", default_selector());
  json_begin_array(&j, "hardware");
  for (int i = 0; i < n_hardware; i++) {
    json_begin_object(&j, NULL);
    json_text(&j, "pci", hardware[i].pci);
    json_text(&j, "vendor", hardware[i].vendor);
    json_text(&j, "name", hardware[i].name);
    json_end_object(&j);
  }
  json_end_array(&j);
  json_begin_array(&j, "backends");
  hy_backend_report backend;
  for (int i = 0; hy_backend_at(i, &backend) == HY_OK; i++) write_backend(&j, &backend);
  json_end_array(&j);
  json_end_object(&j);
  json_newline(&j);
}

// ---- for people ----

static void print_device(const char* backend, int index) {
  hy_device_info info;
  if (hy_backend_device_info(backend, index, &info) != HY_OK) {
    printf("    %s:%d  cannot be described: %s\n", backend, index, hy_last_error());
    return;
  }
  printf("    %s:%d  %s, %d cores, %.1f GiB (%.1f free)\n", backend, index, info.name,
         info.core_count, (double)info.memory_total / 0x1p30, (double)info.memory_free / 0x1p30);
  printf("           ");
  for (int i = 0; i < N_CAPABILITIES; i++) {
    if (info.capabilities & capabilities[i].bit) printf(" %s", capabilities[i].name);
  }
  printf("\n");
  for (char *rest, *line = strtok_r(info.properties, "\n", &rest); line;
       line = strtok_r(NULL, "\n", &rest))
    printf("            %s\n", line);
}

static void print_backend(const hy_backend_report* backend) {
  printf("  %-10s %-10s %s\n", backend->name, state_name(backend->state),
         backend->description ? backend->description : "");
  if (backend->state != HY_BACKEND_AVAILABLE) {
    printf("             why: %s\n", backend->probe.reason);
    if (backend->probe.remedy[0]) printf("             do:  %s\n", backend->probe.remedy);
    return;
  }
  for (int i = 0; i < backend->device_count; i++) print_device(backend->name, i);
  hy_provider_report provider;
  for (int i = 0; hy_backend_provider_at(backend->name, i, &provider) == HY_OK; i++) {
    printf("    provider %-12s %s%s%s\n", provider.name,
           provider.available ? "available" : "missing", provider.probe.library[0] ? ", " : "",
           provider.probe.library);
    if (provider.available) continue;
    printf("             why: %s\n", provider.probe.reason);
    if (provider.probe.remedy[0]) printf("             do:  %s\n", provider.probe.remedy);
  }
}

static void print_text(const hy_hardware* hardware, int n_hardware) {
  const char* chosen = default_selector();
  printf("halyard %s, default device %s%s\n\nAccelerators on the PCI bus:\n", hy_version(),
         chosen ? chosen : "none: ", chosen ? "" : hy_last_error());
  for (int i = 0; i < n_hardware; i++)
    printf("  %s  %s %s\n", hardware[i].pci, hardware[i].vendor, hardware[i].name);
  if (n_hardware == 0) printf("  none\n");
  printf("\nBackends, in order of preference:\n");
  hy_backend_report backend;
  for (int i = 0; hy_backend_at(i, &backend) == HY_OK; i++) print_backend(&backend);
}

static int run(int argc, char** argv) {
  int extra;
  int code = cli_parse(&cli_info, NULL, 0, argc, argv, &extra);
  if (code != CLI_DONE || extra < 0) return code;
  hy_status status = hy_init();
  if (status != HY_OK) return cli_fail(status);
  hy_hardware hardware[64];
  int n = hy_list_hardware(hardware, 64);
  if (n > 64) n = 64;
  if (cli.json)
    write_json(hardware, n);
  else
    print_text(hardware, n);
  return CLI_DONE;
}
