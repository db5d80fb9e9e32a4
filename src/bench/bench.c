// The list of benchmarks, and the rows they print: for people, or as JSON lines for machines.
#include "bench/bench.h"

#include <stdio.h>
#include <string.h>

#include "base/env.h"
#include "base/json_write.h"

const benchmark bench_all[] = {
    {"dispatch", bench_dispatch},
    {"alloc", bench_alloc},
    {"copy", bench_copy},
    {"gemm", bench_gemm},
    {"int8", bench_int8},
    {"gemv", bench_gemv},
    {"attention", bench_attention},
    {"scaling", bench_scaling},
    {"decode", bench_decode},
    {"prefill", bench_prefill},
    {"train", bench_train},
    {"load", bench_load},
    {"elementwise", bench_elementwise},
    {"softmax", bench_softmax},
    {"norm", bench_norm},
    {"image", bench_image},
    {"npu", bench_npu},
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

void bench_print(const bench_row* row) {
  if (!bench_options.json) {
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
  json_end_object(&j);
  json_newline(&j);
  fflush(stdout);
}
