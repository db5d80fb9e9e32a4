// Comparing what a device left in memory with what the reference left.
#ifndef HALYARD_VERIFY_COMPARE_H_
#define HALYARD_VERIFY_COMPARE_H_

#include "verify/tolerance.h"

// The tensor in a copy of the case's image.
hy_tensor hy__rebase(const hy__case* c, const hy_tensor* t, void* image);

// Which bytes of an image a call may write: none outside of [begin, end), and there those that are
// not 0 in `mask`; all of them where that is NULL.
typedef struct hy__writable {
  size_t begin, end;
  const unsigned char* mask;
} hy__writable;
// The elements of the outputs. `mask` is memory as large as the image.
hy__writable hy__writable_outputs(const hy__case* c, unsigned char* mask);
// False and a message when another byte differs from the case's image.
bool hy__check_untouched(const hy__case* c, const hy__writable* writable, const unsigned char* got,
                         char* message, size_t size);
// False and a message that names the worst element when an output differs by more than its
// tolerance. NaN equals NaN; an infinity equals itself alone.
bool hy__check_outputs(const hy__case* c, const unsigned char* want, const unsigned char* got,
                       char* message, size_t size);
// The same for two tensors of one shape and type.
bool hy__check_tensor(const hy_tensor* want, const hy_tensor* got, hy__tolerance tolerance,
                      const char* name, char* message, size_t size);

#endif  // HALYARD_VERIFY_COMPARE_H_
