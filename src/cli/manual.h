// Man pages of halyard and of each command.
#ifndef HALYARD_CLI_MANUAL_H_
#define HALYARD_CLI_MANUAL_H_

#include "halyard/status.h"

// Writes halyard.1 and halyard-<command>.1 into the folder, which is made where it is missing.
hy_status cli_write_manual(const char* folder);

#endif  // HALYARD_CLI_MANUAL_H_
