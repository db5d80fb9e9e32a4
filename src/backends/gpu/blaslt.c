// Matrix products by a BLASLt library, cuBLASLt or hipBLASLt: mm, bmm, addmm and linear in floats,
// with a bias in the epilogue, and int_mm. f32 is computed in f32, not in TF32.
//
// The libraries store by columns: the row-major product out = a b is asked for as out' = b' a'.
// What the heuristics answer is kept for each problem; where they have no algorithm, the backend's
// own kernels run. Products of few rows are left to these too, which stream the weights once,
// unless they are sums over many rows (gradients).
#include "backends/gpu/blaslt.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST_ROWS = 33, LEAST_SUMMED_ROWS = 9, LONG_K = 1024, WORKSPACE = 32 << 20 };

// cudaDataType and hipDataType, and what else has the same number in both libraries.
enum { TYPE_F32 = 0, TYPE_F64 = 1, TYPE_F16 = 2, TYPE_I8 = 3, TYPE_I32 = 10, TYPE_BF16 = 14 };
enum { PREFERENCE_WORKSPACE = 1, EPILOGUE_BIAS = 4 };

hy_status hy__gpu_blaslt_bind(hy__gpu_blaslt* lt, void* library, hy_probe* report) {
  char symbol[64];
#define HY_BLASLT(field, suffix, parameters)                   \
  snprintf(symbol, sizeof symbol, "%s%s", lt->prefix, suffix); \
  *(void**)&lt->field = dlsym(library, symbol);                \
  if (!lt->field)                                              \
    return hy__backend_host->fail(HY_UNAVAILABLE, "%.200s has no %s", report->library, symbol);
#include "backends/gpu/blaslt.def"
  report->stage = HY_STAGE_SYMBOLS;
  return HY_OK;
}

hy_status hy__gpu_blaslt_open(const hy__gpu_api* api, const hy__gpu_blaslt* lt, void** handle) {
  size_t available = 0, total = 0;
  *handle = NULL;
  if (lt->handle_bytes && !api->driver.memory_info(&available, &total) &&
      available < lt->handle_bytes)
    return hy__backend_host->fail(
        HY_OUT_OF_MEMORY, "%s needs %zu MiB of the device's memory to start, and %zu are free",
        lt->name, lt->handle_bytes >> 20, available >> 20);
  int error = lt->create(handle);
  if (!error) return HY_OK;
  *handle = NULL;
  return hy__backend_host->fail(HY_DEVICE_FAILED, "%s does not start: error %d", lt->name, error);
}

// ---- The problem ----

// A matrix whose elements are adjacent along one of its dimensions.
typedef struct matrix {
  const void* data;
  int64_t ld;
  bool by_rows;  // close along the second dimension
} matrix;

// out[batch, m, n] = alpha a[batch, m, k] b[batch, k, n] + beta c, + bias[n].
typedef struct problem {
  matrix a, b, c, out;
  int64_t m, n, k, batch, stride_a, stride_b, stride_c, stride_out;
  const void* bias;
  double alpha, beta;
  hy_dtype dtype, out_dtype;
} problem;

static bool matrix_of(const hy_tensor* t, matrix* m) {
  int r = t->ndim - 2, c = t->ndim - 1;
  int64_t rows = t->shape[r], columns = t->shape[c];
  m->data = t->data;
  m->by_rows = t->stride[c] == 1 || columns == 1;
  m->ld = m->by_rows ? t->stride[r] : t->stride[c];
  if (!m->by_rows && t->stride[r] != 1 && rows != 1) return false;
  int64_t least = m->by_rows ? columns : rows;
  if ((m->by_rows ? rows : columns) == 1) m->ld = least;
  return m->ld >= least && m->ld < INT32_MAX;
}

// The rows of x [..., k] as one dimension.
static bool rows_of(const hy_tensor* x, hy_tensor* flat) {
  int last = x->ndim - 1;
  *flat = *x;
  flat->ndim = 2;
  flat->shape[1] = x->shape[last];
  flat->stride[1] = x->stride[last];
  int64_t rows = 1, stride = 0;
  for (int d = last - 1; d >= 0; d--) {
    if (x->shape[d] == 1) continue;
    if (rows == 1)
      stride = x->stride[d];
    else if (x->stride[d] != stride * rows)
      return false;
    rows *= x->shape[d];
  }
  flat->shape[0] = rows;
  flat->stride[0] = rows == 1 ? x->shape[last] : stride;
  return true;
}

