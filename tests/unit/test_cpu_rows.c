// The cpu's elementwise ops, softmax, norms and their like at sizes that threads share, against the
// reference, at every level of instructions and with one thread or several.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cpu/simd/half.h"
#include "support/every_level.h"

enum { ROWS = 203, COLUMNS = 701, COUNT = ROWS * COLUMNS };
static unsigned char memory[4][COUNT * 4], want[COUNT * 4], got[2][COUNT * 4];

static void fill(void* data, hy_dtype dtype, int64_t count) {
  static uint32_t state = 1;
  for (int64_t i = 0; i < count; i++) {
    state = state * 1664525 + 1013904223;
    float x = (float)((int32_t)(state >> 8) - (1 << 23)) * 0x1p-21f;
    hy__store1((char*)data + i * (int64_t)hy_dtype_size(dtype), dtype, x);
  }
}

static void rows_agree(const hy__cpu_family* family, hy_op op, hy_tensor* in, int n_in,
                       hy_tensor shape, hy_attrs attrs, double allowed) {
  hy_tensor out[HY_MAX_OUTPUTS] = {shape};
  hy_call call = {.op = op, .n_in = n_in, .in = in, .out = out, .attrs = attrs};
  call.n_out = hy_op_describe(op)->n_outputs;
  char what[80];
  snprintf(what, sizeof what, "%s %s", hy_op_name(op), hy_dtype_name(shape.dtype));
  tolerance limit = {unit_of(shape.dtype), allowed};
  agree(family, call, limit, limit, what);
}

static const hy_dtype dtypes[] = {HY_F32, HY_BF16, HY_F16};

static hy_tensor matrix(int slot, hy_dtype dtype) {
  fill(memory[slot], dtype, COUNT);
  return tensor(memory[slot], dtype, ROWS, COLUMNS);
}

static void elementwise(void** state) {
  (void)state;
  static const hy_op unary[] = {HY_OP_exp,  HY_OP_tanh, HY_OP_sigmoid, HY_OP_erf,
                                HY_OP_silu, HY_OP_gelu, HY_OP_relu,    HY_OP_neg};
  for (int d = 0; d < 3; d++) {
    hy_tensor in[2] = {matrix(0, dtypes[d]), matrix(1, dtypes[d])}, out = in[0];
    hy_attrs alpha = {.alpha = {hy_float(0.5)}}, none = {.gelu = {false}};
    rows_agree(&hy__cpu_elementwise, HY_OP_add, in, 2, out, alpha, 1e-6);
    rows_agree(&hy__cpu_elementwise, HY_OP_mul, in, 2, out, none, 1e-6);
    for (int i = 0; i < 8; i++) rows_agree(&hy__cpu_elementwise, unary[i], in, 1, out, none, 4e-6);
    rows_agree(&hy__cpu_elementwise, HY_OP_gelu_backward, in, 2, out, none, 4e-6);
    // A row for all, a number for each row, and an input and an output that are transposed.
    in[1] = tensor(memory[1], dtypes[d], COLUMNS);
    rows_agree(&hy__cpu_elementwise, HY_OP_add, in, 2, out, alpha, 1e-6);
    in[1] = tensor(memory[1], dtypes[d], ROWS, 1);
    rows_agree(&hy__cpu_elementwise, HY_OP_add, in, 2, out, alpha, 1e-6);
    in[1] = tensor(memory[1], dtypes[d], COLUMNS, ROWS);
    assert_int_equal(hy_transpose(&in[1], &in[1], 0, 1), HY_OK);
    rows_agree(&hy__cpu_elementwise, HY_OP_add, in, 2, out, alpha, 1e-6);
    out.stride[0] = 1;
    out.stride[1] = ROWS;
    rows_agree(&hy__cpu_elementwise, HY_OP_add, in, 2, out, alpha, 1e-6);
    rows_agree(&hy__cpu_copy_cast, HY_OP_copy, in, 1, out, none, 0);
  }
}

