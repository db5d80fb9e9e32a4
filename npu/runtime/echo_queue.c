// echo_queue.c - feeding the device.
//
// One thread at a time serves a device: it takes the first job of any stream that is ready, runs it
// to its end, and only then takes the next; nobody else talks to the driver. There is a thread for
// it, and whoever waits for the device serves meanwhile, which spares waking one thread for a job
// and another at its end. Consecutive packets of a stream go to the ring together.
#include "echo_queue.h"

#include <stdlib.h>
#include <string.h>

// ---- The ring -------------------------------------------------------------------------

// Returns -1 when the device does not obey.
static int start_ring(echo_device* d) {
  const echo_driver* v = d->driver;
  v->write_register(d->handle, ECHO_NPU_REG_CONTROL, ECHO_NPU_CONTROL_RESET);
  if (v->read_register(d->handle, ECHO_NPU_REG_CONTROL) != 0 ||
      v->read_register(d->handle, ECHO_NPU_REG_STATUS) != ECHO_NPU_STATUS_IDLE)
    return -1;
  for (uint32_t i = 0; i < ECHO_NPU_AREAS; ++i) {
    uint32_t at = ECHO_NPU_REG_AREA + 16 * i;
    v->write_register(d->handle, at, (uint32_t)d->board.base[i]);
    v->write_register(d->handle, at + 4, (uint32_t)(d->board.base[i] >> 32));
    v->write_register(d->handle, at + 8, (uint32_t)d->board.limit[i]);
    v->write_register(d->handle, at + 12, (uint32_t)(d->board.limit[i] >> 32));
  }
  v->write_register(d->handle, ECHO_NPU_REG_RING_BASE_LO, (uint32_t)d->ring);
  v->write_register(d->handle, ECHO_NPU_REG_RING_BASE_HI, (uint32_t)(d->ring >> 32));
  v->write_register(d->handle, ECHO_NPU_REG_RING_LOG2, ECHO_RING_LOG2);
  v->write_register(d->handle, ECHO_NPU_REG_IRQ_ENABLE, ECHO_NPU_IRQ_FAULT | ECHO_NPU_IRQ_DRAINED);
  v->write_register(d->handle, ECHO_NPU_REG_WATCHDOG, d->watchdog);
  v->write_register(d->handle, ECHO_NPU_REG_CONTROL, ECHO_NPU_CONTROL_ENABLE);
  d->tail = 0;
  return 0;
}

static uint64_t busy_cycles(echo_device* d) {
  uint32_t at = ECHO_NPU_REG_COUNTER + 8 * ECHO_NPU_COUNTER_BUSY;
  uint64_t low = d->driver->read_register(d->handle, at);
  return low | (uint64_t)d->driver->read_register(d->handle, at + 4) << 32;
}

// Appends packets to the ring; the caller keeps them below its size.
static int put_packets(echo_device* d, const echo_npu_packet* packets, size_t count) {
  while (count) {
    uint32_t slot = d->tail % ECHO_RING_PACKETS;
    size_t run = ECHO_RING_PACKETS - slot < count ? ECHO_RING_PACKETS - slot : count;
    if (d->driver->write_memory(d->handle, d->ring + (uint64_t)slot * ECHO_NPU_PACKET_BYTES,
                                packets, run * ECHO_NPU_PACKET_BYTES) != 0)
      return -1;
    d->tail += (uint32_t)run;
    packets += run;
    count -= run;
  }
  return 0;
}

// The time limit is for a packet: it starts again when HEAD moves. Waits are counted, not the clock
// on the wall, so that a process that was stopped for a while finds its device in time.
static echoNpuError drain_ring(echo_device* d) {
  const uint32_t slice = d->timeout_ms && d->timeout_ms < 100 ? d->timeout_ms : 100;
  uint32_t head = d->driver->read_register(d->handle, ECHO_NPU_REG_RING_HEAD);
  d->driver->doorbell(d->handle, d->tail);
  echo_wait waited;
  for (uint64_t spent = 0; (waited = d->driver->wait(d->handle, slice)) == ECHO_WAIT_TIMEOUT;) {
    uint32_t now = d->driver->read_register(d->handle, ECHO_NPU_REG_RING_HEAD);
    spent = now == head ? spent + slice : 0;
    head = now;
    if (d->timeout_ms && spent >= d->timeout_ms) return ECHO_NPU_ERROR_TIMEOUT;
  }
  if (waited == ECHO_WAIT_LOST) return ECHO_NPU_ERROR_DEVICE_LOST;
  uint32_t status = d->driver->read_register(d->handle, ECHO_NPU_REG_STATUS);
  d->driver->write_register(d->handle, ECHO_NPU_REG_IRQ_STATUS,
                            ECHO_NPU_IRQ_FAULT | ECHO_NPU_IRQ_DRAINED | ECHO_NPU_IRQ_PACKET);
  if (status != ECHO_NPU_STATUS_ERROR) return ECHO_NPU_SUCCESS;
  uint32_t code = d->driver->read_register(d->handle, ECHO_NPU_REG_FAULT_CODE);
  return code == ECHO_NPU_FAULT_TIMEOUT ? ECHO_NPU_ERROR_TIMEOUT : ECHO_NPU_ERROR_FAULT;
}

