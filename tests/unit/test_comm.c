// Communicators on the guarded device: ranks that are threads, ranks that are processes, order and
// precision of sums, messages, and every way in which a rank can fail the others.
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "halyard/halyard.h"
#include "support/check.h"
#include "verify/verify.h"

extern char** environ;

enum { MAX_RANKS = 4 };

typedef struct rank rank;
typedef hy_status (*body)(rank* r);

struct rank {
  pthread_t thread;
  int rank, n_ranks;
  const hy_comm_id* id;
  body body;
  hy_device* device;
  hy_stream* stream;
  hy_comm* comm;
  hy_status status;
  char message[512];
};

static int set_up(void** state) {
  (void)state;
  unsetenv("HALYARD_BACKEND");
  unsetenv("HALYARD_PLUGIN_PATH");
  return 0;
}

static int tear_down(void** state) {
  (void)state;
  hy_shutdown();
  unsetenv("HALYARD_GUARDED_COMM_TIMEOUT");
  unsetenv("HALYARD_GUARDED_DEVICES");
  return 0;
}

static void* join_and_run(void* context) {
  rank* r = context;
  r->status = hy_stream_create(r->device, &r->stream);
  if (r->status == HY_OK)
    r->status = hy_comm_init_rank(r->device, r->n_ranks, r->id, r->rank, &r->comm);
  if (r->status == HY_OK) r->status = r->body(r);
  if (r->status != HY_OK) snprintf(r->message, sizeof r->message, "%s", hy_last_error());
  hy_comm_destroy(r->comm);
  hy_stream_destroy(r->stream);
  return NULL;
}

static void start_rank(rank* r, int number, int n_ranks, const hy_comm_id* id, body run) {
  *r = (rank){.rank = number, .n_ranks = n_ranks, .id = id, .body = run};
  char selector[24];
  hy_backend_report report;
  CHECK_OK(hy_backend_find("guarded", &report));
  snprintf(selector, sizeof selector, "guarded:%d", number % report.device_count);
  CHECK_OK(hy_device_get(selector, &r->device));
  assert_int_equal(pthread_create(&r->thread, NULL, join_and_run, r), 0);
}

static void run_ranks(rank* ranks, int n, body run) {
  hy_device* device;
  static hy_comm_id id;
  CHECK_OK(hy_device_get("guarded", &device));
  assert_true(hy_comm_supported(device) && hy_comm_is_native(device));
  CHECK_OK(hy_comm_unique_id(device, &id));
  for (int i = 0; i < n; i++) start_rank(&ranks[i], i, n, &id, run);
  for (int i = 0; i < n; i++) pthread_join(ranks[i].thread, NULL);
}

static void check_all(const rank* ranks, int n) {
  for (int i = 0; i < n; i++)
    if (ranks[i].status != HY_OK) fail_msg("rank %d of %d: %s", i, n, ranks[i].message);
}

// Every rank failed with that status, and says so.
static void check_none(const rank* ranks, int n, hy_status status, const char* part) {
  for (int i = 0; i < n; i++) {
    if (ranks[i].status != status || !strstr(ranks[i].message, part))
      fail_msg("rank %d: %s: \"%s\" does not say \"%s\"", i, hy_status_name(ranks[i].status),
               ranks[i].message, part);
  }
}

static void load(void) {
  CHECK_OK(hy_load_plugin(HALYARD_GUARDED_PLUGIN));
}

// Done with `data` on return.
static hy_status put(rank* r, const void* data, size_t bytes, void** address) {
  HY_TRY(hy_alloc(r->stream, bytes, address));
  HY_TRY(hy_memcpy(r->stream, *address, data, bytes, HY_COPY_HOST_TO_DEVICE));
  return hy_stream_sync(r->stream);
}

static hy_status get(rank* r, void* data, size_t bytes, void* address) {
  HY_TRY(hy_memcpy(r->stream, data, address, bytes, HY_COPY_DEVICE_TO_HOST));
  HY_TRY(hy_stream_sync(r->stream));
  return hy_free(r->device, address);
}

// ---- what is computed ----

