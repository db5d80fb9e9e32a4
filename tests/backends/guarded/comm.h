// Communicators of the guarded device: ranks are threads of one process, several processes of one
// machine, or both. They meet in shared memory named by the unique id (comm_meet.c), move chunks
// through it (comm_run.c), and reduce in the order of ranks (comm_reduce.c).
#ifndef HALYARD_TESTS_GUARDED_COMM_H_
#define HALYARD_TESTS_GUARDED_COMM_H_

#include "guarded.h"

enum { GUARDED_MAX_RANKS = 16, GUARDED_CHUNK = 32768 };

typedef enum guarded_comm_kind {
  ALL_REDUCE,
  ALL_GATHER,
  REDUCE_SCATTER,
  BROADCAST,
  SEND,
  RECV,
  BARRIER,
} guarded_comm_kind;

// What the ranks of a collective must agree in.
typedef struct guarded_collective {
  guarded_comm_kind kind;
  hy_dtype dtype;
  hy_reduce_op op;
  int32_t root;  // or the peer of a send or receive
  uint64_t count;
} guarded_collective;

// A message from one rank to another, chunk by chunk.
typedef struct guarded_mailbox {
  uint64_t total;  // bytes of the message
  hy_dtype dtype;
  uint32_t bytes;  // that are in the chunk; 0: it is empty
  char chunk[GUARDED_CHUNK];
} guarded_mailbox;

// Mapped by every process that has a rank.
typedef struct guarded_meeting {
  pthread_mutex_t mutex;  // guards all but the chunks, which belong to their rank until it arrives
  pthread_cond_t changed;
  int32_t n_ranks;
  uint32_t joined, left, arrived;  // sets of ranks
  uint64_t generation;             // how often all have arrived
  int64_t process[GUARDED_MAX_RANKS];
  hy_status failed;  // of the first rank that failed; ends everybody's work
  char failure[256];
  guarded_collective posted[GUARDED_MAX_RANKS];
  char chunk[GUARDED_MAX_RANKS][GUARDED_CHUNK];
  guarded_mailbox box[GUARDED_MAX_RANKS][GUARDED_MAX_RANKS];  // from, to
} guarded_meeting;

typedef struct guarded_comm {
  guarded_meeting* meeting;
  int rank, n_ranks;
  pthread_mutex_t mutex;  // guards all below
  pthread_cond_t passed;
  uint64_t drawn, turn;  // what was enqueued is numbered, and runs in that order
} guarded_comm;

// ---- meeting ----

hy_status guarded_comm_options(void);  // reads HALYARD_GUARDED_COMM_TIMEOUT
hy_status guarded_comm_unique_id(void* device, hy_comm_id* id);
hy_status guarded_comm_init_rank(void* device, int32_t n_ranks, const hy_comm_id* id, int32_t rank,
                                 void** comm);
void guarded_comm_destroy(void* device, void* comm);
hy_status guarded_comm_abort(void* device, void* comm);
hy_status guarded_comm_async_error(void* device, void* comm, hy_async_error* error);

void guarded_meeting_lock(guarded_meeting* meeting);
void guarded_meeting_unlock(guarded_meeting* meeting);
// Marks the communicator as failed for all ranks, unless it is already. The meeting is locked.
void guarded_meeting_fail(guarded_meeting* meeting, hy_status status, const char* message);
// Waits, `milliseconds` at most, for something to change. The meeting is locked. Fails where it has
// failed, or one of the `missing` ranks cannot be waited for any more; `since` is when the last
// progress was, 0 for now, and set by the first call.
hy_status guarded_meeting_wait(guarded_comm* comm, uint32_t missing, const char* what,
                               int milliseconds, int64_t* since);
// Until every rank has come here.
hy_status guarded_meeting_arrive(guarded_comm* comm, const char* what);

// ---- running ----

hy_status guarded_all_reduce(void* device, void* comm, void* stream, const void* send, void* recv,
                             uint64_t count, hy_dtype dtype, hy_reduce_op op);
hy_status guarded_all_gather(void* device, void* comm, void* stream, const void* send, void* recv,
                             uint64_t count, hy_dtype dtype);
hy_status guarded_reduce_scatter(void* device, void* comm, void* stream, const void* send,
                                 void* recv, uint64_t count, hy_dtype dtype, hy_reduce_op op);
hy_status guarded_broadcast(void* device, void* comm, void* stream, void* buffer, uint64_t count,
                            hy_dtype dtype, int32_t root);
hy_status guarded_send(void* device, void* comm, void* stream, const void* buffer, uint64_t count,
                       hy_dtype dtype, int32_t peer);
hy_status guarded_recv(void* device, void* comm, void* stream, void* buffer, uint64_t count,
                       hy_dtype dtype, int32_t peer);
hy_status guarded_barrier(void* device, void* comm, void* stream);
hy_status guarded_group_begin(void* device);
hy_status guarded_group_end(void* device);

// ---- reducing ----

// out[i] = part[0][i] op part[1][i] op ..., in that order; 16-bit floats in f32, rounded once.
// `out` may be one of the parts.
void guarded_reduce(hy_dtype dtype, hy_reduce_op op, const char* const* part, int n_parts,
                    size_t count, char* out);

#endif  // HALYARD_TESTS_GUARDED_COMM_H_
