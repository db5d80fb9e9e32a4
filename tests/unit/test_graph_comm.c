// Collectives in graphs: passes keep all of them in their order, ranks compare theirs before the
// first launch, a launch makes them, and what cannot hold them says so.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "halyard/halyard.h"
#include "support/check.h"

static hy_device* device;
static hy_stream* stream;
static hy_comm* comm;

// On the cpu a communicator of one rank needs no library.
static int set_up(void** state) {
  (void)state;
  CHECK_OK(hy_device_get("cpu", &device));
  CHECK_OK(hy_stream_create(device, &stream));
  CHECK_OK(hy_comm_world(device, &comm));
  assert_int_equal(hy_comm_size(comm), 1);
  return 0;
}

static int tear_down(void** state) {
  (void)state;
  hy_shutdown();
  unsetenv("HALYARD_GUARDED_LACKS");
  unsetenv("HALYARD_GUARDED_DEVICES");
  return 0;
}

// ---- random graphs ----

static uint64_t random_state;
static uint32_t draw(uint32_t n) {
  random_state = random_state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)(random_state >> 33) % n;
}

enum { ROWS = 4, COLUMNS = 16, SIZE = ROWS * COLUMNS, MOST = 48, MOST_COLLECTIVES = 16 };

// What was said, in order. Each has another count, so that no two are the same.
typedef struct said {
  hy_collective_kind kind[MOST_COLLECTIVES];
  int64_t count[MOST_COLLECTIVES];
  int n;
} said;

static void note(said* list, hy_collective_kind kind, int64_t count) {
  assert_true(list->n < MOST_COLLECTIVES);
  list->kind[list->n] = kind;
  list->count[list->n++] = count;
}

// A collective of x or of a copy; what it writes may be read by nobody.
static hy_array* talk(hy_scope* s, hy_array* x, said* list) {
  const hy_tensor* from = hy_array_tensor(x);
  int64_t count = SIZE - list->n;
  uint32_t how = draw(6);
  if (how == 0) {
    note(list, HY_COLLECTIVE_BARRIER, 0);
    HY_SCOPE_TRY(s, hy_comm_barrier(comm, stream));
    return x;
  }
  hy_array* y = how < 3 ? hy_s_clone(s, x) : hy_s_zeros(s, HY_F32, HY_SIZES(ROWS, COLUMNS));
  if (s->status != HY_OK) return NULL;
  void* to = hy_array_tensor(y)->data;
  if (how == 1) {
    note(list, HY_COLLECTIVE_ALL_REDUCE, count);
    HY_SCOPE_TRY(s, hy_comm_all_reduce(comm, stream, to, to, count, HY_F32, HY_REDUCE_SUM));
  } else if (how == 2) {
    note(list, HY_COLLECTIVE_BROADCAST, count);
    HY_SCOPE_TRY(s, hy_comm_broadcast(comm, stream, to, count, HY_F32, 0));
  } else if (how == 3) {
    note(list, HY_COLLECTIVE_ALL_REDUCE, count);
    HY_SCOPE_TRY(s, hy_comm_all_reduce(comm, stream, from->data, to, count, HY_F32, HY_REDUCE_MAX));
  } else if (how == 4) {
    note(list, HY_COLLECTIVE_ALL_GATHER, count);
    HY_SCOPE_TRY(s, hy_comm_all_gather(comm, stream, from->data, to, count, HY_F32));
  } else {
    note(list, HY_COLLECTIVE_REDUCE_SCATTER, count);
    HY_SCOPE_TRY(
        s, hy_comm_reduce_scatter(comm, stream, from->data, to, count, HY_F32, HY_REDUCE_SUM));
  }
  return y;
}

