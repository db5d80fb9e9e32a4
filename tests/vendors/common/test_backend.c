// Tests of a backend over its test vendor: a model's tokens, every call failing once, and misuse
// that must be seen.
#include "test_backend.h"

#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "halyard/comm.h"
#include "halyard/device.h"
#include "halyard/graph.h"
#include "model/adapter.h"
#include "model/create.h"
#include "model/model.h"
#include "model/train.h"
#include "support/tiny_model.h"
#include "verify/verify.h"

hy_device* test_device;
hy_stream* test_stream;
struct test_vendor test_vendor;

int test_backend_open(const char* backend, const char* library) {
  if (hy_device_get(backend, &test_device) != HY_OK) {
    print_error("%s\n", hy_last_error());
    return 1;
  }
  void* handle = dlopen(library, RTLD_NOW | RTLD_NOLOAD);
  if (!handle) return 1;
  *(void**)&test_vendor.calls = dlsym(handle, "vendor_calls");
  *(void**)&test_vendor.calls_of = dlsym(handle, "vendor_calls_of");
  *(void**)&test_vendor.entry = dlsym(handle, "vendor_entry");
  *(void**)&test_vendor.fail_call = dlsym(handle, "vendor_fail_call");
  *(void**)&test_vendor.fail_at = dlsym(handle, "vendor_fail_at");
  *(void**)&test_vendor.misuses = dlsym(handle, "vendor_misuses");
  *(void**)&test_vendor.last_misuse = dlsym(handle, "vendor_last_misuse");
  *(void**)&test_vendor.forgive = dlsym(handle, "vendor_forgive");
  return hy_stream_create(test_device, &test_stream) == HY_OK ? 0 : 1;
}

int test_backend_close(void** state) {
  (void)state;
  hy_stream_destroy(test_stream);
  hy_shutdown();
  return 0;
}

void test_backend_no_misuse(void) {
  if (test_vendor.misuses() != 0) fail_msg("misuse: %s", test_vendor.last_misuse());
}

// ---- misuse ----

void test_misused(const char* what) {
  if (test_vendor.misuses() == 0 || !strstr(test_vendor.last_misuse(), what))
    fail_msg("\"%s\" was not seen but: %s", what, test_vendor.last_misuse());
  test_vendor.forgive();
}

void* test_symbol(void* library, const char* name) {
  void* found = dlsym(library, name);
  if (!found) fail_msg("no %s", name);
  return found;
}

static struct {
  const char* (*function)(int i, int* op);
  void (*watch)(const char* name, const char* types);
  long (*calls)(void);
  bool (*pair)(int i, int* a, int* b);
  void (*swap)(const char* name, int a, int b);
} mutation;

static char failure[1200];  // of the last conformance that failed

static void keep_failure(void* context, const hy__op_verdict* verdict) {
  (void)context;
  if (verdict->failed) snprintf(failure, sizeof failure, "%s", verdict->failure);
}

static bool conforms(hy_op op) {
  hy__verify_options options = {.device = test_device,
                                .op = op,
                                .seed = 1,
                                .index = -1,
                                .quick = true,
                                .until_failure = true,
                                .on_op = keep_failure};
  hy__verify_summary summary = {0};
  hy_status status = hy__verify(&options, &summary);
  if (status != HY_OK) snprintf(failure, sizeof failure, "%s", hy_last_error());
  return status == HY_OK && summary.failed == 0;
}

// What calls a function: conformance of an op, or something else.
typedef struct workload {
  hy_op op;
  bool (*other)(void);
} workload;

static bool passes(const workload* w) {
  bool passed = w->other ? w->other() : conforms(w->op);
  return passed && test_vendor.misuses() == 0;
}

static bool reaches(const test_mutation* m, const char* name, const workload* w) {
  mutation.watch(name, m->types);
  if (!passes(w)) fail_msg("%s: what calls it fails as it is", name);
  return mutation.calls() > 0;
}

static workload workload_of(const test_mutation* m, const char* name, int op) {
  workload w = {.op = HY_OP_NONE};
  for (int i = 0; m->other_names && m->other_names[i]; i++)
    if (strcmp(m->other_names[i], name) == 0) w.other = m->other[i];
  if (w.other && reaches(m, name, &w)) return w;
  w = (workload){.op = (hy_op)op};
  if (op != HY_OP_NONE && reaches(m, name, &w)) return w;
  for (int other = 1; other < HY_OP_END; other++) {
    w.op = (hy_op)other;
    if (hy_op_describe(w.op) && reaches(m, name, &w)) return w;
  }
  fail_msg("nothing calls %s", name);
  return w;
}

