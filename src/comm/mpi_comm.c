// The mpi provider: communicators over an MPI library. Calls finish before they return; what the
// host cannot reach is staged through memory that it can.
#include <stdio.h>
#include <string.h>

#include "comm/mpi.h"

static hy_status available(const hy_device* device) {
  (void)device;
  return hy__mpi_load();
}

// ---- joining and leaving ----

static void release(hy__mpi_comm* comm) {
  for (int i = 0; comm->processes && i < comm->n_ranks; i++)
    hy__mpi_process_unwatch(&comm->processes[i]);
  if (comm->staging) hy_host_free(comm->device, comm->staging);
  hy__mfree(comm->scratch);
  hy__mfree(comm->parts);
  hy__mfree(comm->gone);
  hy__mfree(comm->passed);
  hy__mfree(comm->processes);
  pthread_mutex_destroy(&comm->mutex);
  hy__mfree(comm);
}

static hy_status init_rank(hy_device* device, int n_ranks, const hy_comm_id* id, int rank,
                           void** handle) {
  hy__mpi_comm* comm = hy__calloc(1, sizeof *comm);
  if (!comm) return hy_fail(HY_OUT_OF_MEMORY, "hy_comm_init_rank: no host memory");
  *comm = (hy__mpi_comm){.device = device, .rank = rank, .n_ranks = n_ranks};
  pthread_mutex_init(&comm->mutex, NULL);
  comm->processes = hy__calloc((size_t)n_ranks, sizeof *comm->processes);
  comm->parts = hy__calloc((size_t)n_ranks, sizeof *comm->parts);
  comm->gone = hy__calloc((size_t)n_ranks, sizeof *comm->gone);
  comm->passed = hy__calloc((size_t)n_ranks, sizeof *comm->passed);
  hy_status status = HY_OK;
  if (!comm->processes || !comm->parts || !comm->gone || !comm->passed)
    status = hy_fail(HY_OUT_OF_MEMORY, "hy_comm_init_rank: no host memory");
  for (int i = 0; comm->processes && i < n_ranks; i++) comm->processes[i].pidfd = -1;
  if (status == HY_OK && n_ranks > 1) status = hy__mpi_meet(comm, id);
  if (status != HY_OK) {
    release(comm);
    return status;
  }
  *handle = comm;
  return HY_OK;
}

// Notes the first failure; true if this is it.
static bool note(hy__mpi_comm* comm, hy_status status, const char* message) {
  pthread_mutex_lock(&comm->mutex);
  bool first = comm->error.status == HY_OK;
  if (first) {
    comm->error.status = status;
    snprintf(comm->error.message, sizeof comm->error.message, "%.255s", message);
  }
  pthread_mutex_unlock(&comm->mutex);
  return first;
}

hy_status hy__mpi_comm_fail(hy__mpi_comm* comm, hy_status status) {
  char message[512];
  snprintf(message, sizeof message, "%s", hy_last_error());
  if (note(comm, status, message)) {
    atomic_store(&hy__mpi.broken, true);
    hy__mpi_tell_all(comm, HY__MPI_TAG_FAILED);
  }
  hy__mpi_settle(comm);
  return hy_fail(status, "%s", message);
}

static hy_status failed_before(hy__mpi_comm* comm) {
  hy_async_error error;
  pthread_mutex_lock(&comm->mutex);
  error = comm->error;
  pthread_mutex_unlock(&comm->mutex);
  if (error.status == HY_OK) return HY_OK;
  return hy_fail(error.status, "the communicator has failed before: %s", error.message);
}

static hy_status abort_comm(hy_device* device, void* handle) {
  (void)device;
  hy__mpi_comm* comm = handle;
  atomic_store(&comm->aborted, true);
  char message[64];
  snprintf(message, sizeof message, "rank %d has aborted", comm->rank);
  if (!note(comm, HY_DEVICE_FAILED, message) || comm->n_ranks == 1) return HY_OK;
  atomic_store(&hy__mpi.broken, true);
  hy__mpi_tell_all(comm, HY__MPI_TAG_FAILED);
  return HY_OK;
}

static hy_status async_error(hy_device* device, void* handle, hy_async_error* error) {
  (void)device;
  hy__mpi_comm* comm = handle;
  pthread_mutex_lock(&comm->mutex);
  *error = comm->error;
  pthread_mutex_unlock(&comm->mutex);
  return error->status;
}

