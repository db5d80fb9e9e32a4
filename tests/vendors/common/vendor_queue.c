// Test vendors: queues, a worker thread each, with capture, and the events between them.
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "vendor.h"

typedef struct item {
  struct item* next;
  vendor_work work;
  vendor_event* event;  // in place of work; holds a reference
  uint64_t ticket;      // of the event: passed where `records`, else waited for
  bool records;
  bool always;  // on a broken queue too
  size_t bytes;
  char context[];
} item;

struct vendor_list {
  item *first, **last;
};

struct vendor_queue {
  vendor_queue* next;
  int device;
  pthread_t thread;
  pthread_mutex_t mutex;  // guards all below
  pthread_cond_t changed;
  vendor_list items;
  bool running, stopping;
  int code;  // of the first failure
  vendor_list* captured;
};

struct vendor_event {
  atomic_int references;
  pthread_mutex_t mutex;  // guards all below
  pthread_cond_t passed;
  uint64_t recorded, done;
  struct timespec when;
};

static pthread_mutex_t queues_mutex = PTHREAD_MUTEX_INITIALIZER;
static vendor_queue* queues;

static void* allocate(size_t bytes) {
  void* memory = calloc(1, bytes);
  if (!memory) abort();
  return memory;
}

// ---- lists ----

static void append(vendor_list* list, item* i) {
  *list->last = i;
  list->last = &i->next;
}

static vendor_list* new_list(void) {
  vendor_list* list = allocate(sizeof *list);
  list->last = &list->first;
  return list;
}

static item* new_item(vendor_work work, const void* context, size_t bytes) {
  item* i = allocate(sizeof *i + bytes);
  i->work = work;
  i->bytes = bytes;
  if (bytes) memcpy(i->context, context, bytes);
  return i;
}

void vendor_list_free(vendor_list* list) {
  while (list->first) {
    item* i = list->first;
    list->first = i->next;
    free(i);
  }
  free(list);
}

// ---- the worker ----

static void release(vendor_event* event) {
  if (!event || atomic_fetch_sub(&event->references, 1) > 1) return;
  pthread_cond_destroy(&event->passed);
  pthread_mutex_destroy(&event->mutex);
  free(event);
}

static void meet(item* i) {
  vendor_event* e = i->event;
  pthread_mutex_lock(&e->mutex);
  if (i->records) {
    if (i->ticket > e->done) e->done = i->ticket;
    clock_gettime(CLOCK_MONOTONIC, &e->when);
    pthread_cond_broadcast(&e->passed);
  } else {
    while (e->done < i->ticket) pthread_cond_wait(&e->passed, &e->mutex);
  }
  pthread_mutex_unlock(&e->mutex);
  release(e);
}

static void* work(void* argument) {
  vendor_queue* q = argument;
  pthread_mutex_lock(&q->mutex);
  for (;;) {
    while (!q->items.first && !q->stopping) pthread_cond_wait(&q->changed, &q->mutex);
    item* i = q->items.first;
    if (!i) break;
    q->items.first = i->next;
    if (!i->next) q->items.last = &q->items.first;
    q->running = true;
    bool broken = q->code != 0;
    pthread_mutex_unlock(&q->mutex);
    int code = 0;
    if (i->event)
      meet(i);
    else if (!broken || i->always)
      code = i->work(i->context);
    free(i);
    pthread_mutex_lock(&q->mutex);
    q->running = false;
    if (code && !q->code) q->code = code;
    pthread_cond_broadcast(&q->changed);
  }
  pthread_mutex_unlock(&q->mutex);
  return NULL;
}

vendor_queue* vendor_queue_create(int device) {
  vendor_queue* q = allocate(sizeof *q);
  q->device = device;
  q->items.last = &q->items.first;
  pthread_mutex_init(&q->mutex, NULL);
  pthread_cond_init(&q->changed, NULL);
  if (pthread_create(&q->thread, NULL, work, q) != 0) abort();
  pthread_mutex_lock(&queues_mutex);
  q->next = queues;
  queues = q;
  pthread_mutex_unlock(&queues_mutex);
  return q;
}

void vendor_queue_destroy(vendor_queue* q) {
  pthread_mutex_lock(&queues_mutex);
  vendor_queue** link = &queues;
  while (*link != q) link = &(*link)->next;
  *link = q->next;
  pthread_mutex_unlock(&queues_mutex);
  pthread_mutex_lock(&q->mutex);
  q->stopping = true;
  pthread_cond_broadcast(&q->changed);
  pthread_mutex_unlock(&q->mutex);
  pthread_join(q->thread, NULL);
  if (q->captured) vendor_list_free(q->captured);
  pthread_cond_destroy(&q->changed);
  pthread_mutex_destroy(&q->mutex);
  free(q);
}

