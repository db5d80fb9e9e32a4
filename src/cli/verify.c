// halyard verify: conformance of a device against the reference.
#include <string.h>

#include "cli/cli.h"
#include "cli/verify_report.h"
#include "verify/child.h"

static int find_op(const char* name, hy_op* op) {
  *op = name ? hy_op_from_name(name) : HY_OP_NONE;
  if (!name || *op != HY_OP_NONE) return CLI_DONE;
  const char* names[HY_OP_END];
  for (int i = 0; i < hy_op_count(); i++) names[i] = hy_op_at(i)->name;
  const char* near = cli_nearest(name, names, hy_op_count());
  if (near) return cli_usage(&cli_verify, "no op '%s'; did you mean '%s'?", name, near);
  return cli_usage(&cli_verify, "no op '%s'; 'halyard ops' lists them", name);
}

static int find_check(const char* name) {
  const char* names[32];
  int n = 0;
  while (n < 32 && (names[n] = hy__verify_check_at(n))) n++;
  for (int i = 0; i < n; i++)
    if (!name || strcmp(names[i], name) == 0) return CLI_DONE;
  const char* near = cli_nearest(name, names, n);
  return cli_usage(&cli_verify, "no check '%s'; did you mean '%s'?", name, near ? near : names[0]);
}

// In the child of a run that is split: verdicts go to the parent.
static int verify_for_parent(hy__verify_options* options) {
  hy__verify_summary summary;
  options->progress->stopped[0] = 0;
  options->on_op = hy__verify_publish;
  options->context = options->progress;
  hy_status status = hy__verify(options, &summary);
  if (status == HY_OK)
    options->progress->ended = true;
  else
    snprintf(options->progress->stopped, sizeof options->progress->stopped, "%s", hy_last_error());
  return status == HY_OK ? CLI_DONE : CLI_FAILED;
}

// `argv` is what runs in a child; NULL: this process has the device.
static int verify(hy__verify_options* options, const hy__report_options* look, const char* file,
                  char* const* argv, int seconds) {
  hy__report* report;
  cli_verify_report* sent = NULL;
  hy__verify_summary summary;
  int code = -1;
  hy_status status = hy__report_create(look, options, &report);
  if (status != HY_OK) return cli_fail(status);
  options->on_op = hy__report_op;
  options->context = report;
  if (file) status = cli_verify_report_begin(file, options, &sent);
  if (status == HY_OK)
    status = argv ? hy__verify_in_children(options, argv, seconds, &summary, &code)
                  : hy__verify(options, &summary);
  hy_status written = cli_verify_report_end(sent, status == HY_OK && code < 0 ? &summary : NULL);
  if (status == HY_OK) status = written;
  if (status == HY_OK && code < 0) status = hy__report_finish(report, &summary, stdout);
  hy__report_destroy(report);
  if (status != HY_OK) return cli_fail(status);
  if (code >= 0) return code;
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

enum { MOST_WORDS = 64 };

// The command line once more, for a child; cli_parse moves the words of `argv`.
static bool keep_words(int argc, char** argv, char** words) {
  static char program[] = "halyard";
  if (argc + 2 > MOST_WORDS) return false;
  words[0] = program;
  for (int i = 0; i < argc; i++) words[i + 1] = argv[i];
  words[argc + 1] = NULL;
  return true;
}

static int run(int argc, char** argv) {
  hy__verify_options options = {.index = -1, .progress = hy__verify_shared()};
  int64_t seed = 1, index = INT64_MIN, size = INT64_MIN, seconds = 120;
  bool determinism = false, gradients = false, all = false, no_fork = false;
  char* words[MOST_WORDS];
  bool splits = keep_words(argc, argv, words) && !options.progress;
  const char *op = NULL, *junit = NULL, *required = NULL, *file = NULL;
  const cli_option list[] = {
      {"op", CLI_TEXT, &op, "OP", "only this op"},
      {"check", CLI_TEXT, &options.check, "CHECK", "only this check of the device, such as copies"},
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
      {"time-limit", CLI_INT, &seconds, "S", "seconds for one case or check; 120, 0: no limit"},
      {"no-fork", CLI_FLAG, &no_fork, NULL, "in this process, for debuggers: a crash ends it"},
  };
  int n_positional;
  int code =
      cli_parse(&cli_verify, list, (int)(sizeof list / sizeof list[0]), argc, argv, &n_positional);
  if (code != CLI_DONE || n_positional < 0) return code;
  code = find_op(op, &options.op);
  if (code != CLI_DONE) return code;
  code = find_check(options.check);
  if (code == CLI_DONE && op && options.check)
    code = cli_usage(&cli_verify, "--op and --check are two runs");
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
  if (seconds < 0 || seconds > 1000000)
    return cli_usage(&cli_verify, "--time-limit takes seconds from 0");
  // With --json, standard output is for machines alone.
  hy__report_options look = {cli.json ? stderr : stdout, junit, all};
  if (splits && !no_fork) return verify(&options, &look, file, words, (int)seconds);
  code = required ? check_required(required) : CLI_DONE;
  if (code == CLI_DONE) code = cli_open_device(&options.device);
  if (code != CLI_DONE) return code;
  return options.progress ? verify_for_parent(&options) : verify(&options, &look, file, NULL, 0);
}

const cli_command cli_verify = {
    .name = "verify",
    .arguments = "",
    .summary = "Compare a device with the reference, op by op",
    .example = "halyard verify --backend cuda:0 --op softmax --seed 7",
    .run = run,
};
