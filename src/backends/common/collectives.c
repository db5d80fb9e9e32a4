// Collectives by a vendor's library: joining, leaving, and every slot of a communicator.
#include "backends/common/collectives.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct comm {
  void* handle;
  int rank, n_ranks;
  void* token;  // what a barrier reduces where the library has none: one i32 on the device
  void* wide;   // f32 of 16-bit floats, of that many bytes
  size_t wide_bytes;
  atomic_bool aborted;
} comm;

static const hy__ccl* ccl_of(const hy__vendor_device* device) {
  return device->vendor->ccl;
}

// ---- the library ----

static hy_status bind(const hy__vendor_device* device) {
  const hy__ccl* ccl = ccl_of(device);
  hy_probe report = {.size = sizeof report};
  void* library = NULL;
  hy_status status = hy__backend_host->open_library(ccl->file, ccl->folders, &report, &library);
  if (status != HY_OK) {
    char reason[300];
    snprintf(reason, sizeof reason, "%.290s", hy__backend_host->last_error());
    return hy__backend_host->fail(HY_UNAVAILABLE,
                                  "communicators of %s need %s: %s; %s, or set HALYARD_COMM=mpi to "
                                  "go through host memory by MPI",
                                  device->vendor->name, ccl->name, reason, ccl->remedy);
  }
  HY_TRY(hy__dlsym_bind(library, ccl->symbols, ccl->n_symbols, ccl->functions, &report));
  return ccl->check ? ccl->check() : HY_OK;
}

// A library that was not there is looked for again: somebody may have installed it.
static hy_status need(const hy__vendor_device* device) {
  static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  static const hy__ccl* bound[4];
  const hy__ccl* ccl = ccl_of(device);
  int i = 0;
  pthread_mutex_lock(&mutex);
  while (bound[i] && bound[i] != ccl) i++;
  hy_status status = bound[i] ? HY_OK : bind(device);
  if (status == HY_OK) bound[i] = ccl;
  pthread_mutex_unlock(&mutex);
  return status;
}

// ---- ids: one rank to a process ----

typedef struct joined {
  struct joined* next;
  uint64_t id;  // a hash
} joined;

static pthread_mutex_t joined_mutex = PTHREAD_MUTEX_INITIALIZER;
static joined* all_joined;

static uint64_t hash(const hy_comm_id* id) {
  uint64_t h = 0xcbf29ce484222325ull;
  for (size_t i = 0; i < sizeof id->bytes; i++) h = (h ^ id->bytes[i]) * 0x100000001b3ull;
  return h;
}

// An id serves once in a process: the libraries wait for ever, or worse, where it comes twice.
static hy_status claim(const hy__vendor_device* device, const hy_comm_id* id, int rank) {
  hy_status status = HY_OK;
  pthread_mutex_lock(&joined_mutex);
  joined* j = all_joined;
  while (j && j->id != hash(id)) j = j->next;
  if (j) {
    status =
        hy__backend_host->fail(HY_UNSUPPORTED,
                               "%s:%d: rank %d cannot join: %s takes one rank of a "
                               "communicator to a process, and an id once",
                               device->vendor->name, device->index, rank, ccl_of(device)->name);
  } else if (!(j = malloc(sizeof *j))) {
    status = hy__backend_host->fail(HY_OUT_OF_MEMORY, "%s: no host memory", device->vendor->name);
  } else {
    *j = (joined){all_joined, hash(id)};
    all_joined = j;
  }
  pthread_mutex_unlock(&joined_mutex);
  return status;
}

// ---- joining and leaving ----

hy_status hy__ccl_unique_id(void* device, hy_comm_id* id) {
  const hy__vendor_device* d = device;
  HY_TRY(need(d));
  memset(id, 0, sizeof *id);
  int before, error = hy__vendor_try_enter(d, &before), entered = !error;
  if (!error) error = ccl_of(d)->unique_id(id->bytes);
  hy__vendor_leave(d, before);
  if (!entered) return d->vendor->fail(error, "making the device current");
  return error ? ccl_of(d)->fail(error, "making an id") : HY_OK;
}

static hy_status join(const hy__vendor_device* d, comm* c, const hy_comm_id* id) {
  hy_comm_id copy = *id;
  int error = d->vendor->memory_alloc(&c->token, 64);
  if (error) return d->vendor->fail(error, "memory of a communicator");
  error = ccl_of(d)->init_rank(&c->handle, c->n_ranks, copy.bytes, c->rank, d->index);
  return error ? ccl_of(d)->fail(error, "joining a communicator") : HY_OK;
}

