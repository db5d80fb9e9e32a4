// Conformance of communicators: collectives and messages between 1 to 4 ranks. Where the backend
// has communicators, each rank is a thread of this process, on the backend's devices in turn; by
// MPI it is a process of mpirun's. Values are small whole numbers, so that every order of summation
// gives the same bits.
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "comm/provider.h"
#include "ops/reference/element.h"
#include "verify/verify.h"

enum { MAX_RANKS = 4, MOST = 20011 };

typedef enum kind { ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, BROADCAST, RING, BARRIER } kind;
static const char* const kind_names[] = {"all_reduce", "all_gather",       "reduce_scatter",
                                         "broadcast",  "send and receive", "barrier"};

typedef struct collective {
  kind kind;
  hy_dtype dtype;
  hy_reduce_op op;
  int64_t count;
  bool in_place;
} collective;

// One rank's run through all collectives of one size of group.
typedef struct rank {
  pthread_t thread;
  int rank, n_ranks;
  hy_comm_id id;
  hy_device* device;
  hy_stream* stream;
  hy_comm* comm;
  void* memory;  // on the device: what is sent, then what is received
  char *sent, *got;
  size_t room;  // of each half, in bytes
  hy_status joined;
  int cases, unsupported;
  bool failed;
  char message[800];
} rank;

static void blame(rank* r, const char* format, ...) __attribute__((format(printf, 2, 3)));
static void blame(rank* r, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  int used = snprintf(r->message, sizeof r->message, "rank %d of %d: ", r->rank, r->n_ranks);
  vsnprintf(r->message + used, sizeof r->message - (size_t)used, format, arguments);
  va_end(arguments);
  r->failed = true;
}

static const char* op_name(hy_reduce_op op) {
  static const char* const names[] = {"sum", "product", "minimum", "maximum", "average"};
  return names[op];
}

static void blame_call(rank* r, const collective* c, const char* what) {
  bool reduces = c->kind == ALL_REDUCE || c->kind == REDUCE_SCATTER;
  blame(r, "%s%s%s of %lld %s%s: %s", kind_names[c->kind], reduces ? ", " : "",
        reduces ? op_name(c->op) : "", (long long)c->count, hy_dtype_name(c->dtype),
        c->in_place ? ", in place" : "", what);
}

// ---- values ----

// Element i of what a rank sends: few values, whose sums and products every type holds. Averages
// come out whole.
static int64_t value_of(const collective* c, int rank, int n_ranks, int64_t i) {
  int64_t value = (i * 7 + rank * 5 + i / 11) % 4;
  if (c->dtype == HY_BOOL) return value & 1;
  if (c->op == HY_REDUCE_AVG) return value * n_ranks;
  return c->dtype == HY_U8 || c->op == HY_REDUCE_PROD ? value : value - 1;
}

static int64_t reduced(const collective* c, int n_ranks, int64_t i) {
  int64_t result = value_of(c, 0, n_ranks, i);
  for (int r = 1; r < n_ranks; r++) {
    int64_t value = value_of(c, r, n_ranks, i);
    switch (c->op) {
      case HY_REDUCE_PROD: result *= value; break;
      case HY_REDUCE_MIN: result = value < result ? value : result; break;
      case HY_REDUCE_MAX: result = value > result ? value : result; break;
      default: result += value;
    }
  }
  return c->op == HY_REDUCE_AVG ? result / n_ranks : result;
}

static int64_t parts_sent(const collective* c, int n_ranks) {
  return c->kind == REDUCE_SCATTER ? n_ranks : 1;
}

static int64_t parts_received(const collective* c, int n_ranks) {
  return c->kind == ALL_GATHER ? n_ranks : 1;
}

static int root_of(const collective* c, int n_ranks) {
  return (int)(c->count % n_ranks);
}