// Where the cube of x overflows, the gradient is 0 or 1 and no NaN.
static void gelu_gradient_of_large_numbers(void** state) {
  (void)state;
  float dy[8] = {1, 2, 1, 2, 1, 2, 1, 2},
        x[8] = {1e13f, -1e13f, 1e20f, -1e20f, 3e38f, -3e38f, 9, -9};
  hy_tensor in[2] = {tensor(dy, HY_F32, 8), tensor(x, HY_F32, 8)};
  rows_agree(&hy__cpu_elementwise, HY_OP_gelu_backward, in, 2, in[0], (hy_attrs){.gelu = {true}},
             4e-6);
}

static void along_rows(void** state) {
  (void)state;
  for (int d = 0; d < 3; d++) {
    hy_tensor in[3] = {matrix(0, dtypes[d])}, out = in[0];
    for (int dim = 0; dim < 2; dim++) {
      rows_agree(&hy__cpu_softmax, HY_OP_softmax, in, 1, out, (hy_attrs){.dim = {dim}}, 1e-6);
      rows_agree(&hy__cpu_softmax, HY_OP_log_softmax, in, 1, out, (hy_attrs){.dim = {dim}}, 4e-6);
    }
    fill(memory[1], dtypes[d], COLUMNS);
    in[1] = in[2] = tensor(memory[1], dtypes[d], COLUMNS);
    hy_attrs norm = {.norm = {1, 1e-6}};
    rows_agree(&hy__cpu_norm, HY_OP_rms_norm, in, 2, out, norm, 4e-6);
    rows_agree(&hy__cpu_norm, HY_OP_layer_norm, in, 3, out, norm, 4e-6);
    in[1] = tensor(memory[1], dtypes[d], ROWS, COLUMNS / 2);
    in[2] = tensor(memory[2], dtypes[d], COLUMNS / 2);
    fill(memory[1], dtypes[d], ROWS * (COLUMNS / 2));
    fill(memory[2], dtypes[d], COLUMNS / 2);
    in[0] = out = tensor(memory[0], dtypes[d], ROWS, COLUMNS - 1);
    rows_agree(&hy__cpu_rope, HY_OP_rope, in, 3, out, (hy_attrs){.rope = {d == 1, d == 2}}, 4e-6);
  }
}

// Heads share the angles of their position, which may be floats beside bf16.
static void rope_of_heads(void** state) {
  (void)state;
  enum { POSITIONS = 21, HEADS = 5, SIZE = 104 };
  for (int d = 0; d < 4; d++) {
    hy_dtype dtype = d < 3 ? dtypes[d] : HY_BF16, of_angles = d < 3 ? dtype : HY_F32;
    hy_tensor in[3] = {tensor(memory[0], dtype, POSITIONS, HEADS, SIZE),
                       tensor(memory[1], of_angles, POSITIONS, 1, SIZE / 2),
                       tensor(memory[2], of_angles, POSITIONS, 1, SIZE / 2)};
    fill(memory[0], dtype, POSITIONS * HEADS * SIZE);
    for (int k = 1; k < 3; k++) fill(memory[k], of_angles, POSITIONS * SIZE / 2);
    for (int way = 0; way < 4; way++)
      rows_agree(&hy__cpu_rope, HY_OP_rope, in, 3, in[0], (hy_attrs){.rope = {way % 2, way / 2}},
                 4e-6);
  }
}

