// The thread pool: ranges of tasks claimed without locks, workers that spin, prefetch, then
// sleep.
#include "backends/cpu/runtime/thread_pool.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

enum {
  SPINS = 4000,
  PREFETCH_STEP = 1024,     // bytes that a waiting thread fetches between two looks for a run
  PREFETCH_MAX = 512 << 10  // bytes that it fetches: less than half of its second cache
};

// Neighbouring tasks, of which one thread takes the first and all others the last: what a thread
// reads is contiguous as far as possible.
typedef struct range {
  int64_t first, size;
  _Atomic int64_t claimed, from_end;  // never more than `size` claims are good
} __attribute__((aligned(64))) range;

// Tasks that several threads take from, by number, until there are none.
typedef struct share {
  hy__task task;
  void* context;
  int n;  // of ranges
  range ranges[HY__MAX_THREADS];
  atomic_int members;  // of another library's team, numbered as they come
} share;

// A cache line of its own: what other threads write beside it would be waited for.
#define OWN_LINE __attribute__((aligned(64)))

typedef struct worker {
  pthread_t thread;
  int own;                      // its range
  unsigned seen;                // the generation when it was started
  atomic_bool inside OWN_LINE;  // the run, or looking whether it is open
} worker;

// A run is opened by setting `open` and raising `generation`. Workers enter by saying that they are
// inside, then look whether it is open, and take tasks until there are none left. The caller closes
// the run when no task is left and waits only for those that are inside: one that the system has
// not woken yet costs nothing. Each worker says so in a line of its own: sixteen that count
// themselves in one line wait for one another.
static struct {
  pthread_mutex_t owner;  // held by the thread whose run it is
  pthread_mutex_t mutex;  // guards `sleeping` against lost wake-ups
  pthread_cond_t wake;
  worker workers[HY__MAX_THREADS];
  int n_workers;      // started
  atomic_int wanted;  // threads in all, 0: not decided yet
  bool fork_handler;
  atomic_int sleeping;
  atomic_bool stop;
  atomic_uint generation OWN_LINE;
  atomic_bool open;
  share tasks OWN_LINE;
  // The weights of the next run, an even part of it for each thread. Threads may see fields of two
  // of them.
  struct {
    atomic_uint number;
    atomic_uintptr_t data, beside;
    atomic_size_t part, beside_part;
  } prefetch OWN_LINE;
} pool = {.owner = PTHREAD_MUTEX_INITIALIZER,
          .mutex = PTHREAD_MUTEX_INITIALIZER,
          .wake = PTHREAD_COND_INITIALIZER};

static _Thread_local bool inside_run;
static _Thread_local hy__team team;  // NULL: the pool's own threads