static int64_t expected(const collective* c, const rank* r, int64_t i) {
  switch (c->kind) {
    case ALL_REDUCE: return reduced(c, r->n_ranks, i);
    case REDUCE_SCATTER: return reduced(c, r->n_ranks, r->rank * c->count + i);
    case ALL_GATHER: return value_of(c, (int)(i / c->count), r->n_ranks, i % c->count);
    case BROADCAST: return value_of(c, root_of(c, r->n_ranks), r->n_ranks, i);
    default: return value_of(c, (r->rank + r->n_ranks - 1) % r->n_ranks, r->n_ranks, i);
  }
}

static void store(hy_dtype dtype, char* at, int64_t value) {
  if (hy__in_double(dtype))
    hy__store_f(dtype, at, (double)value);
  else
    hy__store_i(dtype, at, value);
}

// ---- running ----

static hy_status ring(rank* r, const collective* c, const char* send, char* recv) {
  int next = (r->rank + 1) % r->n_ranks, last = (r->rank + r->n_ranks - 1) % r->n_ranks;
  hy_status status = hy_comm_group_begin(r->device);
  bool grouped = status == HY_OK;
  if (!grouped && status != HY_UNSUPPORTED) return status;
  // Without groups, neighbours take turns.
  bool first = grouped || r->rank % 2 == 0;
  status = HY_OK;
  if (first) status = hy_comm_send(r->comm, r->stream, send, c->count, c->dtype, next);
  if (status == HY_OK) status = hy_comm_recv(r->comm, r->stream, recv, c->count, c->dtype, last);
  if (status == HY_OK && !first)
    status = hy_comm_send(r->comm, r->stream, send, c->count, c->dtype, next);
  if (!grouped) return status;
  hy_status ended = hy_comm_group_end(r->device);
  return status == HY_OK ? ended : status;
}

static hy_status call(rank* r, const collective* c, const char* send, char* recv) {
  switch (c->kind) {
    case ALL_REDUCE:
      return hy_comm_all_reduce(r->comm, r->stream, send, recv, c->count, c->dtype, c->op);
    case ALL_GATHER: return hy_comm_all_gather(r->comm, r->stream, send, recv, c->count, c->dtype);
    case REDUCE_SCATTER:
      return hy_comm_reduce_scatter(r->comm, r->stream, send, recv, c->count, c->dtype, c->op);
    case BROADCAST:
      return hy_comm_broadcast(r->comm, r->stream, recv, c->count, c->dtype,
                               root_of(c, r->n_ranks));
    case RING: return ring(r, c, send, recv);
    case BARRIER: return hy_comm_barrier(r->comm, r->stream);
  }
  return HY_OK;
}

// Copies, collective and copy back without a wait in between: the stream keeps their order.
static hy_status run(rank* r, const collective* c, hy_status* called) {
  size_t size = hy_dtype_size(c->dtype), own = (size_t)r->rank * (size_t)c->count * size;
  char *send = r->memory, *recv = send + r->room;
  bool in_place = c->in_place || c->kind == BROADCAST;
  if (in_place) recv = c->kind == REDUCE_SCATTER ? send + own : send;
  char* source = in_place && c->kind == ALL_GATHER ? recv + own : send;
  size_t received = (size_t)(c->count * parts_received(c, r->n_ranks)) * size;
  HY_TRY(hy_memset(r->stream, r->memory, 0x5a, 2 * r->room));
  HY_TRY(hy_memcpy(r->stream, source, r->sent,
                   (size_t)(c->count * parts_sent(c, r->n_ranks)) * size, HY_COPY_HOST_TO_DEVICE));
  *called = call(r, c, source, recv);
  if (*called != HY_OK) return HY_OK;
  if (received) HY_TRY(hy_memcpy(r->stream, r->got, recv, received, HY_COPY_DEVICE_TO_HOST));
  return hy_stream_sync(r->stream);
}

