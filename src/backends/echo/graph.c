// Graphs of the echo backend: a captured step as a command list. Packets hold addresses and counts
// that come from index tensors on the device (cached.c), so that what is captured are the calls; a
// launch reads all indices in one wait and then hands over the packets of the whole step without
// another.
#include <stdlib.h>
#include <string.h>

#include "backends/echo/packets.h"

typedef struct node {
  hy_graph_node as;
  hy_call call;
  hy_chain chain;
  max_align_t data[];  // tensors, then steps
} node;

struct hy__echo_graph {
  node** nodes;
  int count, capacity;
};

static hy_status no_memory(void) {
  return hy__backend_host->fail(HY_OUT_OF_MEMORY, "echo: no host memory for a graph");
}

// ---- Nodes ----

static hy_tensor* copy_tensors(node* n, const hy_tensor* in, int n_in, const hy_tensor* out,
                               int n_out) {
  hy_tensor* tensors = (hy_tensor*)n->data;
  if (n_in) memcpy(tensors, in, (size_t)n_in * sizeof *tensors);
  if (n_out) memcpy(tensors + n_in, out, (size_t)n_out * sizeof *tensors);
  return tensors;
}

// A copy of all that the node needs; NULL without memory.
static node* copy_node(const hy_graph_node* from) {
  const hy_call* call = from->kind == HY_NODE_CALL ? from->call : NULL;
  const hy_chain* chain = from->kind == HY_NODE_CHAIN ? from->chain : NULL;
  size_t tensors = call    ? (size_t)(call->n_in + call->n_out)
                   : chain ? (size_t)(chain->n_in + chain->n_out)
                           : 0;
  size_t steps = chain ? (size_t)chain->n_steps * sizeof *chain->steps : 0;
  node* n = calloc(1, sizeof *n + tensors * sizeof(hy_tensor) + steps);
  if (!n) return NULL;
  n->as = *from;
  if (call) {
    n->call = *call;
    n->call.in = copy_tensors(n, call->in, call->n_in, call->out, call->n_out);
    n->call.out = (hy_tensor*)n->data + call->n_in;
    n->as.call = &n->call;
  } else if (chain) {
    n->chain = *chain;
    n->chain.in = copy_tensors(n, chain->in, chain->n_in, chain->out, chain->n_out);
    n->chain.out = (hy_tensor*)n->data + chain->n_in;
    n->chain.steps = memcpy((hy_tensor*)n->data + tensors, chain->steps, steps);
    n->as.chain = &n->chain;
  }
  return n;
}

hy_status hy__echo_record(hy__echo_stream* stream, const hy_graph_node* from) {
  hy__echo_graph* g = stream->capture;
  if (g->count == g->capacity) {
    int capacity = g->capacity ? 2 * g->capacity : 64;
    node** grown = realloc(g->nodes, (size_t)capacity * sizeof(node*));
    if (!grown) return no_memory();
    g->nodes = grown;
    g->capacity = capacity;
  }
  node* n = copy_node(from);
  if (!n) return no_memory();
  g->nodes[g->count++] = n;
  return HY_OK;
}

// ---- Capturing ----

void hy__echo_graph_destroy(void* device, void* graph) {
  (void)device;
  hy__echo_graph* g = graph;
  for (int i = 0; i < g->count; i++) free(g->nodes[i]);
  free(g->nodes);
  free(g);
}

hy_status hy__echo_capture_begin(void* device, void* stream) {
  (void)device;
  hy__echo_stream* s = stream;
  s->capture = calloc(1, sizeof *s->capture);
  return s->capture ? HY_OK : no_memory();
}

hy_status hy__echo_capture_end(void* device, void* stream, void** graph) {
  hy__echo_stream* s = stream;
  if (graph)
    *graph = s->capture;
  else
    hy__echo_graph_destroy(device, s->capture);
  s->capture = NULL;
  return HY_OK;
}

hy_status hy__echo_graph_update(void* device, void* graph, int32_t index,
                                const hy_graph_node* now) {
  (void)device;
  hy__echo_graph* g = graph;
  node* fresh = copy_node(now);
  if (!fresh) return no_memory();
  free(g->nodes[index]);
  g->nodes[index] = fresh;
  return HY_OK;
}

// ---- Launching ----

static hy_status submit(hy__echo_stream* s, const node* n) {
  const hy_graph_node* as = &n->as;
  switch (as->kind) {
    case HY_NODE_CALL: return hy__echo_provider.run(s->device, s, &n->call);
    case HY_NODE_CHAIN: return hy__echo_provider.run_chain(s->device, s, &n->chain);
    case HY_NODE_COPY:
      return hy__echo_stream_result(s,
                                    echoNpuMemcpyAsync(as->dst, as->src, as->bytes,
                                                       ECHO_NPU_MEMCPY_DEVICE_TO_DEVICE, s->queue),
                                    "a copy");
    case HY_NODE_SET:
      return hy__echo_stream_result(s, echoNpuMemsetAsync(as->dst, as->value, as->bytes, s->queue),
                                    "a memset");
    case HY_NODE_LAUNCH:
    case HY_NODE_COLLECTIVE: break;
  }
  return hy__backend_host->fail(HY_UNSUPPORTED, "echo: a graph with a compiled kernel");
}

// What the node is about to change is no longer known.
static void forget_outputs(hy__echo_stream* s, const node* n) {
  if (n->as.kind == HY_NODE_COPY || n->as.kind == HY_NODE_SET)
    hy__echo_forget_indices(s, n->as.dst, n->as.bytes);
  const hy_tensor* out = n->as.kind == HY_NODE_CALL    ? n->call.out
                         : n->as.kind == HY_NODE_CHAIN ? n->chain.out
                                                       : NULL;
  int n_out = n->as.kind == HY_NODE_CALL ? n->call.n_out : n->chain.n_out;
  for (int i = 0; out && i < n_out; i++) {
    int64_t first, last;
    if (out[i].dtype == HY_NONE) continue;
    hy_tensor_extent(&out[i], &first, &last);
    hy__echo_forget_indices(s, (const char*)out[i].data + first, (size_t)(last - first));
  }
}

hy_status hy__echo_graph_launch(void* device, void* graph, void* stream) {
  (void)device;
  hy__echo_graph* g = graph;
  hy__echo_stream* s = stream;
  HY_TRY(hy__echo_stream_status(s));
  hy_status status = HY_OK;
  for (int i = 0; i < g->count && status == HY_OK; i++) {
    if (g->nodes[i]->as.kind == HY_NODE_CALL)
      status = hy__echo_expect_indices(s, &g->nodes[i]->call);
  }
  if (status == HY_OK) status = hy__echo_learn_indices(s);
  for (int i = 0; i < g->count && status == HY_OK; i++) {
    status = submit(s, g->nodes[i]);
    forget_outputs(s, g->nodes[i]);
  }
  hy__echo_forget_all_indices(s);
  return status;
}