static hy_status sum_where_order_shows(rank* r) {
  // In the order of ranks 0; in another order 1.
  static const float f32[] = {1, 0x1p30f, -0x1p30f};
  // In 16 bits along the way, the ones would be lost.
  static const uint16_t ones_bf16[] = {0x4380, 0x3f80, 0x3f80};  // 256 + 1 + 1
  static const uint16_t ones_f16[] = {0x6800, 0x3c00, 0x3c00};   // 2048 + 1 + 1
  void* at;
  float sum;
  uint16_t half;
  HY_TRY(put(r, &f32[r->rank], sizeof sum, &at));
  HY_TRY(hy_comm_all_reduce(r->comm, r->stream, at, at, 1, HY_F32, HY_REDUCE_SUM));
  HY_TRY(get(r, &sum, sizeof sum, at));
  if (sum != 0) return hy_fail(HY_INTERNAL, "the sum is %g, not made in the order of ranks", sum);
  const struct {
    const uint16_t* values;
    hy_dtype dtype;
    uint16_t want;
  } cases[] = {{ones_bf16, HY_BF16, 0x4381}, {ones_f16, HY_F16, 0x6801}};
  for (int i = 0; i < 2; i++) {
    HY_TRY(put(r, &cases[i].values[r->rank], sizeof half, &at));
    HY_TRY(hy_comm_all_reduce(r->comm, r->stream, at, at, 1, cases[i].dtype, HY_REDUCE_SUM));
    HY_TRY(get(r, &half, sizeof half, at));
    if (half != cases[i].want)
      return hy_fail(HY_INTERNAL, "case %d: %04x, not %04x", i, half, cases[i].want);
  }
  return HY_OK;
}

static void sums_are_made_in_the_order_of_ranks(void** state) {
  (void)state;
  load();
  rank ranks[3];
  run_ranks(ranks, 3, sum_where_order_shows);
  check_all(ranks, 3);
}

// What arithmetic in 16 bits makes of the ends of its range.
static hy_status reduce_special(rank* r) {
  static const uint16_t f16[][2] = {
      {0x7bff, 0x7bff},  // the largest, twice: infinity
      {0x0001, 0x0001},  // the smallest, twice
      {0x03ff, 0x0001},  // the largest subnormal and the smallest: the smallest normal
      {0x7c00, 0xfc00},  // infinity less infinity
      {0x8000, 0x8000},  // -0 stays
  };
  static const uint16_t want[] = {0x7c00, 0x0002, 0x0400, 0x7e00, 0x8000};
  for (int i = 0; i < 5; i++) {
    uint16_t half;
    void* at;
    HY_TRY(put(r, &f16[i][r->rank], 2, &at));
    HY_TRY(hy_comm_all_reduce(r->comm, r->stream, at, at, 1, HY_F16, HY_REDUCE_SUM));
    HY_TRY(get(r, &half, 2, at));
    bool nan = (half & 0x7fff) > 0x7c00;
    if (half != want[i] && !(nan && want[i] == 0x7e00))
      return hy_fail(HY_INTERNAL, "case %d: %04x, not %04x", i, half, want[i]);
  }
  return HY_OK;
}

static void halves_reach_the_ends_of_their_range(void** state) {
  (void)state;
  load();
  rank ranks[2];
  run_ranks(ranks, 2, reduce_special);
  check_all(ranks, 2);
}

// Every op, type, odd size, in place and not, with 1 to 4 ranks; on one device and on several.
static void conformance_passes(void** state) {
  (void)state;
  for (int devices = 1; devices <= 3; devices += 2) {
    setenv("HALYARD_GUARDED_DEVICES", devices == 1 ? "1" : "3", 1);
    load();
    hy_device* device;
    hy__op_verdict verdict = {0};
    CHECK_OK(hy_device_get("guarded", &device));
    CHECK_OK(hy__verify_communicators(device, &verdict));
    if (verdict.failed > 0) fail_msg("%s", verdict.failure);
    assert_true(verdict.passed > 500);
    assert_int_equal(verdict.unsupported, 0);
    hy_shutdown();
  }
}

// ---- messages ----

enum { LONG = 100003 };

