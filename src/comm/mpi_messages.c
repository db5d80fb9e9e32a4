// Messages over MPI: nonblocking, with a deadline, and checked.
//
// What the ranks of a collective must agree in, its kind, type and reduction, is the tag of each of
// its messages, and its count their length. Between two ranks messages arrive in order; each is
// looked at (MPI_Iprobe) before memory is given to receive it, so that one of another call or count
// is noticed and touches nothing: Open MPI 4.1 writes beyond a receive that is too short. A rank
// that fails or leaves sends a last, empty message to all.
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "comm/mpi.h"

enum {
  PIECE = 1 << 30,    // bytes of one message: MPI counts in int
  RENDEZVOUS = 4096,  // from here on MPI may fetch a message from the memory of its sender
};

// ---- tags ----

// 15 bits, which every MPI has: kind 3, type 4, reduction 3, and 5 that sum up the count and the
// root.
enum { CHECK_BITS = 5, OP_BITS = 3, DTYPE_BITS = 4 };

int hy__mpi_tag(const hy__comm_call* c) {
  // Kinds 0 and 1 are the last messages; a send and its receive have the same.
  int kind = 2 + (c->kind == HY__RECV ? HY__SEND : c->kind == HY__BARRIER ? 5 : (int)c->kind);
  uint64_t check = c->count * 0x9e3779b97f4a7c15u;
  if (c->kind == HY__BROADCAST) check += (uint64_t)c->peer << 59;
  int tag = kind << DTYPE_BITS | (int)c->dtype;
  tag = tag << OP_BITS | (int)c->op;
  return tag << CHECK_BITS | (int)(check >> (64 - CHECK_BITS));
}

static void describe(int tag, char* text, size_t size) {
  static const char* const ops[8] = {"sum", "product", "minimum", "maximum", "average"};
  static const char* const kinds[] = {"all_reduce", "all_gather",   "reduce_scatter",
                                      "broadcast",  "send or recv", "barrier"};
  int kind = (tag >> (CHECK_BITS + OP_BITS + DTYPE_BITS)) - 2;
  int dtype = tag >> (CHECK_BITS + OP_BITS) & ((1 << DTYPE_BITS) - 1);
  const char* op = ops[tag >> CHECK_BITS & ((1 << OP_BITS) - 1)];
  if (kind < 0 || kind > 5 || !op) {
    snprintf(text, size, "something else");
  } else if (kind == 5) {
    snprintf(text, size, "barrier");
  } else {
    bool reduces = kind == HY__ALL_REDUCE || kind == HY__REDUCE_SCATTER;
    snprintf(text, size, "%s of %s%s%s", kinds[kind], hy_dtype_name((hy_dtype)dtype),
             reduces ? ", " : "", reduces ? op : "");
  }
}

// ---- posting ----

void hy__mpi_set_begin(hy__mpi_set* set, hy__mpi_comm* comm) {
  set->comm = comm;
  set->list = set->few;
  set->n = 0;
  set->capacity = (int)(sizeof set->few / sizeof set->few[0]);
  set->status = HY_OK;
  set->next = comm->sets;
  comm->sets = set;
}

void hy__mpi_set_end(hy__mpi_set* set) {
  if (set->list != set->few) hy__mfree(set->list);
  set->comm->sets = set->next;
}

static hy__mpi_pending* add(hy__mpi_set* set) {
  if (set->n == set->capacity) {
    int capacity = 2 * set->capacity;
    bool first = set->list == set->few;
    hy__mpi_pending* list = hy__realloc(first ? NULL : set->list, (size_t)capacity * sizeof *list);
    if (!list) {
      set->status = hy_fail(HY_OUT_OF_MEMORY, "no host memory for %d messages", capacity);
      return NULL;
    }
    if (first) memcpy(list, set->few, sizeof set->few);
    set->list = list;
    set->capacity = capacity;
  }
  return &set->list[set->n++];
}