int vendor_queue_device(const vendor_queue* q) {
  return q->device;
}

static void push(vendor_queue* q, item* i) {
  pthread_mutex_lock(&q->mutex);
  append(q->captured ? q->captured : &q->items, i);
  pthread_cond_broadcast(&q->changed);
  pthread_mutex_unlock(&q->mutex);
}

void vendor_queue_push(vendor_queue* q, vendor_work work, const void* context, size_t bytes) {
  push(q, new_item(work, context, bytes));
}

void vendor_queue_push_always(vendor_queue* q, vendor_work work, const void* context,
                              size_t bytes) {
  item* i = new_item(work, context, bytes);
  i->always = true;
  push(q, i);
}

int vendor_queue_wait(vendor_queue* q) {
  pthread_mutex_lock(&q->mutex);
  while (q->items.first || q->running) pthread_cond_wait(&q->changed, &q->mutex);
  int code = q->code;
  pthread_mutex_unlock(&q->mutex);
  return code;
}

bool vendor_queue_is_idle(vendor_queue* q, int* code) {
  pthread_mutex_lock(&q->mutex);
  bool idle = !q->items.first && !q->running;
  *code = q->code;
  pthread_mutex_unlock(&q->mutex);
  return idle;
}

int vendor_queues_wait(int device) {
  int code = 0;
  pthread_mutex_lock(&queues_mutex);
  for (vendor_queue* q = queues; q; q = q->next) {
    int found = q->device == device ? vendor_queue_wait(q) : 0;
    if (!code) code = found;
  }
  pthread_mutex_unlock(&queues_mutex);
  return code;
}

// ---- capture ----

bool vendor_queue_capture(vendor_queue* q) {
  pthread_mutex_lock(&q->mutex);
  bool free_to = !q->captured;
  if (free_to) q->captured = new_list();
  pthread_mutex_unlock(&q->mutex);
  return free_to;
}

bool vendor_queue_is_capturing(const vendor_queue* queue) {
  vendor_queue* q = (vendor_queue*)queue;
  pthread_mutex_lock(&q->mutex);
  bool captures = q->captured != NULL;
  pthread_mutex_unlock(&q->mutex);
  return captures;
}

vendor_list* vendor_queue_captured(vendor_queue* q) {
  pthread_mutex_lock(&q->mutex);
  vendor_list* list = q->captured;
  q->captured = NULL;
  pthread_mutex_unlock(&q->mutex);
  return list;
}

void vendor_list_push(const vendor_list* list, vendor_queue* q) {
  for (const item* i = list->first; i; i = i->next)
    vendor_queue_push(q, i->work, i->context, i->bytes);
}

// ---- events ----

vendor_event* vendor_event_create(void) {
  vendor_event* e = allocate(sizeof *e);
  atomic_init(&e->references, 1);
  pthread_mutex_init(&e->mutex, NULL);
  pthread_cond_init(&e->passed, NULL);
  return e;
}

void vendor_event_destroy(vendor_event* e) {
  release(e);
}

static void push_event(vendor_event* e, vendor_queue* q, bool records) {
  item* i = new_item(NULL, NULL, 0);
  atomic_fetch_add(&e->references, 1);
  i->event = e;
  i->records = records;
  pthread_mutex_lock(&e->mutex);
  i->ticket = records ? ++e->recorded : e->recorded;
  pthread_mutex_unlock(&e->mutex);
  push(q, i);
}

void vendor_event_record(vendor_event* e, vendor_queue* q) {
  push_event(e, q, true);
}

void vendor_event_hold(vendor_event* e, vendor_queue* q) {
  push_event(e, q, false);
}

bool vendor_event_is_done(vendor_event* e) {
  pthread_mutex_lock(&e->mutex);
  bool done = e->recorded > 0 && e->done >= e->recorded;
  pthread_mutex_unlock(&e->mutex);
  return done;
}

void vendor_event_wait(vendor_event* e) {
  pthread_mutex_lock(&e->mutex);
  uint64_t ticket = e->recorded;
  while (e->done < ticket) pthread_cond_wait(&e->passed, &e->mutex);
  pthread_mutex_unlock(&e->mutex);
}

bool vendor_event_elapsed(vendor_event* from, vendor_event* to, float* milliseconds) {
  if (!vendor_event_is_done(from) || !vendor_event_is_done(to)) return false;
  double seconds = (double)(to->when.tv_sec - from->when.tv_sec) +
                   (double)(to->when.tv_nsec - from->when.tv_nsec) * 1e-9;
  *milliseconds = (float)(seconds * 1e3);
  return true;
}