// Both send first, more than is on the way; then two short ones, which keep their order.
static hy_status swap(rank* r) {
  int peer = 1 - r->rank;
  int32_t* data = malloc(LONG * sizeof *data);
  if (!data) return hy_fail(HY_OUT_OF_MEMORY, "no memory");
  for (int i = 0; i < LONG; i++) data[i] = i * 2 + r->rank;
  void *out, *in;
  HY_TRY(put(r, data, LONG * sizeof *data, &out));
  HY_TRY(hy_alloc(r->stream, LONG * sizeof *data, &in));
  HY_TRY(hy_comm_group_begin(r->device));
  HY_TRY(hy_comm_send(r->comm, r->stream, out, LONG, HY_I32, peer));
  HY_TRY(hy_comm_recv(r->comm, r->stream, in, LONG, HY_I32, peer));
  HY_TRY(hy_comm_group_end(r->device));
  HY_TRY(get(r, data, LONG * sizeof *data, in));
  hy_status status = HY_OK;
  for (int i = 0; i < LONG && status == HY_OK; i++)
    if (data[i] != i * 2 + peer) status = hy_fail(HY_INTERNAL, "element %d is %d", i, data[i]);
  free(data);
  HY_TRY(status);
  int32_t two[2] = {r->rank + 10, r->rank + 20};
  void *first, *second;
  HY_TRY(put(r, &two[0], 4, &first));
  HY_TRY(put(r, &two[1], 4, &second));
  if (r->rank == 0) {
    HY_TRY(hy_comm_send(r->comm, r->stream, first, 1, HY_I32, peer));
    HY_TRY(hy_comm_send(r->comm, r->stream, second, 1, HY_I32, peer));
  } else {
    HY_TRY(hy_comm_recv(r->comm, r->stream, first, 1, HY_I32, peer));
    HY_TRY(hy_comm_recv(r->comm, r->stream, second, 1, HY_I32, peer));
  }
  HY_TRY(get(r, &two[0], 4, first));
  HY_TRY(get(r, &two[1], 4, second));
  if (two[0] != 10 || two[1] != 20) return hy_fail(HY_INTERNAL, "%d, %d", two[0], two[1]);
  return hy_free(r->device, out);
}

static void messages_cross_and_keep_their_order(void** state) {
  (void)state;
  load();
  rank ranks[2];
  run_ranks(ranks, 2, swap);
  check_all(ranks, 2);
}

// One communicator on two streams: its calls keep the order in which they were made.
static hy_status use_two_streams(rank* r) {
  hy_stream* other;
  HY_TRY(hy_stream_create(r->device, &other));
  enum { N = 40 };
  int32_t values[N];
  void* at[N];
  for (int i = 0; i < N; i++) {
    values[i] = r->rank + i;
    HY_TRY(put(r, &values[i], 4, &at[i]));
  }
  HY_TRY(hy_stream_sync(r->stream));
  for (int i = 0; i < N; i++)
    HY_TRY(hy_comm_all_reduce(r->comm, i % 2 ? other : r->stream, at[i], at[i], 1, HY_I32,
                              HY_REDUCE_SUM));
  HY_TRY(hy_stream_sync(other));
  for (int i = 0; i < N; i++) {
    HY_TRY(get(r, &values[i], 4, at[i]));
    if (values[i] != 3 * i + 3) return hy_fail(HY_INTERNAL, "sum %d is %d", i, values[i]);
  }
  hy_stream_destroy(other);
  return HY_OK;
}

static void two_streams_keep_the_communicators_order(void** state) {
  (void)state;
  load();
  rank ranks[3];
  run_ranks(ranks, 3, use_two_streams);
  check_all(ranks, 3);
}

// ---- what is refused ----

