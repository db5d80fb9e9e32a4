// Options of the commands that run a model.
#ifndef HALYARD_CLI_MODEL_OPTIONS_H_
#define HALYARD_CLI_MODEL_OPTIONS_H_

#include <stdlib.h>

#include "cli/cli.h"
#include "halyard/model.h"

enum { MODEL_OPTIONS = 15 };

typedef struct model_options {
  const char *folder, *adapter, *prompt, *ids, *dtype;
  cli_texts stops;
  bool cache_packed;
  int64_t seed;
  hy_weight_format format;
  hy_generate_options generate;
} model_options;

// Fills `options` with MODEL_OPTIONS entries that write into `o`.
void model_options_init(model_options* o, cli_option* options);
// After parsing: what is needed (but a prompt), names of types. Returns an exit code.
int model_options_check(const cli_command* command, model_options* o);
// For hy_model_load_with.
hy_load_options model_load_options(const model_options* o);
// The prompt as ids, from --prompt or --ids; freed by the caller. Returns an exit code.
int model_prompt(const cli_command* command, const hy_model* model, const model_options* o,
                 int32_t** ids, int64_t* n);

// A text that grows, with a zero behind it.
typedef struct string_builder {
  char* bytes;  // NULL until something was appended; freed by the caller
  size_t length;
} string_builder;
bool string_append(string_builder* t, const char* more,
                   size_t length);  // false when there is no memory

#endif  // HALYARD_CLI_MODEL_OPTIONS_H_