static hy_support set_product(problem* p, const hy_tensor* a, const hy_tensor* b,
                              const hy_tensor* out) {
  int last = a->ndim - 1;
  p->m = out->shape[last - 1];
  p->n = out->shape[last];
  p->k = a->shape[last];
  p->batch = last == 2 ? out->shape[0] : 1;
  HY__GPU_NEED(matrix_of(a, &p->a) && matrix_of(b, &p->b) && matrix_of(out, &p->out), NO_LAYOUT);
  HY__GPU_NEED(p->out.by_rows, NO_LAYOUT);
  p->c = p->out;
  p->dtype = a->dtype;
  p->out_dtype = out->dtype;
  if (last == 2) {
    p->stride_a = a->stride[0];
    p->stride_b = b->stride[0];
    p->stride_out = p->stride_c = out->stride[0];
  }
  return HY_SUPPORT_YES;
}

// Integer tensor cores take 16 bytes along k at a time; the product of bytes wraps as ours does.
static hy_support read_int_mm(const hy_call* call, problem* p) {
  hy_support answer = set_product(p, &call->in[0], &call->in[1], &call->out[0]);
  if (answer != HY_SUPPORT_YES) return answer;
  HY__GPU_NEED(p->m >= LEAST_ROWS && p->n % 16 == 0 && p->k % 16 == 0 && p->n > 0 && p->k > 0,
               NO_SHAPE);
  HY__GPU_NEED(p->a.by_rows && p->a.ld % 16 == 0 && p->out.ld % 4 == 0, NO_LAYOUT);
  HY__GPU_NEED(p->b.by_rows || p->b.ld % 16 == 0, NO_LAYOUT);
  return HY_SUPPORT_YES;
}

static hy_support read_floats(const hy_call* call, problem* p) {
  const hy_tensor *in = call->in, *out = &call->out[0];
  const hy_dtype dtype = in[0].dtype;
  HY__GPU_NEED(call->op == HY_OP_mm || call->op == HY_OP_bmm || call->op == HY_OP_addmm ||
                   call->op == HY_OP_linear,
               NO_OP);
  HY__GPU_NEED(HY_DTYPE_BIT(dtype) & HY_FLOATS, NO_DTYPE);
  for (int i = 0; i < call->n_in; i++)
    HY__GPU_NEED(!hy__gpu_present(&in[i]) || in[i].dtype == dtype, NO_DTYPE);
  HY__GPU_NEED(out->dtype == dtype, NO_DTYPE);
  hy_support answer = HY_SUPPORT_YES;
  if (call->op == HY_OP_mm || call->op == HY_OP_bmm) {
    answer = set_product(p, &in[0], &in[1], out);
  } else if (call->op == HY_OP_addmm) {
    const hy_tensor* x = &in[0];
    p->alpha = hy_scalar_f(call->attrs.addmm.alpha);
    p->beta = hy_scalar_f(call->attrs.addmm.beta);
    HY__GPU_NEED(x->ndim == 2 && x->shape[0] == out->shape[0] && x->shape[1] == out->shape[1],
                 NO_SHAPE);
    answer = set_product(p, &in[1], &in[2], out);
    HY__GPU_NEED(matrix_of(x, &p->c) && p->c.by_rows, NO_LAYOUT);
  } else {
    const hy_tensor *weight = &in[1], *bias = &in[2];
    hy_tensor x, to, turned = *weight;
    HY__GPU_NEED(in[0].ndim >= 1 && weight->ndim == 2, NO_SHAPE);
    HY__GPU_NEED(rows_of(&in[0], &x) && rows_of(out, &to), NO_LAYOUT);
    turned.shape[0] = weight->shape[1];
    turned.shape[1] = weight->shape[0];
    turned.stride[0] = weight->stride[1];
    turned.stride[1] = weight->stride[0];
    if (hy__gpu_present(bias)) {
      HY__GPU_NEED(bias->stride[0] == 1 && (uintptr_t)bias->data % 16 == 0, NO_LAYOUT);
      // Kernels for odd sizes round the product of halves before they add the bias.
      HY__GPU_NEED(hy_dtype_size(bias->dtype) > 2 ||
                       (weight->shape[0] % 8 == 0 && weight->shape[1] % 8 == 0),
                   NO_SHAPE);
      HY__GPU_NEED(dtype != HY_F64, NO_DTYPE);
      p->bias = bias->data;
    }
    answer = set_product(p, &x, &turned, &to);
  }
  if (answer != HY_SUPPORT_YES) return answer;
  bool streams = p->a.by_rows && !p->b.by_rows;  // both run along k
  int64_t least = p->k >= LONG_K && !streams ? LEAST_SUMMED_ROWS : LEAST_ROWS;
  HY__GPU_NEED(p->m >= least && p->n > 1 && p->k > 1 && p->batch > 0, NO_SHAPE);
  return HY_SUPPORT_YES;
}

