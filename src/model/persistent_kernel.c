// PersistentKernel: a model's step as a resident graph, and on the cpu a thread that runs it.
//
// Of several ranks each has its own; they meet at every stage of making one, so that a backend that
// fails one of them is given up by all.
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "halyard/comm.h"
#include "halyard/persistent.h"
#include "model/step_graph.h"

enum { REASONS = 4096 };

struct hy_persistent_kernel {
  hy_persistent_options options;
  hy_model* model;
  hy__step_graph* step;
  hy_device* device;
  hy_comm* world;  // what the ranks meet by; NULL: there is one
  hy_comm* comm;   // what the step talks by: the same, or one of the device
  char reasons[REASONS];
  hy_persistent_stats stats;
  int64_t position;  // of the next step
  bool begun;
  // The team's leader, on a device that computes on the host: it takes `wanted` steps at a time.
  bool has_thread;
  pthread_t thread;
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  int64_t wanted;
  bool done, quit;
  hy_status status;
  char failure[320];
};

void hy_persistent_defaults(hy_persistent_options* options) {
  *options = (hy_persistent_options){.mode = HY_PERSISTENT_DECODE, .positions = 4096};
  hy_generate_defaults(&options->sampling);
}

// ---- running ----

// Where a step has failed here, ranks that wait for this one's part of it end as well. An argument
// that is refused was refused before anything was said.
static hy_status end_others(const hy_persistent_kernel* k, hy_status status) {
  char failure[320];
  bool own = k->comm && k->comm != k->options.comm;
  if (status == HY_OK || status == HY_INVALID_ARGUMENT || !own) return status;
  snprintf(failure, sizeof failure, "%s", hy_last_error());
  hy_comm_abort(k->comm);
  return hy_fail(status, "%s", failure);
}

static hy_status launch_steps(hy_persistent_kernel* k, int64_t steps) {
  hy_status status = HY_OK;
  for (int64_t i = 0; i < steps && status == HY_OK; i++) status = hy__step_graph_launch(k->step);
  return end_others(k, status);
}

static void* lead(void* context) {
  hy_persistent_kernel* k = context;
  pthread_mutex_lock(&k->mutex);
  while (!k->quit) {
    if (k->wanted == 0) {
      pthread_cond_wait(&k->changed, &k->mutex);
      continue;
    }
    int64_t steps = k->wanted;
    pthread_mutex_unlock(&k->mutex);
    hy_status status = launch_steps(k, steps);
    pthread_mutex_lock(&k->mutex);
    k->status = status;
    if (status != HY_OK) snprintf(k->failure, sizeof k->failure, "%s", hy_last_error());
    k->wanted = 0;
    k->done = true;
    pthread_cond_broadcast(&k->changed);
  }
  pthread_mutex_unlock(&k->mutex);
  return NULL;
}

// Hands the steps to the team; what follows on the stream comes after them.
static hy_status run_steps(hy_persistent_kernel* k, int64_t steps) {
  k->stats.steps += steps;
  k->stats.waits += hy__step_graph_is_whole(k->step) ? 1 : steps;
  k->stats.launches += k->has_thread ? 1 : steps;
  if (!k->has_thread) return launch_steps(k, steps);
  pthread_mutex_lock(&k->mutex);
  k->done = false;
  k->wanted = steps;
  pthread_cond_broadcast(&k->changed);
  while (!k->done) pthread_cond_wait(&k->changed, &k->mutex);
  hy_status status = k->status;
  pthread_mutex_unlock(&k->mutex);
  return status == HY_OK ? HY_OK : hy_fail(status, "%s", k->failure);
}

// ---- making ----

static uint64_t bytes_of(const hy_tensor* tensors, int n) {
  uint64_t bytes = 0;
  for (int i = 0; i < n; i++) {
    if (tensors[i].dtype != HY_NONE) bytes += hy_tensor_bytes(&tensors[i]);
  }
  return bytes;
}

// What a call moves: of tables only the rows it takes.
static uint64_t call_bytes(const hy_call* call) {
  switch (call->op) {
    case HY_OP_embedding:
    case HY_OP_index_select: return 2 * bytes_of(call->out, call->n_out);
    case HY_OP_index_put: return 2 * bytes_of(&call->in[1], 1);
    case HY_OP_paged_attention: return bytes_of(call->in, 1) + bytes_of(call->out, 1);
    default: return bytes_of(call->in, call->n_in) + bytes_of(call->out, call->n_out);
  }
}

