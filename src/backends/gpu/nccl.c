// NCCL, and RCCL with the same names, bound when a communicator is first asked for: the
// communicator slots of GPU backends. Collectives are enqueued on the stream; NCCL chooses the
// order of its sums. i16, bool and f8 move as bytes and are not reduced.
//
// ncclCommInitRank waits for the other ranks as long as NCCL's own settings say.
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backends/gpu/gpu.h"

enum { INVALID_ARGUMENT = 4, INVALID_USAGE = 5, IN_PROGRESS = 7 };  // ncclResult_t
enum { LEAST_VERSION = 21000 };                                     // 2.10: bf16, averages

typedef struct nccl_comm {
  void* handle;
  int rank, n_ranks;
  uint64_t token;  // what a barrier reduces: one i32 on the device
  atomic_bool aborted;
} nccl_comm;

static hy__gpu_nccl* nccl_of(const hy__gpu_device* device) {
  return &device->api->nccl;
}

// ---- the library ----

static hy_status bind(hy__gpu_api* api) {
  char path[256] = "";
  void* library = api->open_nccl(path, sizeof path);
  if (!library)
    return hy__backend_host->fail(HY_UNAVAILABLE,
                                  "communicators of %s need %s, which was not found; install it "
                                  "(%s), or set HALYARD_COMM=mpi "
                                  "to go through host memory by MPI",
                                  api->name, api->nccl_name, api->nccl_remedy);
#define HY_NCCL(field, symbol, parameters)            \
  *(void**)&api->nccl.field = dlsym(library, symbol); \
  if (!api->nccl.field)                               \
    return hy__backend_host->fail(HY_UNAVAILABLE, "%.200s has no %s: it is too old", path, symbol);
#include "backends/gpu/nccl.def"
  *(void**)&api->nccl.error_string = dlsym(library, "ncclGetErrorString");
  *(void**)&api->nccl.last_error = dlsym(library, "ncclGetLastError");  // since 2.13
  int version = 0;
  api->nccl.version(&version);
  if (version < LEAST_VERSION)
    return hy__backend_host->fail(HY_UNAVAILABLE,
                                  "%.200s is version %d; communicators need %d (2.10) or newer",
                                  path, version, LEAST_VERSION);
  hy__backend_host->log(2, "%s: %s, version %d", api->name, path, version);
  return HY_OK;
}

// A library that was not there is looked for again: somebody may have installed it.
static hy_status need(hy__gpu_device* device) {
  static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  hy__gpu_api* api = device->api;
  pthread_mutex_lock(&mutex);
  hy_status status = api->nccl_bound ? HY_OK : bind(api);
  api->nccl_bound = status == HY_OK;
  pthread_mutex_unlock(&mutex);
  return status;
}

static hy_status fail(hy__gpu_device* device, hy_status status, int result, const char* what) {
  const hy__gpu_nccl* nccl = nccl_of(device);
  const char* text = nccl->error_string ? nccl->error_string(result) : "an error";
  const char* more = nccl->last_error ? nccl->last_error(NULL) : "";
  return hy__backend_host->fail(status, "%s:%d: %s: %s%s%.200s", device->api->name, device->index,
                                what, text, more && more[0] ? ": " : "", more ? more : "");
}

static hy_status check(hy__gpu_device* device, int result, const char* what) {
  if (result == 0 || result == IN_PROGRESS) return HY_OK;
  return fail(device, result == INVALID_ARGUMENT ? HY_INVALID_ARGUMENT : HY_DEVICE_FAILED, result,
              what);
}

// ---- joining and leaving ----

_Static_assert(sizeof(hy__gpu_nccl_id) <= HY_COMM_ID_BYTES, "an id holds it");

hy_status hy__gpu_comm_unique_id(void* device, hy_comm_id* id) {
  hy__gpu_nccl_id fresh = {{0}};
  HY_TRY(need(device));
  HY_TRY(check(device, nccl_of(device)->unique_id(&fresh), "ncclGetUniqueId"));
  memset(id, 0, sizeof *id);
  memcpy(id->bytes, &fresh, sizeof fresh);
  return HY_OK;
}

