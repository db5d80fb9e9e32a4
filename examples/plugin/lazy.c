// A backend for a made-up chip called "lazy", as a plugin: its work waits in a queue.
//
// The chip has memory of its own, which begins at an address the host cannot follow, and one queue
// that it works off in order, some time later. Calls only enqueue; what they were given is copied
// into the queue's entry. A real chip has a ring of descriptors and an interrupt where this file
// has a list and a thread.
#include <halyard/plugin.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MEMORY_START 0x4000000000000000u
#define MEMORY_SIZE (1ull << 30)

static const hy_host* host;  // what the library offers: messages, log, the reference

// ---- The chip's memory ----

static void* device_address(void* cell) {
  return (void*)((uintptr_t)cell + MEMORY_START);
}

static char* cell_at(const void* address) {
  return (char*)((uintptr_t)address - MEMORY_START);
}

// ---- Kernels: they run when their turn comes, on the chip ----

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

static void elementwise(const hy_call* call) {
  const hy_tensor *out = &call->out[0], *a = &call->in[0], *b = &call->in[call->n_in - 1];
  int64_t n = hy_tensor_numel(out);
  for (int64_t i = 0; i < n; i++) {
    float x = *element(a, out, i), y = *element(b, out, i);
    if (call->op == HY_OP_add) x += (float)hy_scalar_f(call->attrs.alpha.alpha) * y;
    if (call->op == HY_OP_mul) x *= y;
    *element(out, out, i) = x;
  }
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

// ---- The queue ----

typedef struct stream {
  uint64_t last;         // number of its newest entry
  hy_async_error error;  // its first failure; later entries of it are passed over
} stream;

typedef struct event {
  uint64_t number;  // of the entry that reaches it; 0: never recorded
  double when;      // milliseconds
} event;

typedef enum kind { COPY, SET, CALL, RECORD } kind;

// All that an entry needs is inside: the caller's tensors are gone when it runs.
typedef struct entry {
  struct entry* next;
  uint64_t number;
  kind kind;
  stream* stream;
  event* event;
  char* dst;
  const char* src;
  size_t bytes;
  int value;
  hy_call call;
  hy_tensor tensors[HY_MAX_INPUTS + HY_MAX_OUTPUTS];  // inputs, then outputs
} entry;

static struct {
  pthread_mutex_t mutex;  // guards all below, and the streams and events
  pthread_cond_t changed;
  pthread_t chip;
  entry *first, *last;
  uint64_t newest, done;  // numbers of entries, from 1
  bool stopping;
} queue = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void execute(entry* e) {
  switch (e->kind) {
    case COPY: memmove(e->dst, e->src, e->bytes); break;
    case SET: memset(e->dst, e->value, e->bytes); break;
    case CALL:
      if (e->call.op == HY_OP_mm)
        matmul(&e->call);
      else
        elementwise(&e->call);
      break;
    case RECORD: break;
  }
}

// The chip itself. What fails here is reported by stream_error, with its op.
static void* work(void* nothing) {
  (void)nothing;
  pthread_mutex_lock(&queue.mutex);
  for (;;) {
    while (!queue.first && !queue.stopping) pthread_cond_wait(&queue.changed, &queue.mutex);
    entry* e = queue.first;
    if (!e) break;
    queue.first = e->next;
    bool broken = e->stream->error.status != HY_OK;
    pthread_mutex_unlock(&queue.mutex);
    if (!broken) execute(e);
    pthread_mutex_lock(&queue.mutex);
    if (e->kind == RECORD) e->event->when = now();
    queue.done = e->number;
    pthread_cond_broadcast(&queue.changed);
    free(e);
  }
  pthread_mutex_unlock(&queue.mutex);
  return NULL;
}

// Appends a copy of `*given`.
static hy_status push(void* on, const entry* given) {
  entry* e = malloc(sizeof *e);
  if (!e) return host->fail(HY_OUT_OF_MEMORY, "lazy: no host memory for an entry of the queue");
  *e = *given;
  e->next = NULL;
  e->stream = on;
  if (e->kind == CALL) {
    e->call.in = e->tensors;
    e->call.out = e->tensors + e->call.n_in;
  }
  pthread_mutex_lock(&queue.mutex);
  e->number = ++queue.newest;
  e->stream->last = e->number;
  if (e->event) e->event->number = e->number;
  *(queue.first ? &queue.last->next : &queue.first) = e;
  queue.last = e;
  pthread_cond_broadcast(&queue.changed);
  pthread_mutex_unlock(&queue.mutex);
  return HY_OK;
}

static void wait_for(const uint64_t* number) {
  pthread_mutex_lock(&queue.mutex);
  uint64_t wanted = *number;
  while (queue.done < wanted) pthread_cond_wait(&queue.changed, &queue.mutex);
  pthread_mutex_unlock(&queue.mutex);
}

static hy_status reached(const uint64_t* number) {
  pthread_mutex_lock(&queue.mutex);
  bool done = queue.done >= *number;
  pthread_mutex_unlock(&queue.mutex);
  return done ? HY_OK : HY_NOT_READY;
}

// ---- Streams and events: numbers in the one queue ----

static hy_status stream_create(void* device, void** out) {
  (void)device;
  *out = calloc(1, sizeof(stream));
  return *out ? HY_OK : host->fail(HY_OUT_OF_MEMORY, "lazy: no host memory for a stream");
}

static hy_status stream_sync(void* device, void* s) {
  (void)device;
  wait_for(&((stream*)s)->last);
  return HY_OK;
}

static void stream_destroy(void* device, void* s) {
  stream_sync(device, s);
  free(s);
}

static hy_status stream_query(void* device, void* s) {
  (void)device;
  return reached(&((stream*)s)->last);
}

static void stream_error(void* device, void* s, hy_async_error* error) {
  (void)device;
  pthread_mutex_lock(&queue.mutex);
  *error = ((stream*)s)->error;
  pthread_mutex_unlock(&queue.mutex);
}

static hy_status device_sync(void* device) {
  (void)device;
  wait_for(&queue.newest);
  return HY_OK;
}

static hy_status event_create(void* device, void** out) {
  (void)device;
  *out = calloc(1, sizeof(event));
  return *out ? HY_OK : host->fail(HY_OUT_OF_MEMORY, "lazy: no host memory for an event");
}

static hy_status event_sync(void* device, void* e) {
  (void)device;
  wait_for(&((event*)e)->number);
  return HY_OK;
}

static void event_destroy(void* device, void* e) {
  event_sync(device, e);
  free(e);
}

static hy_status event_record(void* device, void* e, void* s) {
  (void)device;
  return push(s, &(entry){.kind = RECORD, .event = e});
}

static hy_status event_query(void* device, void* e) {
  (void)device;
  return reached(&((event*)e)->number);
}

static hy_status event_elapsed(void* device, void* start, void* stop, double* milliseconds) {
  (void)device;
  if (event_query(device, start) != HY_OK || event_query(device, stop) != HY_OK)
    return host->fail(HY_NOT_READY, "lazy: an event has not been reached yet");
  *milliseconds = ((event*)stop)->when - ((event*)start)->when;
  return HY_OK;
}

// One queue: whatever is enqueued later runs later, on any stream. With several queues, enqueue an
// entry that holds this stream back until the event's number is done.
static hy_status stream_wait_event(void* device, void* s, void* e) {
  (void)device, (void)s, (void)e;
  return HY_OK;
}

// ---- Memory and copies ----

static hy_status memory_alloc(void* device, size_t bytes, void** address) {
  (void)device;
  void* cell;
  if (posix_memalign(&cell, 64, bytes ? bytes : 1))
    return host->fail(HY_OUT_OF_MEMORY, "lazy: no %zu bytes left", bytes);
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

// The host's memory stays valid until the copy is done: the library sees to that.
static hy_status copy(void* device, void* s, void* dst, const void* src, size_t bytes,
                      hy_copy_kind kind) {
  (void)device;
  bool to_host = kind == HY_COPY_DEVICE_TO_HOST || kind == HY_COPY_HOST_TO_HOST;
  bool from_host = kind == HY_COPY_HOST_TO_DEVICE || kind == HY_COPY_HOST_TO_HOST;
  return push(s, &(entry){.kind = COPY,
                          .dst = to_host ? dst : cell_at(dst),
                          .src = from_host ? src : cell_at(src),
                          .bytes = bytes});
}

static hy_status set(void* device, void* s, void* dst, int value, size_t bytes) {
  (void)device;
  return push(s, &(entry){.kind = SET, .dst = cell_at(dst), .value = value, .bytes = bytes});
}

// ---- The provider ----

#define F32 HY_DTYPE_BIT(HY_F32)

// Conformance holds the chip to this list.
static const hy_declaration declares[] = {
    {HY_OP_copy, F32}, {HY_OP_add, F32}, {HY_OP_mul, F32}, {HY_OP_mm, F32}};
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

static hy_status run(void* device, void* s, const hy_call* call) {
  (void)device;
  entry e = {.kind = CALL, .call = *call};
  for (int i = 0; i < call->n_in; i++) e.tensors[i] = call->in[i];
  for (int i = 0; i < call->n_out; i++) e.tensors[call->n_in + i] = call->out[i];
  return push(s, &e);
}

static const hy_provider kernels = {
    .size = sizeof(hy_provider),
    .name = "lazy_kernels",
    .version = "1.0",
    .declares = declares,
    .n_declares = N_DECLARES,
    .supports = supports,
    .run = run,
};
static const hy_provider* const providers[] = {&kernels};

// ---- The device ----

static hy_status device_info(int index, hy_device_info* info) {
  (void)index;
  snprintf(info->name, sizeof info->name, "Lazy, a made-up chip with a queue");
  info->memory_total = info->memory_free = MEMORY_SIZE;
  info->core_count = 1;
  info->capabilities = HY_CAP_FP32;
  info->dtypes = F32;
  return HY_OK;
}

static hy_status device_open(int index, void** device) {
  (void)index;
  queue.stopping = false;
  if (pthread_create(&queue.chip, NULL, work, NULL) != 0)
    return host->fail(HY_OUT_OF_MEMORY, "lazy: no thread for the chip");
  *device = &queue;
  return HY_OK;
}

// Open streams are destroyed before.
static void device_close(void* device) {
  (void)device;
  pthread_mutex_lock(&queue.mutex);
  queue.stopping = true;
  pthread_cond_broadcast(&queue.changed);
  pthread_mutex_unlock(&queue.mutex);
  pthread_join(queue.chip, NULL);
}

// 3 x 4 on the chip, with memory and copies as everybody uses them.
static hy_status multiply(void* device, void* s, float* product) {
  const float factors[2] = {3, 4};
  void* cells;
  hy_tensor t[3];
  memset(t, 0, sizeof t);
  HY_TRY(memory_alloc(device, 3 * sizeof(float), &cells));
  for (int i = 0; i < 3; i++) {
    t[i].data = (float*)cells + i;
    t[i].dtype = HY_F32;
  }
  hy_call call = {.op = HY_OP_mul, .n_in = 2, .n_out = 1, .in = t, .out = &t[2]};
  hy_status status = copy(device, s, cells, factors, sizeof factors, HY_COPY_HOST_TO_DEVICE);
  if (status == HY_OK) status = run(device, s, &call);
  if (status == HY_OK)
    status = copy(device, s, product, t[2].data, sizeof *product, HY_COPY_DEVICE_TO_HOST);
  hy_status done = stream_sync(device, s);
  memory_free(device, cells);
  return status == HY_OK ? done : status;
}

// Ends with a small kernel on the chip: what is wrong shows here, not in somebody's model.
static hy_status probe(hy_probe* report, int* device_count) {
  float product = 0;
  void *device, *s;
  report->stage = HY_STAGE_DEVICES;
  *device_count = 1;
  HY_TRY(device_open(0, &device));
  hy_status status = stream_create(device, &s);
  if (status == HY_OK) {
    status = multiply(device, s, &product);
    stream_destroy(device, s);
  }
  device_close(device);
  HY_TRY(status);
  if (product != 12) {
    snprintf(report->remedy, sizeof report->remedy, "reset the chip");
    return host->fail(HY_DEVICE_FAILED, "lazy: 3 x 4 gave %g", (double)product);
  }
  report->stage = HY_STAGE_READY;
  return HY_OK;
}

static const hy_backend backend = {
    .size = sizeof(hy_backend),
    .abi = HY_ABI_VERSION,
    .name = "lazy",
    .version = "1.0",
    .description = "a made-up chip with a queue, to copy from",
    .probe = probe,
    .device_info = device_info,
    .device_open = device_open,
    .device_close = device_close,
    .device_sync = device_sync,
    .memory_alloc = memory_alloc,
    .memory_free = memory_free,
    .memory_info = memory_info,
    .copy = copy,
    .set = set,
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
    .stream_sync = stream_sync,
    .stream_query = stream_query,
    .stream_error = stream_error,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .event_record = event_record,
    .event_query = event_query,
    .event_sync = event_sync,
    .event_elapsed = event_elapsed,
    .stream_wait_event = stream_wait_event,
    .providers = providers,
    .n_providers = 1,
};

hy_status halyard_backend_query(uint32_t max_abi, const hy_host* services, const hy_backend** out) {
  if (max_abi < HY_ABI_VERSION) return HY_ABI_MISMATCH;
  host = services;
  *out = &backend;
  return HY_OK;
}
