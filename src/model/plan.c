// Planning a split on paper: parameters counted by the same shards that a rank loads.
#include "model/plan.h"

#include <stdio.h>
#include <string.h>

#include "base/math.h"
#include "model/pack.h"

// ---- bytes ----

typedef struct counting {
  hy_weight_format format;
  double element;                    // bytes of a weight that is not packed
  double blocks, embedding, others;  // bytes
} counting;

static double bytes_of(const counting* c, int ndim, const int64_t* shape, bool embedding) {
  double n = (double)shape[0] * (ndim == 2 ? (double)shape[1] : 1);
  if (ndim != 2 || !hy__format_is_packed(c->format)) return n * c->element;
  if (c->format == HY_WEIGHTS_Q8 || embedding) {
    int64_t group = hy__int8_group(shape[1]);
    return n + 4 * n / (double)(group ? group : shape[1]);
  }
  return n / 2 + 4 * n / 32;
}

static hy_status count_one(void* context, const char* name, hy_array** slot, int ndim,
                           const int64_t* shape) {
  counting* c = context;
  (void)slot;
  bool embedding = strstr(name, "embed_tokens"), head = strstr(name, "lm_head");
  double bytes = bytes_of(c, ndim, shape, embedding || head);
  *(embedding ? &c->embedding : strstr(name, ".layers.") ? &c->blocks : &c->others) += bytes;
  return HY_OK;
}

static hy_status count(const hy__config* config, const hy__shard* shard, counting* c) {
  hy__transformer empty;
  HY_TRY(hy__transformer_init(&empty, config));
  empty.shard = *shard;
  hy_status status = hy__transformer_visit(&empty, count_one, c);
  hy__transformer_release(&empty);
  return status;
}

static hy_status count_whole(const hy__config* config, counting* c) {
  hy__config own = *config;
  hy__shard shard;
  HY_TRY(hy__shard_split(0, 1, &own, &shard));
  return count(&own, &shard, c);
}

static counting counting_of(const hy__config* config, hy_weight_format format) {
  hy_dtype dtype = format == HY_WEIGHTS_F32    ? HY_F32
                   : format == HY_WEIGHTS_BF16 ? HY_BF16
                                               : config->dtype;
  return (counting){.format = format, .element = (double)hy_dtype_size(dtype)};
}

// The head's share of what is counted, where the embedding may be it.
static double head_of(const hy__config* c, const counting* n) {
  return n->others + (c->tied_embeddings ? n->embedding : 0);
}

hy_status hy__plan_bytes(const hy__config* config, hy_weight_format format, double* blocks,
                         double* embedding, double* head) {
  counting n = counting_of(config, format);
  HY_TRY(count_whole(config, &n));
  *blocks = n.blocks;
  *embedding = n.embedding;
  *head = head_of(config, &n);
  return HY_OK;
}

// What decoding reads: of an embedding that is no head, only a row.
static double read_of(const hy__config* c, const counting* n) {
  return n->blocks + head_of(c, n);
}

static double kv_of(const hy__config* c, double element, int64_t context) {
  return 2 * element * (double)(c->n_layers * c->n_kv_heads * c->head_dim * context);
}

// ---- splits ----

typedef struct request {
  const hy__config* config;
  counting empty;
  int devices;
  int64_t context, rank;
  const hy__plan_machine* machine;
} request;

static double alone(const request* r, double bytes, int64_t layers) {
  return bytes / r->machine->read + (double)layers * r->machine->block;
}

// Two sums over the ranks a layer, one for the embedding, and the largest logits.
static hy_status plan_tensor(const request* r, hy__split_plan* p) {
  double slowest = 0;
  for (int rank = 0; rank < r->devices; rank++) {
    hy__config own = *r->config;
    hy__shard shard;
    counting n = r->empty;
    HY_TRY(hy__shard_split(rank, r->devices, &own, &shard));
    HY_TRY(count(&own, &shard, &n));
    double weights = n.blocks + n.embedding + n.others, kv = kv_of(&own, n.element, r->context);
    double seconds = alone(r, read_of(&own, &n) + kv, own.n_layers);
    p->weights = weights > p->weights ? weights : p->weights;
    p->kv = kv > p->kv ? kv : p->kv;
    slowest = seconds > slowest ? seconds : slowest;
  }
  // Every rank sends its part to every other and adds them all in the order of ranks.
  double peers = r->devices - 1, sums = 2 * (double)r->config->n_layers + 1;
  p->wire = peers * (sums * r->empty.element * (double)r->config->hidden_size + 8);
  p->seconds = slowest;
  if (r->devices > 1) p->seconds += (sums + 1) * r->machine->latency + p->wire / r->machine->link;
  p->sequences = 1;
  p->tokens_s = 1 / p->seconds;
  return HY_OK;
}