static hy_array* compute(hy_scope* s, hy_array* a, hy_array* b) {
  switch (draw(8)) {
    case 0: return hy_s_add(s, a, b, hy_int(1));
    case 1: return hy_s_mul(s, a, b);
    case 2: return hy_s_tanh(s, a);
    case 3: return hy_s_clone(s, a);
    case 4: return hy_s_mul_scalar(s, a, hy_float(0.75));
    case 5: return hy_s_softmax(s, a, -1);
    case 6: return hy_s_add(s, a, hy_s_sum(s, b, hy_one_dim(-1), true), hy_float(0.1));
    default: return hy_s_sigmoid(s, a);
  }
}

static hy_array* run_program(uint64_t seed, hy_tape* tape, hy_array* x, said* list) {
  hy_scope s;
  hy_array* arrays[MOST] = {x};
  int n = 1, steps;
  random_state = seed;
  list->n = 0;
  hy_scope_begin(&s, tape);
  steps = 6 + (int)draw(MOST - 8);
  for (int i = 0; i < steps; i++) {
    bool talks = draw(3) == 0 && list->n < MOST_COLLECTIVES;
    hy_array *a = arrays[draw((uint32_t)n)], *b = arrays[draw((uint32_t)n)];
    arrays[n++] = talks ? talk(&s, a, list) : compute(&s, a, b);
    if (s.status != HY_OK) break;
  }
  hy_array* last = hy_scope_give(&s, hy_s_clone(&s, arrays[n - 1]));
  CHECK_OK(hy_scope_end(&s));
  return last;
}

static void check_said(uint64_t seed, const hy_graph* graph, const said* list) {
  int at = 0;
  for (int i = 0; i < hy_graph_node_count(graph); i++) {
    hy_graph_node node;
    CHECK_OK(hy_graph_node_at(graph, i, &node));
    if (node.kind != HY_NODE_COLLECTIVE) continue;
    if (at == list->n || node.collective->kind != list->kind[at] ||
        node.collective->count != list->count[at])
      fail_msg("seed %d: collective %d is %s of %lld", (int)seed, at,
               hy_collective_name(node.collective->kind), (long long)node.collective->count);
    at++;
  }
  if (at != list->n) fail_msg("seed %d: %d collectives of %d", (int)seed, at, list->n);
}

static void check_program(uint64_t seed, int* changes) {
  static float input[SIZE], eager[SIZE], launched[SIZE];
  said by_calls, captured;
  hy_array* x;
  hy_tape* tape;
  hy_graph* graph;
  hy_graph_report report;
  for (int i = 0; i < SIZE; i++) input[i] = (float)((i * 37 + (int)seed) % 41) * 0.1f - 2;
  CHECK_OK(hy_array_from_host(stream, &x, HY_F32, HY_SIZES(ROWS, COLUMNS), input));
  CHECK_OK(hy_tape_create(stream, &tape));
  hy_array* y = run_program(seed, tape, x, &by_calls);
  CHECK_OK(hy_array_to_host(stream, y, eager, sizeof eager));
  hy_array_release(y);
  CHECK_OK(hy_capture_begin(stream));
  y = run_program(seed, tape, x, &captured);
  CHECK_OK(hy_capture_end(stream, &graph));
  check_said(seed, graph, &by_calls);
  CHECK_OK(hy_graph_run_passes(graph, HY_PASS_ALL, &report));
  check_said(seed, graph, &by_calls);
  for (int i = 0; i < HY_GRAPH_PASSES; i++) changes[i] += report.changes[i];
  for (int i = 0; i < 2; i++) {
    CHECK_OK(hy_graph_launch(graph, stream));
    CHECK_OK(hy_array_to_host(stream, y, launched, sizeof launched));
    if (memcmp(eager, launched, sizeof eager) != 0) {
      char text[16384];
      hy_graph_describe(graph, text, sizeof text);
      fail_msg("seed %d: the result differs\n%s", (int)seed, text);
    }
  }
  hy_graph_destroy(graph);
  hy_array_release(y);
  hy_array_release(x);
  hy_tape_destroy(tape);
}

