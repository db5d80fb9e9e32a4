// The library's services (hy_host) as the backends compiled into it see them: one table for all.
#ifndef HALYARD_COMMON_HOST_H_
#define HALYARD_COMMON_HOST_H_

#include "halyard/plugin.h"

// Set by each backend's query function, to the same table; NULL before the first.
extern const hy_host* hy__backend_host;

#endif  // HALYARD_COMMON_HOST_H_
