// Plugins: where they are looked for, and what is said of bad ones.
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/registry.h"
#include "support/check.h"

// PLUGINS is the folder of the plugins of tests/plugins; BAD_PLUGINS is beside it.
#define GOOD PLUGINS "/good/libhalyard_good.so"

static char folder[] = "/tmp/halyard-plugins-XXXXXX";

static int setup(void** state) {
  (void)state;
  unsetenv("HALYARD_BACKEND");
  unsetenv("HALYARD_PLUGIN_PATH");
  strcpy(folder + sizeof folder - 7, "XXXXXX");
  return mkdtemp(folder) ? 0 : 1;
}

static int teardown(void** state) {
  (void)state;
  hy_shutdown();
  unsetenv("HALYARD_PLUGIN_PATH");
  char command[128];
  snprintf(command, sizeof command, "rm -rf %s", folder);
  return system(command);
}

static const char* inside(const char* name) {
  static char path[256];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  return path;
}

static void put(const char* name, const char* text) {
  FILE* f = fopen(inside(name), "w");
  assert_non_null(f);
  fputs(text, f);
  fclose(f);
}

static void loads_a_good_one(void** state) {
  (void)state;
  CHECK_OK(hy_load_plugin(GOOD));
  hy_device* device;
  CHECK_OK(hy_device_get("good", &device));
  assert_string_equal(hy_device_selector(device), "good:0");
  hy_stream* stream;
  void* memory;
  CHECK_OK(hy_stream_default(device, &stream));
  CHECK_OK(hy_alloc(stream, 100, &memory));
  CHECK_OK(hy_free(device, memory));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "already", hy_load_plugin(GOOD));
  // And again after a shutdown.
  hy_shutdown();
  assert_false(hy_backend_is_available("good"));
  CHECK_OK(hy_load_plugin(GOOD));
  assert_true(hy_backend_is_available("good"));
}

static void refuses_bad_ones(void** state) {
  (void)state;
  const struct {
    const char* name;
    hy_status status;
    const char* says;
  } cases[] = {
      {"no_query", HY_FORMAT, "does not export halyard_backend_query"},
      {"refusing", HY_DEVICE_FAILED, "the licence has run out"},
      {"needs_newer", HY_ABI_MISMATCH, "newer interface than version 1"},
      {"newer_table", HY_ABI_MISMATCH, "version 2"},
      {"no_table", HY_FORMAT, "gave no backend"},
      {"tiny_table", HY_ABI_MISMATCH, "size is 4"},
      {"other_name", HY_FORMAT, "must be called libhalyard_good.so"},
      {"null_function", HY_FORMAT, "device_open is NULL"},
      {"half_streams", HY_FORMAT, "stream_destroy is NULL"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    char path[512];
    snprintf(path, sizeof path, "%s/bad/libhalyard_%s.so", PLUGINS, cases[i].name);
    CHECK_FAILS(cases[i].status, cases[i].says, hy_load_plugin(path));
    assert_non_null(strstr(hy_last_error(), path));
    assert_null(hy__entry_find(cases[i].name));
  }
}

static void refuses_bad_files(void** state) {
  (void)state;
  CHECK_FAILS(HY_INVALID_ARGUMENT, "absolute", hy_load_plugin(NULL));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "absolute", hy_load_plugin("libhalyard_good.so"));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "absolute", hy_load_plugin("./libhalyard_good.so"));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "libhalyard_<name>.so", hy_load_plugin("/lib/libm.so.6"));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "libhalyard_<name>.so", hy_load_plugin("/x/libhalyard_.so"));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "libhalyard_<name>.so", hy_load_plugin("/x/libhalyard_A.so"));
  CHECK_FAILS(HY_IO, "No such file", hy_load_plugin("/nonexistent/libhalyard_x.so"));
  put("libhalyard_text.so", "this is no library");
  CHECK_FAILS(HY_FORMAT, "could not be loaded", hy_load_plugin(inside("libhalyard_text.so")));
  put("libhalyard_empty.so", "");
  CHECK_FAILS(HY_FORMAT, "could not be loaded", hy_load_plugin(inside("libhalyard_empty.so")));
  assert_int_equal(mkdir(inside("libhalyard_dir.so"), 0700), 0);
  CHECK_FAILS(HY_IO, "not a file", hy_load_plugin(inside("libhalyard_dir.so")));

  // A good one cut short at several lengths.
  FILE* from = fopen(GOOD, "rb");
  assert_non_null(from);
  char bytes[4096];
  size_t n = fread(bytes, 1, sizeof bytes, from);
  fclose(from);
  for (size_t length = 1; length <= n; length *= 4) {
    FILE* to = fopen(inside("libhalyard_cut.so"), "wb");
    assert_int_equal(fwrite(bytes, 1, length, to), length);
    fclose(to);
    CHECK_FAILS(HY_FORMAT, "could not be loaded", hy_load_plugin(inside("libhalyard_cut.so")));
  }
}

