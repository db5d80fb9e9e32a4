// libnccl.so.2 for tests on the emulated GPU: NCCL's names and signatures, where ranks are threads
// of one process. Work is done when the call, or the group, ends. What NCCL's documents forbid and
// what hangs a real one, ranks that disagree, ends the process with code 86.
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OK = 0, SYSTEM_ERROR = 2, INVALID_ARGUMENT = 4, INVALID_USAGE = 5, REMOTE_ERROR = 6 };
enum { MOST = 8, MAGIC = 0x6e63636c };
typedef struct {
  char bytes[128];
} ncclUniqueId;

int cuCtxGetDevice(int* device);  // of the emulator

static void misuse(const char* what) {
  fprintf(stderr, "nccl: %s\n", what);
  _exit(86);
}

static _Thread_local char last_error[256];

// ---- worlds of ranks ----

typedef enum kind { ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, BROADCAST, SEND, RECV } kind;

typedef struct work {
  kind kind;
  const void* send;
  void* recv;
  size_t count;
  int type, op, peer;  // or the root
} work;

typedef struct message {
  struct message* next;
  int from, to;
  size_t bytes;
  bool taken;
  const void* data;
} message;

typedef struct world {
  struct world* next;
  ncclUniqueId id;
  int n_ranks, joined, device[MOST];
  bool refused, aborted;
  work posted[MOST];
  int arrived;
  unsigned round;
  message* messages;
} world;

typedef struct ncclComm {
  int magic, rank;
  world* world;
} comm;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;  // guards all worlds
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static world* worlds;
static uint64_t n_ids;

static size_t size_of(int type) {
  static const size_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
  if (type < 0 || type > 9) misuse("no such type");
  return sizes[type];
}

// ---- arithmetic: small whole numbers in doubles ----

static double load(int type, const char* p) {
  union {
    int8_t i8;
    uint8_t u8;
    int32_t i32;
    uint32_t u32;
    int64_t i64;
    uint64_t u64;
    uint16_t half;
    float f32;
    double f64;
  } v = {0};
  memcpy(&v, p, size_of(type));
  switch (type) {
    case 0: return v.i8;
    case 1: return v.u8;
    case 2: return v.i32;
    case 3: return v.u32;
    case 4: return (double)v.i64;
    case 5: return (double)v.u64;
    case 6: {
      int exponent = v.half >> 10 & 31;
      double magnitude = (v.half & 1023) + (exponent ? 1024 : 0);
      for (int e = exponent ? exponent : 1; e < 25; e++) magnitude /= 2;
      for (int e = 25; e < exponent; e++) magnitude *= 2;
      return v.half & 0x8000 ? -magnitude : magnitude;
    }
    case 7: return v.f32;
    case 8: return v.f64;
    default: v.u32 = (uint32_t)v.half << 16; return v.f32;
  }
}

static void store(int type, char* p, double value) {
  int64_t whole = (int64_t)value;
  float f32 = (float)value;
  uint32_t bits;
  memcpy(&bits, &f32, sizeof bits);
  uint16_t half = (uint16_t)(bits >> 16);
  switch (type) {
    case 6:  // whole numbers below 2048 are exact
      half = (uint16_t)((bits >> 16 & 0x8000) |
                        (f32 == 0 ? 0 : (((bits >> 23 & 255) - 112) << 10 | (bits >> 13 & 1023))));
      memcpy(p, &half, 2);
      break;
    case 7: memcpy(p, &f32, 4); break;
    case 8: memcpy(p, &value, 8); break;
    case 9: memcpy(p, &half, 2); break;
    default: memcpy(p, &whole, size_of(type));
  }
}

static double combine(int op, double a, double b) {
  switch (op) {
    case 1: return a * b;
    case 2: return a > b ? a : b;
    case 3: return a < b ? a : b;
    default: return a + b;
  }
}

static void reduce(const world* w, size_t first, size_t count, char* out) {
  const work* p = w->posted;
  size_t size = size_of(p->type);
  for (size_t i = 0; i < count; i++) {
    double sum = load(p->type, (const char*)p[0].send + (first + i) * size);
    for (int r = 1; r < w->n_ranks; r++)
      sum = combine(p->op, sum, load(p->type, (const char*)p[r].send + (first + i) * size));
    store(p->type, out + i * size, p->op == 4 ? sum / w->n_ranks : sum);
  }
}

// ---- collectives: the last rank to come does everybody's work ----