static void test_random_graphs(void** state) {
  (void)state;
  int changes[HY_GRAPH_PASSES] = {0};
  for (uint64_t seed = 1; seed <= 2000; seed++) check_program(seed, changes);
  static const hy_graph_pass at_work[] = {HY_PASS_VIEWS, HY_PASS_COMMON, HY_PASS_DEAD,
                                          HY_PASS_FUSE,  HY_PASS_ORDER,  HY_PASS_IN_PLACE};
  for (size_t i = 0; i < sizeof at_work / sizeof at_work[0]; i++)
    assert_true(changes[__builtin_ctz(at_work[i])] > 0);
}

// ---- one by one ----

static void* zeros(size_t floats) {
  void* at;
  CHECK_OK(hy_alloc(stream, floats * sizeof(float), &at));
  CHECK_OK(hy_memset(stream, at, 0, floats * sizeof(float)));
  return at;
}

static void test_printed_drawn_and_not_saved(void** state) {
  (void)state;
  void *x = zeros(8), *y = zeros(8);
  hy_graph* graph;
  char text[1024], path[] = "/tmp/halyard_graph_comm_XXXXXX";
  CHECK_OK(hy_capture_begin(stream));
  CHECK_OK(hy_comm_all_reduce(comm, stream, x, y, 8, HY_F32, HY_REDUCE_SUM));
  CHECK_OK(hy_comm_broadcast(comm, stream, y, 4, HY_F32, 0));
  CHECK_OK(hy_comm_barrier(comm, stream));
  CHECK_OK(hy_capture_end(stream, &graph));
  hy_graph_describe(graph, text, sizeof text);
  assert_non_null(strstr(text, "0: %1 f32[8] = all_reduce(%0) by 1 ranks"));
  assert_non_null(strstr(text, "1: %1 f32[4] = broadcast(%1 of rank 0) by 1 ranks"));
  assert_non_null(strstr(text, "2: barrier() by 1 ranks"));
  assert_int_equal(close(mkstemp(path)), 0);
  CHECK_OK(hy_graph_write_dot(graph, path));
  FILE* file = fopen(path, "r");
  text[fread(text, 1, sizeof text - 1, file)] = 0;
  fclose(file);
  assert_non_null(strstr(text, "all_reduce"));
  assert_non_null(strstr(text, "8 f32, 1 ranks"));
  CHECK_FAILS(HY_UNSUPPORTED, "node 0 is all_reduce, whose communicator",
              hy_graph_save(graph, path));
  unlink(path);
  hy_graph_destroy(graph);
}

// The search would try copies of the graph on one rank alone.
static void test_not_searched(void** state) {
  (void)state;
  void* x = zeros(8);
  hy_graph* graph;
  hy_optimize_report report;
  CHECK_OK(hy_capture_begin(stream));
  CHECK_OK(hy_comm_all_reduce(comm, stream, x, x, 8, HY_F32, HY_REDUCE_SUM));
  CHECK_OK(hy_capture_end(stream, &graph));
  CHECK_OK(hy_graph_optimize(graph, 1, &report));
  assert_int_equal(report.candidates, 0);
  assert_int_equal(hy_graph_node_count(graph), 1);
  hy_graph_destroy(graph);
}

// Bound elsewhere, a launch checks the buffers again.
static void test_bound(void** state) {
  (void)state;
  float *x = zeros(8), *y = zeros(8), *z = zeros(16);
  hy_graph* graph;
  CHECK_OK(hy_capture_begin(stream));
  CHECK_OK(hy_comm_all_reduce(comm, stream, x, y, 8, HY_F32, HY_REDUCE_SUM));
  CHECK_OK(hy_capture_end(stream, &graph));
  for (int i = 0; i < 8; i++) z[i] = (float)i;
  CHECK_OK(hy_graph_bind(graph, &(hy_binding){x, 32, z}, 1));
  CHECK_OK(hy_graph_launch(graph, stream));
  assert_memory_equal(y, z, 32);
  CHECK_OK(hy_graph_bind(graph, &(hy_binding){y, 32, z + 4}, 1));
  CHECK_FAILS(HY_OVERLAP, "all_reduce", hy_graph_launch(graph, stream));
  hy_graph_destroy(graph);
}