static void read_fault(echo_device* d, echoNpuFault* fault) {
  const echo_driver* v = d->driver;
  fault->code = v->read_register(d->handle, ECHO_NPU_REG_FAULT_CODE);
  fault->index = v->read_register(d->handle, ECHO_NPU_REG_FAULT_INDEX);
  fault->address = v->read_register(d->handle, ECHO_NPU_REG_FAULT_ADDR_LO) |
                   (uint64_t)v->read_register(d->handle, ECHO_NPU_REG_FAULT_ADDR_HI) << 32;
  if (!fault->code) {  // it was given up, and has said nothing itself
    fault->code = ECHO_NPU_FAULT_TIMEOUT;
    fault->index = v->read_register(d->handle, ECHO_NPU_REG_RING_HEAD);
  }
  uint64_t slot = d->ring + (uint64_t)(fault->index % ECHO_RING_PACKETS) * ECHO_NPU_PACKET_BYTES;
  if (v->read_memory(d->handle, slot, &fault->packet, ECHO_NPU_PACKET_BYTES) != 0)
    memset(&fault->packet, 0, sizeof fault->packet);
}

// Runs the first `jobs` jobs of the list, all packets. On a fault, fault->index becomes the
// packet's place in its own submission.
static echoNpuError run_packets(echo_device* d, const echo_job* job, size_t jobs,
                                echoNpuFault* fault) {
  const size_t most = d->recorder ? 1 : ECHO_RING_PACKETS;
  const echo_job* first = job;
  uint32_t start = d->tail;
  size_t done_of_first = 0;
  for (size_t i = 0; i < jobs; ++i, job = job->next) {
    for (size_t at = 0; at < job->count;) {
      size_t room = most - (d->tail - start);
      size_t run = job->count - at < room ? job->count - at : room;
      if (put_packets(d, job->packets + at, run) != 0) return ECHO_NPU_ERROR_DEVICE_LOST;
      at += run;
      int last = at == job->count && i == jobs - 1;
      if (d->tail - start < most && !last) continue;
      echoNpuError error = drain_ring(d);
      if (error == ECHO_NPU_ERROR_FAULT || error == ECHO_NPU_ERROR_TIMEOUT) {
        read_fault(d, fault);
        size_t offset = done_of_first + (fault->index - start);
        // A card that has gone mad may name any packet.
        for (const echo_job* j = first; offset >= j->count && j->next; j = j->next)
          offset -= j->count;
        fault->index = (uint32_t)offset;
        if (start_ring(d) != 0) d->dead = 1;
      }
      if (error) return error;
      if (d->recorder) echo__record(d, job->label, &job->packets[at - 1]);
      first = at == job->count ? job->next : job;
      done_of_first = at == job->count ? 0 : at;
      start = d->tail;
    }
  }
  return ECHO_NPU_SUCCESS;
}

// ---- The thread -------------------------------------------------------------------------------

// Takes `jobs` jobs off a stream. Called with the lock held.
static echo_job* detach(echoNpuStream s, size_t jobs) {
  echo_job *list = s->head, *last = list;
  for (size_t i = 1; i < jobs; ++i) last = last->next;
  s->head = last->next;
  if (!s->head) s->tail = NULL;
  last->next = NULL;
  return list;
}

// What must happen even to a job that is dropped.
static void settle(echo_device* d, echo_job* job, uint64_t cycles) {
  if (job->kind == JOB_RELEASE) echo__release(d, job->address);
  if (job->kind == JOB_RECORD) echo__event_complete(job->event.event, job->event.record, cycles);
  if (job->kind == JOB_RECORD || job->kind == JOB_WAIT) echo__event_release(job->event.event);
}

