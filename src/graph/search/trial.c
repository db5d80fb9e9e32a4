// Trials of candidate graphs: copies of a graph on random inputs, compared and timed.
//
// Memory that is somebody's is taken region by region. What is written, and what is small, gets
// memory of the trial's own: floats are random there, all else is as it is, since it may be
// indices. Large memory that is only read, such as weights, is read where it is.
#include <math.h>
#include <string.h>

#include "base/env.h"
#include "graph/search/search.h"
#include "ops/reference/element.h"

enum { SMALL = 1 << 20, LAUNCHES = 3 };  // SMALL: bytes

typedef struct region {
  char* captured;
  uint64_t bytes;
  hy_dtype dtype;  // of all tensors there; HY_NONE: they differ
  bool written;
  char* source;                 // where it is; NULL: an argument without memory
  void *memory, *initial;       // the trial's; NULL: used where it is
  char *expected, *got, *host;  // host copies of what was written
} region;

struct hy__graph_trial {
  const hy_graph* graph;
  hy_stream* stream;
  region* regions;
  int n;
  bool has_expected;
};

// ---- regions ----

static void widen(region* r, char* first, char* last) {
  char* end = r->captured + r->bytes;
  if (last > end) end = last;
  if (first < r->captured) r->captured = first;
  r->bytes = (uint64_t)(end - r->captured);
}

static bool meets(const region* r, const char* first, const char* last) {
  return first < r->captured + r->bytes && r->captured < last;
}

static void absorb(hy__graph_trial* t, int into) {
  for (int i = 0; i < t->n; i++) {
    region *a = &t->regions[into], *b = &t->regions[i];
    if (i == into || !meets(a, b->captured, b->captured + b->bytes)) continue;
    widen(a, b->captured, b->captured + b->bytes);
    a->written |= b->written;
    if (a->dtype != b->dtype) a->dtype = HY_NONE;
    *b = t->regions[--t->n];
    if (into == t->n) into = i;
    i = -1;
  }
}

static void add_operand(hy__graph_trial* t, const hy__operand* o, hy_dtype dtype) {
  char *first = o->captured + o->first, *last = o->captured + o->last;
  // Whole arguments: neighbours may be bound apart.
  const hy__graph_argument* a = hy__graph_argument_at(t->graph, first);
  if (a && a->constant) return;  // read where it is
  if (a && last <= a->captured + a->bytes) {
    first = a->captured;
    last = a->captured + a->bytes;
  }
  t->regions[t->n] = (region){
      .captured = first, .bytes = (uint64_t)(last - first), .dtype = dtype, .written = o->writes};
  t->n++;
  absorb(t, t->n - 1);
}

static hy_dtype dtype_of(const hy__graph_node* node, const hy__operand* o) {
  const hy_tensor* in = node->as.kind == HY_NODE_CHAIN ? node->chain.in : node->call.in;
  const hy_tensor* out = node->as.kind == HY_NODE_CHAIN ? node->chain.out : node->call.out;
  int n_in = node->as.kind == HY_NODE_CHAIN ? node->chain.n_in : node->call.n_in;
  int n_out = node->as.kind == HY_NODE_CHAIN ? node->chain.n_out : node->call.n_out;
  if (node->as.kind != HY_NODE_CHAIN && node->as.kind != HY_NODE_CALL) return HY_NONE;
  for (int i = 0; i < n_in + n_out; i++) {
    const hy_tensor* t = i < n_in ? &in[i] : &out[i - n_in];
    if (o->now == &t->data) return t->dtype;
  }
  return HY_NONE;
}

static char* where_it_is(const hy_graph* graph, char* captured) {
  void* now = captured;
  hy__operand o = {.captured = captured, .now = &now, .last = 1, .value = -1};
  const hy__graph_argument* a = hy__graph_argument_at(graph, captured);
  if (a && a->name && !a->bound) return NULL;
  hy__graph_place(graph, &o);
  return now;
}

// ---- contents ----

static uint64_t next_random(uint64_t* state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return *state >> 33;
}

// Between -1 and 1.
static bool fill_random(const region* r, uint64_t seed) {
  uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  size_t size = hy_dtype_size(r->dtype);
  if (r->dtype != HY_F32 && r->dtype != HY_BF16 && r->dtype != HY_F16 && r->dtype != HY_F64)
    return false;
  for (uint64_t i = 0; i + size <= r->bytes; i += size)
    hy__store_f(r->dtype, r->host + i, (double)(next_random(&state) % 2001) / 1000 - 1);
  return true;
}

