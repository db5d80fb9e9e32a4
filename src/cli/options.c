// Reading the command line.
#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/edit_distance.h"
#include "cli/cli.h"
#include "cli/visit.h"
#include "halyard/comm.h"
#include "halyard/trace.h"

cli_globals cli = {.threads = CLI_NOT_GIVEN};

static const cli_option global_options[] = {
    {"backend", CLI_TEXT, &cli.backend, "NAME[:INDEX]",
     "device to use, such as cpu or cuda:1; a provider's name prefers it"},
    {"fallback", CLI_TEXT, &cli.fallback, "A,B,C",
     "devices to try in order where the first is not available"},
    {"strict", CLI_FLAG, &cli.strict, NULL,
     "an op the device lacks is an error, not a fallback to the cpu"},
    {"threads", CLI_INT, &cli.threads, "N", "threads for the cpu's kernels (one a usable core)"},
    {"trace", CLI_TEXT, &cli.trace, "FILE", "write a Chrome/Perfetto trace of every op"},
    {"json", CLI_FLAG, &cli.json, NULL, "print for machines"},
};
#define N_GLOBALS ((int)(sizeof global_options / sizeof global_options[0]))

const cli_option* cli_global_options(int* n) {
  *n = N_GLOBALS;
  return global_options;
}

const char* cli_nearest(const char* word, const char* const* names, int n) {
  const char* best = NULL;
  int least = (int)strlen(word) / 2 + 1;
  for (int i = 0; i < n; i++) {
    int d = hy__edit_distance(word, names[i]);
    if (d < least) {
      least = d;
      best = names[i];
    }
  }
  return best;
}

int cli_usage(const cli_command* command, const char* format, ...) {
  char text[400];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  fprintf(stderr, "halyard %s: %s\nTry 'halyard %s --help'.\n", command->name, text, command->name);
  return CLI_USAGE;
}

static void print_options(const cli_option* options, int n) {
  for (int i = 0; i < n; i++) {
    char left[64];
    snprintf(left, sizeof left, "--%s%s%s", options[i].name, options[i].value_name ? " " : "",
             options[i].value_name ? options[i].value_name : "");
    printf("  %-26s %s\n", left, options[i].help);
  }
}

static void print_help(const cli_command* command, const cli_option* options, int n) {
  printf("%s\n\nUsage: halyard %s %s[options]\n", command->summary, command->name,
         command->arguments);
  if (n > 0) printf("\nOptions:\n");
  print_options(options, n);
  printf("\nFor every command:\n");
  print_options(global_options, N_GLOBALS);
  printf("\nExample:\n  %s\n", command->example);
}

static const cli_option* find_option(const char* name, size_t length, const cli_option* options,
                                     int n) {
  for (int i = 0; i < n; i++) {
    if (strlen(options[i].name) == length && memcmp(options[i].name, name, length) == 0)
      return &options[i];
  }
  return NULL;
}

static int set_option(const cli_command* command, const cli_option* option, const char* value) {
  char* end;
  errno = 0;
  switch (option->kind) {
    case CLI_FLAG: *(bool*)option->target = true; return CLI_DONE;
    case CLI_TEXT: *(const char**)option->target = value; return CLI_DONE;
    case CLI_TEXTS: {
      cli_texts* texts = option->target;
      if (texts->n == CLI_MOST_TEXTS)
        return cli_usage(command, "--%s can be given %d times at most", option->name,
                         CLI_MOST_TEXTS);
      texts->list[texts->n++] = value;
      return CLI_DONE;
    }
    case CLI_INT: {
      long long number = strtoll(value, &end, 10);
      if (errno || end == value || *end)
        return cli_usage(command, "--%s takes a whole number, not '%s'", option->name, value);
      *(int64_t*)option->target = number;
      return CLI_DONE;
    }
    case CLI_REAL: {
      double number = strtod(value, &end);
      if (errno || end == value || *end || !isfinite(number))
        return cli_usage(command, "--%s takes a number, not '%s'", option->name, value);
      *(double*)option->target = number;
      return CLI_DONE;
    }
  }
  return CLI_DONE;
}

