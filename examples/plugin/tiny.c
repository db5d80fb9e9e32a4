// A backend for a made-up chip called "tiny", as a plugin: one file, one header, nothing to link.
//
// The chip has memory of its own, which begins at an address the host cannot follow, and computes a
// handful of ops in f32. Everything else falls back to the cpu, visibly.
#include <halyard/plugin.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MEMORY_START 0x4000000000000000u
#define MEMORY_SIZE (1ull << 30)

static const hy_host* host;  // what the library offers: messages, log, the reference

// ---- The chip. A real one has a driver here. ----

static void* device_address(void* cell) {
  return (void*)((uintptr_t)cell + MEMORY_START);
}

static char* cell_at(const void* address) {
  return (char*)((uintptr_t)address - MEMORY_START);
}

// ---- Kernels ----

// Where `t`, broadcast to the shape of `like`, keeps that shape's i-th element.
static float* element(const hy_tensor* t, const hy_tensor* like, int64_t i) {
  int64_t offset = 0;
  for (int d = like->ndim - 1; d >= 0; d--) {
    int own = d - (like->ndim - t->ndim);
    if (own >= 0 && t->shape[own] != 1) offset += i % like->shape[d] * t->stride[own];
    i /= like->shape[d];
  }
  return (float*)cell_at(t->data) + offset;
}

static float compute(const hy_call* call, float a, float b) {
  switch (call->op) {
    case HY_OP_add: return a + (float)hy_scalar_f(call->attrs.alpha.alpha) * b;
    case HY_OP_sub: return a - (float)hy_scalar_f(call->attrs.alpha.alpha) * b;
    case HY_OP_mul: return a * b;
    case HY_OP_neg: return -a;
    case HY_OP_exp: return expf(a);
    case HY_OP_silu: return a / (1 + expf(-a));
    default: return a;  // copy
  }
}

static void elementwise(const hy_call* call) {
  const hy_tensor *out = &call->out[0], *a = &call->in[0], *b = &call->in[call->n_in - 1];
  int64_t n = hy_tensor_numel(out);
  for (int64_t i = 0; i < n; i++)
    *element(out, out, i) = compute(call, *element(a, out, i), *element(b, out, i));
}

// out(M,N) = a(M,K) b(K,N)
static void matmul(const hy_call* call) {
  const hy_tensor *out = &call->out[0], *a = &call->in[0], *b = &call->in[1];
  int64_t M = a->shape[0], K = a->shape[1], N = b->shape[1];
  for (int64_t m = 0; m < M; m++) {
    for (int64_t n = 0; n < N; n++) {
      double sum = 0;
      for (int64_t k = 0; k < K; k++)
        sum += (double)*element(a, a, m * K + k) * (double)*element(b, b, k * N + n);
      *element(out, out, m * N + n) = (float)sum;
    }
  }
}

// The same tensor with dimension `dim` as its last.
static hy_tensor move_last(hy_tensor t, int dim) {
  if (t.ndim == 0) return t;
  int64_t shape = t.shape[dim], stride = t.stride[dim];
  for (int d = dim; d < t.ndim - 1; d++) {
    t.shape[d] = t.shape[d + 1];
    t.stride[d] = t.stride[d + 1];
  }
  t.shape[t.ndim - 1] = shape;
  t.stride[t.ndim - 1] = stride;
  return t;
}

static void softmax(const hy_call* call) {
  int64_t dim = call->attrs.dim.dim;
  if (dim < 0) dim += call->in[0].ndim;
  hy_tensor in = move_last(call->in[0], (int)dim), out = move_last(call->out[0], (int)dim);
  int64_t n = in.ndim ? in.shape[in.ndim - 1] : 1, total = hy_tensor_numel(&in);
  for (int64_t row = 0; row < total; row += n) {
    float most = -INFINITY;
    double sum = 0;
    for (int64_t i = row; i < row + n; i++) most = fmaxf(most, *element(&in, &in, i));
    for (int64_t i = row; i < row + n; i++) sum += exp((double)*element(&in, &in, i) - most);
    for (int64_t i = row; i < row + n; i++)
      *element(&out, &out, i) = (float)(exp((double)*element(&in, &in, i) - most) / sum);
  }
}

// ---- The provider: which calls it runs, and running them ----

#define F32 HY_DTYPE_BIT(HY_F32)

// Conformance holds the chip to this list.
static const hy_declaration declares[] = {
    {HY_OP_copy, F32}, {HY_OP_add, F32},  {HY_OP_sub, F32}, {HY_OP_mul, F32},     {HY_OP_neg, F32},
    {HY_OP_exp, F32},  {HY_OP_silu, F32}, {HY_OP_mm, F32},  {HY_OP_softmax, F32},
};
enum { N_DECLARES = sizeof declares / sizeof *declares };