// Ranks that are still at work learn that this one has left. MPI's communicator is freed where they
// all leave, and otherwise left to the end of the process.
static void destroy(hy_device* device, void* handle) {
  (void)device;
  hy__mpi_comm* comm = handle;
  if (comm->n_ranks > 1) {
    if (comm->error.status == HY_OK) hy__mpi_tell_all(comm, HY__MPI_TAG_LEFT);
    hy__mpi_settle(comm);
    if (comm->settled) {
      hy__mpi_lock();
      hy__mpi.call->comm_free(&comm->comm);
      hy__mpi_unlock();
    }
  }
  release(comm);
}

// ---- memory ----

hy_status hy__mpi_scratch(hy__mpi_comm* comm, size_t bytes, char** scratch) {
  if (bytes > comm->scratch_bytes) {
    hy__mfree(comm->scratch);
    comm->scratch = hy__malloc(bytes);
    comm->scratch_bytes = comm->scratch ? bytes : 0;
    if (!comm->scratch)
      return hy_fail(HY_OUT_OF_MEMORY, "a collective needs %zu bytes of host memory", bytes);
  }
  *scratch = comm->scratch;
  return HY_OK;
}

// ---- running ----

typedef struct operation {
  hy__mpi_comm* comm;
  hy__comm_call call;
  hy__comm_call on_host;  // the same with addresses that the host reaches
} operation;

static bool is_message(const operation* o) {
  return o->call.kind == HY__SEND || o->call.kind == HY__RECV;
}

static size_t part_bytes(const operation* o) {
  return o->call.count * (size_t)hy_dtype_size(o->call.dtype);
}

static size_t send_bytes(const operation* o) {
  if (o->call.kind == HY__BROADCAST) return o->comm->rank == o->call.peer ? part_bytes(o) : 0;
  if (!o->call.send) return 0;
  return part_bytes(o) * (o->call.kind == HY__REDUCE_SCATTER ? (size_t)o->comm->n_ranks : 1);
}

static size_t recv_bytes(const operation* o) {
  if (!o->call.recv) return 0;
  return part_bytes(o) * (o->call.kind == HY__ALL_GATHER ? (size_t)o->comm->n_ranks : 1);
}

static hy_status grow_staging(hy__mpi_comm* comm, size_t bytes) {
  if (bytes <= comm->staging_bytes) return HY_OK;
  if (comm->staging) hy_host_free(comm->device, comm->staging);
  comm->staging = NULL;
  comm->staging_bytes = 0;
  HY_TRY(hy_host_alloc(comm->device, bytes, &comm->staging));
  comm->staging_bytes = bytes;
  return HY_OK;
}

// What is sent comes down from the device; on return the work ahead on the streams is done.
static hy_status stage_down(operation* list, int n) {
  size_t total = 0, at = 0;
  for (int i = 0; i < n; i++) total += send_bytes(&list[i]) + recv_bytes(&list[i]);
  HY_TRY(grow_staging(list[0].comm, total));
  for (int i = 0; i < n; i++) {
    operation* o = &list[i];
    char* base = list[0].comm->staging;
    size_t sends = send_bytes(o), receives = recv_bytes(o);
    const void* from = o->call.kind == HY__BROADCAST ? o->call.recv : o->call.send;
    if (sends) {
      HY_TRY(hy_memcpy(o->call.stream, base + at, from, sends, HY_COPY_DEVICE_TO_HOST));
      o->on_host.send = base + at;
    }
    // A broadcast is made in one place.
    if (receives && !(sends && o->call.kind == HY__BROADCAST)) o->on_host.recv = base + at + sends;
    if (sends && o->call.kind == HY__BROADCAST) o->on_host.recv = base + at;
    if (o->call.kind == HY__BROADCAST) o->on_host.send = NULL;
    at += sends + receives;
  }
  for (int i = 0; i < n; i++) HY_TRY(hy_stream_sync(list[i].call.stream));
  return HY_OK;
}

static hy_status stage_up(operation* list, int n) {
  for (int i = 0; i < n; i++) {
    operation* o = &list[i];
    if (recv_bytes(o))
      HY_TRY(hy_memcpy(o->call.stream, o->call.recv, o->on_host.recv, recv_bytes(o),
                       HY_COPY_HOST_TO_DEVICE));
  }
  for (int i = 0; i < n; i++) HY_TRY(hy_stream_sync(list[i].call.stream));
  return HY_OK;
}

