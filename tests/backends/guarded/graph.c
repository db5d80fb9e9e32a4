// Graph capture of the guarded device. A graph keeps nodes with device addresses; a launch makes
// them pointers into the store and is one command of the queue, so that memory which the graph
// still uses and somebody freed is an error, and updates do not disturb launches under way.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "guarded.h"

// A node of a graph, or of a launch.
typedef struct node {
  hy_graph_node as;
  hy_call call;
  hy_launch launch;      // in a graph
  guarded_launch local;  // in a launch
  max_align_t data[];    // tensors, or arguments and their values
} node;

struct guarded_graph {
  node** nodes;
  int count, capacity;
  char spoilt[200];  // why there will be no graph; empty: nothing happened
};

static node* node_new(const hy_graph_node* from, size_t bytes) {
  node* n = calloc(1, sizeof *n + bytes);
  if (!n) {
    guarded_host->fail(HY_OUT_OF_MEMORY, "guarded: no host memory for a graph");
    return NULL;
  }
  n->as = *from;
  return n;
}

static node* copy_call(const hy_graph_node* from) {
  const hy_call* call = from->call;
  node* n = node_new(from, (size_t)(call->n_in + call->n_out) * sizeof(hy_tensor));
  if (!n) return NULL;
  hy_tensor* tensors = (hy_tensor*)n->data;
  if (call->n_in) memcpy(tensors, call->in, (size_t)call->n_in * sizeof *tensors);
  memcpy(tensors + call->n_in, call->out, (size_t)call->n_out * sizeof *tensors);
  n->call = *call;
  n->call.in = tensors;
  n->call.out = tensors + call->n_in;
  n->as.call = &n->call;
  return n;
}

static node* copy_launch(const hy_graph_node* from) {
  size_t n_args = (size_t)from->launch->n_args, values = 0;
  for (size_t i = 0; i < n_args; i++) values += from->launch->args[i].bytes;
  node* n = node_new(from, n_args * sizeof(hy_kernel_arg) + values);
  if (!n) return NULL;
  hy_kernel_arg* args = (hy_kernel_arg*)n->data;
  char* value = (char*)(args + n_args);
  for (size_t i = 0; i < n_args; i++) {
    args[i] = from->launch->args[i];
    args[i].value = memcpy(value, from->launch->args[i].value, args[i].bytes);
    value += args[i].bytes;
  }
  n->launch = *from->launch;
  n->launch.args = args;
  n->as.launch = &n->launch;
  return n;
}

static node* node_copy(const hy_graph_node* from) {
  switch (from->kind) {
    case HY_NODE_CALL: return copy_call(from);
    case HY_NODE_LAUNCH: return copy_launch(from);
    case HY_NODE_COPY:
    case HY_NODE_SET: return node_new(from, 0);
    case HY_NODE_CHAIN:  // of providers that run chains
    case HY_NODE_COLLECTIVE: break;
  }
  guarded_host->fail(HY_INVALID_ARGUMENT, "guarded: %d is no kind of node", (int)from->kind);
  return NULL;
}

// ---- capture ----

hy_status guarded_capture_begin(void* device, void* stream) {
  (void)device;
  guarded_graph* graph = calloc(1, sizeof *graph);
  if (!graph) return guarded_host->fail(HY_OUT_OF_MEMORY, "guarded: no host memory for a graph");
  hy_status status = guarded_queue_capture(stream, graph);
  if (status != HY_OK) free(graph);
  return status;
}

hy_status guarded_graph_add(guarded_graph* graph, const hy_graph_node* from) {
  if (graph->count == graph->capacity) {
    int capacity = graph->capacity ? 2 * graph->capacity : 16;
    node** nodes = realloc(graph->nodes, (size_t)capacity * sizeof *nodes);
    if (!nodes) return guarded_host->fail(HY_OUT_OF_MEMORY, "guarded: no host memory for a graph");
    graph->nodes = nodes;
    graph->capacity = capacity;
  }
  node* n = node_copy(from);
  if (!n) return HY_OUT_OF_MEMORY;
  graph->nodes[graph->count++] = n;
  return HY_OK;
}

void guarded_graph_spoil(guarded_graph* graph, const char* why) {
  snprintf(graph->spoilt, sizeof graph->spoilt, "%s", why);
}

hy_status guarded_capture_end(void* device, void* stream, void** out) {
  guarded_graph* graph = guarded_queue_captured(stream);
  if (!graph) return guarded_host->fail(HY_INTERNAL, "guarded: capture_end without a capture");
  hy_status status = HY_OK;
  if (graph->spoilt[0]) status = guarded_host->fail(HY_INTERNAL, "%s", graph->spoilt);
  if (out && status == HY_OK) {
    *out = graph;
  } else {
    guarded_graph_destroy(device, graph);
  }
  return status;
}