static void test_refusals(void** state) {
  (void)state;
  void* x = zeros(8);
  hy_graph* graph;
  CHECK_OK(hy_capture_begin(stream));
  CHECK_FAILS(HY_UNSUPPORTED, "send cannot be captured",
              hy_comm_send(comm, stream, x, 8, HY_F32, 1));
  CHECK_FAILS(HY_UNSUPPORTED, "messages differ by rank", hy_capture_end(stream, &graph));
  CHECK_FAILS(HY_INVALID_ARGUMENT, "graph is NULL", hy_graph_agree(NULL, stream));
  // A device with graphs of its own.
  hy_comm* other;
  CHECK_OK(hy_load_plugin(HALYARD_GUARDED_PLUGIN));
  CHECK_OK(hy_device_get("guarded", &device));
  CHECK_OK(hy_stream_create(device, &stream));
  CHECK_OK(hy_comm_world(device, &other));
  x = zeros(8);
  CHECK_OK(hy_capture_begin(stream));
  CHECK_FAILS(HY_UNSUPPORTED, "all_reduce cannot be captured into a graph on guarded:0",
              hy_comm_all_reduce(other, stream, x, x, 8, HY_F32, HY_REDUCE_SUM));
  CHECK_FAILS(HY_UNSUPPORTED, "which hold no collectives", hy_capture_end(stream, &graph));
}

// ---- several ranks: threads, on a plugin whose graphs are replayed by calls ----

enum { RANKS = 3 };
typedef struct rank {
  pthread_t thread;
  int number;
  hy_device* device;
  hy_stream* stream;
  hy_comm* comm;
  hy_status status, differing[2];
  char message[512], differs[2][512];
  float result[2][4];
} rank;

static hy_comm_id id;

// 10 * the sum of all ranks' x, by a sum in place in memory of the graph's.
static hy_status capture_sum(rank* r, const hy_tensor* x, const hy_tensor* y, int collectives,
                             int64_t count, hy_graph** graph) {
  hy_tensor inside = *x;
  HY_TRY(hy_capture_begin(r->stream));
  HY_TRY(hy_alloc(r->stream, hy_tensor_bytes(x), &inside.data));
  HY_TRY(hy_mul_scalar(r->stream, &inside, x, hy_float(10)));
  for (int i = 0; i < collectives; i++)
    HY_TRY(hy_comm_all_reduce(r->comm, r->stream, inside.data, inside.data, count, HY_F32,
                              HY_REDUCE_SUM));
  HY_TRY(hy_add_scalar(r->stream, (hy_tensor*)y, &inside, hy_float(1), hy_int(1)));
  HY_TRY(hy_free(r->device, inside.data));
  HY_TRY(hy_capture_end(r->stream, graph));
  return hy_graph_run_passes(*graph, HY_PASS_ALL, NULL);
}

static hy_status differ(rank* r, int which, const hy_tensor* x, const hy_tensor* y, int collectives,
                        int64_t count) {
  hy_graph* graph;
  HY_TRY(capture_sum(r, x, y, collectives, count, &graph));
  r->differing[which] = hy_graph_launch(graph, r->stream);
  snprintf(r->differs[which], sizeof r->differs[which], "%s", hy_last_error());
  hy_graph_destroy(graph);
  return HY_OK;
}

