// One rank of a test of communicators by MPI: `mpirun -n 4 comm_rank CASE [device]`, for
// tests/integration/comm.sh. Prints "ok" where the case holds on this rank; what is wrong
// otherwise.
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "checks.h"
#include "halyard/halyard.h"
#include "verify/verify.h"

static hy_device* device;
static hy_stream* stream;
static hy_comm* comm;
static int rank, n_ranks;

static hy_status put(const void* data, size_t bytes, void** address) {
  TRY(hy_alloc(stream, bytes, address));
  TRY(hy_memcpy(stream, *address, data, bytes, HY_COPY_HOST_TO_DEVICE));
  return hy_stream_sync(stream);
}

static hy_status get(void* data, size_t bytes, void* address) {
  TRY(hy_memcpy(stream, data, address, bytes, HY_COPY_DEVICE_TO_HOST));
  TRY(hy_stream_sync(stream));
  return hy_free(device, address);
}

// ---- what is computed ----

static hy_status conformance(void) {
  hy__op_verdict verdict = {0};
  TRY(hy__verify_rank(comm, &verdict));
  if (verdict.failed) return hy_fail(HY_INTERNAL, "%s", verdict.failure);
  EXPECT(verdict.passed > 100);
  if (strcmp(hy_comm_provider(comm), "mpi") == 0) EXPECT(verdict.unsupported == 0);
  return HY_OK;
}

// Ranks that are threads, on the devices of a backend that has communicators of its own.
static hy_status threads(void) {
  hy__op_verdict verdict = {0};
  TRY(hy__verify_communicators(device, &verdict));
  if (verdict.failed) return hy_fail(HY_INTERNAL, "%s", verdict.failure);
  printf("%d cases passed, %d are unsupported\n", (int)verdict.passed, (int)verdict.unsupported);
  EXPECT(verdict.passed > 100);
  return HY_OK;
}

// Two ranks on one device, which NCCL refuses to both.
static hy_comm_id shared_id;
static void* join_as_second(void* context) {
  hy_comm* second = NULL;
  *(hy_status*)context = hy_comm_init_rank(device, 2, &shared_id, 1, &second);
  hy_comm_destroy(second);
  return NULL;
}

static hy_status same_device_twice(void) {
  pthread_t thread;
  hy_status second = HY_OK;
  hy_comm* first = NULL;
  TRY(hy_comm_unique_id(device, &shared_id));
  EXPECT(pthread_create(&thread, NULL, join_as_second, &second) == 0);
  hy_status status = hy_comm_init_rank(device, 2, &shared_id, 0, &first);
  hy_status said = expect(status, HY_UNSUPPORTED, "Duplicate GPU detected");
  pthread_join(thread, NULL);
  EXPECT(second == HY_UNSUPPORTED);
  return said == HY_OK ? HY_OK : hy_fail(said, "%s", hy_last_error());
}

// Element i of a rank's vector: of magnitudes so different that the order of a sum shows.
static float element(int of_rank, int64_t i) {
  uint32_t bits = (uint32_t)i * 2654435761u ^ (uint32_t)(of_rank + 1) * 0x9e3779b9u;
  bits ^= bits >> 15;
  return ldexpf((float)(int32_t)(bits * 2246822519u), (int)(bits % 24) - 40);
}

// What the tests fill and look at.
enum { MOST = 1 << 22 };
static union {
  char bytes[MOST];
  float floats[MOST / 4];
  int32_t ints[MOST / 4];
} host;

// How many of the elements are not the serial sum, in the order of ranks, bit by bit.
static int64_t n_wrong(int64_t first, int64_t count) {
  int64_t wrong = 0;
  for (int64_t i = first; i < first + count; i++) {
    volatile float sum = element(0, i);
    for (int r = 1; r < n_ranks; r++) sum += element(r, i);
    union {
      float value;
      uint32_t bits;
    } want = {sum}, got = {host.floats[i]};
    wrong += want.bits != got.bits;
  }
  return wrong;
}

static hy_status sum_is_serial(int64_t count) {
  for (int64_t i = 0; i < count; i++) host.floats[i] = element(rank, i);
  void* at;
  TRY(put(host.floats, (size_t)count * 4, &at));
  TRY(hy_comm_all_reduce(comm, stream, at, at, count, HY_F32, HY_REDUCE_SUM));
  TRY(get(host.floats, (size_t)count * 4, at));
  EXPECT(n_wrong(0, count) == 0);
  return HY_OK;
}

