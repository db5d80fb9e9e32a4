// Scale folding: s (x W^T + b) and (s x) W^T with a constant weight are layers of s W.
#include "graph/search/search.h"
#include "ops/internal.h"

// The factor of a mul_scalar; false for anything else.
static bool is_scale(const hy__graph_node* node, const hy__uses* uses, bool seen, hy_attrs* by) {
  if (!hy__is_free_call(node, HY_OP_mul_scalar, uses, seen)) return false;
  if (node->call.out[0].dtype != node->call.in[0].dtype) return false;
  *by = node->call.attrs;
  return true;
}

static hy_status scaled(hy_graph* graph, const hy__view* v, const hy_attrs* by, hy__view* out) {
  if (v->t.dtype == HY_NONE) {
    *out = *v;
    return HY_OK;
  }
  HY_TRY(hy__view_constant(graph, v->t.dtype, v->t.ndim, v->t.shape, out));
  return hy__view_compute(graph, HY_OP_mul_scalar, by, v, 1, out);
}

// Puts a layer of s W (and s b where `bias_too`) that reads x and writes out in place of node
// `layer`, and takes out node `scale`.
static hy_status fold(hy_graph* graph, int layer, int scale, const hy_attrs* by, const hy__view* x,
                      const hy__view* out, bool bias_too) {
  const hy__graph_node* node = graph->nodes[layer];
  hy__view w = hy__view_of(node, &node->call.in[1]), factors, shift = {.value = -1};
  hy__view bias = node->call.n_in > 2 ? hy__view_of(node, &node->call.in[2]) : shift;
  HY_TRY(scaled(graph, &w, by, &factors));
  if (bias_too)
    HY_TRY(scaled(graph, &bias, by, &shift));
  else
    shift = bias;
  hy__graph_node* fresh = NULL;
  HY_TRY(
      hy__view_call(graph, HY_OP_linear, NULL, (hy__view[]){*x, factors, shift}, 3, out, &fresh));
  int at = layer > scale ? layer : scale;
  hy__graph_node_destroy(graph->nodes[layer]);
  hy__graph_node_destroy(graph->nodes[scale]);
  graph->nodes[layer] = graph->nodes[scale] = NULL;
  graph->nodes[at] = fresh;
  return HY_OK;
}

// The factor behind the layer: the only reader of all of its result.
static hy_status fold_behind(hy_graph* graph, const hy__uses* uses, int i, bool* done) {
  const hy__graph_node* node = graph->nodes[i];
  hy__view y = hy__view_of(node, &node->call.out[0]), x = hy__view_of(node, &node->call.in[0]);
  hy_attrs by;
  if (y.value < 0 || uses[y.value].readers != 1 || uses[y.value].last <= i) return HY_OK;
  int reader = uses[y.value].last;
  const hy__graph_node* scale = graph->nodes[reader];
  if (!is_scale(scale, uses, true, &by)) return HY_OK;
  hy__view read = hy__view_of(scale, &scale->call.in[0]);
  hy__view out = hy__view_of(scale, &scale->call.out[0]);
  hy__view bias = node->call.n_in > 2 ? hy__view_of(node, &node->call.in[2]) : (hy__view){0};
  if (!hy__view_is_same(&read, &y) || hy__view_changes(graph, &x, i, reader)) return HY_OK;
  if (bias.t.dtype != HY_NONE && !hy__view_is_constant(graph, &bias)) return HY_OK;
  hy_status status = fold(graph, i, reader, &by, &x, &out, true);
  *done = status == HY_OK;
  return status == HY_UNSUPPORTED ? HY_OK : status;
}

// The factor before the layer, whose result nobody else reads.
static hy_status fold_before(hy_graph* graph, const hy__uses* uses, int i, bool* done) {
  const hy__graph_node* node = graph->nodes[i];
  hy__view x = hy__view_of(node, &node->call.in[0]), out = hy__view_of(node, &node->call.out[0]);
  hy_attrs by;
  if (x.value < 0 || uses[x.value].writers != 1 || uses[x.value].readers != 1) return HY_OK;
  int writer = uses[x.value].writer;
  if (writer >= i || !is_scale(graph->nodes[writer], uses, false, &by)) return HY_OK;
  const hy__graph_node* scale = graph->nodes[writer];
  hy__view made = hy__view_of(scale, &scale->call.out[0]);
  hy__view from = hy__view_of(scale, &scale->call.in[0]);
  if (!hy__view_is_same(&made, &x) || hy__view_changes(graph, &from, writer, i)) return HY_OK;
  hy_status status = fold(graph, i, writer, &by, &from, &out, false);
  *done = status == HY_OK;
  return status == HY_UNSUPPORTED ? HY_OK : status;
}

hy_status hy__rule_scale(hy_graph* graph, int* changes) {
  hy__uses* uses = hy__graph_uses(graph);
  if (!uses) return HY_OUT_OF_MEMORY;
  hy_status status = HY_OK;
  for (int i = 0; i < graph->count && status == HY_OK; i++) {
    if (!hy__is_free_call(graph->nodes[i], HY_OP_linear, uses, true)) continue;
    hy__view w = hy__view_of(graph->nodes[i], &graph->nodes[i]->call.in[1]);
    bool done = false;
    if (!hy__view_is_constant(graph, &w)) continue;
    status = fold_behind(graph, uses, i, &done);
    if (status == HY_OK && !done) status = fold_before(graph, uses, i, &done);
    *changes += done;
  }
  hy__mfree(uses);
  hy__graph_compact(graph);
  return status;
}