static hy_support supports(void* device, const hy_call* call) {
  (void)device;
  int i = 0;
  while (i < N_DECLARES && declares[i].op != call->op) i++;
  if (i == N_DECLARES) return HY_SUPPORT_NO_OP;
  for (int k = 0; k < call->n_in; k++)
    if (call->in[k].dtype != HY_F32) return HY_SUPPORT_NO_DTYPE;
  return call->out[0].dtype == HY_F32 ? HY_SUPPORT_YES : HY_SUPPORT_NO_DTYPE;
}

static hy_status run(void* device, void* stream, const hy_call* call) {
  (void)device, (void)stream;
  switch (call->op) {
    case HY_OP_mm: matmul(call); break;
    case HY_OP_softmax: softmax(call); break;
    default: elementwise(call);
  }
  return HY_OK;
}

static const hy_provider kernels = {
    .size = sizeof(hy_provider),
    .name = "tiny_kernels",
    .version = "1.0",
    .declares = declares,
    .n_declares = N_DECLARES,
    .supports = supports,
    .run = run,
};
static const hy_provider* const providers[] = {&kernels};

// ---- The backend: devices, memory, copies ----

static hy_status memory_alloc(void* device, size_t bytes, void** address) {
  (void)device;
  void* cell;
  if (posix_memalign(&cell, 64, bytes ? bytes : 1))
    return host->fail(HY_OUT_OF_MEMORY, "tiny: no %zu bytes left", bytes);
  *address = device_address(cell);
  return HY_OK;
}

static void memory_free(void* device, void* address) {
  (void)device;
  free(cell_at(address));
}

static hy_status memory_info(void* device, uint64_t* free_bytes, uint64_t* total_bytes) {
  (void)device;
  *free_bytes = *total_bytes = MEMORY_SIZE;
  return HY_OK;
}

static hy_status copy(void* device, void* stream, void* dst, const void* src, size_t bytes,
                      hy_copy_kind kind) {
  (void)device, (void)stream;
  bool to_host = kind == HY_COPY_DEVICE_TO_HOST || kind == HY_COPY_HOST_TO_HOST;
  bool from_host = kind == HY_COPY_HOST_TO_DEVICE || kind == HY_COPY_HOST_TO_HOST;
  memmove(to_host ? dst : cell_at(dst), from_host ? src : cell_at(src), bytes);
  return HY_OK;
}

static hy_status set(void* device, void* stream, void* dst, int value, size_t bytes) {
  (void)device, (void)stream;
  memset(cell_at(dst), value, bytes);
  return HY_OK;
}

static hy_status device_info(int index, hy_device_info* info) {
  (void)index;
  snprintf(info->name, sizeof info->name, "Tiny, a made-up chip");
  info->memory_total = info->memory_free = MEMORY_SIZE;
  info->core_count = 1;
  info->capabilities = HY_CAP_FP32;
  info->dtypes = F32;
  return HY_OK;
}

static hy_status device_open(int index, void** device) {
  (void)index;
  static char the_device;
  *device = &the_device;
  return HY_OK;
}

static void device_close(void* device) {
  (void)device;
}

// Ends with a small kernel on the chip: what is wrong shows here, not in somebody's model.
static hy_status probe(hy_probe* report, int* device_count) {
  report->stage = HY_STAGE_DEVICES;
  *device_count = 1;
  float cells[3] = {3, 4, 0};
  hy_tensor t[3];
  memset(t, 0, sizeof t);
  for (int i = 0; i < 3; i++) {
    t[i].data = device_address(&cells[i]);
    t[i].dtype = HY_F32;
  }
  hy_call call = {.op = HY_OP_mul, .n_in = 2, .n_out = 1, .in = t, .out = &t[2]};
  HY_TRY(run(NULL, NULL, &call));
  if (cells[2] != 12) {
    snprintf(report->remedy, sizeof report->remedy, "reset the chip");
    return host->fail(HY_DEVICE_FAILED, "tiny: 3 x 4 gave %g", (double)cells[2]);
  }
  report->stage = HY_STAGE_READY;
  return HY_OK;
}

static const hy_backend backend = {
    .size = sizeof(hy_backend),
    .abi = HY_ABI_VERSION,
    .name = "tiny",
    .version = "1.0",
    .description = "a made-up chip, to copy from",
    .probe = probe,
    .device_info = device_info,
    .device_open = device_open,
    .device_close = device_close,
    .memory_alloc = memory_alloc,
    .memory_free = memory_free,
    .memory_info = memory_info,
    .copy = copy,
    .set = set,
    .providers = providers,
    .n_providers = 1,
};

hy_status halyard_backend_query(uint32_t max_abi, const hy_host* services, const hy_backend** out) {
  if (max_abi < HY_ABI_VERSION) return HY_ABI_MISMATCH;
  host = services;
  *out = &backend;
  return HY_OK;
}