hy_status hy__gpu_comm_init_rank(void* device, int32_t n_ranks, const hy_comm_id* id, int32_t rank,
                                 void** comm) {
  hy__gpu_device* d = device;
  hy__gpu_nccl_id copy;
  HY_TRY(need(d));
  nccl_comm* c = calloc(1, sizeof *c);
  if (!c) return hy__backend_host->fail(HY_OUT_OF_MEMORY, "%s: no host memory", d->api->name);
  c->rank = rank;
  c->n_ranks = n_ranks;
  memcpy(&copy, id->bytes, sizeof copy);
  bool entered = hy__gpu_enter(d);
  int error = d->api->driver.memory_alloc(&c->token, 256);
  hy_status status = error ? hy__gpu_fail(d, error, "memory of a communicator") : HY_OK;
  if (status == HY_OK) {
    int result = nccl_of(d)->init_rank(&c->handle, n_ranks, copy, rank);
    // Two ranks on one GPU are wrong usage to NCCL.
    if (result != 0)
      status = fail(d, result == INVALID_USAGE ? HY_UNSUPPORTED : HY_DEVICE_FAILED, result,
                    "ncclCommInitRank");
  }
  if (status != HY_OK && c->token) d->api->driver.memory_free(c->token);
  hy__gpu_leave(d, entered);
  if (status != HY_OK) {
    free(c);
    return status;
  }
  *comm = c;
  return HY_OK;
}

void hy__gpu_comm_destroy(void* device, void* comm) {
  hy__gpu_device* d = device;
  nccl_comm* c = comm;
  bool entered = hy__gpu_enter(d);
  if (!atomic_load(&c->aborted)) nccl_of(d)->destroy(c->handle);
  d->api->driver.memory_free(c->token);
  hy__gpu_leave(d, entered);
  free(c);
}

// ncclCommAbort frees NCCL's communicator too.
hy_status hy__gpu_comm_abort(void* device, void* comm) {
  hy__gpu_device* d = device;
  nccl_comm* c = comm;
  if (atomic_exchange(&c->aborted, true)) return HY_OK;
  bool entered = hy__gpu_enter(d);
  int result = nccl_of(d)->abort(c->handle);
  hy__gpu_leave(d, entered);
  return check(d, result, "ncclCommAbort");
}

hy_status hy__gpu_comm_async_error(void* device, void* comm, hy_async_error* error) {
  nccl_comm* c = comm;
  int result = 0;
  *error = (hy_async_error){.status = HY_OK, .op = HY_OP_NONE};
  if (atomic_load(&c->aborted)) {
    error->status = HY_DEVICE_FAILED;
    snprintf(error->message, sizeof error->message, "rank %d has aborted", c->rank);
    return HY_OK;
  }
  HY_TRY(check(device, nccl_of(device)->async_error(c->handle, &result), "ncclCommGetAsyncError"));
  error->status = check(device, result, "a collective");
  if (error->status != HY_OK)
    snprintf(error->message, sizeof error->message, "%.250s", hy__backend_host->last_error());
  return HY_OK;
}

// ---- collectives ----

// NCCL's number of a type, or -1.
static int type_of(hy_dtype dtype) {
  switch (dtype) {
    case HY_I8: return 0;
    case HY_U8: return 1;
    case HY_I32: return 2;
    case HY_I64: return 4;
    case HY_F16: return 6;
    case HY_F32: return 7;
    case HY_F64: return 8;
    case HY_BF16: return 9;
    default: return -1;
  }
}

static int op_of(hy_reduce_op op) {
  static const int numbers[] = {[HY_REDUCE_SUM] = 0,
                                [HY_REDUCE_PROD] = 1,
                                [HY_REDUCE_MIN] = 3,
                                [HY_REDUCE_MAX] = 2,
                                [HY_REDUCE_AVG] = 4};
  return numbers[op];
}

// What only moves: as itself, or as bytes.
static int moving(hy_dtype dtype, uint64_t* count) {
  int type = type_of(dtype);
  if (type >= 0) return type;
  *count *= (uint64_t)hy_dtype_size(dtype);
  return 1;
}

static hy_status reducible(hy__gpu_device* device, hy_dtype dtype) {
  if (type_of(dtype) >= 0) return HY_OK;
  return hy__backend_host->fail(HY_UNSUPPORTED, "%s: NCCL does not reduce %s", device->api->name,
                                hy_dtype_name(dtype));
}

