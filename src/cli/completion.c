// Shell completion: halyard completion bash|zsh prints a script made from the tables of options.
#include <string.h>

#include "cli/visit.h"

static int run(int argc, char** argv);
const cli_command cli_completion = {"completion", "bash|zsh ",
                                    "Print the completion script of a shell",
                                    "source <(halyard completion bash)", run};

// The words behind a kind of value, each after a blank.
static void put_values(void* context, cli_value kind, const char* name) {
  (void)context;
  if (kind == CLI_VALUE_WORD) printf(" %s", name);
  for (int i = 0; kind == CLI_VALUE_OP && i < hy_op_count(); i++) printf(" %s", hy_op_at(i)->name);
  if (kind != CLI_VALUE_DEVICE) return;
#define HY_KNOWN_BACKEND(name, ...) printf(" " #name);
#define HY_KNOWN_PROVIDER(name, ...) printf(" " #name);
#define HY_KNOWN_PLANNER(name, ...) printf(" " #name);
#include "halyard/known_backends.def"
}

static void note_kind(void* context, cli_value kind, const char* name) {
  (void)name;
  *(unsigned*)context |= 1u << kind;
}

static unsigned kinds_of(const char* value_name) {
  unsigned kinds = 0;
  cli_each_value(value_name, note_kind, &kinds);
  return kinds;
}

static bool has(unsigned kinds, cli_value kind) {
  return kinds >> kind & 1;
}

// ---- bash ----

static void bash_words(const char* value_name) {
  cli_each_value(value_name, put_values, NULL);
}

// "    verify,--op) words=' add sub'; files=-f ;;": what follows an option of a command.
static void bash_option(const char* command, const cli_option* option) {
  unsigned kinds = option->value_name ? kinds_of(option->value_name) : 0;
  if (!option->value_name) return;
  printf("    %s,--%s) words='", command, option->name);
  bash_words(option->value_name);
  printf("'%s ;;\n", has(kinds, CLI_VALUE_FILE)     ? " files=-f"
                     : has(kinds, CLI_VALUE_FOLDER) ? " files=-d"
                                                    : "");
}

static void bash_command(void* context, const cli_command* command, const cli_option* options,
                         int n_options) {
  (void)context;
  int n_globals;
  const cli_option* globals = cli_global_options(&n_globals);
  for (int i = 0; i < n_options; i++) bash_option(command->name, &options[i]);
  printf("    %s,*) words='", command->name);
  bash_words(command->arguments);
  for (int i = 0; i < n_options; i++) printf(" --%s", options[i].name);
  for (int i = 0; i < n_globals; i++) printf(" --%s", globals[i].name);
  printf(" --help' ;;\n");
}

static void print_bash(void) {
  int n;
  const cli_option* globals = cli_global_options(&n);
  // "--op=add" and "cpu:0" reach the function in pieces, cut at COMP_WORDBREAKS.
  printf(
      "# bash completion for halyard; written by 'halyard completion bash'\n"
      "_halyard() {\n"
      "  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} words= files=\n"
      "  if [[ $word == = ]]; then word=\n"
      "  elif [[ $before == = ]]; then before=${COMP_WORDS[COMP_CWORD-2]}; fi\n"
      "  if ((COMP_CWORD == 1)); then\n    words='");
  for (int i = 0; cli_command_at(i); i++) printf("%s ", cli_command_at(i)->name);
  printf("help --help --version'\n  else case ${COMP_WORDS[1]},$before in\n    help,*) words='");
  for (int i = 0; cli_command_at(i); i++) printf("%s ", cli_command_at(i)->name);
  printf("' ;;\n");
  for (int i = 0; i < n; i++) bash_option("*", &globals[i]);
  for (int i = 0; cli_command_at(i); i++) cli_visit(cli_command_at(i), bash_command, NULL);
  printf(
      "  esac fi\n"
      "  COMPREPLY=($(compgen $files -W \"$words\" -- \"$word\"))\n"
      "}\n"
      "complete -o filenames -F _halyard halyard\n");
}

// ---- zsh ----

// Inside single quotes, in a place where brackets and colons have a meaning.
static void zsh_text(const char* text) {
  for (; *text; text++) {
    if (strchr("[]:\\", *text)) putchar('\\');
    if (*text == '\'')
      fputs("'\\''", stdout);
    else
      putchar(*text);
  }
}

static void zsh_action(const char* value_name) {
  unsigned kinds = kinds_of(value_name);
  if (has(kinds, CLI_VALUE_FILE)) {
    printf("_files");
  } else if (has(kinds, CLI_VALUE_FOLDER) && !has(kinds, CLI_VALUE_WORD)) {
    printf("_files -/");
  } else if (has(kinds, CLI_VALUE_FOLDER)) {  // words and folders
    printf("{compadd --");
    cli_each_value(value_name, put_values, NULL);
    printf("; _files -/}");
  } else if (kinds) {
    putchar('(');
    cli_each_value(value_name, put_values, NULL);
    putchar(')');
  }
}

static void zsh_options(const cli_option* options, int n) {
  for (int i = 0; i < n; i++) {
    printf(" \\\n        '%s--%s%s[", options[i].kind == CLI_TEXTS ? "*" : "", options[i].name,
           options[i].value_name ? "=" : "");
    zsh_text(options[i].help);
    putchar(']');
    if (options[i].value_name) {
      putchar(':');
      zsh_text(options[i].value_name);
      putchar(':');
      zsh_action(options[i].value_name);
    }
    putchar('\'');
  }
}

static void zsh_command(void* context, const cli_command* command, const cli_option* options,
                        int n_options) {
  (void)context;
  int n;
  const cli_option* globals = cli_global_options(&n);
  printf("    %s)\n      _arguments", command->name);
  zsh_options(options, n_options);
  zsh_options(globals, n);
  printf(" \\\n        '--help[print the options with an example]'");
  if (command->arguments[0]) {
    printf(" '*:");
    zsh_text(command->name);
    putchar(':');
    zsh_action(command->arguments);
    putchar('\'');
  }
  printf(" ;;\n");
}

static void print_zsh(void) {
  printf(
      "#compdef halyard\n"
      "# zsh completion for halyard; written by 'halyard completion zsh'\n"
      "_halyard() {\n"
      "  local -a commands=(");
  for (int i = 0; cli_command_at(i); i++) {
    printf("\n    '%s:", cli_command_at(i)->name);
    zsh_text(cli_command_at(i)->summary);
    putchar('\'');
  }
  printf(
      "\n    'help:Print the options of a command')\n"
      "  if ((CURRENT == 2)); then\n"
      "    _describe command commands\n"
      "    return\n"
      "  fi\n"
      "  local name=$words[2]\n"
      "  shift words\n"
      "  ((CURRENT--))\n"
      "  case $name in\n"
      "    help) _describe command commands ;;\n");
  for (int i = 0; cli_command_at(i); i++) cli_visit(cli_command_at(i), zsh_command, NULL);
  printf(
      "  esac\n"
      "}\n"
      "if [[ $funcstack[1] == _halyard ]]; then _halyard \"$@\"; else compdef _halyard halyard; "
      "fi\n");
}

static int run(int argc, char** argv) {
  int n;
  int code = cli_parse(&cli_completion, NULL, 0, argc, argv, &n);
  if (code != CLI_DONE || n < 0) return code;
  if (n == 1 && strcmp(argv[0], "bash") == 0)
    print_bash();
  else if (n == 1 && strcmp(argv[0], "zsh") == 0)
    print_zsh();
  else
    return cli_usage(&cli_completion, "for which shell? bash or zsh");
  return CLI_DONE;
}
