// The provider `nnpack`: float32 convolutions of one image and linear layers of one row by NNPACK,
// bound at run time.
#include <stdio.h>

#include "backends/common/dlsym.h"
#include "backends/cpu/family.h"
#include "backends/cpu/provider.h"
#include "backends/cpu/runtime/thread_pool.h"
#include "base/memory.h"

enum { SUCCESS = 0, UNSUPPORTED_HARDWARE = 51, IMPLICIT_GEMM = 4, COMPUTE = 1, IDENTITY = 0 };

typedef struct size2 {
  size_t width, height;
} size2;

typedef struct border {
  size_t top, right, bottom, left;
} border;

#define NNPACK_FUNCTIONS(X)                                                                        \
  X(int, nnp_initialize, (void))                                                                   \
  X(int, nnp_convolution_inference,                                                                \
    (int algorithm, int strategy, size_t in, size_t out, size2 image, border padding,              \
     size2 kernel, size2 stride, const float* x, const float* weight, const float* bias, float* y, \
     void* workspace, size_t* workspace_size, int activation, const void* parameters,              \
     void* threads, void* profile))

static struct nnpack {
  NNPACK_FUNCTIONS(HY__AS_POINTER)
  // NULL in builds for inference by convolution alone.
  int (*fully_connected)(size_t in, size_t out, const float* x, const float* weight, float* y,
                         void* threads);
} nnpack;

// ---- what it runs ----

static bool plain(const hy_tensor* t) {
  return t->dtype == HY_NONE || hy_tensor_is_contiguous(t);
}

static hy_support supports_conv(const hy_call* call) {
  hy_attrs_conv a = call->attrs.conv;
  const hy_tensor *x = &call->in[0], *weight = &call->in[1];
  if (a.groups != 1 || a.dilation.h != 1 || a.dilation.w != 1) return HY_SUPPORT_NO_ATTRIBUTE;
  if (a.padding.h >= weight->shape[2] || a.padding.w >= weight->shape[3])
    return HY_SUPPORT_NO_ATTRIBUTE;
  if (x->ndim == 4 && x->shape[0] != 1) return HY_SUPPORT_NO_SHAPE;
  if (hy_tensor_numel(x) == 0 || hy_tensor_numel(weight) == 0) return HY_SUPPORT_NO_SHAPE;
  bool lined_up = plain(x) && plain(weight) && plain(&call->in[2]) && plain(&call->out[0]);
  return lined_up ? HY_SUPPORT_YES : HY_SUPPORT_NO_LAYOUT;
}

static hy_support supports_linear(const hy_call* call) {
  const hy_tensor *x = &call->in[0], *weight = &call->in[1];
  if (!nnpack.fully_connected) return HY_SUPPORT_NO_OP;
  if (call->in[2].dtype != HY_NONE) return HY_SUPPORT_NO_ATTRIBUTE;
  if (weight->shape[1] == 0 || hy_tensor_numel(x) != weight->shape[1]) return HY_SUPPORT_NO_SHAPE;
  bool lined_up = plain(x) && plain(weight) && plain(&call->out[0]);
  return lined_up ? HY_SUPPORT_YES : HY_SUPPORT_NO_LAYOUT;
}

static hy_support supports(void* device, const hy_call* call) {
  (void)device;
  if (call->op != HY_OP_conv2d && call->op != HY_OP_linear) return HY_SUPPORT_NO_OP;
  if (call->in[0].dtype != HY_F32) return HY_SUPPORT_NO_DTYPE;
  return call->op == HY_OP_conv2d ? supports_conv(call) : supports_linear(call);
}

// ---- running it ----