static hy_status scatter_is_serial(int64_t count) {
  int64_t all = count * n_ranks, first = rank * count;
  for (int64_t i = 0; i < all; i++) host.floats[i] = element(rank, i);
  void* at;
  TRY(put(host.floats, (size_t)all * 4, &at));
  TRY(hy_comm_reduce_scatter(comm, stream, at, (char*)at + 4 * first, count, HY_F32,
                             HY_REDUCE_SUM));
  TRY(get(host.floats, (size_t)all * 4, at));
  EXPECT(n_wrong(first, count) == 0);
  return HY_OK;
}

// Small ones, and such as take several segments.
static hy_status order(void) {
  static const int64_t counts[] = {1, 5, 8191, 65537, 300007, 1000003};
  for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
    TRY(sum_is_serial(counts[i]));
    TRY(scatter_is_serial(counts[i] / n_ranks + 1));
  }
  return HY_OK;
}

// ---- messages and groups ----

enum { LONG = 300007 };

// Everybody sends to everybody at once, long messages that no library keeps for later.
static hy_status crossing(void) {
  int32_t* values = host.ints;
  void *out[8], *in[8];
  for (int peer = 0; peer < n_ranks; peer++) {
    for (int i = 0; i < LONG; i++) values[i] = 1000 * rank + 10 * peer + i;
    TRY(put(values, LONG * sizeof *values, &out[peer]));
    TRY(put(values, LONG * sizeof *values, &in[peer]));
  }
  TRY(hy_comm_group_begin(device));
  for (int peer = 0; peer < n_ranks; peer++) {
    if (peer == rank) continue;
    TRY(hy_comm_send(comm, stream, out[peer], LONG, HY_I32, peer));
    TRY(hy_comm_recv(comm, stream, in[peer], LONG, HY_I32, peer));
  }
  TRY(hy_comm_group_end(device));
  for (int peer = 0; peer < n_ranks; peer++) {
    TRY(get(values, LONG * sizeof *values, in[peer]));
    TRY(hy_free(device, out[peer]));
    for (int i = 0; i < LONG && peer != rank; i++) EXPECT(values[i] == 1000 * peer + 10 * rank + i);
  }
  return expect(hy_comm_group_end(device), HY_INVALID_ARGUMENT, "without hy_comm_group_begin");
}

// Ranks of the same parity, numbered backwards, found by an id that travels over the world.
static hy_status parts(void) {
  int half = rank % 2, size = (n_ranks + 1 - half) / 2, place = size - 1 - rank / 2;
  hy_comm_id id[2];
  for (int maker = 0; maker < 2; maker++) {
    void* at;
    if (rank == maker) TRY(hy_comm_unique_id(device, &id[maker]));
    TRY(put(&id[maker], sizeof id[maker], &at));
    TRY(hy_comm_broadcast(comm, stream, at, sizeof id[maker], HY_U8, maker));
    TRY(get(&id[maker], sizeof id[maker], at));
  }
  hy_comm* part;
  TRY(hy_comm_init_rank(device, size, &id[half], place, &part));
  EXPECT(hy_comm_rank(part) == place && hy_comm_size(part) == size);
  int32_t all[8] = {0}, own = rank;
  void *at, *to;
  TRY(put(&own, sizeof own, &at));
  TRY(put(all, sizeof all, &to));
  TRY(hy_comm_all_gather(part, stream, at, to, 1, HY_I32));
  TRY(get(all, sizeof all, to));
  TRY(hy_free(device, at));
  for (int i = 0; i < size; i++) EXPECT(all[i] == 2 * (size - 1 - i) + half);
  hy_comm_destroy(part);
  if (size > 1)
    TRY(expect(hy_comm_init_rank(device, size, &id[half], place, &part), HY_INVALID_ARGUMENT,
               "already joined with this id"));
  return hy_comm_barrier(comm, stream);
}

// ---- what must be an error on every rank ----

