// Fusion: elementwise calls that feed one another become one chain, at the place of the last.
//
// A chain grows downwards from its first call. A call joins if it reads the result of a member, or
// what a member reads too, and the provider says that it runs the longer chain; the chain ends
// before the first other node that depends on a member, since members move down past the nodes in
// between.
#include <string.h>

#include "graph/passes/passes.h"
#include "ops/internal.h"

enum { LOOK_AHEAD = 64 };

typedef struct growing {
  const hy_graph* graph;
  const hy__uses* uses;
  int members[HY_CHAIN_STEPS];
  int n;
  bool closed;  // a reduction ends it
  // What the members make together.
  hy_chain chain;
  hy_chain_step steps[HY_CHAIN_STEPS];
  hy_tensor in[HY_CHAIN_TENSORS], out[HY_CHAIN_TENSORS];
  const hy__operand *in_operand[HY_CHAIN_TENSORS], *out_operand[HY_CHAIN_TENSORS];
} growing;

static const hy__graph_node* member(const growing* g, int i) {
  return g->graph->nodes[g->members[i]];
}

static bool same_place(const hy__operand* a, const hy__operand* b) {
  return a->value == b->value && a->captured == b->captured;
}

static bool same_shape(const hy_tensor* t, const hy_chain* chain) {
  if (t->ndim != chain->ndim) return false;
  for (int d = 0; d < t->ndim; d++) {
    if (t->shape[d] != chain->shape[d]) return false;
  }
  return true;
}

// The last member that made exactly this tensor; -1: none.
static int made_by(const growing* g, const hy__operand* o, const hy_tensor* t) {
  for (int i = g->n - 1; i >= 0; i--) {
    const hy__graph_node* m = member(g, i);
    if (same_place(hy__output_operand(m, 0), o) && hy__same_view(&m->call.out[0], t)) return i;
  }
  return -1;
}

// Whether the chain's input i, or any, is exactly this tensor.
static bool is_input(const growing* g, int i, const hy__operand* o, const hy_tensor* t) {
  return same_place(g->in_operand[i], o) && hy__same_view(&g->in[i], t);
}

static bool is_read(const growing* g, const hy__operand* o, const hy_tensor* t) {
  for (int i = 0; i < g->chain.n_in; i++) {
    if (is_input(g, i, o, t)) return true;
  }
  return false;
}

// ---- the chain of the members ----

static bool add_input(growing* g, const hy__operand* o, const hy_tensor* t, int32_t* index) {
  for (*index = 0; *index < g->chain.n_in; ++*index) {
    if (is_input(g, *index, o, t)) return true;
  }
  if (g->chain.n_in == HY_CHAIN_TENSORS) return false;
  g->in[g->chain.n_in] = *t;
  g->in_operand[g->chain.n_in] = o;
  *index = g->chain.n_in++;
  return true;
}

// Whether a member's result is read behind the chain, or by somebody else.
static bool is_wanted(const growing* g, int i) {
  const hy__operand* out = hy__output_operand(member(g, i), 0);
  for (int k = i + 1; k < g->n; k++) {
    if (same_place(hy__output_operand(member(g, k), 0), out)) return false;  // overwritten
  }
  if (out->value < 0) return true;
  const hy__uses* uses = &g->uses[out->value];
  int inside = 0;
  for (int k = 0; k < g->n; k++) {
    const hy__graph_node* m = member(g, k);
    for (int j = 0; j < m->n_operands; j++) inside += m->operands[j].value == out->value;
  }
  return inside < uses->readers + uses->writers;
}

static bool describe_step(growing* g, int i) {
  const hy__graph_node* m = member(g, i);
  hy_chain_step* step = &g->steps[i];
  *step = (hy_chain_step){.op = m->call.op,
                          .n_in = m->call.n_in,
                          .dtype = m->call.out[0].dtype,
                          .out = -1,
                          .attrs = m->call.attrs};
  int all = g->n;
  for (int k = 0; k < m->call.n_in; k++) {
    const hy__operand* o = hy__input_operand(m, k);
    g->n = i;  // made before this one
    int from = made_by(g, o, &m->call.in[k]);
    g->n = all;
    if (from >= 0)
      step->in[k] = -1 - from;
    else if (!add_input(g, o, &m->call.in[k], &step->in[k]))
      return false;
  }
  if (!is_wanted(g, i)) return true;
  if (g->chain.n_out == HY_CHAIN_TENSORS) return false;
  step->out = g->chain.n_out;
  g->out_operand[g->chain.n_out] = hy__output_operand(m, 0);
  g->out[g->chain.n_out++] = m->call.out[0];
  return true;
}

// Whether outputs are apart from inputs, or exactly on one.
static bool outputs_are_apart(const growing* g) {
  for (int i = 0; i < g->chain.n_out; i++) {
    for (int k = 0; k < g->chain.n_in; k++) {
      if (!hy__operands_meet(g->graph, g->out_operand[i], g->in_operand[k])) continue;
      if (!same_place(g->out_operand[i], g->in_operand[k]) || !hy__same_view(&g->out[i], &g->in[k]))
        return false;
    }
    for (int k = 0; k < i; k++) {
      if (hy__operands_meet(g->graph, g->out_operand[i], g->out_operand[k])) return false;
    }
  }
  return true;
}

