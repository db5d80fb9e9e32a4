// Test vendors: the guarded device's communicators on a vendor's memory and queues.
#include "ranks.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { FILLER = 0x5a, TAIL = 96 };  // TAIL: room for a name at the end of an id

// ---- what guarded is given by the library, and gives itself ----

static _Thread_local char message[512];

static hy_status fail(hy_status status, const char* format, ...)
    __attribute__((format(printf, 2, 3)));
static hy_status fail(hy_status status, const char* format, ...) {
  char text[sizeof message];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  memcpy(message, text, sizeof message);
  return status;
}

static const char* last_error(void) {
  return message;
}

static const hy_host host = {.size = sizeof host, .fail = fail, .last_error = last_error};
const hy_host* guarded_host = &host;

void* ranks_device(int device) {
  static guarded_device devices[8];
  static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  pthread_mutex_lock(&mutex);
  devices[device].memory.file = device;
  pthread_mutex_unlock(&mutex);
  return &devices[device];
}

hy_status guarded_memory_reach(guarded_memory* memory, const void* address, size_t bytes,
                               char** bytes_at) {
  *bytes_at = vendor_memory_reach(memory->file, address, bytes);
  return *bytes_at ? HY_OK : fail(HY_INVALID_ARGUMENT, "%p is no memory of this device", address);
}

typedef struct job {
  vendor_queue* queue;
  guarded_work work;
  void* context;
} job;

static int run_job(void* context) {
  const job* j = context;
  int code;
  vendor_queue_is_idle(j->queue, &code);
  return j->work(j->context, code != 0) == HY_OK ? 0 : ranks_broken_code;
}

hy_status guarded_push_work(guarded_queue* queue, guarded_work work, void* context) {
  job j = {(vendor_queue*)queue, work, context};
  vendor_queue_push_always(j.queue, run_job, &j, sizeof j);
  return HY_OK;
}

// ---- ids and joining ----

enum { MAX_JOINED = 64 };
static pthread_mutex_t joined_mutex = PTHREAD_MUTEX_INITIALIZER;
static guarded_comm* joined[MAX_JOINED];

// Puts `now` where `before` was; NULL is a free place.
static void note(guarded_comm* before, guarded_comm* now) {
  pthread_mutex_lock(&joined_mutex);
  int i = 0;
  while (i < MAX_JOINED && joined[i] != before) i++;
  if (i < MAX_JOINED) joined[i] = now;
  pthread_mutex_unlock(&joined_mutex);
}

void ranks_lose_link(void) {
  pthread_mutex_lock(&joined_mutex);
  for (int i = 0; i < MAX_JOINED; i++)
    if (joined[i]) guarded_comm_abort(NULL, joined[i]);
  pthread_mutex_unlock(&joined_mutex);
}

void ranks_make_id(char* id, size_t bytes) {
  hy_comm_id made;
  guarded_comm_unique_id(NULL, &made);
  memset(id, FILLER, bytes);
  memcpy(id + bytes - TAIL, made.bytes, TAIL);
}

hy_status ranks_join(ranks_comm* comm, int device, int n_ranks, int rank, const char* id,
                     size_t bytes) {
  hy_comm_id made = {{0}};
  for (size_t i = 0; i < bytes - TAIL; i++)
    if (id[i] != FILLER) return fail(HY_INVALID_ARGUMENT, "byte %zu of the id has changed", i);
  memcpy(made.bytes, id + bytes - TAIL, TAIL);
  void* own = NULL;
  HY_TRY(guarded_comm_init_rank(NULL, n_ranks, &made, rank, &own));
  *comm = (ranks_comm){own, device};
  note(NULL, own);
  return HY_OK;
}

bool ranks_are_working(ranks_comm* comm) {
  pthread_mutex_lock(&comm->rank->mutex);
  bool working = comm->rank->turn != comm->rank->drawn;
  pthread_mutex_unlock(&comm->rank->mutex);
  return working;
}

void ranks_leave(ranks_comm* comm) {
  note(comm->rank, NULL);
  guarded_comm_destroy(NULL, comm->rank);
}
