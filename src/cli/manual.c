// Man pages (roff) of halyard and of each command, from the tables of options.
#include "cli/manual.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "cli/visit.h"

// Text in which roff finds nothing to obey.
static void put(FILE* f, const char* text) {
  if (*text == '.' || *text == '\'') fputs("\\&", f);
  for (; *text; text++) {
    switch (*text) {
      case '\\': fputs("\\e", f); break;
      case '-': fputs("\\-", f); break;
      case '\'': fputs("\\(aq", f); break;
      case '`': fputs("\\(ga", f); break;
      case '^': fputs("\\(ha", f); break;
      case '~': fputs("\\(ti", f); break;
      case '|': fputs("|\\:", f); break;  // a line may end there
      default: fputc(*text, f);
    }
  }
}

static void put_line(FILE* f, const char* text) {
  put(f, text);
  fputc('\n', f);
}

static void put_head(FILE* f, const char* command, const char* summary) {
  const char* dash = command[0] ? "-" : "";
  fprintf(f, ".\\\" Written by halyard help --man.\n.TH HALYARD%s", dash);
  for (const char* c = command; *c; c++) fputc(*c >= 'a' && *c <= 'z' ? *c - 32 : *c, f);
  fprintf(f, " 1 \"\" \"halyard %s\" \"User Commands\"\n.SH NAME\n", hy_version());
  put(f, "halyard");
  put(f, dash);
  put(f, command);
  fputs(" \\- ", f);
  put_line(f, summary);
}

static void put_options(FILE* f, const cli_option* options, int n) {
  for (int i = 0; i < n; i++) {
    fputs(".TP\n\\fB\\-\\-", f);
    put(f, options[i].name);
    fputs("\\fR", f);
    if (options[i].value_name) {
      fputs(" \\fI", f);
      put(f, options[i].value_name);
      fputs("\\fR", f);
    }
    fputc('\n', f);
    put_line(f, options[i].help);
  }
}

static void put_globals(FILE* f) {
  int n;
  const cli_option* options = cli_global_options(&n);
  fputs(".SH OPTIONS OF EVERY COMMAND\n", f);
  put_options(f, options, n);
  fputs(".TP\n\\fB\\-\\-help\\fR\nPrint the options with an example.\n", f);
}

static void put_exit_status(FILE* f) {
  static const struct {
    int code;
    const char* meaning;
  } codes[] = {{CLI_DONE, "done"},
               {CLI_FAILED, "failed"},
               {CLI_USAGE, "the command line is wrong"},
               {CLI_NO_DEVICE, "the device or backend is not there"},
               {CLI_BAD_FILE, "a file cannot be read or is not in the expected format"},
               {CLI_INTERRUPTED, "interrupted"}};
  fputs(".SH EXIT STATUS\n", f);
  for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++)
    fprintf(f, ".TP\n%d\n%s\n", codes[i].code, codes[i].meaning);
}

static void put_command_page(void* file, const cli_command* command, const cli_option* options,
                             int n_options) {
  FILE* f = file;
  put_head(f, command->name, command->summary);
  fputs(".SH SYNOPSIS\n.ad l\n\\fBhalyard ", f);  // names with bars between cannot be spread
  put(f, command->name);
  fputs("\\fR ", f);
  put(f, command->arguments);
  fputs("[\\fIoptions\\fR]\n.ad b\n", f);
  if (n_options > 0) fputs(".SH OPTIONS\n", f);
  put_options(f, options, n_options);
  put_globals(f);
  fputs(".SH EXAMPLE\n.nf\n", f);
  put_line(f, command->example);
  fputs(".fi\n", f);
  put_exit_status(f);
  fputs(".SH SEE ALSO\n.BR halyard (1)\n", f);
}

static void put_main_page(FILE* f) {
  put_head(f, "", CLI_SUMMARY);
  fputs(".SH SYNOPSIS\n\\fBhalyard\\fR \\fIcommand\\fR [\\fIoptions\\fR]\n.SH COMMANDS\n", f);
  for (int i = 0; cli_command_at(i); i++) {
    fputs(".TP\n.BR halyard\\-", f);
    put(f, cli_command_at(i)->name);
    fputs(" (1)\n", f);
    put_line(f, cli_command_at(i)->summary);
  }
  put_globals(f);
  fputs(
      ".SH ENVIRONMENT\n.TP\n\\fBHALYARD_BACKEND\\fR\nthe default device\n"
      ".TP\n\\fBHALYARD_PLUGIN_PATH\\fR\nfolders and files in which plugins are looked for\n"
      ".TP\n\\fBHALYARD_LOG\\fR\n0 nothing, 1 warnings, 2 what is chosen, 3 every call\n"
      ".TP\n\\fBHALYARD_THREADS\\fR\nthreads of the cpu's kernels\n"
      ".PP\nMore are in docs/environment.md of the sources.\n",
      f);
  put_exit_status(f);
}

static hy_status write_page(const char* folder, const cli_command* command) {
  char name[64], path[4096];
  snprintf(name, sizeof name, "halyard%s%s.1", command ? "-" : "", command ? command->name : "");
  HY_TRY(hy__join_path(folder, name, path, sizeof path));
  hy__writer writer;
  HY_TRY(hy__write_begin(path, &writer));
  if (command)
    cli_visit(command, put_command_page, writer.file);
  else
    put_main_page(writer.file);
  return hy__write_commit(&writer);
}

hy_status cli_write_manual(const char* folder) {
  if (mkdir(folder, 0777) != 0 && errno != EEXIST)
    return hy_fail(HY_IO, "%s cannot be made: %s", folder, strerror(errno));
  HY_TRY(write_page(folder, NULL));
  for (int i = 0; cli_command_at(i); i++) HY_TRY(write_page(folder, cli_command_at(i)));
  return HY_OK;
}
