// The plugin ABI as version 0.1 had it: these headers and tiny.c are what a plugin of then was
// built from. They never change; a plugin made of them must load and pass conformance for as long
// as HY_ABI_VERSION is 1.
#include "halyard/plugin.h"

#if defined(__LP64__)
_Static_assert(HY_ABI_VERSION == 1, "the frozen headers are of ABI 1");
_Static_assert(sizeof(hy_backend) == 248, "hy_backend is as long as in 0.1");
_Static_assert(sizeof(hy_provider) == 72, "hy_provider is as long as in 0.1");
_Static_assert(sizeof(hy_host) == 72, "hy_host is as long as in 0.1");
#endif
