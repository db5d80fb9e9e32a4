// Order: of the nodes that may come next, the one that leaves least memory alive. Kept only where
// the peak is lower than before.
#include <string.h>

#include "graph/passes/passes.h"

typedef struct schedule {
  const hy_graph* graph;
  uint8_t* depends;  // [before * count + after]
  int* waits;        // nodes that must still come before
  int* touches;      // of each value: nodes left
  bool *begun, *done;
  int* order;
} schedule;

static uint64_t bytes_of(const hy_graph* graph, int32_t value) {
  return graph->values[value].bytes;
}

// What the node would add to what is alive, less what it would be the last to touch.
static int64_t cost(const schedule* s, int node) {
  const hy__graph_node* n = s->graph->nodes[node];
  int64_t change = 0;
  for (int k = 0; k < n->n_operands; k++) {
    int32_t v = n->operands[k].value;
    bool again = v < 0;
    for (int j = 0; j < k; j++) again = again || n->operands[j].value == v;
    if (again) continue;
    if (!s->begun[v]) change += (int64_t)bytes_of(s->graph, v);
    if (s->touches[v] == 1) change -= (int64_t)bytes_of(s->graph, v);
  }
  return change;
}

static void each_value(const schedule* s, int node, int step) {
  const hy__graph_node* n = s->graph->nodes[node];
  for (int k = 0; k < n->n_operands; k++) {
    int32_t v = n->operands[k].value;
    bool again = v < 0;
    for (int j = 0; j < k; j++) again = again || n->operands[j].value == v;
    if (again) continue;
    s->touches[v] += step;
    if (step < 0) s->begun[v] = true;
  }
}

static void make_order(schedule* s) {
  int n = s->graph->count;
  for (int i = 0; i < n; i++) {
    each_value(s, i, 1);
    for (int j = 0; j < i; j++) {
      bool must = hy__nodes_depend(s->graph, s->graph->nodes[j], s->graph->nodes[i]);
      s->depends[(size_t)j * (size_t)n + (size_t)i] = must;
      s->waits[i] += must;
    }
  }
  for (int at = 0; at < n; at++) {
    int best = -1;
    int64_t least = 0;
    for (int i = 0; i < n; i++) {
      if (s->done[i] || s->waits[i] > 0) continue;
      int64_t c = cost(s, i);
      if (best < 0 || c < least) {
        best = i;
        least = c;
      }
    }
    s->order[at] = best;
    s->done[best] = true;
    each_value(s, best, -1);
    for (int i = best + 1; i < n; i++)
      s->waits[i] -= s->depends[(size_t)best * (size_t)n + (size_t)i];
  }
}

static hy_status peak_of(const hy_graph* graph, uint64_t* bytes) {
  hy__uses* uses = hy__graph_uses(graph);
  if (!uses) return HY_OUT_OF_MEMORY;
  *bytes = hy__live_bytes(graph, uses);
  hy__mfree(uses);
  return HY_OK;
}

// Puts the nodes in the new order if that is better.
static hy_status choose(hy_graph* graph, const int* order, int* changes) {
  size_t n = (size_t)graph->count;
  hy__graph_node** old = hy__malloc(n * sizeof(hy__graph_node*));
  if (!old) return hy_fail(HY_OUT_OF_MEMORY, "no host memory to order a graph");
  uint64_t before = 0, after = 0;
  memcpy(old, graph->nodes, n * sizeof(hy__graph_node*));
  hy_status status = peak_of(graph, &before);
  for (size_t i = 0; i < n; i++) graph->nodes[i] = old[order[i]];
  if (status == HY_OK) status = peak_of(graph, &after);
  if (status != HY_OK || after >= before)
    memcpy(graph->nodes, old, n * sizeof(hy__graph_node*));
  else {
    for (size_t i = 0; i < n; i++) *changes += order[i] != (int)i;
    hy__graph_drop_handle(graph);
  }
  hy__mfree(old);
  return status;
}

enum { MOST_NODES = 8192 };  // dependencies of all pairs are looked at

hy_status hy__pass_order(hy_graph* graph, int* changes) {
  size_t n = (size_t)graph->count, values = (size_t)graph->n_values + 1;
  if (n < 3 || n > MOST_NODES) return HY_OK;
  schedule s = {.graph = graph,
                .depends = hy__calloc(n * n, sizeof *s.depends),
                .waits = hy__calloc(n, sizeof *s.waits),
                .touches = hy__calloc(values, sizeof *s.touches),
                .begun = hy__calloc(values, sizeof *s.begun),
                .done = hy__calloc(n, sizeof *s.done),
                .order = hy__calloc(n, sizeof *s.order)};
  hy_status status = HY_OK;
  if (s.depends && s.waits && s.touches && s.begun && s.done && s.order) {
    make_order(&s);
    status = choose(graph, s.order, changes);
  } else {
    status = hy_fail(HY_OUT_OF_MEMORY, "no host memory to order a graph");
  }
  hy__mfree(s.depends);
  hy__mfree(s.waits);
  hy__mfree(s.touches);
  hy__mfree(s.begun);
  hy__mfree(s.done);
  hy__mfree(s.order);
  return status;
}