static bool commutes(const test_mutation* m, const char* name, int a, int b) {
  char pair[80];
  snprintf(pair, sizeof pair, "%s %d %d", name, a, b);
  for (int i = 0; m->commuting[i]; i++)
    if (strcmp(m->commuting[i], pair) == 0) return true;
  return false;
}

// The function's pairs that were not seen though they should have been, or the other way round.
static int swap_pairs(const test_mutation* m, const char* name, const workload* w, int* n_seen) {
  int n_wrong = 0, a, b;
  for (int i = 0; mutation.pair(i, &a, &b); i++) {
    mutation.swap(name, a, b);
    bool passed = passes(w);
    test_vendor.forgive();
    *n_seen += !passed;
    if (passed == commutes(m, name, a, b)) continue;
    n_wrong++;
    print_error("%s %d %d %s\n", name, a, b, passed ? "passes" : "does not commute");
  }
  return n_wrong;
}

void test_backend_swaps(const test_mutation* m) {
  const char* name;
  int op, n_seen = 0, n_wrong = 0;
  *(void**)&mutation.function = test_symbol(m->library, "mutation_function");
  *(void**)&mutation.watch = test_symbol(m->library, "mutation_watch");
  *(void**)&mutation.calls = test_symbol(m->library, "mutation_calls");
  *(void**)&mutation.pair = test_symbol(m->library, "mutation_pair");
  *(void**)&mutation.swap = test_symbol(m->library, "mutation_swap");
  for (int i = 0; (name = mutation.function(i, &op)); i++) {
    workload w = workload_of(m, name, op);
    n_wrong += swap_pairs(m, name, &w, &n_seen);
  }
  mutation.swap(NULL, 0, 0);
  print_message("%d pairs of arguments in each other's place were seen\n", n_seen);
  assert_int_equal(n_wrong, 0);
}

void test_backend_elsewhere(void* (*const attempts[])(void*), int n, const char* misuse) {
  for (int i = 0; i < n; i++) {
    pthread_t thread;
    void* refused;
    assert_int_equal(pthread_create(&thread, NULL, attempts[i], NULL), 0);
    pthread_join(thread, &refused);
    assert_non_null(refused);
    test_misused(misuse);
  }
}

// ---- a model ----

static void generate(const char* where, hy_dtype dtype, double temperature, int32_t* ids) {
  hy_device* d;
  CHECK_OK(hy_device_get(where, &d));
  hy__config c = tiny_config(&hy__arch_qwen2, 64, dtype);
  c.vocab_size = 50;
  c.n_layers = 2;
  c.n_heads = 4;
  c.n_kv_heads = 2;
  c.head_dim = 16;
  hy_model* model;
  hy_generate_options o;
  hy_generate_result result;
  hy_generate_defaults(&o);
  o.max_tokens = 24;
  o.temperature = temperature;
  o.top_k = temperature > 0 ? 8 : 0;
  o.top_p = temperature > 0 ? 0.9 : 1;
  o.repetition_penalty = temperature > 0 ? 1.1 : 1;
  CHECK_OK(hy__model_create(d, &c, NULL, -1, 7, &model));
  hy_set_strict(true);
  CHECK_OK(
      hy_model_generate(model, (const int32_t[]){3, 1, 4, 1, 5}, 5, &o, NULL, NULL, ids, &result));
  hy_set_strict(false);
  hy_model_free(model);
}

void test_backend_generates(const char* backend) {
  for (int sampled = 0; sampled < 2; sampled++) {
    int32_t want[24] = {0}, got[24] = {0};
    generate("cpu", HY_F32, sampled, want);
    generate(backend, HY_F32, sampled, got);
    assert_memory_equal(want, got, sizeof want);
  }
  test_backend_no_misuse();
}

// ---- LoRA ----

enum { STEPS = 3, ROWS = 2, LENGTH = 8, ADAPTER = 4 * 64 };

typedef struct lesson {
  double losses[STEPS];
  float adapters[4][ADAPTER];  // A and B of q in both layers
} lesson;

