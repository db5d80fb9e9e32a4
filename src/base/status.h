// The calling thread's last error message, and whether there is a new one.
#ifndef HALYARD_BASE_STATUS_H_
#define HALYARD_BASE_STATUS_H_

#include "halyard/status.h"

// How many messages the calling thread has had: one that is older than a failure is not its reason.
unsigned hy__failures(void);

#endif  // HALYARD_BASE_STATUS_H_
