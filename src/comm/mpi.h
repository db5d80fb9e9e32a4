// MPI as a provider of communicators, bound at run time: one interface over the three ABIs there
// are, the world that the launcher made, and what the files of the provider share.
#ifndef HALYARD_COMM_MPI_H_
#define HALYARD_COMM_MPI_H_

#include "comm/provider.h"

// ---- the library: mpi_library.c ----

typedef union hy__mpi_handle {
  void* pointer;  // Open MPI, and the standard ABI of MPI-5
  int number;     // MPICH and what is compatible with it
} hy__mpi_handle;

typedef struct hy__mpi_message {
  int source, tag, bytes;
} hy__mpi_message;

// What differs between the ABIs besides the size of a handle.
typedef struct hy__mpi_constants {
  hy__mpi_handle comm_world, byte, f32, sum, errors_return;
  int any_source, any_tag, thread_serialized;
  int source_at, tag_at;  // in a status, in ints
} hy__mpi_constants;

// Each returns MPI's error code, 0 for success. The caller holds hy__mpi_lock from `world` on.
typedef struct hy__mpi_calls {
  const char* (*bind)(void* library);  // the first symbol that is missing, or NULL
  int (*get_version)(int* major, int* minor);
  int (*library_version)(char* text, int* length);
  int (*state)(int* initialized, int* finalized);
  int (*init)(int* provided);
  int (*query_thread)(int* provided);
  int (*finalize)(void);
  int (*world)(int* rank, int* size);  // of MPI_COMM_WORLD
  int (*return_errors)(hy__mpi_handle comm);
  int (*create)(int n, const int* world_ranks, int tag, hy__mpi_handle* comm);
  int (*comm_free)(hy__mpi_handle* comm);
  int (*isend)(const void* data, int bytes, int peer, int tag, hy__mpi_handle comm,
               hy__mpi_handle* request);
  int (*irecv)(void* data, int bytes, int peer, int tag, hy__mpi_handle comm,
               hy__mpi_handle* request);
  int (*iprobe)(int peer, int tag, hy__mpi_handle comm, int* there, hy__mpi_message* message);
  int (*test)(hy__mpi_handle* request, int* done, hy__mpi_message* message);  // message may be NULL
  int (*cancel)(hy__mpi_handle* request);
  int (*error_string)(int error, char* text, int* length);
  int (*allreduce)(const void* send, void* recv, int floats, hy__mpi_handle comm);  // for bench
} hy__mpi_calls;

typedef struct hy__mpi_state {
  const hy__mpi_calls* call;
  hy__mpi_constants constants;
  const char* abi;       // "Open MPI", "MPICH" or "MPI-5"
  char version[160];     // in the library's own words, the first line
  bool ours;             // we initialised it
  atomic_bool broken;    // a communicator has failed: not everybody may come to finalize
  atomic_bool lost;      // a process has died, which MPI_Finalize would wait for
  atomic_bool poisoned;  // messages are under way in memory that is no longer there
  int rank, size;        // of MPI_COMM_WORLD
  double timeout;        // seconds
} hy__mpi_state;
extern hy__mpi_state hy__mpi;

// Loads the library, or says what to install. Cheap once done.
hy_status hy__mpi_load(void);
hy_status hy__mpi_error(int error, const char* what);

// ---- the world: mpi_world.c ----

// Initialises MPI unless the program has, and checks that the launcher's world is MPI's.
hy_status hy__mpi_join_world(void);
// MPI is called by one thread at a time, which is what MPI_THREAD_SERIALIZED asks for.
void hy__mpi_lock(void);
void hy__mpi_unlock(void);

// A process that holds a rank, for those that wait for it.
typedef struct hy__mpi_process {
  int32_t world_rank;
  int32_t pidfd;     // -1: it is elsewhere, or the system has none
  int64_t pid;       // 0: it is elsewhere
  uint64_t machine;  // tells its machine and its numbering of processes from another's
} hy__mpi_process;

void hy__mpi_process_self(hy__mpi_process* self);
void hy__mpi_process_watch(hy__mpi_process* process, const hy__mpi_process* self);
void hy__mpi_process_unwatch(hy__mpi_process* process);
bool hy__mpi_process_died(const hy__mpi_process* process);
// Has died, or is about to and its memory cannot be read any more; costs a microsecond.
bool hy__mpi_process_is_ending(const hy__mpi_process* process);

// ---- communicators: mpi_comm.c; joining: mpi_join.c ----

