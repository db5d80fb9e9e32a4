// Rebinding: a graph replayed on other memory, or with other attributes.
#include <string.h>

#include "graph/graph.h"
#include "ops/internal.h"

// ---- ranges ----

static bool same_range(const hy_binding* a, const hy_binding* b) {
  return a->captured == b->captured && a->bytes == b->bytes;
}

static bool meet(const hy_binding* a, const hy_binding* b) {
  uintptr_t x = (uintptr_t)a->captured, y = (uintptr_t)b->captured;
  return x < y + b->bytes && y < x + a->bytes;
}

// The list with `more` put in: a range that is there already gets its new address.
static hy_status merge(hy_binding* list, int* n, const hy_binding* more) {
  if (!more->captured || !more->now || more->bytes == 0) {
    return hy_fail(HY_INVALID_ARGUMENT, "hy_graph_bind: a range is empty, or an address is NULL");
  }
  for (int i = 0; i < *n; i++) {
    if (same_range(&list[i], more)) {
      list[i].now = more->now;
      return HY_OK;
    }
    if (meet(&list[i], more)) {
      return hy_fail(HY_INVALID_ARGUMENT,
                     "hy_graph_bind: %zu bytes at %p overlap another bound range, %zu bytes at %p",
                     more->bytes, more->captured, list[i].bytes, list[i].captured);
    }
  }
  list[(*n)++] = *more;
  return HY_OK;
}

// ---- operands ----

// Where the operand is under these bindings.
static hy_status place(const hy__operand* o, const hy_binding* list, int n, void** now) {
  uintptr_t first = (uintptr_t)o->captured + (uintptr_t)o->first;
  uintptr_t last = (uintptr_t)o->captured + (uintptr_t)o->last;
  *now = o->captured;
  for (int i = 0; i < n; i++) {
    uintptr_t begin = (uintptr_t)list[i].captured, end = begin + list[i].bytes;
    if (last <= begin || first >= end) continue;
    if (first < begin || last > end) {
      return hy_fail(HY_INVALID_ARGUMENT,
                     "hy_graph_bind: %zu bytes at %p cut through a tensor of %zu bytes at %p",
                     list[i].bytes, list[i].captured, (size_t)(last - first), (void*)first);
    }
    *now = (char*)list[i].now + ((uintptr_t)o->captured - begin);
    return HY_OK;
  }
  return HY_OK;
}

// What is constant stays where it is.
static hy_status check_free(const hy_graph* graph, const hy_binding* b) {
  for (int i = 0; i < graph->n_arguments; i++) {
    const hy__graph_argument* a = &graph->arguments[i];
    const hy_binding range = {a->captured, a->bytes, NULL};
    if (a->constant && meet(&range, b))
      return hy_fail(HY_INVALID_ARGUMENT, "hy_graph_bind: %zu bytes at %p are marked as constant",
                     (size_t)a->bytes, (void*)a->captured);
  }
  return HY_OK;
}

static bool is_used(const hy_graph* graph, const hy_binding* b) {
  for (int i = 0; i < graph->count; i++) {
    const hy__graph_node* node = graph->nodes[i];
    for (int k = 0; k < node->n_operands; k++) {
      const hy__operand* o = &node->operands[k];
      if (o->value >= 0) continue;
      uintptr_t first = (uintptr_t)o->captured + (uintptr_t)o->first;
      if (first - (uintptr_t)b->captured < b->bytes) return true;
    }
  }
  return false;
}

// ---- nodes ----

hy_status hy__graph_check_call(const hy_graph* graph, int index, const hy_call* call,
                               const hy_provider** provider) {
  hy_tensor expected[HY_MAX_OUTPUTS];
  hy_support reason;
  HY_TRY(hy_infer(call, expected));
  HY_TRY(hy__check_inferred(call, expected));
  *provider = hy__choose_provider(graph->device, call, &reason);
  if (*provider || graph->device->is_host) return HY_OK;
  return hy__call_fail(call, HY_UNSUPPORTED, "node %d of a graph: %s no longer runs it: %s", index,
                       graph->device->selector, hy_support_text(reason));
}

// Moves the node's operands; `moved` says whether any did.
static hy_status move(hy__graph_node* node, const hy_binding* list, int n, bool* moved) {
  *moved = false;
  for (int i = 0; i < node->n_operands; i++) {
    void* now;
    if (node->operands[i].value >= 0) continue;
    HY_TRY(place(&node->operands[i], list, n, &now));
    *moved = *moved || now != *node->operands[i].now;
    *node->operands[i].now = now;
  }
  return HY_OK;
}

