// Conformance of order: streams that are queues, events between them, elapsed time.
//
// The observable: behind work that keeps the device busy for a while, memory is changed from OLD to
// NEW, and whoever must wait for that reads it. A copy, a sync, a query or a wait that does not
// wait reads OLD. A device whose calls finish before they return has nothing to wait for, and
// passes.
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/internal.h"
#include "verify/device_checks.h"

enum { SPAN = 4096, OLD = 0x11, NEW = 0x5e, MAX_ROUNDS = 64, BUSY_BYTES = 32 << 20 };
#define BUSY_NS 20000000         // work that the device is given before each question
#define PATIENCE_NS 20000000000  // for a query that ought to say yes in the end

typedef struct order {
  hy_device* device;
  hy_stream *a, *b;
  hy_event* event;
  char* busy;  // two blocks of `busy_bytes`, then the three matrices of `native`
  size_t busy_bytes;
  bool has_native;
  hy__native_call native;
  char *target, *second, *third, *fresh;  // SPAN each; `fresh` holds NEW
  unsigned char *host, *more;             // 3 * SPAN each: pinned, ordinary
  int rounds;
  bool lags;  // the queue runs behind the host, so that there is something to wait for
  hy__op_verdict* v;
} order;

// ---- work ----

static hy_status keep_busy(order* o, hy_stream* stream) {
  for (int i = 0; i < o->rounds; i++) {
    HY_TRY(hy_memcpy(stream, o->busy, o->busy + o->busy_bytes, o->busy_bytes,
                     HY_COPY_DEVICE_TO_DEVICE));
    if (o->has_native) HY_TRY(hy_run(stream, &o->native.call));
  }
  return HY_OK;
}

// How many rounds keep the device busy long enough, and whether the host is back before.
static hy_status find_rounds(order* o) {
  for (o->rounds = 1; o->rounds < MAX_ROUNDS; o->rounds *= 2) {
    int64_t begin = hy__now_ns();
    HY_TRY(keep_busy(o, o->a));
    int64_t queued = hy__now_ns();
    HY_TRY(hy_stream_sync(o->a));
    HY_TRY(hy_device_sync(o->device));
    int64_t done = hy__now_ns();
    o->lags = done - queued > (done - begin) / 20;
    int64_t enough = o->v->quick ? BUSY_NS / 4 : BUSY_NS;
    if (done - begin > (o->lags ? enough : enough / 4)) break;
  }
  return HY_OK;
}

typedef enum writer { BY_SET, BY_COPY, BY_UPLOAD, N_WRITERS } writer;
static const char* const writer_names[] = {"a set", "a copy on the device", "an upload"};

static hy_status write_new(order* o, hy_stream* stream, writer by) {
  switch (by) {
    case BY_SET: return hy_memset(stream, o->target, NEW, SPAN);
    case BY_COPY: return hy_memcpy(stream, o->target, o->fresh, SPAN, HY_COPY_DEVICE_TO_DEVICE);
    default:
      memset(o->more, NEW, SPAN);
      return hy_memcpy(stream, o->target, o->more, SPAN, HY_COPY_HOST_TO_DEVICE);
  }
}

// OLD everywhere, and nothing under way.
static hy_status start_over(order* o) {
  memset(o->host, OLD, 3 * SPAN);
  HY_TRY(hy_memset(o->a, o->target, OLD, SPAN));
  HY_TRY(hy_memset(o->a, o->second, OLD, SPAN));
  HY_TRY(hy_memset(o->a, o->third, OLD, SPAN));
  HY_TRY(hy_memset(o->a, o->fresh, NEW, SPAN));
  HY_TRY(hy_stream_sync(o->a));
  return hy_device_sync(o->device);
}

static bool holds(const unsigned char* bytes, int value) {
  for (int i = 0; i < SPAN; i++)
    if (bytes[i] != value) return false;
  return true;
}

