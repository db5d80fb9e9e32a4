// Pipeline: placing layers by memory, loading stages, and passing what is computed on.
#include "model/pipeline.h"

#include <string.h>

#include "base/memory.h"
#include "model/load.h"
#include "model/plan.h"

enum { MOST_STAGES = 64 };

// ---- placing ----

// Bytes that a device has for layers; where it does not say, as much as all layers take.
static double room_for_layers(hy_device* device, double blocks, double ends) {
  uint64_t left;
  if (!hy__memory_left(device, &left)) return blocks;
  return (double)left > ends ? (double)left - ends : 0;
}

hy_status hy__pipeline_place(const hy__config* config, hy_weight_format format, int ranks,
                             hy_device* const* devices, int n, int64_t* layers) {
  double room[MOST_STAGES], all = 0, blocks, embedding, head;
  int64_t left = config->n_layers;
  if (n > MOST_STAGES || n > left)
    return hy_fail(HY_UNSUPPORTED, "%d devices are too many for a model of %lld layers", n,
                   (long long)left);
  HY_TRY(hy__plan_bytes(config, format, &blocks, &embedding, &head));
  for (int i = 0; i < n; i++) {
    double ends = i == 0 ? embedding : i == n - 1 ? head : 0;
    room[i] = room_for_layers(devices[i], blocks / ranks, ends / ranks);
    all += room[i];
  }
  // Those behind keep one at least; what rounding leaves over goes to the last.
  for (int i = 0; i < n; i++) {
    int64_t most = left - (n - 1 - i);
    int64_t share = all > 0 ? (int64_t)(room[i] / all * (double)left + 0.5) : left / (n - i);
    layers[i] = i == n - 1 || share > most ? most : share < 1 ? 1 : share;
    left -= layers[i];
    all -= room[i];
  }
  return HY_OK;
}

static hy_status check_layers(const int64_t* layers, int n, int64_t all) {
  int64_t left = all;
  for (int i = 0; i < n; i++) {
    if (layers[i] < 1)
      return hy_fail(HY_INVALID_ARGUMENT, "device %d takes %lld layers; each takes one at least", i,
                     (long long)layers[i]);
    if (layers[i] > left) break;
    left -= layers[i];
    if (i == n - 1 && left == 0) return HY_OK;
  }
  return hy_fail(HY_INVALID_ARGUMENT, "the layers of the devices do not add up to the model's %lld",
                 (long long)all);
}

// ---- loading ----

// Of each stage; zeroed behind the last.
typedef struct stage_plan {
  int64_t layers;
  bool given;     // the caller says how many
  hy_comm_id id;  // rank 0's, of a communicator on the stage's device; the first has the caller's
} stage_plan;

// Every rank's plan, by rank.
static hy_status gather(const hy_load_options* o, const stage_plan* own, stage_plan* all) {
  enum { BYTES = MOST_STAGES * sizeof *own };
  int64_t bytes = (int64_t)hy_comm_size(o->comm) * BYTES;
  hy_stream* stream = NULL;
  hy_array *from = NULL, *to = NULL;
  HY_TRY(hy_stream_create(o->devices[0], &stream));
  hy_status status = hy_array_from_host(stream, &from, HY_U8, HY_SIZES(BYTES), own);
  if (status == HY_OK) status = hy_array_empty(stream, &to, HY_U8, HY_SIZES(bytes));
  if (status == HY_OK)
    status = hy_comm_all_gather(o->comm, stream, hy_array_tensor(from)->data,
                                hy_array_tensor(to)->data, BYTES, HY_U8);
  if (status == HY_OK) status = hy_array_to_host(stream, to, all, (size_t)bytes);
  hy_array_release(from);
  hy_array_release(to);
  hy_stream_destroy(stream);
  return status;
}

// On every rank the same: whether the rank's plan is one with rank 0's, whose memory decides.
static hy_status check_plan(const stage_plan* first, const stage_plan* plan, int rank) {
  for (int i = 0; i < MOST_STAGES; i++) {
    if ((plan[i].layers == 0) != (first[i].layers == 0))
      return hy_fail(HY_INVALID_ARGUMENT,
                     "ranks 0 and %d have different numbers of devices for the layers", rank);
    if (plan[i].given && plan[i].layers != first[i].layers)
      return hy_fail(HY_INVALID_ARGUMENT, "device %d takes %lld layers on rank 0, %lld on rank %d",
                     i, (long long)first[i].layers, (long long)plan[i].layers, rank);
  }
  return HY_OK;
}

