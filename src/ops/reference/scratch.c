#include "ops/reference/scratch.h"

void* hy__scratch(const hy_call* call, int64_t rows, int64_t columns) {
  size_t bytes;
  bool fits = !__builtin_mul_overflow((size_t)rows, (size_t)columns, &bytes) &&
              !__builtin_mul_overflow(bytes, sizeof(double), &bytes);
  void* p = fits ? hy__malloc(bytes ? bytes : 1) : NULL;
  if (!p)
    hy__call_fail(call, HY_OUT_OF_MEMORY, "no host memory for %lld x %lld working numbers",
                  (long long)rows, (long long)columns);
  return p;
}