static void finds_them_in_the_path(void** state) {
  (void)state;
  setenv("HALYARD_PLUGIN_PATH",
         "/nonexistent:" PLUGINS "/good:" PLUGINS "/bad/libhalyard_failing.so", 1);
  hy_device* device;
  CHECK_OK(hy_device_get("good", &device));
  // It is the default: more than the cpu.
  CHECK_OK(hy_device_get(NULL, &device));
  assert_string_equal(hy_device_selector(device), "good:0");
  hy_backend_report report;
  CHECK_OK(hy_backend_find("failing", &report));
  assert_int_equal(report.state, HY_BACKEND_FAILED);
  assert_int_equal(report.probe.stage, HY_STAGE_DEVICES);
  assert_string_equal(report.probe.reason, "the small kernel gave 3 for 1 + 1");
  CHECK_OK(hy_backend_find("nonexistent", &report));
  assert_int_equal(report.state, HY_BACKEND_FAILED);
  assert_non_null(strstr(report.probe.reason, "/nonexistent"));
  assert_non_null(strstr(report.probe.remedy, "HALYARD_PLUGIN_PATH"));
}

static void one_bad_plugin_breaks_nothing(void** state) {
  (void)state;
  setenv("HALYARD_PLUGIN_PATH", PLUGINS "/bad", 1);
  hy_backend_report report;
  int failed = 0;
  for (int i = 0; hy_backend_at(i, &report) == HY_OK; i++) {
    if (report.state != HY_BACKEND_FAILED) continue;
    failed++;
    assert_true(report.probe.reason[0]);
  }
  assert_int_equal(failed, 10);
  hy_device* device;
  CHECK_OK(hy_device_get(NULL, &device));
  assert_string_equal(hy_device_selector(device), "cpu:0");
  CHECK_FAILS(HY_UNAVAILABLE, "device_open is NULL", hy_device_get("null_function", &device));
}

// What crashes, hangs, ends its process or prints does so in a child; the reason is in the report.
static void wild_ones_are_looked_at_elsewhere(void** state) {
  (void)state;
  static const struct {
    const char *name, *says, *where;
  } wild[] = {{"loading", "crashed (signal 6", "loading"},
              {"crashing", "crashed (signal 11", "probe"},
              {"hanging", "did not end within 1 seconds", "probe"},
              {"exiting", "ended the process (exit code 7)", "probe"},
              {"describing", "crashed (signal 11", "device_info"},
              {"opening", "crashed (signal 11", "device_open"},
              {"providing", "crashed (signal 11", "provider of wild_kernels"}};
  setenv("HALYARD_PLUGIN_PATH", PLUGINS "/wild", 1);
  setenv("HALYARD_PROBE_TIMEOUT", "1", 1);
  hy_backend_report report;
  for (size_t i = 0; i < sizeof wild / sizeof wild[0]; i++) {
    CHECK_OK(hy_backend_find(wild[i].name, &report));
    assert_int_equal(report.state, HY_BACKEND_FAILED);
    if (!strstr(report.probe.reason, wild[i].says) || !strstr(report.probe.reason, wild[i].where))
      fail_msg("%s: %s", wild[i].name, report.probe.reason);
    assert_true(report.probe.remedy[0]);
  }
  hy_device_info info;
  CHECK_OK(hy_backend_find("printing", &report));
  assert_int_equal(report.state, HY_BACKEND_AVAILABLE);
  CHECK_OK(hy_backend_device_info("printing", 0, &info));
  assert_int_equal(hy__entry_find("printing")->table.size, 0);
  // One that failed in a child is not let in when it is named later.
  hy_device* device;
  CHECK_FAILS(HY_UNAVAILABLE, "signal 11", hy_device_get("crashing", &device));
  unsetenv("HALYARD_PROBE_TIMEOUT");
}