static hy_status try_mistakes(rank* r) {
#define REFUSED(status, part, expression)                                          \
  if ((expression) != (status) || !strstr(hy_last_error(), part))                  \
    return hy_fail(HY_INTERNAL, "%s: \"%.300s\" does not say \"%s\"", #expression, \
                   hy_last_error(), part);
  void* at;
  hy_comm* c = r->comm;
  hy_stream* s = r->stream;
  float data[8] = {0};
  HY_TRY(put(r, data, sizeof data, &at));
  char* p = at;
  REFUSED(HY_INVALID_ARGUMENT, "comm is NULL", hy_comm_barrier(NULL, s))
  REFUSED(HY_INVALID_ARGUMENT, "stream is NULL", hy_comm_barrier(c, NULL))
  REFUSED(HY_INVALID_ARGUMENT, "the count is -1",
          hy_comm_all_reduce(c, s, p, p, -1, HY_F32, HY_REDUCE_SUM))
  REFUSED(HY_INVALID_ARGUMENT, "more than memory",
          hy_comm_all_gather(c, s, p, p, INT64_MAX, HY_F32))
  REFUSED(HY_INVALID_ARGUMENT, "send buffer is NULL",
          hy_comm_all_reduce(c, s, NULL, p, 1, HY_F32, HY_REDUCE_SUM))
  REFUSED(HY_INVALID_ARGUMENT, "receive buffer is NULL",
          hy_comm_recv(c, s, NULL, 1, HY_F32, 1 - r->rank))
  REFUSED(HY_DTYPE, "does not take bool", hy_comm_all_reduce(c, s, p, p, 1, HY_BOOL, HY_REDUCE_MAX))
  REFUSED(HY_DTYPE, "as u8", hy_comm_broadcast(c, s, p, 1, HY_I4, 0))
  REFUSED(HY_DTYPE, "average of i32", hy_comm_all_reduce(c, s, p, p, 1, HY_I32, HY_REDUCE_AVG))
  REFUSED(HY_INVALID_ARGUMENT, "9 is no reduction",
          hy_comm_all_reduce(c, s, p, p, 1, HY_F32, (hy_reduce_op)9))
  REFUSED(HY_OVERLAP, "overlap", hy_comm_all_reduce(c, s, p, p + 4, 2, HY_F32, HY_REDUCE_SUM))
  REFUSED(HY_OVERLAP, "overlap", hy_comm_all_gather(c, s, p + 4 * (1 - r->rank), p, 1, HY_F32))
  REFUSED(HY_INVALID_ARGUMENT, "ranks are 0 to 1", hy_comm_broadcast(c, s, p, 1, HY_F32, 2))
  REFUSED(HY_INVALID_ARGUMENT, "ranks are 0 to 1", hy_comm_send(c, s, p, 1, HY_F32, -1))
  REFUSED(HY_INVALID_ARGUMENT, "itself", hy_comm_send(c, s, p, 1, HY_F32, r->rank))
  REFUSED(HY_INVALID_ARGUMENT, "are not in one allocation",
          hy_comm_send(c, s, data, 1, HY_F32, 1 - r->rank))
  hy_device* cpu;
  hy_stream* elsewhere;
  HY_TRY(hy_device_get("cpu", &cpu));
  HY_TRY(hy_stream_default(cpu, &elsewhere));
  REFUSED(HY_INVALID_ARGUMENT, "of guarded:0, the stream of cpu:0", hy_comm_barrier(c, elsewhere))
#undef REFUSED
  HY_TRY(hy_comm_all_reduce(c, s, NULL, NULL, 0, HY_F32, HY_REDUCE_SUM));  // nothing to do
  HY_TRY(hy_comm_barrier(c, s));  // after all of it the communicator is as good as new
  HY_TRY(hy_stream_sync(s));
  if (hy_comm_rank(c) != r->rank || hy_comm_size(c) != 2 || hy_comm_device(c) != r->device)
    return hy_fail(HY_INTERNAL, "the communicator does not know itself");
  HY_TRY(hy_comm_async_error(c));
  return hy_free(r->device, at);
}

static void mistakes_are_refused(void** state) {
  (void)state;
  load();
  rank ranks[2];
  run_ranks(ranks, 2, try_mistakes);
  check_all(ranks, 2);
  hy_device *guarded, *cpu;
  hy_comm* comm;
  static hy_comm_id id;
  CHECK_OK(hy_device_get("guarded", &guarded));
  CHECK_OK(hy_device_get("cpu", &cpu));
  assert_false(hy_comm_supported(NULL));
  // The cpu has communicators by MPI, and here no library is found.
  setenv("HALYARD_MPI", "libno_such_mpi.so", 1);
  assert_false(hy_comm_supported(cpu));
  assert_false(hy_comm_is_native(cpu));
  CHECK_FAILS(HY_UNAVAILABLE, "need an MPI library", hy_comm_unique_id(cpu, &id));
  CHECK_FAILS(HY_UNAVAILABLE, "install Open MPI or MPICH", hy_comm_unique_id(cpu, &id));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "no id", hy_comm_init_rank(cpu, 2, &id, 0, &comm));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "hy_comm_group_begin", hy_comm_group_end(cpu));
  unsetenv("HALYARD_MPI");
  CHECK_FAILS(HY_INVALID_ARGUMENT, "device is NULL", hy_comm_unique_id(NULL, &id));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "rank 2 of 2", hy_comm_init_rank(guarded, 2, &id, 2, &comm));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "rank 0 of 0", hy_comm_init_rank(guarded, 0, &id, 0, &comm));
  memset(&id, 0, sizeof id);
  CHECK_FAILS(HY_INVALID_ARGUMENT, "not made by", hy_comm_init_rank(guarded, 1, &id, 0, &comm));
  CHECK_OK(hy_comm_unique_id(guarded, &id));
  CHECK_FAILS(HY_UNSUPPORTED, "at most 16", hy_comm_init_rank(guarded, 17, &id, 0, &comm));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "without group_begin", hy_comm_group_end(guarded));
}

