// cuDNN, bound at run time, as provider of convolution and its gradients in floats: NCHW, and NHWC
// where the images are stored so. f32 is computed in f32, not in TF32.
//
// Of what cuDNN's heuristics propose, the first algorithm is taken that gives the same bits each
// time, needs no transform (FFT and Winograd round more than the table allows) and no more than
// WORKSPACE. It is kept for each problem. Where there is none, the backend's own kernels run. A
// bias is added before the sum is rounded, which one algorithm alone can do.
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cuda/cuda.h"

#define WORKSPACE ((size_t)512 << 20)

enum { TYPE_F32 = 0, TYPE_F64 = 1, TYPE_F16 = 2, TYPE_BF16 = 9 };
enum { NCHW = 0, NHWC = 1, CROSS_CORRELATION = 1 };
enum { MATH_DEFAULT = 0, MATH_TENSOR_OP = 1, MATH_FMA = 3 };
enum { PROPAGATE_NAN = 1, IDENTITY = 5 };
enum { IMPLICIT_GEMM = 1 << 0, PRECOMPUTED_GEMM = 1 << 1, EXPLICIT_GEMM = 1 << 2, ALGO_1 = 1 << 1 };

static struct {
#define HY_CUDNN(field, symbol, parameters) int(*field) parameters;
#include "backends/cuda/cudnn.def"
  size_t (*cudart_version)(void);
} dnn;

static hy_status probe(hy_probe* report) {
  void* library = hy__cuda_open("libcudnn.so.9");
  if (!library) {
    snprintf(report->remedy, sizeof report->remedy,
             "install cuDNN 9 (pip install nvidia-cudnn-cu13); convolutions run on the backend's "
             "own kernels meanwhile");
    return hy__backend_host->fail(HY_UNAVAILABLE, "no libcudnn.so.9 was found");
  }
  hy__cuda_path(library, report->library, sizeof report->library);
  report->stage = HY_STAGE_LOADED;
#define HY_CUDNN(field, symbol, parameters)     \
  *(void**)&dnn.field = dlsym(library, symbol); \
  if (!dnn.field)                               \
    return hy__backend_host->fail(HY_UNAVAILABLE, "%.200s has no %s", report->library, symbol);
#include "backends/cuda/cudnn.def"
  *(void**)&dnn.cudart_version = dlsym(library, "cudnnGetCudartVersion");
  report->stage = HY_STAGE_SYMBOLS;
  int driver = hy__cuda_api.driver_number / 1000;
  int built_for = dnn.cudart_version ? (int)(dnn.cudart_version() / 1000) : driver;
  if (built_for > driver) {
    snprintf(report->remedy, sizeof report->remedy, "pip install nvidia-cudnn-cu%d", driver);
    return hy__backend_host->fail(HY_UNAVAILABLE,
                                  "%.200s is for CUDA %d, and the driver speaks CUDA %d",
                                  report->library, built_for, driver);
  }
  report->stage = HY_STAGE_READY;
  return HY_OK;
}

// ---- The problem ----

typedef enum kind { FORWARD, FORWARD_BIAS, BACKWARD_DATA, BACKWARD_FILTER } kind;

// All that the heuristics look at. y is the output, or dy.
typedef struct key {
  int32_t kind, dtype, format, groups;
  int32_t x[4], weight[4], y[4];
  int32_t padding[2], stride[2], dilation[2];
} key;

// Images of four dimensions, whatever the call had.
static hy_tensor images(const hy_tensor* t) {
  hy_tensor four = *t;
  if (t->ndim == 4 || !hy__gpu_present(t)) return four;
  four.ndim = 4;
  four.shape[0] = 1;
  four.stride[0] = hy_tensor_numel(t);
  for (int d = 0; d < 3; d++) {
    four.shape[d + 1] = t->shape[d];
    four.stride[d + 1] = t->stride[d];
  }
  return four;
}