static void train(const char* where, lesson* l) {
  const hy__adapter_options adapter = {.rank = 4, .alpha = 8, .targets = "q_proj,down_proj"};
  const hy__train_options options = {
      .batch = ROWS, .length = LENGTH, .accumulate = 1, .steps = STEPS, .lr = 1e-2, .clip = 1};
  hy_device* d;
  hy_model* model;
  hy__trainer* trainer;
  int32_t tokens[ROWS * LENGTH + 1];
  CHECK_OK(hy_device_get(where, &d));
  hy__config c = tiny_config(&hy__arch_qwen2, 32, HY_F32);
  c.vocab_size = 50;
  c.n_layers = 2;
  CHECK_OK(hy__model_create(d, &c, NULL, -1, 2, &model));
  CHECK_OK(hy__adapter_create(model->stream, &adapter, HY_F32, 1, &model->transformer));
  CHECK_OK(hy__trainer_create(model->stream, &model->transformer, &options, &trainer));
  hy_set_strict(true);
  for (int step = 0; step < STEPS; step++) {
    for (int i = 0; i <= ROWS * LENGTH; i++) tokens[i] = (i * i + 7 * i + step) % 50;
    CHECK_OK(hy__trainer_step(trainer, tokens, tokens + 1, &l->losses[step]));
  }
  hy_set_strict(false);
  hy__trainer_destroy(trainer);
  for (int i = 0; i < 4; i++) {
    const hy__lora* lora = &model->transformer.blocks[i / 2].q.lora;
    const hy_array* array = i % 2 ? lora->b : lora->a;
    size_t bytes = hy_tensor_bytes(hy_array_tensor(array));
    assert_true(bytes <= sizeof l->adapters[i]);
    CHECK_OK(hy_array_to_host(model->stream, array, l->adapters[i], bytes));
  }
  hy_model_free(model);
}

void test_backend_trains(const char* backend) {
  static lesson want, got;
  train("cpu", &want);
  train(backend, &got);
  for (int i = 0; i < STEPS; i++) assert_true(fabs(want.losses[i] - got.losses[i]) < 1e-4);
  assert_true(want.losses[0] > 1);
  double moved = 0;  // B begins with zeros
  for (int i = 0; i < 4; i++) {
    for (int k = 0; k < ADAPTER; k++) {
      if (!(fabsf(want.adapters[i][k] - got.adapters[i][k]) < 1e-3f))
        fail_msg("adapter %d, element %d: %g, not %g", i, k, got.adapters[i][k],
                 want.adapters[i][k]);
      if (i % 2) moved += fabsf(got.adapters[i][k]);
    }
  }
  assert_true(moved > 0.1);
  test_backend_no_misuse();
}

// ---- every call fails once ----

// What a program does: memory, copies, ops, an index that is checked, an event, a graph. The first
// failure ends it.
static hy_status work(void) {
  hy_stream* s;
  HY_TRY(hy_stream_create(test_device, &s));
  void *memory = NULL, *pinned = NULL;
  hy_event *event = NULL, *later = NULL;
  hy_device_info info = {.size = sizeof info};
  double milliseconds;
  hy_graph* graph = NULL;
  float host[16] = {1, 2, 3};
  hy_status status = hy_alloc(s, 4096, &memory);
  if (status == HY_OK) status = hy_host_alloc(test_device, 64, &pinned);
  if (status == HY_OK) status = hy_event_create(test_device, &event);
  if (status == HY_OK) status = hy_event_create(test_device, &later);
  if (status == HY_OK) status = hy_device_describe(test_device, &info);
  if (status == HY_OK) status = hy_memcpy(s, memory, host, sizeof host, HY_COPY_HOST_TO_DEVICE);
  hy_tensor x = {.data = memory, .dtype = HY_F32, .ndim = 2, .shape = {4, 4}, .stride = {4, 1}};
  hy_tensor y = x, ids = {.dtype = HY_I64, .ndim = 1, .shape = {2}, .stride = {1}};
  y.data = (char*)memory + 1024;
  ids.data = (char*)memory + 2048;
  hy_tensor rows = y;
  rows.shape[0] = 2;
  if (status == HY_OK) status = hy_memset(s, ids.data, 0, 16);
  if (status == HY_OK) status = hy_softmax(s, &y, &x, 1);
  if (status == HY_OK) status = hy_mm(s, &y, &x, &x);
  if (status == HY_OK) status = hy_index_select(s, &rows, &x, &ids, 0);
  if (status == HY_OK) status = hy_event_record(event, s);
  if (status == HY_OK) status = hy_stream_wait_event(test_stream, event);
  if (status == HY_OK) status = hy_event_record(later, s);
  if (status == HY_OK) status = hy_stream_sync(s);
  if (status == HY_OK) status = hy_stream_query(s);
  if (status == HY_OK) status = hy_event_query(later);
  if (status == HY_OK) status = hy_event_elapsed(event, later, &milliseconds);
  if (status == HY_OK) status = hy_device_sync(test_device);
  if (status == HY_OK) status = hy_capture_begin(s);
  if (status == HY_OK) {
    hy_softmax(s, &y, &x, 1);
    status = hy_capture_end(s, &graph);
  }
  if (status == HY_OK) status = hy_graph_launch(graph, s);
  if (status == HY_OK) status = hy_stream_sync(s);
  if (status == HY_OK) status = hy_memcpy(s, pinned, y.data, 64, HY_COPY_DEVICE_TO_HOST);
  if (status == HY_OK) status = hy_stream_sync(s);
  char said[200];
  snprintf(said, sizeof said, "%s", hy_last_error());
  hy_graph_destroy(graph);
  if (event) hy_event_destroy(event);
  if (later) hy_event_destroy(later);
  if (memory) hy_free(test_device, memory);
  hy_stream_destroy(s);  // waits: what failed may have been a wait, and copies may be on their way
  if (pinned) hy_host_free(test_device, pinned);
  return status == HY_OK ? HY_OK : hy_fail(status, "%s", said);
}

