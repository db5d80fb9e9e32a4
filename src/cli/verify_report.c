// halyard verify --report FILE: the machine, the device, what the probe said, every op's verdict.
#include "cli/verify_report.h"

#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include "cli/cli.h"

struct cli_verify_report {
  hy__report* table;
  const hy__verify_options* run;
  FILE* file;
  char path[512], partial[520];
  void (*on_op)(void* context, const hy__op_verdict* verdict);
  void* context;
};

static void tell(void* report, const hy__op_verdict* v) {
  cli_verify_report* r = report;
  hy__report_op(r->table, v);
  if (r->on_op) r->on_op(r->context, v);
}

// Nothing of the user: no host name, no path, no environment. The device is only known now: it is
// another process that has opened it.
static void write_machine(FILE* file, const hy__verify_options* run) {
  struct utsname machine;
  hy_device_info info = {.size = sizeof info};
  const char* selector = run->device ? hy_device_selector(run->device) : run->selector;
  const char* backend = run->device ? hy_device_backend(run->device) : run->backend;
  fprintf(file, "halyard: %s\n", HY_VERSION_STRING);
  if (uname(&machine) == 0)
    fprintf(file, "system: %s %s %s\n", machine.sysname, machine.release, machine.machine);
  const char* number = selector ? strchr(selector, ':') : NULL;
  int index = number ? (int)strtol(number + 1, NULL, 10) : 0;
  if (!backend || hy_backend_device_info(backend, index, &info) != HY_OK) {
    fprintf(file, "device: none, %s\n", hy_last_error());
    return;
  }
  fprintf(file, "device: %s, %s\ndriver: %s\nsdk: %s\n", selector, info.name, info.driver_version,
          info.sdk_version);
  fprintf(file, "cores: %d\nmemory: %llu bytes\ncapabilities: 0x%x\ntypes: 0x%x\n%s\n",
          info.core_count, (unsigned long long)info.memory_total, info.capabilities, info.dtypes,
          info.properties);
}

hy_status cli_verify_report_begin(const char* path, hy__verify_options* options,
                                  cli_verify_report** report) {
  cli_verify_report* r = *report = calloc(1, sizeof *r);
  if (!r) return hy_fail(HY_OUT_OF_MEMORY, "no host memory for the report");
  if (strlen(path) >= sizeof r->path) {
    free(r);
    *report = NULL;
    return hy_fail(HY_IO, "the name of the report is longer than %zu bytes", sizeof r->path - 1);
  }
  snprintf(r->path, sizeof r->path, "%s", path);
  snprintf(r->partial, sizeof r->partial, "%s.new", path);
  r->file = fopen(r->partial, "we");
  hy_status status = r->file
                         ? hy__report_create(&(hy__report_options){.table = r->file, .all = true},
                                             options, &r->table)
                         : hy_fail(HY_IO, "%s cannot be written", path);
  if (status != HY_OK) {
    if (r->file) fclose(r->file);
    free(r);
    *report = NULL;
    return status;
  }
  r->run = options;
  r->on_op = options->on_op;
  r->context = options->context;
  options->on_op = tell;
  options->context = r;
  return HY_OK;
}

hy_status cli_verify_report_end(cli_verify_report* r, const hy__verify_summary* summary) {
  if (!r) return HY_OK;
  if (summary)
    hy__report_finish(r->table, summary, r->file);
  else
    fprintf(r->file, "ended early: %s\n", hy_last_error());
  write_machine(r->file, r->run);
  hy__report_destroy(r->table);
  bool bad = ferror(r->file) != 0;
  bad |= fclose(r->file) != 0;
  bad |= rename(r->partial, r->path) != 0;
  hy_status status = bad ? hy_fail(HY_IO, "%s could not be written", r->path) : HY_OK;
  free(r);
  return status;
}
