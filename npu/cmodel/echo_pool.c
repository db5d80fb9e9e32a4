// echo_pool.c - thread pool of the simulated devices: workers spin a little, then sleep.
#include "echo_pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#define MAX_WORKERS 63
// Looks at a flag before sleeping, about 200 microseconds: packets come one after the other, and
// waking a thread takes longer than a small product.
#define SPINS 4000

static pthread_mutex_t life = PTHREAD_MUTEX_INITIALIZER;  // guards holders, creation, destruction
static int holders;

static struct {
  pthread_mutex_t busy;  // held by the caller of echo_pool_run
  pthread_mutex_t lock;  // guards changes of the fields below
  pthread_cond_t work, done;
  pthread_t thread[MAX_WORKERS];
  echo_scratch* scratch[MAX_WORKERS];
  int workers;
  atomic_int stopping;
  atomic_uint round;
  atomic_int running;
  echo_task task;
  void* context;
  int count;
  atomic_int next;
} pool = {.busy = PTHREAD_MUTEX_INITIALIZER,
          .lock = PTHREAD_MUTEX_INITIALIZER,
          .work = PTHREAD_COND_INITIALIZER,
          .done = PTHREAD_COND_INITIALIZER};

static void drain(echo_task task, void* context, int count, echo_scratch* scratch) {
  for (int i; (i = atomic_fetch_add(&pool.next, 1)) < count;) task(context, i, scratch);
}

static void relax(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  sched_yield();
#endif
}

static void* worker(void* arg) {
  echo_scratch* scratch = arg;
  unsigned seen = 0;
  echo_fp_enter();
  for (;;) {
    for (int i = 0; i < SPINS && !pool.stopping && pool.round == seen; ++i) relax();
    pthread_mutex_lock(&pool.lock);
    while (!pool.stopping && pool.round == seen) pthread_cond_wait(&pool.work, &pool.lock);
    if (pool.stopping) break;
    seen = pool.round;
    echo_task task = pool.task;
    void* context = pool.context;
    int count = pool.count;
    pthread_mutex_unlock(&pool.lock);
    drain(task, context, count, scratch);
    pthread_mutex_lock(&pool.lock);
    if (--pool.running == 0) pthread_cond_signal(&pool.done);
    pthread_mutex_unlock(&pool.lock);
  }
  pthread_mutex_unlock(&pool.lock);
  return NULL;
}

static int wanted_threads(void) {
  const char* text = getenv("ECHO_NPU_THREADS");
  long n = text ? strtol(text, NULL, 10) : sysconf(_SC_NPROCESSORS_ONLN);
  if (n < 1) n = 1;
  return n > MAX_WORKERS + 1 ? MAX_WORKERS + 1 : (int)n;
}

static void stop_workers(void) {
  pthread_mutex_lock(&pool.lock);
  pool.stopping = 1;
  pthread_cond_broadcast(&pool.work);
  pthread_mutex_unlock(&pool.lock);
  for (int i = 0; i < pool.workers; ++i) {
    pthread_join(pool.thread[i], NULL);
    free(pool.scratch[i]);
  }
  pool.workers = 0;
  pool.stopping = 0;
}

int echo_pool_hold(void) {
  int result = 0;
  pthread_mutex_lock(&life);
  if (holders == 0) {
    pool.round = 0;
    for (int i = 0; i < wanted_threads() - 1; ++i) {
      pool.scratch[i] = aligned_alloc(64, sizeof(echo_scratch));
      if (!pool.scratch[i] || pthread_create(&pool.thread[i], NULL, worker, pool.scratch[i]) != 0) {
        free(pool.scratch[i]);
        stop_workers();
        result = -1;
        break;
      }
      pool.workers = i + 1;
    }
  }
  if (result == 0) ++holders;
  pthread_mutex_unlock(&life);
  return result;
}

void echo_pool_release(void) {
  pthread_mutex_lock(&life);
  if (--holders == 0) stop_workers();
  pthread_mutex_unlock(&life);
}

int echo_pool_threads(void) {
  return pool.workers + 1;
}

void echo_pool_run(echo_task task, void* context, int count, echo_scratch* own) {
  if (count < 2 || pool.workers == 0 || pthread_mutex_trylock(&pool.busy) != 0) {
    for (int i = 0; i < count; ++i) task(context, i, own);
    return;
  }
  pthread_mutex_lock(&pool.lock);
  pool.task = task;
  pool.context = context;
  pool.count = count;
  atomic_store(&pool.next, 0);
  pool.running = pool.workers;
  ++pool.round;
  pthread_cond_broadcast(&pool.work);
  pthread_mutex_unlock(&pool.lock);
  drain(task, context, count, own);
  for (int i = 0; i < SPINS && pool.running; ++i) relax();
  pthread_mutex_lock(&pool.lock);
  while (pool.running) pthread_cond_wait(&pool.done, &pool.lock);
  pthread_mutex_unlock(&pool.lock);
  pthread_mutex_unlock(&pool.busy);
}