static hy_status run_messages(const operation* list, int n) {
  hy__mpi_set set;
  hy__mpi_set_begin(&set, list[0].comm);
  for (int receives = 1; receives >= 0; receives--) {
    for (int i = 0; i < n; i++) {
      const hy__comm_call* c = &list[i].on_host;
      int tag = hy__mpi_tag(c);
      if ((c->kind == HY__RECV) != receives) continue;
      if (receives)
        hy__mpi_post_recv(&set, c->peer, tag, c->recv, part_bytes(&list[i]));
      else
        hy__mpi_post_send(&set, c->peer, tag, c->send, part_bytes(&list[i]));
    }
  }
  const char* what = n == 1 ? hy__comm_kind_name(list[0].call.kind) : "a group of messages";
  hy_status status = hy__mpi_wait(&set, what);
  hy__mpi_set_end(&set);
  return status;
}

static hy_status run_on_host(const operation* list, int n) {
  return is_message(&list[0]) ? run_messages(list, n)
                              : hy__mpi_collective(list[0].comm, &list[0].on_host);
}

static hy_status run_staged(operation* list, int n) {
  HY_TRY(stage_down(list, n));
  HY_TRY(run_on_host(list, n));
  return stage_up(list, n);
}

// One collective, or messages that proceed together; of one communicator.
static hy_status run_unit(operation* list, int n) {
  hy__mpi_comm* comm = list[0].comm;
  HY_TRY(failed_before(comm));
  if (comm->n_ranks > 1 && atomic_load_explicit(&hy__mpi.poisoned, memory_order_relaxed))
    return hy_fail(
        HY_DEVICE_FAILED,
        "another communicator failed with messages under way; MPI is not called again in "
        "this process");
  hy_status status = comm->device->is_host ? run_on_host(list, n) : run_staged(list, n);
  // The others wait for a rank that has no memory, or whose device has failed.
  return status == HY_OK || comm->n_ranks == 1 ? status : hy__mpi_comm_fail(comm, status);
}

// ---- groups ----

static _Thread_local struct {
  int depth, n, capacity;
  operation* list;
} group;

static hy_status add_to_group(const operation* o) {
  if (group.n == group.capacity) {
    int capacity = group.capacity ? 2 * group.capacity : 16;
    operation* list = hy__realloc(group.list, (size_t)capacity * sizeof *list);
    if (!list) return hy_fail(HY_OUT_OF_MEMORY, "no host memory for a group of %d", capacity);
    group.list = list;
    group.capacity = capacity;
  }
  // By communicator, in an order that all ranks share; within one in the order of the calls.
  int at = group.n++;
  for (; at > 0 && group.list[at - 1].comm->key > o->comm->key; at--)
    group.list[at] = group.list[at - 1];
  group.list[at] = *o;
  return HY_OK;
}

static hy_status group_begin(hy_device* device) {
  (void)device;
  group.depth++;
  return HY_OK;
}

static hy_status group_end(hy_device* device) {
  (void)device;
  if (group.depth == 0)
    return hy_fail(HY_INVALID_ARGUMENT, "hy_comm_group_end without hy_comm_group_begin");
  if (--group.depth > 0) return HY_OK;
  hy_status status = HY_OK;
  for (int i = 0, n; i < group.n && status == HY_OK; i += n) {
    n = 1;
    while (is_message(&group.list[i]) && i + n < group.n && is_message(&group.list[i + n]) &&
           group.list[i + n].comm == group.list[i].comm)
      n++;
    status = run_unit(&group.list[i], n);
  }
  hy__mfree(group.list);
  group.list = NULL;
  group.n = group.capacity = 0;
  return status;
}

static hy_status run(hy_device* device, void* handle, const hy__comm_call* call) {
  (void)device;
  operation o = {.comm = handle, .call = *call, .on_host = *call};
  return group.depth > 0 ? add_to_group(&o) : run_unit(&o, 1);
}

const hy__comm_provider hy__comm_mpi = {
    .name = "mpi",
    .available = available,
    .unique_id = hy__mpi_unique_id,
    .init_rank = init_rank,
    .destroy = destroy,
    .abort = abort_comm,
    .async_error = async_error,
    .run = run,
    .group_begin = group_begin,
    .group_end = group_end,
};
