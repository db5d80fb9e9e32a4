// The library's services (hy_host) as the backends compiled into it see them: one table for all.
#include "backends/common/host.h"

const hy_host* hy__backend_host;