static void try_one(rank* r, const collective* c) {
  size_t size = hy_dtype_size(c->dtype);
  hy_status called = HY_OK;
  for (int64_t i = 0; i < c->count * parts_sent(c, r->n_ranks); i++)
    store(c->dtype, r->sent + (size_t)i * size, value_of(c, r->rank, r->n_ranks, i));
  r->cases++;
  if (run(r, c, &called) != HY_OK || (called != HY_OK && called != HY_UNSUPPORTED)) {
    blame_call(r, c, hy_last_error());
    return;
  }
  if (called == HY_UNSUPPORTED) {
    // What a library may lack; the types of models it may not.
    if (HY_DTYPE_BIT(c->dtype) & (HY_FLOATS & ~HY_DTYPE_BIT(HY_F64)))
      blame_call(r, c, hy_last_error());
    r->unsupported++;
    return;
  }
  if (c->kind == BARRIER) return;
  for (int64_t i = 0; i < c->count * parts_received(c, r->n_ranks); i++) {
    char want[8];
    store(c->dtype, want, expected(c, r, i));
    if (memcmp(want, r->got + (size_t)i * size, size) == 0) continue;
    char what[120];
    snprintf(what, sizeof what, "element %lld is not %lld", (long long)i,
             (long long)expected(c, r, i));
    blame_call(r, c, what);
    return;
  }
}

// Every collective with every type, and sizes that no chunk divides.
static void try_all(rank* r) {
  static const int64_t counts[] = {1, 3, 257, MOST};
  static const hy_dtype dtypes[] = {HY_F32, HY_F16, HY_BF16, HY_F64,  HY_I8,    HY_U8,
                                    HY_I16, HY_I32, HY_I64,  HY_BOOL, HY_F8E4M3};
  for (int k = ALL_REDUCE; k <= BARRIER; k++) {
    for (size_t d = 0; d < sizeof dtypes / sizeof dtypes[0]; d++) {
      for (int variant = 0; variant < 8; variant++) {
        collective c = {.kind = (kind)k,
                        .dtype = dtypes[d],
                        .count = counts[variant / 2],
                        .in_place = variant % 2};
        bool reduces = k == ALL_REDUCE || k == REDUCE_SCATTER;
        if (reduces && !(HY_DTYPE_BIT(c.dtype) & HY_NUMBERS)) continue;
        if (reduces) c.op = (hy_reduce_op)((variant + (int)d) % 5);
        if (c.op == HY_REDUCE_AVG && hy_dtype_is_int(c.dtype)) c.op = HY_REDUCE_SUM;
        if (c.in_place && (k == BROADCAST || k == RING)) continue;
        if (k == RING && r->n_ranks == 1) continue;
        if (k == BARRIER && (d > 0 || variant > 0)) continue;
        if (!r->failed) try_one(r, &c);
      }
    }
  }
  if (!r->failed && hy_comm_async_error(r->comm) != HY_OK) blame(r, "%s", hy_last_error());
}

static void* work(void* context) {
  rank* r = context;
  r->joined = hy_comm_init_rank(r->device, r->n_ranks, &r->id, r->rank, &r->comm);
  if (r->joined != HY_OK) {
    if (r->joined != HY_UNSUPPORTED) blame(r, "%s", hy_last_error());
    return NULL;
  }
  try_all(r);
  // The others would wait for a rank that has given up.
  if (r->failed) hy_comm_abort(r->comm);
  hy_comm_destroy(r->comm);
  return NULL;
}

// ---- groups of ranks ----

static hy_status prepare(rank* r, hy_device* device) {
  r->room = (size_t)MOST * 8 * MAX_RANKS;
  r->device = device;
  HY_TRY(hy_stream_create(r->device, &r->stream));
  HY_TRY(hy_alloc(r->stream, 2 * r->room, &r->memory));
  r->sent = malloc(r->room);
  r->got = malloc(r->room);
  return r->sent && r->got ? HY_OK
                           : hy_fail(HY_OUT_OF_MEMORY, "no host memory for a communicator's test");
}

