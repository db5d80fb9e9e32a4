// Collectives and messages: checked and numbered when they are enqueued, run by the stream's
// worker. Collectives go chunk by chunk: every rank writes its chunk, all arrive, every rank reads,
// all arrive. Messages of a group proceed together.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm.h"

// One operation. `send` and `recv` point into the store.
typedef struct operation {
  guarded_comm* comm;
  guarded_collective what;
  const char* send;
  char* recv;
  uint64_t done;    // bytes of a message that have gone
  uint64_t number;  // of the unit, in the communicator's order
} operation;

// What a worker runs at once: a collective, or the messages of a group on one stream.
typedef struct unit {
  int n;
  operation operations[];
} unit;

static const char* const kind_names[] = {"all_reduce", "all_gather", "reduce_scatter", "broadcast",
                                         "send",       "recv",       "barrier"};

static const char* name_of(const operation* o) {
  return kind_names[o->what.kind];
}

static bool is_message(const operation* o) {
  return o->what.kind == SEND || o->what.kind == RECV;
}

// ---- collectives ----

// Whether all ranks mean the same; called by all.
static hy_status agree(const operation* o) {
  guarded_comm* comm = o->comm;
  guarded_meeting* m = comm->meeting;
  m->posted[comm->rank] = o->what;
  HY_TRY(guarded_meeting_arrive(comm, name_of(o)));
  const guarded_collective *first = &m->posted[0], *other = first;
  int r = 0;
  while (++r < comm->n_ranks) {
    other = &m->posted[r];
    if (other->kind != first->kind || other->dtype != first->dtype || other->op != first->op ||
        other->root != first->root || other->count != first->count)
      break;
  }
  if (r == comm->n_ranks) return HY_OK;
  return guarded_host->fail(
      HY_INVALID_ARGUMENT, "rank 0 calls %s of %llu %s, rank %d calls %s of %llu %s",
      kind_names[first->kind], (unsigned long long)first->count, hy_dtype_name(first->dtype), r,
      kind_names[other->kind], (unsigned long long)other->count, hy_dtype_name(other->dtype));
}

// One chunk, of which every rank that sends gives `bytes` at `send`, and that go to `recv` in the
// way of the collective; a rank with nothing to send or to receive has NULL there.
static hy_status exchange(const operation* o, const char* send, char* recv, size_t stride,
                          size_t bytes) {
  guarded_comm* comm = o->comm;
  guarded_meeting* m = comm->meeting;
  if (send) memcpy(m->chunk[comm->rank], send, bytes);
  HY_TRY(guarded_meeting_arrive(comm, name_of(o)));
  const char* parts[GUARDED_MAX_RANKS];
  for (int r = 0; r < comm->n_ranks; r++) parts[r] = m->chunk[r];
  if (recv && o->what.kind == ALL_GATHER) {
    for (int r = 0; r < comm->n_ranks; r++) memcpy(recv + (size_t)r * stride, parts[r], bytes);
  } else if (recv && o->what.kind == BROADCAST) {
    memcpy(recv, parts[o->what.root], bytes);
  } else if (recv) {
    guarded_reduce(o->what.dtype, o->what.op, parts, comm->n_ranks,
                   bytes / hy_dtype_size(o->what.dtype), recv);
  }
  return guarded_meeting_arrive(comm, name_of(o));
}

static hy_status run_collective(const operation* o) {
  guarded_comm* comm = o->comm;
  size_t total = (size_t)o->what.count * hy_dtype_size(o->what.dtype);
  HY_TRY(agree(o));
  if (o->what.kind == BARRIER) return guarded_meeting_arrive(comm, name_of(o));
  // Each part of a reduce_scatter is for one rank.
  int parts = o->what.kind == REDUCE_SCATTER ? comm->n_ranks : 1;
  for (int part = 0; part < parts; part++) {
    for (size_t at = 0; at < total; at += GUARDED_CHUNK) {
      size_t bytes = total - at < GUARDED_CHUNK ? total - at : GUARDED_CHUNK;
      bool sends = o->what.kind != BROADCAST || comm->rank == o->what.root;
      bool receives = o->what.kind == BROADCAST        ? comm->rank != o->what.root
                      : o->what.kind == REDUCE_SCATTER ? comm->rank == part
                                                       : true;
      HY_TRY(exchange(o, sends ? o->send + (size_t)part * total + at : NULL,
                      receives ? o->recv + at : NULL, total, bytes));
    }
  }
  return HY_OK;
}