static hy_support read_call(const hy_call* call, problem* p) {
  *p = (problem){.alpha = 1};
  hy_support answer = call->op == HY_OP_int_mm ? read_int_mm(call, p) : read_floats(call, p);
  if (answer != HY_SUPPORT_YES) return answer;
  HY__GPU_NEED(p->m < INT32_MAX && p->n < INT32_MAX && p->k < INT32_MAX, NO_SHAPE);
  // Tensor cores load 16 bytes at a time.
  HY__GPU_NEED((((uintptr_t)p->a.data | (uintptr_t)p->b.data | (uintptr_t)p->out.data) & 15) == 0,
               NO_LAYOUT);
  return HY_SUPPORT_YES;
}

// ---- Plans ----

// All that the heuristics look at; addresses are aligned alike.
typedef struct key {
  int64_t m, n, k, batch, ld[4], stride[4];
  int32_t dtype, turned, bias, beta;
} key;

// A heuristic's result: the algorithm, then the size of its workspace, then a status.
typedef struct result {
  _Alignas(16) unsigned char bytes[128];
} result;

typedef struct plan {
  struct plan* next;
  key key;
  bool possible;     // there is an algorithm
  size_t workspace;  // that it needs
  void *desc, *a, *b, *c, *d;
  result best;
} plan;

enum { BUCKETS = 256 };
typedef struct plans {
  pthread_mutex_t mutex;
  void* handle;  // of a library that needs one for the device
  plan* buckets[BUCKETS];
} plans;

static int type_of(hy_dtype dtype) {
  return dtype == HY_F32   ? TYPE_F32
         : dtype == HY_F64 ? TYPE_F64
         : dtype == HY_F16 ? TYPE_F16
         : dtype == HY_I8  ? TYPE_I8
         : dtype == HY_I32 ? TYPE_I32
                           : TYPE_BF16;
}

static int make_layout(const hy__gpu_blaslt* lt, void** layout, int type, const matrix* m,
                       int64_t rows, int64_t columns, int64_t batch, int64_t stride) {
  // By columns, the first dimension is the one whose elements are adjacent.
  int error = lt->layout_create(layout, type, (uint64_t)(m->by_rows ? columns : rows),
                                (uint64_t)(m->by_rows ? rows : columns), m->ld);
  int32_t count = (int32_t)batch;
  if (!error && batch > 1) {
    error = lt->layout_set(*layout, lt->layout_batch, &count, sizeof count);
    if (!error) error = lt->layout_set(*layout, lt->layout_stride, &stride, sizeof stride);
  }
  return error;
}

static int make_desc(const hy__gpu_blaslt* lt, void** desc, const problem* p, int out_type) {
  const int computes = p->dtype == HY_F64  ? lt->compute_f64
                       : p->dtype == HY_I8 ? lt->compute_i32
                                           : lt->compute_f32;
  const int scale = p->dtype == HY_F64 || p->dtype == HY_I8 ? out_type : TYPE_F32;
  int32_t turn_b = p->b.by_rows ? lt->as_is : lt->transposed;
  int32_t turn_a = p->a.by_rows ? lt->as_is : lt->transposed;
  int32_t epilogue = EPILOGUE_BIAS, bias_type = out_type;
  int error = lt->desc_create(desc, computes, scale);
  if (!error) error = lt->desc_set(*desc, lt->desc_transpose_a, &turn_b, sizeof turn_b);
  if (!error) error = lt->desc_set(*desc, lt->desc_transpose_b, &turn_a, sizeof turn_a);
  if (error || !p->bias) return error;
  error = lt->desc_set(*desc, lt->desc_epilogue, &epilogue, sizeof epilogue);
  if (!error && lt->desc_bias_type)
    error = lt->desc_set(*desc, lt->desc_bias_type, &bias_type, sizeof bias_type);
  return error ? error : lt->desc_set(*desc, lt->desc_bias, &p->bias, sizeof p->bias);
}

