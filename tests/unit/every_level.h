// A kernel family of the cpu beside the reference: at every level of instructions, with one thread
// and several. For a file that defines OUTPUT_BYTES, the most that one output takes.
#ifndef HALYARD_TESTS_EVERY_LEVEL_H_
#define HALYARD_TESTS_EVERY_LEVEL_H_

#include <math.h>
#include <string.h>

#include "backends/cpu/runtime/thread_pool.h"
#include "backends/cpu/simd/half.h"
#include "reference_call.h"
#include "support/isa_levels.h"

static unsigned char want[3][OUTPUT_BYTES], got[2][3][OUTPUT_BYTES];

// How far an element may be off, for its size and beside it.
typedef struct tolerance {
  double relative, absolute;
} tolerance;

static double value_at(const void* data, int64_t i, hy_dtype dtype) {
  if (dtype == HY_I64) return (double)((const int64_t*)data)[i];
  return (double)hy__load1((const char*)data + i * (int64_t)hy_dtype_size(dtype), dtype);
}

static void compare_output(const hy_tensor* out, int o, tolerance limit, const char* what,
                           const char* level) {
  for (int64_t i = 0; i < hy_tensor_numel(out); i++) {
    double x = value_at(want[o], i, out->dtype), y = value_at(got[0][o], i, out->dtype);
    if (x != y && !(fabs(x - y) <= limit.relative * fabs(x) + limit.absolute))
      fail_msg("%s, %s: element %lld of %d is %g and should be %g", what, level, (long long)i, o, y,
               x);
  }
}

static void agree(const hy__cpu_family* family, hy_call call, tolerance bf16, tolerance others,
                  const char* what) {
  hy_tensor out[3];
  for (int o = 0; o < call.n_out; o++) {
    out[o] = call.out[o];
    out[o].data = want[o];
  }
  call.out = out;
  if (hy__reference(&call) != HY_OK) fail_msg("%s", hy_last_error());
  assert_int_equal(family->supports(&call), HY_SUPPORT_YES);
  int threads = hy__pool_threads();
  for (isa_level level = ISA_SCALAR; level < ISA_LEVELS; level++) {
    for (int several = 0; several < 2; several++) {
      hy__pool_set_threads(several ? 3 : 1);
      memset(got[several], 0xff, sizeof got[several]);
      for (int o = 0; o < call.n_out; o++) out[o].data = got[several][o];
      assert_int_equal((family->run)(kernels_up_to(level), &call), HY_OK);
    }
    assert_memory_equal(got[0], got[1], sizeof got[0]);
    for (int o = 0; o < call.n_out; o++)
      compare_output(&out[o], o, out[o].dtype == HY_BF16 ? bf16 : others, what,
                     hy__isa_name(isa_up_to(level)));
  }
  hy__pool_set_threads(threads);
}

#endif  // HALYARD_TESTS_EVERY_LEVEL_H_