static uint64_t collective_bytes(const hy_collective* c) {
  int parts = c->kind == HY_COLLECTIVE_ALL_GATHER ? 1 + hy_comm_size(c->comm) : 2;
  return (uint64_t)parts * (uint64_t)c->count * hy_dtype_size(c->dtype);
}

static hy_status count(hy_persistent_kernel* k) {
  const hy_graph* graph = hy__step_graph_get(k->step);
  k->stats.nodes = hy_graph_node_count(graph);
  k->stats.memory = hy_graph_memory(graph);
  for (int i = 0; i < k->stats.nodes; i++) {
    hy_graph_node node;
    HY_TRY(hy_graph_node_at(graph, i, &node));
    if (node.kind == HY_NODE_CALL) k->stats.bytes += call_bytes(node.call);
    if (node.kind == HY_NODE_CHAIN)
      k->stats.bytes +=
          bytes_of(node.chain->in, node.chain->n_in) + bytes_of(node.chain->out, node.chain->n_out);
    if (node.kind == HY_NODE_COPY) k->stats.bytes += 2 * node.bytes;
    if (node.kind == HY_NODE_SET) k->stats.bytes += node.bytes;
    if (node.kind == HY_NODE_COLLECTIVE) k->stats.bytes += collective_bytes(node.collective);
  }
  return HY_OK;
}

static hy_status start_thread(hy_persistent_kernel* k) {
  if (!hy_device_is_host(k->device)) return HY_OK;
  pthread_mutex_init(&k->mutex, NULL);
  pthread_cond_init(&k->changed, NULL);
  if (pthread_create(&k->thread, NULL, lead, k) != 0) {
    pthread_mutex_destroy(&k->mutex);
    pthread_cond_destroy(&k->changed);
    return hy_fail(HY_OUT_OF_MEMORY, "no thread for a persistent kernel");
  }
  k->has_thread = true;
  return HY_OK;
}

static void stop_thread(hy_persistent_kernel* k) {
  if (!k->has_thread) return;
  pthread_mutex_lock(&k->mutex);
  k->quit = true;
  pthread_cond_broadcast(&k->changed);
  pthread_mutex_unlock(&k->mutex);
  pthread_join(k->thread, NULL);
  pthread_mutex_destroy(&k->mutex);
  pthread_cond_destroy(&k->changed);
  k->has_thread = k->quit = false;
}

static void release(hy_persistent_kernel* k) {
  stop_thread(k);
  hy__step_graph_destroy(k->step);
  hy_model_free(k->model);
  if (k->comm != k->world) hy_comm_destroy(k->comm);
  k->step = NULL;
  k->model = NULL;
  k->comm = NULL;
  k->stats = (hy_persistent_stats){0};
}

static void destroy(hy_persistent_kernel* k) {
  release(k);
  if (k->world != k->options.comm) hy_comm_destroy(k->world);
  hy__mfree(k);
}

static hy_status compile(hy_persistent_kernel* k, const char* folder) {
  const hy_persistent_options* o = &k->options;
  const hy_load_options load = {.format = o->weights, .comm = k->comm};
  bool prefill = o->mode == HY_PERSISTENT_PREFILL;
  HY_TRY(hy_model_load_with(k->device, folder, &load, &k->model));
  int64_t positions = prefill ? o->tokens : o->positions;
  int64_t most = hy_model_max_positions(k->model);
  if (!prefill && positions > most) positions = most;
  k->options.positions = positions;
  HY_TRY(
      hy__step_graph_create(k->model, prefill ? o->tokens : 1, positions, &o->sampling, &k->step));
  HY_TRY(hy_graph_run_passes(hy__step_graph_get(k->step), HY__EXACT_PASSES, NULL));
  HY_TRY(count(k));
  return start_thread(k);
}

// ---- ranks ----

// A failure of one rank becomes one of them all. Every rank comes here at each stage.
static hy_status meet(const hy_persistent_kernel* k, hy_status status) {
  if (!k->world) return status;
  char failure[2048] = "";
  if (status != HY_OK) snprintf(failure, sizeof failure, "%s", hy_last_error());
  // The first rank that failed, and its status.
  int64_t first = status == HY_OK ? INT64_MAX : (int64_t)hy_comm_rank(k->world) << 16 | status;
  hy_stream* stream = NULL;
  hy_array* array = NULL;
  hy_status met = hy_stream_create(hy_comm_device(k->world), &stream);
  if (met == HY_OK) met = hy_array_from_host(stream, &array, HY_I64, HY_SIZES(1), &first);
  void* data = array ? hy_array_tensor(array)->data : NULL;
  if (met == HY_OK)
    met = hy_comm_all_reduce(k->world, stream, data, data, 1, HY_I64, HY_REDUCE_MIN);
  if (met == HY_OK) met = hy_array_to_host(stream, array, &first, sizeof first);
  hy_array_release(array);
  if (stream) hy_stream_destroy(stream);
  if (status != HY_OK) return hy_fail(status, "%s", failure);
  HY_TRY(met);
  if (first == INT64_MAX) return HY_OK;
  return hy_fail((hy_status)(first & 0xffff), "it does not serve rank %d, which says why",
                 (int)(first >> 16));
}

