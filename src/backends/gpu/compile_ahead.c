// Compilation ahead of need: a model's first op starts threads that compile the kernels of its
// others, so that a first start with an empty cache waits for the slowest of them and not for their
// sum.
//
// A device's jobs live until their image is taken, or until the process ends. A process that ends
// earlier drops the jobs that wait and sees the others through: a compiler cannot be interrupted,
// and its library must not be unloaded under it.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backends/gpu/compile.h"

enum { MAX_WORKERS = 16 };

typedef enum job_state { WAITING, RUNNING, DONE } job_state;
typedef struct job {
  struct job* next;
  hy__gpu_device* device;
  char file[32], options[128];
  job_state state;
  void* image;
} job;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;  // guards what follows
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static job* jobs;
static int n_workers;

static job** find(const hy__gpu_device* device, const char* file, const char* options) {
  job** at = &jobs;
  while (*at &&
         ((*at)->device != device || strcmp((*at)->file, file) || strcmp((*at)->options, options)))
    at = &(*at)->next;
  return at;
}

// ---- Workers ----

static void* work(void* unused) {
  (void)unused;
  pthread_mutex_lock(&mutex);
  for (;;) {
    job* next = jobs;
    while (next && next->state != WAITING) next = next->next;
    if (!next) break;
    next->state = RUNNING;
    pthread_mutex_unlock(&mutex);
    void* image = NULL;
    // Whoever needs the kernel tries again, and meets the error itself.
    if (hy__gpu_compile(next->device, next->file, next->options, false, &image) != HY_OK)
      image = NULL;
    pthread_mutex_lock(&mutex);
    next->image = image;
    next->state = DONE;
    pthread_cond_broadcast(&changed);
  }
  n_workers--;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&mutex);
  return NULL;
}

static void finish(void) {
  pthread_mutex_lock(&mutex);
  for (job* j = jobs; j; j = j->next)
    if (j->state == WAITING) j->state = DONE;
  while (n_workers > 0) pthread_cond_wait(&changed, &mutex);
  pthread_mutex_unlock(&mutex);
}

static void finish_at_exit(void) {
  atexit(finish);
}

static void start_worker(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  long cores = sysconf(_SC_NPROCESSORS_ONLN);
  if (n_workers >= MAX_WORKERS || n_workers >= cores) return;
  pthread_once(&once, finish_at_exit);
  pthread_attr_t detached;
  pthread_t thread;
  pthread_attr_init(&detached);
  pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
  if (pthread_create(&thread, &detached, work, NULL) == 0) n_workers++;
  pthread_attr_destroy(&detached);
}

// ---- Jobs ----

void hy__gpu_compile_ahead(hy__gpu_device* device, const char* file, const char* options) {
  if (hy__gpu_is_compiled(device, file, options)) return;
  job* fresh = calloc(1, sizeof *fresh);
  if (!fresh) return;
  fresh->device = device;
  snprintf(fresh->file, sizeof fresh->file, "%s", file);
  snprintf(fresh->options, sizeof fresh->options, "%s", options);
  pthread_mutex_lock(&mutex);
  job** at = find(device, file, options);
  if (*at) {
    free(fresh);
  } else {
    *at = fresh;
    start_worker();
  }
  pthread_mutex_unlock(&mutex);
}

void* hy__gpu_compiled_ahead(hy__gpu_device* device, const char* file, const char* options) {
  void* image = NULL;
  pthread_mutex_lock(&mutex);
  job** at = find(device, file, options);
  while (*at && (*at)->state == RUNNING) {
    pthread_cond_wait(&changed, &mutex);
    at = find(device, file, options);
  }
  job* taken = *at;
  if (taken) {
    *at = taken->next;
    image = taken->image;
  }
  pthread_mutex_unlock(&mutex);
  free(taken);
  return image;
}

// ---- Models ----

void hy__gpu_expect_model(hy__gpu_task* task, hy_dtype dtype) {
  // Those that do not depend on a model's shapes, the slowest to compile first.
  static const char* const of_type[] = {"binary", "unary", "norm", "rope"};
  hy__gpu_device* device = task->device;
  pthread_mutex_lock(&device->mutex);
  bool known = device->expects_model & HY_DTYPE_BIT(dtype);
  device->expects_model |= HY_DTYPE_BIT(dtype);
  pthread_mutex_unlock(&device->mutex);
  if (known) return;
  for (size_t i = 0; i < sizeof of_type / sizeof of_type[0]; i++)
    hy__gpu_compile_ahead(device, of_type[i], hy__gpu_option(dtype));
  hy__gpu_compile_ahead(device, "sample", "");
  hy__gpu_compile_ahead(device, "binary", hy__gpu_option(HY_I64));  // positions
}