static hy_status to_host(hy_stream* stream, unsigned char* host, const char* from) {
  return hy_memcpy(stream, host, from, SPAN, HY_COPY_DEVICE_TO_HOST);
}

// ---- one stream ----

// Work, a write, a copy to the host: what stands in the host's memory when the stream is done.
static hy_status check_copy_waits(order* o, writer by) {
  HY_TRY(start_over(o));
  HY_TRY(keep_busy(o, o->a));
  HY_TRY(write_new(o, o->a, by));
  HY_TRY(to_host(o->a, o->host, o->target));
  HY_TRY(hy_stream_sync(o->a));
  hy__judge(o->v, holds(o->host, NEW),
            "a copy to the host behind %s on the same stream brought what was there before: copies "
            "and stream_sync wait for the work that was queued before them",
            writer_names[by]);
  return HY_OK;
}

// Work, a reader on the device, a write over what it reads, another reader.
static hy_status check_write_waits(order* o, writer by) {
  HY_TRY(start_over(o));
  HY_TRY(keep_busy(o, o->a));
  HY_TRY(hy_memcpy(o->a, o->second, o->target, SPAN, HY_COPY_DEVICE_TO_DEVICE));
  HY_TRY(write_new(o, o->a, by));
  HY_TRY(hy_memcpy(o->a, o->third, o->target, SPAN, HY_COPY_DEVICE_TO_DEVICE));
  HY_TRY(hy_stream_sync(o->a));
  HY_TRY(to_host(o->a, o->host, o->second));
  HY_TRY(to_host(o->a, o->host + SPAN, o->third));
  HY_TRY(hy_stream_sync(o->a));
  hy__judge(o->v, holds(o->host, OLD),
            "%s overtook a copy that was queued before it on the same stream, and that reads what "
            "it writes over",
            writer_names[by]);
  hy__judge(o->v, holds(o->host + SPAN, NEW),
            "a copy on the device overtook %s that was queued before it on the same stream",
            writer_names[by]);
  return HY_OK;
}

// A call between an upload of its input and a copy of its output to the host.
static hy_status check_call_waits(order* o) {
  enum { HALF = HY__NATIVE_BYTES / 2 };
  if (!o->has_native) return HY_OK;
  unsigned char *ones = malloc(HY__NATIVE_BYTES), *got = malloc(2 * HY__NATIVE_BYTES);
  hy_status status = ones && got ? HY_OK : hy_fail(HY_OUT_OF_MEMORY, "no host memory for order");
  for (int i = 0; i < 2 && status == HY_OK; i++) {
    // First with a wait after each step, then with none.
    for (int k = 0; k < HY__NATIVE_BYTES / 4; k++) ((float*)ones)[k] = 1;
    status = hy_memset(o->a, o->native.out.data, 0, HY__NATIVE_BYTES);
    if (status == HY_OK) status = hy_memset(o->a, o->native.in[0].data, 0, HY__NATIVE_BYTES);
    if (status == HY_OK) status = hy_stream_sync(o->a);
    if (status == HY_OK && i == 1) status = keep_busy(o, o->a);
    if (status == HY_OK)
      status =
          hy_memcpy(o->a, o->native.in[0].data, ones, HY__NATIVE_BYTES, HY_COPY_HOST_TO_DEVICE);
    if (status == HY_OK && i == 0) status = hy_stream_sync(o->a);
    if (status == HY_OK) status = hy_run(o->a, &o->native.call);
    if (status == HY_OK && i == 0) status = hy_stream_sync(o->a);
    if (status == HY_OK)
      status = hy_memcpy(o->a, got + (size_t)i * HY__NATIVE_BYTES, o->native.out.data,
                         HY__NATIVE_BYTES, HY_COPY_DEVICE_TO_HOST);
    if (status == HY_OK) status = hy_stream_sync(o->a);
  }
  if (status == HY_OK)
    hy__judge(o->v, memcmp(got, got + HY__NATIVE_BYTES, HY__NATIVE_BYTES) == 0,
              "an upload, a call of %s and a copy to the host on one stream gave another result "
              "than with a wait after each",
              hy_op_name(o->native.call.op));
  free(got);
  free(ones);
  return status;
}

