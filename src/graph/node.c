// Nodes of a graph: deep copies of calls, chains, copies, memsets, kernel launches and collectives,
// each one allocation.
#include <string.h>

#include "graph/graph.h"

static hy__graph_node* node_new(int n_operands, size_t data_bytes) {
  size_t operands = (size_t)n_operands * sizeof(hy__operand);
  hy__graph_node* node = hy__calloc(1, sizeof *node + operands + data_bytes);
  if (!node) {
    hy_fail(HY_OUT_OF_MEMORY, "no host memory for a node of a graph");
    return NULL;
  }
  node->operands = (hy__operand*)node->data;
  return node;
}

static void* data_of(hy__graph_node* node, int n_operands) {
  return (hy__operand*)node->data + n_operands;
}

enum { READS = 1, WRITES = 2 };

static void add_operand(hy__graph_node* node, void** now, int64_t first, int64_t last, int how) {
  node->operands[node->n_operands++] =
      (hy__operand){*now, first, last, now, -1, (how & READS) != 0, (how & WRITES) != 0};
}

static void add_tensor(hy__graph_node* node, hy_tensor* t, int how) {
  int64_t first, last;
  if (t->dtype == HY_NONE) return;
  hy_tensor_extent(t, &first, &last);
  if (first < last) add_operand(node, &t->data, first, last, how);
}

static hy__graph_node* copy_call(const hy_call* call) {
  int n = call->n_in + call->n_out;
  hy__graph_node* node = node_new(n, (size_t)n * sizeof(hy_tensor));
  if (!node) return NULL;
  hy_tensor* tensors = data_of(node, n);
  if (call->n_in) memcpy(tensors, call->in, (size_t)call->n_in * sizeof *tensors);
  memcpy(tensors + call->n_in, call->out, (size_t)call->n_out * sizeof *tensors);
  node->call = *call;
  node->call.in = tensors;
  node->call.out = tensors + call->n_in;
  node->as.call = &node->call;
  for (int i = 0; i < n; i++) add_tensor(node, &tensors[i], i < call->n_in ? READS : WRITES);
  return node;
}

static hy__graph_node* copy_chain(const hy_chain* chain) {
  int n = chain->n_in + chain->n_out;
  size_t steps = (size_t)chain->n_steps * sizeof(hy_chain_step);
  hy__graph_node* node = node_new(n, (size_t)n * sizeof(hy_tensor) + steps);
  if (!node) return NULL;
  hy_tensor* tensors = data_of(node, n);
  if (chain->n_in) memcpy(tensors, chain->in, (size_t)chain->n_in * sizeof *tensors);
  memcpy(tensors + chain->n_in, chain->out, (size_t)chain->n_out * sizeof *tensors);
  node->chain = *chain;
  node->chain.in = tensors;
  node->chain.out = tensors + chain->n_in;
  node->chain.steps = memcpy(tensors + n, chain->steps, steps);
  node->as.chain = &node->chain;
  for (int i = 0; i < n; i++) add_tensor(node, &tensors[i], i < chain->n_in ? READS : WRITES);
  return node;
}

static hy__graph_node* copy_launch(const hy_launch* launch) {
  size_t n = (size_t)launch->n_args, values = 0;
  for (size_t i = 0; i < n; i++) values += (launch->args[i].bytes + 15u) / 16 * 16;
  hy__graph_node* node = node_new((int)n, n * sizeof(hy_kernel_arg) + values);
  if (!node) return NULL;
  hy_kernel_arg* args = data_of(node, (int)n);
  char* value = (char*)(args + n);
  for (size_t i = 0; i < n; i++) {
    args[i] = launch->args[i];
    args[i].value = memcpy(value, launch->args[i].value, args[i].bytes);
    // How far behind the address the kernel reaches is not known, nor what it does there.
    if (args[i].is_address) add_operand(node, (void**)value, 0, 1, READS | WRITES);
    value += (args[i].bytes + 15u) / 16 * 16;
  }
  node->launch = *launch;
  node->launch.args = args;
  node->as.launch = &node->launch;
  return node;
}

static hy__graph_node* copy_copy(const hy_graph_node* from) {
  int n = from->kind == HY_NODE_COPY ? 2 : 1;
  hy__graph_node* node = node_new(n, 0);
  if (!node) return NULL;
  node->as = *from;
  add_operand(node, &node->as.dst, 0, (int64_t)from->bytes, WRITES);
  if (n == 2) add_operand(node, (void**)&node->as.src, 0, (int64_t)from->bytes, READS);
  return node;
}

// A broadcast's buffer is read on one rank and written on the others; the graph is the same on all.
static hy__graph_node* copy_collective(const hy_collective* from) {
  hy__graph_node* node = node_new(2, 0);
  if (!node) return NULL;
  hy_collective* c = &node->collective;
  *c = *from;
  node->as.collective = c;
  int64_t part = c->count * (int64_t)hy_dtype_size(c->dtype), all = part * hy_comm_size(c->comm);
  bool scatters = c->kind == HY_COLLECTIVE_REDUCE_SCATTER;
  bool gathers = c->kind == HY_COLLECTIVE_ALL_GATHER;
  if (c->send) add_operand(node, (void**)&c->send, 0, scatters ? all : part, READS);
  if (c->recv)
    add_operand(node, &c->recv, 0, gathers ? all : part, c->send ? WRITES : READS | WRITES);
  return node;
}

hy_status hy__graph_node_create(const hy_graph_node* from, const hy_provider* provider,
                                hy__graph_node** node) {
  switch (from->kind) {
    case HY_NODE_CALL: *node = copy_call(from->call); break;
    case HY_NODE_LAUNCH: *node = copy_launch(from->launch); break;
    case HY_NODE_CHAIN: *node = copy_chain(from->chain); break;
    case HY_NODE_COPY:
    case HY_NODE_SET: *node = copy_copy(from); break;
    case HY_NODE_COLLECTIVE: *node = copy_collective(from->collective); break;
  }
  if (!*node) return HY_OUT_OF_MEMORY;
  (*node)->as.size = sizeof(hy_graph_node);
  (*node)->as.kind = from->kind;
  (*node)->as.kernel = from->kernel;
  (*node)->provider = provider;
  return HY_OK;
}

void hy__graph_node_destroy(hy__graph_node* node) {
  if (!node) return;
  hy__packed_release(node->packed);
  hy__mfree(node);
}

hy_status hy__graph_grow(void** list, int n, int* capacity, size_t size) {
  if (n < *capacity) return HY_OK;
  int more = *capacity ? 2 * *capacity : 64;
  void* grown = hy__realloc(*list, (size_t)more * size);
  if (!grown) return hy_fail(HY_OUT_OF_MEMORY, "no host memory for a graph");
  *list = grown;
  *capacity = more;
  return HY_OK;
}

hy_status hy__graph_append(hy_graph* graph, hy__graph_node* node) {
  hy_status status =
      hy__graph_grow((void**)&graph->nodes, graph->count, &graph->capacity, sizeof *graph->nodes);
  if (status == HY_OK) {
    graph->nodes[graph->count++] = node;
    graph->talks |= node->as.kind == HY_NODE_COLLECTIVE;
  } else {
    hy__graph_node_destroy(node);
  }
  return status;
}