void guarded_graph_destroy(void* device, void* graph) {
  (void)device;
  guarded_graph* g = graph;
  for (int i = 0; i < g->count; i++) free(g->nodes[i]);
  free(g->nodes);
  free(g);
}

// ---- update ----

// What must be as captured.
static bool same_shape(const hy_graph_node* a, const hy_graph_node* b) {
  if (a->kind != b->kind) return false;
  if (a->kind == HY_NODE_LAUNCH) {
    return a->kernel == b->kernel && a->launch->n_args == b->launch->n_args;
  }
  if (a->kind != HY_NODE_CALL) return a->bytes == b->bytes;
  if (a->call->op != b->call->op || a->call->n_in != b->call->n_in) return false;
  for (int i = 0; i < a->call->n_out; i++) {
    if (a->call->out[i].dtype != b->call->out[i].dtype) return false;
    if (memcmp(a->call->out[i].shape, b->call->out[i].shape, sizeof a->call->out[i].shape) != 0) {
      return false;
    }
  }
  return true;
}

hy_status guarded_graph_update(void* device, void* graph, int32_t index, const hy_graph_node* now) {
  (void)device;
  guarded_graph* g = graph;
  if (index < 0 || index >= g->count || !same_shape(&g->nodes[index]->as, now)) {
    return guarded_host->fail(HY_INVALID_ARGUMENT,
                              "guarded: node %d of %d is not the one that was captured", index,
                              g->count);
  }
  node* fresh = node_copy(now);
  if (!fresh) return HY_OUT_OF_MEMORY;
  free(g->nodes[index]);
  g->nodes[index] = fresh;
  return HY_OK;
}

// ---- launch ----

typedef struct batch {
  int count;
  node* nodes[];  // with pointers into the store
} batch;

static void batch_free(batch* b) {
  for (int i = 0; i < b->count; i++) free(b->nodes[i]);
  free(b);
}

static hy_status localize(guarded_device* device, node* n) {
  guarded_memory* memory = &device->memory;
  char* at;
  switch (n->as.kind) {
    case HY_NODE_CALL:
      return guarded_localize(device, (hy_tensor*)n->data, n->call.n_in + n->call.n_out);
    case HY_NODE_LAUNCH:
      return guarded_launch_localize(device, n->as.kernel, &n->launch, &n->local);
    case HY_NODE_COPY:
      HY_TRY(guarded_memory_reach(memory, n->as.src, n->as.bytes, &at));
      n->as.src = at;
      break;
    case HY_NODE_SET:
    case HY_NODE_CHAIN:
    case HY_NODE_COLLECTIVE: break;
  }
  HY_TRY(guarded_memory_reach(memory, n->as.dst, n->as.bytes, &at));
  n->as.dst = at;
  return HY_OK;
}

static hy_status run(const node* n) {
  switch (n->as.kind) {
    case HY_NODE_CALL: return guarded_run_call(&n->call);
    case HY_NODE_LAUNCH: guarded_launch_run(&n->local); break;
    case HY_NODE_COPY: memmove(n->as.dst, n->as.src, n->as.bytes); break;
    case HY_NODE_SET: memset(n->as.dst, n->as.value, n->as.bytes); break;
    case HY_NODE_CHAIN:
    case HY_NODE_COLLECTIVE: break;
  }
  return HY_OK;
}

static hy_status run_batch(void* context, bool broken) {
  batch* b = context;
  hy_status status = HY_OK;
  for (int i = 0; i < b->count && status == HY_OK && !broken; i++) status = run(b->nodes[i]);
  batch_free(b);
  return status;
}

hy_status guarded_graph_launch(void* device, void* graph, void* stream) {
  const guarded_graph* g = graph;
  batch* b = calloc(1, sizeof *b + (size_t)g->count * sizeof *b->nodes);
  if (!b) return guarded_host->fail(HY_OUT_OF_MEMORY, "guarded: no host memory for a launch");
  hy_status status = HY_OK;
  for (int i = 0; i < g->count && status == HY_OK; i++) {
    node* n = node_copy(&g->nodes[i]->as);
    if (!n) {
      status = HY_OUT_OF_MEMORY;
      break;
    }
    b->nodes[b->count++] = n;
    status = localize(device, n);
  }
  if (status == HY_OK) status = guarded_push_work(stream, run_batch, b);
  if (status != HY_OK) batch_free(b);
  return status;
}