static void post(hy__mpi_set* set, hy__mpi_pending like, char* data, size_t bytes) {
  do {
    if (set->status != HY_OK) return;
    hy__mpi_pending* p = add(set);
    if (!p) return;
    *p = like;
    p->bytes = (int)(bytes < PIECE ? bytes : PIECE);
    p->data = data;
    if (!p->receives) {
      hy__mpi_lock();
      int error =
          hy__mpi.call->isend(data, p->bytes, p->peer, p->tag, set->comm->comm, &p->request);
      hy__mpi_unlock();
      p->started = !error;
      p->done = error;
      if (error) set->status = hy__mpi_error(error, "MPI_Isend");
    }
    data = data ? data + p->bytes : NULL;
    bytes -= (size_t)p->bytes;
  } while (bytes > 0);
}

void hy__mpi_post_send(hy__mpi_set* set, int peer, int tag, const void* data, size_t bytes) {
  post(set, (hy__mpi_pending){.peer = peer, .tag = tag}, (char*)data, bytes);
}

void hy__mpi_post_recv(hy__mpi_set* set, int peer, int tag, void* data, size_t bytes) {
  post(set, (hy__mpi_pending){.peer = peer, .tag = tag, .receives = true}, data, bytes);
}

// ---- waiting ----

static hy_status gone(const hy__mpi_comm* comm, int peer, const char* how, const char* what) {
  return hy_fail(HY_DEVICE_FAILED, "%s on rank %d of %d: rank %d has %s", what, comm->rank,
                 comm->n_ranks, peer, how);
}

// What has come is what was expected.
static hy_status check(hy__mpi_comm* comm, const hy__mpi_pending* p, const hy__mpi_message* m,
                       const char* what) {
  if (m->tag == p->tag && m->bytes == p->bytes) return HY_OK;
  if (m->tag == HY__MPI_TAG_FAILED) return gone(comm, p->peer, "failed or aborted", what);
  if (m->tag == HY__MPI_TAG_LEFT) return gone(comm, p->peer, "left", what);
  char ours[64], theirs[64];
  describe(p->tag, ours, sizeof ours);
  describe(m->tag, theirs, sizeof theirs);
  if (strcmp(ours, theirs) != 0)
    return hy_fail(HY_INVALID_ARGUMENT, "rank %d calls %s, rank %d calls %s", comm->rank, ours,
                   p->peer, theirs);
  if (m->bytes != p->bytes)
    return hy_fail(HY_INVALID_ARGUMENT,
                   "%s: rank %d sends %d bytes where rank %d expects %d: the counts differ", ours,
                   p->peer, m->bytes, comm->rank, p->bytes);
  return hy_fail(HY_INVALID_ARGUMENT, "%s: ranks %d and %d differ in %s", ours, comm->rank, p->peer,
                 strncmp(ours, "broadcast", 9) == 0 ? "count or root" : "count");
}

static hy_status failed(const hy__mpi_comm* comm, int error, const hy__mpi_pending* p,
                        const char* what) {
  char expected[96];
  if (hy__mpi_process_died(&comm->processes[p->peer])) return gone(comm, p->peer, "died", what);
  snprintf(expected, sizeof expected, "%s with rank %d, %s %d bytes", what, p->peer,
           p->receives ? "expecting" : "sending", p->bytes);
  return hy__mpi_error(error, expected);
}

// Starts to receive if the rank's next message has come. The caller holds the lock.
static hy_status start(hy__mpi_comm* comm, hy__mpi_pending* p, const char* what) {
  int there = 0;
  hy__mpi_message message;
  if (comm->passed[p->peer] == comm->pass) return HY_OK;  // one before is still to come
  int error =
      hy__mpi.call->iprobe(p->peer, hy__mpi.constants.any_tag, comm->comm, &there, &message);
  if (error) return failed(comm, error, p, what);
  if (!there) {
    comm->passed[p->peer] = comm->pass;
    return HY_OK;
  }
  HY_TRY(check(comm, p, &message, what));
  // UCX, below MPICH, aborts this process where it cannot read the sender's memory.
  if (p->bytes >= RENDEZVOUS && hy__mpi_process_is_ending(&comm->processes[p->peer]))
    return gone(comm, p->peer, "died", what);
  error = hy__mpi.call->irecv(p->data, p->bytes, p->peer, p->tag, comm->comm, &p->request);
  if (error) return failed(comm, error, p, what);
  p->started = true;
  return HY_OK;
}