// *plan becomes rank 0's, or an error on all ranks.
static hy_status agree(const hy_load_options* o, stage_plan* plan) {
  int ranks = hy_comm_size(o->comm);
  for (int i = 1; i < o->n_devices && hy_comm_rank(o->comm) == 0; i++)
    HY_TRY(hy_comm_unique_id(o->devices[i], &plan[i].id));
  stage_plan* all = hy__malloc((size_t)ranks * MOST_STAGES * sizeof *all);
  if (!all) return hy_fail(HY_OUT_OF_MEMORY, "no memory for the plans of %d ranks", ranks);
  hy_status status = gather(o, plan, all);
  for (int r = 1; r < ranks && status == HY_OK; r++)
    status = check_plan(all, all + (size_t)r * MOST_STAGES, r);
  if (status == HY_OK) memcpy(plan, all, MOST_STAGES * sizeof *plan);
  hy__mfree(all);
  return status;
}

static hy_status make_plan(const char* folder, const hy_load_options* o, stage_plan* plan) {
  int64_t layers[MOST_STAGES];
  hy__config config;
  HY_TRY(hy__config_load(folder, &config));
  HY_TRY(hy__pipeline_place(&config, o->format, o->comm ? hy_comm_size(o->comm) : 1, o->devices,
                            o->n_devices, layers));
  if (o->layers) HY_TRY(check_layers(o->layers, o->n_devices, config.n_layers));
  for (int i = 0; i < o->n_devices; i++) {
    plan[i].layers = o->layers ? o->layers[i] : layers[i];
    plan[i].given = o->layers;
  }
  return o->comm ? agree(o, plan) : HY_OK;
}

// All stages, and the ranks' communicators of them, before weights are loaded: a rank that fails
// there leaves them, and the others learn of it.
static hy_status make_stages(hy_model* first, const hy_load_options* o, const stage_plan* plan) {
  hy_model* last = first;
  for (int i = 1; i < o->n_devices; i++, last = last->next) {
    last->next = hy__calloc(1, sizeof *last->next);
    if (!last->next) return hy_fail(HY_OUT_OF_MEMORY, "no memory for a model");
    if (o->comm)
      HY_TRY(hy_comm_init_rank(o->devices[i], hy_comm_size(o->comm), &plan[i].id,
                               hy_comm_rank(o->comm), &last->next->comm));
  }
  return HY_OK;
}

hy_status hy__pipeline_load(hy_model* first, const char* folder, const hy_load_options* o) {
  stage_plan plan[MOST_STAGES];
  memset(plan, 0, sizeof plan);
  HY_TRY(make_plan(folder, o, plan));
  HY_TRY(make_stages(first, o, plan));
  hy__span part = {0, 0};
  hy_load_options own = *o;
  hy_model* stage = first;
  for (int i = 0; stage; stage = stage->next, i++) {
    part.size = plan[i].layers;
    if (i > 0) own.comm = stage->comm;
    HY_TRY(hy__model_load_layers(stage, o->devices[i], folder, &own, &part));
    part.first += part.size;
  }
  return HY_OK;
}

// ---- running ----

// A contiguous copy in the host's memory, which hy__mfree frees; NULL after a failure. Waits.
static void* fetch(hy_scope* s, hy_array* x, hy_tensor* like) {
  if (s->status != HY_OK) return NULL;
  *like = *hy_array_tensor(x);
  size_t bytes = hy_tensor_bytes(like);
  void* host = hy__malloc(bytes + 1);
  HY_SCOPE_TRY(s, host ? hy_array_to_host(hy_tape_stream(s->tape), x, host, bytes)
                       : hy_fail(HY_OUT_OF_MEMORY, "no memory to pass %zu bytes on", bytes));
  return host;
}

// *host, what left the stage before, becomes what leaves this one: logits behind the last.
static hy_status run_stage(hy_model* stage, hy__kv_cache* cache, const hy__kv_pass* first,
                           const hy_generate_options* options, void** host, hy_tensor* like) {
  hy_scope s;
  hy__kv_pass pass;
  hy_scope_begin(&s, stage->tape);
  HY_SCOPE_TRY(&s, hy__kv_pass_copy(&s, first, cache, &pass));
  if (s.status != HY_OK) return hy_scope_end(&s);
  hy_array* x = hy_s_from_host(&s, like->dtype, like->ndim, like->shape, *host);
  x = hy__model_layers(&s, stage, &pass, options, x);
  if (!stage->next) x = hy__model_last(&s, stage, &pass, x);
  hy__mfree(*host);
  *host = fetch(&s, x, like);
  return hy_scope_end(&s);
}

hy_array* hy__pipeline_follow(hy_scope* s, hy_model* first, const hy__kv_pass* pass,
                              const hy_generate_options* options, hy_array* x) {
  hy_tensor like;
  hy__kv_cache* cache = pass->cache;
  void* host = fetch(s, x, &like);
  for (hy_model* stage = first->next; stage && s->status == HY_OK; stage = stage->next) {
    cache = hy__kv_cache_next(cache);
    HY_SCOPE_TRY(s, run_stage(stage, cache, pass, options, &host, &like));
  }
  hy_array* logits =
      s->status == HY_OK ? hy_s_from_host(s, like.dtype, like.ndim, like.shape, host) : NULL;
  hy__mfree(host);
  return logits;
}