static echoNpuError run_job(echo_device* d, echo_job* job, size_t jobs, echoNpuFault* fault) {
  switch (job->kind) {
    case JOB_PACKETS: return run_packets(d, job, jobs, fault);
    case JOB_WRITE:
      return d->driver->write_memory(d->handle, job->copy.device, job->copy.from, job->copy.bytes)
                 ? ECHO_NPU_ERROR_DEVICE_LOST
                 : ECHO_NPU_SUCCESS;
    case JOB_READ:
      return d->driver->read_memory(d->handle, job->copy.device, job->copy.to, job->copy.bytes)
                 ? ECHO_NPU_ERROR_DEVICE_LOST
                 : ECHO_NPU_SUCCESS;
    case JOB_CALL: job->call.call(d, job->call.argument); return ECHO_NPU_SUCCESS;
    case JOB_RECORD: settle(d, job, busy_cycles(d)); return ECHO_NPU_SUCCESS;
    case JOB_WAIT:
    case JOB_RELEASE: settle(d, job, 0); return ECHO_NPU_SUCCESS;
  }
  return ECHO_NPU_SUCCESS;
}

static echoNpuStream next_ready(echo_device* d) {
  for (echoNpuStream s = d->streams; s; s = s->next)
    if (s->head && (s->head->kind != JOB_WAIT ||
                    echo__event_passed(s->head->event.event, s->head->event.record)))
      return s;
  return NULL;
}

// Streams take turns: the one served goes to the end of the list.
static void move_to_end(echo_device* d, echoNpuStream s) {
  echoNpuStream* link = &d->streams;
  while (*link != s) link = &(*link)->next;
  *link = s->next;
  while (*link) link = &(*link)->next;
  *link = s;
  s->next = NULL;
}

static size_t free_list(echo_device* d, echo_job* list, int dropped) {
  size_t n = 0;
  for (echo_job* next; list; list = next, ++n) {
    next = list->next;
    if (dropped) settle(d, list, 0);
    free(list);
  }
  return n;
}

// Runs what is first in the line of a stream. Called with the lock held, which is given up
// meanwhile.
static void serve(echo_device* d, echoNpuStream s) {
  move_to_end(d, s);
  size_t jobs = 1;
  if (s->head->kind == JOB_PACKETS)
    for (echo_job* j = s->head->next; j && j->kind == JOB_PACKETS; j = j->next) ++jobs;
  echo_job* list = detach(s, jobs);
  int lost = d->lost;
  d->serving = 1;
  pthread_mutex_unlock(&d->lock);

  echoNpuFault fault = {0};
  echoNpuError error =
      lost && list->kind <= JOB_READ ? ECHO_NPU_ERROR_DEVICE_LOST : run_job(d, list, jobs, &fault);
  size_t finished = free_list(d, list, 0);

  pthread_mutex_lock(&d->lock);
  if (error) {
    s->error = error;
    s->fault = fault;
    if (error == ECHO_NPU_ERROR_DEVICE_LOST || d->dead) d->lost = 1;
    echo_job* rest = s->head;
    s->head = s->tail = NULL;
    pthread_mutex_unlock(&d->lock);
    finished += free_list(d, rest, 1);
    pthread_mutex_lock(&d->lock);
  }
  d->serving = 0;
  s->completed += finished;
  pthread_cond_broadcast(&d->progress);
}

static void* queue_main(void* argument) {
  echo_device* d = argument;
  pthread_mutex_lock(&d->lock);
  for (;;) {
    echoNpuStream s = d->serving ? NULL : next_ready(d);
    if (s)
      serve(d, s);
    else if (d->stopping && !d->serving)
      break;
    else
      pthread_cond_wait(&d->work, &d->lock);
  }
  pthread_mutex_unlock(&d->lock);
  return NULL;
}

void echo__await_progress(echo_device* d) {
  echoNpuStream s = d->serving ? NULL : next_ready(d);
  if (!s) {
    pthread_cond_wait(&d->progress, &d->lock);
    return;
  }
  serve(d, s);
  pthread_cond_signal(&d->work);  // the thread may have looked while this one served
}

echoNpuStream echo__stream_new(echo_device* d) {
  echoNpuStream s = calloc(1, sizeof *s);
  if (!s) return NULL;
  s->device = d;
  pthread_mutex_lock(&d->lock);
  s->next = d->streams;
  d->streams = s;
  pthread_mutex_unlock(&d->lock);
  return s;
}

echoNpuError echo__queue_start(echo_device* d) {
  if (start_ring(d) != 0)
    return echo__fail(ECHO_NPU_ERROR_UNAVAILABLE, "device %d does not come out of reset", d->index);
  d->default_stream = echo__stream_new(d);
  if (!d->default_stream || pthread_create(&d->thread, NULL, queue_main, d) != 0) {
    free(d->default_stream);
    d->default_stream = d->streams = NULL;
    d->thread = 0;
    return echo__fail(ECHO_NPU_ERROR_OUT_OF_HOST_MEMORY, "no thread for device %d", d->index);
  }
  return ECHO_NPU_SUCCESS;
}

