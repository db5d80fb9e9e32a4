// The cpu's convolutions, batch norm and pooling at sizes of several bands and vectors, against the
// reference, at every level of instructions and with one thread or several.
#include <stdio.h>
#include <stdlib.h>

#include "backends/cpu/simd/half.h"
#include "support/every_level.h"

enum { SLOTS = 16, LARGEST = 1 << 19 };

static unsigned char memory[SLOTS][LARGEST * 8];

static hy_tensor images(int slot, hy_dtype dtype, int64_t n, int64_t channels, int64_t h,
                        int64_t w) {
  static uint32_t state = 1;
  int64_t count = n * channels * h * w;
  assert_true(count <= LARGEST);
  for (int64_t i = 0; i < count; i++) {
    state = state * 1664525 + 1013904223;
    float x = (float)((int32_t)(state >> 8) - (1 << 23)) * 0x1p-22f;
    hy__store1((char*)memory[slot] + i * (int64_t)hy_dtype_size(dtype), dtype, x);
  }
  return tensor(memory[slot], dtype, n, channels, h, w);
}

// `terms`: what sums of f32 may be off by, beside a unit of the type.
static void images_agree(const hy__cpu_family* family, hy_call call, double terms) {
  char what[80];
  snprintf(what, sizeof what, "%s %s", hy_op_name(call.op), hy_dtype_name(call.in[0].dtype));
  agree(family, call, (tolerance){0x1p-7, 0x1p-22 * terms}, (tolerance){0x1p-22, 0x1p-22 * terms},
        what);
}

static const hy_dtype dtypes[] = {HY_F32, HY_BF16};

// Convolutions as where no microkernel reads frames in place, as with AMX: panels are packed.
static hy_status packed(const hy__cpu_kernels* kernels, const hy_call* call) {
  hy__cpu_kernels packing = *kernels;
  packing.gemm.indirect_f32 = packing.gemm.indirect_bf16 = NULL;
  return call->op == HY_OP_conv2d ? (hy__cpu_conv.run)(&packing, call)
                                  : (hy__cpu_conv_backward.run)(&packing, call);
}

static hy_support always(const hy_call* call) {
  (void)call;
  return HY_SUPPORT_YES;
}

static const hy__cpu_family packed_conv = {always, packed};

static void convolve(hy_dtype dtype, int64_t n, int64_t channels, int64_t h, int64_t w, int64_t to,
                     hy_pair kernel, hy_attrs_conv attrs) {
  int64_t out_h =
      (h + 2 * attrs.padding.h - attrs.dilation.h * (kernel.h - 1) - 1) / attrs.stride.h;
  int64_t out_w =
      (w + 2 * attrs.padding.w - attrs.dilation.w * (kernel.w - 1) - 1) / attrs.stride.w;
  hy_tensor x = images(0, dtype, n, channels, h, w), dx = x;
  hy_tensor weight = images(1, dtype, to, channels / attrs.groups, kernel.h, kernel.w);
  hy_tensor y = images(2, dtype, n, to, out_h + 1, out_w + 1), bias = images(3, dtype, 1, 1, 1, to);
  bias = tensor(memory[3], dtype, to);
  hy_tensor in[3] = {x, weight, bias};
  hy_call call = {.op = HY_OP_conv2d, .n_in = 3, .n_out = 1, .in = in, .out = &y};
  call.attrs.conv = attrs;
  images_agree(&hy__cpu_conv, call, 1024);
  images_agree(&packed_conv, call, 1024);
  hy_tensor back[3] = {y, x, weight}, grads[3] = {dx, weight, bias};
  call.op = HY_OP_conv2d_backward;
  call.n_out = 3;
  call.in = back;
  call.out = grads;
  images_agree(&hy__cpu_conv_backward, call, 16384);
  images_agree(&packed_conv, call, 16384);
}

