// halyard verify: conformance of a device against the reference.
#include <string.h>

#include "cli/cli.h"
#include "cli/verify_report.h"
#include "verify/verify.h"

static int find_op(const char* name, hy_op* op) {
  *op = name ? hy_op_from_name(name) : HY_OP_NONE;
  if (!name || *op != HY_OP_NONE) return CLI_DONE;
  const char* names[HY_OP_END];
  for (int i = 0; i < hy_op_count(); i++) names[i] = hy_op_at(i)->name;
  const char* near = cli_nearest(name, names, hy_op_count());
  if (near) return cli_usage(&cli_verify, "no op '%s'; did you mean '%s'?", name, near);
  return cli_usage(&cli_verify, "no op '%s'; 'halyard ops' lists them", name);
}

static int verify(hy__verify_options* options, const char* junit, const char* file, bool all) {
  // With --json, standard output is for machines alone.
  hy__report_options look = {cli.json ? stderr : stdout, junit, all};
  hy__report* report;
  cli_verify_report* sent = NULL;
  hy__verify_summary summary;
  hy_status status = hy__report_create(&look, options, &report);
  if (status != HY_OK) return cli_fail(status);
  options->on_op = hy__report_op;
  options->context = report;
  if (file) status = cli_verify_report_begin(file, options, &sent);
  if (status == HY_OK) status = hy__verify(options, &summary);
  hy_status written = cli_verify_report_end(sent, status == HY_OK ? &summary : NULL);
  if (status == HY_OK) status = written;
  if (status == HY_OK) status = hy__report_finish(report, &summary, stdout);
  hy__report_destroy(report);
  if (status != HY_OK) return cli_fail(status);
  return hy__verify_passed(&summary) ? CLI_DONE : CLI_FAILED;
}

// Whether every backend and provider of a list such as "cpu,openblas" can be used; where one
// cannot, says which and why.
static int check_required(const char* list) {
  char name[64];
  for (const char* at = list; *at;) {
    size_t length = strcspn(at, ",");
    if (length == 0 || length >= sizeof name)
      return cli_usage(&cli_verify, "--require takes names such as cpu,openblas, not '%s'", list);
    memcpy(name, at, length);
    name[length] = 0;
    at += length + (at[length] == ',');
    hy_device* device;
    if (hy_backend_is_available(name) || hy_device_get(name, &device) == HY_OK) continue;
    fprintf(stderr, "halyard verify: %s is required and missing: %s\n", name, hy_last_error());
    return CLI_FAILED;
  }
  return CLI_DONE;
}

static int run(int argc, char** argv) {
  hy__verify_options options = {.index = -1};
  int64_t seed = 1, index = INT64_MIN, size = INT64_MIN;
  bool determinism = false, gradients = false, all = false;
  const char *op = NULL, *junit = NULL, *required = NULL, *file = NULL;
  const cli_option list[] = {
      {"op", CLI_TEXT, &op, "OP", "only this op"},
      {"seed", CLI_INT, &seed, "S", "seed of the generated cases; 1 if not given"},
      {"case", CLI_INT, &index, "N", "only this case of the op"},
      {"quick", CLI_FLAG, &options.quick, NULL, "small shapes, for slow simulators"},
      {"determinism", CLI_FLAG, &determinism, NULL, "run each call twice: the bits must agree"},
      {"gradients", CLI_FLAG, &gradients, NULL, "compare gradients with those on the cpu"},
      {"size", CLI_INT, &size, "N", "no dimension larger than this"},
      {"simple", CLI_FLAG, &options.simple, NULL, "contiguous tensors, no special values"},
      {"junit", CLI_TEXT, &junit, "FILE", "also write a JUnit report"},
      {"report", CLI_TEXT, &file, "FILE", "also write a report of device and ops, to be sent"},
      {"require", CLI_TEXT, &required, "A,B,C",
       "fail unless these backends and providers are here"},
      {"all", CLI_FLAG, &all, NULL, "list every op, not only those with something to tell"},
  };
  int n_positional;
  int code =
      cli_parse(&cli_verify, list, (int)(sizeof list / sizeof list[0]), argc, argv, &n_positional);
  if (code != CLI_DONE || n_positional < 0) return code;
  code = find_op(op, &options.op);
  if (code != CLI_DONE) return code;
  bool one_case = index != INT64_MIN;
  if (one_case && !op) return cli_usage(&cli_verify, "--case needs --op");
  if (one_case && (index < 0 || index >= hy__case_count(options.op)))
    return cli_usage(&cli_verify, "%s has cases 0 to %d", op, hy__case_count(options.op) - 1);
  if (size != INT64_MIN && size < 1) return cli_usage(&cli_verify, "--size takes a size from 1");
  if (size != INT64_MIN) options.limit = size;
  options.seed = (uint64_t)seed;
  if (one_case) options.index = (int)index;
  if (determinism && gradients)
    return cli_usage(&cli_verify, "--determinism and --gradients are two runs");
  if (gradients) options.mode = HY__VERIFY_GRADIENTS;
  if (determinism) options.mode = HY__VERIFY_DETERMINISM;
  code = required ? check_required(required) : CLI_DONE;
  if (code == CLI_DONE) code = cli_open_device(&options.device);
  return code == CLI_DONE ? verify(&options, junit, file, all) : code;
}

const cli_command cli_verify = {
    .name = "verify",
    .arguments = "",
    .summary = "Compare a device with the reference, op by op",
    .example = "halyard verify --backend cuda:0 --op softmax --seed 7",
    .run = run,
};
