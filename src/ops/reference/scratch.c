// Working memory of a reference kernel.
#include "ops/reference/scratch.h"

#include <string.h>

#include "ops/reference/slices.h"

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

void* hy__scratch_zero(const hy_call* call, int64_t rows, int64_t columns) {
  void* p = hy__scratch(call, rows, columns);
  return p ? memset(p, 0, (size_t)rows * (size_t)columns * sizeof(double)) : NULL;
}

double* hy__scratch_of(const hy_call* call, const hy_tensor* t) {
  double* values = hy__scratch(call, hy_tensor_numel(t), 1);
  if (values) hy__load_all_f(t, values);
  return values;
}
