// Overlap of views against the plain answer: mark every byte of both.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "ops/overlap.h"
#include "ops/reference/walk.h"

enum { BYTES = 4096, CASES = 20000 };
static char memory[BYTES];

static uint64_t seed = 42;
static int64_t pick(int64_t n) {
  seed ^= seed << 13;
  seed ^= seed >> 7;
  seed ^= seed << 17;
  return (int64_t)(seed % (uint64_t)n);
}

static hy_tensor random_view(void) {
  const hy_dtype types[] = {HY_F32, HY_F16, HY_U8, HY_F64};
  hy_tensor t;
  memset(&t, 0, sizeof t);
  t.dtype = types[pick(4)];
  t.ndim = (int)pick(4);
  for (int d = 0; d < t.ndim; d++) {
    t.shape[d] = pick(5);
    t.stride[d] = pick(12) - 3;
  }
  t.data = memory + 1024 + 8 * pick(24);
  return t;
}

static bool marks_overlap(const hy_tensor* a, const hy_tensor* b) {
  static char marked[BYTES];
  memset(marked, 0, sizeof marked);
  size_t a_size = hy_dtype_size(a->dtype), b_size = hy_dtype_size(b->dtype);
  for (int64_t i = 0; i < hy_tensor_numel(a); i++)
    memset(marked + (hy__element(a, i) - memory), 1, a_size);
  for (int64_t i = 0; i < hy_tensor_numel(b); i++) {
    if (memchr(marked + (hy__element(b, i) - memory), 1, b_size)) return true;
  }
  return false;
}

static bool marks_itself(const hy_tensor* t) {
  static char marked[BYTES];
  memset(marked, 0, sizeof marked);
  for (int64_t i = 0; i < hy_tensor_numel(t); i++) {
    char* at = marked + (hy__element(t, i) - memory);
    if (*at) return true;
    *at = 1;
  }
  return false;
}

static void agrees_with_marking(void** state) {
  (void)state;
  int overlapping = 0;
  for (int i = 0; i < CASES; i++) {
    hy_tensor a = random_view(), b = random_view();
    bool expected = marks_overlap(&a, &b);
    overlapping += expected;
    if (hy__tensors_overlap(&a, &b) != expected) {
      char one[128], two[128];
      fail_msg("case %d: %s and %s, %d bytes apart, expected %d", i,
               hy_tensor_describe(&a, one, sizeof one), hy_tensor_describe(&b, two, sizeof two),
               (int)((char*)b.data - (char*)a.data), expected);
    }
    // Conservative: never misses an overlap.
    if (marks_itself(&a)) assert_true(hy__tensor_overlaps_itself(&a));
  }
  assert_in_range(overlapping, CASES / 20, CASES - CASES / 20);
}

static void knows_the_usual_views(void** state) {
  (void)state;
  hy_tensor t, u;
  hy_tensor_init(&t, memory, HY_F32, 2, (int64_t[]){8, 16});
  assert_false(hy__tensor_overlaps_itself(&t));
  hy_transpose(&u, &t, 0, 1);
  assert_false(hy__tensor_overlaps_itself(&u));
  hy_slice(&u, &t, 1, 3, 12, 2);
  assert_false(hy__tensor_overlaps_itself(&u));
  hy_tensor_init(&t, memory, HY_F32, 2, (int64_t[]){1, 16});
  hy_expand(&u, &t, 2, (int64_t[]){4, 16});
  assert_true(hy__tensor_overlaps_itself(&u));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(agrees_with_marking),
      cmocka_unit_test(knows_the_usual_views),
  };
  return cmocka_run_group_tests_name("overlap", tests, NULL, NULL);
}