void test_backend_survives(const char* backend, const int* codes, int n_codes) {
  CHECK_OK(work());
  long before = test_vendor.calls();
  CHECK_OK(work());
  long n = test_vendor.calls() - before, failed = 0;
  assert_true(n > 60);
  for (int c = 0; c < n_codes; c++) {
    for (long i = 1; i <= n; i++) {
      test_vendor.fail_at(i, codes[c], false);
      hy_status status = work();
      test_vendor.fail_at(0, 0, false);
      if (status != HY_OK) {
        failed++;
        if (!strstr(hy_last_error(), backend))
          fail_msg("call %ld with %d: \"%s\" does not say where", i, codes[c], hy_last_error());
      }
      CHECK_OK(work());
    }
  }
  // Releasing things, and asking which device is current, go on without.
  assert_true(failed > n);
  test_backend_no_misuse();
}

// On a thread of its own, which has no device yet: making one current fails. What it gives is
// wrong.
static void* fails_to_enter(void* set_device) {
  hy_device_info info = {.size = sizeof info};
  test_vendor.fail_call(set_device, 632003);
  hy_status status = hy_device_describe(test_device, &info);
  test_vendor.fail_call(NULL, 0);
  if (status == HY_OK || !strstr(hy_last_error(), "632003")) return "it was not told";
  return hy_device_describe(test_device, &info) == HY_OK ? NULL : "nothing works after it";
}

static void fail_set_device(const char* set_device) {
  pthread_t thread;
  void* wrong;
  assert_int_equal(pthread_create(&thread, NULL, fails_to_enter, (void*)set_device), 0);
  pthread_join(thread, &wrong);
  if (wrong) fail_msg("%s fails: %s", set_device, (const char*)wrong);
}

// The entry points that this work calls and that have not failed before.
static void fail_entries(const char* backend, const workload* w, const int* codes, int n_codes) {
  const char* name;
  static long before[1024];
  long count, failed;
  for (int i = 0; test_vendor.entry(i, &count, &failed); i++) before[i] = count;
  assert_true(passes(w));
  for (int i = 0; (name = test_vendor.entry(i, &count, &failed)); i++) {
    if (failed || count == before[i]) continue;
    for (int c = 0; c < n_codes; c++) {
      failure[0] = 0;
      test_vendor.fail_call(name, codes[c]);
      bool passed = passes(w);
      test_vendor.fail_call(NULL, 0);
      if (!passed && !w->other && !strstr(failure, backend))
        fail_msg("%s with %d: \"%s\" does not say where", name, codes[c], failure);
      if (!passes(w)) fail_msg("%s with %d: nothing works after it", name, codes[c]);
    }
  }
}

void test_backend_entries_survive(const char* backend, const int* codes, int n_codes,
                                  bool (*const* others)(void), int n_others, const char* set_device,
                                  const char* const* names) {
  int n_failed = 0, n_never = 0;
  long count, failed;
  fail_set_device(set_device);
  for (int i = 0; i < hy_op_count(); i++)
    fail_entries(backend, &(workload){.op = hy_op_at(i)->op}, codes, n_codes);
  for (int i = 0; i < n_others; i++)
    fail_entries(backend, &(workload){.other = others[i]}, codes, n_codes);
  for (; *names; names++) {
    // Those of the probe fail in probe_faults.sh, and those that give a text cannot.
    static const char probe[] =
        " aclInit aclrtGetVersion aclrtGetDeviceCount aclrtGetSocName aclGetRecentErrMsg "
        "cnrtGetLibVersion cnrtGetDeviceCount cnrtDeviceGetAttribute cnrtGetErrorStr ";
    char word[80];
    snprintf(word, sizeof word, " %s ", *names);
    bool once = strstr(probe, word) != NULL;
    const char* name;
    for (int i = 0; (name = test_vendor.entry(i, &count, &failed)); i++)
      once |= failed && strcmp(name, *names) == 0;
    if (!once) print_error("%s never failed\n", *names);
    n_failed += once;
    n_never += !once;
  }
  print_message("%d entry points have failed\n", n_failed);
  assert_int_equal(n_never, 0);
  test_backend_no_misuse();
}