static void the_default_passes_over_wild_ones(void** state) {
  (void)state;
  setenv("HALYARD_PLUGIN_PATH",
         PLUGINS "/wild/libhalyard_crashing.so:" PLUGINS "/wild/libhalyard_opening.so", 1);
  hy_device* device;
  CHECK_OK(hy_device_get(NULL, &device));
  assert_string_equal(hy_device_selector(device), "cpu:0");
}

static void loads_only_what_is_asked_for(void** state) {
  (void)state;
  setenv("HALYARD_PLUGIN_PATH", PLUGINS "/good:" PLUGINS "/bad", 1);
  hy_device* device;
  CHECK_OK(hy_device_get("cpu", &device));
  assert_int_equal(hy__entry_find("good")->table.size, 0);
  CHECK_OK(hy_device_get("good", &device));
  assert_int_not_equal(hy__entry_find("good")->table.size, 0);
  assert_false(hy__entry_find("null_function")->probed);
}

static void never_looks_in_the_current_folder(void** state) {
  (void)state;
  assert_int_equal(chdir(PLUGINS "/good"), 0);
  const char* paths[] = {".", "../good", "libhalyard_good.so", "./libhalyard_good.so", "::", ":"};
  for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
    setenv("HALYARD_PLUGIN_PATH", paths[i], 1);
    assert_false(hy_backend_is_available("good"));
    if (paths[i][0] != ':') {
      hy_backend_report report;
      bool refused = false;
      for (int b = 0; hy_backend_at(b, &report) == HY_OK; b++)
        refused = refused || strstr(report.probe.reason, "relative");
      assert_true(refused);
    }
    hy_shutdown();
  }
  unsetenv("HALYARD_PLUGIN_PATH");
  assert_false(hy_backend_is_available("good"));
  assert_int_equal(chdir("/"), 0);
}

static void a_plugin_gives_a_known_name_code(void** state) {
  (void)state;
  put("libhalyard_cpu.so", "the cpu is taken, so that this is not even looked at");
  put("libhalyard_nki.so", "this is no library");
  put("readme.txt", "not a plugin");
  setenv("HALYARD_PLUGIN_PATH", folder, 1);
  hy_device* device;
  CHECK_OK(hy_device_get("cpu", &device));
  CHECK_FAILS(HY_UNAVAILABLE, "could not be loaded", hy_device_get("nki", &device));
  hy_backend_report report;
  CHECK_OK(hy_backend_find("nki", &report));
  assert_int_equal(report.state, HY_BACKEND_FAILED);
  assert_int_equal(report.type, HY_BACKEND_TYPE_nki);
}

static hy_status load_and_open(void) {
  hy_device* device;
  HY_TRY(hy_init());
  HY_TRY(hy_load_plugin(GOOD));
  return hy_device_get("good", &device);
}

static hy_status find_and_open(void) {
  hy_device* device;
  HY_TRY(hy_init());
  return hy_device_get("good", &device);
}

static void sweep(hy_status (*work)(void)) {
  int n = 1;
  for (; n < 1000; n++) {
    hy_shutdown();
    hy_inject_fault(HY_FAULT_HOST_ALLOCATION, n);
    hy_status status = work();
    bool fired = hy_fault_events(HY_FAULT_HOST_ALLOCATION) >= n;
    hy_inject_fault(HY_FAULT_HOST_ALLOCATION, 0);
    if (!fired) {
      assert_int_equal(status, HY_OK);
      break;
    }
    if (status != HY_OUT_OF_MEMORY)
      fail_msg("allocation %d: %s: %s", n, hy_status_name(status), hy_last_error());
  }
  assert_true(n > 10 && n < 1000);
}