hy_status hy__ccl_init_rank(void* device, int32_t n_ranks, const hy_comm_id* id, int32_t rank,
                            void** out) {
  const hy__vendor_device* d = device;
  HY_TRY(need(d));
  HY_TRY(claim(d, id, rank));
  comm* c = calloc(1, sizeof *c);
  if (!c) return hy__backend_host->fail(HY_OUT_OF_MEMORY, "%s: no host memory", d->vendor->name);
  c->rank = rank;
  c->n_ranks = n_ranks;
  int before, error = hy__vendor_try_enter(d, &before);
  hy_status status = error ? d->vendor->fail(error, "making the device current") : join(d, c, id);
  if (status != HY_OK && c->token) d->vendor->memory_free(c->token);
  hy__vendor_leave(d, before);
  if (status != HY_OK) {
    free(c);
    return status;
  }
  *out = c;
  return HY_OK;
}

// The libraries want a communicator's work done before it goes.
void hy__ccl_destroy(void* device, void* handle) {
  const hy__vendor_device* d = device;
  comm* c = handle;
  int before = hy__vendor_enter(d);
  d->vendor->device_sync();
  if (!atomic_load(&c->aborted)) ccl_of(d)->destroy(c->handle);
  d->vendor->memory_free(c->token);
  if (c->wide) d->vendor->memory_free(c->wide);
  hy__vendor_leave(d, before);
  free(c);
}

hy_status hy__ccl_abort(void* device, void* handle) {
  const hy__vendor_device* d = device;
  comm* c = handle;
  if (atomic_exchange(&c->aborted, true)) return HY_OK;
  int before = hy__vendor_enter(d);
  int error = ccl_of(d)->abort(c->handle);
  hy__vendor_leave(d, before);
  return error ? ccl_of(d)->fail(error, "aborting a communicator") : HY_OK;
}

hy_status hy__ccl_async_error(void* device, void* handle, hy_async_error* error) {
  const hy__vendor_device* d = device;
  comm* c = handle;
  *error = (hy_async_error){.status = HY_OK, .op = HY_OP_NONE};
  if (atomic_load(&c->aborted)) {
    error->status = HY_DEVICE_FAILED;
    snprintf(error->message, sizeof error->message, "rank %d has aborted", c->rank);
    return HY_OK;
  }
  int before = hy__vendor_enter(d);
  int found = ccl_of(d)->async_error(c->handle);
  hy__vendor_leave(d, before);
  if (!found) return HY_OK;
  error->status = ccl_of(d)->fail(found, "a collective");
  snprintf(error->message, sizeof error->message, "%.250s", hy__backend_host->last_error());
  return HY_OK;
}

// ---- collectives ----

static _Thread_local int group_depth;

// What only moves: as itself, or as bytes.
static int moving(const hy__vendor_device* d, hy_dtype dtype, uint64_t* count) {
  const hy__ccl* ccl = ccl_of(d);
  if (ccl->types[dtype] >= 0 && ccl->has(d, dtype)) return ccl->types[dtype];
  *count *= (uint64_t)hy_dtype_size(dtype);
  return ccl->types[HY_U8];
}

static hy_status reducible(const hy__vendor_device* d, hy_dtype dtype, hy_reduce_op op) {
  if (!(ccl_of(d)->reducible & HY_DTYPE_BIT(dtype)))
    return hy__backend_host->fail(HY_UNSUPPORTED, "%s: %s does not reduce %s", d->vendor->name,
                                  ccl_of(d)->name, hy_dtype_name(dtype));
  if (!ccl_of(d)->has(d, dtype))
    return hy__backend_host->fail(HY_UNSUPPORTED, "%s:%d: this device has no %s", d->vendor->name,
                                  d->index, hy_dtype_name(dtype));
  if (op == HY_REDUCE_AVG && group_depth > 0)
    return hy__backend_host->fail(HY_UNSUPPORTED,
                                  "%s: an average is a sum that is divided after it, which a group "
                                  "has no place for; use the sum",
                                  d->vendor->name);
  return HY_OK;
}

static bool needs_widening(const hy__ccl* ccl, hy_dtype dtype, hy_reduce_op op) {
  return op == HY_REDUCE_PROD && (ccl->no_product & HY_DTYPE_BIT(dtype));
}

static int op_of(const hy__ccl* ccl, hy_reduce_op op) {
  return ccl->ops[op == HY_REDUCE_AVG ? HY_REDUCE_SUM : op];
}