// In place and with moments of another type than the parameter's.
static void adamw(void** state) {
  (void)state;
  for (int d = 0; d < 4; d++) {
    hy_dtype dtype = d < 3 ? dtypes[d] : HY_BF16, of_state = d < 3 ? dtype : HY_F32;
    hy_attrs attrs = {.adamw = {0.01, 0.9, 0.999, 1e-8, 0.1, 3, d == 1}};
    static unsigned char original[4][COUNT * 4];
    hy_tensor in[4], out[3];
    for (int k = 0; k < 4; k++) {
      in[k] = tensor(memory[k], k == 1 || k == 2 ? of_state : dtype, COUNT);
      fill(memory[k], in[k].dtype, COUNT);
    }
    for (int i = 0; i < COUNT; i++) {  // squares
      char* at = (char*)memory[2] + i * (int64_t)hy_dtype_size(of_state);
      hy__store1(at, of_state, fabsf(hy__load1(at, of_state)));
    }
    memcpy(original, memory, sizeof original);
    memcpy(out, in, sizeof out);
    out[0].data = want;
    out[1].data = got[0];
    out[2].data = got[1];
    hy_call call = {.op = HY_OP_adamw, .n_in = 4, .n_out = 3, .in = in, .out = out, .attrs = attrs};
    assert_int_equal(hy__reference(&call), HY_OK);
    for (isa_level level = ISA_SCALAR; level < ISA_LEVELS; level++) {
      memcpy(memory, original, sizeof original);
      hy_call again = call;
      again.out = in;
      assert_int_equal((hy__cpu_adamw.run)(kernels_up_to(level), &again), HY_OK);
      for (int k = 0; k < 3; k++) {
        int64_t size = (int64_t)hy_dtype_size(in[k].dtype);
        tolerance limit = {in[k].dtype == HY_F32 ? 0x1p-22 : unit_of(in[k].dtype), 2e-7};
        int64_t i = first_far(&in[k], &out[k], limit);
        if (i >= 0)
          fail_msg("output %d of %s, %s: element %lld is %.9g and should be %.9g", k,
                   hy_dtype_name(dtype), hy__isa_name(isa_up_to(level)), (long long)i,
                   value_of((char*)in[k].data + i * size, in[k].dtype),
                   value_of((char*)out[k].data + i * size, in[k].dtype));
      }
    }
  }
}

// An output so large that its stores pass the caches by has the same bits as its halves, which are
// not.
static void outputs_past_the_caches(void** state) {
  (void)state;
  enum { POSITIONS = 2200, HEADS = 16, SIZE = 128, ROW = HEADS * SIZE };
  static const struct {
    const hy__cpu_family* family;
    hy_op op;
    int n_in;
  } ops[] = {{&hy__cpu_rope, HY_OP_rope, 3},
             {&hy__cpu_softmax, HY_OP_softmax, 1},
             {&hy__cpu_elementwise, HY_OP_exp, 1},
             {&hy__cpu_copy_cast, HY_OP_copy, 1}};
  size_t bytes = (size_t)POSITIONS * ROW * 2;
  char *x = aligned_alloc(64, bytes), *angles = malloc(2 * POSITIONS * SIZE);
  char* outs[2] = {aligned_alloc(64, bytes), aligned_alloc(64, bytes)};
  assert_true(x && angles && outs[0] && outs[1]);
  fill(x, HY_BF16, (int64_t)POSITIONS * ROW);
  fill(angles, HY_BF16, POSITIONS * SIZE);
  const hy__cpu_kernels* kernels = kernels_up_to(ISA_AVX512);
  for (size_t k = 0; k < sizeof ops / sizeof ops[0]; k++) {
    for (int parts = 1; parts <= 2; parts++) {
      int64_t rows = POSITIONS / parts;
      for (int p = 0; p < parts; p++) {
        int64_t first = p * rows, angle = first * SIZE;
        hy_tensor in[3] = {tensor(x + first * ROW * 2, HY_BF16, rows, HEADS, SIZE),
                           tensor(angles + angle, HY_BF16, rows, 1, SIZE / 2),
                           tensor(angles + POSITIONS * SIZE + angle, HY_BF16, rows, 1, SIZE / 2)};
        hy_tensor out = tensor(outs[parts - 1] + first * ROW * 2, HY_BF16, rows, HEADS, SIZE);
        hy_call call = {.op = ops[k].op, .n_in = ops[k].n_in, .n_out = 1, .in = in, .out = &out};
        if (call.op == HY_OP_softmax) call.attrs.dim.dim = 2;
        assert_int_equal((ops[k].family->run)(kernels, &call), HY_OK);
      }
    }
    assert_memory_equal(outs[0], outs[1], bytes);
  }
  free(outs[0]);
  free(outs[1]);
  free(angles);
  free(x);
}