// The ranks that share the step, and a communicator for them to meet by.
static hy_status join_world(hy_persistent_kernel* k) {
  const hy_persistent_options* o = &k->options;
  int wanted = o->world_size > 1 ? o->world_size : 1, rank = 0, size = 1;
  if (wanted == 1 && !o->comm) return HY_OK;
  if (o->comm) {
    rank = hy_comm_rank(o->comm);
    size = hy_comm_size(o->comm);
  } else {
    HY_TRY(hy_comm_world_rank(&rank, &size));
  }
  if (wanted != size || o->rank != rank)
    return hy_fail(HY_INVALID_ARGUMENT,
                   "a persistent kernel as rank %d of %d: this is rank %d of %d by the %s", o->rank,
                   wanted, rank, size, o->comm ? "communicator" : "launcher, such as mpirun");
  k->world = o->comm;
  if (k->world) return HY_OK;
  hy_device* host;
  HY_TRY(hy_device_get("cpu", &host));
  return hy_comm_world(host, &k->world);
}

// The device of this rank.
static hy_status open_device(hy_persistent_kernel* k, const char* selector) {
  const hy_comm* given = k->options.comm;
  if (!k->world) return hy_device_get(selector, &k->device);
  if (!given) return hy_comm_world_device(selector, &k->device);
  k->device = hy_comm_device(given);
  if (!selector) return HY_OK;
  hy_device* asked;
  HY_TRY(hy_device_get(selector, &asked));
  if (asked == k->device) return HY_OK;
  return hy_fail(HY_INVALID_ARGUMENT, "the communicator is of %s", hy_device_selector(k->device));
}

// Said before a model is loaded for nothing.
static hy_status check_collectives(const hy_persistent_kernel* k) {
  hy_graph* graph;
  HY_TRY(hy_graph_create(k->device, &graph));
  bool native = hy_graph_is_native(graph);
  hy_graph_destroy(graph);
  if (!native) return HY_OK;
  return hy_fail(HY_UNSUPPORTED,
                 "%s captures graphs of its own, which hold no collectives: the step would be of "
                 "one rank",
                 hy_device_selector(k->device));
}

// What the step talks by.
static hy_status open_comm(hy_persistent_kernel* k) {
  if (k->world) HY_TRY(check_collectives(k));
  if (k->world && k->device != hy_comm_device(k->world)) return hy_comm_world(k->device, &k->comm);
  k->comm = k->world;
  return HY_OK;
}

static hy_status build(hy_persistent_kernel* k, const char* folder, const char* selector) {
  HY_TRY(meet(k, open_device(k, selector)));
  HY_TRY(meet(k, open_comm(k)));
  HY_TRY(meet(k, compile(k, folder)));
  return hy_graph_agree(hy__step_graph_get(k->step), k->model->stream);
}

// Tries a backend; on failure notes why.
static hy_status try_backend(hy_persistent_kernel* k, const char* folder, const char* selector) {
  hy_status status = build(k, folder, selector);
  if (status == HY_OK) return HY_OK;
  size_t used = strlen(k->reasons);
  snprintf(k->reasons + used, sizeof k->reasons - used, "%s%s: %s", used ? "\n" : "",
           selector ? selector : "the default device", hy_last_error());
  release(k);
  return status;
}

static hy_status check(const char* folder, const hy_persistent_options* o) {
  if (!folder || !o)
    return hy_fail(HY_INVALID_ARGUMENT, "a persistent kernel needs a model's folder and options");
  if (o->world_size < 0 || o->rank < 0 || o->rank >= (o->world_size ? o->world_size : 1))
    return hy_fail(HY_INVALID_ARGUMENT,
                   "a persistent kernel as rank %d of %d; ranks are numbered from 0", o->rank,
                   o->world_size);
  if (o->n_fallback_backends < 0 || (o->n_fallback_backends > 0 && !o->fallback_backends))
    return hy_fail(HY_INVALID_ARGUMENT, "fallback_backends does not hold %d names",
                   o->n_fallback_backends);
  return HY_OK;
}