static void convolutions(void** state) {
  (void)state;
  for (int d = 0; d < 2; d++) {
    // Several bands; a kernel, strides and dilations of all kinds; channels in groups.
    convolve(dtypes[d], 1, 40, 70, 90, 5, (hy_pair){3, 3},
             (hy_attrs_conv){{1, 1}, {1, 1}, {1, 1}, 1});
    convolve(dtypes[d], 2, 6, 41, 53, 8, (hy_pair){5, 3},
             (hy_attrs_conv){{2, 3}, {4, 0}, {1, 2}, 2});
    convolve(dtypes[d], 1, 70, 9, 21, 7, (hy_pair){2, 2},
             (hy_attrs_conv){{3, 2}, {3, 5}, {2, 1}, 1});
    // Places that no tap reaches.
    convolve(dtypes[d], 2, 17, 9, 12, 18, (hy_pair){1, 1},
             (hy_attrs_conv){{2, 3}, {0, 0}, {1, 1}, 1});
    convolve(dtypes[d], 1, 6, 14, 15, 17, (hy_pair){2, 3},
             (hy_attrs_conv){{4, 6}, {1, 2}, {2, 4}, 1});
    // Several tiles of rows and blocks of k.
    convolve(dtypes[d], 2, 131, 11, 19, 43, (hy_pair){3, 3},
             (hy_attrs_conv){{1, 1}, {1, 1}, {1, 1}, 1});
  }
}

static void norms(void** state) {
  (void)state;
  for (int d = 0; d < 2; d++) {
    hy_tensor x = images(0, dtypes[d], 3, 5, 17, 23), dy = images(1, dtypes[d], 3, 5, 17, 23);
    hy_tensor dx = x, weight = tensor(memory[2], dtypes[d], 5);
    images(2, dtypes[d], 1, 1, 1, 5);
    static float mean[5] = {0.1f, -0.2f, 0.3f, 0, 1}, scale[5] = {1, 0.5f, 2, 1, 0.7f};
    hy_tensor in[5] = {dy, x, tensor(mean, HY_F32, 5), tensor(scale, HY_F32, 5), weight};
    hy_tensor out[3] = {dx, weight, weight};
    hy_call call = {.op = HY_OP_batch_norm_backward, .n_in = 5, .n_out = 3, .in = in, .out = out};
    for (int training = 0; training < 2; training++) {
      call.attrs.batch_norm = (hy_attrs_batch_norm){training, 0.1, 1e-5};
      images_agree(&hy__cpu_batch_norm, call, 1024);
    }
    // Channels last: planes are taken through buffers, and the output is not.
    for (int i = 0; i < 2; i++) {
      in[i] = images(i, dtypes[d], 3, 17, 23, 5);
      assert_int_equal(hy_transpose(&in[i], &in[i], 1, 3), HY_OK);
      assert_int_equal(hy_transpose(&in[i], &in[i], 2, 3), HY_OK);
    }
    images_agree(&hy__cpu_batch_norm, call, 1024);
  }
}

static void pools(void** state) {
  (void)state;
  for (int d = 0; d < 2; d++) {
    hy_tensor x = images(0, dtypes[d], 2, 3, 37, 45);
    for (int64_t step = 1; step <= 3; step++) {
      int64_t h = (37 + 2 - 3) / step + 1, w = (45 + 2 - 3) / step + 1;
      hy_tensor out[2] = {tensor(memory[1], dtypes[d], 2, 3, h, w),
                          tensor(memory[2], HY_I64, 2, 3, h, w)};
      hy_call call = {.op = HY_OP_max_pool2d, .n_in = 1, .n_out = 2, .in = &x, .out = out};
      call.attrs.max_pool = (hy_attrs_max_pool){{3, 3}, {step, step}, {1, 1}, {1, 1}, false};
      images_agree(&hy__cpu_pooling, call, 0);
      call.op = HY_OP_avg_pool2d;
      call.n_out = 1;
      call.attrs.avg_pool = (hy_attrs_avg_pool){{3, 3}, {step, step}, {1, 1}, false, true, 0};
      images_agree(&hy__cpu_pooling, call, 4);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(convolutions),
      cmocka_unit_test(norms),
      cmocka_unit_test(pools),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
