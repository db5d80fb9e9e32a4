// A folder being written under "<path>.part", which takes its name when all of it is there.
#ifndef HALYARD_CLI_NEW_FOLDER_H_
#define HALYARD_CLI_NEW_FOLDER_H_

#include "halyard/status.h"

typedef struct new_folder {
  char path[4096], part[4096 + 8];
} new_folder;

// HY_IO where `path` is there already and not empty, or cannot be made. A part that an earlier
// program left is used again.
hy_status new_folder_begin(const char* path, new_folder* folder);
hy_status new_folder_commit(new_folder* folder);  // on failure the part is gone
void new_folder_abandon(const new_folder* folder);

#endif  // HALYARD_CLI_NEW_FOLDER_H_
