// Communicators: arguments are checked here, a provider does the work.
#include "halyard/comm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/provider.h"

struct hy_comm {
  hy_device* device;
  const hy__comm_provider* provider;
  void* handle;  // the provider's
  int rank, n_ranks;
  hy_comm *newer, *older;  // of the device
};

#define MOVABLE (HY_ALL_DTYPES | HY_FLOAT8S)

const char* hy__comm_kind_name(hy__comm_kind kind) {
  static const char* const names[] = {"all_reduce", "all_gather", "reduce_scatter", "broadcast",
                                      "send",       "recv",       "barrier"};
  return names[kind];
}

const char* hy_collective_name(hy_collective_kind kind) {
  return (unsigned)kind <= HY__BARRIER ? hy__comm_kind_name((hy__comm_kind)kind) : "?";
}

hy_status hy__comm_timeout(double* seconds) {
  const char* text = hy__env("HALYARD_COMM_TIMEOUT");
  char* end = NULL;
  *seconds = text ? strtod(text, &end) : 300;
  if (text && (*end || !(*seconds >= 0.01 && *seconds <= 1e6)))
    return hy_fail(HY_INVALID_ARGUMENT,
                   "HALYARD_COMM_TIMEOUT: \"%s\" is no number of seconds from 0.01 to 1000000",
                   text);
  return HY_OK;
}

// ---- joining and leaving ----

// HALYARD_COMM=mpi goes through MPI where the backend has its own, such as cuda without NCCL.
bool hy_comm_is_native(const hy_device* device) {
  const char* asked = hy__env("HALYARD_COMM");
  return device && device->backend->comm_init_rank && !(asked && strcmp(asked, "mpi") == 0);
}

const hy__comm_provider* hy__comm_provider_of(const hy_device* device) {
  return hy_comm_is_native(device) ? &hy__comm_native : &hy__comm_mpi;
}

bool hy_comm_supported(const hy_device* device) {
  return device && hy__comm_provider_of(device)->available(device) == HY_OK;
}

hy_status hy_comm_unique_id(hy_device* device, hy_comm_id* id) {
  if (!device || !id)
    return hy_fail(HY_INVALID_ARGUMENT, "hy_comm_unique_id: %s is NULL", device ? "id" : "device");
  return hy__comm_provider_of(device)->unique_id(device, id);
}

hy_status hy__comm_adopt(hy_device* device, const hy__comm_provider* provider, int n_ranks,
                         int rank, void* handle, hy_comm** comm) {
  hy_comm* fresh = hy__calloc(1, sizeof *fresh);
  if (!fresh) {
    provider->destroy(device, handle);
    return hy_fail(HY_OUT_OF_MEMORY, "%s: no host memory for a communicator", device->selector);
  }
  *fresh = (hy_comm){
      .device = device, .provider = provider, .handle = handle, .rank = rank, .n_ranks = n_ranks};
  hy_device* root = device->root;
  pthread_mutex_lock(&root->mutex);
  fresh->older = root->comms;
  if (fresh->older) fresh->older->newer = fresh;
  root->comms = fresh;
  pthread_mutex_unlock(&root->mutex);
  *comm = fresh;
  return HY_OK;
}

hy_status hy_comm_init_rank(hy_device* device, int n_ranks, const hy_comm_id* id, int rank,
                            hy_comm** comm) {
  if (!device || !id || !comm)
    return hy_fail(HY_INVALID_ARGUMENT, "hy_comm_init_rank: %s is NULL",
                   !device ? "device"
                   : !id   ? "id"
                           : "comm");
  *comm = NULL;
  if (n_ranks < 1 || rank < 0 || rank >= n_ranks)
    return hy_fail(HY_INVALID_ARGUMENT,
                   "hy_comm_init_rank: rank %d of %d; ranks are numbered from 0", rank, n_ranks);
  const hy__comm_provider* provider = hy__comm_provider_of(device);
  void* handle = NULL;
  HY_TRY(provider->init_rank(device, n_ranks, id, rank, &handle));
  return hy__comm_adopt(device, provider, n_ranks, rank, handle, comm);
}