static hy_status fill(hy__graph_trial* t, region* r, uint64_t seed) {
  HY_TRY(hy_alloc(t->stream, r->bytes, &r->memory));
  HY_TRY(hy_alloc(t->stream, r->bytes, &r->initial));
  r->host = hy__calloc(1, r->bytes);
  r->expected = hy__calloc(1, r->bytes);
  r->got = hy__calloc(1, r->bytes);
  if (!r->host || !r->expected || !r->got)
    return hy_fail(HY_OUT_OF_MEMORY, "no host memory to try out a graph");
  bool random = fill_random(r, seed);
  if (!random && r->source)
    return hy_memcpy(t->stream, r->initial, r->source, r->bytes, HY_COPY_DEVICE_TO_DEVICE);
  // Zero is an index that every table has.
  HY_TRY(hy_memcpy(t->stream, r->initial, r->host, r->bytes, HY_COPY_HOST_TO_DEVICE));
  return hy_stream_sync(t->stream);
}

static hy_status reset(hy__graph_trial* t) {
  for (int i = 0; i < t->n; i++) {
    const region* r = &t->regions[i];
    if (r->memory)
      HY_TRY(hy_memcpy(t->stream, r->memory, r->initial, r->bytes, HY_COPY_DEVICE_TO_DEVICE));
  }
  return HY_OK;
}

// ---- making ----

hy_status hy__trial_create(const hy_graph* graph, hy__graph_trial** out) {
  int operands = 0;
  for (int i = 0; i < graph->count; i++) operands += graph->nodes[i]->n_operands;
  hy__graph_trial* t = hy__calloc(1, sizeof *t);
  *out = t;
  if (!t || !(t->regions = hy__calloc((size_t)operands + 1, sizeof *t->regions))) {
    hy__mfree(t);
    *out = NULL;
    return hy_fail(HY_OUT_OF_MEMORY, "no host memory to try out a graph");
  }
  t->graph = graph;
  hy_status status = hy_stream_create(graph->device, &t->stream);
  for (int i = 0; i < graph->count; i++) {
    const hy__graph_node* node = graph->nodes[i];
    for (int k = 0; k < node->n_operands; k++) {
      if (node->operands[k].value < 0)
        add_operand(t, &node->operands[k], dtype_of(node, &node->operands[k]));
    }
  }
  for (int i = 0; i < t->n && status == HY_OK; i++) {
    region* r = &t->regions[i];
    r->source = where_it_is(graph, r->captured);
    if (r->written || r->bytes <= SMALL || !r->source) status = fill(t, r, (uint64_t)i + 1);
  }
  if (status != HY_OK) {
    hy__trial_destroy(t);
    *out = NULL;
  }
  return status;
}

void hy__trial_destroy(hy__graph_trial* t) {
  if (!t) return;
  if (t->stream) hy_stream_sync(t->stream);
  for (int i = 0; i < t->n; i++) {
    hy_free(t->graph->device, t->regions[i].memory);
    hy_free(t->graph->device, t->regions[i].initial);
    hy__mfree(t->regions[i].host);
    hy__mfree(t->regions[i].expected);
    hy__mfree(t->regions[i].got);
  }
  if (t->stream) hy_stream_destroy(t->stream);
  hy__mfree(t->regions);
  hy__mfree(t);
}

// ---- candidates ----

static hy_status copy_nodes(const hy_graph* from, hy_graph* to) {
  for (int i = 0; i < from->count; i++) {
    const hy__graph_node* old = from->nodes[i];
    hy__graph_node* node = NULL;
    HY_TRY(hy__graph_node_create(&old->as, old->provider, &node));
    node->named = old->named;
    node->variant = old->variant;
    for (int k = 0; k < node->n_operands; k++) {
      node->operands[k].captured = old->operands[k].captured;
      node->operands[k].value = old->operands[k].value;
    }
    HY_TRY(hy__graph_append(to, node));
  }
  return HY_OK;
}