// Over columns, over rows, and over everything, which several threads share.
static void reductions(void** state) {
  (void)state;
  static const hy_op ops[] = {HY_OP_sum, HY_OP_mean, HY_OP_max, HY_OP_min, HY_OP_var};
  for (int d = 0; d < 3; d++) {
    hy_tensor in[1] = {matrix(0, dtypes[d])};
    for (int i = 0; i < 5; i++) {
      hy_attrs attrs = {.var = {hy_one_dim(0), false, 1}};
      rows_agree(&hy__cpu_reduce, ops[i], in, 1, tensor(NULL, dtypes[d], COLUMNS), attrs, 1e-4);
      attrs.var.dims = hy_one_dim(1);
      rows_agree(&hy__cpu_reduce, ops[i], in, 1, tensor(NULL, dtypes[d], ROWS), attrs, 1e-4);
      attrs.var = (hy_attrs_var){hy_all_dims(), true, 1};
      rows_agree(&hy__cpu_reduce, ops[i], in, 1, tensor(NULL, dtypes[d], 1, 1), attrs, 1e-2);
    }
  }
}

// The first of equals, and NaN before all, wherever the threads' parts begin.
static void extremes_lie_where_the_reference_finds_them(void** state) {
  (void)state;
  hy_tensor in = matrix(0, HY_F32), out;
  float* x = (float*)(void*)memory[0];
  int64_t index[2];
  for (int round = 0; round < 3; round++) {
    if (round == 1) x[90001] = x[137] = 100;
    if (round == 2) x[120000] = x[120001] = NAN;
    for (isa_level level = ISA_SCALAR; level < ISA_LEVELS; level++) {
      hy_call call = {.op = HY_OP_argmax, .n_in = 1, .n_out = 1, .in = &in, .out = &out};
      assert_int_equal(hy_tensor_init(&out, &index[0], HY_I64, 0, NULL), HY_OK);
      assert_int_equal(hy__reference(&call), HY_OK);
      out.data = &index[1];
      assert_int_equal((hy__cpu_reduce.run)(kernels_up_to(level), &call), HY_OK);
      assert_int_equal(index[0], index[1]);
    }
  }
  assert_int_equal(index[1], 120000);
}

// Bit by bit, with every kind of number, also past the caches, and ends of rows.
static void conversions(void** state) {
  (void)state;
  enum { MANY = (3 << 20) + 77 };
  uint32_t* wide = aligned_alloc(64, (size_t)(MANY + 63) / 64 * 64 * 4);
  uint16_t* narrow[2] = {aligned_alloc(64, (size_t)(MANY + 63) / 64 * 64 * 4), malloc(MANY * 4)};
  assert_true(wide && narrow[0] && narrow[1]);
  uint32_t bits = 1;
  for (int i = 0; i < MANY; i++) wide[i] = bits = bits * 1664525 + 1013904223;
  for (int back = 0; back < 2; back++) {
    hy_dtype from = back ? HY_BF16 : HY_F32, to = back ? HY_F32 : HY_BF16;
    hy_tensor in = tensor(wide, from, MANY), out = tensor(narrow[1], to, MANY);
    hy_call call = {.op = HY_OP_cast, .n_in = 1, .n_out = 1, .in = &in, .out = &out};
    call.attrs.cast.dtype = to;
    assert_int_equal(hy__reference(&call), HY_OK);
    for (isa_level level = ISA_SCALAR; level < ISA_LEVELS; level++) {
      out.data = narrow[0];
      assert_int_equal((hy__cpu_copy_cast.run)(kernels_up_to(level), &call), HY_OK);
      hy_tensor expected = tensor(narrow[1], to, MANY);
      int64_t i = first_far(&out, &expected, (tolerance){0, 0});
      if (i >= 0)
        fail_msg("%s: number %lld is not as it should be", hy__isa_name(isa_up_to(level)),
                 (long long)i);
    }
  }
  free(narrow[1]);
  free(narrow[0]);
  free(wide);
}

