// halyard: the commands a user meets.
#include <errno.h>
#include <signal.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/manual.h"
#include "halyard/trace.h"

static const cli_command* const commands[] = {
    &cli_info,       &cli_ops,        &cli_verify, &cli_bench, &cli_run,   &cli_finetune,
    &cli_merge,      &cli_plan,       &cli_demo,   &cli_chat,  &cli_graph,
#ifdef HALYARD_CLI_NPU
    &cli_npu,
#endif
    &cli_new_plugin, &cli_completion,
};
#define N_COMMANDS ((int)(sizeof commands / sizeof commands[0]))

const cli_command* cli_command_at(int index) {
  return index < N_COMMANDS ? commands[index] : NULL;
}

static void print_overview(FILE* file) {
  fprintf(file, "halyard %s: " CLI_SUMMARY "\n\nUsage: halyard COMMAND [options]\n\n",
          hy_version());
  for (int i = 0; i < N_COMMANDS; i++)
    fprintf(file, "  %-11s%s\n", commands[i]->name, commands[i]->summary);
  fprintf(file, "\n'halyard COMMAND --help' tells more, with an example.\n");
}

// Output that did not arrive is a failure, whatever the command says.
static int finish(int code) {
  errno = 0;
  bool lost = fflush(stdout) != 0 || ferror(stdout);
  if (!lost || errno == EPIPE) return code;
  fprintf(stderr, "halyard: the output could not be written%s%s\n", errno ? ": " : "",
          errno ? strerror(errno) : "");
  return code == CLI_DONE ? CLI_BAD_FILE : code;
}

static int run(int argc, char** argv) {
  if (argc < 2) {
    print_overview(stderr);
    return CLI_USAGE;
  }
  // What the build asks for to install.
  if (argc == 4 && strcmp(argv[1], "help") == 0 && strcmp(argv[2], "--man") == 0) {
    hy_status status = cli_write_manual(argv[3]);
    return status == HY_OK ? CLI_DONE : cli_fail(status);
  }
  // "help run" is "run --help".
  static char help[] = "--help";
  if (strcmp(argv[1], "help") == 0) {
    argv[1] = argc > 2 ? argv[2] : help;
    if (argc > 2) argv[2] = help;
  }
  const char* name = argv[1];
  if (cli_asks_for_help(name)) {
    print_overview(stdout);
    return CLI_DONE;
  }
  if (strcmp(name, "--version") == 0) {
    printf("halyard %s\n", hy_version());
    return CLI_DONE;
  }
  const char* names[N_COMMANDS];
  for (int i = 0; i < N_COMMANDS; i++) {
    names[i] = commands[i]->name;
    if (strcmp(name, names[i]) != 0) continue;
    int code = commands[i]->run(argc - 1, argv + 1);
    hy_status traced = hy_trace_stop();
    if (traced != HY_OK && code == CLI_DONE) code = cli_fail(traced);
    hy_shutdown();
    return code;
  }
  const char* near = cli_nearest(name, names, N_COMMANDS);
  fprintf(stderr, "halyard: no command '%s'%s%s%s\nTry 'halyard --help'.\n", name,
          near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
  return CLI_USAGE;
}

int main(int argc, char** argv) {
  // A file that grows beyond its limit is an error to report and to clean up after, not an end.
  signal(SIGXFSZ, SIG_IGN);
  return finish(run(argc, argv));
}
