// Recomputing: an elementwise result that waits over the peak for a late reader, while its own
// inputs are kept anyway, is made again where it is read. Training keeps many such for the
// backward.
#include "graph/passes/passes.h"
#include "ops/internal.h"

enum { SMALLEST = 4096, MOST_ROUNDS = 1024 };

// The node with most bytes alive.
static hy_status find_peak(const hy_graph* graph, const hy__uses* uses, int* peak,
                           uint64_t* bytes) {
  int64_t* change = hy__calloc((size_t)graph->count + 2, sizeof *change);
  if (!change) return hy_fail(HY_OUT_OF_MEMORY, "no host memory for a pass over a graph");
  for (int v = 0; v < graph->n_values; v++) {
    if (!graph->values[v].local || uses[v].first > uses[v].last) continue;
    change[uses[v].first] += (int64_t)graph->values[v].bytes;
    change[uses[v].last + 1] -= (int64_t)graph->values[v].bytes;
  }
  int64_t live = 0, most = -1;
  for (int i = 0; i < graph->count; i++) {
    live += change[i];
    if (live <= most) continue;
    most = live;
    *peak = i;
  }
  *bytes = (uint64_t)(most < 0 ? 0 : most);
  hy__mfree(change);
  return HY_OK;
}

static bool touches(const hy__graph_node* node, int value) {
  for (int k = 0; k < node->n_operands; k++) {
    if (node->operands[k].value == value) return true;
  }
  return false;
}

// Bytes that need not be kept when the value is made again for the reader: its own, less those of
// inputs that would have died (a cast to a wider type has a smaller one). 0: nothing is gained, or
// an input is overwritten.
static uint64_t gain(const hy_graph* graph, const hy__uses* uses, int value, int reader) {
  const hy__graph_node* node = graph->nodes[uses[value].writer];
  uint64_t kept = 0;
  for (int k = 0; k < node->n_operands; k++) {
    const hy__operand* o = &node->operands[k];
    if (!o->reads) continue;
    if (o->value >= 0 && uses[o->value].last < reader) kept += graph->values[o->value].bytes;
    for (int i = uses[value].writer + 1; i < reader; i++) {
      if (hy__node_writes(graph, graph->nodes[i], o)) return 0;
    }
  }
  uint64_t bytes = graph->values[value].bytes;
  return bytes > kept ? bytes - kept : 0;
}

// The first reader behind the peak, of a value that may be made again there; -1: it may not.
static int late_reader(const hy_graph* graph, const hy__uses* uses, int value, int peak) {
  const hy__uses* u = &uses[value];
  if (!graph->values[value].local || graph->values[value].bytes < SMALLEST) return -1;
  if (u->writers != 1 || u->first >= peak || u->last <= peak || u->writer != u->first) return -1;
  const hy__graph_node* node = graph->nodes[u->writer];
  if (node->as.kind != HY_NODE_CALL || node->named || node->call.n_out != 1 ||
      hy_op_describe(node->call.op)->alias != HY_ALIAS_ANY || touches(graph->nodes[peak], value))
    return -1;
  int reader = peak + 1;
  while (!touches(graph->nodes[reader], value)) reader++;
  return reader;
}

static void retarget(const hy_graph* graph, hy__operand* o, int to) {
  o->captured = graph->values[to].captured + (o->captured - graph->values[o->value].captured);
  o->value = to;
  hy__graph_place(graph, o);
}

// Makes the value again before the reader, for it and all that follow.
static hy_status make_again(hy_graph* graph, int writer, int value, int reader) {
  const hy__graph_node* from = graph->nodes[writer];
  hy__graph_node* node = NULL;
  int32_t again = hy__graph_add_value(graph, graph->values[value].bytes);
  if (again < 0) return HY_OUT_OF_MEMORY;
  HY_TRY(hy__graph_node_create(&from->as, from->provider, &node));
  for (int k = 0; k < node->n_operands; k++) {
    node->operands[k].captured = from->operands[k].captured;
    node->operands[k].value = from->operands[k].value;
    if (node->operands[k].writes) retarget(graph, &node->operands[k], again);
  }
  HY_TRY(hy__graph_append(graph, node));  // at the end, then moved
  for (int i = graph->count - 1; i > reader; i--) graph->nodes[i] = graph->nodes[i - 1];
  graph->nodes[reader] = node;
  for (int i = reader + 1; i < graph->count; i++) {
    for (int k = 0; k < graph->nodes[i]->n_operands; k++) {
      if (graph->nodes[i]->operands[k].value == value)
        retarget(graph, &graph->nodes[i]->operands[k], again);
    }
  }
  hy__graph_drop_handle(graph);
  return HY_OK;
}

// One value made again at the peak, the one that gains most; false: there is none.
static hy_status relieve(hy_graph* graph, bool* found) {
  hy__uses* uses = hy__graph_uses(graph);
  int peak = 0, best = -1, reader = -1;
  uint64_t bytes = 0, most = 0;
  if (!uses) return HY_OUT_OF_MEMORY;
  hy_status status = find_peak(graph, uses, &peak, &bytes);
  for (int v = 0; v < graph->n_values && status == HY_OK && bytes > 0; v++) {
    int here = late_reader(graph, uses, v, peak);
    uint64_t gained = here < 0 ? 0 : gain(graph, uses, v, here);
    if (gained <= most) continue;
    best = v;
    most = gained;
    reader = here;
  }
  *found = best >= 0;
  if (status == HY_OK && *found) status = make_again(graph, uses[best].writer, best, reader);
  hy__mfree(uses);
  return status;
}

hy_status hy__pass_recompute(hy_graph* graph, int* changes) {
  for (int round = 0; round < MOST_ROUNDS; round++) {
    bool found;
    HY_TRY(relieve(graph, &found));
    if (!found) return HY_OK;
    ++*changes;
  }
  return HY_OK;
}