// Constants are the original's: their entries have no memory here, so that nobody frees it twice.
static hy_status copy_memory(const hy__graph_trial* t, hy_graph* to) {
  const hy_graph* from = t->graph;
  to->next = from->next;
  to->values = hy__calloc((size_t)from->n_values + 1, sizeof *to->values);
  to->arguments = hy__calloc((size_t)from->n_arguments + 1, sizeof *to->arguments);
  to->bindings = hy__calloc((size_t)(from->n_bindings + t->n) + 1, sizeof *to->bindings);
  if (!to->values || !to->arguments || !to->bindings)
    return hy_fail(HY_OUT_OF_MEMORY, "no host memory to try out a graph");
  to->values_capacity = from->n_values + 1;
  to->arguments_capacity = from->n_arguments + 1;
  to->n_values = from->n_values;
  if (from->n_values) memcpy(to->values, from->values, (size_t)from->n_values * sizeof *to->values);
  for (int i = 0; i < from->n_arguments; i++) {
    hy__graph_argument a = from->arguments[i];
    if (a.name && !(a.name = hy__strdup(a.name)))
      return hy_fail(HY_OUT_OF_MEMORY, "no host memory to try out a graph");
    a.memory = NULL;
    a.bound = true;
    to->arguments[to->n_arguments++] = a;
  }
  for (int i = 0; i < t->n; i++) {
    const region* r = &t->regions[i];
    to->bindings[to->n_bindings++] =
        (hy_binding){r->captured, r->bytes, r->memory ? r->memory : (void*)r->source};
  }
  for (int i = 0; i < from->n_bindings; i++) {
    if (hy__graph_is_constant(from, from->bindings[i].captured))
      to->bindings[to->n_bindings++] = from->bindings[i];
  }
  return HY_OK;
}

hy_status hy__trial_build(hy__graph_trial* t, const hy__decision* decision, hy_graph** out,
                          int* changes) {
  *out = NULL;
  *changes = 0;
  hy_graph* graph;
  HY_TRY(hy__graph_new(t->graph->device, &graph));
  hy_status status = copy_memory(t, graph);
  if (status == HY_OK) status = copy_nodes(t->graph, graph);
  if (status == HY_OK) status = hy__decision_apply(decision, graph, changes, NULL);
  if (status == HY_OK)
    *out = graph;
  else
    hy_graph_destroy(graph);
  return status;
}

// ---- comparing ----

// Error that a type allows, beside the size of its neighbours: sums may be taken in another order.
static double tolerance_of(hy_dtype dtype) {
  switch (dtype) {
    case HY_F64: return 1e-10;
    case HY_F32: return 1e-4;
    case HY_F16: return 0x1p-7;
    case HY_BF16: return 0x1p-5;
    default: return 0;
  }
}

static bool region_is_close(const region* r) {
  double tolerance = tolerance_of(r->dtype);
  size_t size = r->dtype == HY_NONE ? 1 : hy_dtype_size(r->dtype);
  if (tolerance == 0) return memcmp(r->expected, r->got, r->bytes) == 0;
  double square = 0;
  for (uint64_t i = 0; i + size <= r->bytes; i += size) {
    double value = hy__load_f(r->dtype, r->expected + i);
    if (isfinite(value)) square += value * value;
  }
  uint64_t count = r->bytes / size;
  double typical = sqrt(square / fmax(1, (double)count));
  for (uint64_t i = 0; i + size <= r->bytes; i += size) {
    double a = hy__load_f(r->dtype, r->expected + i), b = hy__load_f(r->dtype, r->got + i);
    if (a == b || (isnan(a) && isnan(b))) continue;
    if (!(fabs(a - b) <= tolerance * (fabs(a) + typical))) return false;
  }
  return true;
}

hy_status hy__trial_check(hy__graph_trial* t, hy_graph* graph, bool* equal) {
  HY_TRY(reset(t));
  HY_TRY(hy_graph_launch(graph, t->stream));
  for (int i = 0; i < t->n; i++) {
    const region* r = &t->regions[i];
    if (r->written)
      HY_TRY(hy_memcpy(t->stream, t->has_expected ? r->got : r->expected, r->memory, r->bytes,
                       HY_COPY_DEVICE_TO_HOST));
  }
  HY_TRY(hy_stream_sync(t->stream));
  *equal = true;
  for (int i = 0; i < t->n && t->has_expected; i++)
    *equal = *equal && (!t->regions[i].written || region_is_close(&t->regions[i]));
  t->has_expected = true;
  return HY_OK;
}

hy_status hy__trial_time(hy__graph_trial* t, hy_graph* graph, double* seconds) {
  *seconds = INFINITY;
  for (int i = 0; i < LAUNCHES; i++) {
    HY_TRY(reset(t));
    HY_TRY(hy_stream_sync(t->stream));
    int64_t start = hy__now_ns();
    HY_TRY(hy_graph_launch(graph, t->stream));
    HY_TRY(hy_stream_sync(t->stream));
    *seconds = fmin(*seconds, 1e-9 * (double)(hy__now_ns() - start));
  }
  return HY_OK;
}
