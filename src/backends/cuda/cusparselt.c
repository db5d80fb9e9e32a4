// cuSPARSELt, bound at run time, as provider of linear_sparse_2_4 in 16-bit types, on sparse tensor
// cores. f32 would be TF32 there and is left to the backend's own kernels.
//
// The table keeps a weight as values and codes, cuSPARSELt in a form of its own: each call unpacks
// and compresses the weight before it multiplies, since nothing tells whether the weight has
// changed. That costs about as much as copying the weight twice, which few rows do not repay.
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/cuda/cuda.h"
#include "backends/gpu/ops/held.h"

enum { LEAST_ROWS = 64, LEAST_MINOR = 8 };
enum { TYPE_F16 = 2, TYPE_BF16 = 14, COMPUTE_F32 = 2 };
enum { ORDER_COLUMN = 1, ORDER_ROW = 2, AS_IS = 0, TRANSPOSED = 1, HALF_SPARSE = 0 };
enum { BIAS_POINTER = 8, ALIGNMENT = 16, DEFAULT_ALGORITHM = 0 };

static struct {
#define HY_CUSPARSELT(field, symbol, parameters) int(*field) parameters;
#include "backends/cuda/cusparselt.def"
} lt;

static hy_status probe(hy_probe* report) {
  enum { MAJOR = 0, MINOR = 1 };
  void* library = hy__cuda_open("libcusparseLt.so.0");
  if (!library) {
    snprintf(report->remedy, sizeof report->remedy,
             "install cuSPARSELt (pip install nvidia-cusparselt-cu13); sparse layers run on the "
             "backend's own kernels meanwhile");
    return hy__backend_host->fail(HY_UNAVAILABLE, "no libcusparseLt.so.0 was found");
  }
  hy__cuda_path(library, report->library, sizeof report->library);
  report->stage = HY_STAGE_LOADED;
#define HY_CUSPARSELT(field, symbol, parameters) \
  *(void**)&lt.field = dlsym(library, symbol);   \
  if (!lt.field)                                 \
    return hy__backend_host->fail(HY_UNAVAILABLE, "%.200s has no %s", report->library, symbol);
#include "backends/cuda/cusparselt.def"
  report->stage = HY_STAGE_SYMBOLS;
  int major = 0, minor = 0;
  if (lt.property(MAJOR, &major) || lt.property(MINOR, &minor) || major != 0 ||
      minor < LEAST_MINOR) {
    snprintf(report->remedy, sizeof report->remedy, "pip install --upgrade nvidia-cusparselt-cu13");
    return hy__backend_host->fail(HY_UNAVAILABLE, "%.200s is version %d.%d, and 0.%d is needed",
                                  report->library, major, minor, LEAST_MINOR);
  }
  report->stage = HY_STAGE_READY;
  return HY_OK;
}

// ---- Plans ----

// out' [n, m] = weight [n, k] x' [k, m]: the sparse operand comes first, its rows are features.
typedef struct problem {
  int64_t m, n, k;
  const void* bias;  // part of a plan
  int32_t dtype, reserved;
} problem;

// cuSPARSELt's structs are opaque, of 512 bytes.
typedef struct opaque {
  _Alignas(16) uint8_t bytes[512];
} opaque;

typedef struct plan {
  opaque weight, x, out, matmul, algo, plan;
  int made;  // how many of them, in order
  problem problem;
  size_t compressed, buffer, workspace;
} plan;

enum { SLOTS = 256 };
typedef struct handle {
  opaque lt;
  pthread_mutex_t mutex;
  plan* slots[SLOTS];  // a problem replaces another of its hash
} handle;

static void free_plan(plan* p) {
  if (!p) return;
  if (p->made > 5) lt.plan_destroy(&p->plan);
  if (p->made > 4) lt.algo_destroy(&p->algo);
  if (p->made > 2) lt.matrix_destroy(&p->out);
  if (p->made > 1) lt.matrix_destroy(&p->x);
  if (p->made > 0) lt.matrix_destroy(&p->weight);
  free(p);
}