// Uploads go through a ring of pinned memory whose slots are used again when events say so.
static hy_status check_uploads(order* o) {
  enum { UPLOADS = 24, PART = 3 * SPAN / UPLOADS };
  unsigned char sent[PART];
  HY_TRY(start_over(o));
  HY_TRY(keep_busy(o, o->a));
  for (int i = 0; i < UPLOADS; i++) {
    memset(sent, i + 1, PART);
    // target, second and third are neighbours.
    HY_TRY(hy_upload(o->a, o->target + (size_t)i * PART, sent, PART));
    if (i % 8 == 0) HY_TRY(keep_busy(o, o->a));
  }
  HY_TRY(hy_memcpy(o->a, o->host, o->target, 3 * SPAN, HY_COPY_DEVICE_TO_HOST));
  HY_TRY(hy_stream_sync(o->a));
  int wrong = 0;
  for (int i = 0; i < UPLOADS * PART; i++) wrong += o->host[i] != i / PART + 1;
  hy__judge(o->v, wrong == 0,
            "of %d uploads in a row behind other work, %d bytes are not what was sent: the host's "
            "memory was read after event_query said that the copy was done",
            UPLOADS, wrong);
  return HY_OK;
}

// ---- ways to wait ----

static hy_status by_device_sync(order* o) {
  return hy_device_sync(o->device);
}

static hy_status by_event_sync(order* o) {
  return hy_event_sync(o->event);
}

static hy_status poll(hy_status (*query)(order* o), order* o) {
  const struct timespec pause = {0, 100000};
  int64_t begin = hy__now_ns();
  hy_status status;
  while ((status = query(o)) == HY_NOT_READY && hy__now_ns() - begin < PATIENCE_NS)
    nanosleep(&pause, NULL);
  return status;
}

static hy_status event_query(order* o) {
  return hy_event_query(o->event);
}

static hy_status stream_query(order* o) {
  return hy_stream_query(o->a);
}

static hy_status by_event_query(order* o) {
  return poll(event_query, o);
}

static hy_status by_stream_query(order* o) {
  return poll(stream_query, o);
}

static hy_status by_stream_sync(order* o) {
  return hy_stream_sync(o->a);
}

static hy_status check_wait(order* o, const char* name, hy_status (*wait)(order* o)) {
  HY_TRY(start_over(o));
  HY_TRY(keep_busy(o, o->a));
  HY_TRY(write_new(o, o->a, BY_COPY));
  HY_TRY(to_host(o->a, o->host, o->target));
  HY_TRY(hy_event_record(o->event, o->a));
  hy_status status = wait(o);
  bool done = holds(o->host, NEW);
  // Whatever the answer was, nothing may be under way when the next check begins.
  HY_TRY(hy_stream_sync(o->a));
  if (hy__judge(o->v, status == HY_OK, "%s of work that succeeds: %s", name,
                status == HY_NOT_READY ? "it never says that the work is done" : hy_last_error()))
    hy__judge(o->v, done, "%s said that a copy to the host was done before it was", name);
  return HY_OK;
}

// device_sync is about every stream.
static hy_status check_device_sync(order* o) {
  HY_TRY(start_over(o));
  HY_TRY(keep_busy(o, o->b));
  HY_TRY(write_new(o, o->b, BY_COPY));
  HY_TRY(to_host(o->b, o->host, o->target));
  HY_TRY(hy_device_sync(o->device));
  bool done = holds(o->host, NEW);
  HY_TRY(hy_stream_sync(o->b));
  hy__judge(o->v, done, "device_sync did not wait for the work of every stream");
  return HY_OK;
}

