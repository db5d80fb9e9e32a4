// The commands and their options as data, for what is written about them: man pages, completion.
#include "cli/visit.h"

#include <ctype.h>
#include <string.h>

static cli_visitor* visiting;
static void* visiting_context;

void cli_visit(const cli_command* command, cli_visitor* visitor, void* context) {
  char name[32];
  snprintf(name, sizeof name, "%s", command->name);
  char* argv[] = {name, NULL};
  visiting = visitor;
  visiting_context = context;
  command->run(1, argv);
  visiting = NULL;
}

bool cli_visited(const cli_command* command, const cli_option* options, int n_options) {
  if (!visiting) return false;
  visiting(visiting_context, command, options, n_options);
  return true;
}

// The part of `names` between `*at` and the next bar, and `*at` behind it.
static bool next_name(const char** at, char* name, size_t size) {
  size_t length = strcspn(*at, "| ");
  if (length == 0) return false;
  snprintf(name, size, "%.*s", (int)length, *at);
  *at += length;
  if (**at == '|') ++*at;
  return true;
}

static bool has_lower(const char* name) {
  while (*name && !islower((unsigned char)*name)) name++;
  return *name != 0;
}

void cli_each_value(const char* value_name, cli_value_visitor* visitor, void* context) {
  char name[64];
  for (const char* at = value_name; next_name(&at, name, sizeof name);) {
    if (strcmp(name, "DIR") == 0)
      visitor(context, CLI_VALUE_FOLDER, name);
    else if (strncmp(name, "FILE", 4) == 0)
      visitor(context, CLI_VALUE_FILE, name);
    else if (strcmp(name, "OP") == 0)
      visitor(context, CLI_VALUE_OP, name);
    else if (strcmp(name, "NAME[:INDEX]") == 0 || strcmp(name, "A,B,C") == 0)
      visitor(context, CLI_VALUE_DEVICE, name);
    else if (has_lower(name))
      visitor(context, CLI_VALUE_WORD, name);
  }
}