// The library needs a bias to add.
static int convolve(const hy_call* call, const float* bias) {
  hy_attrs_conv a = call->attrs.conv;
  const hy_tensor *x = &call->in[0], *weight = &call->in[1];
  int n = x->ndim;
  size2 image = {(size_t)x->shape[n - 1], (size_t)x->shape[n - 2]};
  size2 kernel = {(size_t)weight->shape[3], (size_t)weight->shape[2]};
  size2 stride = {(size_t)a.stride.w, (size_t)a.stride.h};
  border padding = {(size_t)a.padding.h, (size_t)a.padding.w, (size_t)a.padding.h,
                    (size_t)a.padding.w};
  return nnpack.nnp_convolution_inference(IMPLICIT_GEMM, COMPUTE, (size_t)weight->shape[1],
                                          (size_t)weight->shape[0], image, padding, kernel, stride,
                                          x->data, weight->data, bias, call->out[0].data, NULL,
                                          NULL, IDENTITY, NULL, NULL, NULL);
}

static hy_status run(void* device, void* stream, const hy_call* call) {
  (void)device;
  (void)stream;
  const hy_tensor* weight = &call->in[1];
  int failed;
  if (call->op == HY_OP_linear) {
    failed = nnpack.fully_connected((size_t)weight->shape[1], (size_t)weight->shape[0],
                                    call->in[0].data, weight->data, call->out[0].data, NULL);
  } else if (call->in[2].dtype != HY_NONE) {
    failed = convolve(call, call->in[2].data);
  } else {
    float* zeros = hy__calloc((size_t)weight->shape[0], sizeof *zeros);
    if (!zeros) return hy__cpu_no_memory(call);
    failed = convolve(call, zeros);
    hy__mfree(zeros);
  }
  if (failed == SUCCESS) return HY_OK;
  return hy__backend_host->fail(HY_DEVICE_FAILED, "%s: NNPACK answers with error %d",
                                hy__backend_host->op_name(call->op), failed);
}

static hy_status probe(hy_probe* report) {
  static const hy__symbol symbols[] = {
#define AS_SYMBOL(type, name, arguments) {#name, offsetof(struct nnpack, name)},
      NNPACK_FUNCTIONS(AS_SYMBOL)
#undef AS_SYMBOL
  };
  void* library;
  snprintf(report->remedy, sizeof report->remedy,
           "build NNPACK as a shared library and set HALYARD_NNPACK_FOLDER to where libnnpack.so "
           "is");
  HY_TRY(hy__dlsym_open("libnnpack.so.0 libnnpack.so", "HALYARD_NNPACK_FOLDER", NULL, report,
                        &library));
  HY_TRY(
      hy__dlsym_bind(library, symbols, (int)(sizeof symbols / sizeof symbols[0]), &nnpack, report));
  int failed = nnpack.nnp_initialize();
  if (failed != SUCCESS)
    return hy__backend_host->fail(
        HY_UNAVAILABLE, "%s: nnp_initialize answers %d%s", report->library, failed,
        failed == UNSUPPORTED_HARDWARE ? ", this processor is not supported" : "");
  report->stage = HY_STAGE_DEVICES;
  *(void**)&nnpack.fully_connected = hy__dlsym_optional(library, "nnp_fully_connected_inference");
  float x[2] = {3, 4}, weight[4] = {1, 2, 10, 20}, bias[2] = {0, 1}, y[2] = {0, 0};
  size2 one = {1, 1};
  failed =
      nnpack.nnp_convolution_inference(IMPLICIT_GEMM, COMPUTE, 2, 2, one, (border){0}, one, one, x,
                                       weight, bias, y, NULL, NULL, IDENTITY, NULL, NULL, NULL);
  if (failed != SUCCESS || y[0] != 11 || y[1] != 111)
    return hy__backend_host->fail(HY_UNAVAILABLE,
                                  "%s does not convolve one pixel: error %d, [%g, %g]",
                                  report->library, failed, (double)y[0], (double)y[1]);
  report->stage = HY_STAGE_READY;
  report->remedy[0] = 0;
  return HY_OK;
}

const hy_provider hy__cpu_nnpack = {
    .size = sizeof(hy_provider),
    .name = "nnpack",
    .version = HY_VERSION_STRING,
    .probe = probe,
    .supports = supports,
    .run = run,
    .flags = HY_PROVIDER_BY_NAME | HY_PROVIDER_VARIES,
};