// Whether the tensor is stored without gaps in the format.
static bool is_stored(const hy_tensor* t, int format) {
  static const int orders[2][4] = {[NCHW] = {0, 1, 2, 3}, [NHWC] = {0, 2, 3, 1}};
  int64_t stride = 1;
  for (int i = 3; i >= 0; i--) {
    int d = orders[format][i];
    if (t->shape[d] != 1 && t->stride[d] != stride) return false;
    stride *= t->shape[d];
  }
  return true;
}

static hy_support describe(const hy_call* call, const hy_tensor* x, const hy_tensor* weight,
                           const hy_tensor* y, key* k) {
  const hy_attrs_conv* a = &call->attrs.conv;
  const int64_t most = 1 << 30;
  *k = (key){.dtype = (int32_t)x->dtype, .groups = (int32_t)a->groups};
  k->format = !is_stored(x, NCHW) && is_stored(x, NHWC) ? NHWC : NCHW;
  const hy_tensor* tensors[] = {x, weight, y};
  int32_t* shapes[] = {k->x, k->weight, k->y};
  for (int i = 0; i < 3; i++) {
    int64_t n = hy_tensor_numel(tensors[i]);
    HY__GPU_NEED(n > 0 && n < most, NO_SHAPE);
    for (int d = 0; d < 4; d++) shapes[i][d] = (int32_t)tensors[i]->shape[d];
  }
  int64_t numbers[] = {a->padding.h,  a->padding.w,  a->stride.h, a->stride.w,
                       a->dilation.h, a->dilation.w, a->groups};
  for (int i = 0; i < 7; i++) HY__GPU_NEED(numbers[i] < most, NO_SHAPE);
  k->padding[0] = (int32_t)a->padding.h;
  k->padding[1] = (int32_t)a->padding.w;
  k->stride[0] = (int32_t)a->stride.h;
  k->stride[1] = (int32_t)a->stride.w;
  k->dilation[0] = (int32_t)a->dilation.h;
  k->dilation[1] = (int32_t)a->dilation.w;
  return HY_SUPPORT_YES;
}

// ---- Plans ----

typedef struct algorithm {  // cudnnConvolution...AlgoPerf_t, the same for all three
  int algo, status;
  float time;
  size_t memory;
  int deterministic, math, reserved[3];
} algorithm;

// As long as the process lives, like its device.
typedef struct plan {
  struct plan* next;
  key key;
  void *x, *weight, *y, *bias, *conv;
  algorithm best;
  atomic_bool possible;
} plan;

enum { BUCKETS = 256 };
typedef struct handle {
  void *dnn, *identity;
  pthread_mutex_t mutex;
  plan* buckets[BUCKETS];
} handle;

static int type_of(int32_t dtype) {
  return dtype == HY_F32   ? TYPE_F32
         : dtype == HY_F64 ? TYPE_F64
         : dtype == HY_F16 ? TYPE_F16
                           : TYPE_BF16;
}

static int make_tensor(void** desc, const key* k, int n, int c, int h, int w) {
  int error = dnn.tensor_create(desc);
  if (error) return error;
  bool packed = k->format == NHWC;
  return dnn.tensor_set(*desc, type_of(k->dtype), n, c, h, w, c * h * w, packed ? 1 : h * w,
                        packed ? w * c : w, packed ? c : 1);
}

static int make_descriptors(const key* k, plan* made) {
  const int32_t *x = k->x, *w = k->weight, *y = k->y;
  int type = type_of(k->dtype), compute = k->dtype == HY_F64 ? TYPE_F64 : TYPE_F32;
  int error = make_tensor(&made->x, k, x[0], x[1], x[2], x[3]);
  if (!error) error = make_tensor(&made->y, k, y[0], y[1], y[2], y[3]);
  if (!error) error = make_tensor(&made->bias, k, 1, y[1], 1, 1);
  if (!error) error = dnn.filter_create(&made->weight);
  if (!error) error = dnn.filter_set(made->weight, type, k->format, w[0], w[1], w[2], w[3]);
  if (!error) error = dnn.conv_create(&made->conv);
  if (!error)
    error = dnn.conv_set(made->conv, k->padding[0], k->padding[1], k->stride[0], k->stride[1],
                         k->dilation[0], k->dilation[1], CROSS_CORRELATION, compute);
  if (!error) error = dnn.conv_set_groups(made->conv, k->groups);
  return error;
}