// One pass over what is pending; `left` says how many are.
static hy_status test_all(hy__mpi_set* set, const char* what, int* left) {
  hy_status status = HY_OK;
  *left = 0;
  set->comm->pass++;
  hy__mpi_lock();
  for (int i = 0; i < set->n && status == HY_OK; i++) {
    hy__mpi_pending* p = &set->list[i];
    if (p->done) continue;
    if (!p->started) status = start(set->comm, p, what);
    if (p->started) {
      int done = 0;
      int error = hy__mpi.call->test(&p->request, &done, NULL);
      if (error) status = failed(set->comm, error, p, what);
      p->done = done || error;
    }
    *left += !p->done;
  }
  hy__mpi_unlock();
  return status;
}

// A rank whose failure reaches a send, which looks at no message, or that is no more. `lost` is
// set where something may still arrive of it.
static hy_status look_around(const hy__mpi_set* set, const char* what, const char** lost,
                             int* lost_rank) {
  hy__mpi_comm* comm = set->comm;
  int failed = 0;
  hy__mpi_message message;
  hy__mpi_lock();
  hy__mpi.call->iprobe(hy__mpi.constants.any_source, HY__MPI_TAG_FAILED, comm->comm, &failed,
                       &message);
  hy__mpi_unlock();
  if (failed) return gone(comm, message.source, "failed or aborted", what);
  for (int i = 0; i < set->n && !*lost; i++) {
    const hy__mpi_pending* p = &set->list[i];
    if (p->done) continue;
    int left = 0;
    hy__mpi_lock();
    hy__mpi.call->iprobe(p->peer, HY__MPI_TAG_LEFT, comm->comm, &left, &message);
    hy__mpi_unlock();
    if (left) *lost = "left";
    if (hy__mpi_process_died(&comm->processes[p->peer])) *lost = "died";
    *lost_rank = p->peer;
  }
  return HY_OK;
}

static int first_pending(const hy__mpi_set* set) {
  for (int i = 0; i < set->n; i++)
    if (!set->list[i].done) return set->list[i].peer;
  return 0;
}

// Passes of a wait: it spins, then yields, then sleeps, since ranks may be more than cores.
enum { SPIN = 1000, YIELD = 20000 };
static void pause_for(unsigned passes) {
  if (passes < YIELD)
    sched_yield();
  else
    nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
}

static hy_status wait_for_all(hy__mpi_set* set, const char* what) {
  // On a machine with more work than cores a thousand yields take seconds, so time counts as well.
  enum { LOOK_EVERY = 1024, LOOK_NS = 100000000, LAST_PASSES = 64 };
  hy__mpi_comm* comm = set->comm;
  const char* lost = NULL;
  int lost_rank = 0, left = 0;
  unsigned passes_since_lost = 0;
  int64_t begin = 0, looked = 0;
  for (unsigned passes = 1;; passes++) {
    HY_TRY(test_all(set, what, &left));
    if (left == 0) return HY_OK;
    if (atomic_load_explicit(&comm->aborted, memory_order_relaxed))
      return gone(comm, comm->rank, "aborted", what);
    if (lost && ++passes_since_lost > LAST_PASSES) return gone(comm, lost_rank, lost, what);
    if (passes < SPIN) continue;
    int64_t now = hy__now_ns();
    if (!begin) begin = looked = now;
    if (passes % LOOK_EVERY == 0 || now - looked > LOOK_NS) {
      looked = now;
      HY_TRY(look_around(set, what, &lost, &lost_rank));
      if ((double)(now - begin) > 1e9 * hy__mpi.timeout)
        return hy_fail(HY_DEVICE_FAILED,
                       "%s on rank %d of %d waited %g s for rank %d (HALYARD_COMM_TIMEOUT)", what,
                       comm->rank, comm->n_ranks, hy__mpi.timeout, first_pending(set));
    }
    pause_for(passes);
  }
}

hy_status hy__mpi_wait(hy__mpi_set* set, const char* what) {
  hy_status status = set->status;
  if (status == HY_OK && set->n > 0) status = wait_for_all(set, what);
  if (status != HY_OK) hy__mpi_comm_fail(set->comm, status);
  set->n = 0;
  return status;
}

// ---- the last messages ----

