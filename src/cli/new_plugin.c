// halyard new-plugin: a folder with a backend to start from, which builds and passes conformance.
#include <ctype.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/embed.h"
#include "cli/new_folder.h"

static int run(int argc, char** argv);
const cli_command cli_new_plugin = {
    "new-plugin", "NAME ", "Write a plugin for a new chip, to start from: see the tutorial",
    "halyard new-plugin mychip --queue", run};

// The examples, in which the chip's name is a word of its own.
EMBED("template_tiny", HALYARD_TEMPLATES "/tiny.c");
EMBED("template_lazy", HALYARD_TEMPLATES "/lazy.c");
extern const char template_tiny[], template_tiny_end[];
extern const char template_lazy[], template_lazy_end[];

typedef struct plugin_template {
  const char *name, *text, *end;
} plugin_template;

static const char build_rules[] =
    "cmake_minimum_required(VERSION 3.18)\n"
    "project(halyard_@ C)\n"
    "\n"
    "find_package(halyard REQUIRED)\n"
    "find_package(Threads REQUIRED)\n"
    "\n"
    "add_library(halyard_@ MODULE @.c)\n"
    "target_compile_features(halyard_@ PRIVATE c_std_11)\n"
    "target_link_libraries(halyard_@ PRIVATE halyard::headers Threads::Threads m)\n"
    "\n"
    "install(TARGETS halyard_@ LIBRARY DESTINATION ${halyard_PLUGIN_DIR})\n";

static const char readme[] =
    "# A Halyard backend for @\n"
    "\n"
    "    cmake -S . -B build && cmake --build build    # -DCMAKE_PREFIX_PATH=... where Halyard is\n"
    "    export HALYARD_PLUGIN_PATH=$PWD/build\n"
    "    halyard info                                  # the device, or why it is not there\n"
    "    halyard verify --backend @                    # conformance\n"
    "    halyard run --backend @ --model DIR --prompt 'Once upon a time' --report\n"
    "\n"
    "@.c computes on the host in place of the chip. Replace in this order, with `halyard verify`\n"
    "after each: memory_alloc and copy (step 3 of the tutorial), one kernel and its declaration\n"
    "(step 5), the probe (step 6), then the kernels that `--report` counts most. The tutorial is\n"
    "installed as share/doc/halyard/tutorial-plugin.md.\n"
    "\n"
    "`HALYARD_DEBUG=poison,bounds,delay` makes what is wrong show earlier.\n";

// The example with its chip's name replaced by ours, capitalised where it is.
static void write_template(FILE* file, const plugin_template* t, const char* name) {
  size_t length = strlen(t->name);
  for (const char* at = t->text; at < t->end;) {
    bool here = (size_t)(t->end - at) >= length && strncmp(at + 1, t->name + 1, length - 1) == 0 &&
                tolower((unsigned char)*at) == t->name[0];
    if (!here) {
      fputc(*at++, file);
      continue;
    }
    fputc(isupper((unsigned char)*at) ? toupper((unsigned char)name[0]) : name[0], file);
    fputs(name + 1, file);
    at += length;
  }
}

// A text in which @ stands for the name.
static void write_text(FILE* file, const char* text, const char* name) {
  for (; *text; text++) {
    if (*text == '@')
      fputs(name, file);
    else
      fputc(*text, file);
  }
}

static hy_status create(const char* folder, const char* file, FILE** out) {
  char path[4200];
  snprintf(path, sizeof path, "%s/%s", folder, file);
  *out = fopen(path, "w");
  return *out ? HY_OK : hy_fail(HY_IO, "%s cannot be written: %s", path, strerror(errno));
}

static hy_status finish(FILE* file) {
  bool bad = ferror(file);
  bad |= fclose(file) != 0;
  return bad ? hy_fail(HY_IO, "the folder could not be written: %s", strerror(errno)) : HY_OK;
}

static hy_status fill_folder(const char* folder, const plugin_template* t, const char* name) {
  char source[64];
  FILE* file;
  snprintf(source, sizeof source, "%s.c", name);
  HY_TRY(create(folder, source, &file));
  write_template(file, t, name);
  HY_TRY(finish(file));
  HY_TRY(create(folder, "CMakeLists.txt", &file));
  write_text(file, build_rules, name);
  HY_TRY(finish(file));
  HY_TRY(create(folder, "README.md", &file));
  write_text(file, readme, name);
  return finish(file);
}

static hy_status write_plugin(const char* out, const plugin_template* t, const char* name) {
  new_folder folder;
  HY_TRY(new_folder_begin(out, &folder));
  hy_status status = fill_folder(folder.part, t, name);
  if (status == HY_OK) return new_folder_commit(&folder);
  new_folder_abandon(&folder);
  return status;
}

// As the library takes it in a selector and in the name of a file.
static bool is_good_name(const char* name) {
  size_t length = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_");
  return name[0] >= 'a' && name[0] <= 'z' && !name[length] && length < 20 &&
         strcmp(name, "cpu") != 0;
}

static int run(int argc, char** argv) {
  bool queue = false;
  const char* out = NULL;
  const cli_option options[] = {
      {"queue", CLI_FLAG, &queue, NULL, "for a chip whose work waits in a queue"},
      {"out", CLI_TEXT, &out, "DIR", "the folder to write; NAME if not given"},
  };
  int n;
  int code = cli_parse(&cli_new_plugin, options, 2, argc, argv, &n);
  if (code != CLI_DONE || n < 0) return code;
  if (n != 1) return cli_usage(&cli_new_plugin, "give the chip's name, one word");
  const char* name = argv[0];
  if (!is_good_name(name))
    return cli_usage(&cli_new_plugin,
                     "'%s' is no name for a backend: lower case letters, digits and _, at most 19, "
                     "and not cpu",
                     name);
  const plugin_template direct = {"tiny", template_tiny, template_tiny_end};
  const plugin_template queued = {"lazy", template_lazy, template_lazy_end};
  if (!out) out = name;
  hy_status status = write_plugin(out, queue ? &queued : &direct, name);
  if (status != HY_OK) return cli_fail(status);
  printf("%s: a plugin that builds and passes conformance; README.md says what to do next\n", out);
  return CLI_DONE;
}
