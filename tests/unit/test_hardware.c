// The PCI listing on made-up trees, and what the cpu backend reads about its host.
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "backends/cpu/host_info.h"
#include "core/registry.h"
#include "support/check.h"

static char root[] = "/tmp/halyard-hardware-XXXXXX";

// Writes a file, making the folders above it.
static void put(const char* path, const char* text) {
  char full[512];
  snprintf(full, sizeof full, "%s%s", root, path);
  for (char* c = full + sizeof root; *c; c++) {
    if (*c != '/') continue;
    *c = 0;
    mkdir(full, 0700);
    *c = '/';
  }
  FILE* f = fopen(full, "w");
  assert_non_null(f);
  fputs(text, f);
  fclose(f);
}

static void put_pci(const char* address, const char* class, const char* vendor,
                    const char* device) {
  char path[256];
  snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/class", address);
  put(path, class);
  snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/vendor", address);
  put(path, vendor);
  snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/device", address);
  put(path, device);
}

static int setup(void** state) {
  (void)state;
  strcpy(root + sizeof root - 7, "XXXXXX");
  return mkdtemp(root) ? 0 : 1;
}

static int teardown(void** state) {
  (void)state;
  unsetenv("HALYARD_SYSFS");
  hy_shutdown();
  char command[128];
  snprintf(command, sizeof command, "rm -rf %s", root);
  return system(command);
}

static int list(hy_hardware* out, int capacity) {
  char sysfs[128];
  snprintf(sysfs, sizeof sysfs, "%s/sys", root);
  return hy__list_hardware(sysfs, out, capacity);
}

static void finds_accelerators_and_nothing_else(void** state) {
  (void)state;
  put_pci("0000:3b:00.0", "0x030200\n", "0x10de\n", "0xfff0\n");
  put_pci("0000:3b:00.1", "0x040300\n", "0x10de\n", "0xfff1\n");  // its audio function
  put_pci("0000:02:00.0", "0x120000\n", "0x19e5\n", "0xd802\n");
  put_pci("0000:05:00.0", "0x020000\n", "0x19e5\n", "0x0222\n");  // a network card
  put_pci("0000:06:00.0", "0x0b4000\n", "0x1d94\n", "0x54b7\n");
  put_pci("0000:07:00.0", "0x060400\n", "0xcabc\n", "0x0001\n");  // a bridge
  put_pci("0000:08:00.0", "0x048000\n", "0xcabc\n", "0x0370\n");
  put_pci("0000:09:00.0", "0x088000\n", "0x1d0f\n", "0x7164\n");
  put_pci("0000:0a:00.0", "0x010802\n", "0x1d0f\n", "0x8061\n");  // a disk
  put_pci("0000:0b:00.0", "0x120000\n", "0x4242\n", "0x0001\n");  // a vendor nobody knows
  hy_hardware found[16];
  assert_int_equal(list(found, 16), 6);
  const char* expected[][2] = {{"0000:02:00.0", "Huawei"},      {"0000:06:00.0", "Hygon"},
                               {"0000:08:00.0", "Cambricon"},   {"0000:09:00.0", "AWS"},
                               {"0000:0b:00.0", "vendor 4242"}, {"0000:3b:00.0", "NVIDIA"}};
  for (int i = 0; i < 6; i++) {
    assert_string_equal(found[i].pci, expected[i][0]);
    assert_string_equal(found[i].vendor, expected[i][1]);
    assert_true(found[i].name[0]);
  }
  assert_int_equal(found[5].vendor_id, 0x10de);
  assert_int_equal(found[5].device_id, 0xfff0);
}

static void fills_only_what_fits(void** state) {
  (void)state;
  put_pci("0000:01:00.0", "0x030000\n", "0x10de\n", "0xfff0\n");
  put_pci("0000:02:00.0", "0x030000\n", "0x10de\n", "0xfff0\n");
  hy_hardware found[2];
  memset(found, 0x5a, sizeof found);
  assert_int_equal(list(found, 1), 2);
  assert_int_equal(((unsigned char*)&found[1])[0], 0x5a);
  assert_int_equal(list(NULL, 0), 2);
}

static void survives_odd_trees(void** state) {
  (void)state;
  hy_hardware found[4];
  assert_int_equal(list(found, 4), 0);                           // there is none
  put("/sys/bus/pci/devices/0000:01:00.0/class", "0x030000\n");  // the rest is missing
  put_pci("0000:02:00.0", "", "0x10de\n", "0x1\n");
  put_pci("0000:03:00.0", "nonsense\n", "0x10de\n", "0x1\n");
  put_pci("an-address-that-is-too-long", "0x030000\n", "0x10de\n", "0x1\n");
  assert_int_equal(list(found, 4), 0);
}

