// A graph in words: one line per node, each address one numbered value.
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "graph/graph.h"
#include "ops/internal.h"

typedef struct text {
  char* buffer;
  size_t size, used;  // used counts what had no room too
} text;

static void append(text* t, const char* format, ...) __attribute__((format(printf, 2, 3)));
static void append(text* t, const char* format, ...) {
  size_t room = t->used < t->size ? t->size - t->used : 0;
  va_list arguments;
  va_start(arguments, format);
  int n = vsnprintf(room ? t->buffer + t->used : NULL, room, format, arguments);
  va_end(arguments);
  if (n > 0) t->used += (size_t)n;
}

// The number of an address: that of its first use.
static int number_of(const hy_graph* graph, const void* address) {
  int number = 0;
  for (int i = 0; i < graph->count; i++) {
    const hy__graph_node* node = graph->nodes[i];
    for (int k = 0; k < node->n_operands; k++, number++) {
      if (*node->operands[k].now == address) return number;
    }
  }
  return -1;
}

static void append_values(text* t, const hy_graph* graph, const hy_tensor* tensors, int n) {
  char words[200];
  for (int i = 0; i < n; i++) {
    if (i) append(t, ", ");
    if (tensors[i].dtype == HY_NONE) {
      append(t, "none");
      continue;
    }
    int number = number_of(graph, tensors[i].data);
    hy_tensor_describe(&tensors[i], words, sizeof words);
    if (number < 0)
      append(t, "%s", words);  // without elements
    else
      append(t, "%%%d %s", number, words);
  }
}

static void append_variant(text* t, const hy__graph_node* node) {
  if (node->variant) append(t, ", variant %d", (int)node->variant);
  if (node->packed) append(t, ", packed");
}

static void append_collective(text* t, const hy_graph* graph, const hy_collective* c) {
  if (c->recv)
    append(t, "%%%d %s[%lld] = ", number_of(graph, c->recv), hy_dtype_name(c->dtype),
           (long long)c->count * (c->kind == HY_COLLECTIVE_ALL_GATHER ? hy_comm_size(c->comm) : 1));
  append(t, "%s(", hy_collective_name(c->kind));
  if (c->send) append(t, "%%%d", number_of(graph, c->send));
  if (c->kind == HY_COLLECTIVE_BROADCAST)
    append(t, "%%%d of rank %d", number_of(graph, c->recv), (int)c->root);
  append(t, ") by %d ranks", hy_comm_size(c->comm));
}

static void append_node(text* t, const hy_graph* graph, const hy__graph_node* node) {
  const hy_graph_node* as = &node->as;
  switch (as->kind) {
    case HY_NODE_CALL:
      append_values(t, graph, as->call->out, as->call->n_out);
      append(t, " = %s(", hy_op_name(as->call->op));
      append_values(t, graph, as->call->in, as->call->n_in);
      append(t, ") by %s", node->provider ? node->provider->name : "reference");
      append_variant(t, node);
      break;
    case HY_NODE_COPY:
      append(t, "%%%d = copy %llu bytes of %%%d", number_of(graph, as->dst),
             (unsigned long long)as->bytes, number_of(graph, as->src));
      break;
    case HY_NODE_SET:
      append(t, "%%%d = set %llu bytes to %d", number_of(graph, as->dst),
             (unsigned long long)as->bytes, as->value & 0xff);
      break;
    case HY_NODE_CHAIN:
      append_values(t, graph, as->chain->out, as->chain->n_out);
      append(t, " = chain");
      for (int i = 0; i < as->chain->n_steps; i++)
        append(t, "%c%s", i ? ' ' : '[', hy_op_name(as->chain->steps[i].op));
      append(t, "](");
      append_values(t, graph, as->chain->in, as->chain->n_in);
      append(t, ") by %s", node->provider->name);
      append_variant(t, node);
      break;
    case HY_NODE_COLLECTIVE: append_collective(t, graph, as->collective); break;
    case HY_NODE_LAUNCH:
      append(t, "launch of %u x %u x %u blocks with %d arguments", as->launch->grid[0],
             as->launch->grid[1], as->launch->grid[2], as->launch->n_args);
      break;
  }
}

size_t hy_graph_describe(const hy_graph* graph, char* buffer, size_t size) {
  text t = {buffer, buffer ? size : 0, 0};
  if (t.size) buffer[0] = 0;
  if (!graph) return 0;
  append(&t, "graph on %s, %d nodes, launched %s, %llu bytes of its own\n", graph->device->selector,
         graph->count, graph->native ? "by the backend" : "by calls",
         (unsigned long long)hy_graph_memory(graph));
  for (int i = 0; i < graph->count; i++) {
    append(&t, "%4d: ", i);
    append_node(&t, graph, graph->nodes[i]);
    append(&t, "\n");
  }
  return t.used;
}

int hy_graph_node_count(const hy_graph* graph) {
  return graph ? graph->count : 0;
}

bool hy_graph_is_native(const hy_graph* graph) {
  return graph && graph->native;
}

uint64_t hy_graph_memory(const hy_graph* graph) {
  if (!graph) return 0;
  uint64_t bytes = graph->arena_bytes;
  if (graph->memory) bytes += hy__allocator_private_bytes(graph->device->allocator, graph->memory);
  return bytes;
}