// ---- messages ----

// Moves a chunk where there is room or one has come. The meeting is locked.
static hy_status step(operation* o, bool* moved) {
  guarded_comm* comm = o->comm;
  guarded_meeting* m = comm->meeting;
  int peer = o->what.root;
  uint64_t total = o->what.count * hy_dtype_size(o->what.dtype);
  bool sends = o->what.kind == SEND;
  guarded_mailbox* box = sends ? &m->box[comm->rank][peer] : &m->box[peer][comm->rank];
  if (sends != (box->bytes == 0)) return HY_OK;
  if (sends) {
    box->total = total;
    box->dtype = o->what.dtype;
    box->bytes = (uint32_t)(total - o->done < GUARDED_CHUNK ? total - o->done : GUARDED_CHUNK);
    memcpy(box->chunk, o->send + o->done, box->bytes);
    o->done += box->bytes;
  } else {
    if (box->total != total || box->dtype != o->what.dtype)
      return guarded_host->fail(
          HY_INVALID_ARGUMENT, "rank %d sends %llu bytes of %s, rank %d receives %llu of %s", peer,
          (unsigned long long)box->total, hy_dtype_name(box->dtype), comm->rank,
          (unsigned long long)total, hy_dtype_name(o->what.dtype));
    memcpy(o->recv + o->done, box->chunk, box->bytes);
    o->done += box->bytes;
    box->bytes = 0;
  }
  pthread_cond_broadcast(&m->changed);
  *moved = true;
  return HY_OK;
}

static bool is_done(const operation* o) {
  return o->done == o->what.count * hy_dtype_size(o->what.dtype);
}

// Messages between two ranks in one direction keep their order.
static bool must_wait(const unit* u, int i) {
  const operation* o = &u->operations[i];
  for (int k = 0; k < i; k++) {
    const operation* before = &u->operations[k];
    if (before->comm == o->comm && before->what.kind == o->what.kind &&
        before->what.root == o->what.root && !is_done(before))
      return true;
  }
  return false;
}

// A chunk of each message of that communicator that can go on. The meeting is locked. `waiting`
// receives one that is not done, or NULL.
static hy_status step_all(unit* u, guarded_comm* comm, bool* moved, operation** waiting) {
  for (int i = 0; i < u->n; i++) {
    operation* o = &u->operations[i];
    if (o->comm != comm || is_done(o) || must_wait(u, i)) continue;
    HY_TRY(step(o, moved));
    if (!is_done(o)) *waiting = o;
  }
  return HY_OK;
}

static hy_status run_messages(unit* u) {
  int64_t since = 0;
  bool alone = true;  // one communicator: waiting for it is enough
  for (int i = 1; i < u->n; i++) alone &= u->operations[i].comm == u->operations[0].comm;
  for (bool pending = true; pending;) {
    bool moved = false;
    hy_status status = HY_OK;
    pending = false;
    for (int i = 0; i < u->n && status == HY_OK; i++) {
      if (is_done(&u->operations[i])) continue;
      guarded_comm* comm = u->operations[i].comm;
      operation* waiting = NULL;
      guarded_meeting_lock(comm->meeting);
      status = step_all(u, comm, &moved, &waiting);
      if (moved) since = 0;
      if (status == HY_OK && waiting && !moved)
        status = guarded_meeting_wait(comm, 1u << waiting->what.root, name_of(waiting),
                                      alone ? 50 : 1, &since);
      pending |= waiting != NULL;
      guarded_meeting_unlock(comm->meeting);
    }
    HY_TRY(status);
    for (int i = 0; i < u->n; i++) pending |= !is_done(&u->operations[i]);
  }
  return HY_OK;
}

// ---- units: in each communicator's order ----