static hy_status move_all(hy_graph* graph, const hy_binding* list, int n, bool* moved) {
  for (int i = 0; i < graph->count; i++) {
    hy__graph_node* node = graph->nodes[i];
    HY_TRY(move(node, list, n, &moved[i]));
    node->next = node->provider;
    if (moved[i] && node->as.kind == HY_NODE_CALL) {
      HY_TRY(hy__graph_check_call(graph, i, node->as.call, &node->next));
    }
  }
  return HY_OK;
}

// Arguments that are in the range have memory now.
static void note_bound(hy_graph* graph, const hy_binding* b) {
  for (int i = 0; i < graph->n_arguments; i++) {
    hy__graph_argument* a = &graph->arguments[i];
    uintptr_t at = (uintptr_t)a->captured - (uintptr_t)b->captured;
    if (at < b->bytes && a->bytes <= b->bytes - at) a->bound = true;
  }
}

hy_status hy_graph_bind(hy_graph* graph, const hy_binding* bindings, int n) {
  if (!graph || n < 0 || (n > 0 && !bindings)) {
    return hy_fail(HY_INVALID_ARGUMENT, "hy_graph_bind: %s",
                   graph ? "bindings do not hold n" : "graph is NULL");
  }
  int total = graph->n_bindings;
  hy_binding* list = hy__calloc((size_t)(total + n) + 1, sizeof *list);
  bool* moved = hy__calloc((size_t)graph->count + 1, sizeof *moved);
  hy_status status = HY_OK;
  if (!list || !moved) {
    status = hy_fail(HY_OUT_OF_MEMORY, "hy_graph_bind: no host memory");
    goto done;
  }
  if (total) memcpy(list, graph->bindings, (size_t)total * sizeof *list);
  for (int i = 0; i < n && status == HY_OK; i++) {
    status = check_free(graph, &bindings[i]);
    if (status == HY_OK) status = merge(list, &total, &bindings[i]);
    if (status == HY_OK && !is_used(graph, &bindings[i])) {
      status = hy_fail(HY_NOT_FOUND, "hy_graph_bind: no node uses memory at %p, %zu bytes",
                       bindings[i].captured, bindings[i].bytes);
    }
  }
  if (status != HY_OK) goto done;
  status = move_all(graph, list, total, moved);
  if (status != HY_OK) {
    bool back;
    for (int i = 0; i < graph->count; i++) {
      (void)move(graph->nodes[i], graph->bindings, graph->n_bindings, &back);
    }
    goto done;
  }
  for (int i = 0; i < graph->count; i++) {
    if (graph->nodes[i]->provider != graph->nodes[i]->next) graph->nodes[i]->variant = 0;
    graph->nodes[i]->provider = graph->nodes[i]->next;
    graph->nodes[i]->stale |= moved[i];
    graph->stale |= moved[i];
    if (moved[i]) hy__packed_check(graph, graph->nodes[i]);
  }
  for (int i = 0; i < n; i++) note_bound(graph, &bindings[i]);
  hy_binding* old = graph->bindings;
  graph->bindings = list;
  graph->n_bindings = total;
  list = old;
done:
  hy__mfree(list);
  hy__mfree(moved);
  return status;
}

static hy_status check_node(const hy_graph* graph, const char* caller, int index) {
  if (!graph) return hy_fail(HY_INVALID_ARGUMENT, "%s: graph is NULL", caller);
  if (index >= 0 && index < graph->count) return HY_OK;
  return hy_fail(HY_INVALID_ARGUMENT, "%s: node %d; the graph has %d", caller, index, graph->count);
}

hy_status hy_graph_set_attrs(hy_graph* graph, int index, const hy_attrs* attrs) {
  HY_TRY(check_node(graph, "hy_graph_set_attrs", index));
  hy__graph_node* node = graph->nodes[index];
  if (!attrs || node->as.kind != HY_NODE_CALL) {
    return hy_fail(HY_INVALID_ARGUMENT, "hy_graph_set_attrs: %s",
                   attrs ? "the node is no call" : "attrs is NULL");
  }
  hy_call changed = node->call;
  changed.attrs = *attrs;
  HY_TRY(hy__graph_check_call(graph, index, &changed, &node->provider));
  node->call.attrs = *attrs;
  node->variant = 0;
  node->stale = graph->stale = true;
  hy__packed_check(graph, node);
  return HY_OK;
}

hy_status hy_graph_node_at(const hy_graph* graph, int index, hy_graph_node* node) {
  HY_TRY(check_node(graph, "hy_graph_node_at", index));
  if (!node) return hy_fail(HY_INVALID_ARGUMENT, "hy_graph_node_at: node is NULL");
  *node = graph->nodes[index]->as;
  return HY_OK;
}