static int default_math(int32_t dtype) {
  return dtype == HY_F32 ? MATH_FMA : dtype == HY_F64 ? MATH_DEFAULT : MATH_TENSOR_OP;
}

static bool may_be_taken(const algorithm* a, const key* k) {
  // Of each kind's numbers, those that neither transform nor add in any order.
  static const unsigned plain[] = {[FORWARD] = IMPLICIT_GEMM | PRECOMPUTED_GEMM | EXPLICIT_GEMM,
                                   [FORWARD_BIAS] = PRECOMPUTED_GEMM,
                                   [BACKWARD_DATA] = ALGO_1,
                                   [BACKWARD_FILTER] = ALGO_1};
  return a->status == 0 && a->deterministic && a->memory <= WORKSPACE && a->algo >= 0 &&
         a->algo < 16 && (plain[k->kind] >> a->algo & 1) &&
         (k->dtype != HY_F32 || a->math == MATH_FMA);
}

static int choose(const handle* h, const key* k, plan* made) {
  enum { MOST = 16 };
  algorithm list[MOST];
  int found = 0, error = dnn.conv_set_math(made->conv, default_math(k->dtype));
  if (error) return error;
  switch (k->kind) {
    case FORWARD:
      error =
          dnn.forward_algos(h->dnn, made->x, made->weight, made->conv, made->y, MOST, &found, list);
      break;
    case BACKWARD_DATA:
      error =
          dnn.data_algos(h->dnn, made->weight, made->y, made->conv, made->x, MOST, &found, list);
      break;
    default:
      error =
          dnn.filter_algos(h->dnn, made->x, made->y, made->conv, made->weight, MOST, &found, list);
      break;
  }
  for (int i = 0; !error && i < found && !made->possible; i++) {
    made->possible = may_be_taken(&list[i], k);
    made->best = list[i];
  }
  return error || !made->possible ? error : dnn.conv_set_math(made->conv, made->best.math);
}

static uint64_t hash_key(const key* k) {
  const unsigned char* bytes = (const unsigned char*)k;
  uint64_t hash = 0xcbf29ce484222325u;
  for (size_t i = 0; i < sizeof *k; i++) hash = (hash ^ bytes[i]) * 0x100000001b3u;
  return hash ^ hash >> 32;
}

// The caller holds the handle's mutex. A problem that cuDNN refuses is remembered as impossible.
static plan* find_plan(handle* h, const key* k) {
  plan** bucket = &h->buckets[hash_key(k) % BUCKETS];
  for (plan* known = *bucket; known; known = known->next)
    if (!memcmp(&known->key, k, sizeof *k)) return known;
  plan* made = calloc(1, sizeof *made);
  if (!made) return NULL;
  made->key = *k;
  int error = make_descriptors(k, made);
  if (!error) error = choose(h, k, made);
  if (error) made->possible = false;
  made->next = *bucket;
  *bucket = made;
  return made;
}

static handle* handle_of(hy__gpu_task* task) {
  hy__gpu_device* device = task->device;
  pthread_mutex_lock(&device->mutex);
  handle* h = device->dnn;
  if (!h) {
    h = calloc(1, sizeof *h);
    if (h && dnn.create(&h->dnn) == 0 && dnn.activation_create(&h->identity) == 0 &&
        dnn.activation_set(h->identity, IDENTITY, PROPAGATE_NAN, 0) == 0) {
      pthread_mutex_init(&h->mutex, NULL);
      device->dnn = h;
    } else {
      free(h);
      h = NULL;
    }
  }
  pthread_mutex_unlock(&device->mutex);
  if (!h) hy__gpu_refuse(task, HY_DEVICE_FAILED, "cuDNN does not start");
  return h;
}

static plan* plan_of(hy__gpu_task* task, handle* h, const key* problem, kind what) {
  key k = *problem;
  k.kind = what;
  pthread_mutex_lock(&h->mutex);
  plan* p = find_plan(h, &k);
  pthread_mutex_unlock(&h->mutex);
  if (!p) hy__gpu_refuse(task, HY_OUT_OF_MEMORY, "no host memory for a plan of cuDNN's");
  return p;
}