static hy_status all_reduce_of(int64_t count, hy_dtype dtype, hy_reduce_op op) {
  void* at;
  memset(&host, 0, sizeof host);
  TRY(put(&host, sizeof host, &at));
  hy_status status = hy_comm_all_reduce(comm, stream, at, at, count, dtype, op);
  if (status != HY_OK) return status;
  hy_free(device, at);
  return hy_stream_sync(stream);
}

// A second call finds what the first one may have passed by.
static hy_status disagree(hy_status first, const char* words) {
  hy_status status = first == HY_OK ? hy_comm_barrier(comm, stream) : first;
  EXPECT(status != HY_OK);
  EXPECT(hy_comm_async_error(comm) != HY_OK);
  // One of the ranks says what differs, the others say that or which rank has failed.
  if (!strstr(hy_last_error(), words) && !strstr(hy_last_error(), "has failed or aborted"))
    return expect(status, HY_INVALID_ARGUMENT, words);
  return expect(hy_comm_barrier(comm, stream), hy_comm_async_error(comm), "failed before");
}

static hy_status counts_differ(void) {
  return disagree(all_reduce_of(rank ? 1001 : 1000, HY_F32, HY_REDUCE_SUM), "count");
}

static hy_status long_counts_differ(void) {
  return disagree(all_reduce_of(rank ? 500000 : 1000000, HY_F32, HY_REDUCE_SUM), "count");
}

// What is behind the count stays as it was, however much more a rank sends.
static hy_status long_broadcast_differs(void) {
  enum { ALL = MOST, SHORT = 100000 };
  char* bytes = host.bytes;
  memset(bytes, 1 + rank, ALL);
  void* at;
  TRY(put(bytes, ALL, &at));
  hy_status status = hy_comm_broadcast(comm, stream, at, rank ? SHORT : ALL, HY_U8, 0);
  TRY(disagree(status, "count"));
  TRY(get(bytes, ALL, at));
  for (int i = SHORT; i < ALL; i++) EXPECT(bytes[i] == 1 + rank);
  return HY_OK;
}

static hy_status types_differ(void) {
  return disagree(all_reduce_of(1000, rank ? HY_I32 : HY_F32, HY_REDUCE_SUM), "i32");
}

static hy_status reductions_differ(void) {
  return disagree(all_reduce_of(1000, HY_F32, rank ? HY_REDUCE_MAX : HY_REDUCE_SUM), "maximum");
}

static hy_status calls_differ(void) {
  return disagree(rank ? hy_comm_barrier(comm, stream) : all_reduce_of(9, HY_F32, HY_REDUCE_SUM),
                  "calls");
}

static hy_status roots_differ(void) {
  char byte = 0;
  void* at;
  TRY(put(&byte, 1, &at));
  return disagree(hy_comm_broadcast(comm, stream, at, 1, HY_U8, rank == 1), "");
}

static hy_status bad_arguments(void) {
  hy_comm_id id = {{0}};
  hy_comm* other;
  TRY(expect(hy_comm_init_rank(device, 2, &id, 2, &other), HY_INVALID_ARGUMENT, "rank 2 of 2"));
  TRY(expect(hy_comm_init_rank(device, 2, &id, rank % 2, &other), HY_INVALID_ARGUMENT, "no id"));
  TRY(hy_comm_unique_id(device, &id));
  TRY(expect(hy_comm_init_rank(device, n_ranks + 1, &id, rank, &other), HY_INVALID_ARGUMENT,
             "each rank is one"));
  TRY(expect(hy_comm_send(comm, stream, &id, 1, HY_U8, n_ranks), HY_INVALID_ARGUMENT, "ranks are"));
  return hy_comm_barrier(comm, stream);
}

// Two processes come as rank 0: whoever made the id tells all.
static hy_status same_rank_twice(void) {
  hy_comm_id id;
  hy_comm* other;
  void* at;
  TRY(hy_comm_unique_id(device, &id));
  TRY(put(&id, sizeof id, &at));
  TRY(hy_comm_broadcast(comm, stream, at, sizeof id, HY_U8, 0));
  TRY(get(&id, sizeof id, at));
  TRY(expect(hy_comm_init_rank(device, n_ranks, &id, rank ? rank - 1 : 0, &other),
             HY_INVALID_ARGUMENT, "two processes joined as rank 0"));
  return hy_comm_barrier(comm, stream);
}