void hy__mpi_tell_all(hy__mpi_comm* comm, int tag) {
  if (atomic_load(&hy__mpi.poisoned)) return;
  hy__mpi_lock();
  for (int peer = 0; peer < comm->n_ranks; peer++) {
    hy__mpi_handle request;
    int done;
    if (peer == comm->rank) continue;
    // It is empty and goes at once, or is lost with us.
    if (hy__mpi.call->isend(NULL, 0, peer, tag, comm->comm, &request) == 0)
      hy__mpi.call->test(&request, &done, NULL);
  }
  hy__mpi_unlock();
}

// Takes the next message of that rank, if one has come, and drops it; the last one is noted.
static void take_next(hy__mpi_comm* comm, hy__mpi_set* rest, int peer) {
  int there = 0;
  hy__mpi_message message;
  hy__mpi_lock();
  int error = hy__mpi.call->iprobe(peer, hy__mpi.constants.any_tag, comm->comm, &there, &message);
  hy__mpi_unlock();
  if (error || !there) return;
  void* memory = hy__malloc((size_t)message.bytes + 1);
  hy__mpi_pending* p = memory ? add(rest) : NULL;
  if (!p) {
    hy__mfree(memory);
    return;
  }
  *p = (hy__mpi_pending){.peer = peer, .receives = true, .started = true, .dropped = memory};
  hy__mpi_lock();
  p->done =
      hy__mpi.call->irecv(memory, message.bytes, peer, message.tag, comm->comm, &p->request) != 0;
  hy__mpi_unlock();
  if (message.tag <= HY__MPI_TAG_LEFT) comm->gone[peer] = HY__MPI_SAID_SO;
}

// Before a request is tested: that may read the memory of its peer.
static void note_deaths(hy__mpi_comm* comm) {
  for (int peer = 0; peer < comm->n_ranks; peer++) {
    if (peer == comm->rank || comm->gone[peer] == HY__MPI_DIED) continue;
    if (!hy__mpi_process_is_ending(&comm->processes[peer])) continue;
    comm->gone[peer] = HY__MPI_DIED;
    atomic_store(&hy__mpi.lost, true);
  }
}

// One pass: true when no rank is waited for and no message is under way but to the dead.
static bool settle_once(hy__mpi_comm* comm, hy__mpi_set* rest) {
  bool settled = true;
  note_deaths(comm);
  hy__mpi_lock();
  for (hy__mpi_set* set = comm->sets; set; set = set->next) {
    for (int i = 0; i < set->n; i++) {
      hy__mpi_pending* p = &set->list[i];
      int done = 0;
      if (!p->started) p->done = true;  // nothing is received any more
      if (comm->gone[p->peer] == HY__MPI_DIED) continue;
      if (!p->done) p->done = hy__mpi.call->test(&p->request, &done, NULL) != 0 || done;
      settled = settled && p->done;
    }
  }
  hy__mpi_unlock();
  for (int peer = 0; peer < comm->n_ranks; peer++) {
    if (peer == comm->rank || comm->gone[peer]) continue;
    settled = false;
    take_next(comm, rest, peer);
  }
  return settled;
}

// Forgets all messages; true when none is under way.
static bool forget_all(hy__mpi_comm* comm) {
  bool clean = true;
  for (hy__mpi_set* set = comm->sets; set; set = set->next) {
    for (int i = 0; i < set->n; i++) {
      clean = clean && set->list[i].done;
      if (set->list[i].done) hy__mfree(set->list[i].dropped);
    }
    set->n = 0;
  }
  return clean;
}

void hy__mpi_settle(hy__mpi_comm* comm) {
  enum { MOMENT_NS = 2000000000 };
  if (comm->ended || comm->n_ranks == 1 || atomic_load(&hy__mpi.poisoned)) return;
  comm->ended = true;
  int64_t deadline = hy__now_ns() + MOMENT_NS;
  hy__mpi_set rest;
  hy__mpi_set_begin(&rest, comm);
  bool settled = false;
  for (unsigned passes = 1; !settled && hy__now_ns() < deadline; passes++) {
    settled = settle_once(comm, &rest);
    if (!settled) pause_for(passes);
  }
  bool clean = forget_all(comm);
  comm->settled = settled && clean;
  if (!clean) atomic_store(&hy__mpi.poisoned, true);
  hy__mpi_set_end(&rest);
}