static hy_status usable(hy__gpu_device* device, const nccl_comm* comm) {
  if (!atomic_load_explicit(&comm->aborted, memory_order_relaxed)) return HY_OK;
  return hy__backend_host->fail(HY_DEVICE_FAILED, "%s:%d: rank %d has aborted", device->api->name,
                                device->index, comm->rank);
}

// Kernels behind it may not start before it is done.
#define ENQUEUE(what, call)                          \
  do {                                               \
    HY_TRY(usable(d, c));                            \
    bool entered = hy__gpu_enter(d);                 \
    int result = nccl_of(d)->call;                   \
    hy__gpu_leave(d, entered);                       \
    s->written = (hy__gpu_written){.unknown = true}; \
    return check(d, result, what);                   \
  } while (0)

hy_status hy__gpu_all_reduce(void* device, void* comm, void* stream, const void* send, void* recv,
                             uint64_t count, hy_dtype dtype, hy_reduce_op op) {
  hy__gpu_device* d = device;
  nccl_comm* c = comm;
  hy__gpu_stream* s = stream;
  HY_TRY(reducible(d, dtype));
  ENQUEUE("ncclAllReduce",
          all_reduce(send, recv, count, type_of(dtype), op_of(op), c->handle, s->queue));
}

hy_status hy__gpu_all_gather(void* device, void* comm, void* stream, const void* send, void* recv,
                             uint64_t count, hy_dtype dtype) {
  hy__gpu_device* d = device;
  nccl_comm* c = comm;
  hy__gpu_stream* s = stream;
  int type = moving(dtype, &count);
  ENQUEUE("ncclAllGather", all_gather(send, recv, count, type, c->handle, s->queue));
}

hy_status hy__gpu_reduce_scatter(void* device, void* comm, void* stream, const void* send,
                                 void* recv, uint64_t count, hy_dtype dtype, hy_reduce_op op) {
  hy__gpu_device* d = device;
  nccl_comm* c = comm;
  hy__gpu_stream* s = stream;
  HY_TRY(reducible(d, dtype));
  ENQUEUE("ncclReduceScatter",
          reduce_scatter(send, recv, count, type_of(dtype), op_of(op), c->handle, s->queue));
}

hy_status hy__gpu_broadcast(void* device, void* comm, void* stream, void* buffer, uint64_t count,
                            hy_dtype dtype, int32_t root) {
  hy__gpu_device* d = device;
  nccl_comm* c = comm;
  hy__gpu_stream* s = stream;
  int type = moving(dtype, &count);
  ENQUEUE("ncclBroadcast", broadcast(buffer, buffer, count, type, root, c->handle, s->queue));
}

hy_status hy__gpu_send(void* device, void* comm, void* stream, const void* buffer, uint64_t count,
                       hy_dtype dtype, int32_t peer) {
  hy__gpu_device* d = device;
  nccl_comm* c = comm;
  hy__gpu_stream* s = stream;
  int type = moving(dtype, &count);
  ENQUEUE("ncclSend", send(buffer, count, type, peer, c->handle, s->queue));
}

hy_status hy__gpu_recv(void* device, void* comm, void* stream, void* buffer, uint64_t count,
                       hy_dtype dtype, int32_t peer) {
  hy__gpu_device* d = device;
  nccl_comm* c = comm;
  hy__gpu_stream* s = stream;
  int type = moving(dtype, &count);
  ENQUEUE("ncclRecv", recv(buffer, count, type, peer, c->handle, s->queue));
}

// NCCL has none: a sum of nothing that matters.
hy_status hy__gpu_barrier(void* device, void* comm, void* stream) {
  hy__gpu_device* d = device;
  nccl_comm* c = comm;
  hy__gpu_stream* s = stream;
  void* token = (void*)(uintptr_t)c->token;
  ENQUEUE("ncclAllReduce of a barrier",
          all_reduce(token, token, 1, type_of(HY_I32), op_of(HY_REDUCE_MAX), c->handle, s->queue));
}

hy_status hy__gpu_group_begin(void* device) {
  HY_TRY(need(device));
  return check(device, nccl_of(device)->group_start(), "ncclGroupStart");
}

hy_status hy__gpu_group_end(void* device) {
  hy__gpu_device* d = device;
  HY_TRY(need(d));
  bool entered = hy__gpu_enter(d);
  int result = nccl_of(d)->group_end();
  hy__gpu_leave(d, entered);
  return check(d, result, "ncclGroupEnd");
}