static hy_tensor vector(void* data, uint64_t count, hy_dtype dtype) {
  return (hy_tensor){
      .data = data, .dtype = dtype, .ndim = 1, .shape = {(int64_t)count}, .stride = {1}};
}

static hy_status divide(hy__vendor_device* d, hy__vendor_stream* s, void* data, uint64_t count,
                        hy_dtype dtype, int n) {
  hy_tensor t = vector(data, count, dtype);
  hy_call call = {.op = HY_OP_div_scalar,
                  .n_in = 1,
                  .n_out = 1,
                  .in = &t,
                  .out = &t,
                  .attrs = {.value_rounding = {hy_float(n), HY_ROUND_NONE}}};
  return ccl_of(d)->provider->run(d, s, &call);
}

static hy_status cast(hy__vendor_device* d, hy__vendor_stream* s, hy_tensor from, hy_tensor to) {
  hy_call call = {.op = HY_OP_cast,
                  .n_in = 1,
                  .n_out = 1,
                  .in = &from,
                  .out = &to,
                  .attrs = {.cast = {to.dtype}}};
  return ccl_of(d)->provider->run(d, s, &call);
}

// Room for that many f32. What was there is in use until the device is done.
static hy_status need_wide(hy__vendor_device* d, comm* c, uint64_t count) {
  size_t bytes = (size_t)count * sizeof(float);
  if (bytes <= c->wide_bytes) return HY_OK;
  void* memory = NULL;
  int before, error = hy__vendor_try_enter(d, &before);
  if (!error) error = d->vendor->device_sync();
  if (!error) error = d->vendor->memory_alloc(&memory, bytes);
  if (!error && c->wide) d->vendor->memory_free(c->wide);
  hy__vendor_leave(d, before);
  if (error) return d->vendor->fail(error, "memory of a collective");
  c->wide = memory;
  c->wide_bytes = bytes;
  return HY_OK;
}

typedef hy_status (*reduction)(void* device, void* comm, void* stream, const void* send, void* recv,
                               uint64_t count, hy_dtype dtype, hy_reduce_op op);

// A product in f32: of `parts` times count elements, of which count are received.
static hy_status run_wide(reduction run, hy__vendor_device* d, comm* c, hy__vendor_stream* s,
                          const void* send, void* recv, uint64_t parts, uint64_t count,
                          hy_dtype dtype) {
  if (dtype != HY_F16 && dtype != HY_BF16)
    return hy__backend_host->fail(HY_UNSUPPORTED, "%s: %s makes no product of %s", d->vendor->name,
                                  ccl_of(d)->name, hy_dtype_name(dtype));
  if (group_depth > 0)
    return hy__backend_host->fail(HY_UNSUPPORTED,
                                  "%s: a product of %s takes steps that a group has no place for",
                                  d->vendor->name, hy_dtype_name(dtype));
  HY_TRY(need_wide(d, c, parts * count));
  float* own = (float*)c->wide + (parts > 1 ? (uint64_t)c->rank * count : 0);
  HY_TRY(cast(d, s, vector((void*)send, parts * count, dtype),
              vector(c->wide, parts * count, HY_F32)));
  HY_TRY(run(d, c, s, c->wide, own, count, HY_F32, HY_REDUCE_PROD));
  return cast(d, s, vector(own, count, HY_F32), vector(recv, count, dtype));
}

// `call` is one of the library's functions with its arguments.
#define ENQUEUE(what, call)                                                         \
  do {                                                                              \
    if (atomic_load_explicit(&c->aborted, memory_order_relaxed))                    \
      return hy__backend_host->fail(HY_DEVICE_FAILED, "%s:%d: rank %d has aborted", \
                                    d->vendor->name, d->index, c->rank);            \
    int before_, lost_ = hy__vendor_try_enter(d, &before_);                         \
    int error_ = lost_ ? 0 : ccl_of(d)->call;                                       \
    hy__vendor_leave(d, before_);                                                   \
    if (lost_) return d->vendor->fail(lost_, what);                                 \
    if (error_) return ccl_of(d)->fail(error_, what);                               \
  } while (0)