static void tidy(rank* r) {
  if (r->memory) hy_free(r->device, r->memory);
  hy_stream_destroy(r->stream);
  free(r->sent);
  free(r->got);
}

static hy_status run_ranks(rank* ranks, int n) {
  int started = 0;
  for (; started < n; started++)
    if (pthread_create(&ranks[started].thread, NULL, work, &ranks[started]) != 0) break;
  for (int r = 0; r < started; r++) pthread_join(ranks[r].thread, NULL);
  return started == n ? HY_OK : hy_fail(HY_OUT_OF_MEMORY, "no thread for a rank");
}

// The first rank's cases count; what any of them finds is reported.
static void tally(const rank* ranks, int n, hy__op_verdict* v) {
  const rank* failed = NULL;
  for (int r = 0; r < n && !failed; r++)
    if (ranks[r].failed) failed = &ranks[r];
  if (!failed && ranks[0].joined == HY_UNSUPPORTED) {
    if (n > 1) return;  // ranks may not share a device, and there are no more
    v->cases++;
    v->failed++;
    snprintf(v->failure, sizeof v->failure, "a single rank cannot join");
    return;
  }
  v->cases += ranks[0].cases + (failed && ranks[0].cases == 0);
  v->unsupported += ranks[0].unsupported;
  v->passed += ranks[0].cases - ranks[0].unsupported - (failed && ranks[0].cases > 0);
  if (!failed) return;
  if (v->failed++ == 0) snprintf(v->failure, sizeof v->failure, "%s", failed->message);
}

// Threads of this process can be ranks unless the device says that it takes processes.
static int most_ranks(hy_device* device) {
  hy_device_info info;
  if (hy_device_describe(device, &info) != HY_OK) return MAX_RANKS;
  const char* said = strstr(info.properties, "ranks=processes\n");
  return said && (said == info.properties || said[-1] == '\n') ? 1 : MAX_RANKS;
}

hy_status hy__verify_communicators(hy_device* device, hy__op_verdict* verdict) {
  if (hy__comm_provider_of(device) != &hy__comm_native) return HY_OK;
  hy_backend_report report;
  HY_TRY(hy_backend_find(hy_device_backend(device), &report));
  for (int n = 1, most = most_ranks(device); n <= most; n++) {
    rank ranks[MAX_RANKS] = {{0}};
    hy_comm_id id;
    hy_status status = hy_comm_unique_id(device, &id);
    if (status == HY_UNAVAILABLE) return HY_OK;  // the vendor's library is not here
    for (int r = 0; r < n && status == HY_OK; r++) {
      ranks[r].rank = r;
      ranks[r].n_ranks = n;
      ranks[r].id = id;
      char selector[40];
      hy_device* own;
      snprintf(selector, sizeof selector, "%s:%d", report.name, r % report.device_count);
      status = hy_device_get(selector, &own);
      if (status == HY_OK) status = prepare(&ranks[r], own);
    }
    if (status == HY_OK) status = run_ranks(ranks, n);
    if (status == HY_OK) tally(ranks, n, verdict);
    for (int r = 0; r < n; r++) tidy(&ranks[r]);
    HY_TRY(status);
  }
  return HY_OK;
}

hy_status hy__verify_rank(hy_comm* comm, hy__op_verdict* verdict) {
  rank r = {.rank = hy_comm_rank(comm), .n_ranks = hy_comm_size(comm), .comm = comm};
  if (r.n_ranks > MAX_RANKS)
    return hy_fail(HY_INVALID_ARGUMENT, "conformance of communicators: %d ranks; at most %d",
                   r.n_ranks, MAX_RANKS);
  hy_status status = prepare(&r, hy_comm_device(comm));
  if (status == HY_OK) {
    try_all(&r);
    if (r.failed) hy_comm_abort(comm);
    tally(&r, 1, verdict);
  }
  tidy(&r);
  return status;
}