// Of one rank, without a launcher and without a library.
static void one_rank_needs_no_library(void** state) {
  (void)state;
  hy_device* cpu;
  hy_stream* stream;
  hy_comm* comm;
  int rank = -1, size = -1;
  float values[3] = {1, 2, 3}, copy[3] = {0};
  CHECK_OK(hy_comm_world_rank(&rank, &size));
  assert_int_equal(rank, 0);
  assert_int_equal(size, 1);
  CHECK_OK(hy_device_get("cpu", &cpu));
  CHECK_OK(hy_stream_default(cpu, &stream));
  CHECK_OK(hy_comm_world(cpu, &comm));
  assert_string_equal(hy_comm_provider(comm), "mpi");
  CHECK_OK(hy_comm_all_reduce(comm, stream, values, copy, 3, HY_F32, HY_REDUCE_AVG));
  assert_memory_equal(values, copy, sizeof values);
  CHECK_OK(hy_comm_barrier(comm, stream));
  hy_comm_destroy(comm);
}

static void launchers_are_understood(void** state) {
  (void)state;
  int rank, size;
  setenv("PMI_RANK", "1", 1);
  CHECK_FAILS(HY_INVALID_ARGUMENT, "PMI_SIZE is not set", hy_comm_world_rank(&rank, &size));
  setenv("PMI_SIZE", "3", 1);
  CHECK_OK(hy_comm_world_rank(&rank, &size));
  assert_int_equal(rank, 1);
  assert_int_equal(size, 3);
  setenv("HALYARD_RANK", "4", 1);
  setenv("HALYARD_WORLD_SIZE", "4", 1);
  CHECK_FAILS(HY_INVALID_ARGUMENT, "no number from 0 to 3", hy_comm_world_rank(&rank, &size));
  setenv("HALYARD_RANK", "3", 1);
  CHECK_OK(hy_comm_world_rank(&rank, &size));
  assert_int_equal(rank, 3);
  assert_int_equal(size, 4);
  unsetenv("PMI_RANK");
  unsetenv("PMI_SIZE");
  unsetenv("HALYARD_RANK");
  unsetenv("HALYARD_WORLD_SIZE");
}

// Each launcher's variable, or the rank among all; the devices go round.
static void ranks_of_a_machine_have_their_own_device(void** state) {
  (void)state;
  static const char* const names[] = {"LOCAL_RANK", "SLURM_LOCALID", "MPI_LOCALRANKID",
                                      "OMPI_COMM_WORLD_LOCAL_RANK", "HALYARD_LOCAL_RANK"};
  int local;
  hy_device* device;
  CHECK_OK(hy_comm_local_rank(&local));
  assert_int_equal(local, 0);
  setenv("HALYARD_RANK", "5", 1);
  setenv("HALYARD_WORLD_SIZE", "8", 1);
  CHECK_OK(hy_comm_local_rank(&local));
  assert_int_equal(local, 5);
  for (int i = 0; i < 5; i++) {  // each before those that were set
    char value[4] = {(char)('1' + i), 0};
    setenv(names[i], value, 1);
    CHECK_OK(hy_comm_local_rank(&local));
    assert_int_equal(local, 1 + i);
  }
  CHECK_OK(hy_comm_world_device("cpu", &device));  // one device, which all have
  assert_int_equal(hy_device_index(device), 0);
  CHECK_FAILS(HY_NOT_FOUND, "there is no cpu:1", hy_comm_world_device("cpu:1", &device));
  CHECK_OK(hy_comm_world_device("nowhere,cpu", &device));
  setenv("HALYARD_LOCAL_RANK", "-1", 1);
  CHECK_FAILS(HY_INVALID_ARGUMENT, "HALYARD_LOCAL_RANK", hy_comm_world_device("cpu", &device));
  for (int i = 0; i < 5; i++) unsetenv(names[i]);
  unsetenv("HALYARD_RANK");
  unsetenv("HALYARD_WORLD_SIZE");
}

static void torchrun_is_told_what_would_be_right(void** state) {
  (void)state;
  int rank, size;
  setenv("MASTER_ADDR", "127.0.0.1", 1);
  CHECK_OK(hy_comm_world_rank(&rank, &size));  // a leftover: there is no rank
  assert_int_equal(size, 1);
  setenv("RANK", "1", 1);
  setenv("WORLD_SIZE", "2", 1);
  CHECK_FAILS(HY_UNSUPPORTED, "mpirun -n 2", hy_comm_world_rank(&rank, &size));
  setenv("HALYARD_COMM_FILE", "/nowhere", 1);
  CHECK_OK(hy_comm_world_rank(&rank, &size));
  assert_int_equal(rank, 1);
  assert_int_equal(size, 2);
  setenv("RANK", "2", 1);
  CHECK_FAILS(HY_INVALID_ARGUMENT, "no number from 0 to 1", hy_comm_world_rank(&rank, &size));
  setenv("PMI_RANK", "0", 1);  // mpirun knows better
  setenv("PMI_SIZE", "3", 1);
  CHECK_OK(hy_comm_world_rank(&rank, &size));
  assert_int_equal(size, 3);
  static const char* const all[] = {"MASTER_ADDR",       "RANK",     "WORLD_SIZE",
                                    "HALYARD_COMM_FILE", "PMI_RANK", "PMI_SIZE"};
  for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) unsetenv(all[i]);
}

