// PersistentKernel: a model's step as a resident graph, and on the cpu a thread that runs it.
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "halyard/persistent.h"
#include "model/step_graph.h"

enum { REASONS = 4096 };

struct hy_persistent_kernel {
  hy_persistent_options options;
  hy_model* model;
  hy__step_graph* step;
  hy_device* device;
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

static hy_status launch_steps(hy_persistent_kernel* k, int64_t steps) {
  for (int64_t i = 0; i < steps; i++) HY_TRY(hy__step_graph_launch(k->step));
  return HY_OK;
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

static void release(hy_persistent_kernel* k) {
  hy__step_graph_destroy(k->step);
  hy_model_free(k->model);
  k->step = NULL;
  k->model = NULL;
}

static hy_status compile(hy_persistent_kernel* k, const char* folder, const char* selector) {
  const hy_persistent_options* o = &k->options;
  bool prefill = o->mode == HY_PERSISTENT_PREFILL;
  HY_TRY(hy_device_get(selector, &k->device));
  HY_TRY(hy_model_load(k->device, folder, NULL, o->weights, &k->model));
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

// Tries a backend; on failure notes why.
static hy_status try_backend(hy_persistent_kernel* k, const char* folder, const char* selector) {
  hy_status status = compile(k, folder, selector);
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
  if (o->world_size > 1 || o->rank != 0)
    return hy_fail(HY_UNSUPPORTED,
                   "a persistent kernel of rank %d of %d: collectives are not part of a captured "
                   "step; a world has one rank",
                   o->rank, o->world_size);
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
  hy_status status = try_backend(k, folder, options->backend);
  for (int i = 0; i < options->n_fallback_backends && status != HY_OK; i++)
    status = try_backend(k, folder, options->fallback_backends[i]);
  if (status == HY_OK) {
    *kernel = k;
    return HY_OK;
  }
  status = hy_fail(status, "no backend runs this step:\n%s", k->reasons);
  hy__mfree(k);
  return status;
}

void hy_persistent_kernel_destroy(hy_persistent_kernel* k) {
  if (!k) return;
  if (k->has_thread) {
    pthread_mutex_lock(&k->mutex);
    k->quit = true;
    pthread_cond_broadcast(&k->changed);
    pthread_mutex_unlock(&k->mutex);
    pthread_join(k->thread, NULL);
    pthread_mutex_destroy(&k->mutex);
    pthread_cond_destroy(&k->changed);
  }
  release(k);
  hy__mfree(k);
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
  HY_TRY(hy__step_graph_prompt(k->step, prompt, n));
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