// An id serves for one communicator: whoever joins with it again is refused, and nobody waits.
static hy_status id_used_twice(void) {
  hy_comm_id id;
  hy_comm *first, *second;
  void* at;
  TRY(hy_comm_unique_id(device, &id));
  TRY(put(&id, sizeof id, &at));
  TRY(hy_comm_broadcast(comm, stream, at, sizeof id, HY_U8, 0));
  TRY(get(&id, sizeof id, at));
  TRY(hy_comm_init_rank(device, n_ranks, &id, rank, &first));
  TRY(hy_comm_barrier(first, stream));
  TRY(expect(hy_comm_init_rank(device, n_ranks, &id, rank, &second), HY_INVALID_ARGUMENT,
             "already joined with this id"));
  TRY(hy_comm_barrier(first, stream));
  hy_comm_destroy(first);
  return hy_comm_barrier(comm, stream);
}

static hy_status one_aborts(void) {
  if (rank == n_ranks - 1) {
    TRY(hy_comm_abort(comm));
    return expect(hy_comm_barrier(comm, stream), HY_DEVICE_FAILED, "aborted");
  }
  return expect(all_reduce_of(1000000, HY_F32, HY_REDUCE_SUM), HY_DEVICE_FAILED, "aborted");
}

// As one_aborts where a vendor's library brings the news: the stream fails, whatever it says.
static hy_status one_gives_up(void) {
  TRY(hy_comm_barrier(comm, stream));
  TRY(hy_stream_sync(stream));
  if (rank == n_ranks - 1) {
    TRY(hy_comm_abort(comm));
    TRY(expect(hy_comm_async_error(comm), HY_DEVICE_FAILED, "has aborted"));
    return expect(hy_comm_barrier(comm, stream), HY_DEVICE_FAILED, "has aborted");
  }
  TRY(expect(all_reduce_of(1000000, HY_F32, HY_REDUCE_SUM), HY_DEVICE_FAILED, ""));
  return expect(hy_comm_async_error(comm), HY_DEVICE_FAILED, "");
}

// Without a word, as when it is killed.
static hy_status one_dies(void) {
  TRY(hy_comm_barrier(comm, stream));
  TRY(hy_stream_sync(stream));
  if (rank == n_ranks - 1) {
    printf("rank %d of %d: one_dies ok\n", rank, n_ranks);
    fflush(stdout);
    _exit(0);
  }
  TRY(expect(all_reduce_of(1000000, HY_F32, HY_REDUCE_SUM), HY_DEVICE_FAILED, ""));
  return expect(hy_comm_async_error(comm), HY_DEVICE_FAILED, "");
}

// Libraries that take one rank of a communicator to a process.
static hy_status id_twice(void) {
  hy_comm_id id;
  hy_comm *one = NULL, *two = NULL;
  TRY(hy_comm_unique_id(device, &id));
  TRY(hy_comm_init_rank(device, 1, &id, 0, &one));
  hy_status status = expect(hy_comm_init_rank(device, 1, &id, 0, &two), HY_UNSUPPORTED,
                            "one rank of a communicator to a process");
  hy_comm_destroy(one);
  return status;
}

// Scratch memory of the collective cannot be had on rank 0; the others hear of it.
static hy_status one_has_no_memory(void) {
  float value = 0;
  void* at;
  TRY(put(&value, sizeof value, &at));
  if (rank == 0) hy_inject_fault(HY_FAULT_HOST_ALLOCATION, 1);
  hy_status status = hy_comm_all_reduce(comm, stream, at, at, 1, HY_F32, HY_REDUCE_SUM);
  if (rank == 0) hy_inject_fault(HY_FAULT_HOST_ALLOCATION, 0);
  return rank == 0 ? expect(status, HY_OUT_OF_MEMORY, "host memory")
                   : expect(status, HY_DEVICE_FAILED, "rank 0 has failed or aborted");
}

static void* abort_soon(void* context) {
  (void)context;
  while (hy_comm_async_error(comm) == HY_OK) hy_comm_abort(comm);
  return NULL;
}

