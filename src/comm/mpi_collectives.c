// Collectives over MPI's messages, in memory of the host.
//
// A reduction is made where it is needed, in the order of ranks. Small ones are all_gathers that
// every rank reduces for itself: one exchange. Large ones are split by ranks: each rank reduces its
// own part of everybody's data and sends the result round, segment by segment, so that adding up
// one segment overlaps with the messages of the next. Ranks exchange directly, without trees, which
// suits the tens of ranks of a machine or two.
#include <string.h>

#include "comm/mpi.h"

enum { SMALL = 32768, SEGMENT = 262144, LARGEST_SEGMENT = 1 << 20 };  // bytes

typedef struct job {
  hy__mpi_comm* comm;
  const hy__comm_call* call;
  int tag, n, rank;
  size_t size;  // of an element
  const char* name;
} job;

static const char* source(const job* j) {
  return j->call->send;
}

static char* target(const job* j) {
  return j->call->recv;
}

static void exchange(const job* j, hy__mpi_set* set, int peer, const void* send, size_t send_bytes,
                     void* recv, size_t recv_bytes) {
  if (recv_bytes) hy__mpi_post_recv(set, peer, j->tag, recv, recv_bytes);
  if (send_bytes) hy__mpi_post_send(set, peer, j->tag, send, send_bytes);
}

// Everybody's `bytes` at `send`, by rank, in `all`, which may hold the own already.
static hy_status gather(const job* j, const char* send, char* all, size_t bytes) {
  hy__mpi_set set;
  hy__mpi_set_begin(&set, j->comm);
  for (int step = 1; step < j->n; step++) {
    int peer = (j->rank + step) % j->n;
    exchange(j, &set, peer, send, bytes, all + (size_t)peer * bytes, bytes);
  }
  if (all + (size_t)j->rank * bytes != send) memcpy(all + (size_t)j->rank * bytes, send, bytes);
  hy_status status = hy__mpi_wait(&set, j->name);
  hy__mpi_set_end(&set);
  return status;
}

static hy_status all_reduce_small(const job* j) {
  size_t bytes = j->call->count * j->size;
  char* all;
  HY_TRY(hy__mpi_scratch(j->comm, (size_t)j->n * bytes, &all));
  HY_TRY(gather(j, source(j), all, bytes));
  const char** parts = j->comm->parts;
  for (int r = 0; r < j->n; r++) parts[r] = all + (size_t)r * bytes;
  hy__reduce_parts(j->call->dtype, j->call->op, parts, j->n, j->call->count, target(j));
  return HY_OK;
}

// ---- reductions in segments ----

// Rank p reduces part p of `total` elements, `part` to each rank and fewer to the last.
typedef struct split {
  uint64_t total, part, segment;  // elements
  char* buffer;                   // two segments of every rank, filled and reduced alternately
} split;

typedef struct range {
  uint64_t first, count;
} range;

// Four segments a part overlap enough; fewer are fewer waits, more would be more where cores are
// shared.
static void set_segment(split* s, size_t size) {
  s->segment = s->part / 4;
  if (s->segment < SEGMENT / size) s->segment = SEGMENT / size;
  if (s->segment > LARGEST_SEGMENT / size) s->segment = LARGEST_SEGMENT / size;
  if (s->segment > s->part) s->segment = s->part;
}

static range segment_of(const split* s, int rank, uint64_t k) {
  uint64_t first = (uint64_t)rank * s->part + k * s->segment;
  uint64_t end = ((uint64_t)rank + 1) * s->part;
  if (end > s->total) end = s->total;
  if (first >= end) return (range){0, 0};
  return (range){first, end - first < s->segment ? end - first : s->segment};
}

static char* arrived(const job* j, const split* s, int rank, uint64_t k) {
  return s->buffer + ((k & 1) * (uint64_t)j->n + (uint64_t)rank) * s->segment * j->size;
}

// Segment k of every part goes to the rank that reduces it.
static void post_parts(const job* j, const split* s, uint64_t k, hy__mpi_set* set) {
  range own = segment_of(s, j->rank, k);
  for (int step = 1; step < j->n; step++) {
    int peer = (j->rank + step) % j->n;
    range theirs = segment_of(s, peer, k);
    exchange(j, set, peer, source(j) + theirs.first * j->size, theirs.count * j->size,
             arrived(j, s, peer, k), own.count * j->size);
  }
}

static void reduce_segment(const job* j, const split* s, uint64_t k, char* out) {
  range own = segment_of(s, j->rank, k);
  for (int r = 0; r < j->n; r++)
    j->comm->parts[r] = r == j->rank ? source(j) + own.first * j->size : arrived(j, s, r, k);
  hy__reduce_parts(j->call->dtype, j->call->op, j->comm->parts, j->n, own.count, out);
}