static hy_status disagree(rank* r) {
  void* at;
  float data[6] = {0};
  HY_TRY(put(r, data, sizeof data, &at));
  HY_TRY(hy_comm_all_reduce(r->comm, r->stream, at, at, 5 + r->rank, HY_F32, HY_REDUCE_SUM));
  return hy_stream_sync(r->stream);
}

static hy_status disagree_in_messages(rank* r) {
  void* at;
  float data[6] = {0};
  HY_TRY(put(r, data, sizeof data, &at));
  if (r->rank == 0)
    HY_TRY(hy_comm_send(r->comm, r->stream, at, 2, HY_F32, 1));
  else
    HY_TRY(hy_comm_recv(r->comm, r->stream, at, 3, HY_F32, 0));
  HY_TRY(hy_comm_barrier(r->comm, r->stream));
  return hy_stream_sync(r->stream);
}

static void ranks_that_disagree_are_told(void** state) {
  (void)state;
  load();
  rank ranks[2];
  run_ranks(ranks, 2, disagree);
  check_none(ranks, 2, HY_INVALID_ARGUMENT, "all_reduce of 5 f32, rank 1 calls all_reduce of 6");
  run_ranks(ranks, 2, disagree_in_messages);
  check_none(ranks, 2, HY_INVALID_ARGUMENT, "rank 0 sends 8 bytes of f32, rank 1 receives 12");
}

// ---- ranks that fail the others ----

static hy_status wait_or_abort(rank* r) {
  if (r->rank == 1) HY_TRY(hy_comm_abort(r->comm));
  hy_status status = hy_comm_barrier(r->comm, r->stream);
  if (status == HY_OK) status = hy_stream_sync(r->stream);
  hy_status found = hy_comm_async_error(r->comm);
  return status == HY_OK ? HY_OK : found;
}

static void an_abort_ends_everybodys_work(void** state) {
  (void)state;
  load();
  rank ranks[3];
  run_ranks(ranks, 3, wait_or_abort);
  check_none(ranks, 3, HY_DEVICE_FAILED, "rank 1 has aborted");
}

static hy_status leave_or_wait(rank* r) {
  if (r->rank == 1) return HY_OK;
  HY_TRY(hy_comm_barrier(r->comm, r->stream));
  return hy_stream_sync(r->stream);
}

static void a_rank_that_left_is_named(void** state) {
  (void)state;
  load();
  rank ranks[3];
  run_ranks(ranks, 3, leave_or_wait);
  assert_int_equal(ranks[1].status, HY_OK);
  ranks[1] = ranks[2];
  check_none(ranks, 2, HY_DEVICE_FAILED, "rank 1 has left");
  assert_non_null(strstr(ranks[0].message, "barrier"));
}

static pthread_barrier_t all_are_through;

// Rank 1 is there and does nothing until rank 0 has given up.
static hy_status wait_for_nothing(rank* r) {
  hy_status status = HY_OK;
  if (r->rank == 0) {
    void* at;
    float one = 1;
    status = put(r, &one, sizeof one, &at);
    if (status == HY_OK) status = hy_comm_recv(r->comm, r->stream, at, 1, HY_F32, 1);
    if (status == HY_OK) status = hy_stream_sync(r->stream);
    // The stream stays failed, and says so again.
    if (status != HY_OK && hy_comm_barrier(r->comm, r->stream) == HY_OK)
      status = hy_fail(HY_INTERNAL, "the failed stream took more work");
    if (status == HY_DEVICE_FAILED) status = hy_comm_async_error(r->comm);
  }
  pthread_barrier_wait(&all_are_through);
  return r->rank == 0 ? status : hy_comm_async_error(r->comm);
}

static void a_rank_that_does_nothing_is_given_up(void** state) {
  (void)state;
  setenv("HALYARD_GUARDED_COMM_TIMEOUT", "100", 1);
  load();
  rank ranks[2];
  pthread_barrier_init(&all_are_through, NULL, 2);
  run_ranks(ranks, 2, wait_for_nothing);
  pthread_barrier_destroy(&all_are_through);
  check_none(ranks, 2, HY_DEVICE_FAILED, "recv on rank 0 of 2 waited 100 ms for rank 1");
}