// ---- two streams ----

// Two streams and the event that the one records and the other waits for; also recorded before, so
// that the newest record counts.
static hy_status check_wait_event(order* o, hy_stream* first, hy_stream* then) {
  HY_TRY(start_over(o));
  HY_TRY(hy_event_record(o->event, first));
  HY_TRY(hy_event_sync(o->event));
  HY_TRY(keep_busy(o, first));
  HY_TRY(write_new(o, first, BY_COPY));
  HY_TRY(hy_event_record(o->event, first));
  HY_TRY(hy_stream_wait_event(then, o->event));
  HY_TRY(hy_memcpy(then, o->second, o->target, SPAN, HY_COPY_DEVICE_TO_DEVICE));
  HY_TRY(to_host(then, o->host, o->target));
  HY_TRY(hy_stream_sync(then));
  hy_status reached = hy_event_query(o->event);
  HY_TRY(to_host(then, o->host + SPAN, o->second));
  HY_TRY(hy_stream_sync(then));
  bool done = holds(o->host, NEW) && holds(o->host + SPAN, NEW);
  HY_TRY(hy_stream_sync(first));
  hy__judge(o->v, done,
            "stream_wait_event did not hold the stream: work behind it ran before the event of the "
            "other stream");
  hy__judge(o->v, reached == HY_OK,
            "work behind stream_wait_event is done, and event_query says %s of the event",
            hy_status_name(reached));
  return HY_OK;
}

// ---- time ----

// Between an event that has been reached and one that is recorded after a pause is at least the
// pause, and at most what the host's clock counts around both; and times add up.
enum { MARKS = 3, PAUSE_MS = 4, QUICK_PAUSE_MS = 1 };

static int pause_ms(const order* o) {
  return o->v->quick ? QUICK_PAUSE_MS : PAUSE_MS;
}

static hy_status take_times(order* o, hy_event** mark, double* between) {
  for (int i = 0; i < MARKS; i++) {
    const struct timespec pause = {0, (long)i * pause_ms(o) * 1000000};
    nanosleep(&pause, NULL);
    HY_TRY(hy_event_record(mark[i], o->a));
    HY_TRY(hy_event_sync(mark[i]));
  }
  for (int i = 0; i < MARKS; i++)
    HY_TRY(hy_event_elapsed(mark[i], mark[(i + 1) % MARKS], &between[i]));
  return hy_event_elapsed(mark[0], mark[0], &between[MARKS]);
}

static hy_status check_elapsed(order* o) {
  hy_event* mark[MARKS] = {NULL};
  double t[MARKS + 1] = {NAN, NAN, NAN, NAN};  // 0 to 1, 1 to 2, 2 to 0, 0 to 0
  hy_status status = HY_OK;
  for (int i = 0; i < MARKS && status == HY_OK; i++) status = hy_event_create(o->device, &mark[i]);
  int64_t before = hy__now_ns();
  if (status == HY_OK) status = take_times(o, mark, t);
  double most = (double)(hy__now_ns() - before) / 1e6;
  if (hy__judge_status(o->v, status, "event_elapsed")) {
    for (int i = 0; i < 2; i++) {
      double least = (i + 1) * 0.5 * pause_ms(o);
      hy__judge(o->v, isfinite(t[i]) && t[i] >= least && t[i] <= 1.5 * most + 1,
                "event_elapsed says %g milliseconds where the host counts %d to %g", t[i],
                (i + 1) * pause_ms(o), most);
    }
    hy__judge(o->v, fabs(t[0] + t[1] + t[2]) <= 0.1 + 0.05 * most && t[MARKS] == 0,
              "event_elapsed says %g and %g milliseconds between three events, %g from the last "
              "back to the first, and %g from one to itself",
              t[0], t[1], t[2], t[MARKS]);
  }
  for (int i = 0; i < MARKS; i++) hy_event_destroy(mark[i]);
  return HY_OK;
}