// ---- collectives ----

// Every collective of a rank that is alone, on a stream of its own. The first failure ends it.
static hy_status collect(void) {
  hy_stream* s;
  hy_comm* comm = NULL;
  void* memory = NULL;
  hy_comm_id id;
  HY_TRY(hy_stream_create(test_device, &s));
  hy_status status = hy_alloc(s, 256, &memory);
  void* other = (char*)memory + 64;
  if (status == HY_OK) status = hy_memset(s, memory, 0, 256);
  if (status == HY_OK) status = hy_comm_unique_id(test_device, &id);
  if (status == HY_OK) status = hy_comm_init_rank(test_device, 1, &id, 0, &comm);
  if (status == HY_OK)
    status = hy_comm_all_reduce(comm, s, memory, memory, 8, HY_F32, HY_REDUCE_SUM);
  if (status == HY_OK)
    status = hy_comm_all_reduce(comm, s, memory, other, 8, HY_F32, HY_REDUCE_AVG);
  if (status == HY_OK) status = hy_comm_all_gather(comm, s, memory, other, 8, HY_BOOL);
  if (status == HY_OK)
    status = hy_comm_reduce_scatter(comm, s, memory, other, 8, HY_I32, HY_REDUCE_MAX);
  if (status == HY_OK) status = hy_comm_group_begin(test_device);
  if (status == HY_OK) {
    status = hy_comm_broadcast(comm, s, memory, 8, HY_F32, 0);
    hy_status ended = hy_comm_group_end(test_device);
    if (status == HY_OK) status = ended;
  }
  if (status == HY_OK) status = hy_comm_barrier(comm, s);
  if (status == HY_OK) status = hy_stream_sync(s);
  if (status == HY_OK) status = hy_comm_async_error(comm);
  char said[300];
  snprintf(said, sizeof said, "%s", hy_last_error());
  hy_comm_destroy(comm);
  if (memory) hy_free(test_device, memory);
  hy_stream_destroy(s);
  return status == HY_OK ? HY_OK : hy_fail(status, "%s", said);
}

void test_backend_collectives_survive(const char* backend, const int* codes, int n_codes) {
  CHECK_OK(collect());
  long before = test_vendor.calls();
  CHECK_OK(collect());
  long n = test_vendor.calls() - before, failed = 0;
  assert_true(n > 30);
  for (int c = 0; c < n_codes; c++) {
    for (long i = 1; i <= n; i++) {
      test_vendor.fail_at(i, codes[c], false);
      hy_status status = collect();
      test_vendor.fail_at(0, 0, false);
      if (status != HY_OK) {
        failed++;
        if (!strstr(hy_last_error(), backend))
          fail_msg("call %ld with %d: \"%s\" does not say where", i, codes[c], hy_last_error());
      }
      CHECK_OK(collect());
    }
  }
  assert_true(failed > 10 * n_codes);
  test_backend_no_misuse();
}

void test_backend_loses_link(const char* library, const char* name) {
  hy_stream* s;
  hy_comm* comm;
  hy_comm_id id;
  void *memory, *handle = dlopen(library, RTLD_NOW | RTLD_NOLOAD);
  assert_non_null(handle);
  void (*lose_link)(void);
  *(void**)&lose_link = test_symbol(handle, "ranks_lose_link");
  CHECK_OK(hy_stream_create(test_device, &s));
  CHECK_OK(hy_alloc(s, 64, &memory));
  CHECK_OK(hy_memset(s, memory, 0, 64));
  CHECK_OK(hy_comm_unique_id(test_device, &id));
  CHECK_OK(hy_comm_init_rank(test_device, 1, &id, 0, &comm));
  CHECK_OK(hy_comm_all_reduce(comm, s, memory, memory, 8, HY_F32, HY_REDUCE_SUM));
  CHECK_OK(hy_stream_sync(s));
  CHECK_OK(hy_comm_async_error(comm));
  lose_link();
  assert_int_equal(hy_comm_async_error(comm), HY_DEVICE_FAILED);
  assert_non_null(strstr(hy_last_error(), name));
  hy_comm_destroy(comm);
  hy_free(test_device, memory);
  hy_stream_destroy(s);
  CHECK_OK(collect());
  test_backend_no_misuse();
}
