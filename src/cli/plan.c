// halyard plan: what a model takes and gives on several devices, on paper.
#include <string.h>

#include "base/json_write.h"
#include "cli/cli.h"
#include "model/model.h"
#include "model/plan.h"

static int run(int argc, char** argv);
const cli_command cli_plan = {"plan", "", "Estimate a model split over several devices",
                              "halyard plan --model DIR --devices 4 --link 25 --dtype bf16", run};

// Fitted to runs with one core a device: docs/parallel.md has them, and what the estimates miss.
static const hy__plan_machine fitted = {.block = 10e-6, .latency = 5e-6};

// Packed weights are unpacked while they are read.
static double fitted_read(const hy__config* c, hy_weight_format format) {
  switch (format) {
    case HY_WEIGHTS_Q8: return 29.6e9;
    case HY_WEIGHTS_Q4: return 28.7e9;
    case HY_WEIGHTS_F32: return 24.8e9;
    case HY_WEIGHTS_BF16: return 29.0e9;
    case HY_WEIGHTS_AS_FILE: break;
  }
  return c->dtype == HY_F32 ? 24.8e9 : 29.0e9;
}

static const char* const names[HY__PLAN_SPLITS] = {"tensor", "pipeline", "data"};

static void write_json(const hy__split_plan* plans, int64_t devices) {
  json_writer j = json_to(stdout);
  json_begin_object(&j, NULL);
  json_int(&j, "devices", devices);
  json_begin_array(&j, "splits");
  for (int i = 0; i < HY__PLAN_SPLITS; i++) {
    const hy__split_plan* p = &plans[i];
    json_begin_object(&j, NULL);
    json_text(&j, "split", names[i]);
    if (p->refused[0]) {
      json_text(&j, "refused", p->refused);
    } else {
      json_real(&j, "weight_bytes", p->weights);
      json_real(&j, "kv_bytes", p->kv);
      json_real(&j, "wire_bytes_token", p->wire);
      json_real(&j, "wire_bytes_step", p->wire_of_step);
      json_int(&j, "sequences", p->sequences);
      json_real(&j, "tok_s", p->tokens_s);
    }
    json_end_object(&j);
  }
  json_end_array(&j);
  json_end_object(&j);
  json_newline(&j);
}

static void print_table(const hy__split_plan* plans, int64_t devices, double link) {
  printf("%lld devices, %g GB/s between two of them; decoding, by device:\n\n", (long long)devices,
         link);
  printf("%-9s %12s %10s %16s %10s %10s\n", "split", "weights MB", "cache MB", "wire bytes/token",
         "sequences", "tokens/s");
  for (int i = 0; i < HY__PLAN_SPLITS; i++) {
    const hy__split_plan* p = &plans[i];
    if (p->refused[0])
      printf("%-9s %s\n", names[i], p->refused);
    else
      printf("%-9s %12.1f %10.1f %16.0f %10lld %10.1f\n", names[i], 1e-6 * p->weights, 1e-6 * p->kv,
             p->wire, (long long)p->sequences, p->tokens_s);
  }
  if (plans[HY__PLAN_DATA].wire_of_step > 0)
    printf("\nFine-tuning with split data, a device sends %.1f MB a step.\n",
           1e-6 * plans[HY__PLAN_DATA].wire_of_step);
}

static int run(int argc, char** argv) {
  const char *folder = NULL, *dtype = NULL;
  int64_t devices = 0, context = 1024, rank = 16;
  double link = 0, read = 0, latency = 1e6 * fitted.latency;
  const cli_option options[] = {
      {"model", CLI_TEXT, &folder, "DIR", "folder with config.json; weights are not needed"},
      {"devices", CLI_INT, &devices, "N", "how many, each with memory of its own"},
      {"link", CLI_REAL, &link, "GB/s", "between two of them"},
      {"dtype", CLI_TEXT, &dtype, "f32|bf16|q8|q4", "how weights are kept (as config.json says)"},
      {"context", CLI_INT, &context, "N", "tokens of a sequence (1024)"},
      {"read", CLI_REAL, &read, "GB/s", "at which a device reads weights (as fitted)"},
      {"latency", CLI_REAL, &latency, "US", "microseconds of a collective (5)"},
      {"rank", CLI_INT, &rank, "R", "of an adapter that is trained (16)"},
  };
  int extra;
  int code = cli_parse(&cli_plan, options, sizeof options / sizeof options[0], argc, argv, &extra);
  if (code != CLI_DONE || extra < 0) return code;
  if (!folder || devices == 0 || link == 0)
    return cli_usage(&cli_plan, "--model, --devices and --link are needed");
  hy_weight_format format;
  if (!hy__weight_format_named(dtype, &format))
    return cli_usage(&cli_plan, "--dtype is f32, bf16, q8 or q4, not '%s'", dtype);
  if (devices < 1 || devices > 1 << 16 || rank < 1 || rank > 1 << 16)
    return cli_usage(&cli_plan, "--devices and --rank are 1 to 65536");
  hy__config config;
  hy__split_plan plans[HY__PLAN_SPLITS];
  hy_status status = hy__config_load(folder, &config);
  if (status != HY_OK) return cli_fail(status);
  const hy__plan_machine machine = {.read = read != 0 ? 1e9 * read : fitted_read(&config, format),
                                    .block = fitted.block,
                                    .latency = 1e-6 * latency,
                                    .link = 1e9 * link};
  status = hy__plan_make(&config, format, (int)devices, context, rank, &machine, plans);
  if (status != HY_OK) return cli_fail(status);
  if (cli.json)
    write_json(plans, devices);
  else
    print_table(plans, devices, link);
  return CLI_DONE;
}
