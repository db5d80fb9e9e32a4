// Kernels written in Triton (triton_kernels.py) and compiled ahead of time, as provider of softmax,
// rms_norm and attention: for comparison with the backend's own, and chosen by name.
//
// scripts/triton_cubins.py fills halyard/triton beside the library: cubins, and kernels.txt with
// what a launch needs. Rows are held whole by a block, so that long ones are not taken, and sizes
// are multiples of 16, which the kernels were promised.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "backends/cuda/cuda.h"
#include "backends/gpu/compile.h"

enum { FORMAT = 1, MOST_KERNELS = 128, MOST_PARAMETERS = 20 };

typedef struct kernel {
  char name[48], target[8], entry[32];
  int threads, shared, parameters;
} kernel;

static kernel kernels[MOST_KERNELS];
static int n_kernels;
static char folder[180];

static hy_status read_list(const char* path) {
  FILE* file = fopen(path, "re");
  if (!file) return hy__backend_host->fail(HY_UNAVAILABLE, "%s cannot be read", path);
  int format = 0, fields = fscanf(file, "halyard-triton %d %*63s", &format);
  n_kernels = 0;
  while (fields == 1 && format == FORMAT && n_kernels < MOST_KERNELS) {
    kernel* k = &kernels[n_kernels];
    if (fscanf(file, "%47s %7s %d %d %d %31s", k->name, k->target, &k->threads, &k->shared,
               &k->parameters, k->entry) != 6)
      break;
    if (k->threads < 1 || k->shared < 0 || k->parameters > MOST_PARAMETERS) break;
    n_kernels++;
  }
  bool whole = feof(file) && n_kernels > 0;
  fclose(file);
  if (whole) return HY_OK;
  n_kernels = 0;
  return hy__backend_host->fail(HY_UNAVAILABLE, "%s is not of format %d", path, FORMAT);
}

static hy_status probe(hy_probe* report) {
  char path[256];
  snprintf(report->remedy, sizeof report->remedy,
           "scripts/triton_cubins.py makes them, where the package triton is");
  if (!hy__gpu_shipped_folder("triton", folder, sizeof folder))
    return hy__backend_host->fail(HY_UNAVAILABLE,
                                  "no kernels that Triton compiled are beside the library");
  snprintf(path, sizeof path, "%s/kernels.txt", folder);
  HY_TRY(read_list(path));
  snprintf(report->library, sizeof report->library, "%s", path);
  report->remedy[0] = 0;
  report->stage = HY_STAGE_READY;
  return HY_OK;
}

// The kernel for the device, NULL where there is none; machine code for 8.0 runs on 8.6 too.
static const kernel* find(const hy__gpu_device* device, const char* name) {
  for (int exact = 1; exact >= 0; exact--) {
    char target[16];
    snprintf(target, sizeof target, "sm_%d%d", device->compute_major,
             exact ? device->compute_minor : 0);
    for (int i = 0; i < n_kernels; i++)
      if (!strcmp(kernels[i].name, name) && !strcmp(kernels[i].target, target)) return &kernels[i];
  }
  return NULL;
}

// Triton's own parameters stand behind those of the kernel: pointers to memory, of which these
// kernels need none.
static void launch(hy__gpu_task* task, const kernel* k, hy__gpu_dim3 grid, int count, void** own) {
  void *nothing = NULL, *arguments[MOST_PARAMETERS];
  char path[256];
  if (count > k->parameters) {
    hy__gpu_refuse(task, HY_INTERNAL, "kernels.txt has a kernel with fewer parameters");
    return;
  }
  for (int i = 0; i < k->parameters; i++) arguments[i] = i < count ? own[i] : &nothing;
  snprintf(path, sizeof path, "%s/%s.%s.cubin", folder, k->name, k->target);
  hy__gpu_launch(task, hy__gpu_kernel_of_file(task, path, k->entry), grid,
                 hy__gpu_1d((unsigned)k->threads), (size_t)k->shared, arguments);
}

static bool plain(const hy_tensor* t, hy_dtype dtype) {
  return t->dtype == dtype && hy_tensor_is_contiguous(t) && (uintptr_t)t->data % 16 == 0;
}

// The kernel for rows of n, NULL for a length that there is none for.
static const kernel* row_kernel(const hy__gpu_device* device, const char* what, hy_dtype dtype,
                                int64_t n) {
  char name[64];
  int block = n <= 1024 ? 1024 : n <= 4096 ? 4096 : 8192;
  if (n < 16 || n > 8192 || n % 16) return NULL;
  snprintf(name, sizeof name, "%s_%s_%d", what, hy_dtype_name(dtype), block);
  return find(device, name);
}

static hy_support softmax(hy__gpu_task* task, const hy_call* call) {
  const hy_tensor *x = &call->in[0], *out = &call->out[0];
  int64_t dim = call->attrs.dim.dim;
  HY__GPU_NEED(x->ndim > 0 && (dim == x->ndim - 1 || dim == -1), NO_SHAPE);
  int n = (int)x->shape[x->ndim - 1];
  const kernel* k = row_kernel(task->device, "softmax", x->dtype, x->shape[x->ndim - 1]);
  HY__GPU_NEED(k, NO_SHAPE);
  int64_t rows = hy_tensor_numel(x) / n;
  HY__GPU_NEED(rows < INT32_MAX, NO_SHAPE);
  HY__GPU_NEED(plain(x, x->dtype) && plain(out, x->dtype), NO_LAYOUT);
  if (!task->stream) return HY_SUPPORT_YES;
  launch(task, k, hy__gpu_1d((unsigned)rows), 3,
         HY__GPU_ARGS((void*)&out->data, (void*)&x->data, &n));
  return HY_SUPPORT_YES;
}

