// The thread pool of the cpu's kernels.
//
// One for the process, made on first use with as many threads as the backend has set, the calling
// thread among them. Idle threads spin for some microseconds,
// since kernels follow one another closely, and then sleep without using the processor. Safe from
// several threads at once: a caller that finds the pool busy does its work alone. Safe after fork:
// the child makes its own threads.
#ifndef HALYARD_CPU_RUNTIME_THREAD_POOL_H_
#define HALYARD_CPU_RUNTIME_THREAD_POOL_H_

#include <stddef.h>
#include <stdint.h>

// Calls task(context, i) for every i of 0 .. count - 1, spread over the threads in unspecified
// order; returns when all are done. Calls from inside a task run serially.
typedef void (*hy__task)(void* context, int64_t i);
void hy__pool_run(hy__task task, void* context, int64_t count);

// How many of `total` units a task is to take: `most`, which may be all of them, or fewer, but not
// below `least`, where each thread would otherwise get less than a few tasks. Threads are not
// equally fast, two on one core the least: what a slow one has not begun, others take.
int64_t hy__pool_grain(int64_t total, int64_t least, int64_t most);

// Memory, and what is read evenly along with it, such as scales; `beside` may be NULL.
typedef struct hy__prefetch_range {
  const void *data, *beside;
  size_t bytes, beside_bytes;
} hy__prefetch_range;
// What will be read after the next run: threads that wait then fetch its beginning into their
// caches. The memory may be gone by then, it is never touched.
void hy__pool_prefetch(const hy__prefetch_range* reading);

// Another library's threads: calls member(data) on each of up to n of them and returns when all
// have. The shape is that of OpenMP's GOMP_parallel.
typedef void (*hy__team)(void (*member)(void*), void* data, unsigned n, unsigned flags);
// Runs that the calling thread starts go to that team instead of the pool; NULL: back to the pool.
void hy__pool_use_team(hy__team team);

#define HY__MAX_THREADS 256
// Threads that hy__pool_run uses, the caller's included; until they are set, one for each core of
// the process's affinity.
int hy__pool_threads(void);
// Changes their number from the next run on: 1 to HY__MAX_THREADS. Where there are more, they have
// ended on return.
void hy__pool_set_threads(int n);
// Ends the threads; the next run makes new ones. No run may be under way.
void hy__pool_stop(void);

#endif  // HALYARD_CPU_RUNTIME_THREAD_POOL_H_