static inline void relax(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

static void prefetch_lines(uintptr_t at, size_t bytes) {
  for (size_t i = 0; i < bytes; i += 64) __builtin_prefetch((const void*)(at + i), 0, 2);
}

// Instead of only waiting, fetches a step of thread `own`'s part of what comes next.
static void prefetch_step(int own) {
  static _Thread_local size_t done;
  static _Thread_local unsigned number;
  unsigned now = atomic_load_explicit(&pool.prefetch.number, memory_order_acquire);
  if (number != now) done = 0;
  number = now;
  size_t part = atomic_load_explicit(&pool.prefetch.part, memory_order_relaxed);
  if (done >= part || done >= PREFETCH_MAX) {
    relax();
    return;
  }
  size_t beside_part = atomic_load_explicit(&pool.prefetch.beside_part, memory_order_relaxed);
  uintptr_t data = atomic_load_explicit(&pool.prefetch.data, memory_order_relaxed);
  uintptr_t beside = atomic_load_explicit(&pool.prefetch.beside, memory_order_relaxed);
  double rate = (double)beside_part / (double)part;
  prefetch_lines(data + (size_t)own * part + done, PREFETCH_STEP);
  prefetch_lines(beside + (size_t)own * beside_part + (size_t)(rate * (double)done),
                 (size_t)(rate * PREFETCH_STEP));
  done += PREFETCH_STEP;
}

void hy__pool_prefetch(const hy__prefetch_range* reading) {
  size_t threads = (size_t)hy__pool_threads();
  atomic_store_explicit(&pool.prefetch.data, (uintptr_t)reading->data, memory_order_relaxed);
  atomic_store_explicit(&pool.prefetch.beside, (uintptr_t)reading->beside, memory_order_relaxed);
  atomic_store_explicit(&pool.prefetch.part, reading->bytes / threads, memory_order_relaxed);
  atomic_store_explicit(&pool.prefetch.beside_part, reading->beside_bytes / threads,
                        memory_order_relaxed);
  atomic_fetch_add_explicit(&pool.prefetch.number, 1, memory_order_release);
}

static void share_tasks(share* s, hy__task task, void* context, int64_t count, int threads) {
  s->task = task;
  s->context = context;
  atomic_store_explicit(&s->members, 0, memory_order_relaxed);
  s->n = count < threads ? (int)count : threads;
  for (int i = 0; i < s->n; i++) {
    range* r = &s->ranges[i];
    r->first = count / s->n * i + (count % s->n < i ? count % s->n : i);
    r->size = count / s->n + (i < count % s->n);
    atomic_store_explicit(&r->claimed, 0, memory_order_relaxed);
    atomic_store_explicit(&r->from_end, 0, memory_order_relaxed);
  }
}

static bool claim(range* r) {
  return atomic_load_explicit(&r->claimed, memory_order_relaxed) < r->size &&
         atomic_fetch_add_explicit(&r->claimed, 1, memory_order_relaxed) < r->size;
}

// Runs tasks until there are none: those of the thread's own range first.
static void take_tasks(share* s, int own) {
  inside_run = true;
  if (own < s->n) {
    for (int64_t i = s->ranges[own].first; claim(&s->ranges[own]); i++) s->task(s->context, i);
  }
  for (int k = 1; k <= s->n; k++) {
    range* r = &s->ranges[(own + k) % s->n];
    while (claim(r)) {
      int64_t taken = atomic_fetch_add_explicit(&r->from_end, 1, memory_order_relaxed);
      s->task(s->context, r->first + r->size - 1 - taken);
    }
  }
  inside_run = false;
}

static void join_team(void* tasks) {
  share* s = tasks;
  take_tasks(s, atomic_fetch_add_explicit(&s->members, 1, memory_order_relaxed));
}

// Waits for a generation other than `*seen`, which becomes it; false when the pool stops. The order
// to stop raises the generation after `stop`: whoever has seen that generation sees `stop` too.
static bool await_run(unsigned* seen, int own) {
  unsigned now = *seen;
  for (int i = 0; i < SPINS && now == *seen; i++) {
    now = atomic_load_explicit(&pool.generation, memory_order_acquire);
    if (now == *seen) prefetch_step(own);
  }
  if (now == *seen) {
    pthread_mutex_lock(&pool.mutex);
    atomic_fetch_add(&pool.sleeping, 1);
    while ((now = atomic_load(&pool.generation)) == *seen)
      pthread_cond_wait(&pool.wake, &pool.mutex);
    atomic_fetch_sub(&pool.sleeping, 1);
    pthread_mutex_unlock(&pool.mutex);
  }
  *seen = now;
  return !atomic_load(&pool.stop);
}

static void* work(void* context) {
  worker* self = context;
  unsigned seen = self->seen;
  while (await_run(&seen, self->own)) {
    // Either this sees that the run is closed, or the caller sees this inside: neither of the two
    // may be reordered.
    atomic_store(&self->inside, true);
    if (atomic_load(&pool.open)) take_tasks(&pool.tasks, self->own);
    atomic_store_explicit(&self->inside, false, memory_order_release);
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

static int clamp(int n) {
  return n < 1 ? 1 : n > HY__MAX_THREADS ? HY__MAX_THREADS : n;
}

static int default_threads(void) {
  cpu_set_t allowed;
  return sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? clamp(CPU_COUNT(&allowed)) : 1;
}

// The child has none of the parent's threads, and locks may have been held by them.
static void forget_threads(void) {
  pthread_mutex_init(&pool.owner, NULL);
  pthread_mutex_init(&pool.mutex, NULL);
  pthread_cond_init(&pool.wake, NULL);
  pool.n_workers = 0;
  atomic_store(&pool.sleeping, 0);
  atomic_store(&pool.stop, false);
  atomic_store(&pool.open, false);
  inside_run = false;
}

static void stop_workers(void) {
  if (pool.n_workers == 0) return;
  atomic_store(&pool.stop, true);
  announce();
  for (int i = 0; i < pool.n_workers; i++) pthread_join(pool.workers[i].thread, NULL);
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
  while (pool.n_workers < workers) {
    worker* w = &pool.workers[pool.n_workers];
    w->own = pool.n_workers + 1;
    w->seen = atomic_load(&pool.generation);
    atomic_store(&w->inside, false);
    if (pthread_create(&w->thread, NULL, work, w) != 0) return;
    pool.n_workers++;
  }
}

static void await_worker(const worker* w) {
  for (int spins = 0; atomic_load(&w->inside); spins++) {
    if (spins < SPINS)
      prefetch_step(0);
    else
      sched_yield();
  }
}

void hy__pool_use_team(hy__team other) {
  team = other;
}

void hy__pool_run(hy__task task, void* context, int64_t count) {
  if (team && !inside_run && count > 1) {
    share tasks;
    share_tasks(&tasks, task, context, count, hy__pool_threads());
    team(join_team, &tasks, (unsigned)hy__pool_threads(), 0);
    return;
  }
  bool alone = count < 2 || inside_run || pthread_mutex_trylock(&pool.owner) != 0;
  if (!alone) start_workers();
  if (alone || pool.n_workers == 0) {
    for (int64_t i = 0; i < count; i++) task(context, i);
    if (!alone) pthread_mutex_unlock(&pool.owner);
    return;
  }
  share_tasks(&pool.tasks, task, context, count, pool.n_workers + 1);
  atomic_store(&pool.open, true);
  announce();
  take_tasks(&pool.tasks, 0);
  atomic_store(&pool.open, false);
  for (int i = 0; i < pool.n_workers; i++) await_worker(&pool.workers[i]);
  pthread_mutex_unlock(&pool.owner);
}

int64_t hy__pool_grain(int64_t total, int64_t least, int64_t most) {
  enum { THREAD_TASKS = 4 };
  int64_t fair = total / (THREAD_TASKS * (int64_t)hy__pool_threads());
  if (total <= most || fair > most) return most;
  return fair < least ? least : fair;
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
  atomic_store(&pool.wanted, clamp(n));
  if (inside_run) return;  // the next run ends them
  pthread_mutex_lock(&pool.owner);
  if (pool.n_workers >= clamp(n)) stop_workers();
  pthread_mutex_unlock(&pool.owner);
}

void hy__pool_stop(void) {
  pthread_mutex_lock(&pool.owner);
  stop_workers();
  pthread_mutex_unlock(&pool.owner);
}