struct hy__mpi_set;

typedef enum hy__mpi_end { HY__MPI_THERE, HY__MPI_SAID_SO, HY__MPI_DIED } hy__mpi_end;

typedef struct hy__mpi_comm {
  hy_device* device;
  int rank, n_ranks;
  uint64_t key;                // the same on all ranks, and another communicator has another
  hy__mpi_handle comm;         // where n_ranks > 1
  hy__mpi_process* processes;  // of each rank
  hy__mpi_end* gone;           // how each rank has ended, if it has
  unsigned* passed;            // the pass over a set in which a rank's next message was looked for
  unsigned pass;
  struct hy__mpi_set* sets;  // with messages under way, the newest first
  bool ended;                // it has been tried to settle
  bool settled;              // nothing is under way, and nothing will come
  atomic_bool aborted;
  pthread_mutex_t mutex;  // guards the error
  hy_async_error error;
  const char** parts;  // of each rank, for a reduction
  void* scratch;       // of collectives
  size_t scratch_bytes;
  void* staging;  // host memory near the device, where the device's own is out of reach
  size_t staging_bytes;
} hy__mpi_comm;

hy_status hy__mpi_unique_id(hy_device* device, hy_comm_id* id);
// The id of the next communicator of all the launcher's processes, which they all call in the same
// order.
void hy__mpi_world_id(hy_comm_id* id);
// Fills in `comm` and `processes`; the ranks are set.
hy_status hy__mpi_meet(hy__mpi_comm* comm, const hy_comm_id* id);
// Until every process of the world has come here.
hy_status hy__mpi_goodbye(double seconds);

// Notes the calling thread's message as the communicator's failure, tells the other ranks and
// settles; gives the status back, with its message.
hy_status hy__mpi_comm_fail(hy__mpi_comm* comm, hy_status status);
// Memory that lasts until the next call.
hy_status hy__mpi_scratch(hy__mpi_comm* comm, size_t bytes, char** scratch);

// ---- messages: mpi_messages.c ----

// What the ranks of a collective must agree in travels in the tag of its messages.
int hy__mpi_tag(const hy__comm_call* call);
enum { HY__MPI_TAG_FAILED = 0, HY__MPI_TAG_LEFT = 1 };

typedef struct hy__mpi_pending {
  hy__mpi_handle request;
  int peer, tag, bytes;
  bool receives, started, done;
  void* data;     // where a message is received
  void* dropped;  // memory of a message that nobody wants
} hy__mpi_pending;

// Messages of one communicator that are under way. The first failure sticks: nothing is posted
// after it, and wait returns it.
typedef struct hy__mpi_set {
  hy__mpi_comm* comm;
  hy__mpi_pending* list;
  int n, capacity;
  hy_status status;
  struct hy__mpi_set* next;  // of the communicator's sets
  hy__mpi_pending few[16];
} hy__mpi_set;

// In the order of a stack: the last set that was begun ends first.
void hy__mpi_set_begin(hy__mpi_set* set, hy__mpi_comm* comm);
void hy__mpi_set_end(hy__mpi_set* set);  // nothing is under way
void hy__mpi_post_send(hy__mpi_set* set, int peer, int tag, const void* data, size_t bytes);
void hy__mpi_post_recv(hy__mpi_set* set, int peer, int tag, void* data, size_t bytes);
// Until all are done, a rank fails, or HALYARD_COMM_TIMEOUT has passed. Sets with receives are
// waited for in the order in which these were posted. Empties the set; behind a failure every set
// of the communicator, and the memory is the caller's again.
hy_status hy__mpi_wait(hy__mpi_set* set, const char* what);

// A last, empty message to every other rank: this one has failed, or leaves.
void hy__mpi_tell_all(hy__mpi_comm* comm, int tag);
// Takes what still comes until every other rank has sent its last message or died, a moment at
// most. Messages that are under way even then are left to MPI, which is not called again.
void hy__mpi_settle(hy__mpi_comm* comm);

// ---- collectives: mpi_collectives.c; reductions: reduce.c ----

// In memory of the host; done on return. A call is no message.
hy_status hy__mpi_collective(hy__mpi_comm* comm, const hy__comm_call* call);
// out[i] = the reduction of parts[0][i], parts[1][i], ... in that order. `out` may be a part.
void hy__reduce_parts(hy_dtype dtype, hy_reduce_op op, const char* const* parts, int n_parts,
                      size_t count, char* out);

#endif  // HALYARD_COMM_MPI_H_