static void the_probe_names_what_is_on_the_bus(void** state) {
  (void)state;
  put_pci("0000:41:00.0", "0x120000\n", "0xcabc\n", "0x0370\n");
  char sysfs[128];
  snprintf(sysfs, sizeof sysfs, "%s/sys", root);
  setenv("HALYARD_SYSFS", sysfs, 1);
  CHECK_OK(hy_init());
  hy_backend_report report;
  if (!atomic_load(&hy__entry_find("cambricon")->has_code)) {
    CHECK_OK(hy_backend_find("cambricon", &report));
    assert_int_equal(report.state, HY_BACKEND_MISSING);
    assert_true(report.probe.stage >= HY_STAGE_FOUND);
    assert_non_null(strstr(report.probe.reason, "a Cambricon MLU is here (0000:41:00.0), but "));
  }
  if (!atomic_load(&hy__entry_find("hip")->has_code)) {
    CHECK_OK(hy_backend_find("hip", &report));
    assert_non_null(strstr(report.probe.reason, "no AMD GPU is on the PCI bus"));
  }
}

static void loads_libraries_and_says_why_not(void** state) {
  (void)state;
  hy_probe report;
  void* library;
  hy__probe_begin(&report);
  CHECK_OK(hy__open_library("libnothing.so.1 libm.so.6", NULL, &report, &library));
  assert_non_null(library);
  assert_string_equal(report.library, "libm.so.6");
  assert_int_equal(report.stage, HY_STAGE_LOADED);

  hy__probe_begin(&report);
  CHECK_FAILS(HY_UNAVAILABLE, "libnothing.so.1 could not be loaded: cannot open",
              hy__open_library("libnothing.so.1", "", &report, &library));
  assert_int_equal(report.stage, HY_STAGE_NONE);
  assert_string_equal(report.reason, hy_last_error());

  // One that is there but broken is the one to speak of, and relative folders are not searched.
  put("/lib/libhalyardbroken.so", "this is no library");
  setenv("HALYARD_TEST_HOME", root, 1);
  hy__probe_begin(&report);
  CHECK_FAILS(
      HY_UNAVAILABLE, "libhalyardbroken.so: ",
      hy__open_library("libnothing.so.1 libhalyardbroken.so",
                       "$HALYARD_TEST_UNSET/lib $HALYARD_TEST_HOME/lib", &report, &library));
  assert_int_equal(report.stage, HY_STAGE_FOUND);
  setenv("HALYARD_TEST_HOME", "lib", 1);
  assert_int_equal(chdir(root), 0);
  hy__probe_begin(&report);
  assert_int_equal(
      hy__open_library("libhalyardbroken.so", "$HALYARD_TEST_HOME lib", &report, &library),
      HY_UNAVAILABLE);
  assert_int_equal(report.stage, HY_STAGE_NONE);
  assert_int_equal(chdir("/"), 0);
  CHECK_FAILS(HY_INVALID_ARGUMENT, "no library", hy__open_library("", NULL, &report, &library));
}

static void reads_the_host(void** state) {
  (void)state;
  put("/proc/cpuinfo", "processor\t: 0\nmodel name\t: Test CPU 9000\nmodel name\t: Another\n");
  put("/proc/meminfo",
      "MemTotal:        8000 kB\nMemFree:         1000 kB\nMemAvailable:    6000 kB\n");
#define CACHE "/sys/devices/system/cpu/cpu0/cache/index"
  const char* caches[][3] = {
      {"1", "Data", "48K"}, {"1", "Instruction", "32K"}, {"2", "Unified", "2M"}};
  for (int i = 0; i < 3; i++) {
    char path[80];
    snprintf(path, sizeof path, CACHE "%d/level", i);
    put(path, caches[i][0]);
    snprintf(path, sizeof path, CACHE "%d/type", i);
    put(path, caches[i][1]);
    snprintf(path, sizeof path, CACHE "%d/size", i);
    put(path, caches[i][2]);
  }
#undef CACHE
  hy__cpu_host host;
  hy__cpu_read_host(root, &host);
  assert_string_equal(host.caches, "L1d 48K, L2 2M");
  assert_string_equal(host.model, "Test CPU 9000");
  assert_int_equal(host.memory_total, 8000 * 1024);
  assert_int_equal(host.memory_free, 6000 * 1024);
  assert_true(host.cores >= 1);
}

static void honours_control_groups(void** state) {
  (void)state;
  uint64_t total, free;
  put("/proc/meminfo", "MemTotal: 8000 kB\nMemAvailable: 6000 kB\n");
  // Version 2, with the limit in a group above.
  put("/proc/self/cgroup", "0::/slice/job\n");
  put("/sys/fs/cgroup/slice/job/memory.max", "max\n");
  put("/sys/fs/cgroup/slice/memory.max", "4096000\n");
  put("/sys/fs/cgroup/slice/memory.current", "1024000\n");
  put("/sys/fs/cgroup/slice/job/cpu.max", "100000 100000\n");
  hy__cpu_read_memory(root, &total, &free);
  assert_int_equal(total, 4096000);
  assert_int_equal(free, 3072000);
  hy__cpu_host host;
  hy__cpu_read_host(root, &host);
  assert_int_equal(host.cores, 1);
  // Version 1, where a huge number means no limit, and a container sees its group as the root.
  put("/proc/self/cgroup", "7:cpu,cpuacct:/docker/x\n5:memory:/docker/x\n0::/\n");
  put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  hy__cpu_read_memory(root, &total, &free);
  assert_int_equal(total, 8000 * 1024);
  put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "2048000\n");
  put("/sys/fs/cgroup/memory/memory.usage_in_bytes", "4096000\n");
  hy__cpu_read_memory(root, &total, &free);
  assert_int_equal(total, 2048000);
  assert_int_equal(free, 0);
}

