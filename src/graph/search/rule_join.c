// Joining layers: those that read one input become one product, whose weight has the rows of both,
// and whose result they share. Constant weights are concatenated; others are joined where they are
// neighbours in one argument.
#include "graph/search/search.h"
#include "ops/internal.h"

enum { LOOK_AHEAD = 64 };

typedef struct layer {
  hy__view x, w, bias, y;
} layer;

static layer layer_of(const hy__graph_node* node) {
  layer l = {hy__view_of(node, &node->call.in[0]),
             hy__view_of(node, &node->call.in[1]),
             {.value = -1},
             hy__view_of(node, &node->call.out[0])};
  if (node->call.n_in > 2 && node->call.in[2].dtype != HY_NONE)
    l.bias = hy__view_of(node, &node->call.in[2]);
  return l;
}

static bool may_join(const hy__graph_node* node, const hy__uses* uses) {
  return hy__is_free_call(node, HY_OP_linear, uses, false) && node->call.in[0].ndim == 2 &&
         node->call.out[0].ndim == 2;
}

// One tensor with the rows of a and then those of b; false where there is no way to it.
static bool concatenate(hy_graph* graph, const hy__view* a, const hy__view* b, hy__view* both,
                        hy_status* status) {
  if (a->t.dtype != b->t.dtype || a->t.ndim != b->t.ndim) return false;
  if (a->t.dtype == HY_NONE) {
    *both = *a;
    return true;
  }
  int64_t shape[2] = {a->t.shape[0] + b->t.shape[0], a->t.ndim > 1 ? a->t.shape[1] : 0};
  if (!hy_tensor_is_contiguous(&a->t) || !hy_tensor_is_contiguous(&b->t)) return false;
  const hy__graph_argument* argument = hy__graph_argument_at(graph, a->captured);
  if (a->value < 0 && b->value < 0 && argument &&
      argument == hy__graph_argument_at(graph, b->captured) &&
      b->captured == a->captured + hy_tensor_bytes(&a->t)) {
    *both = *a;
    both->t.shape[0] = shape[0];
    return true;
  }
  if (!hy__view_is_constant(graph, a) || !hy__view_is_constant(graph, b)) return false;
  *status = hy__view_constant(graph, a->t.dtype, a->t.ndim, shape, both);
  const hy_attrs rows = {.dim = {0}};
  if (*status == HY_OK)
    *status = hy__view_compute(graph, HY_OP_cat, &rows, (hy__view[]){*a, *b}, 2, both);
  return *status == HY_OK;
}

// `read`, a view of y, as the same elements of `part`, which has y's columns in wider rows. False
// where a dimension of it steps over the end of a row.
static bool move_view(const hy__view* read, const hy__view* y, const hy__view* part,
                      hy__view* moved) {
  int64_t size = (int64_t)hy_dtype_size(y->t.dtype), columns = y->t.shape[1];
  int64_t at = (read->captured - y->captured) / size, last = at % columns;
  if (read->t.dtype != y->t.dtype || !hy_tensor_is_contiguous(&y->t)) return false;
  *moved = *read;
  for (int d = 0; d < read->t.ndim; d++) {
    int64_t stride = read->t.stride[d];
    if (stride < 0) return false;
    if (stride % columns == 0)
      moved->t.stride[d] = stride / columns * part->t.stride[0];
    else
      last += (read->t.shape[d] - 1) * stride;
  }
  int64_t offset = (at / columns * part->t.stride[0] + at % columns) * size;
  moved->t.data = (char*)part->t.data + offset;
  moved->captured = part->captured + offset;
  moved->value = part->value;
  return last < columns;
}