static void a_rank_that_never_joins_is_named(void** state) {
  (void)state;
  setenv("HALYARD_GUARDED_COMM_TIMEOUT", "100", 1);
  load();
  hy_device* device;
  hy_comm* comm;
  static hy_comm_id id;
  CHECK_OK(hy_device_get("guarded", &device));
  CHECK_OK(hy_comm_unique_id(device, &id));
  CHECK_FAILS(HY_DEVICE_FAILED, "waited 100 ms for rank 0, 2",
              hy_comm_init_rank(device, 3, &id, 1, &comm));
  assert_null(comm);
  setenv("HALYARD_GUARDED_COMM_TIMEOUT", "soon", 1);
  hy_shutdown();
  CHECK_FAILS(HY_INVALID_ARGUMENT, "\"soon\" is not a number",
              hy_load_plugin(HALYARD_GUARDED_PLUGIN));
}

// A stream that has failed cannot take part: the others hear of it.
static hy_status fail_before(rank* r) {
  if (r->rank == 1) {
    void* at;
    float one = 1;
    HY_TRY(put(r, &one, sizeof one, &at));
    hy_tensor t;
    HY_TRY(hy_tensor_init(&t, at, HY_F32, 0, NULL));
    hy_call call = {.op = HY_OP_exp, .n_in = 1, .n_out = 1, .in = &t, .out = &t};
    HY_TRY(hy_run(r->stream, &call));
  }
  hy_status status = hy_comm_barrier(r->comm, r->stream);
  return status == HY_OK ? hy_stream_sync(r->stream) : status;
}

static void a_failed_stream_is_told_to_the_others(void** state) {
  (void)state;
  setenv("HALYARD_GUARDED_FAIL", "exp", 1);
  setenv("HALYARD_GUARDED_COMM_TIMEOUT", "1000", 1);
  load();
  unsetenv("HALYARD_GUARDED_FAIL");
  rank ranks[2];
  run_ranks(ranks, 2, fail_before);
  assert_int_equal(ranks[1].status, HY_DEVICE_FAILED);
  assert_non_null(strstr(ranks[1].message, "exp"));
  assert_int_equal(ranks[0].status, HY_DEVICE_FAILED);
  // Where the failure shows before the barrier is made, rank 1 makes none and leaves.
  if (!strstr(ranks[0].message, "a stream of rank 1 has failed") &&
      !strstr(ranks[0].message, "rank 1 has left"))
    fail_msg("%s", ranks[0].message);
}

static void shutdown_ends_what_waits(void** state) {
  (void)state;
  load();
  hy_device* device;
  static hy_comm_id id;
  CHECK_OK(hy_device_get("guarded", &device));
  CHECK_OK(hy_comm_unique_id(device, &id));
  // Both ranks of this thread wait for the join: another thread brings the second.
  rank other;
  start_rank(&other, 1, 2, &id, leave_or_wait);
  hy_stream* stream;
  hy_comm* comm;
  void* at;
  CHECK_OK(hy_stream_create(device, &stream));
  CHECK_OK(hy_comm_init_rank(device, 2, &id, 0, &comm));
  CHECK_OK(hy_alloc(stream, 4, &at));
  pthread_join(other.thread, NULL);
  CHECK_OK(hy_comm_recv(comm, stream, at, 1, HY_F32, 1));
  hy_shutdown();
}

// ---- processes ----

static hy_status sum_up(rank* r) {
  void* at;
  double value = 1 << r->rank;
  HY_TRY(put(r, &value, sizeof value, &at));
  HY_TRY(hy_comm_all_reduce(r->comm, r->stream, at, at, 1, HY_F64, HY_REDUCE_SUM));
  HY_TRY(get(r, &value, sizeof value, at));
  HY_TRY(hy_comm_barrier(r->comm, r->stream));
  HY_TRY(hy_stream_sync(r->stream));
  return value == (1 << r->n_ranks) - 1 ? HY_OK : hy_fail(HY_INTERNAL, "the sum is %g", value);
}

static hy_status wait_to_be_killed(rank* r) {
  printf("joined\n");
  fflush(stdout);
  HY_TRY(hy_comm_recv(r->comm, r->stream, NULL, 0, HY_F32, 0));
  for (;;) pause();
}