static hy_status talk_in_graphs(rank* r) {
  const int64_t four = 4;
  hy_tensor x, y;
  hy_graph* graph;
  HY_TRY(hy_tensor_init(&x, NULL, HY_F32, 1, &four));
  y = x;
  HY_TRY(hy_alloc(r->stream, 16, &x.data));
  HY_TRY(hy_alloc(r->stream, 16, &y.data));
  // Where lists differ, every rank is told, and the communicator is as before.
  HY_TRY(differ(r, 0, &x, &y, 1, r->number == 1 ? 3 : 4));
  HY_TRY(differ(r, 1, &x, &y, r->number == 2 ? 2 : 1, 4));
  HY_TRY(capture_sum(r, &x, &y, 1, 4, &graph));
  for (int launch = 0; launch < 2; launch++) {
    float values[4];
    for (int i = 0; i < 4; i++) values[i] = (float)(100 * launch + 10 * i + r->number);
    HY_TRY(hy_memcpy(r->stream, x.data, values, 16, HY_COPY_HOST_TO_DEVICE));
    HY_TRY(hy_graph_launch(graph, r->stream));
    HY_TRY(hy_memcpy(r->stream, r->result[launch], y.data, 16, HY_COPY_DEVICE_TO_HOST));
    HY_TRY(hy_stream_sync(r->stream));
  }
  hy_graph_destroy(graph);
  HY_TRY(hy_free(r->device, x.data));
  return hy_free(r->device, y.data);
}

static void* join_and_talk(void* context) {
  rank* r = context;
  r->status = hy_stream_create(r->device, &r->stream);
  if (r->status == HY_OK) r->status = hy_comm_init_rank(r->device, RANKS, &id, r->number, &r->comm);
  if (r->status == HY_OK) r->status = talk_in_graphs(r);
  if (r->status != HY_OK) snprintf(r->message, sizeof r->message, "%s", hy_last_error());
  hy_comm_destroy(r->comm);
  hy_stream_destroy(r->stream);
  return NULL;
}

static void test_ranks(void** state) {
  (void)state;
  static rank ranks[RANKS];
  setenv("HALYARD_GUARDED_LACKS", "capture", 1);
  setenv("HALYARD_GUARDED_DEVICES", "3", 1);
  CHECK_OK(hy_load_plugin(HALYARD_GUARDED_PLUGIN));
  for (int i = 0; i < RANKS; i++) {
    char selector[24];
    snprintf(selector, sizeof selector, "guarded:%d", i);
    ranks[i] = (rank){.number = i};
    CHECK_OK(hy_device_get(selector, &ranks[i].device));
  }
  CHECK_OK(hy_comm_unique_id(ranks[0].device, &id));
  for (int i = 0; i < RANKS; i++)
    assert_int_equal(pthread_create(&ranks[i].thread, NULL, join_and_talk, &ranks[i]), 0);
  for (int i = 0; i < RANKS; i++) pthread_join(ranks[i].thread, NULL);
  static const char* const says[RANKS][2] = {
      {"differ from collective 0 on: on rank 0 of 3, with 1 of them, it is all_reduce of 4 f32",
       "differ from collective 1 on: on rank 0 of 3, with 1 of them, there is none"},
      {"differ from collective 0 on: on rank 1 of 3, with 1 of them, it is all_reduce of 3 f32",
       "differ from collective 1 on: on rank 1 of 3, with 1 of them, there is none"},
      {"differ from collective 0 on: on rank 2 of 3, with 1 of them, it is all_reduce of 4 f32",
       "differ from collective 1 on: on rank 2 of 3, with 2 of them, it is all_reduce of 4 f32"}};
  for (int r = 0; r < RANKS; r++) {
    if (ranks[r].status != HY_OK) fail_msg("rank %d: %s", r, ranks[r].message);
    for (int i = 0; i < 2; i++) {
      assert_int_equal(ranks[r].differing[i], HY_INVALID_ARGUMENT);
      if (!strstr(ranks[r].differs[i], says[r][i])) fail_msg("rank %d: %s", r, ranks[r].differs[i]);
    }
    for (int launch = 0; launch < 2; launch++) {
      for (int i = 0; i < 4; i++) {
        float sum = 3 * (float)(100 * launch + 10 * i) + 3;
        assert_true(ranks[r].result[launch][i] == 10 * sum + 1);
      }
    }
  }
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
  const struct CMUnitTest tests[] = {
      TEST(test_random_graphs), TEST(test_printed_drawn_and_not_saved),
      TEST(test_not_searched),  TEST(test_bound),
      TEST(test_refusals),      cmocka_unit_test_teardown(test_ranks, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
