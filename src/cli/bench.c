// halyard bench WHAT: measured figures, each with the peer or floor it is to be judged by.
#include "bench/bench.h"

#include <string.h>

#include "cli/cli.h"
#include "model/model.h"

#define OR(name) #name "|"
#define NAMES BENCHMARKS(OR) "all"

static int run(int argc, char** argv);
const cli_command cli_bench = {"bench", NAMES " ",
                               "Measure speed, beside a peer and what the machine can do",
                               "halyard bench dispatch --backend cpu --json", run};

static int run_one(const char* what, hy_device* device) {
  bool all = strcmp(what, "all") == 0, found = false;
  for (int i = 0; i < bench_count; i++) {
    const benchmark* b = &bench_all[i];
    if (!all && strcmp(what, b->name) != 0) continue;
    found = true;
    if (all && b->run == bench_load && !bench_options.model) continue;  // of files alone
    if (all && b->run == bench_comm) continue;                          // of mpirun alone
    if (all && b->run == bench_npu && !hy_backend_is_available("echo")) continue;
    hy_status status = bench_machine(device);
    if (status == HY_OK) status = b->run(device);
    if (status != HY_OK) return cli_fail(status);
  }
  return found ? CLI_DONE : cli_usage(&cli_bench, "no benchmark '%s'; there are " NAMES, what);
}

// Whatever is measured, and whether or not it has a peer.
static int check_options(const bench_settings* o, hy_device* device) {
  hy_weight_format format;
  hy_device* peer;
  if (!hy__weight_format_named(o->dtype, &format))
    return cli_usage(&cli_bench, "--dtype is f32, bf16, q8 or q4, not '%s'", o->dtype);
  if (!o->peer || strcmp(o->peer, "-") == 0) return CLI_DONE;
  hy_status status = hy_device_get(o->peer, &peer);
  if (status != HY_OK) return cli_fail(hy_fail(status, "--peer: %s", hy_last_error()));
  if (!hy_device_provider(peer) ||
      strcmp(hy_device_selector(peer), hy_device_selector(device)) != 0)
    return cli_usage(&cli_bench, "--peer %s: %s has no provider of that name", o->peer,
                     hy_device_selector(device));
  return CLI_DONE;
}

static int run(int argc, char** argv) {
  int n;
  bench_settings* o = &bench_options;
  const cli_option options[] = {
      {"peer", CLI_TEXT, &o->peer, "NAME",
       "a provider to compare with, such as openblas; -: the calling script"},
      {"only", CLI_TEXT, &o->only, "TEXT", "rows whose name, shape and type contain this"},
      {"model", CLI_TEXT, &o->model, "DIR",
       "for decode, prefill and train (random weights of Qwen2.5-0.5B's shape)"},
      {"dtype", CLI_TEXT, &o->dtype, "f32|bf16|q8|q4", "how its weights are kept (bf16)"},
  };
  int code = cli_parse(&cli_bench, options, 4, argc, argv, &n);
  if (code != CLI_DONE || n < 0) return code;
  if (n == 0) return cli_usage(&cli_bench, "which one? " NAMES);
  o->json = cli.json;
  hy_device* device;
  code = cli_open_device(&device);
  if (code == CLI_DONE) code = check_options(o, device);
  for (int i = 0; i < n && code == CLI_DONE; i++) code = run_one(argv[i], device);
  return code;
}