// Segment k of every result goes to all.
static void post_results(const job* j, const split* s, uint64_t k, hy__mpi_set* set) {
  range own = segment_of(s, j->rank, k);
  for (int step = 1; step < j->n; step++) {
    int peer = (j->rank + step) % j->n;
    range theirs = segment_of(s, peer, k);
    exchange(j, set, peer, target(j) + own.first * j->size, own.count * j->size,
             target(j) + theirs.first * j->size, theirs.count * j->size);
  }
}

// In place, a result arrives where the own part was that was sent a round before and waited for.
static hy_status reduce_in_segments(const job* j, split* s, bool gathers) {
  HY_TRY(hy__mpi_scratch(j->comm, 2 * (size_t)j->n * s->segment * j->size, &s->buffer));
  uint64_t rounds = (s->part + s->segment - 1) / s->segment;
  hy__mpi_set parts[2], results;
  hy__mpi_set_begin(&parts[0], j->comm);
  hy__mpi_set_begin(&parts[1], j->comm);
  hy__mpi_set_begin(&results, j->comm);
  hy_status status = HY_OK;
  post_parts(j, s, 0, &parts[0]);
  for (uint64_t k = 0; k < rounds && status == HY_OK; k++) {
    if (k + 1 < rounds) post_parts(j, s, k + 1, &parts[(k + 1) & 1]);
    status = hy__mpi_wait(&parts[k & 1], j->name);
    if (status != HY_OK) break;
    uint64_t first = gathers ? segment_of(s, j->rank, k).first : k * s->segment;
    reduce_segment(j, s, k, target(j) + first * j->size);
    if (!gathers) continue;
    status = hy__mpi_wait(&results, j->name);
    if (status == HY_OK) post_results(j, s, k, &results);
  }
  if (status == HY_OK) status = hy__mpi_wait(&results, j->name);
  hy__mpi_set_end(&results);
  hy__mpi_set_end(&parts[1]);
  hy__mpi_set_end(&parts[0]);
  return status;
}

static hy_status all_reduce(const job* j) {
  uint64_t count = j->call->count;
  if (count * j->size * (uint64_t)j->n <= SMALL) return all_reduce_small(j);
  split s = {.total = count, .part = (count + (uint64_t)j->n - 1) / (uint64_t)j->n};
  set_segment(&s, j->size);
  return reduce_in_segments(j, &s, true);
}

static hy_status reduce_scatter(const job* j) {
  uint64_t count = j->call->count;
  split s = {.total = count * (uint64_t)j->n, .part = count};
  set_segment(&s, j->size);
  return reduce_in_segments(j, &s, false);
}

// ---- what only moves ----

// A binomial tree.
static hy_status broadcast(const job* j, hy__mpi_set* set) {
  size_t bytes = j->call->count * j->size;
  int root = j->call->peer, place = (j->rank - root + j->n) % j->n;
  int reach = 1;
  while (reach < j->n && !(place & reach)) reach *= 2;
  if (place) {
    hy__mpi_post_recv(set, (place - reach + root) % j->n, j->tag, target(j), bytes);
    HY_TRY(hy__mpi_wait(set, j->name));
  }
  for (reach /= 2; reach > 0; reach /= 2)
    if (place + reach < j->n)
      hy__mpi_post_send(set, (place + reach + root) % j->n, j->tag, target(j), bytes);
  return hy__mpi_wait(set, j->name);
}

// Dissemination: after log2(n) rounds everybody has heard of everybody.
static hy_status barrier(const job* j, hy__mpi_set* set) {
  for (int step = 1; step < j->n; step *= 2) {
    hy__mpi_post_recv(set, (j->rank - step + j->n) % j->n, j->tag, NULL, 0);
    hy__mpi_post_send(set, (j->rank + step) % j->n, j->tag, NULL, 0);
    HY_TRY(hy__mpi_wait(set, j->name));
  }
  return HY_OK;
}

static hy_status with_set(const job* j, hy_status (*run)(const job*, hy__mpi_set*)) {
  hy__mpi_set set;
  hy__mpi_set_begin(&set, j->comm);
  hy_status status = run(j, &set);
  hy__mpi_set_end(&set);
  return status;
}

hy_status hy__mpi_collective(hy__mpi_comm* comm, const hy__comm_call* call) {
  job j = {.comm = comm,
           .call = call,
           .tag = hy__mpi_tag(call),
           .n = comm->n_ranks,
           .rank = comm->rank,
           .size = hy_dtype_size(call->dtype),
           .name = hy__comm_kind_name(call->kind)};
  if (j.n == 1) {  // every collective is a copy
    if (call->send && call->send != call->recv)
      memmove(call->recv, call->send, call->count * j.size);
    return HY_OK;
  }
  switch (call->kind) {
    case HY__ALL_REDUCE: return all_reduce(&j);
    case HY__ALL_GATHER: return gather(&j, source(&j), target(&j), call->count * j.size);
    case HY__REDUCE_SCATTER: return reduce_scatter(&j);
    case HY__BROADCAST: return with_set(&j, broadcast);
    default: return with_set(&j, barrier);
  }
}
