// Joining a communicator over MPI: ranks meet at the process that made the id, in messages on
// MPI_COMM_WORLD with a deadline; only when all are there do they create the communicator together.
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "comm/mpi.h"

static const char magic[8] = "hy-mpi1";

// What an id says. It is made before MPI is initialised.
typedef struct identity {
  char magic[8];
  int32_t maker;   // its rank in the launcher's world
  uint32_t tag;    // the maker's next
  uint64_t nonce;  // tells the ids of one run from those of another
} identity;
_Static_assert(sizeof(identity) <= HY_COMM_ID_BYTES, "an id holds it");

// Tags on MPI_COMM_WORLD: ids have the upper half, communicators of the whole world the end of it.
enum {
  FIRST_TAG = 16384,
  ID_TAGS = 16000,
  WORLD_TAG = FIRST_TAG + ID_TAGS,
  WORLD_TAGS = 256,
  GOODBYE_TAG = WORLD_TAG + WORLD_TAGS,
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;  // guards what follows
static uint32_t n_made, n_worlds;
static identity* used;  // ids that this process has joined with
static int n_used, room_used;

hy_status hy__mpi_unique_id(hy_device* device, hy_comm_id* id) {
  (void)device;
  identity fresh = {.maker = 0};
  int size;
  HY_TRY(hy_comm_world_rank(&fresh.maker, &size));
  HY_TRY(hy__mpi_load());
  if (getrandom(&fresh.nonce, sizeof fresh.nonce, 0) != (ssize_t)sizeof fresh.nonce)
    return hy_fail(HY_IO, "hy_comm_unique_id: the system gives no random numbers");
  memcpy(fresh.magic, magic, sizeof magic);
  pthread_mutex_lock(&mutex);
  fresh.tag = FIRST_TAG + n_made++ % ID_TAGS;
  pthread_mutex_unlock(&mutex);
  memset(id, 0, sizeof *id);
  memcpy(id->bytes, &fresh, sizeof fresh);
  return HY_OK;
}

void hy__mpi_world_id(hy_comm_id* id) {
  pthread_mutex_lock(&mutex);
  identity world = {.maker = 0, .tag = WORLD_TAG + n_worlds % WORLD_TAGS, .nonce = n_worlds};
  n_worlds++;
  pthread_mutex_unlock(&mutex);
  memcpy(world.magic, magic, sizeof magic);
  memset(id, 0, sizeof *id);
  memcpy(id->bytes, &world, sizeof world);
}

// A process joins with an id once.
static hy_status use_up(const identity* id) {
  hy_status status = HY_OK;
  pthread_mutex_lock(&mutex);
  for (int i = 0; i < n_used && status == HY_OK; i++)
    if (memcmp(&used[i], id, sizeof *id) == 0)
      status = hy_fail(HY_INVALID_ARGUMENT,
                       "hy_comm_init_rank: this process has already joined with this id; a "
                       "communicator needs its own, and with MPI each rank is a process");
  if (status == HY_OK && n_used == room_used) {
    int room = room_used ? 2 * room_used : 16;
    identity* list = hy__realloc(used, (size_t)room * sizeof *list);
    if (!list) {
      status = hy_fail(HY_OUT_OF_MEMORY, "hy_comm_init_rank: no host memory");
    } else {
      used = list;
      room_used = room;
    }
  }
  if (status == HY_OK) used[n_used++] = *id;
  pthread_mutex_unlock(&mutex);
  return status;
}

// ---- messages on MPI_COMM_WORLD ----

typedef struct join_message {
  identity id;
  int32_t rank, n_ranks;
  hy__mpi_process process;
} join_message;

typedef struct answer {
  int32_t status;
  char message[252];
} answer;

// Until it is done or the deadline has passed.
static hy_status finish(hy__mpi_handle* request, int64_t deadline, const char* waits_for,
                        hy__mpi_message* message) {
  for (;;) {
    int done = 0;
    hy__mpi_lock();
    int error = hy__mpi.call->test(request, &done, message);
    if (!error && !done && hy__now_ns() > deadline) {
      hy__mpi.call->cancel(request);
      // The request completes as cancelled; what it pointed to is free then.
      for (int tries = 0; tries < 1000 && !done; tries++)
        if (hy__mpi.call->test(request, &done, NULL) != 0) break;
      hy__mpi_unlock();
      return hy_fail(HY_DEVICE_FAILED,
                     "hy_comm_init_rank waited %g s for %s (HALYARD_COMM_TIMEOUT)", hy__mpi.timeout,
                     waits_for);
    }
    hy__mpi_unlock();
    if (error) return hy__mpi_error(error, "hy_comm_init_rank");
    if (done) return HY_OK;
    nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
  }
}

static hy_status send_to(int world_rank, int tag, const void* data, size_t bytes,
                         int64_t deadline) {
  hy__mpi_handle request;
  hy__mpi_lock();
  int error = hy__mpi.call->isend(data, (int)bytes, world_rank, tag, hy__mpi.constants.comm_world,
                                  &request);
  hy__mpi_unlock();
  if (error) return hy__mpi_error(error, "hy_comm_init_rank");
  return finish(&request, deadline, "a rank to take a message", NULL);
}

static hy_status receive_from(int world_rank, int tag, void* data, size_t bytes, int64_t deadline,
                              const char* waits_for, hy__mpi_message* message) {
  hy__mpi_handle request;
  hy__mpi_lock();
  int error = hy__mpi.call->irecv(data, (int)bytes, world_rank, tag, hy__mpi.constants.comm_world,
                                  &request);
  hy__mpi_unlock();
  if (error) return hy__mpi_error(error, "hy_comm_init_rank");
  return finish(&request, deadline, waits_for, message);
}

// ---- the maker's side ----

static hy_status check_join(const hy__mpi_comm* comm, const join_message* own,
                            const join_message* m, const bool* here) {
  if (memcmp(&m->id, &own->id, sizeof m->id) != 0)
    return hy_fail(HY_INVALID_ARGUMENT, "hy_comm_init_rank: rank %d came with an id of another run",
                   m->rank);
  if (m->n_ranks != comm->n_ranks)
    return hy_fail(HY_INVALID_ARGUMENT, "hy_comm_init_rank: rank %d says %d ranks, rank %d says %d",
                   own->rank, comm->n_ranks, m->rank, m->n_ranks);
  if (here[m->rank])
    return hy_fail(HY_INVALID_ARGUMENT, "hy_comm_init_rank: two processes joined as rank %d",
                   m->rank);
  return HY_OK;
}

// Waits for all, also behind a failure, so that every rank hears of it; then only a moment.
static hy_status collect(hy__mpi_comm* comm, const join_message* own, bool* here, int* came,
                         int* n_came) {
  hy_status status = HY_OK;
  char failure[252] = "";
  int64_t deadline = hy__now_ns() + (int64_t)(1e9 * hy__mpi.timeout);
  here[comm->rank] = true;
  while (*n_came < comm->n_ranks - 1) {
    join_message m;
    hy__mpi_message from;
    char waits_for[64];
    int missing = 0;
    while (missing < comm->n_ranks - 1 && here[missing]) missing++;
    snprintf(waits_for, sizeof waits_for, "rank %d of %d", missing, comm->n_ranks);
    hy_status got = receive_from(hy__mpi.constants.any_source, (int)own->id.tag, &m, sizeof m,
                                 deadline, waits_for, &from);
    if (got != HY_OK && status == HY_OK) {
      snprintf(failure, sizeof failure, "%s", hy_last_error());
      status = got;
    }
    if (got != HY_OK) break;
    came[(*n_came)++] = from.source;
    got = check_join(comm, own, &m, here);
    if (got == HY_OK) {
      here[m.rank] = true;
      comm->processes[m.rank] = m.process;
    } else if (status == HY_OK) {
      snprintf(failure, sizeof failure, "%s", hy_last_error());
      status = got;
      int64_t soon = hy__now_ns() + 1000000000;
      if (soon < deadline) deadline = soon;
    }
  }
  return status == HY_OK ? HY_OK : hy_fail(status, "%s", failure);
}

static hy_status answer_all(const hy__mpi_comm* comm, const join_message* own, const int* came,
                            int n_came, hy_status status) {
  answer a = {.status = (int32_t)status};
  if (status != HY_OK) snprintf(a.message, sizeof a.message, "%s", hy_last_error());
  int64_t deadline = hy__now_ns() + (int64_t)(1e9 * hy__mpi.timeout);
  size_t bytes = (size_t)comm->n_ranks * sizeof *comm->processes;
  for (int i = 0; i < n_came; i++) {
    hy_status sent = send_to(came[i], (int)own->id.tag, &a, sizeof a, deadline);
    if (sent == HY_OK && a.status == HY_OK)
      sent = send_to(came[i], (int)own->id.tag, comm->processes, bytes, deadline);
    if (status == HY_OK) status = sent;
  }
  return a.status == HY_OK ? status : hy_fail(status, "%s", a.message);
}

static hy_status host_meeting(hy__mpi_comm* comm, const join_message* own) {
  bool* here = hy__calloc((size_t)comm->n_ranks, sizeof *here);
  int* came = hy__calloc((size_t)comm->n_ranks, sizeof *came);
  hy_status status = here && came ? HY_OK : hy_fail(HY_OUT_OF_MEMORY, "no host memory to join");
  int n_came = 0;
  if (status == HY_OK) {
    status = collect(comm, own, here, came, &n_came);
    status = answer_all(comm, own, came, n_came, status);
  }
  hy__mfree(came);
  hy__mfree(here);
  return status;
}

// ---- the others' side ----

static hy_status attend_meeting(hy__mpi_comm* comm, const join_message* own) {
  int maker = own->id.maker, tag = (int)own->id.tag;
  // Longer than the maker waits, whose words say more.
  int64_t deadline = hy__now_ns() + (int64_t)(1e9 * (hy__mpi.timeout + 2));
  char waits_for[64];
  answer a;
  snprintf(waits_for, sizeof waits_for, "process %d, which made the id", maker);
  HY_TRY(send_to(maker, tag, own, sizeof *own, deadline));
  HY_TRY(receive_from(maker, tag, &a, sizeof a, deadline, waits_for, NULL));
  if (a.status != HY_OK) return hy_fail((hy_status)a.status, "%.251s", a.message);
  return receive_from(maker, tag, comm->processes, (size_t)comm->n_ranks * sizeof *comm->processes,
                      deadline, waits_for, NULL);
}

hy_status hy__mpi_goodbye(double seconds) {
  int64_t deadline = hy__now_ns() + (int64_t)(1e9 * seconds);
  for (int step = 1; step < hy__mpi.size; step *= 2) {
    int to = (hy__mpi.rank + step) % hy__mpi.size;
    int from = (hy__mpi.rank - step + hy__mpi.size) % hy__mpi.size;
    HY_TRY(send_to(to, GOODBYE_TAG, NULL, 0, deadline));
    HY_TRY(receive_from(from, GOODBYE_TAG, NULL, 0, deadline, "the others to end", NULL));
  }
  return HY_OK;
}

static hy_status create(hy__mpi_comm* comm, int tag) {
  int* ranks = hy__malloc((size_t)comm->n_ranks * sizeof *ranks);
  if (!ranks) return hy_fail(HY_OUT_OF_MEMORY, "no host memory to join");
  for (int i = 0; i < comm->n_ranks; i++) ranks[i] = comm->processes[i].world_rank;
  hy__mpi_lock();
  int error = hy__mpi.call->create(comm->n_ranks, ranks, tag, &comm->comm);
  hy__mpi_unlock();
  hy__mfree(ranks);
  return error ? hy__mpi_error(error, "MPI_Comm_create_group") : HY_OK;
}

hy_status hy__mpi_meet(hy__mpi_comm* comm, const hy_comm_id* id) {
  join_message own = {.rank = comm->rank, .n_ranks = comm->n_ranks};
  memcpy(&own.id, id->bytes, sizeof own.id);
  if (memcmp(own.id.magic, magic, sizeof magic) != 0)
    return hy_fail(HY_INVALID_ARGUMENT,
                   "hy_comm_init_rank: these bytes are no id of the mpi provider");
  HY_TRY(hy__mpi_join_world());
  if (comm->n_ranks > hy__mpi.size || own.id.maker < 0 || own.id.maker >= hy__mpi.size)
    return hy_fail(HY_INVALID_ARGUMENT,
                   "hy_comm_init_rank: %d ranks, and an id of process %d; the launcher started %d "
                   "processes, and with MPI each rank is one",
                   comm->n_ranks, own.id.maker, hy__mpi.size);
  HY_TRY(use_up(&own.id));
  comm->key = own.id.nonce;
  hy__mpi_process_self(&own.process);
  comm->processes[comm->rank] = own.process;
  HY_TRY(own.id.maker == hy__mpi.rank ? host_meeting(comm, &own) : attend_meeting(comm, &own));
  HY_TRY(create(comm, (int)own.id.tag));
  for (int i = 0; i < comm->n_ranks; i++) hy__mpi_process_watch(&comm->processes[i], &own.process);
  return HY_OK;
}
