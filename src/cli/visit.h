// The commands and their options as data, for what is written about them: man pages, completion.
#ifndef HALYARD_CLI_VISIT_H_
#define HALYARD_CLI_VISIT_H_

#include "cli/cli.h"

typedef void cli_visitor(void* context, const cli_command* command, const cli_option* options,
                         int n_options);
// Hands the command's own options to the visitor, without running the command. Options have the
// scope of the function that parses them, so they are met there: on the way into cli_parse.
void cli_visit(const cli_command* command, cli_visitor* visitor, void* context);
// What cli_parse asks first: whether this is a visit, and so no command line.
bool cli_visited(const cli_command* command, const cli_option* options, int n_options);

// The options of every command.
const cli_option* cli_global_options(int* n);

// What a value may be, as told by its name: DIR, FILE, OP, a device, or words such as "f32|bf16".
// Other names (N, TEXT) promise nothing and are passed over.
typedef enum cli_value {
  CLI_VALUE_WORD,
  CLI_VALUE_FOLDER,
  CLI_VALUE_FILE,
  CLI_VALUE_OP,
  CLI_VALUE_DEVICE
} cli_value;
typedef void cli_value_visitor(void* context, cli_value kind, const char* name);
void cli_each_value(const char* value_name, cli_value_visitor* visitor, void* context);

#endif  // HALYARD_CLI_VISIT_H_
