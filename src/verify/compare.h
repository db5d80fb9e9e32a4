// Comparing what a device left in memory with what the reference left.
#ifndef HALYARD_VERIFY_COMPARE_H_
#define HALYARD_VERIFY_COMPARE_H_

#include "verify/tolerance.h"

// The tensor in a copy of the case's image.
hy_tensor hy__rebase(const hy__case* c, const hy_tensor* t, void* image);

// `mask` gets 1 for each byte of the image that belongs to an element of an output, 0 elsewhere.
void hy__mark_outputs(const hy__case* c, unsigned char* mask);
// False and a message when a byte outside the outputs differs from the case's image.
bool hy__check_untouched(const hy__case* c, const unsigned char* mask, const unsigned char* got,
                         char* message, size_t size);
// False and a message that names the worst element when an output differs by more than its
// tolerance. NaN equals NaN; an infinity equals itself alone.
bool hy__check_outputs(const hy__case* c, const unsigned char* want, const unsigned char* got,
                       char* message, size_t size);
// The same for two tensors of one shape and type.
bool hy__check_tensor(const hy_tensor* want, const hy_tensor* got, hy__tolerance tolerance,
                      const char* name, char* message, size_t size);

#endif  // HALYARD_VERIFY_COMPARE_H_