void hy_comm_destroy(hy_comm* comm) {
  if (!comm) return;
  hy_device* root = comm->device->root;
  pthread_mutex_lock(&root->mutex);
  if (comm->older) comm->older->newer = comm->newer;
  *(comm->newer ? &comm->newer->older : &root->comms) = comm->older;
  pthread_mutex_unlock(&root->mutex);
  comm->provider->destroy(root, comm->handle);
  hy__mfree(comm);
}

void hy__comms_abort(hy_device* root) {
  for (hy_comm* comm = root->comms; comm; comm = comm->older)
    comm->provider->abort(root, comm->handle);
}

void hy__comms_close(hy_device* root) {
  while (root->comms) hy_comm_destroy(root->comms);
}

void* hy__comm_handle(const hy_comm* comm) {
  return comm->handle;
}

const char* hy_comm_provider(const hy_comm* comm) {
  if (!comm) return "";
  return comm->provider == &hy__comm_native ? comm->device->backend->name : comm->provider->name;
}

int hy_comm_rank(const hy_comm* comm) {
  return comm ? comm->rank : -1;
}

int hy_comm_size(const hy_comm* comm) {
  return comm ? comm->n_ranks : 0;
}

hy_device* hy_comm_device(const hy_comm* comm) {
  return comm ? comm->device : NULL;
}

hy_status hy_comm_abort(hy_comm* comm) {
  if (!comm) return hy_fail(HY_INVALID_ARGUMENT, "hy_comm_abort: comm is NULL");
  return comm->provider->abort(comm->device, comm->handle);
}

hy_status hy_comm_async_error(hy_comm* comm) {
  if (!comm) return hy_fail(HY_INVALID_ARGUMENT, "hy_comm_async_error: comm is NULL");
  hy_async_error error = {.status = HY_OK};
  hy_status status = comm->provider->async_error(comm->device, comm->handle, &error);
  if (status == HY_OK) status = error.status;
  if (status == HY_OK) return HY_OK;
  return hy_fail(status, "rank %d of %d on %s failed: %s", comm->rank, comm->n_ranks,
                 comm->device->selector, error.message);
}

// ---- collectives ----

// Whether [a, a + a_bytes) and [b, b + b_bytes) have a byte in common.
static bool overlap(const void* a, uint64_t a_bytes, const void* b, uint64_t b_bytes) {
  uintptr_t first = (uintptr_t)a, second = (uintptr_t)b;
  return first < second + b_bytes && second < first + a_bytes;
}

// What a call moves: `parts` of count elements at one end where the other has one.
typedef struct transfer {
  const char* name;
  const void *send, *recv;  // NULL where the call has no such buffer
  int send_parts, recv_parts;
  int64_t count;
  hy_dtype dtype;
  uint32_t dtypes;  // that it takes
} transfer;

static hy_status check_stream(const hy_comm* comm, hy_stream* stream, const char* name) {
  if (!comm || !stream)
    return hy_fail(HY_INVALID_ARGUMENT, "%s: %s is NULL", name, comm ? "stream" : "comm");
  if (!hy__same_device(comm->device, stream->device))
    return hy_fail(HY_INVALID_ARGUMENT, "%s: the communicator is of %s, the stream of %s", name,
                   comm->device->selector, stream->device->selector);
  return hy__stream_check(stream);
}