// ---- all ----

static hy_status check_all(order* o) {
  static const struct {
    const char* name;
    hy_status (*wait)(order* o);
  } waits[] = {{"stream_sync", by_stream_sync},
               {"device_sync", by_device_sync},
               {"event_sync", by_event_sync},
               {"event_query", by_event_query},
               {"stream_query", by_stream_query}};
  // A stream whose wait is no wait would let the checks below begin in the middle of others.
  HY_TRY(check_wait(o, waits[0].name, waits[0].wait));
  if (o->v->failed) return HY_OK;
  if (!o->lags) {  // what it is given is done when the host is back: there is nothing to outrun
    o->rounds = 1;
    o->busy_bytes /= 16;
  }
  for (size_t i = 1; i < sizeof waits / sizeof waits[0]; i++)
    HY_TRY(check_wait(o, waits[i].name, waits[i].wait));
  for (int by = 0; by < N_WRITERS; by++) {
    HY_TRY(check_copy_waits(o, (writer)by));
    HY_TRY(check_write_waits(o, (writer)by));
  }
  HY_TRY(check_call_waits(o));
  HY_TRY(check_uploads(o));
  HY_TRY(check_device_sync(o));
  HY_TRY(check_wait_event(o, o->a, o->b));
  HY_TRY(check_wait_event(o, o->b, o->a));
  return check_elapsed(o);
}

static hy_status take_memory(order* o, void** memory, void** host) {
  uint64_t free_bytes = 0, total = 0;
  HY_TRY(hy_memory_info(o->device, &free_bytes, &total));
  o->busy_bytes = o->v->quick ? BUSY_BYTES / 8 : BUSY_BYTES;
  while (o->busy_bytes > SPAN && o->busy_bytes > free_bytes / 16) o->busy_bytes /= 2;
  HY_TRY(hy_alloc_raw(o->device, 2 * o->busy_bytes + 3 * HY__NATIVE_BYTES + 4 * SPAN, memory));
  HY_TRY(hy_host_alloc(o->device, 3 * SPAN, host));
  o->busy = *memory;
  char* matrices = o->busy + 2 * o->busy_bytes;
  o->target = matrices + 3 * HY__NATIVE_BYTES;
  o->second = o->target + SPAN;
  o->third = o->second + SPAN;
  o->fresh = o->third + SPAN;
  o->host = *host;
  o->has_native = hy__native_find(o->device, matrices, matrices + HY__NATIVE_BYTES,
                                  matrices + 2 * HY__NATIVE_BYTES, &o->native);
  HY_TRY(hy_memset(o->a, *memory, 0, 2 * o->busy_bytes + 3 * HY__NATIVE_BYTES));
  return hy_stream_sync(o->a);
}

hy_status hy__verify_order(hy_device* device, hy__op_verdict* v) {
  order o = {.device = device, .v = v};
  void *memory = NULL, *host = NULL;
  o.more = malloc(3 * SPAN);
  hy_status status = o.more ? HY_OK : hy_fail(HY_OUT_OF_MEMORY, "no host memory to verify order");
  if (status == HY_OK) status = hy_stream_create(device, &o.a);
  if (status == HY_OK) status = hy_stream_create(device, &o.b);
  if (status == HY_OK) status = hy_event_create(device, &o.event);
  if (status == HY_OK) status = take_memory(&o, &memory, &host);
  if (status == HY_OK) status = find_rounds(&o);
  if (status == HY_OK) status = check_all(&o);
  if (status != HY_OK) {
    hy__judge(v, false, "work on streams: %s", hy_last_error());
    status = HY_OK;
  }
  hy_device_sync(device);
  hy_event_destroy(o.event);
  hy_stream_destroy(o.b);
  hy_stream_destroy(o.a);
  hy_host_free(device, host);
  hy_free_raw(device, memory);
  free(o.more);
  return status;
}
