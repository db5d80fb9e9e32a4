// Queues: streams of the guarded device, a worker thread each, and the events between them.
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "guarded.h"

typedef enum command_kind { COPY, SET, CALL, RECORD, WAIT, WORK } command_kind;

typedef struct command {
  struct command* next;
  command_kind kind;
  char* dst;
  const char* src;
  size_t bytes;
  int value;
  guarded_event* event;  // holds a reference
  uint64_t ticket;
  guarded_work work;
  void* context;  // of `work`
  hy_call call;
  hy_tensor tensors[];  // the call's inputs, then its outputs
} command;

struct guarded_queue {
  guarded_queue* next;  // of the device
  int references;       // streams over it; guarded by the device's mutex
  int priority;
  pthread_t thread;
  pthread_mutex_t mutex;  // guards all below
  pthread_cond_t changed;
  command *first, *last;
  bool running;  // a command has been taken and is not done
  bool stopping;
  guarded_graph* capture;  // NULL: commands are run
  hy_async_error error;
};

// A record is a ticket; the event is done when its worker has passed the last ticket drawn.
struct guarded_event {
  atomic_int references;
  pthread_mutex_t mutex;  // guards all below
  pthread_cond_t passed;
  uint64_t recorded, done;
  struct timespec when;
};

// ---- events ----

hy_status guarded_event_create(guarded_event** event) {
  guarded_event* fresh = calloc(1, sizeof *fresh);
  if (!fresh) return guarded_host->fail(HY_OUT_OF_MEMORY, "guarded: no host memory");
  atomic_init(&fresh->references, 1);
  pthread_mutex_init(&fresh->mutex, NULL);
  pthread_cond_init(&fresh->passed, NULL);
  *event = fresh;
  return HY_OK;
}

void guarded_event_release(guarded_event* event) {
  if (!event || atomic_fetch_sub(&event->references, 1) > 1) return;
  pthread_cond_destroy(&event->passed);
  pthread_mutex_destroy(&event->mutex);
  free(event);
}

static void event_pass(guarded_event* event, uint64_t ticket) {
  pthread_mutex_lock(&event->mutex);
  if (ticket > event->done) event->done = ticket;
  clock_gettime(CLOCK_MONOTONIC, &event->when);
  pthread_cond_broadcast(&event->passed);
  pthread_mutex_unlock(&event->mutex);
}

static void event_wait(guarded_event* event, uint64_t ticket) {
  pthread_mutex_lock(&event->mutex);
  while (event->done < ticket) pthread_cond_wait(&event->passed, &event->mutex);
  pthread_mutex_unlock(&event->mutex);
}

static uint64_t event_last_ticket(guarded_event* event) {
  pthread_mutex_lock(&event->mutex);
  uint64_t ticket = event->recorded;
  pthread_mutex_unlock(&event->mutex);
  return ticket;
}

hy_status guarded_event_query(guarded_event* event) {
  pthread_mutex_lock(&event->mutex);
  bool done = event->done >= event->recorded;
  pthread_mutex_unlock(&event->mutex);
  return done ? HY_OK : HY_NOT_READY;
}

hy_status guarded_event_sync(guarded_event* event) {
  event_wait(event, event_last_ticket(event));
  return HY_OK;
}

static bool event_time(guarded_event* event, struct timespec* when) {
  pthread_mutex_lock(&event->mutex);
  bool done = event->done >= event->recorded;
  *when = event->when;
  pthread_mutex_unlock(&event->mutex);
  return done;
}

hy_status guarded_event_elapsed(guarded_event* start, guarded_event* stop, double* milliseconds) {
  struct timespec a, b;
  if (!event_time(start, &a) || !event_time(stop, &b)) {
    return guarded_host->fail(HY_NOT_READY, "guarded: an event has not been reached yet");
  }
  *milliseconds = (double)(b.tv_sec - a.tv_sec) * 1e3 + (double)(b.tv_nsec - a.tv_nsec) / 1e6;
  return HY_OK;
}

// ---- the worker ----

static _Thread_local hy_op running_op;  // for the error

hy_status guarded_run_call(const hy_call* call) {
  running_op = call->op;
  switch (guarded_ends[call->op]) {
    case 'c': raise(SIGSEGV); break;
    case 'e': _exit(7);
    case 'h':
      for (;;) pause();
  }
  if (call->op == guarded_failing_op) {
    return guarded_host->fail(HY_DEVICE_FAILED, "the device was told to fail");
  }
  return guarded_host->reference(call);
}

static void run(guarded_queue* queue, command* c, bool broken) {
  hy_status status = HY_OK;
  running_op = HY_OP_NONE;
  switch (c->kind) {
    // Waiters must not hang on a queue that has failed.
    case RECORD: event_pass(c->event, c->ticket); return;
    case WAIT: event_wait(c->event, c->ticket); return;
    case COPY:
      if (!broken) memmove(c->dst, c->src, c->bytes);
      return;
    case SET:
      if (!broken) memset(c->dst, c->value, c->bytes);
      return;
    case CALL:
      if (!broken) status = guarded_run_call(&c->call);
      break;
    case WORK: status = c->work(c->context, broken); break;
  }
  if (status == HY_OK || broken) return;
  pthread_mutex_lock(&queue->mutex);
  queue->error.status = status;
  queue->error.op = running_op;
  snprintf(queue->error.message, sizeof queue->error.message, "%s", guarded_host->last_error());
  pthread_mutex_unlock(&queue->mutex);
}

