// The cpu's matrix products, of every level of instructions that this processor has, against the
// reference: all types, strides, sizes around the edges of tiles and blocks, few rows and many.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "backends/cpu/simd/half.h"
#include "support/every_level.h"

enum { SPAN = 1 << 21 };  // elements of each operand's memory
static unsigned char memory[4][SPAN * 4];
static uint32_t random_state = 1;

static float draw(void) {
  random_state = random_state * 1664525 + 1013904223;
  return (float)(int32_t)random_state * 0x1p-31f;
}

static void fill(void* data, hy_dtype dtype, int64_t count) {
  for (int64_t i = 0; i < count; i++)
    hy__store1((char*)data + i * (int64_t)hy_dtype_size(dtype), dtype, draw());
}

// A matrix or a batch of them: transposed in memory, or with gaps between rows.
static hy_tensor place(int slot, hy_dtype dtype, int64_t batches, int64_t m, int64_t n, int how) {
  hy_tensor t = tensor(memory[slot], dtype, batches, m, n);
  if (how == 1) {
    t.stride[1] = 1;
    t.stride[2] = m;
  } else if (how == 2) {
    t.stride[1] = n + 3;
    t.stride[0] = m * (n + 3);
  } else if (how == 3) {
    t.stride[2] = 2;
    t.stride[1] = 2 * n + 1;
    t.stride[0] = m * (2 * n + 1);
  }
  return t;
}

static void check(hy_dtype dtype, const int64_t* size, int a_how, int b_how, int out_how) {
  int64_t batches = size[0], m = size[1], n = size[2], k = size[3];
  char what[96];
  snprintf(what, sizeof what, "bmm %s %lldx%lldx%lldx%lld strides %d%d%d", hy_dtype_name(dtype),
           (long long)batches, (long long)m, (long long)n, (long long)k, a_how, b_how, out_how);
  hy_tensor in[2] = {place(0, dtype, batches, m, k, a_how), place(1, dtype, batches, k, n, b_how)};
  hy_tensor out = place(2, dtype, batches, m, n, out_how);
  for (int i = 0; i < 2; i++) {
    int64_t first, last;
    hy_tensor_extent(&in[i], &first, &last);
    assert_true(last <= (int64_t)sizeof memory[0]);
    fill(in[i].data, dtype, last / (int64_t)hy_dtype_size(dtype));
  }
  hy_call call = {.op = HY_OP_bmm, .n_in = 2, .n_out = 1, .in = in, .out = &out};
  double allowed = 4 * unit_of(dtype) + 0x1p-23 * (double)k;
  agree(&hy__cpu_matmul, call, (tolerance){allowed, allowed}, (tolerance){allowed, allowed}, what);
}

static void every_level_agrees(void** state) {
  (void)state;
  static const hy_dtype dtypes[] = {HY_F32, HY_BF16, HY_F16};
  static const int64_t sizes[][4] = {
      {1, 1, 1, 1},    {1, 14, 32, 256}, {1, 15, 33, 257},  {1, 1, 97, 896},
      {1, 4, 64, 131}, {1, 17, 31, 15},  {1, 7, 1, 300},    {3, 5, 6, 7},
      {9, 20, 40, 30}, {1, 70, 70, 600}, {1, 13, 39, 2600}, {1, 2, 5, 4500},
  };
  for (int t = 0; t < 3; t++) {
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
      for (int how = 0; how < 16; how++) check(dtypes[t], sizes[s], how % 4, how / 4, how % 3);
    }
  }
}

// One thread and five give the same bits.
static void threads_do_not_show(void** state) {
  (void)state;
  static const int64_t rows[] = {1, 5, 16, 40, 300};
  for (int i = 0; i < 5; i++) {
    hy_tensor in[2] = {place(0, HY_F32, 1, rows[i], 700, 0), place(1, HY_F32, 1, 700, 120, 1)};
    fill(memory[0], HY_F32, rows[i] * 700);
    fill(memory[1], HY_F32, 700 * 120);
    for (int threads = 1; threads <= 5; threads += 4) {
      hy_tensor out = place(threads == 1 ? 2 : 3, HY_F32, 1, rows[i], 120, 0);
      hy_call call = {.op = HY_OP_bmm, .n_in = 2, .n_out = 1, .in = in, .out = &out};
      hy__pool_set_threads(threads);
      isa_level best = ISA_AVX512;
      assert_int_equal((hy__cpu_matmul.run)(kernels_up_to(best), &call), HY_OK);
    }
    assert_memory_equal(memory[2], memory[3], (size_t)rows[i] * 120 * 4);
  }
}