static bool find_algorithm(const hy__gpu_blaslt* lt, void* handle, void* preference, plan* made) {
  int found = 0, state = 0;
  int error = lt->heuristic(handle, made->desc, made->b, made->a, made->c, made->d, preference, 1,
                            &made->best, &found);
  memcpy(&made->workspace, made->best.bytes + lt->algo_bytes, sizeof made->workspace);
  memcpy(&state, made->best.bytes + lt->algo_bytes + sizeof(size_t), sizeof state);
  return !error && found > 0 && state == 0;
}

// out' [n, m] = b' [n, k] a' [k, m]: the library's first operand is b, its second a.
static int make_plan(const hy__gpu_blaslt* lt, void* handle, const problem* p, plan* made) {
  const int type = type_of(p->dtype), out_type = type_of(p->out_dtype);
  int error = make_desc(lt, &made->desc, p, out_type);
  if (!error) error = make_layout(lt, &made->a, type, &p->a, p->m, p->k, p->batch, p->stride_a);
  if (!error) error = make_layout(lt, &made->b, type, &p->b, p->k, p->n, p->batch, p->stride_b);
  if (!error) error = make_layout(lt, &made->c, out_type, &p->c, p->m, p->n, p->batch, p->stride_c);
  if (!error)
    error = make_layout(lt, &made->d, out_type, &p->out, p->m, p->n, p->batch, p->stride_out);
  void* preference = NULL;
  uint64_t most = WORKSPACE;
  if (!error) error = lt->preference_create(&preference);
  if (!error) error = lt->preference_set(preference, PREFERENCE_WORKSPACE, &most, sizeof most);
  if (!error) made->possible = find_algorithm(lt, handle, preference, made);
  if (preference) lt->preference_destroy(preference);
  return error;
}

static void free_plan(const hy__gpu_blaslt* lt, plan* p) {
  if (p->desc) lt->desc_destroy(p->desc);
  void* layouts[] = {p->a, p->b, p->c, p->d};
  for (int i = 0; i < 4; i++)
    if (layouts[i]) lt->layout_destroy(layouts[i]);
  free(p);
}

static uint64_t hash_key(const key* k) {
  const unsigned char* bytes = (const unsigned char*)k;
  uint64_t hash = 0xcbf29ce484222325u;
  for (size_t i = 0; i < sizeof *k; i++) hash = (hash ^ bytes[i]) * 0x100000001b3u;
  return hash ^ hash >> 32;
}

// The caller holds the mutex of the plans.
static plan* find_plan(const hy__gpu_blaslt* lt, void* handle, plans* all, const problem* p,
                       int* error) {
  key k = {p->m,
           p->n,
           p->k,
           p->batch,
           {p->a.ld, p->b.ld, p->c.ld, p->out.ld},
           {p->stride_a, p->stride_b, p->stride_c, p->stride_out},
           (int32_t)p->dtype,
           p->a.by_rows | p->b.by_rows << 1,
           p->bias != NULL,
           p->beta != 0};
  plan** bucket = &all->buckets[hash_key(&k) % BUCKETS];
  for (plan* known = *bucket; known; known = known->next)
    if (!memcmp(&known->key, &k, sizeof k)) return known;
  plan* made = aligned_alloc(16, (sizeof *made + 15) / 16 * 16);
  *error = -1;
  if (!made) return NULL;
  memset(made, 0, sizeof *made);
  *error = make_plan(lt, handle, p, made);
  if (*error) {
    free_plan(lt, made);
    return NULL;
  }
  if (!made->possible)
    hy__backend_host->log(2, "%s has no algorithm for m=%lld n=%lld k=%lld: own kernels run",
                          lt->name, (long long)p->m, (long long)p->n, (long long)p->k);
  made->key = k;
  made->next = *bucket;
  *bucket = made;
  return made;
}

static plans* plans_of(hy__gpu_device* device) {
  pthread_mutex_lock(&device->mutex);
  plans* all = device->blas;
  if (!all && (all = calloc(1, sizeof *all)) != NULL) {
    pthread_mutex_init(&all->mutex, NULL);
    device->blas = all;
  }
  pthread_mutex_unlock(&device->mutex);
  return all;
}