static void await_turn(const operation* o) {
  pthread_mutex_lock(&o->comm->mutex);
  while (o->comm->turn < o->number) pthread_cond_wait(&o->comm->passed, &o->comm->mutex);
  pthread_mutex_unlock(&o->comm->mutex);
}

static void pass_turn(const operation* o) {
  pthread_mutex_lock(&o->comm->mutex);
  if (o->comm->turn == o->number) o->comm->turn++;
  pthread_cond_broadcast(&o->comm->passed);
  pthread_mutex_unlock(&o->comm->mutex);
}

// Everybody's work on these communicators ends with this rank's failure.
static void tell_others(const unit* u, hy_status status, const char* message) {
  for (int i = 0; i < u->n; i++) {
    guarded_meeting* m = u->operations[i].comm->meeting;
    guarded_meeting_lock(m);
    guarded_meeting_fail(m, status, message);
    guarded_meeting_unlock(m);
  }
}

static hy_status run_unit(void* context, bool broken) {
  unit* u = context;
  hy_status status = HY_OK;
  for (int i = 0; i < u->n; i++) await_turn(&u->operations[i]);
  if (broken) {
    char message[64];
    snprintf(message, sizeof message, "a stream of rank %d has failed",
             u->operations[0].comm->rank);
    tell_others(u, HY_DEVICE_FAILED, message);
  } else {
    status = is_message(&u->operations[0]) ? run_messages(u) : run_collective(&u->operations[0]);
    if (status != HY_OK) {
      char message[256];
      snprintf(message, sizeof message, "%s", guarded_host->last_error());
      tell_others(u, status, message);
      guarded_host->fail(status, "%s", message);
    }
  }
  for (int i = 0; i < u->n; i++) pass_turn(&u->operations[i]);
  free(u);
  return status;
}

// The operations of a unit have one number in each communicator.
static void draw_numbers(unit* u) {
  for (int i = 0; i < u->n; i++) {
    operation* o = &u->operations[i];
    int k = 0;
    while (u->operations[k].comm != o->comm) k++;
    if (k < i) {
      o->number = u->operations[k].number;
      continue;
    }
    pthread_mutex_lock(&o->comm->mutex);
    o->number = o->comm->drawn++;
    pthread_mutex_unlock(&o->comm->mutex);
  }
}

static hy_status enqueue(guarded_queue* queue, const operation* operations, int n) {
  unit* u = malloc(sizeof *u + (size_t)n * sizeof *operations);
  if (!u) return guarded_host->fail(HY_OUT_OF_MEMORY, "guarded: no host memory");
  u->n = n;
  memcpy(u->operations, operations, (size_t)n * sizeof *operations);
  draw_numbers(u);
  hy_status status = guarded_push_work(queue, run_unit, u);
  if (status == HY_OK) return HY_OK;
  // What comes later waits for this number.
  for (int i = 0; i < n; i++) await_turn(&u->operations[i]);
  for (int i = 0; i < n; i++) pass_turn(&u->operations[i]);
  free(u);
  return status;
}

// ---- groups ----

typedef struct grouped {
  guarded_queue* queue;  // NULL: enqueued
  operation operation;
} grouped;

static _Thread_local struct {
  int depth, n, capacity;
  grouped* list;
} group;

static hy_status add_to_group(guarded_queue* queue, const operation* o) {
  if (group.n == group.capacity) {
    int capacity = group.capacity ? 2 * group.capacity : 16;
    grouped* list = realloc(group.list, (size_t)capacity * sizeof *list);
    if (!list) return guarded_host->fail(HY_OUT_OF_MEMORY, "guarded: no host memory");
    group.list = list;
    group.capacity = capacity;
  }
  group.list[group.n++] = (grouped){queue, *o};
  return HY_OK;
}

// The messages of one stream up to its next collective, the first of which is number `first`.
static hy_status enqueue_messages(int first) {
  guarded_queue* queue = group.list[first].queue;
  operation* operations = malloc((size_t)group.n * sizeof *operations);
  if (!operations) return guarded_host->fail(HY_OUT_OF_MEMORY, "guarded: no host memory");
  int n = 0;
  for (int i = first; i < group.n; i++) {
    if (group.list[i].queue != queue) continue;
    if (!is_message(&group.list[i].operation)) break;
    operations[n++] = group.list[i].operation;
    group.list[i].queue = NULL;
  }
  hy_status status = enqueue(queue, operations, n);
  free(operations);
  return status;
}