static void survives_lack_of_memory(void** state) {
  (void)state;
  sweep(load_and_open);
  setenv("HALYARD_PLUGIN_PATH", PLUGINS "/good:" PLUGINS "/bad:x", 1);
  sweep(find_and_open);
}

static void copy_good(void) {
  char command[700];
  snprintf(command, sizeof command, "cp %s %s", GOOD, inside("libhalyard_good.so"));
  assert_int_equal(system(command), 0);
}

// Whoever may write a plugin, or put another in its place, runs as the user of the program.
static void what_others_may_write_is_refused(void** state) {
  (void)state;
  static const mode_t modes[] = {0777, 0775, 0757};
  copy_good();
  const char* plugin = inside("libhalyard_good.so");
  for (int i = 0; i < 3; i++) {
    assert_int_equal(chmod(plugin, modes[i]), 0);
    CHECK_FAILS(HY_IO, "chmod go-w", hy_load_plugin(plugin));
    assert_non_null(strstr(hy_last_error(), "file"));
    assert_int_equal(chmod(plugin, 0755), 0);
    assert_int_equal(chmod(folder, modes[i]), 0);
    CHECK_FAILS(HY_IO, "others may write the folder", hy_load_plugin(plugin));
    assert_int_equal(chmod(folder, 0755), 0);
  }
  if (geteuid() == 0) {
    assert_int_equal(chown(plugin, 12345, 0), 0);
    CHECK_FAILS(HY_IO, "belongs to user 12345", hy_load_plugin(plugin));
    assert_int_equal(chown(plugin, 0, 0), 0);
  }
  // Found in a folder, it is shown with the reason.
  assert_int_equal(chmod(folder, 0777), 0);
  setenv("HALYARD_PLUGIN_PATH", folder, 1);
  hy_shutdown();
  hy_backend_report report;
  CHECK_OK(hy_backend_find("good", &report));
  assert_int_equal(report.state, HY_BACKEND_FAILED);
  assert_non_null(strstr(report.probe.reason, "others may write"));
  hy_shutdown();
  assert_int_equal(chmod(folder, 0755), 0);
  CHECK_OK(hy_backend_find("good", &report));
  assert_int_equal(report.state, HY_BACKEND_AVAILABLE);
}

static void a_fifo_does_not_hang(void** state) {
  (void)state;
  assert_int_equal(mkfifo(inside("libhalyard_fifo.so"), 0600), 0);
  CHECK_FAILS(HY_IO, "not a file", hy_load_plugin(inside("libhalyard_fifo.so")));
}

static void reports_need_a_place(void** state) {
  (void)state;
  hy_backend_report report;
  CHECK_FAILS(HY_INVALID_ARGUMENT, "NULL", hy_backend_at(0, NULL));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "NULL", hy_backend_find("cpu", NULL));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "NULL", hy_backend_find(NULL, &report));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "NULL", hy_backend_find_by_type(HY_BACKEND_TYPE_cuda, NULL));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "NULL", hy_backend_device_info("cpu", 0, NULL));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "NULL", hy_backend_provider_at("cpu", 0, NULL));
}

int main(void) {
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
  const struct CMUnitTest tests[] = {
      TEST(loads_a_good_one),
      TEST(refuses_bad_ones),
      TEST(refuses_bad_files),
      TEST(finds_them_in_the_path),
      TEST(one_bad_plugin_breaks_nothing),
      TEST(wild_ones_are_looked_at_elsewhere),
      TEST(the_default_passes_over_wild_ones),
      TEST(loads_only_what_is_asked_for),
      TEST(never_looks_in_the_current_folder),
      TEST(a_plugin_gives_a_known_name_code),
      TEST(survives_lack_of_memory),
      TEST(what_others_may_write_is_refused),
      TEST(a_fifo_does_not_hang),
      TEST(reports_need_a_place),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
