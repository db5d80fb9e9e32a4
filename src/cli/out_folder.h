// The folder a command writes to: made, checked and locked before the work begins, not after it.
#ifndef HALYARD_CLI_OUT_FOLDER_H_
#define HALYARD_CLI_OUT_FOLDER_H_

#include <stdbool.h>

#include "halyard/status.h"

typedef struct out_folder {
  const char* path;
  int lock;   // a descriptor; -1: not open
  bool made;  // it was not there before
} out_folder;

// HY_IO where it cannot be made, is no folder, cannot be written, or another command is at work in
// it. The lock goes with the process, however it ends.
hy_status out_folder_open(const char* path, out_folder* folder);
// After a failure, a folder that was made here and is still empty goes. What was never opened
// (lock -1) is left alone.
void out_folder_close(out_folder* folder, bool failed);

#endif  // HALYARD_CLI_OUT_FOLDER_H_