void echo__queue_stop(echo_device* d) {
  pthread_mutex_lock(&d->lock);
  d->stopping = 1;
  pthread_cond_broadcast(&d->work);
  pthread_mutex_unlock(&d->lock);
  pthread_join(d->thread, NULL);
  echo__record_end(d);
  for (echoNpuStream s = d->streams, next; s; s = next) {
    next = s->next;
    free_list(d, s->head, 1);
    free(s);
  }
  d->streams = NULL;
}

// ---- Submitting -------------------------------------------------------------------------------

echoNpuError echo__stream(echoNpuStream given, echoNpuStream* stream) {
  if (given) {
    *stream = given;
    return ECHO_NPU_SUCCESS;
  }
  echo_device* d;
  echoNpuError error = echo__current_device(&d);
  if (!error) *stream = d->default_stream;
  return error;
}

echoNpuError echo__stream_error(echoNpuStream s) {
  if (s->error != ECHO_NPU_ERROR_FAULT && s->error != ECHO_NPU_ERROR_TIMEOUT)
    return echo__fail(s->error, "device %d: %s", s->device->index, echoNpuGetErrorString(s->error));
  return echo__fail(s->error,
                    "device %d: %s: packet %u (opcode 0x%02x, flags 0x%08x), address 0x%llx",
                    s->device->index,
                    s->error == ECHO_NPU_ERROR_TIMEOUT ? echoNpuGetErrorString(s->error)
                                                       : echoNpuGetFaultString(s->fault.code),
                    s->fault.index, s->fault.packet.opcode, s->fault.packet.flags,
                    (unsigned long long)s->fault.address);
}

// Takes ownership of the job, which is freed when it is refused.
echoNpuError echo__enqueue(echoNpuStream s, echo_job* job) {
  if (!job) return echo__fail(ECHO_NPU_ERROR_OUT_OF_HOST_MEMORY, "no host memory for a job");
  echo_device* d = s->device;
  pthread_mutex_lock(&d->lock);
  echoNpuError error = s->error ? echo__stream_error(s) : ECHO_NPU_SUCCESS;
  if (!error) {
    job->next = NULL;
    if (s->tail)
      s->tail->next = job;
    else
      s->head = job;
    s->tail = job;
    ++s->submitted;
    pthread_cond_signal(&d->work);
  }
  pthread_mutex_unlock(&d->lock);
  if (error) {
    settle(d, job, 0);
    free(job);
  }
  return error;
}

echo_job* echo__job(job_kind kind, size_t packets) {
  echo_job* job = malloc(sizeof *job + packets * sizeof(echo_npu_packet));
  if (job) job->kind = kind;
  return job;
}

echoNpuError echo__submit(echoNpuStream s, const echo_npu_packet* packets, size_t count) {
  if (count == 0) return ECHO_NPU_SUCCESS;
  echo_job* job = echo__job(JOB_PACKETS, count);
  if (job) {
    job->count = count;
    memcpy(job->label, echo__label(), sizeof job->label);
    memcpy(job->packets, packets, count * sizeof *packets);
  }
  return echo__enqueue(s, job);
}

echoNpuError echo__submit_write(echoNpuStream s, uint64_t to, const void* from, uint64_t bytes) {
  echo_job* job = echo__job(JOB_WRITE, 0);
  if (job)
    job->copy.device = to, job->copy.from = from, job->copy.to = NULL, job->copy.bytes = bytes;
  return echo__enqueue(s, job);
}

echoNpuError echo__submit_read(echoNpuStream s, void* to, uint64_t from, uint64_t bytes) {
  echo_job* job = echo__job(JOB_READ, 0);
  if (job)
    job->copy.device = from, job->copy.from = NULL, job->copy.to = to, job->copy.bytes = bytes;
  return echo__enqueue(s, job);
}

echoNpuError echo__submit_release(echoNpuStream s, uint64_t address) {
  echo_job* job = echo__job(JOB_RELEASE, 0);
  if (job) job->address = address;
  return echo__enqueue(s, job);
}

echoNpuError echoNpuSubmit(const echo_npu_packet* packets, size_t count, echoNpuStream stream) {
  echoNpuStream s;
  if (!packets && count) return echo__fail(ECHO_NPU_ERROR_INVALID_VALUE, "submit: no packets");
  echoNpuError error = echo__stream(stream, &s);
  if (error) return error;
  echo__debug(1, ECHO_NPU_DEBUG_NPU, "submit %zu packets", count);
  return echo__submit(s, packets, count);
}
