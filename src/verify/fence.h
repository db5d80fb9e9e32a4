// Guard pages: memory that ends where nobody may read or write, for devices that compute in the
// host's memory. A byte written behind an output is found even where it is the same byte.
#ifndef HALYARD_VERIFY_FENCE_H_
#define HALYARD_VERIFY_FENCE_H_

#include "halyard/tensor.h"

enum { HY__FENCES = 4 };  // as many outputs of a call can be fenced

// One user at a time in a process: whoever touches the pages, on any thread, comes by the handler
// of SIGSEGV that this installs, and goes on.
hy_status hy__fence_open(void);
void hy__fence_close(void);
// Where memory of `bytes` ends at guard page number `fence`; NULL where there is none.
unsigned char* hy__fence_end(int fence, size_t bytes);
// The number of a guard page that was touched since the last call, or -1.
int hy__fence_touched(void);

#endif  // HALYARD_VERIFY_FENCE_H_