// The least room is not always under the least limit, and what a group holds of files it gives
// back.
static void memory_left_is_that_of_every_level(void** state) {
  (void)state;
  uint64_t total, free;
  put("/proc/meminfo", "MemTotal: 8000 kB\nMemAvailable: 6000 kB\n");
  put("/proc/self/cgroup", "0::/slice/job\n");
  put("/sys/fs/cgroup/slice/job/memory.max", "2048000\n");
  put("/sys/fs/cgroup/slice/job/memory.current", "48000\n");
  put("/sys/fs/cgroup/slice/memory.max", "4096000\n");
  put("/sys/fs/cgroup/slice/memory.current", "4000000\n");
  hy__cpu_read_memory(root, &total, &free);
  assert_int_equal(total, 2048000);
  assert_int_equal(free, 96000);
  put("/sys/fs/cgroup/slice/memory.stat", "anon 5\ninactive_file 200000\nactive_file 100000\n");
  hy__cpu_read_memory(root, &total, &free);
  assert_int_equal(free, 396000);
  // Version 1: the process's own group counts, not only the root.
  put("/proc/self/cgroup", "5:memory:/docker/x\n");
  put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  put("/sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes", "1024000\n");
  put("/sys/fs/cgroup/memory/docker/x/memory.usage_in_bytes", "1000000\n");
  put("/sys/fs/cgroup/memory/docker/x/memory.stat", "total_inactive_file 6000\n");
  hy__cpu_read_memory(root, &total, &free);
  assert_int_equal(total, 1024000);
  assert_int_equal(free, 30000);
}

static int cores_with(const char* groups) {
  put("/proc/self/cgroup", groups);
  return hy__cpu_usable_cores(root);
}

// A quota of any group between this process's and the root bounds the cores.
static void honours_quotas_at_every_level(void** state) {
  (void)state;
  cpu_set_t allowed;
  assert_int_equal(sched_getaffinity(0, sizeof allowed, &allowed), 0);
  int all = CPU_COUNT(&allowed);
  assert_int_equal(cores_with(""), all);
  const char* v2 = "0::/slice/job/task\n";
  put("/sys/fs/cgroup/slice/job/task/cpu.max", "max 100000\n");
  assert_int_equal(cores_with(v2), all);
  put("/sys/fs/cgroup/slice/job/cpu.max", "9900000 100000\n");
  assert_int_equal(cores_with(v2), all < 99 ? all : 99);
  put("/sys/fs/cgroup/slice/cpu.max", "50000 100000\n");  // half a core: one thread
  assert_int_equal(cores_with(v2), 1);
  put("/sys/fs/cgroup/slice/cpu.max", "nonsense\n");
  assert_int_equal(cores_with(v2), all < 99 ? all : 99);
  put("/sys/fs/cgroup/cpu.max", "100000 100000\n");  // as a container sees its own group
  assert_int_equal(cores_with("0::/elsewhere\n"), 1);
  assert_int_equal(cores_with("0::/\n"), 1);
  put("/sys/fs/cgroup/cpu.max", "max 100000\n");

  const char* v1 = "7:cpu,cpuacct:/docker/x\n5:memory:/docker/x\n0::/\n";
  put("/sys/fs/cgroup/cpu/docker/x/cpu.cfs_quota_us", "-1\n");
  put("/sys/fs/cgroup/cpu/docker/x/cpu.cfs_period_us", "100000\n");
  assert_int_equal(cores_with(v1), all);
  put("/sys/fs/cgroup/cpu/docker/x/cpu.cfs_quota_us", "100000\n");
  assert_int_equal(cores_with(v1), 1);
  put("/sys/fs/cgroup/cpu/docker/x/cpu.cfs_period_us", "0\n");
  assert_int_equal(cores_with(v1), all);
  put("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "20000\n");
  put("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  assert_int_equal(cores_with(v1), 1);
}

static void survives_a_host_that_says_nothing(void** state) {
  (void)state;
  hy__cpu_host host;
  hy__cpu_read_host(root, &host);
  assert_true(host.model[0]);
  assert_int_equal(host.memory_total, 0);
  put("/proc/meminfo", "MemTotal:\nMemAvailable: x kB\n");
  put("/proc/self/cgroup", "nonsense\n:\n\n");
  hy__cpu_read_host(root, &host);
  assert_int_equal(host.memory_total, 0);
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
  const struct CMUnitTest tests[] = {
      TEST(finds_accelerators_and_nothing_else),
      TEST(fills_only_what_fits),
      TEST(survives_odd_trees),
      TEST(the_probe_names_what_is_on_the_bus),
      TEST(loads_libraries_and_says_why_not),
      TEST(reads_the_host),
      TEST(honours_control_groups),
      TEST(memory_left_is_that_of_every_level),
      TEST(honours_quotas_at_every_level),
      TEST(survives_a_host_that_says_nothing),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
