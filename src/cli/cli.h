// What the commands of `halyard` share: options, exit codes, choosing a device.
#ifndef HALYARD_CLI_CLI_H_
#define HALYARD_CLI_CLI_H_

#include <stdio.h>

#include "halyard/halyard.h"

// Exit codes are a contract with scripts.
enum {
  CLI_DONE = 0,
  CLI_FAILED = 1,
  CLI_USAGE = 2,
  CLI_NO_DEVICE = 3,
  CLI_BAD_FILE = 4,
  CLI_INTERRUPTED = 130,
};

typedef enum cli_kind { CLI_FLAG, CLI_INT, CLI_REAL, CLI_TEXT, CLI_TEXTS } cli_kind;

// The values of an option that may be given several times.
enum { CLI_MOST_TEXTS = 16 };
typedef struct cli_texts {
  const char* list[CLI_MOST_TEXTS];
  int n;
} cli_texts;

// One option: `--name` for a flag, else `--name VALUE` or `--name=VALUE`. `target` is a bool,
// int64_t, double, const char* or cli_texts, by kind.
typedef struct cli_option {
  const char* name;
  cli_kind kind;
  void* target;
  const char* value_name;  // NULL for a flag
  const char* help;
} cli_option;

typedef struct cli_command {
  const char* name;
  const char* arguments;  // "[WHAT ...]", or "" where none are taken
  const char* summary;
  const char* example;
  // Returns an exit code. argv[0] is the command's name.
  int (*run)(int argc, char** argv);
} cli_command;

#define CLI_SUMMARY "one C library under every AI accelerator"
// The commands in the order of the overview; NULL past the last.
const cli_command* cli_command_at(int index);
#define CLI_NOT_GIVEN INT64_MIN

// Options that every command takes; filled by cli_parse.
typedef struct cli_globals {
  bool json;
  bool strict;
  bool of_local_rank;  // a name without an index is the device of the local rank
  int64_t threads;     // CLI_NOT_GIVEN, or any number: the device says which it takes
  const char* backend;
  const char* fallback;
  const char* trace;
} cli_globals;
extern cli_globals cli;

// Reads options anywhere on the line; what is left over are positional arguments, moved to the
// front of argv and counted in *n_positional. Returns CLI_DONE, or the exit code to leave with
// after it has printed help or an error (CLI_DONE with *n_positional < 0 for help).
int cli_parse(const cli_command* command, const cli_option* options, int n_options, int argc,
              char** argv, int* n_positional);

bool cli_asks_for_help(const char* word);  // --help or -h

// Applies --strict, --threads and --trace, then opens the device that --backend and --fallback ask
// for. On failure prints the reason and returns the exit code.
int cli_open_device(hy_device** device);

// Prints "halyard: " and the library's last message; returns the exit code that fits the status.
int cli_fail(hy_status status);
// The same for the command's own words; returns CLI_USAGE.
int cli_usage(const cli_command* command, const char* format, ...)
    __attribute__((format(printf, 2, 3)));

// The nearest of n names to a mistyped one, or NULL.
const char* cli_nearest(const char* word, const char* const* names, int n);

extern const cli_command cli_info, cli_ops, cli_bench, cli_verify, cli_run, cli_finetune, cli_merge,
    cli_plan, cli_demo, cli_chat, cli_graph, cli_npu, cli_new_plugin, cli_completion;

#endif  // HALYARD_CLI_CLI_H_