// Layers in equal parts; one sequence passes from device to device.
static hy_status plan_pipeline(const request* r, hy__split_plan* p) {
  const hy__config* c = r->config;
  counting n = r->empty;
  if (r->devices > c->n_layers)
    return hy_fail(HY_UNSUPPORTED, "%d devices are more than the model's %lld layers", r->devices,
                   (long long)c->n_layers);
  HY_TRY(count_whole(c, &n));
  double share = (double)ceil_div(c->n_layers, r->devices) / (double)c->n_layers;
  double kv = kv_of(c, n.element, r->context);
  // The first device has the embedding, the last the head, which may be the same matrix.
  double head = head_of(c, &n);
  double largest_end = head > n.embedding ? head : n.embedding;
  p->weights = share * n.blocks + (r->devices > 1 ? largest_end : n.embedding + n.others);
  p->kv = share * kv;
  p->wire = r->devices > 1 ? n.element * (double)c->hidden_size : 0;
  p->seconds = alone(r, read_of(c, &n) + kv, c->n_layers) +
               (double)(r->devices - 1) * (r->machine->latency + p->wire / r->machine->link);
  p->sequences = 1;
  p->tokens_s = 1 / p->seconds;
  return HY_OK;
}

// A whole model a device, and a sequence of its own; in training, gradients go to every other.
static hy_status plan_data(const request* r, hy__split_plan* p) {
  const hy__config* c = r->config;
  counting n = r->empty;
  HY_TRY(count_whole(c, &n));
  double q = (double)(c->n_heads * c->head_dim), kv = (double)(c->n_kv_heads * c->head_dim),
         d = (double)c->hidden_size;
  p->weights = n.blocks + n.embedding + n.others;
  p->kv = kv_of(c, n.element, r->context);
  p->seconds = alone(r, read_of(c, &n) + p->kv, c->n_layers);
  p->sequences = r->devices;
  p->tokens_s = (double)r->devices / p->seconds;
  double adapter = (double)(c->n_layers * r->rank) * (2 * (d + q) + 2 * (d + kv));
  p->wire_of_step = (double)(r->devices - 1) * 4 * adapter;
  return HY_OK;
}

hy_status hy__plan_make(const hy__config* config, hy_weight_format format, int devices,
                        int64_t context, int64_t rank, const hy__plan_machine* machine,
                        hy__split_plan plans[HY__PLAN_SPLITS]) {
  static hy_status (*const make[HY__PLAN_SPLITS])(const request*, hy__split_plan*) = {
      plan_tensor, plan_pipeline, plan_data};
  const request r = {.config = config,
                     .empty = counting_of(config, format),
                     .devices = devices,
                     .context = context,
                     .rank = rank,
                     .machine = machine};
  if (devices < 1 || devices > 1 << 16 || context < 1 || context > config->max_positions)
    return hy_fail(HY_INVALID_ARGUMENT, "%d devices and %lld tokens; the model has %lld positions",
                   devices, (long long)context, (long long)config->max_positions);
  if (!(machine->read > 0) || !(machine->link > 0) || !(machine->latency >= 0))
    return hy_fail(HY_INVALID_ARGUMENT, "rates are above 0, and a latency is not negative");
  for (int i = 0; i < HY__PLAN_SPLITS; i++) {
    plans[i] = (hy__split_plan){.split = (hy__plan_split)i};
    hy_status status = make[i](&r, &plans[i]);
    if (status == HY_UNSUPPORTED)
      snprintf(plans[i].refused, sizeof plans[i].refused, "%s", hy_last_error());
    else if (status != HY_OK)
      return status;
  }
  return HY_OK;
}