// ---- Running ----

// Memory of the tensor's shape in the format.
static hy_tensor stored(hy__gpu_task* task, const hy_tensor* t, int format) {
  if (format == NCHW) return hy__gpu_temporary(task, t->dtype, 4, t->shape);
  int64_t turned[4] = {t->shape[0], t->shape[2], t->shape[3], t->shape[1]};
  hy_tensor packed = hy__gpu_temporary(task, t->dtype, 4, turned), seen = packed;
  int places[4] = {0, 3, 1, 2};
  for (int d = 0; d < 4; d++) {
    seen.shape[d] = packed.shape[places[d]];
    seen.stride[d] = packed.stride[places[d]];
  }
  return seen;
}

static hy_tensor read_as(hy__gpu_task* task, const hy_tensor* t, int format) {
  if (is_stored(t, format)) return *t;
  hy_tensor fresh = stored(task, t, format);
  hy__gpu_copy(task, &fresh, t);
  return fresh;
}

static hy_tensor write_as(hy__gpu_task* task, const hy_tensor* t, int format) {
  return is_stored(t, format) ? *t : stored(task, t, format);
}

static void end(hy__gpu_task* task, const hy_tensor* out, const hy_tensor* written) {
  if (written->data != out->data) hy__gpu_copy(task, out, written);
}

// One of cuDNN's; `a` and `b` are what it reads, in its own order.
static int start(handle* h, plan* p, const void* a, const void* b, void* out, const void* bias,
                 void* workspace) {
  static const float one_f = 1, zero_f = 0;
  static const double one_d = 1, zero_d = 0;
  bool f64 = p->key.dtype == HY_F64;
  const void* one = f64 ? (const void*)&one_d : &one_f;
  const void* zero = f64 ? (const void*)&zero_d : &zero_f;
  int algo = p->best.algo;
  size_t bytes = p->best.memory;
  switch (p->key.kind) {
    case FORWARD:
      return dnn.forward(h->dnn, one, p->x, a, p->weight, b, p->conv, algo, workspace, bytes, zero,
                         p->y, out);
    case FORWARD_BIAS:
      return dnn.forward_bias(h->dnn, one, p->x, a, p->weight, b, p->conv, algo, workspace, bytes,
                              zero, p->y, out, p->bias, bias, h->identity, p->y, out);
    case BACKWARD_DATA:
      return dnn.backward_data(h->dnn, one, p->weight, a, p->y, b, p->conv, algo, workspace, bytes,
                               zero, p->x, out);
    default:
      return dnn.backward_filter(h->dnn, one, p->x, a, p->y, b, p->conv, algo, workspace, bytes,
                                 zero, p->weight, out);
  }
}

// False where cuDNN does not support what its heuristics proposed; nothing has run then.
static bool convolve(hy__gpu_task* task, handle* h, plan* p, const void* a, const void* b,
                     void* out, const void* bias) {
  // Bad parameters too: a fused bias meets them with a dilation in few channels.
  enum { BAD_PARAM = 2000, LAST_NOT_SUPPORTED = 3999 };
  size_t bytes = p->best.memory;
  void* workspace = bytes ? (void*)(uintptr_t)hy__gpu_workspace(task, bytes) : NULL;
  if (task->status != HY_OK) return true;
  pthread_mutex_lock(&h->mutex);  // the handle has one stream at a time
  int error = dnn.set_stream(h->dnn, task->stream->queue);
  if (!error) error = start(h, p, a, b, out, bias, workspace);
  bool refused = error >= BAD_PARAM && error <= LAST_NOT_SUPPORTED;
  if (refused) p->possible = false;
  pthread_mutex_unlock(&h->mutex);
  if (error && !refused) {
    char message[96];
    snprintf(message, sizeof message, "cuDNN: error %d of algorithm %d", error, p->best.algo);
    hy__gpu_refuse(task, HY_DEVICE_FAILED, message);
  }
  return !refused;
}

