// Where ranks meet: shared memory named by the unique id, with a lock that survives the death of
// its holder, and waits that end with a reason.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "comm.h"

static const char prefix[] = "/halyard_guarded_";
enum { NAME_BYTES = sizeof prefix + 32 };

// The meetings this process has mapped: its ranks share one mapping.
typedef struct mapping {
  struct mapping* next;
  char name[NAME_BYTES];
  guarded_meeting* meeting;
  int users;
} mapping;

static pthread_mutex_t mappings_mutex = PTHREAD_MUTEX_INITIALIZER;
static mapping* mappings;
static int timeout_ms = 30000;

hy_status guarded_comm_options(void) {
  const char* text = getenv("HALYARD_GUARDED_COMM_TIMEOUT");
  timeout_ms = 30000;
  if (!text) return HY_OK;
  char* end;
  long value = strtol(text, &end, 10);
  if (end == text || *end || value < 1 || value > 600000)
    return guarded_host->fail(
        HY_INVALID_ARGUMENT,
        "HALYARD_GUARDED_COMM_TIMEOUT: \"%s\" is not a number of milliseconds from 1 to 600000",
        text);
  timeout_ms = (int)value;
  return HY_OK;
}

// ---- the lock ----

void guarded_meeting_fail(guarded_meeting* meeting, hy_status status, const char* message) {
  if (meeting->failed != HY_OK) return;
  meeting->failed = status;
  snprintf(meeting->failure, sizeof meeting->failure, "%s", message);
  pthread_cond_broadcast(&meeting->changed);
}

static void after_lock(guarded_meeting* meeting, int error) {
  if (error != EOWNERDEAD) return;
  pthread_mutex_consistent(&meeting->mutex);
  guarded_meeting_fail(meeting, HY_DEVICE_FAILED, "a rank died in the middle of an exchange");
}

void guarded_meeting_lock(guarded_meeting* meeting) {
  after_lock(meeting, pthread_mutex_lock(&meeting->mutex));
}

void guarded_meeting_unlock(guarded_meeting* meeting) {
  pthread_mutex_unlock(&meeting->mutex);
}

static int64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static hy_status broken(guarded_meeting* meeting, const char* message) {
  guarded_meeting_fail(meeting, HY_DEVICE_FAILED, message);
  return guarded_host->fail(meeting->failed, "%s", meeting->failure);
}

static const char* list_ranks(uint32_t set, char* text, size_t size) {
  size_t used = 0;
  text[0] = 0;
  for (int r = 0; r < GUARDED_MAX_RANKS && used < size; r++)
    if (set >> r & 1)
      used += (size_t)snprintf(text + used, size - used, "%s%d", used ? ", " : "", r);
  return text;
}

// A rank that will not come any more.
static hy_status check_alive(guarded_comm* comm, uint32_t missing, const char* what) {
  guarded_meeting* m = comm->meeting;
  char message[160];
  for (int r = 0; r < comm->n_ranks; r++) {
    if (!(missing >> r & 1)) continue;
    if (m->left >> r & 1)
      snprintf(message, sizeof message, "%s on rank %d: rank %d has left", what, comm->rank, r);
    else if (m->joined >> r & 1 && kill((pid_t)m->process[r], 0) != 0 && errno == ESRCH)
      snprintf(message, sizeof message, "%s on rank %d: rank %d (process %lld) has died", what,
               comm->rank, r, (long long)m->process[r]);
    else
      continue;
    return broken(m, message);
  }
  return HY_OK;
}

hy_status guarded_meeting_wait(guarded_comm* comm, uint32_t missing, const char* what,
                               int milliseconds, int64_t* since) {
  guarded_meeting* m = comm->meeting;
  if (m->failed != HY_OK) return guarded_host->fail(m->failed, "%s", m->failure);
  HY_TRY(check_alive(comm, missing, what));
  int64_t now = now_ns();
  if (!*since) *since = now;
  if (now - *since > (int64_t)timeout_ms * 1000000) {
    char ranks[64], message[200];
    snprintf(message, sizeof message,
             "%s on rank %d of %d waited %d ms for rank %s, which did not come", what, comm->rank,
             comm->n_ranks, timeout_ms, list_ranks(missing, ranks, sizeof ranks));
    return broken(m, message);
  }
  int64_t end = now + (int64_t)milliseconds * 1000000;
  struct timespec until = {.tv_sec = end / 1000000000, .tv_nsec = end % 1000000000};
  after_lock(m, pthread_cond_timedwait(&m->changed, &m->mutex, &until));
  return m->failed == HY_OK ? HY_OK : guarded_host->fail(m->failed, "%s", m->failure);
}