static int make_plan(const handle* h, plan* p) {
  const problem* q = &p->problem;
  int type = q->dtype == HY_F16 ? TYPE_F16 : TYPE_BF16;
#define STEP(call)           \
  do {                       \
    int error = (call);      \
    if (error) return error; \
    p->made++;               \
  } while (0)
  STEP(
      lt.structured(&h->lt, &p->weight, q->n, q->k, q->k, ALIGNMENT, type, ORDER_ROW, HALF_SPARSE));
  STEP(lt.dense(&h->lt, &p->x, q->m, q->k, q->k, ALIGNMENT, type, ORDER_ROW));
  STEP(lt.dense(&h->lt, &p->out, q->n, q->m, q->n, ALIGNMENT, type, ORDER_COLUMN));
  STEP(lt.matmul_init(&h->lt, &p->matmul, AS_IS, TRANSPOSED, &p->weight, &p->x, &p->out, &p->out,
                      COMPUTE_F32));
  if (q->bias) {
    int error = lt.matmul_set(&h->lt, &p->matmul, BIAS_POINTER, &q->bias, sizeof q->bias);
    if (error) return error;
  }
  STEP(lt.algo_init(&h->lt, &p->algo, &p->matmul, DEFAULT_ALGORITHM));
  STEP(lt.plan_init(&h->lt, &p->plan, &p->matmul, &p->algo));
#undef STEP
  int error = lt.workspace(&h->lt, &p->plan, &p->workspace);
  return error ? error : lt.compressed_size(&h->lt, &p->plan, &p->compressed, &p->buffer);
}

// The caller holds the handle's mutex.
static plan* find_plan(handle* h, const problem* q, int* error) {
  const unsigned char* bytes = (const unsigned char*)q;
  uint64_t hash = 0xcbf29ce484222325u;
  for (size_t i = 0; i < sizeof *q; i++) hash = (hash ^ bytes[i]) * 0x100000001b3u;
  plan** slot = &h->slots[(hash ^ hash >> 32) % SLOTS];
  if (*slot && !memcmp(&(*slot)->problem, q, sizeof *q)) return *slot;
  plan* made = aligned_alloc(16, (sizeof *made + 15) / 16 * 16);
  if (!made) return NULL;
  memset(made, 0, sizeof *made);
  made->problem = *q;
  *error = make_plan(h, made);
  if (*error) {
    free_plan(made);
    return NULL;
  }
  free_plan(*slot);
  *slot = made;
  return made;
}

static handle* handle_of(hy__gpu_device* device) {
  pthread_mutex_lock(&device->mutex);
  handle* h = device->sparse;
  if (!h) {
    h = aligned_alloc(16, (sizeof *h + 15) / 16 * 16);
    if (h) memset(h, 0, sizeof *h);
    if (h && lt.init(&h->lt) == 0) {
      pthread_mutex_init(&h->mutex, NULL);
      device->sparse = h;
    } else {
      free(h);
      h = NULL;
    }
  }
  pthread_mutex_unlock(&device->mutex);
  return h;
}

// ---- Running ----

static hy_support read_call(const hy_call* call, problem* q) {
  const hy_tensor *x = &call->in[0], *values = &call->in[1], *out = &call->out[0];
  HY__GPU_NEED(call->op == HY_OP_linear_sparse_2_4, NO_OP);
  HY__GPU_NEED(x->dtype == HY_F16 || x->dtype == HY_BF16, NO_DTYPE);
  *q = (problem){.m = 1, .n = values->shape[0], .k = values->shape[1] * 2, .dtype = x->dtype};
  for (int d = 0; d < out->ndim - 1; d++) q->m *= out->shape[d];
  HY__GPU_NEED(q->m >= LEAST_ROWS && q->m % 8 == 0, NO_SHAPE);
  HY__GPU_NEED(q->n > 0 && q->n % 16 == 0 && q->k > 0 && q->k % 16 == 0, NO_SHAPE);
  HY__GPU_NEED(q->m < INT32_MAX && q->n < INT32_MAX && q->k < INT32_MAX, NO_SHAPE);
  return HY_SUPPORT_YES;
}