static int unknown_option(const cli_command* command, const char* word, const cli_option* options,
                          int n) {
  const char* names[64];
  int count = 0;
  for (int i = 0; i < n && count < 64; i++) names[count++] = options[i].name;
  for (int i = 0; i < N_GLOBALS && count < 64; i++) names[count++] = global_options[i].name;
  const char* near = cli_nearest(word + 2, names, count);
  if (near) return cli_usage(command, "no option '%s'; did you mean --%s?", word, near);
  return cli_usage(command, "no option '%s'", word);
}

bool cli_asks_for_help(const char* word) {
  return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
}

int cli_parse(const cli_command* command, const cli_option* options, int n_options, int argc,
              char** argv, int* n_positional) {
  *n_positional = -1;
  if (cli_visited(command, options, n_options)) return CLI_DONE;
  *n_positional = 0;
  for (int i = 1; i < argc; i++) {
    const char* word = argv[i];
    if (cli_asks_for_help(word)) {
      print_help(command, options, n_options);
      *n_positional = -1;
      return CLI_DONE;
    }
    if (strncmp(word, "--", 2) != 0 || word[2] == 0) {
      argv[(*n_positional)++] = argv[i];
      continue;
    }
    const char* equals = strchr(word, '=');
    size_t length = equals ? (size_t)(equals - word) - 2 : strlen(word) - 2;
    const cli_option* option = find_option(word + 2, length, options, n_options);
    if (!option) option = find_option(word + 2, length, global_options, N_GLOBALS);
    if (!option) return unknown_option(command, word, options, n_options);
    const char* value = equals ? equals + 1 : NULL;
    if (option->kind == CLI_FLAG && value)
      return cli_usage(command, "--%s takes no value", option->name);
    if (option->kind != CLI_FLAG && !value) {
      if (i + 1 >= argc)
        return cli_usage(command, "--%s needs %s", option->name, option->value_name);
      value = argv[++i];
    }
    int code = set_option(command, option, value);
    if (code != CLI_DONE) return code;
  }
  if (*n_positional > 0 && command->arguments[0] == 0)
    return cli_usage(command, "'%s' is one word too many", argv[0]);
  return CLI_DONE;
}

// Of several processes each says which one it is.
static void print_failure(const char* message) {
  char text[1024];
  int rank, size;
  snprintf(text, sizeof text, "%s", message);
  if (hy_comm_world_rank(&rank, &size) == HY_OK && size > 1)
    fprintf(stderr, "halyard, rank %d of %d: %s\n", rank, size, text);
  else
    fprintf(stderr, "halyard: %s\n", text);
}

int cli_fail(hy_status status) {
  print_failure(hy_last_error()[0] ? hy_last_error() : hy_status_text(status));
  switch (status) {
    case HY_UNAVAILABLE:
    case HY_NOT_FOUND: return CLI_NO_DEVICE;
    case HY_IO:
    case HY_FORMAT: return CLI_BAD_FILE;
    case HY_INVALID_ARGUMENT: return CLI_USAGE;
    default: return CLI_FAILED;
  }
}

// The cpu's, whichever device is asked for: what that one lacks runs there.
static hy_status set_threads(void) {
  if (cli.threads == CLI_NOT_GIVEN) return HY_OK;
  hy_device* cpu;
  HY_TRY(hy_device_get("cpu", &cpu));
  int n = cli.threads > INT_MAX ? INT_MAX : cli.threads < 0 ? -1 : (int)cli.threads;
  hy_status status = hy_device_set_threads(cpu, n);
  return status == HY_OK ? HY_OK : hy_fail(status, "--threads: %s", hy_last_error());
}

// The list of --backend and --fallback, or --backend alone.
static hy_status get_device(hy_device** device) {
  char list[512];
  int length = snprintf(list, sizeof list, "%s%s%s", cli.backend ? cli.backend : "",
                        cli.backend && cli.fallback ? "," : "", cli.fallback ? cli.fallback : "");
  if (length >= (int)sizeof list)
    return hy_fail(HY_INVALID_ARGUMENT, "--backend and --fallback are too long");
  if (cli.of_local_rank) return hy_comm_world_device(list, device);
  return cli.fallback ? hy_device_get_first(list, device) : hy_device_get(cli.backend, device);
}

int cli_open_device(hy_device** device) {
  if (cli.strict) hy_set_strict(true);
  hy_status status = set_threads();
  if (status == HY_OK && cli.trace) status = hy_trace_start(cli.trace);
  if (status != HY_OK) return cli_fail(status);
  status = get_device(device);
  return status == HY_OK ? CLI_DONE : cli_fail(status);
}