// Readers of y read columns first .. of the joined result instead. With `check` only asks whether
// they could.
static bool readers_move(hy_graph* graph, const hy__uses* uses, const hy__view* y,
                         const hy__view* part, bool check) {
  for (int i = uses[y->value].first; i <= uses[y->value].last; i++) {
    hy__graph_node* node = graph->nodes[i];
    if (!node) continue;
    for (int k = 0; k < node->n_operands; k++) {
      if (node->operands[k].value != y->value || node->operands[k].writes) continue;
      if (node->as.kind != HY_NODE_CALL || node->named) return false;
    }
    if (node->as.kind != HY_NODE_CALL) continue;
    hy_tensor in[HY_MAX_INPUTS];
    hy__view moved[HY_MAX_INPUTS];
    hy_call call = node->call;
    bool reads = false;
    for (int k = 0; k < call.n_in; k++) {
      hy__view v = hy__view_of(node, &call.in[k]);
      in[k] = call.in[k];
      if (v.value != y->value) continue;
      if (!move_view(&v, y, part, &moved[k])) return false;
      in[k] = moved[k].t;
      reads = true;
    }
    if (!reads) continue;
    call.in = in;
    const hy_provider* provider;
    if (hy__graph_check_call(graph, i, &call, &provider) != HY_OK || provider != node->provider)
      return false;
    for (int k = 0; !check && k < call.n_in; k++) {
      hy__operand* o = hy__input_operand(node, k);
      if (!o || o->value != y->value) continue;
      hy_tensor* t = (hy_tensor*)&node->call.in[k];
      *t = moved[k].t;
      hy_tensor_extent(t, &o->first, &o->last);
      o->captured = moved[k].captured;
      o->value = moved[k].value;
      hy__graph_place(graph, o);
      node->stale = graph->stale = true;
    }
  }
  return true;
}

static hy_status join(hy_graph* graph, const hy__uses* uses, int i, int j, bool* done) {
  layer a = layer_of(graph->nodes[i]), b = layer_of(graph->nodes[j]), both = {.x = a.x};
  hy_status status = HY_OK;
  int64_t rows = a.y.t.shape[0], first = a.y.t.shape[1], second = b.y.t.shape[1];
  both.y = hy__view_new(graph, a.y.t.dtype, 2, (int64_t[]){rows, first + second});
  if (both.y.t.dtype == HY_NONE) return HY_OUT_OF_MEMORY;
  hy__view left = hy__view_slice(&both.y, 1, 0, first);
  hy__view right = hy__view_slice(&both.y, 1, first, second);
  if (!readers_move(graph, uses, &a.y, &left, true) ||
      !readers_move(graph, uses, &b.y, &right, true))
    return HY_OK;
  if (!concatenate(graph, &a.w, &b.w, &both.w, &status) ||
      !concatenate(graph, &a.bias, &b.bias, &both.bias, &status))
    return status;
  hy__graph_node* node = NULL;
  status = hy__view_call(graph, HY_OP_linear, NULL, (hy__view[]){both.x, both.w, both.bias}, 3,
                         &both.y, &node);
  if (status != HY_OK) return status == HY_UNSUPPORTED ? HY_OK : status;
  readers_move(graph, uses, &a.y, &left, false);
  readers_move(graph, uses, &b.y, &right, false);
  hy__graph_node_destroy(graph->nodes[i]);
  hy__graph_node_destroy(graph->nodes[j]);
  graph->nodes[i] = node;
  graph->nodes[j] = NULL;
  *done = true;
  return HY_OK;
}

hy_status hy__rule_join(hy_graph* graph, int* changes) {
  hy_status status = HY_OK;
  for (int i = 0; i < graph->count && status == HY_OK; i++) {
    // Anew for each: a joined layer may be joined with a third.
    hy__uses* uses = hy__graph_uses(graph);
    if (!uses) return HY_OUT_OF_MEMORY;
    bool done = false;
    for (int j = i + 1; j < graph->count && j < i + LOOK_AHEAD && status == HY_OK && !done; j++) {
      if (!may_join(graph->nodes[i], uses) || !may_join(graph->nodes[j], uses)) continue;
      layer a = layer_of(graph->nodes[i]), b = layer_of(graph->nodes[j]);
      if (!hy__view_is_same(&a.x, &b.x) || a.w.t.shape[1] != b.w.t.shape[1] ||
          a.y.value == b.y.value || hy__view_changes(graph, &a.x, i, j))
        continue;
      status = join(graph, uses, i, j, &done);
    }
    *changes += done;
    i -= done;  // once more
    hy__mfree(uses);
  }
  hy__graph_compact(graph);
  return status;
}