// A tensor whose memory is contiguous and is where tensor cores can load it.
static hy_tensor aligned(hy__gpu_task* task, const hy_tensor* t) {
  if (hy_tensor_is_contiguous(t) && (uintptr_t)t->data % ALIGNMENT == 0) return *t;
  hy_tensor copy = hy__gpu_temporary(task, t->dtype, t->ndim, t->shape);
  hy__gpu_copy(task, &copy, t);
  return copy;
}

static void* unpack(hy__gpu_task* task, const hy_call* call, const problem* q) {
  hy_tensor values = hy__gpu_contiguous(task, &call->in[1]);
  void* dense = (void*)(uintptr_t)hy__gpu_workspace(task, (size_t)(q->n * q->k) * 2);
  const void* codes = call->in[2].data;
  long long groups = q->n * q->k / 4;
  hy__gpu_launch(task,
                 hy__gpu_kernel(task, "sparse_unpack", "unpack", hy__gpu_option(values.dtype)),
                 hy__gpu_1d(hy__gpu_blocks(task, groups, 256, 1)), hy__gpu_1d(256), 0,
                 HY__GPU_ARGS(&values.data, &codes, &dense, &groups));
  return dense;
}

static int multiply(hy__gpu_task* task, handle* h, const plan* p, const void* dense, const void* x,
                    void* out) {
  static const float one = 1, zero = 0;
  void* compressed = (void*)(uintptr_t)hy__gpu_workspace(task, p->compressed);
  void* buffer = p->buffer ? (void*)(uintptr_t)hy__gpu_workspace(task, p->buffer) : NULL;
  void* workspace = p->workspace ? (void*)(uintptr_t)hy__gpu_workspace(task, p->workspace) : NULL;
  void* queue = task->stream->queue;
  if (task->status != HY_OK) return 0;
  int error = lt.compress(&h->lt, &p->plan, dense, compressed, buffer, queue);
  return error ? error
               : lt.matmul(&h->lt, &p->plan, &one, compressed, x, &zero, out, out, workspace,
                           &queue, 1);
}

static hy_support sparse_linear(hy__gpu_task* task, const hy_call* call) {
  problem q;
  hy_support answer = read_call(call, &q);
  if (answer != HY_SUPPORT_YES || !task->stream) return answer;
  handle* h = handle_of(task->device);
  if (!h) {
    hy__gpu_refuse(task, HY_DEVICE_FAILED, "cuSPARSELt does not start");
    return HY_SUPPORT_YES;
  }
  const hy_tensor *bias = &call->in[3], *out = &call->out[0];
  hy_tensor x = aligned(task, &call->in[0]), held = hy__gpu_held(task, out), flat;
  if ((uintptr_t)held.data % ALIGNMENT)
    held = hy__gpu_temporary(task, out->dtype, out->ndim, out->shape);
  if (hy__gpu_present(bias)) {
    flat = aligned(task, bias);
    q.bias = flat.data;
  }
  void* dense = unpack(task, call, &q);
  int error = 0;
  pthread_mutex_lock(&h->mutex);  // another problem may replace the plan
  plan* p = find_plan(h, &q, &error);
  if (p) error = multiply(task, h, p, dense, x.data, held.data);
  pthread_mutex_unlock(&h->mutex);
  if (!p || error) {
    char message[96];
    snprintf(message, sizeof message, "cuSPARSELt: error %d for m=%lld n=%lld k=%lld", error,
             (long long)q.m, (long long)q.n, (long long)q.k);
    hy__gpu_refuse(task, HY_DEVICE_FAILED, message);
  }
  hy__gpu_finish(task, out, &held);
  return HY_SUPPORT_YES;
}

static hy_support supports(void* device, const hy_call* call) {
  hy__gpu_task question = {.device = device, .op = call->op};
  return sparse_linear(&question, call);
}

static hy_status run(void* device, void* stream, const hy_call* call) {
  return hy__gpu_run_family(device, stream, call, sparse_linear);
}

const hy_provider hy__cuda_cusparselt = {
    .size = sizeof(hy_provider),
    .name = "cusparselt",
    .version = HY_VERSION_STRING,
    .probe = probe,
    .supports = supports,
    .run = run,
};
