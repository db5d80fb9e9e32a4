// Softmax written out: exp(x - max x) over its sum becomes the op that has a kernel of its own.
// Part of the epilogue pass, as what follows a product.
#include "graph/search/search.h"

// The node that alone writes the value which `v` begins, before node `index`; -1: none.
static int writer_of(const hy_graph* graph, const hy__uses* uses, const hy__view* v, hy_op op,
                     int index) {
  if (v->value < 0 || uses[v->value].writers != 1) return -1;
  int writer = uses[v->value].writer;
  const hy__graph_node* node = graph->nodes[writer];
  if (writer >= index || !hy__is_free_call(node, op, uses, false)) return -1;
  return hy__output_operand(node, 0)->captured == v->captured ? writer : -1;
}

// Whether it reduces the last dimension of exactly x.
static bool reduces(const hy__graph_node* node, const hy__view* x) {
  const hy_dims* dims = &node->call.attrs.reduce.dims;
  hy__view in = hy__view_of(node, &node->call.in[0]);
  int64_t last = x->t.ndim - 1;
  return hy__view_is_same(&in, x) && dims->n == 1 && (dims->dim[0] == last || dims->dim[0] == -1);
}

// Whether s has a number for each row of x.
static bool is_by_row(const hy__view* s, const hy__view* x) {
  if (s->t.ndim != x->t.ndim || x->t.ndim < 1 || s->t.shape[s->t.ndim - 1] != 1) return false;
  for (int d = 0; d < x->t.ndim - 1; d++) {
    if (s->t.shape[d] != x->t.shape[d]) return false;
  }
  return true;
}

typedef struct written_out {
  int max, sub, exp, sum;
  hy__view x;
} written_out;

static bool find(const hy_graph* graph, const hy__uses* uses, int div, written_out* w) {
  const hy_call* call = &graph->nodes[div]->call;
  if (call->attrs.rounding.rounding != HY_ROUND_NONE) return false;
  hy__view e = hy__view_of(graph->nodes[div], &call->in[0]);
  hy__view s = hy__view_of(graph->nodes[div], &call->in[1]);
  w->exp = writer_of(graph, uses, &e, HY_OP_exp, div);
  w->sum = writer_of(graph, uses, &s, HY_OP_sum, div);
  if (w->exp < 0 || w->sum < 0 || uses[e.value].readers != 2 || uses[s.value].readers != 1)
    return false;
  if (!is_by_row(&s, &e) || !reduces(graph->nodes[w->sum], &e)) return false;
  const hy__graph_node* exp = graph->nodes[w->exp];
  hy__view b = hy__view_of(exp, &exp->call.in[0]);
  w->sub = writer_of(graph, uses, &b, HY_OP_sub, w->exp);
  if (w->sub < 0 || uses[b.value].readers != 1) return false;
  const hy__graph_node* sub = graph->nodes[w->sub];
  w->x = hy__view_of(sub, &sub->call.in[0]);
  hy__view m = hy__view_of(sub, &sub->call.in[1]);
  w->max = writer_of(graph, uses, &m, HY_OP_max, w->sub);
  if (w->max < 0 || uses[m.value].readers != 1 || hy_scalar_f(sub->call.attrs.alpha.alpha) != 1)
    return false;
  return hy__same_view(&w->x.t, &e.t) && is_by_row(&m, &w->x) &&
         reduces(graph->nodes[w->max], &w->x) && !hy__view_changes(graph, &w->x, w->max, div);
}

hy_status hy__fold_softmax(hy_graph* graph, int* changes) {
  hy__uses* uses = hy__graph_uses(graph);
  if (!uses) return HY_OUT_OF_MEMORY;
  hy_status status = HY_OK;
  for (int i = 0; i < graph->count && status == HY_OK; i++) {
    written_out w;
    if (!hy__is_free_call(graph->nodes[i], HY_OP_div, uses, true) || !find(graph, uses, i, &w))
      continue;
    hy__view out = hy__view_of(graph->nodes[i], &graph->nodes[i]->call.out[0]);
    const hy_attrs last = {.dim = {w.x.t.ndim - 1}};
    hy__graph_node* node = NULL;
    status = hy__view_call(graph, HY_OP_softmax, &last, &w.x, 1, &out, &node);
    if (status == HY_OK) {
      const int gone[] = {w.max, w.sub, w.exp, w.sum, i};
      for (int k = 0; k < 5; k++) {
        hy__graph_node_destroy(graph->nodes[gone[k]]);
        graph->nodes[gone[k]] = NULL;
      }
      graph->nodes[i] = node;
      ++*changes;
    }
    if (status == HY_UNSUPPORTED) status = HY_OK;
  }
  hy__mfree(uses);
  hy__graph_compact(graph);
  return status;
}