// ---- Running ----

// The caller holds the mutex of the plans. Fails the task where there is none to be had.
static void* handle_of(hy__gpu_task* task, plans* all) {
  const hy__gpu_api* api = task->device->api;
  void** handle = api->blaslt->handle_per_stream ? &task->stream->use.blas : &all->handle;
  if (!*handle) task->status = hy__gpu_blaslt_open(api, api->blaslt, handle);
  return *handle;
}

// Integer tensor cores read both sides along k.
static const void* store_b_along_k(hy__gpu_task* task, const hy_tensor* b) {
  hy_tensor by_columns = *b;
  by_columns.shape[0] = b->shape[1];
  by_columns.shape[1] = b->shape[0];
  by_columns.stride[0] = b->stride[1];
  by_columns.stride[1] = b->stride[0];
  hy_tensor turned = hy__gpu_temporary(task, b->dtype, 2, by_columns.shape);
  hy__gpu_copy(task, &turned, &by_columns);
  return turned.data;
}

// The caller holds the mutex of the plans: a plan's bias is set for each call.
static int run_plan(hy__gpu_task* task, void* handle, const plan* best, const problem* p) {
  const hy__gpu_blaslt* lt = task->device->api->blaslt;
  // What the algorithm needs, and no more: a captured graph keeps it.
  size_t bytes = best->workspace;
  void* workspace = bytes > 0 ? (void*)(uintptr_t)hy__gpu_workspace(task, bytes) : NULL;
  if (task->status != HY_OK) return 0;
  float alpha = (float)p->alpha, beta = (float)p->beta;
  const int32_t one = 1, none = 0;
  const void* scales[2] = {&alpha, &beta};
  if (p->dtype == HY_F64) scales[0] = &p->alpha, scales[1] = &p->beta;
  if (p->dtype == HY_I8) scales[0] = &one, scales[1] = &none;
  int error = p->bias ? lt->desc_set(best->desc, lt->desc_bias, &p->bias, sizeof p->bias) : 0;
  return error ? error
               : lt->matmul(handle, best->desc, scales[0], p->b.data, best->b, p->a.data, best->a,
                            scales[1], p->c.data, best->c, (void*)p->out.data, best->d,
                            best->best.bytes, workspace, bytes, task->stream->queue);
}

static hy_support multiply(hy__gpu_task* task, const hy_call* call) {
  const hy__gpu_blaslt* lt = task->device->api->blaslt;
  problem p;
  hy_support answer = read_call(call, &p);
  if (answer != HY_SUPPORT_YES) return answer;
  HY__GPU_NEED(HY_DTYPE_BIT(p.dtype) & lt->dtypes, NO_DTYPE);
  if (!task->stream) return HY_SUPPORT_YES;
  plans* all = plans_of(task->device);
  if (!all) {
    hy__gpu_refuse(task, HY_OUT_OF_MEMORY, "no host memory");
    return HY_SUPPORT_YES;
  }
  bool turns = p.dtype == HY_I8 && p.b.by_rows;
  if (turns) p.b = (matrix){NULL, p.k, false};
  int error = 0;
  pthread_mutex_lock(&all->mutex);
  void* handle = handle_of(task, all);
  plan* best = handle ? find_plan(lt, handle, all, &p, &error) : NULL;
  bool possible = best && best->possible;
  if (possible && turns) p.b.data = store_b_along_k(task, &call->in[1]);
  if (possible) error = run_plan(task, handle, best, &p);
  pthread_mutex_unlock(&all->mutex);
  if (best && !possible) return hy__gpu_own(task, call);
  if (!error) return HY_SUPPORT_YES;
  char message[96];
  snprintf(message, sizeof message, "%s: error %d for m=%lld n=%lld k=%lld", lt->name, error,
           (long long)p.m, (long long)p.n, (long long)p.k);
  hy__gpu_refuse(task, HY_DEVICE_FAILED, message);
  return HY_SUPPORT_YES;
}

hy_support hy__gpu_blaslt_supports(void* device, const hy_call* call) {
  hy__gpu_task question = {.device = device, .op = call->op};
  return multiply(&question, call);
}

hy_status hy__gpu_blaslt_run(void* device, void* stream, const hy_call* call) {
  return hy__gpu_run_family(device, stream, call, multiply);
}
