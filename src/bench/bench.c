// The list of benchmarks, and the rows they print: for people, or as JSON lines for machines.
#include "bench/bench.h"

#include <stdio.h>
#include <string.h>

#include "base/env.h"
#include "base/json_write.h"

const benchmark bench_all[] = {
#define AS_ROW(name) {#name, bench_##name},
    BENCHMARKS(AS_ROW)
#undef AS_ROW
};
const int bench_count = (int)(sizeof bench_all / sizeof bench_all[0]);

bench_settings bench_options;

bool bench_wanted(const char* name, const char* shape, const char* dtype) {
  char text[160];
  snprintf(text, sizeof text, "%s %s %s", name, shape, dtype);
  return !bench_options.only || strstr(text, bench_options.only);
}

double bench_now(void) {
  return 1e-9 * (double)hy__now_ns();
}

static char machine[800];
static bool machine_printed;

hy_status bench_machine(hy_device* device) {
  hy_device_info info;
  int threads = 0;
  HY_TRY(hy_device_describe(device, &info));
  if (hy_device_threads(device, &threads) != HY_OK) threads = 0;
  int length = snprintf(machine, sizeof machine, "%s", info.name);
  if (threads > 0)
    length += snprintf(machine + length, sizeof machine - (size_t)length, ", %d thread%s", threads,
                       threads > 1 ? "s" : "");
  for (char *rest, *line = strtok_r(info.properties, "\n", &rest); line;
       line = strtok_r(NULL, "\n", &rest)) {
    if (strncmp(line, "features=", 9) == 0 || strncmp(line, "caches=", 7) == 0)
      length += snprintf(machine + length, sizeof machine - (size_t)length, "; %s",
                         strchr(line, '=') + 1);
  }
  machine_printed = false;
  return HY_OK;
}

void bench_print(const bench_row* row) {
  if (!bench_options.json) {
    if (!machine_printed) printf("%s\n", machine);
    machine_printed = true;
    printf("%-18s %-18s %-5s %10.4g %-6s", row->name, row->shape, row->dtype, row->value,
           row->unit);
    if (row->peer) printf("  %10.4g %-16s %6.2fx", row->peer_value, row->peer, row->ratio);
    if (row->floor > 0) printf("  floor %.4g, reached %.0f%%", row->floor, 100 * row->of_floor);
    if (row->memcpy > 0)
      printf("; memcpy %.4g, %.0f%%", row->memcpy, 100 * row->value / row->memcpy);
    printf("\n");
    fflush(stdout);
    return;
  }
  json_writer j = json_to(stdout);
  json_begin_object(&j, NULL);
  json_text(&j, "name", row->name);
  json_text(&j, "shape", row->shape);
  json_text(&j, "dtype", row->dtype);
  json_real(&j, "value", row->value);
  json_text(&j, "unit", row->unit);
  json_text(&j, "peer", row->peer);
  if (row->peer) {
    json_real(&j, "peer_value", row->peer_value);
    json_real(&j, "ratio", row->ratio);
  } else {
    json_null(&j, "peer_value");
    json_null(&j, "ratio");
  }
  if (row->floor > 0) {
    json_real(&j, "floor", row->floor);
    json_real(&j, "of_floor", row->of_floor);
  } else {
    json_null(&j, "floor");
    json_null(&j, "of_floor");
  }
  if (row->memcpy > 0) {
    json_real(&j, "memcpy", row->memcpy);
    json_real(&j, "of_memcpy", row->value / row->memcpy);
  }
  if (row->seconds > 0) json_real(&j, "seconds", row->seconds);
  json_text(&j, "machine", machine);
  json_end_object(&j);
  json_newline(&j);
  fflush(stdout);
}

static double peak(hy_device* device, hy_peak kind, hy_dtype dtype, void* dst, const void* src,
                   size_t bytes) {
  double rate;
  return hy_device_peak(device, kind, dtype, dst, src, bytes, &rate) == HY_OK ? rate : 0;
}

double bench_multiply_adds(hy_device* device, hy_dtype dtype) {
  return peak(device, HY_PEAK_MULTIPLY_ADD, dtype, NULL, NULL, 0);
}

double bench_read(hy_device* device, const void* src, size_t bytes) {
  return peak(device, HY_PEAK_READ, HY_NONE, NULL, src, bytes);
}

double bench_copying(hy_device* device, void* dst, const void* src, size_t bytes) {
  return peak(device, HY_PEAK_COPY, HY_NONE, dst, src, bytes);
}