static void linear_adds_its_bias(void** state) {
  (void)state;
  float x[2 * 3] = {1, 2, 3, 4, 5, 6}, w[2 * 3] = {1, 0, -1, 2, 2, 2}, bias[2] = {10, 20}, y[4];
  hy_tensor in[3] = {tensor(x, HY_F32, 2, 1, 3), tensor(w, HY_F32, 2, 3), tensor(bias, HY_F32, 2)};
  hy_tensor out = tensor(y, HY_F32, 2, 1, 2);
  hy_call call = {.op = HY_OP_linear, .n_in = 3, .n_out = 1, .in = in, .out = &out};
  for (isa_level level = ISA_SCALAR; level < ISA_LEVELS; level++) {
    assert_int_equal((hy__cpu_matmul.run)(kernels_up_to(level), &call), HY_OK);
    assert_floats(y, 8, 32, 8, 50);
  }
}

// An addend that is a row, a column, a number or the output itself; a beta of 0 reads nothing.
static void addmm_broadcasts_its_addend(void** state) {
  (void)state;
  float a[2] = {1, 2}, b[2] = {3, 4}, row[2] = {10, 20}, column[2] = {30, 40}, y[4];
  hy_tensor in[3] = {tensor(row, HY_F32, 2), tensor(a, HY_F32, 2, 1), tensor(b, HY_F32, 1, 2)};
  hy_tensor out = tensor(y, HY_F32, 2, 2);
  hy_call call = {.op = HY_OP_addmm, .n_in = 3, .n_out = 1, .in = in, .out = &out};
  call.attrs.addmm.alpha = hy_int(2);
  call.attrs.addmm.beta = hy_float(0.5);
  const hy__cpu_kernels* kernels = kernels_up_to(ISA_AVX512);
  assert_int_equal((hy__cpu_matmul.run)(kernels, &call), HY_OK);
  assert_floats(y, 11, 18, 17, 26);
  in[0] = tensor(column, HY_F32, 2, 1);
  assert_int_equal((hy__cpu_matmul.run)(kernels, &call), HY_OK);
  assert_floats(y, 21, 23, 32, 36);
  in[0] = out;
  assert_int_equal((hy__cpu_matmul.run)(kernels, &call), HY_OK);
  assert_floats(y, 16.5f, 19.5f, 28, 34);
  row[0] = row[1] = NAN;
  in[0] = tensor(row, HY_F32, 2);
  call.attrs.addmm.beta = hy_int(0);
  assert_int_equal((hy__cpu_matmul.run)(kernels, &call), HY_OK);
  assert_floats(y, 6, 8, 12, 16);
}

static void rows_that_do_not_collapse_are_refused(void** state) {
  (void)state;
  hy_tensor in[3] = {tensor(memory[0], HY_F32, 2, 3, 4), tensor(memory[1], HY_F32, 5, 4),
                     hy_tensor_absent()};
  hy_tensor out = tensor(memory[2], HY_F32, 2, 3, 5);
  in[0].stride[0] = 100;
  hy_call call = {.op = HY_OP_linear, .n_in = 3, .n_out = 1, .in = in, .out = &out};
  assert_int_equal(hy__cpu_matmul.supports(&call), HY_SUPPORT_NO_LAYOUT);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_level_agrees),
      cmocka_unit_test(threads_do_not_show),
      cmocka_unit_test(linear_adds_its_bias),
      cmocka_unit_test(addmm_broadcasts_its_addend),
      cmocka_unit_test(rows_that_do_not_collapse_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
