// MPI's world: MPI_Init and MPI_Finalize, one thread at a time, and which processes still live.
//
// MPI itself does not tell that a rank has died: mpirun ends the others, and where nobody does, the
// processes of one machine are watched through pidfds. For the rest there is HALYARD_COMM_TIMEOUT.
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "comm/mpi.h"

static pthread_mutex_t mpi_mutex = PTHREAD_MUTEX_INITIALIZER;

void hy__mpi_lock(void) {
  pthread_mutex_lock(&mpi_mutex);
}

void hy__mpi_unlock(void) {
  pthread_mutex_unlock(&mpi_mutex);
}

// ---- joining the world ----

static hy_status start_mpi(void) {
  int initialized = 0, finalized = 0, provided = 0;
  int error = hy__mpi.call->state(&initialized, &finalized);
  if (error) return hy__mpi_error(error, "MPI_Initialized");
  if (finalized)
    return hy_fail(
        HY_UNAVAILABLE,
        "MPI has been finalized, and cannot start twice in a process: make communicators "
        "before hy_shutdown or MPI_Finalize");
  error = initialized ? hy__mpi.call->query_thread(&provided) : hy__mpi.call->init(&provided);
  if (error) return hy__mpi_error(error, initialized ? "MPI_Query_thread" : "MPI_Init_thread");
  if (!initialized) hy__mpi.ours = true;
  if (provided < hy__mpi.constants.thread_serialized)
    return hy_fail(HY_UNAVAILABLE,
                   "communicators need MPI_THREAD_SERIALIZED, and %s was initialised with less; "
                   "call MPI_Init_thread, or leave it to the library",
                   hy__mpi.version);
  if (hy__mpi.ours) hy__mpi.call->return_errors(hy__mpi.constants.comm_world);
  return HY_OK;
}

static hy_status join(void) {
  int rank, size;
  HY_TRY(hy_comm_world_rank(&rank, &size));
  HY_TRY(hy__comm_timeout(&hy__mpi.timeout));
  HY_TRY(hy__mpi_load());
  HY_TRY(start_mpi());
  int error = hy__mpi.call->world(&hy__mpi.rank, &hy__mpi.size);
  if (error) return hy__mpi_error(error, "MPI_Comm_rank");
  if (rank == hy__mpi.rank && size == hy__mpi.size) return HY_OK;
  return hy_fail(HY_UNAVAILABLE,
                 "the launcher says rank %d of %d, %s says rank %d of %d: start the program by the "
                 "mpirun of that library, name the other one by HALYARD_MPI, or set HALYARD_RANK "
                 "and HALYARD_WORLD_SIZE",
                 rank, size, hy__mpi.version, hy__mpi.rank, hy__mpi.size);
}

static bool joined;  // under the lock

hy_status hy__mpi_join_world(void) {
  if (atomic_load(&hy__mpi.poisoned))
    return hy_fail(HY_DEVICE_FAILED,
                   "a communicator failed with messages under way; MPI is not called again in this "
                   "process");
  hy__mpi_lock();
  hy_status status = joined ? HY_OK : join();
  joined = status == HY_OK;
  hy__mpi_unlock();
  return status;
}

// MPI_Finalize waits for every process, one that has died included: only when all have come here is
// it called. Otherwise the process ends without, and mpirun ends the others.
void hy__comm_shutdown(void) {
  hy__mpi_lock();
  bool finalizes =
      joined && hy__mpi.ours && !atomic_load(&hy__mpi.poisoned) && !atomic_load(&hy__mpi.lost);
  joined = false;
  hy__mpi_unlock();
  if (!finalizes) return;
  double seconds = atomic_load(&hy__mpi.broken) ? 2 : hy__mpi.timeout;
  if (hy__mpi_goodbye(seconds) != HY_OK) {
    hy__log(2, "MPI is not finalized: %s", hy_last_error());
    return;
  }
  hy__mpi_lock();
  hy__mpi.call->finalize();
  hy__mpi_unlock();
}

// ---- processes ----

// Numbers of processes mean the same where the machine has not been booted since and the namespace
// is the same.
static uint64_t this_machine(void) {
  char text[128] = "";
  struct stat space;
  int file = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
  ssize_t length = file < 0 ? 0 : read(file, text, sizeof text);
  if (file >= 0) close(file);
  if (length <= 0 || stat("/proc/self/ns/pid", &space) != 0) return 0;
  uint64_t hash = 14695981039346656037u ^ (uint64_t)space.st_ino;
  for (ssize_t i = 0; i < length; i++) hash = (hash ^ (uint8_t)text[i]) * 1099511628211u;
  return hash;
}

void hy__mpi_process_self(hy__mpi_process* self) {
  *self = (hy__mpi_process){
      .world_rank = hy__mpi.rank, .pidfd = -1, .pid = getpid(), .machine = this_machine()};
}

void hy__mpi_process_watch(hy__mpi_process* process, const hy__mpi_process* self) {
  process->pidfd = -1;
  if (!self->machine || process->machine != self->machine || process->pid == self->pid)
    process->pid = 0;
#ifdef SYS_pidfd_open
  if (process->pid) process->pidfd = (int)syscall(SYS_pidfd_open, (pid_t)process->pid, 0);
#endif
}

void hy__mpi_process_unwatch(hy__mpi_process* process) {
  if (process->pidfd >= 0) close(process->pidfd);
}

bool hy__mpi_process_died(const hy__mpi_process* process) {
  if (!process->pid) return false;
  if (process->pidfd < 0) return kill((pid_t)process->pid, 0) != 0 && errno == ESRCH;
  struct pollfd watched = {.fd = process->pidfd, .events = POLLIN};
  return poll(&watched, 1, 0) == 1;
}

// A process that ends gives up its memory milliseconds before its pidfd tells. From then on reading
// it says that there is no such process; before, that nothing is at NULL.
static bool memory_is_gone(const hy__mpi_process* process) {
  char byte;
  struct iovec here = {&byte, 1}, there = {NULL, 1};
  return process->pid && process_vm_readv((pid_t)process->pid, &here, 1, &there, 1, 0) < 0 &&
         errno == ESRCH;
}

bool hy__mpi_process_is_ending(const hy__mpi_process* process) {
  return hy__mpi_process_died(process) || memory_is_gone(process);
}
