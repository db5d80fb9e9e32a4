#include "backends/cpu/pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#include "backends/cpu/kernels.h"

enum { MAX_THREADS = 256, SPINS = 4000 };

// Tasks that several threads take from, by number, until there are none.
typedef struct share {
  hy__task task;
  void* context;
  int64_t count;
  _Atomic int64_t next;
} share;

// A run is opened by clearing CLOSED in `inside` and raising `generation`. Workers enter by
// counting themselves in `inside` and take task numbers from `next` until they are gone. The caller
// closes the run when no task is left and waits only for those that entered: one that the system
// has not woken yet costs nothing.
#define CLOSED (1 << 30)
static struct {
  pthread_mutex_t owner;  // held by the thread whose run it is
  pthread_mutex_t mutex;  // guards `sleeping` against lost wake-ups
  pthread_cond_t wake;
  pthread_t threads[MAX_THREADS];
  int n_workers;      // started
  atomic_int wanted;  // threads in all, 0: not decided yet
  bool fork_handler;
  atomic_int sleeping;
  atomic_bool stop;
  atomic_uint generation;
  atomic_int inside;
  share tasks;
} pool = {.owner = PTHREAD_MUTEX_INITIALIZER,
          .mutex = PTHREAD_MUTEX_INITIALIZER,
          .wake = PTHREAD_COND_INITIALIZER,
          .inside = CLOSED};

static _Thread_local bool inside_run;
static _Thread_local hy__team team;  // NULL: the pool's own threads

static inline void relax(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

static void take_tasks(void* tasks) {
  share* s = tasks;
  inside_run = true;
  for (;;) {
    int64_t i = atomic_fetch_add_explicit(&s->next, 1, memory_order_relaxed);
    if (i >= s->count) break;
    s->task(s->context, i);
  }
  inside_run = false;
}

// Waits for a generation other than `seen`; false when the pool stops.
static bool await_run(unsigned seen) {
  for (int i = 0; i < SPINS; i++) {
    if (atomic_load_explicit(&pool.generation, memory_order_acquire) != seen)
      return !atomic_load(&pool.stop);
    relax();
  }
  pthread_mutex_lock(&pool.mutex);
  atomic_fetch_add(&pool.sleeping, 1);
  while (atomic_load(&pool.generation) == seen) pthread_cond_wait(&pool.wake, &pool.mutex);
  atomic_fetch_sub(&pool.sleeping, 1);
  pthread_mutex_unlock(&pool.mutex);
  return !atomic_load(&pool.stop);
}

static void* work(void* first_generation) {
  unsigned seen = (unsigned)(uintptr_t)first_generation;
  while (await_run(seen)) {
    seen = atomic_load_explicit(&pool.generation, memory_order_acquire);
    int before = atomic_fetch_add_explicit(&pool.inside, 1, memory_order_acquire);
    if (!(before & CLOSED)) take_tasks(&pool.tasks);
    atomic_fetch_sub_explicit(&pool.inside, 1, memory_order_release);
  }
  return NULL;
}

static void announce(void) {
  atomic_fetch_add(&pool.generation, 1);
  if (atomic_load(&pool.sleeping) == 0) return;
  pthread_mutex_lock(&pool.mutex);
  pthread_cond_broadcast(&pool.wake);
  pthread_mutex_unlock(&pool.mutex);
}

static int default_threads(void) {
  const char* text = secure_getenv("HALYARD_THREADS");
  char* end = NULL;
  long n = text ? strtol(text, &end, 10) : 0;
  if (text && *text && (*end || n < 1 || n > MAX_THREADS)) {
    hy__cpu_host_services->log(1, "HALYARD_THREADS is \"%s\", not a number from 1 to %d", text,
                               MAX_THREADS);
    if (*end) n = 0;
  }
  cpu_set_t allowed;
  if (n < 1 && sched_getaffinity(0, sizeof allowed, &allowed) == 0) n = CPU_COUNT(&allowed);
  return n < 1 ? 1 : n > MAX_THREADS ? MAX_THREADS : (int)n;
}

// The child has none of the parent's threads, and locks may have been held by them.
static void forget_threads(void) {
  pthread_mutex_init(&pool.owner, NULL);
  pthread_mutex_init(&pool.mutex, NULL);
  pthread_cond_init(&pool.wake, NULL);
  pool.n_workers = 0;
  atomic_store(&pool.sleeping, 0);
  atomic_store(&pool.stop, false);
  atomic_store(&pool.inside, CLOSED);
  inside_run = false;
}

static void stop_workers(void) {
  if (pool.n_workers == 0) return;
  atomic_store(&pool.stop, true);
  announce();
  for (int i = 0; i < pool.n_workers; i++) pthread_join(pool.threads[i], NULL);
  pool.n_workers = 0;
  atomic_store(&pool.stop, false);
}

// The owner's lock is held. Fewer threads than wanted, where the system gives no more, only cost
// time.
static void start_workers(void) {
  int workers = hy__pool_threads() - 1;
  if (pool.n_workers == workers) return;
  if (pool.n_workers > workers) stop_workers();
  if (!pool.fork_handler) pool.fork_handler = pthread_atfork(NULL, NULL, forget_threads) == 0;
  void* seen = (void*)(uintptr_t)atomic_load(&pool.generation);
  while (pool.n_workers < workers) {
    if (pthread_create(&pool.threads[pool.n_workers], NULL, work, seen) != 0) return;
    pool.n_workers++;
  }
}

void hy__pool_use_team(hy__team other) {
  team = other;
}

void hy__pool_run(hy__task task, void* context, int64_t count) {
  if (team && !inside_run && count > 1) {
    share tasks = {.task = task, .context = context, .count = count};
    team(take_tasks, &tasks, (unsigned)hy__pool_threads(), 0);
    return;
  }
  bool alone = count < 2 || inside_run || pthread_mutex_trylock(&pool.owner) != 0;
  if (!alone) start_workers();
  if (alone || pool.n_workers == 0) {
    for (int64_t i = 0; i < count; i++) task(context, i);
    if (!alone) pthread_mutex_unlock(&pool.owner);
    return;
  }
  pool.tasks.task = task;
  pool.tasks.context = context;
  pool.tasks.count = count;
  atomic_store_explicit(&pool.tasks.next, 0, memory_order_relaxed);
  atomic_fetch_and_explicit(&pool.inside, ~CLOSED, memory_order_release);
  announce();
  take_tasks(&pool.tasks);
  atomic_fetch_or_explicit(&pool.inside, CLOSED, memory_order_relaxed);
  for (int spins = 0; atomic_load_explicit(&pool.inside, memory_order_acquire) != CLOSED; spins++) {
    if (spins < SPINS)
      relax();
    else
      sched_yield();
  }
  pthread_mutex_unlock(&pool.owner);
}

int hy__pool_threads(void) {
  int n = atomic_load(&pool.wanted);
  if (n == 0) {
    n = default_threads();
    atomic_store(&pool.wanted, n);
  }
  return n;
}

void hy__pool_set_threads(int n) {
  atomic_store(&pool.wanted, n < 1 ? 1 : n > MAX_THREADS ? MAX_THREADS : n);
}

void hy__pool_stop(void) {
  pthread_mutex_lock(&pool.owner);
  stop_workers();
  pthread_mutex_unlock(&pool.owner);
}