static bool describe(growing* g) {
  const hy_tensor* shape = &member(g, 0)->call.out[0];
  g->chain = (hy_chain){.size = sizeof(hy_chain),
                        .in = g->in,
                        .out = g->out,
                        .steps = g->steps,
                        .n_steps = g->n,
                        .ndim = shape->ndim};
  memcpy(g->chain.shape, shape->shape, sizeof g->chain.shape);
  for (int i = 0; i < g->n; i++) {
    if (!describe_step(g, i)) return false;
  }
  if (g->chain.n_in + g->chain.n_out > HY_CHAIN_TENSORS || !outputs_are_apart(g)) return false;
  const hy_provider* provider = member(g, 0)->provider;
  return provider->supports_chain(g->graph->device->handle, &g->chain) == HY_SUPPORT_YES;
}

// ---- growing ----

static bool may_be_member(const hy__graph_node* node) {
  if (!node || node->as.kind != HY_NODE_CALL || node->named || !node->provider ||
      !node->provider->supports_chain)
    return false;
  const hy_call* call = &node->call;
  if (call->n_out != 1 || call->n_in < 1 || call->n_in > 3) return false;
  for (int k = 0; k < node->call.n_in; k++) {
    if (call->in[k].dtype == HY_NONE || !hy__input_operand(node, k)) return false;
  }
  return hy__output_operand(node, 0) != NULL;
}

static bool is_reduction(const hy_call* call) {
  return call->op == HY_OP_sum || call->op == HY_OP_mean;
}

static bool try_join(growing* g, int index) {
  const hy__graph_node* node = g->graph->nodes[index];
  if (g->closed || g->n == HY_CHAIN_STEPS || !may_be_member(node)) return false;
  if (node->provider != member(g, 0)->provider) return false;
  bool reduces = is_reduction(&node->call), linked = false;
  if (!reduces && !same_shape(&node->call.out[0], &g->chain)) return false;
  for (int k = 0; k < node->call.n_in; k++) {
    const hy__operand* o = hy__input_operand(node, k);
    linked = linked || made_by(g, o, &node->call.in[k]) >= 0 || is_read(g, o, &node->call.in[k]);
  }
  if (!linked) return false;
  g->members[g->n++] = index;
  if (!describe(g)) {
    g->n--;
    return false;
  }
  g->closed = reduces;
  return true;
}

static bool depends_on_member(const growing* g, int index) {
  for (int i = 0; i < g->n; i++) {
    if (hy__nodes_depend(g->graph, member(g, i), g->graph->nodes[index])) return true;
  }
  return false;
}

static hy_status make_node(growing* g, hy__graph_node** node) {
  if (!describe(g)) return hy_fail(HY_INTERNAL, "a chain of a graph no longer runs");
  HY_TRY(hy__graph_node_create(&(hy_graph_node){.kind = HY_NODE_CHAIN, .chain = &g->chain},
                               member(g, 0)->provider, node));
  const hy_chain* chain = &(*node)->chain;
  for (int i = 0; i < chain->n_in + chain->n_out; i++) {
    bool is_in = i < chain->n_in;
    int k = is_in ? i : i - chain->n_in;
    hy__operand* o = hy__tensor_operand(*node, is_in ? &chain->in[k] : &chain->out[k]);
    const hy__operand* from = is_in ? g->in_operand[k] : g->out_operand[k];
    o->captured = from->captured;
    o->value = from->value;
  }
  return HY_OK;
}

static hy_status live_bytes(const hy_graph* graph, uint64_t* bytes) {
  hy__uses* uses = hy__graph_uses(graph);
  if (!uses) return HY_OUT_OF_MEMORY;
  *bytes = hy__live_bytes(graph, uses);
  hy__mfree(uses);
  return HY_OK;
}

// Puts the chain in the place of its members, unless more memory were alive then: members that move
// down keep their inputs.
static hy_status replace(hy_graph* graph, growing* g, uint64_t most, bool* done) {
  hy__graph_node *node = NULL, *old[HY_CHAIN_STEPS];
  HY_TRY(make_node(g, &node));
  for (int i = 0; i < g->n; i++) {
    old[i] = graph->nodes[g->members[i]];
    graph->nodes[g->members[i]] = NULL;
  }
  graph->nodes[g->members[g->n - 1]] = node;
  uint64_t bytes = 0;
  hy_status status = live_bytes(graph, &bytes);
  *done = status == HY_OK && bytes <= most;
  for (int i = 0; i < g->n; i++) {
    if (*done)
      hy__graph_node_destroy(old[i]);
    else
      graph->nodes[g->members[i]] = old[i];
  }
  if (!*done) hy__graph_node_destroy(node);
  return status;
}

static void grow(growing* g, int from) {
  for (int j = from + 1; j < g->graph->count && j < from + LOOK_AHEAD; j++) {
    if (!g->graph->nodes[j] || try_join(g, j)) continue;
    if (depends_on_member(g, j)) return;
  }
}

hy_status hy__pass_fuse(hy_graph* graph, int* changes) {
  hy__uses* uses = hy__graph_uses(graph);
  growing* g = hy__malloc(sizeof *g);
  hy_status status = HY_OK;
  uint64_t most = 0;
  if (!uses || !g) status = hy_fail(HY_OUT_OF_MEMORY, "no host memory to fuse a graph");
  if (status == HY_OK) status = live_bytes(graph, &most);
  for (int i = 0; i < graph->count && status == HY_OK; i++) {
    if (!may_be_member(graph->nodes[i])) continue;
    *g = (growing){.graph = graph, .uses = uses, .members = {i}, .n = 1};
    if (!describe(g)) continue;
    grow(g, i);
    for (bool done = false; g->n > 1 && !done && status == HY_OK; g->n--) {
      status = replace(graph, g, most, &done);
      if (done) *changes += g->n - 1;
    }
  }
  hy__mfree(uses);
  hy__mfree(g);
  hy__graph_compact(graph);
  return status;
}