static void run_all(world* w) {
  const work* p = w->posted;
  size_t part = p->count * size_of(p->type), n = (size_t)w->n_ranks;
  for (int r = 1; r < w->n_ranks; r++)
    if (p[r].kind != p->kind || p[r].count != p->count || p[r].type != p->type ||
        p[r].op != p->op || p[r].peer != p->peer)
      misuse("ranks disagree, and a real NCCL would hang");
  char* all = malloc(part * n + 1);
  if (!all) misuse("no memory");
  if (p->kind == ALL_REDUCE) reduce(w, 0, p->count, all);
  if (p->kind == REDUCE_SCATTER) reduce(w, 0, p->count * n, all);
  if (p->kind == BROADCAST) memcpy(all, p[p->peer].send, part);
  for (size_t r = 0; p->kind == ALL_GATHER && r < n; r++) memcpy(all + r * part, p[r].send, part);
  for (size_t r = 0; r < n; r++) {
    if (p->kind == REDUCE_SCATTER)
      memcpy(p[r].recv, all + r * part, part);
    else
      memcpy(p[r].recv, all, p->kind == ALL_GATHER ? part * n : part);
  }
  free(all);
}

// The caller holds the mutex.
static int collective(const comm* c, const work* what) {
  world* w = c->world;
  unsigned round = w->round;
  w->posted[c->rank] = *what;
  if (++w->arrived == w->n_ranks) {
    run_all(w);
    w->arrived = 0;
    w->round++;
    pthread_cond_broadcast(&changed);
  }
  while (w->round == round && !w->aborted) pthread_cond_wait(&changed, &mutex);
  return w->round == round ? REMOTE_ERROR : OK;
}

static message* next_message(const world* w, int from, int to) {
  message* m = w->messages;
  while (m && (m->from != from || m->to != to || m->taken)) m = m->next;
  return m;
}

static int receive(const comm* c, const work* what) {
  world* w = c->world;
  message* m;
  while (!(m = next_message(w, what->peer, c->rank)) && !w->aborted)
    pthread_cond_wait(&changed, &mutex);
  if (!m) return REMOTE_ERROR;
  if (m->bytes != what->count * size_of(what->type)) misuse("a send and its receive differ");
  memcpy(what->recv, m->data, m->bytes);
  m->taken = true;
  pthread_cond_broadcast(&changed);
  return OK;
}

// ---- groups ----

typedef struct queued {
  comm* comm;
  work work;
  message message;  // of a send
} queued;

static _Thread_local int depth, n_queued;
static _Thread_local queued queue[64];

static void deposit(queued* q) {
  world* w = q->comm->world;
  message** last = &w->messages;
  while (*last) last = &(*last)->next;
  q->message = (message){.from = q->comm->rank,
                         .to = q->work.peer,
                         .bytes = q->work.count * size_of(q->work.type),
                         .data = q->work.send};
  *last = &q->message;
  pthread_cond_broadcast(&changed);
}

// Until it is taken; then it is no longer listed.
static int await_receiver(queued* q) {
  world* w = q->comm->world;
  while (!q->message.taken && !w->aborted) pthread_cond_wait(&changed, &mutex);
  message** link = &w->messages;
  while (*link != &q->message) link = &(*link)->next;
  *link = q->message.next;
  return q->message.taken ? OK : REMOTE_ERROR;
}

static int run_queue(void) {
  int result = OK;
  pthread_mutex_lock(&mutex);
  for (int i = 0; i < n_queued; i++)
    if (queue[i].work.kind == SEND) deposit(&queue[i]);
  for (int i = 0; i < n_queued && result == OK; i++)
    if (queue[i].work.kind < SEND) result = collective(queue[i].comm, &queue[i].work);
  for (int i = 0; i < n_queued && result == OK; i++)
    if (queue[i].work.kind == RECV) result = receive(queue[i].comm, &queue[i].work);
  for (int i = 0; i < n_queued; i++) {
    if (queue[i].work.kind != SEND) continue;
    int sent = await_receiver(&queue[i]);
    if (result == OK) result = sent;
  }
  pthread_mutex_unlock(&mutex);
  n_queued = 0;
  return result;
}

static int enqueue(comm* c, const void* stream, work what) {
  if (!c || c->magic != MAGIC) misuse("this is no communicator, or no longer");
  if (!stream) misuse("no stream of the driver's");
  if (what.op < 0 || what.op > 4) misuse("no such reduction");
  size_of(what.type);
  if (what.peer < 0 || what.peer >= c->world->n_ranks) return INVALID_ARGUMENT;
  if (n_queued == 64) misuse("more in a group than this library keeps");
  queue[n_queued++] = (queued){.comm = c, .work = what};
  return depth > 0 ? OK : run_queue();
}

// ---- the library's functions ----

#define API __attribute__((visibility("default"))) int