static hy_support rms_norm(hy__gpu_task* task, const hy_call* call) {
  const hy_tensor *x = &call->in[0], *weight = &call->in[1], *out = &call->out[0];
  HY__GPU_NEED(call->attrs.norm.norm_dims == 1 && x->ndim > 0, NO_SHAPE);
  HY__GPU_NEED(hy__gpu_present(weight) && (call->n_out < 2 || !hy__gpu_present(&call->out[1])),
               NO_SHAPE);
  int n = (int)x->shape[x->ndim - 1];
  const kernel* k = row_kernel(task->device, "rms_norm", x->dtype, x->shape[x->ndim - 1]);
  HY__GPU_NEED(k, NO_SHAPE);
  int64_t rows = hy_tensor_numel(x) / n;
  HY__GPU_NEED(rows < INT32_MAX, NO_SHAPE);
  HY__GPU_NEED(plain(x, x->dtype) && plain(weight, x->dtype) && plain(out, x->dtype), NO_LAYOUT);
  if (!task->stream) return HY_SUPPORT_YES;
  float eps = (float)call->attrs.norm.eps;
  launch(task, k, hy__gpu_1d((unsigned)rows), 5,
         HY__GPU_ARGS((void*)&out->data, (void*)&x->data, (void*)&weight->data, &eps, &n));
  return HY_SUPPORT_YES;
}

static hy_support attention(hy__gpu_task* task, const hy_call* call) {
  enum { ROWS = 128 };
  const hy_tensor *q = &call->in[0], *k = &call->in[1], *v = &call->in[2], *out = &call->out[0];
  hy_causal causal = call->attrs.attention.causal;
  HY__GPU_NEED(q->ndim == 4 && k->ndim == 4 && v->ndim == 4, NO_SHAPE);
  HY__GPU_NEED(call->n_in < 4 || !hy__gpu_present(&call->in[3]), NO_SHAPE);
  HY__GPU_NEED(causal == HY_CAUSAL_NONE || causal == HY_CAUSAL_TOP_LEFT, NO_SHAPE);
  const int64_t most = 1 << 24;
  int64_t batch = q->shape[0], n_heads = q->shape[1], size = q->shape[3];
  HY__GPU_NEED(k->shape[0] == batch && v->shape[0] == batch && v->shape[3] == size, NO_SHAPE);
  HY__GPU_NEED(q->shape[2] > 0 && q->shape[2] < most && k->shape[2] > 0 && k->shape[2] < most,
               NO_SHAPE);
  HY__GPU_NEED(batch * n_heads > 0 && batch * n_heads < 65536 && k->shape[1] > 0, NO_SHAPE);
  char name[64];
  snprintf(name, sizeof name, "attention_%s_%d%s", hy_dtype_name(q->dtype), (int)size,
           causal == HY_CAUSAL_NONE ? "" : "_causal");
  const kernel* found = find(task->device, name);
  HY__GPU_NEED(found, NO_SHAPE);
  HY__GPU_NEED(
      plain(q, q->dtype) && plain(k, q->dtype) && plain(v, q->dtype) && plain(out, q->dtype),
      NO_LAYOUT);
  bool wants = call->n_out > 1 && hy__gpu_present(&call->out[1]);
  HY__GPU_NEED(!wants || hy_tensor_is_contiguous(&call->out[1]), NO_LAYOUT);
  if (!task->stream) return HY_SUPPORT_YES;
  double given = call->attrs.attention.scale;
  float scale = (float)(given == 0 ? 1 / sqrt((double)size) : given);
  int t = (int)q->shape[2], s = (int)k->shape[2], heads = (int)n_heads;
  int group = (int)(n_heads / k->shape[1]), wants_lse = wants;
  void* lse = wants ? call->out[1].data : NULL;
  launch(task, found,
         (hy__gpu_dim3){(unsigned)((t + ROWS - 1) / ROWS), (unsigned)(batch * heads), 1}, 11,
         HY__GPU_ARGS((void*)&out->data, &lse, (void*)&q->data, (void*)&k->data, (void*)&v->data,
                      &scale, &t, &s, &heads, &group, &wants_lse));
  return HY_SUPPORT_YES;
}

static hy_support by_op(hy__gpu_task* task, const hy_call* call) {
  switch (call->op) {
    case HY_OP_softmax: return softmax(task, call);
    case HY_OP_rms_norm: return rms_norm(task, call);
    case HY_OP_sdpa: return attention(task, call);
    default: return HY_SUPPORT_NO_OP;
  }
}

static hy_support supports(void* device, const hy_call* call) {
  hy__gpu_task question = {.device = device, .op = call->op};
  return by_op(&question, call);
}

static hy_status run(void* device, void* stream, const hy_call* call) {
  return hy__gpu_run_family(device, stream, call, by_op);
}

const hy_provider hy__cuda_triton = {
    .size = sizeof(hy_provider),
    .name = "triton",
    .version = HY_VERSION_STRING,
    .probe = probe,
    .supports = supports,
    .run = run,
};
