// Conformance of devices, by topic: what the checks of copies, order, memory and threads share.
#ifndef HALYARD_VERIFY_DEVICE_CHECKS_H_
#define HALYARD_VERIFY_DEVICE_CHECKS_H_

#include "verify/verify.h"

// One case; the first failure's words are kept. Returns `passed`.
bool hy__judge(hy__op_verdict* v, bool passed, const char* format, ...)
    __attribute__((format(printf, 3, 4)));
bool hy__judge_status(hy__op_verdict* v, hy_status status, const char* what);

// Bytes that differ along a block and from one `salt` to the next.
void hy__fill_pattern(unsigned char* bytes, size_t n, unsigned salt);
// The first byte of `got` that is not as in the pattern, or n.
size_t hy__pattern_ends(const unsigned char* got, size_t n, unsigned salt);

// A call that one of the device's own providers runs, over f32 matrices of HY__NATIVE_ROWS rows and
// columns, and that writes every element of its output.
enum { HY__NATIVE_ROWS = 64, HY__NATIVE_BYTES = HY__NATIVE_ROWS * HY__NATIVE_ROWS * 4 };
typedef struct hy__native_call {
  hy_call call;
  hy_tensor in[3], out;
} hy__native_call;
// Over device memory of HY__NATIVE_BYTES each. False where the device runs none of those tried.
bool hy__native_find(hy_device* device, void* out, void* a, void* b, hy__native_call* n);

#endif  // HALYARD_VERIFY_DEVICE_CHECKS_H_
