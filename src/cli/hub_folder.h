// The files of a model's folder beside its weights.
#ifndef HALYARD_CLI_HUB_FOLDER_H_
#define HALYARD_CLI_HUB_FOLDER_H_

#include "halyard/status.h"

// Copies config.json and the files of the tokenizer, those that are there, each written beside and
// renamed.
hy_status hub_folder_copy(const char* from, const char* to);

#endif  // HALYARD_CLI_HUB_FOLDER_H_