static hy_support forward(hy__gpu_task* task, const hy_call* call) {
  hy_tensor x = images(&call->in[0]), out = images(&call->out[0]);
  const hy_tensor *weight = &call->in[1], *bias = &call->in[2];
  key k;
  hy_support answer = describe(call, &x, weight, &out, &k);
  if (answer != HY_SUPPORT_YES || !task->stream) return answer;
  handle* h = handle_of(task);
  bool biased = hy__gpu_present(bias);
  plan* p = h ? plan_of(task, h, &k, biased ? FORWARD_BIAS : FORWARD) : NULL;
  if (!p) return HY_SUPPORT_YES;
  if (!p->possible) return hy__gpu_conv2d(task, call);
  hy_tensor from = read_as(task, &x, k.format), by = read_as(task, weight, k.format);
  hy_tensor to = write_as(task, &out, k.format), flat = *bias;
  if (biased) flat = hy__gpu_contiguous(task, bias);
  if (!convolve(task, h, p, from.data, by.data, to.data, biased ? flat.data : NULL))
    return hy__gpu_conv2d(task, call);
  end(task, &out, &to);
  return HY_SUPPORT_YES;
}

static hy_support backward(hy__gpu_task* task, const hy_call* call) {
  hy_tensor dy = images(&call->in[0]), x = images(&call->in[1]), dx = images(&call->out[0]);
  const hy_tensor *weight = &call->in[2], *dweight = &call->out[1], *dbias = &call->out[2];
  key k;
  hy_support answer = describe(call, &x, weight, &dy, &k);
  if (answer != HY_SUPPORT_YES || !task->stream) return answer;
  handle* h = handle_of(task);
  plan* data = h ? plan_of(task, h, &k, BACKWARD_DATA) : NULL;
  plan* filter = h ? plan_of(task, h, &k, BACKWARD_FILTER) : NULL;
  if (!data || !filter) return HY_SUPPORT_YES;
  bool wants_x = hy__gpu_present(&dx), wants_weight = hy__gpu_present(dweight);
  if ((wants_x && !data->possible) || (wants_weight && !filter->possible))
    return hy__gpu_conv2d_backward(task, call);
  hy_tensor gradient = read_as(task, &dy, k.format);
  if (wants_x) {
    hy_tensor by = read_as(task, weight, k.format), to = write_as(task, &dx, k.format);
    if (!convolve(task, h, data, by.data, gradient.data, to.data, NULL))
      return hy__gpu_conv2d_backward(task, call);
    end(task, &dx, &to);
  }
  if (wants_weight) {
    hy_tensor from = read_as(task, &x, k.format), to = write_as(task, dweight, k.format);
    if (!convolve(task, h, filter, from.data, gradient.data, to.data, NULL))
      return hy__gpu_conv2d_backward(task, call);
    end(task, dweight, &to);
  }
  // The backend's own sum, in an order that the shape fixes.
  if (hy__gpu_present(dbias))
    hy__gpu_reduce(task, "sum", &dy, 1u << 0 | 1u << 2 | 1u << 3, dbias, NULL, NULL);
  return HY_SUPPORT_YES;
}

static hy_support convolution(hy__gpu_task* task, const hy_call* call) {
  HY__GPU_NEED(call->op == HY_OP_conv2d || call->op == HY_OP_conv2d_backward, NO_OP);
  HY__GPU_NEED(HY_DTYPE_BIT(call->in[0].dtype) & HY_FLOATS, NO_DTYPE);
  return call->op == HY_OP_conv2d ? forward(task, call) : backward(task, call);
}

static hy_support supports(void* device, const hy_call* call) {
  hy__gpu_task question = {.device = device, .op = call->op};
  return convolution(&question, call);
}

static hy_status run(void* device, void* stream, const hy_call* call) {
  return hy__gpu_run_family(device, stream, call, convolution);
}

const hy_provider hy__cuda_cudnn = {
    .size = sizeof(hy_provider),
    .name = "cudnn",
    .version = HY_VERSION_STRING,
    .probe = probe,
    .supports = supports,
    .run = run,
};