static hy_status check_buffers(const hy_comm* comm, const transfer* t) {
  uint64_t bytes;
  if (t->count < 0)
    return hy_fail(HY_INVALID_ARGUMENT, "%s: the count is %lld", t->name, (long long)t->count);
  if ((unsigned)t->dtype >= HY_DTYPE_COUNT || !(t->dtypes & HY_DTYPE_BIT(t->dtype)))
    return hy_fail(HY_DTYPE, "%s does not take %s%s", t->name, hy_dtype_name(t->dtype),
                   t->dtype == HY_I4 ? "; send its bytes as u8" : "");
  if (__builtin_mul_overflow((uint64_t)t->count * (uint64_t)comm->n_ranks,
                             (uint64_t)hy_dtype_size(t->dtype), &bytes) ||
      (uint64_t)t->count > UINT64_MAX / 16 / (uint64_t)comm->n_ranks)
    return hy_fail(HY_INVALID_ARGUMENT, "%s: %lld elements are more than memory can hold", t->name,
                   (long long)t->count);
  if (t->count == 0) return HY_OK;
  if ((t->send_parts && !t->send) || (t->recv_parts && !t->recv))
    return hy_fail(HY_INVALID_ARGUMENT, "%s: the %s buffer is NULL", t->name,
                   t->send_parts && !t->send ? "send" : "receive");
  if (!t->send_parts || !t->recv_parts) return HY_OK;
  uint64_t part = (uint64_t)t->count * hy_dtype_size(t->dtype);
  uint64_t own = part * (uint64_t)comm->rank;
  bool in_place = (const char*)t->send + (t->send_parts > 1 ? own : 0) ==
                  (const char*)t->recv + (t->recv_parts > 1 ? own : 0);
  if (!in_place &&
      overlap(t->send, part * (uint64_t)t->send_parts, t->recv, part * (uint64_t)t->recv_parts))
    return hy_fail(HY_OVERLAP, "%s: the buffers overlap and the call is not in place", t->name);
  return HY_OK;
}

static hy_status check(const hy_comm* comm, hy_stream* stream, const transfer* t) {
  HY_TRY(check_stream(comm, stream, t->name));
  return check_buffers(comm, t);
}

static hy_status check_op(const char* name, hy_dtype dtype, hy_reduce_op op) {
  if ((unsigned)op > HY_REDUCE_AVG)
    return hy_fail(HY_INVALID_ARGUMENT, "%s: %d is no reduction", name, (int)op);
  if (op == HY_REDUCE_AVG && hy_dtype_is_int(dtype))
    return hy_fail(HY_DTYPE, "%s: the average of %s is not one; use the sum", name,
                   hy_dtype_name(dtype));
  return HY_OK;
}

static hy_status check_rank(const hy_comm* comm, const char* name, const char* what, int rank) {
  if (comm && (rank < 0 || rank >= comm->n_ranks))
    return hy_fail(HY_INVALID_ARGUMENT, "%s: the %s is %d; ranks are 0 to %d", name, what, rank,
                   comm->n_ranks - 1);
  return HY_OK;
}

// A node of a graph: a launch makes the collective in its place.
static hy_status record(hy_comm* comm, const hy__comm_call* call) {
  const hy_collective collective = {.size = sizeof collective,
                                    .comm = comm,
                                    .kind = (hy_collective_kind)call->kind,
                                    .dtype = call->dtype,
                                    .op = call->op,
                                    .root = call->peer,
                                    .count = (int64_t)call->count,
                                    .send = call->send,
                                    .recv = call->recv};
  return call->stream->capture->work(call->stream, &(hy_graph_node){.size = sizeof(hy_graph_node),
                                                                    .kind = HY_NODE_COLLECTIVE,
                                                                    .collective = &collective});
}

static hy_status run(hy_comm* comm, const hy__comm_call* call) {
  if (call->stream->capture) return record(comm, call);
  return comm->provider->run(comm->device, comm->handle, call);
}

hy_status hy_comm_all_reduce(hy_comm* comm, hy_stream* stream, const void* send, void* recv,
                             int64_t count, hy_dtype dtype, hy_reduce_op op) {
  HY_TRY(check_op("all_reduce", dtype, op));
  HY_TRY(
      check(comm, stream, &(transfer){"all_reduce", send, recv, 1, 1, count, dtype, HY_NUMBERS}));
  if (count == 0) return HY_OK;
  return run(comm, &(hy__comm_call){.kind = HY__ALL_REDUCE,
                                    .dtype = dtype,
                                    .op = op,
                                    .count = (uint64_t)count,
                                    .send = send,
                                    .recv = recv,
                                    .stream = stream});
}

hy_status hy_comm_all_gather(hy_comm* comm, hy_stream* stream, const void* send, void* recv,
                             int64_t count, hy_dtype dtype) {
  int parts = comm ? comm->n_ranks : 1;
  HY_TRY(
      check(comm, stream, &(transfer){"all_gather", send, recv, 1, parts, count, dtype, MOVABLE}));
  if (count == 0) return HY_OK;
  return run(comm, &(hy__comm_call){.kind = HY__ALL_GATHER,
                                    .dtype = dtype,
                                    .count = (uint64_t)count,
                                    .send = send,
                                    .recv = recv,
                                    .stream = stream});
}