API ncclGetVersion(int* version) {
  const char* claimed = getenv("NCCL_TEST_VERSION");
  *version = claimed ? atoi(claimed) : 22803;
  return OK;
}

__attribute__((visibility("default"))) const char* ncclGetErrorString(int result) {
  static const char* const texts[] = {"no error",
                                      "unhandled cuda error",
                                      "system error",
                                      "internal error",
                                      "invalid argument",
                                      "invalid usage",
                                      "remote process exited or there was a network error"};
  return result >= 0 && result <= REMOTE_ERROR ? texts[result] : "unknown result code";
}

__attribute__((visibility("default"))) const char* ncclGetLastError(void* of) {
  (void)of;
  return last_error;
}

API ncclGetUniqueId(ncclUniqueId* id) {
  pthread_mutex_lock(&mutex);
  uint64_t number = ++n_ids;
  pthread_mutex_unlock(&mutex);
  memset(id, 0x5a, sizeof *id);
  memcpy(id->bytes + 100, &number, sizeof number);  // far in: a part of an id is none
  return OK;
}

API ncclCommInitRank(comm** out, int n_ranks, ncclUniqueId id, int rank) {
  if (n_ranks < 1 || n_ranks > MOST || rank < 0 || rank >= n_ranks) return INVALID_ARGUMENT;
  int device;
  cuCtxGetDevice(&device);
  pthread_mutex_lock(&mutex);
  world* w = worlds;
  while (w && memcmp(&w->id, &id, sizeof id) != 0) w = w->next;
  if (!w) {
    w = calloc(1, sizeof *w);
    if (!w) misuse("no memory");
    *w = (world){.next = worlds, .id = id, .n_ranks = n_ranks};
    worlds = w;
  }
  if (w->n_ranks != n_ranks || w->joined == n_ranks) misuse("an id is for one communicator");
  for (int r = 0; r < n_ranks; r++) w->refused |= w->device[r] == device + 1;
  w->device[rank] = device + 1;
  w->joined++;
  pthread_cond_broadcast(&changed);
  while (w->joined < n_ranks) pthread_cond_wait(&changed, &mutex);
  pthread_mutex_unlock(&mutex);
  if (w->refused) {
    snprintf(last_error, sizeof last_error, "Duplicate GPU detected : rank %d on CUDA device %d",
             rank, device);
    return INVALID_USAGE;
  }
  *out = malloc(sizeof **out);
  if (!*out) return SYSTEM_ERROR;
  **out = (comm){.magic = MAGIC, .rank = rank, .world = w};
  return OK;
}

API ncclCommDestroy(comm* c) {
  if (!c || c->magic != MAGIC) misuse("a communicator is destroyed twice");
  c->magic = 0;
  free(c);
  return OK;
}

API ncclCommAbort(comm* c) {
  pthread_mutex_lock(&mutex);
  c->world->aborted = true;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&mutex);
  return ncclCommDestroy(c);
}

API ncclCommGetAsyncError(comm* c, int* result) {
  pthread_mutex_lock(&mutex);
  *result = c->world->aborted ? REMOTE_ERROR : OK;
  pthread_mutex_unlock(&mutex);
  return OK;
}

API ncclAllReduce(const void* send, void* recv, size_t count, int type, int op, comm* c, void* s) {
  return enqueue(c, s, (work){ALL_REDUCE, send, recv, count, type, op, 0});
}
API ncclAllGather(const void* send, void* recv, size_t count, int type, comm* c, void* s) {
  return enqueue(c, s, (work){ALL_GATHER, send, recv, count, type, 0, 0});
}
API ncclReduceScatter(const void* send, void* recv, size_t count, int type, int op, comm* c,
                      void* s) {
  return enqueue(c, s, (work){REDUCE_SCATTER, send, recv, count, type, op, 0});
}
API ncclBroadcast(const void* send, void* recv, size_t count, int type, int root, comm* c,
                  void* s) {
  return enqueue(c, s, (work){BROADCAST, send, recv, count, type, 0, root});
}
API ncclSend(const void* send, size_t count, int type, int peer, comm* c, void* s) {
  return enqueue(c, s, (work){SEND, send, NULL, count, type, 0, peer});
}
API ncclRecv(void* recv, size_t count, int type, int peer, comm* c, void* s) {
  return enqueue(c, s, (work){RECV, NULL, recv, count, type, 0, peer});
}
API ncclGroupStart(void) {
  depth++;
  return OK;
}
API ncclGroupEnd(void) {
  if (depth == 0) return INVALID_USAGE;
  return --depth > 0 ? OK : run_queue();
}