hy_status hy_persistent_kernel_create(const char* folder, const hy_persistent_options* options,
                                      hy_persistent_kernel** kernel) {
  if (!kernel) return hy_fail(HY_INVALID_ARGUMENT, "hy_persistent_kernel_create: kernel is NULL");
  *kernel = NULL;
  HY_TRY(check(folder, options));
  hy_persistent_kernel* k = hy__calloc(1, sizeof *k);
  if (!k) return hy_fail(HY_OUT_OF_MEMORY, "no memory for a persistent kernel");
  k->options = *options;
  hy_status status = join_world(k);
  if (status != HY_OK) {
    destroy(k);
    return status;
  }
  status = try_backend(k, folder, options->backend);
  for (int i = 0; i < options->n_fallback_backends && status != HY_OK; i++)
    status = try_backend(k, folder, options->fallback_backends[i]);
  if (status == HY_OK) {
    *kernel = k;
    return HY_OK;
  }
  status = hy_fail(status, "no backend runs this step:\n%s", k->reasons);
  destroy(k);
  return status;
}

void hy_persistent_kernel_destroy(hy_persistent_kernel* k) {
  if (k) destroy(k);
}

const char* hy_persistent_kernel_device(const hy_persistent_kernel* k) {
  return hy_device_selector(k->device);
}

const char* hy_persistent_kernel_reasons(const hy_persistent_kernel* k) {
  return k->reasons;
}

void hy_persistent_kernel_stats(const hy_persistent_kernel* k, hy_persistent_stats* stats) {
  *stats = k->stats;
}

// ---- steps ----

static hy_status check_ids(const hy_persistent_kernel* k, const int32_t* ids, int64_t n) {
  int64_t vocab = hy_model_vocab_size(k->model);
  for (int64_t i = 0; i < n; i++) {
    if (ids[i] < 0 || ids[i] >= vocab)
      return hy_fail(HY_INDEX, "%d is no token: the vocabulary has %lld", (int)ids[i],
                     (long long)vocab);
  }
  return HY_OK;
}

static hy_status check_mode(const hy_persistent_kernel* k, hy_persistent_mode mode,
                            const void* argument) {
  if (!k || !argument) return hy_fail(HY_INVALID_ARGUMENT, "a persistent kernel: NULL is given");
  if (k->options.mode == mode) return HY_OK;
  return hy_fail(HY_INVALID_ARGUMENT, "the persistent kernel was made to %s",
                 mode == HY_PERSISTENT_DECODE ? "prefill" : "decode");
}

hy_status hy_persistent_kernel_begin(hy_persistent_kernel* k, const int32_t* prompt, int64_t n) {
  HY_TRY(check_mode(k, HY_PERSISTENT_DECODE, prompt));
  HY_TRY(check_ids(k, prompt, n));
  HY_TRY(end_others(k, hy__step_graph_prompt(k->step, prompt, n)));
  k->position = n - 1;
  k->begun = true;
  return HY_OK;
}

hy_status hy_persistent_kernel_decode(hy_persistent_kernel* k, int64_t steps, int32_t* tokens) {
  HY_TRY(check_mode(k, HY_PERSISTENT_DECODE, tokens));
  if (!k->begun)
    return hy_fail(HY_INVALID_ARGUMENT, "hy_persistent_kernel_decode: there is no prompt yet");
  if (steps < 1 || steps > k->options.positions - k->position)
    return hy_fail(HY_INVALID_ARGUMENT, "%lld steps from position %lld on; the kernel has %lld",
                   (long long)steps, (long long)k->position, (long long)k->options.positions);
  HY_TRY(run_steps(k, steps));
  k->position += steps;
  return hy__step_graph_history(k->step, k->position - steps, steps, tokens);
}

hy_status hy_persistent_kernel_prefill(hy_persistent_kernel* k, const int32_t* prompt,
                                       int32_t* token) {
  int64_t next;
  HY_TRY(check_mode(k, HY_PERSISTENT_PREFILL, prompt));
  if (!token) return hy_fail(HY_INVALID_ARGUMENT, "hy_persistent_kernel_prefill: token is NULL");
  HY_TRY(check_ids(k, prompt, k->options.tokens));
  HY_TRY(hy__step_graph_begin(k->step, 0, prompt));
  HY_TRY(run_steps(k, 1));
  HY_TRY(hy__step_graph_token(k->step, &next));
  *token = (int32_t)next;
  return HY_OK;
}