// Rows of bf16 whose greatest is found as an integer, or must not be.
static void greatest_of_bf16(void** state) {
  (void)state;
  static uint16_t x[701];
  for (isa_level level = ISA_SCALAR; level < ISA_LEVELS; level++) {
    const hy__rows* rows = kernels_up_to(level)->rows;
    for (int64_t n = 1; n <= 701; n += 100) {
      for (int64_t i = 0; i < n; i++) x[i] = (uint16_t)(0xc000 + i % 50);
      x[n / 2] = 0xbf80;
      assert_true(rows->max(n, x, HY_BF16) == -1);
      x[n - 1] = 0x7fc0;  // NaN does not count
      assert_true(n == 1 || rows->max(n, x, HY_BF16) == -1);
      x[n - 1] = 0;
      assert_true(rows->max(n, x, HY_BF16) == 0);
      x[n - 1] = 0x4000;
      assert_true(rows->max(n, x, HY_BF16) == 2);
    }
    for (int i = 0; i < 701; i++) x[i] = 0xff80;
    assert_true(rows->max(701, x, HY_BF16) == -INFINITY);
  }
}

// A NaN of either sign, wherever it stands, beside infinities whose sum is one too.
static void extremes_tell_of_nan(void** state) {
  (void)state;
  static const uint16_t nans[] = {0x7fc0, 0xffc0, 0x7f81, 0xff81};
  static uint16_t halves[257];
  static float floats[257];
  for (isa_level level = ISA_SCALAR; level < ISA_LEVELS; level++) {
    const hy__rows* rows = kernels_up_to(level)->rows;
    for (int64_t n = 1; n <= 257; n += 64) {
      for (int64_t at = -1; at < n; at++) {
        for (int64_t i = 0; i < n; i++) halves[i] = (uint16_t)(0x4000 + i % 50);
        if (n > 2) halves[0] = 0x7f80;
        if (n > 2) halves[n - 1] = 0xff80;
        if (at >= 0) halves[at] = nans[at % 4];
        for (int64_t i = 0; i < n; i++) floats[i] = hy__from_bf16(halves[i]);
        float most = rows->max_or_nan(n, floats, HY_F32),
              least = rows->min_or_nan(n, floats, HY_F32);
        float most_half = rows->max_or_nan(n, halves, HY_BF16);
        float least_half = rows->min_or_nan(n, halves, HY_BF16);
        if (at >= 0) {
          assert_true(isnan(most) && isnan(least) && isnan(most_half) && isnan(least_half));
          continue;
        }
        assert_true(most == (n > 2 ? INFINITY : 2) && most_half == most);
        assert_true(least == (n > 2 ? -INFINITY : 2) && least_half == least);
      }
    }
  }
}

// Rows whose greatest is far from 0: of the differences alone the exponentials are taken.
static void softmax_of_large_numbers(void** state) {
  (void)state;
  static const float tops[] = {1e10f, -1e10f, 3e38f, -3.3895314e38f, 65504, -65504, 1e5f};
  static const hy_op ops[] = {HY_OP_softmax, HY_OP_log_softmax};
  for (int d = 0; d < 3; d++) {
    size_t size = hy_dtype_size(dtypes[d]);
    for (size_t t = 0; t < sizeof tops / sizeof tops[0]; t++) {
      if (dtypes[d] == HY_F16 && fabsf(tops[t]) > 65504) continue;
      for (int few = 0; few < 2; few++) {
        hy_tensor in = tensor(memory[0], dtypes[d], 7, few ? 5 : 77), out = in;
        for (int64_t i = 0; i < hy_tensor_numel(&in); i++)
          hy__store1(
              memory[0] + (size_t)i * size, dtypes[d],
              i % 3 ? tops[t] : fmaxf(tops[t] * (tops[t] < 0 ? 1.0625f : 0.9375f), -3.3e38f));
        for (int k = 0; k < 2; k++)
          rows_agree(&hy__cpu_softmax, ops[k], &in, 1, out, (hy_attrs){.dim = {-1}}, 1e-6);
      }
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(elementwise),
      cmocka_unit_test(gelu_gradient_of_large_numbers),
      cmocka_unit_test(along_rows),
      cmocka_unit_test(rope_of_heads),
      cmocka_unit_test(adamw),
      cmocka_unit_test(outputs_past_the_caches),
      cmocka_unit_test(reductions),
      cmocka_unit_test(conversions),
      cmocka_unit_test(greatest_of_bf16),
      cmocka_unit_test(extremes_tell_of_nan),
      cmocka_unit_test(extremes_lie_where_the_reference_finds_them),
      cmocka_unit_test(softmax_of_large_numbers),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