// This program again, as one rank: test_comm --rank R N ID BODY
static int be_a_rank(char** words) {
  static hy_comm_id id;
  snprintf((char*)id.bytes, sizeof id.bytes, "%s", words[4]);
  if (hy_load_plugin(HALYARD_GUARDED_PLUGIN) != HY_OK) return 2;
  rank r = {.rank = atoi(words[2]), .n_ranks = atoi(words[3]), .id = &id};
  r.body = strcmp(words[5], "sum") == 0 ? sum_up : wait_to_be_killed;
  if (hy_device_get("guarded", &r.device) != HY_OK) return 3;
  join_and_run(&r);
  if (r.status != HY_OK) fprintf(stderr, "rank %d: %s\n", r.rank, r.message);
  hy_shutdown();
  return r.status == HY_OK ? 0 : 1;
}

static pid_t spawn(int number, int n_ranks, const hy_comm_id* id, const char* what, int output) {
  char rank_text[8], n_text[8], program[] = "/proc/self/exe", flag[] = "--rank", text[64], word[8];
  snprintf(rank_text, sizeof rank_text, "%d", number);
  snprintf(n_text, sizeof n_text, "%d", n_ranks);
  snprintf(text, sizeof text, "%.60s", (const char*)id->bytes);
  snprintf(word, sizeof word, "%s", what);
  char* words[] = {program, flag, rank_text, n_text, text, word, NULL};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  if (output >= 0) posix_spawn_file_actions_adddup2(&actions, output, 1);
  pid_t child;
  assert_int_equal(posix_spawn(&child, program, &actions, NULL, words, environ), 0);
  posix_spawn_file_actions_destroy(&actions);
  return child;
}

static void processes_meet(void** state) {
  (void)state;
  load();
  hy_device* device;
  static hy_comm_id id;
  CHECK_OK(hy_device_get("guarded", &device));
  CHECK_OK(hy_comm_unique_id(device, &id));
  rank ranks[2];
  start_rank(&ranks[0], 0, 4, &id, sum_up);
  start_rank(&ranks[1], 2, 4, &id, sum_up);
  pid_t children[] = {spawn(1, 4, &id, "sum", -1), spawn(3, 4, &id, "sum", -1)};
  for (int i = 0; i < 2; i++) pthread_join(ranks[i].thread, NULL);
  check_all(ranks, 2);
  for (int i = 0; i < 2; i++) {
    int status;
    assert_int_equal(waitpid(children[i], &status, 0), children[i]);
    assert_int_equal(status, 0);
  }
}

static int child_output;
static pid_t child;

static hy_status kill_the_other(rank* r) {
  char word[8];
  int status;
  if (read(child_output, word, sizeof word) <= 0)
    return hy_fail(HY_INTERNAL, "the other process did not join");
  kill(child, SIGKILL);
  waitpid(child, &status, 0);
  HY_TRY(hy_comm_barrier(r->comm, r->stream));
  return hy_stream_sync(r->stream);
}

static void a_process_that_dies_is_named(void** state) {
  (void)state;
  load();
  hy_device* device;
  static hy_comm_id id;
  int ends[2];
  assert_int_equal(pipe(ends), 0);
  CHECK_OK(hy_device_get("guarded", &device));
  CHECK_OK(hy_comm_unique_id(device, &id));
  child = spawn(1, 2, &id, "wait", ends[1]);
  close(ends[1]);
  child_output = ends[0];
  rank r;
  start_rank(&r, 0, 2, &id, kill_the_other);
  pthread_join(r.thread, NULL);
  close(ends[0]);
  check_none(&r, 1, HY_DEVICE_FAILED, "has died");
  assert_non_null(strstr(r.message, "rank 1 (process "));
}

int main(int argc, char** argv) {
  if (argc == 6 && strcmp(argv[1], "--rank") == 0) return be_a_rank(argv);
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
  const struct CMUnitTest tests[] = {
      TEST(sums_are_made_in_the_order_of_ranks),
      TEST(halves_reach_the_ends_of_their_range),
      TEST(conformance_passes),
      TEST(messages_cross_and_keep_their_order),
      TEST(two_streams_keep_the_communicators_order),
      TEST(mistakes_are_refused),
      TEST(one_rank_needs_no_library),
      TEST(launchers_are_understood),
      TEST(ranks_of_a_machine_have_their_own_device),
      TEST(torchrun_is_told_what_would_be_right),
      TEST(ranks_that_disagree_are_told),
      TEST(an_abort_ends_everybodys_work),
      TEST(a_rank_that_left_is_named),
      TEST(a_rank_that_does_nothing_is_given_up),
      TEST(a_rank_that_never_joins_is_named),
      TEST(a_failed_stream_is_told_to_the_others),
      TEST(shutdown_ends_what_waits),
      TEST(processes_meet),
      TEST(a_process_that_dies_is_named),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