hy_status guarded_group_begin(void* device) {
  (void)device;
  group.depth++;
  return HY_OK;
}

hy_status guarded_group_end(void* device) {
  (void)device;
  if (group.depth == 0)
    return guarded_host->fail(HY_INVALID_ARGUMENT, "guarded: group_end without group_begin");
  if (--group.depth > 0) return HY_OK;
  hy_status status = HY_OK;
  for (int i = 0; i < group.n && status == HY_OK; i++) {
    grouped* g = &group.list[i];
    if (!g->queue) continue;
    status = is_message(&g->operation) ? enqueue_messages(i) : enqueue(g->queue, &g->operation, 1);
  }
  free(group.list);
  group.list = NULL;
  group.n = group.capacity = 0;
  return status;
}

// ---- the functions of the table ----

// `send_parts` and `recv_parts` are how often the count is there; 0: not at all.
static hy_status start(guarded_device* device, guarded_comm* comm, void* stream,
                       guarded_collective what, const void* send, int send_parts, void* recv,
                       int recv_parts) {
  size_t bytes = (size_t)what.count * hy_dtype_size(what.dtype);
  char *from = NULL, *to = NULL;
  if (send_parts)
    HY_TRY(guarded_memory_reach(&device->memory, send, bytes * (size_t)send_parts, &from));
  if (recv_parts)
    HY_TRY(guarded_memory_reach(&device->memory, recv, bytes * (size_t)recv_parts, &to));
  operation o = {.comm = comm, .what = what, .send = from, .recv = to};
  return group.depth > 0 ? add_to_group(stream, &o) : enqueue(stream, &o, 1);
}

hy_status guarded_all_reduce(void* device, void* comm, void* stream, const void* send, void* recv,
                             uint64_t count, hy_dtype dtype, hy_reduce_op op) {
  return start(device, comm, stream, (guarded_collective){ALL_REDUCE, dtype, op, 0, count}, send, 1,
               recv, 1);
}

hy_status guarded_all_gather(void* device, void* comm, void* stream, const void* send, void* recv,
                             uint64_t count, hy_dtype dtype) {
  return start(device, comm, stream, (guarded_collective){ALL_GATHER, dtype, 0, 0, count}, send, 1,
               recv, ((guarded_comm*)comm)->n_ranks);
}

hy_status guarded_reduce_scatter(void* device, void* comm, void* stream, const void* send,
                                 void* recv, uint64_t count, hy_dtype dtype, hy_reduce_op op) {
  return start(device, comm, stream, (guarded_collective){REDUCE_SCATTER, dtype, op, 0, count},
               send, ((guarded_comm*)comm)->n_ranks, recv, 1);
}

hy_status guarded_broadcast(void* device, void* comm, void* stream, void* buffer, uint64_t count,
                            hy_dtype dtype, int32_t root) {
  return start(device, comm, stream, (guarded_collective){BROADCAST, dtype, 0, root, count}, buffer,
               1, buffer, 1);
}

hy_status guarded_send(void* device, void* comm, void* stream, const void* buffer, uint64_t count,
                       hy_dtype dtype, int32_t peer) {
  return start(device, comm, stream, (guarded_collective){SEND, dtype, 0, peer, count}, buffer, 1,
               NULL, 0);
}

hy_status guarded_recv(void* device, void* comm, void* stream, void* buffer, uint64_t count,
                       hy_dtype dtype, int32_t peer) {
  return start(device, comm, stream, (guarded_collective){RECV, dtype, 0, peer, count}, NULL, 0,
               buffer, 1);
}

hy_status guarded_barrier(void* device, void* comm, void* stream) {
  return start(device, comm, stream, (guarded_collective){BARRIER, HY_U8, 0, 0, 0}, NULL, 0, NULL,
               0);
}