hy_status guarded_meeting_arrive(guarded_comm* comm, const char* what) {
  guarded_meeting* m = comm->meeting;
  uint32_t all = (1u << comm->n_ranks) - 1;
  int64_t since = 0;
  hy_status status = HY_OK;
  guarded_meeting_lock(m);
  uint64_t generation = m->generation;
  m->arrived |= 1u << comm->rank;
  if (m->arrived == all) {
    m->arrived = 0;
    m->generation++;
    pthread_cond_broadcast(&m->changed);
  }
  while (status == HY_OK && m->generation == generation)
    status = guarded_meeting_wait(comm, all & ~m->arrived, what, 50, &since);
  if (m->generation != generation) status = HY_OK;  // a failure since then is what follows's
  guarded_meeting_unlock(m);
  return status;
}

// ---- mapping ----

static void prepare(guarded_meeting* m) {
  pthread_mutexattr_t mutex;
  pthread_condattr_t cond;
  pthread_mutexattr_init(&mutex);
  pthread_mutexattr_setpshared(&mutex, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&mutex, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(&m->mutex, &mutex);
  pthread_mutexattr_destroy(&mutex);
  pthread_condattr_init(&cond);
  pthread_condattr_setpshared(&cond, PTHREAD_PROCESS_SHARED);
  pthread_condattr_setclock(&cond, CLOCK_MONOTONIC);
  pthread_cond_init(&m->changed, &cond);
  pthread_condattr_destroy(&cond);
}

// The first to come makes it, under the file's lock.
static guarded_meeting* map(const char* name) {
  guarded_meeting* m = NULL;
  struct stat st;
  int file = shm_open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0) return NULL;
  if (flock(file, LOCK_EX) != 0 || fstat(file, &st) != 0) goto close_file;
  if (st.st_size == 0 && ftruncate(file, sizeof *m) != 0) goto close_file;
  m = mmap(NULL, sizeof *m, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (m == MAP_FAILED) {
    m = NULL;
  } else if (st.st_size == 0) {
    prepare(m);
  }
close_file:
  flock(file, LOCK_UN);  // which closing does not do while it is mapped
  close(file);
  return m;
}

static hy_status open_meeting(const char* name, guarded_meeting** meeting) {
  hy_status status = HY_OK;
  pthread_mutex_lock(&mappings_mutex);
  mapping* at = mappings;
  while (at && strcmp(at->name, name) != 0) at = at->next;
  if (!at) {
    at = calloc(1, sizeof *at);
    if (at) at->meeting = map(name);
    if (!at || !at->meeting) {
      status = guarded_host->fail(HY_OUT_OF_MEMORY, "guarded: no shared memory for a communicator");
      free(at);
      goto done;
    }
    memcpy(at->name, name, sizeof at->name);
    at->next = mappings;
    mappings = at;
  }
  at->users++;
  *meeting = at->meeting;
done:
  pthread_mutex_unlock(&mappings_mutex);
  return status;
}

// `forget` takes the name away: nobody can come any more.
static void close_meeting(guarded_meeting* meeting, bool forget) {
  pthread_mutex_lock(&mappings_mutex);
  mapping** link = &mappings;
  while ((*link)->meeting != meeting) link = &(*link)->next;
  mapping* at = *link;
  if (forget) shm_unlink(at->name);
  if (--at->users == 0) {
    munmap(meeting, sizeof *meeting);
    *link = at->next;
    free(at);
  }
  pthread_mutex_unlock(&mappings_mutex);
}

// ---- joining and leaving ----

hy_status guarded_comm_unique_id(void* device, hy_comm_id* id) {
  (void)device;
  unsigned char random[16];
  if (getrandom(random, sizeof random, 0) != sizeof random)
    return guarded_host->fail(HY_DEVICE_FAILED, "guarded: the system gives no random numbers");
  memset(id, 0, sizeof *id);
  char* text = (char*)id->bytes;
  memcpy(text, prefix, sizeof prefix);
  for (size_t i = 0; i < sizeof random; i++)
    snprintf(text + sizeof prefix - 1 + 2 * i, 3, "%02x", random[i]);
  return HY_OK;
}

static bool is_ours(const hy_comm_id* id) {
  const char* text = (const char*)id->bytes;
  size_t length = strnlen(text, sizeof id->bytes);
  return length == NAME_BYTES - 1 && strncmp(text, prefix, sizeof prefix - 1) == 0 &&
         strspn(text + sizeof prefix - 1, "0123456789abcdef") == 32;
}

// The meeting is locked.
static hy_status join(guarded_comm* comm) {
  guarded_meeting* m = comm->meeting;
  uint32_t own = 1u << comm->rank, all = (1u << comm->n_ranks) - 1;
  int64_t since = 0;
  if (m->n_ranks && m->n_ranks != comm->n_ranks)
    return guarded_host->fail(HY_INVALID_ARGUMENT,
                              "guarded: rank %d says there are %d ranks, another said %d",
                              comm->rank, comm->n_ranks, m->n_ranks);
  if (m->joined & own)
    return guarded_host->fail(HY_INVALID_ARGUMENT, "guarded: rank %d has already joined",
                              comm->rank);
  m->n_ranks = comm->n_ranks;
  m->joined |= own;
  m->process[comm->rank] = getpid();
  pthread_cond_broadcast(&m->changed);
  hy_status status = HY_OK;
  while (status == HY_OK && m->joined != all)
    status = guarded_meeting_wait(comm, all & ~m->joined, "init_rank", 50, &since);
  return status;
}

static void release(guarded_comm* comm, bool forget) {
  close_meeting(comm->meeting, forget);
  pthread_cond_destroy(&comm->passed);
  pthread_mutex_destroy(&comm->mutex);
  free(comm);
}

hy_status guarded_comm_init_rank(void* device, int32_t n_ranks, const hy_comm_id* id, int32_t rank,
                                 void** out) {
  (void)device;
  if (!is_ours(id))
    return guarded_host->fail(HY_INVALID_ARGUMENT, "guarded: this id was not made by guarded");
  if (n_ranks > GUARDED_MAX_RANKS)
    return guarded_host->fail(HY_UNSUPPORTED, "guarded: at most %d ranks, not %d",
                              GUARDED_MAX_RANKS, n_ranks);
  guarded_comm* comm = calloc(1, sizeof *comm);
  if (!comm) return guarded_host->fail(HY_OUT_OF_MEMORY, "guarded: no host memory");
  comm->rank = rank;
  comm->n_ranks = n_ranks;
  hy_status status = open_meeting((const char*)id->bytes, &comm->meeting);
  if (status != HY_OK) {
    free(comm);
    return status;
  }
  pthread_mutex_init(&comm->mutex, NULL);
  pthread_cond_init(&comm->passed, NULL);
  guarded_meeting_lock(comm->meeting);
  status = join(comm);
  guarded_meeting_unlock(comm->meeting);
  if (status != HY_OK) {
    // Who came twice, or to another meeting, leaves the others to theirs.
    release(comm, status == HY_DEVICE_FAILED);
    return status;
  }
  shm_unlink((const char*)id->bytes);  // all are here
  *out = comm;
  return HY_OK;
}

void guarded_comm_destroy(void* device, void* handle) {
  (void)device;
  guarded_comm* comm = handle;
  pthread_mutex_lock(&comm->mutex);
  while (comm->turn != comm->drawn) pthread_cond_wait(&comm->passed, &comm->mutex);
  pthread_mutex_unlock(&comm->mutex);
  guarded_meeting_lock(comm->meeting);
  comm->meeting->left |= 1u << comm->rank;
  pthread_cond_broadcast(&comm->meeting->changed);
  guarded_meeting_unlock(comm->meeting);
  release(comm, false);
}

hy_status guarded_comm_abort(void* device, void* handle) {
  (void)device;
  guarded_comm* comm = handle;
  char message[64];
  snprintf(message, sizeof message, "rank %d has aborted the communicator", comm->rank);
  guarded_meeting_lock(comm->meeting);
  guarded_meeting_fail(comm->meeting, HY_DEVICE_FAILED, message);
  guarded_meeting_unlock(comm->meeting);
  return HY_OK;
}

hy_status guarded_comm_async_error(void* device, void* handle, hy_async_error* error) {
  (void)device;
  guarded_meeting* m = ((guarded_comm*)handle)->meeting;
  guarded_meeting_lock(m);
  error->status = m->failed;
  error->op = HY_OP_NONE;
  snprintf(error->message, sizeof error->message, "%s", m->failure);
  guarded_meeting_unlock(m);
  return error->status;
}
