// halyard bench WHAT: measured figures, each with the peer or floor it is to be judged by.
#include "cli/bench.h"

#include <string.h>
#include <time.h>

#include "base/json_write.h"
#include "cli/cli.h"

static int run(int argc, char** argv);
const cli_command cli_bench = {"bench", "WHAT ",
                               "Measure: dispatch, copy, gemm, decode, ..., or all",
                               "halyard bench dispatch --backend cpu --json", run};

typedef struct benchmark {
  const char* name;
  hy_status (*run)(hy_device* device);
} benchmark;
static const benchmark benchmarks[] = {
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
#define N_BENCHMARKS ((int)(sizeof benchmarks / sizeof benchmarks[0]))

const char* bench_peer;
static const char* only;

// "dispatch, alloc, copy": what there is.
static const char* names(void) {
  static char list[200];
  size_t used = 0;
  for (int i = 0; i < N_BENCHMARKS; i++)
    used += (size_t)snprintf(list + used, sizeof list - used, "%s, ", benchmarks[i].name);
  snprintf(list + used, sizeof list - used, "all");
  return list;
}

bool bench_wanted(const char* name, const char* shape, const char* dtype) {
  char text[160];
  snprintf(text, sizeof text, "%s %s %s", name, shape, dtype);
  return !only || strstr(text, only);
}

double bench_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void bench_print(const bench_row* row) {
  if (!cli.json) {
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

static int run_one(const char* what, hy_device* device) {
  bool all = strcmp(what, "all") == 0, found = false;
  for (int i = 0; i < N_BENCHMARKS; i++) {
    if (!all && strcmp(what, benchmarks[i].name) != 0) continue;
    found = true;
    if (all && benchmarks[i].run == bench_load && !bench_model) continue;  // of files alone
    if (all && benchmarks[i].run == bench_npu && !hy_backend_is_available("echo")) continue;
    hy_status status = benchmarks[i].run(device);
    if (status != HY_OK) return cli_fail(status);
  }
  return found ? CLI_DONE : cli_usage(&cli_bench, "no benchmark '%s'; there are %s", what, names());
}

static int run(int argc, char** argv) {
  int n;
  const cli_option options[] = {
      {"peer", CLI_TEXT, &bench_peer, "NAME",
       "a provider to compare with, such as openblas; -: the calling script"},
      {"only", CLI_TEXT, &only, "TEXT", "rows whose name, shape and type contain this"},
      {"model", CLI_TEXT, &bench_model, "DIR",
       "for decode, prefill and train (random weights of Qwen2.5-0.5B's shape)"},
      {"dtype", CLI_TEXT, &bench_dtype, "f32|bf16|q8|q4", "how its weights are kept (bf16)"},
  };
  int code = cli_parse(&cli_bench, options, 4, argc, argv, &n);
  if (code != CLI_DONE || n < 0) return code;
  if (n == 0) return cli_usage(&cli_bench, "which one? %s", names());
  hy_device* device;
  code = cli_open_device(&device);
  for (int i = 0; i < n && code == CLI_DONE; i++) code = run_one(argv[i], device);
  return code;
}