hy_status hy__ccl_all_reduce(void* device, void* handle, void* stream, const void* send, void* recv,
                             uint64_t count, hy_dtype dtype, hy_reduce_op op) {
  hy__vendor_device* d = device;
  hy__vendor_stream* s = stream;
  comm* c = handle;
  HY_TRY(reducible(d, dtype, op));
  if (needs_widening(ccl_of(d), dtype, op))
    return run_wide(hy__ccl_all_reduce, d, c, s, send, recv, 1, count, dtype);
  ENQUEUE("all_reduce", all_reduce(send, recv, count, ccl_of(d)->types[dtype], op_of(ccl_of(d), op),
                                   c->handle, s->queue));
  return op == HY_REDUCE_AVG ? divide(d, s, recv, count, dtype, c->n_ranks) : HY_OK;
}

hy_status hy__ccl_all_gather(void* device, void* handle, void* stream, const void* send, void* recv,
                             uint64_t count, hy_dtype dtype) {
  hy__vendor_device* d = device;
  hy__vendor_stream* s = stream;
  comm* c = handle;
  int type = moving(d, dtype, &count);
  ENQUEUE("all_gather", all_gather(send, recv, count, type, c->handle, s->queue));
  return HY_OK;
}

hy_status hy__ccl_reduce_scatter(void* device, void* handle, void* stream, const void* send,
                                 void* recv, uint64_t count, hy_dtype dtype, hy_reduce_op op) {
  hy__vendor_device* d = device;
  hy__vendor_stream* s = stream;
  comm* c = handle;
  HY_TRY(reducible(d, dtype, op));
  if (needs_widening(ccl_of(d), dtype, op))
    return run_wide(hy__ccl_reduce_scatter, d, c, s, send, recv, (uint64_t)c->n_ranks, count,
                    dtype);
  ENQUEUE("reduce_scatter", reduce_scatter(send, recv, count, ccl_of(d)->types[dtype],
                                           op_of(ccl_of(d), op), c->handle, s->queue));
  return op == HY_REDUCE_AVG ? divide(d, s, recv, count, dtype, c->n_ranks) : HY_OK;
}

hy_status hy__ccl_broadcast(void* device, void* handle, void* stream, void* buffer, uint64_t count,
                            hy_dtype dtype, int32_t root) {
  hy__vendor_device* d = device;
  hy__vendor_stream* s = stream;
  comm* c = handle;
  int type = moving(d, dtype, &count);
  ENQUEUE("broadcast", broadcast(buffer, count, type, root, c->handle, s->queue));
  return HY_OK;
}

hy_status hy__ccl_send(void* device, void* handle, void* stream, const void* buffer, uint64_t count,
                       hy_dtype dtype, int32_t peer) {
  hy__vendor_device* d = device;
  hy__vendor_stream* s = stream;
  comm* c = handle;
  int type = moving(d, dtype, &count);
  ENQUEUE("send", send(buffer, count, type, peer, c->handle, s->queue));
  return HY_OK;
}

hy_status hy__ccl_recv(void* device, void* handle, void* stream, void* buffer, uint64_t count,
                       hy_dtype dtype, int32_t peer) {
  hy__vendor_device* d = device;
  hy__vendor_stream* s = stream;
  comm* c = handle;
  int type = moving(d, dtype, &count);
  ENQUEUE("recv", recv(buffer, count, type, peer, c->handle, s->queue));
  return HY_OK;
}

// Where the library has none: a reduction of nothing that matters.
hy_status hy__ccl_barrier(void* device, void* handle, void* stream) {
  hy__vendor_device* d = device;
  hy__vendor_stream* s = stream;
  comm* c = handle;
  const hy__ccl* ccl = ccl_of(d);
  if (ccl->barrier)
    ENQUEUE("barrier", barrier(c->handle, s->queue));
  else
    ENQUEUE("barrier", all_reduce(c->token, c->token, 1, ccl->types[HY_I32],
                                  ccl->ops[HY_REDUCE_MAX], c->handle, s->queue));
  return HY_OK;
}

hy_status hy__ccl_group_begin(void* device) {
  const hy__vendor_device* d = device;
  HY_TRY(need(d));
  int error = ccl_of(d)->group_begin();
  if (error) return ccl_of(d)->fail(error, "beginning a group");
  group_depth++;
  return HY_OK;
}

hy_status hy__ccl_group_end(void* device) {
  const hy__vendor_device* d = device;
  if (group_depth == 0)
    return hy__backend_host->fail(
        HY_INVALID_ARGUMENT, "%s: hy_comm_group_end without hy_comm_group_begin", d->vendor->name);
  group_depth--;
  int before = hy__vendor_enter(d);
  int error = ccl_of(d)->group_end();
  hy__vendor_leave(d, before);
  return error ? ccl_of(d)->fail(error, "ending a group") : HY_OK;
}