// From a thread of rank 0, which waits for what nobody sends.
static hy_status a_thread_aborts(void) {
  float value = 0;
  void* at;
  pthread_t thread;
  TRY(put(&value, sizeof value, &at));
  if (rank == 0) EXPECT(pthread_create(&thread, NULL, abort_soon, NULL) == 0);
  hy_status status = hy_comm_recv(comm, stream, at, 1, HY_F32, rank == 0);
  if (rank == 0) pthread_join(thread, NULL);
  return expect(status, HY_DEVICE_FAILED, "aborted");
}

static hy_status one_leaves(void) {
  if (rank == n_ranks - 1) {
    hy_comm_destroy(comm);
    comm = NULL;
    return HY_OK;
  }
  return disagree(all_reduce_of(1000000, HY_F32, HY_REDUCE_SUM), "left");
}

// Two ranks wait for one another; HALYARD_COMM_TIMEOUT is short.
static hy_status two_are_late(void) {
  float value = 0;
  void* at;
  if (rank > 1) return HY_OK;
  TRY(put(&value, sizeof value, &at));
  return disagree(hy_comm_recv(comm, stream, at, 1, HY_F32, 1 - rank), "waited 0.5 s for rank");
}

// Collectives until somebody ends the process, or a rank.
static hy_status forever(void) {
  printf("rank %d is process %ld\n", rank, (long)getpid());
  fflush(stdout);
  for (;;) TRY(all_reduce_of(30000, HY_F32, HY_REDUCE_SUM));
}

static const struct {
  const char* name;
  hy_status (*run)(void);
} cases[] = {
    {"conformance", conformance},
    {"order", order},
    {"threads", threads},
    {"same_device_twice", same_device_twice},
    {"crossing", crossing},
    {"parts", parts},
    {"counts_differ", counts_differ},
    {"long_counts_differ", long_counts_differ},
    {"long_broadcast_differs", long_broadcast_differs},
    {"types_differ", types_differ},
    {"reductions_differ", reductions_differ},
    {"calls_differ", calls_differ},
    {"roots_differ", roots_differ},
    {"bad_arguments", bad_arguments},
    {"same_rank_twice", same_rank_twice},
    {"id_used_twice", id_used_twice},
    {"one_aborts", one_aborts},
    {"one_gives_up", one_gives_up},
    {"one_dies", one_dies},
    {"id_twice", id_twice},
    {"one_has_no_memory", one_has_no_memory},
    {"a_thread_aborts", a_thread_aborts},
    {"one_leaves", one_leaves},
    {"two_are_late", two_are_late},
    {"forever", forever},
};

static hy_status run(const char* name, const char* selector) {
  TRY(hy_comm_world_device(selector, &device));
  TRY(hy_stream_default(device, &stream));
  TRY(hy_comm_world_rank(&rank, &n_ranks));
  bool supported = hy_comm_supported(device);
  hy_status joined = hy_comm_world(device, &comm);
  if (hy_comm_is_native(device) && supported != (joined == HY_OK))
    return hy_fail(HY_INTERNAL, "hy_comm_supported says %s, and joining %s",
                   supported ? "yes" : "no", joined == HY_OK ? "works" : "does not");
  HY_TRY(joined);
  EXPECT(hy_comm_rank(comm) == rank && hy_comm_size(comm) == n_ranks);
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
    if (strcmp(name, cases[i].name) == 0) return cases[i].run();
  return hy_fail(HY_NOT_FOUND, "no case %s", name);
}

// Cases by commas, each with a communicator of its own.
int main(int argc, char** argv) {
  if (argc < 2) return 2;
  int failed = 0;
  char* rest = NULL;
  for (char* name = strtok_r(argv[1], ",", &rest); name; name = strtok_r(NULL, ",", &rest)) {
    hy_status status = run(name, argc > 2 ? argv[2] : "cpu");
    if (status == HY_OK)
      printf("rank %d of %d: %s ok on %s\n", rank, n_ranks, name, hy_device_selector(device));
    else
      printf("rank %d of %d: %s FAILED: %s\n", rank, n_ranks, name, hy_last_error());
    fflush(stdout);
    failed |= status != HY_OK;
    hy_comm_destroy(comm);
    comm = NULL;
  }
  hy_shutdown();
  // An mpirun ends the others where one fails, before they have said anything.
  return failed && !getenv("COMM_RANK_TOLERANT");
}