static void* work(void* argument) {
  guarded_queue* queue = argument;
  // Threads may always be nicer than their process, never less: ordinary streams are.
  if (queue->priority == 0) setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + 1);
  pthread_mutex_lock(&queue->mutex);
  for (;;) {
    while (!queue->first && !queue->stopping) pthread_cond_wait(&queue->changed, &queue->mutex);
    command* c = queue->first;
    if (!c) break;
    queue->first = c->next;
    if (!queue->first) queue->last = NULL;
    queue->running = true;
    bool broken = queue->error.status != HY_OK;
    pthread_mutex_unlock(&queue->mutex);
    run(queue, c, broken);
    guarded_event_release(c->event);
    free(c);
    pthread_mutex_lock(&queue->mutex);
    queue->running = false;
    pthread_cond_broadcast(&queue->changed);
  }
  pthread_mutex_unlock(&queue->mutex);
  return NULL;
}

// ---- queues ----

hy_status guarded_queue_create(guarded_device* device, int priority, guarded_queue** queue) {
  guarded_queue* fresh = calloc(1, sizeof *fresh);
  if (!fresh) return guarded_host->fail(HY_OUT_OF_MEMORY, "guarded: no host memory");
  fresh->priority = priority;
  fresh->references = 1;
  pthread_mutex_init(&fresh->mutex, NULL);
  pthread_cond_init(&fresh->changed, NULL);
  if (pthread_create(&fresh->thread, NULL, work, fresh) != 0) {
    pthread_cond_destroy(&fresh->changed);
    pthread_mutex_destroy(&fresh->mutex);
    free(fresh);
    return guarded_host->fail(HY_OUT_OF_MEMORY, "guarded: no thread for a stream");
  }
  pthread_mutex_lock(&device->mutex);
  fresh->next = device->queues;
  device->queues = fresh;
  pthread_mutex_unlock(&device->mutex);
  *queue = fresh;
  return HY_OK;
}

hy_status guarded_queue_wrap(guarded_device* device, void* native, guarded_queue** queue) {
  pthread_mutex_lock(&device->mutex);
  guarded_queue* found = device->queues;
  while (found && found != native) found = found->next;
  if (found) found->references++;
  pthread_mutex_unlock(&device->mutex);
  if (!found) {
    return guarded_host->fail(HY_INVALID_ARGUMENT, "guarded: %p is no stream of this device",
                              native);
  }
  *queue = found;
  return HY_OK;
}

void guarded_queue_destroy(guarded_device* device, guarded_queue* queue) {
  pthread_mutex_lock(&device->mutex);
  if (--queue->references > 0) {
    pthread_mutex_unlock(&device->mutex);
    return;
  }
  guarded_queue** link = &device->queues;
  while (*link != queue) link = &(*link)->next;
  *link = queue->next;
  pthread_mutex_unlock(&device->mutex);
  pthread_mutex_lock(&queue->mutex);
  queue->stopping = true;
  pthread_cond_broadcast(&queue->changed);
  pthread_mutex_unlock(&queue->mutex);
  pthread_join(queue->thread, NULL);
  pthread_cond_destroy(&queue->changed);
  pthread_mutex_destroy(&queue->mutex);
  free(queue);
}

static void wait_until_empty(guarded_queue* queue) {
  while (queue->first || queue->running) pthread_cond_wait(&queue->changed, &queue->mutex);
}

// The caller holds the mutex.
static hy_status queue_status(const guarded_queue* queue) {
  if (queue->error.status == HY_OK) return HY_OK;
  return guarded_host->fail(queue->error.status, "guarded: the stream has failed: %s",
                            queue->error.message);
}

// What the library promises not to do to a capturing stream; it spoils the capture. The caller
// holds the mutex.
static hy_status forbidden(guarded_queue* queue, const char* what) {
  if (!queue->capture) return HY_OK;
  hy_status status = guarded_host->fail(
      HY_INTERNAL, "guarded: %s on a stream that is capturing, against the ABI", what);
  guarded_graph_spoil(queue->capture, guarded_host->last_error());
  return status;
}

hy_status guarded_queue_sync(guarded_queue* queue) {
  pthread_mutex_lock(&queue->mutex);
  hy_status status = forbidden(queue, "stream_sync");
  if (status == HY_OK) {
    wait_until_empty(queue);
    status = queue_status(queue);
  }
  pthread_mutex_unlock(&queue->mutex);
  return status;
}