hy_status hy_comm_reduce_scatter(hy_comm* comm, hy_stream* stream, const void* send, void* recv,
                                 int64_t count, hy_dtype dtype, hy_reduce_op op) {
  int parts = comm ? comm->n_ranks : 1;
  HY_TRY(check_op("reduce_scatter", dtype, op));
  HY_TRY(check(comm, stream,
               &(transfer){"reduce_scatter", send, recv, parts, 1, count, dtype, HY_NUMBERS}));
  if (count == 0) return HY_OK;
  return run(comm, &(hy__comm_call){.kind = HY__REDUCE_SCATTER,
                                    .dtype = dtype,
                                    .op = op,
                                    .count = (uint64_t)count,
                                    .send = send,
                                    .recv = recv,
                                    .stream = stream});
}

hy_status hy_comm_broadcast(hy_comm* comm, hy_stream* stream, void* buffer, int64_t count,
                            hy_dtype dtype, int root) {
  HY_TRY(check_rank(comm, "broadcast", "root", root));
  HY_TRY(check(comm, stream, &(transfer){"broadcast", NULL, buffer, 0, 1, count, dtype, MOVABLE}));
  if (count == 0) return HY_OK;
  return run(comm, &(hy__comm_call){.kind = HY__BROADCAST,
                                    .dtype = dtype,
                                    .peer = root,
                                    .count = (uint64_t)count,
                                    .recv = buffer,
                                    .stream = stream});
}

static hy_status check_peer(const hy_comm* comm, hy_stream* stream, const char* name, int peer) {
  if (stream && stream->capture)
    return hy__capture_refuse(stream, name,
                              "ranks compare what their graphs say to one another, and messages "
                              "differ by rank");
  HY_TRY(check_rank(comm, name, "peer", peer));
  if (comm && peer == comm->rank)
    return hy_fail(HY_INVALID_ARGUMENT, "%s: the peer is rank %d itself; hy_memcpy copies", name,
                   peer);
  return HY_OK;
}

hy_status hy_comm_send(hy_comm* comm, hy_stream* stream, const void* buffer, int64_t count,
                       hy_dtype dtype, int peer) {
  HY_TRY(check_peer(comm, stream, "send", peer));
  HY_TRY(check(comm, stream, &(transfer){"send", buffer, NULL, 1, 0, count, dtype, MOVABLE}));
  if (count == 0) return HY_OK;
  return run(comm, &(hy__comm_call){.kind = HY__SEND,
                                    .dtype = dtype,
                                    .peer = peer,
                                    .count = (uint64_t)count,
                                    .send = buffer,
                                    .stream = stream});
}

hy_status hy_comm_recv(hy_comm* comm, hy_stream* stream, void* buffer, int64_t count,
                       hy_dtype dtype, int peer) {
  HY_TRY(check_peer(comm, stream, "recv", peer));
  HY_TRY(check(comm, stream, &(transfer){"recv", NULL, buffer, 0, 1, count, dtype, MOVABLE}));
  if (count == 0) return HY_OK;
  return run(comm, &(hy__comm_call){.kind = HY__RECV,
                                    .dtype = dtype,
                                    .peer = peer,
                                    .count = (uint64_t)count,
                                    .recv = buffer,
                                    .stream = stream});
}

hy_status hy_comm_barrier(hy_comm* comm, hy_stream* stream) {
  HY_TRY(check_stream(comm, stream, "barrier"));
  return run(comm, &(hy__comm_call){.kind = HY__BARRIER, .stream = stream});
}

// ---- groups ----

hy_status hy_comm_group_begin(hy_device* device) {
  if (!device) return hy_fail(HY_INVALID_ARGUMENT, "hy_comm_group_begin: device is NULL");
  return hy__comm_provider_of(device)->group_begin(device);
}

hy_status hy_comm_group_end(hy_device* device) {
  if (!device) return hy_fail(HY_INVALID_ARGUMENT, "hy_comm_group_end: device is NULL");
  return hy__comm_provider_of(device)->group_end(device);
}