hy_status guarded_queue_query(guarded_queue* queue) {
  pthread_mutex_lock(&queue->mutex);
  hy_status status = forbidden(queue, "stream_query");
  if (status == HY_OK) {
    status = queue->first || queue->running ? HY_NOT_READY : queue_status(queue);
  }
  pthread_mutex_unlock(&queue->mutex);
  return status;
}

void guarded_queue_error(guarded_queue* queue, hy_async_error* error) {
  pthread_mutex_lock(&queue->mutex);
  forbidden(queue, "stream_error");
  error->status = queue->error.status;
  if (error->status != HY_OK) *error = queue->error;
  pthread_mutex_unlock(&queue->mutex);
}

void guarded_device_wait(guarded_device* device) {
  pthread_mutex_lock(&device->mutex);
  for (guarded_queue* queue = device->queues; queue; queue = queue->next) {
    pthread_mutex_lock(&queue->mutex);
    wait_until_empty(queue);
    pthread_mutex_unlock(&queue->mutex);
  }
  pthread_mutex_unlock(&device->mutex);
}

// ---- capture ----

hy_status guarded_queue_capture(guarded_queue* queue, guarded_graph* graph) {
  pthread_mutex_lock(&queue->mutex);
  hy_status status = forbidden(queue, "capture_begin");
  if (status == HY_OK) queue->capture = graph;
  pthread_mutex_unlock(&queue->mutex);
  return status;
}

guarded_graph* guarded_queue_captured(guarded_queue* queue) {
  pthread_mutex_lock(&queue->mutex);
  guarded_graph* graph = queue->capture;
  queue->capture = NULL;
  pthread_mutex_unlock(&queue->mutex);
  return graph;
}

guarded_graph* guarded_queue_capturing(guarded_queue* queue) {
  pthread_mutex_lock(&queue->mutex);
  guarded_graph* graph = queue->capture;
  pthread_mutex_unlock(&queue->mutex);
  return graph;
}

// ---- commands ----

static command* command_new(command_kind kind, int n_tensors) {
  command* c = calloc(1, sizeof *c + (size_t)n_tensors * sizeof *c->tensors);
  if (c) {
    c->kind = kind;
  } else {
    guarded_host->fail(HY_OUT_OF_MEMORY, "guarded: no host memory for a command");
  }
  return c;
}

// Takes the command over.
static hy_status append(guarded_queue* queue, command* c) {
  pthread_mutex_lock(&queue->mutex);
  hy_status status = forbidden(queue, "work that cannot be captured");
  if (status != HY_OK) {
    pthread_mutex_unlock(&queue->mutex);
    guarded_event_release(c->event);
    free(c);
    return status;
  }
  if (queue->last) {
    queue->last->next = c;
  } else {
    queue->first = c;
  }
  queue->last = c;
  pthread_cond_broadcast(&queue->changed);
  pthread_mutex_unlock(&queue->mutex);
  return HY_OK;
}

hy_status guarded_push_copy(guarded_queue* queue, char* dst, const char* src, size_t bytes) {
  command* c = command_new(COPY, 0);
  if (!c) return HY_OUT_OF_MEMORY;
  c->dst = dst;
  c->src = src;
  c->bytes = bytes;
  return append(queue, c);
}

hy_status guarded_push_set(guarded_queue* queue, char* dst, int value, size_t bytes) {
  command* c = command_new(SET, 0);
  if (!c) return HY_OUT_OF_MEMORY;
  c->dst = dst;
  c->value = value;
  c->bytes = bytes;
  return append(queue, c);
}

hy_status guarded_push_call(guarded_queue* queue, const hy_call* call) {
  command* c = command_new(CALL, call->n_in + call->n_out);
  if (!c) return HY_OUT_OF_MEMORY;
  c->call = *call;
  c->call.in = c->tensors;
  c->call.out = c->tensors + call->n_in;
  if (call->n_in) memcpy(c->tensors, call->in, (size_t)call->n_in * sizeof *c->tensors);
  memcpy(c->call.out, call->out, (size_t)call->n_out * sizeof *c->tensors);
  return append(queue, c);
}

hy_status guarded_push_work(guarded_queue* queue, guarded_work work, void* context) {
  command* c = command_new(WORK, 0);
  if (!c) return HY_OUT_OF_MEMORY;
  c->work = work;
  c->context = context;
  return append(queue, c);
}

hy_status guarded_push_record(guarded_queue* queue, guarded_event* event) {
  command* c = command_new(RECORD, 0);
  if (!c) return HY_OUT_OF_MEMORY;
  atomic_fetch_add(&event->references, 1);
  c->event = event;
  pthread_mutex_lock(&event->mutex);
  c->ticket = ++event->recorded;
  pthread_mutex_unlock(&event->mutex);
  return append(queue, c);
}

hy_status guarded_push_wait(guarded_queue* queue, guarded_event* event) {
  command* c = command_new(WAIT, 0);
  if (!c) return HY_OUT_OF_MEMORY;
  atomic_fetch_add(&event->references, 1);
  c->event = event;
  c->ticket = event_last_ticket(event);
  return append(queue, c);
}
