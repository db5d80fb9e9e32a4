// Norm, linear layer and epilogue: an rms_norm, the layer that alone reads it, and the silu gate or
// residual behind that become a fused_linear where the provider has a kernel for it. Part of the
// epilogue pass. Of few rows: with more, the norm would be computed again for each block of them.
#include "graph/search/search.h"

enum { FEW_ROWS = 4 };

// A layer in its parts; node numbers, -1 for a part that it has not.
typedef struct layer {
  int norm, linear, silu, last;  // last: the gate's mul, the residual's add, or the linear itself
  hy__view x, scale, weight, bias, residual, out;
} layer;

// The only node between `after` and the end that reads the value; -1: there are others, or none.
static int reader_of(const hy__uses* uses, int32_t value, int after) {
  if (value < 0 || uses[value].readers != 1 || uses[value].writers != 1) return -1;
  return uses[value].last > after ? uses[value].last : -1;
}

static bool find_norm(const hy_graph* graph, const hy__uses* uses, int linear, layer* l) {
  const hy__graph_node* node = graph->nodes[linear];
  hy__view in = hy__view_of(node, &node->call.in[0]);
  if (in.value < 0 || uses[in.value].writers != 1 || uses[in.value].readers != 1) return false;
  l->linear = l->last = linear;
  l->silu = -1;
  l->norm = uses[in.value].writer;
  const hy__graph_node* norm = graph->nodes[l->norm];
  if (l->norm >= linear || !hy__is_free_call(norm, HY_OP_rms_norm, uses, false)) return false;
  hy__view made = hy__view_of(norm, &norm->call.out[0]);
  bool more = norm->call.n_out > 1 && norm->call.out[1].dtype != HY_NONE;
  if (more || norm->call.n_in < 2 || norm->call.attrs.norm.norm_dims != 1 ||
      !hy__view_is_same(&made, &in) || in.t.ndim < 1)
    return false;
  l->x = hy__view_of(norm, &norm->call.in[0]);
  l->scale = hy__view_of(norm, &norm->call.in[1]);
  l->weight = hy__view_of(node, &node->call.in[1]);
  l->bias = l->residual = (hy__view){.value = -1};
  if (node->call.n_in > 2 && node->call.in[2].dtype != HY_NONE)
    l->bias = hy__view_of(node, &node->call.in[2]);
  l->out = hy__view_of(node, &node->call.out[0]);
  return l->scale.t.dtype == l->x.t.dtype && l->out.t.dtype == l->x.t.dtype &&
         hy_tensor_numel(&in.t) <= FEW_ROWS * in.t.shape[in.t.ndim - 1];
}

// silu(first half) * second half, which alone read the layer's result.
static bool find_gate(const hy_graph* graph, const hy__uses* uses, layer* l) {
  int32_t y = l->out.value;
  int dim = l->out.t.ndim - 1;
  int64_t half = l->out.t.shape[dim] / 2;
  if (y < 0 || uses[y].readers != 2 || uses[y].writers != 1 || l->out.t.shape[dim] % 2)
    return false;
  hy__view first = hy__view_slice(&l->out, dim, 0, half);
  hy__view second = hy__view_slice(&l->out, dim, half, half);
  for (int i = l->linear + 1; i < uses[y].last; i++) {
    const hy__graph_node* silu = graph->nodes[i];
    if (!hy__is_free_call(silu, HY_OP_silu, uses, false)) continue;
    hy__view in = hy__view_of(silu, &silu->call.in[0]);
    hy__view made = hy__view_of(silu, &silu->call.out[0]);
    int mul = reader_of(uses, made.value, i);
    if (!hy__view_is_same(&in, &first) || mul < 0 ||
        !hy__is_free_call(graph->nodes[mul], HY_OP_mul, uses, true))
      continue;
    const hy_call* call = &graph->nodes[mul]->call;
    for (int k = 0; k < 2; k++) {
      hy__view a = hy__view_of(graph->nodes[mul], &call->in[k]);
      hy__view b = hy__view_of(graph->nodes[mul], &call->in[1 - k]);
      if (!hy__view_is_same(&a, &made) || !hy__view_is_same(&b, &second)) continue;
      l->silu = i;
      l->last = mul;
      l->out = hy__view_of(graph->nodes[mul], &call->out[0]);
      return true;
    }
  }
  return false;
}

static bool find_residual(const hy_graph* graph, const hy__uses* uses, layer* l) {
  int add = reader_of(uses, l->out.value, l->linear);
  if (add < 0 || !hy__is_free_call(graph->nodes[add], HY_OP_add, uses, true)) return false;
  const hy_call* call = &graph->nodes[add]->call;
  if (hy_scalar_f(call->attrs.alpha.alpha) != 1) return false;
  for (int k = 0; k < 2; k++) {
    hy__view y = hy__view_of(graph->nodes[add], &call->in[k]);
    hy__view other = hy__view_of(graph->nodes[add], &call->in[1 - k]);
    if (!hy__view_is_same(&y, &l->out) || other.t.dtype != y.t.dtype ||
        other.value == l->out.value || !hy__same_view(&other.t, &y.t))
      continue;
    l->residual = other;
    l->last = add;
    l->out = hy__view_of(graph->nodes[add], &call->out[0]);
    return true;
  }
  return false;
}

// What is read at the norm and at the layer is read at the end now.
static bool inputs_stay(const hy_graph* graph, const layer* l) {
  return !hy__view_changes(graph, &l->x, l->norm, l->last) &&
         !hy__view_changes(graph, &l->scale, l->norm, l->last) &&
         !hy__view_changes(graph, &l->weight, l->linear, l->last) &&
         (l->bias.t.dtype == HY_NONE || !hy__view_changes(graph, &l->bias, l->linear, l->last));
}

static hy_status fuse(hy_graph* graph, const layer* l) {
  const hy_attrs attrs = {.fused_linear = {.eps = graph->nodes[l->norm]->call.attrs.norm.eps,
                                           .gated = l->silu >= 0,
                                           .dtype = l->x.t.dtype}};
  const hy__view in[] = {l->x, l->scale, l->weight, {.value = -1}, l->bias, l->residual};
  hy__graph_node* node = NULL;
  if (!inputs_stay(graph, l)) return HY_UNSUPPORTED;
  HY_TRY(hy__view_call(graph, HY_OP_fused_linear, &attrs, in, 6, &l->out, &node));
  const int gone[] = {l->norm, l->linear, l->silu, l->last};
  for (int k = 0; k < 4; k++) {
    if (gone[k] < 0 || !graph->nodes[gone[k]]) continue;
    hy__graph_node_destroy(graph->nodes[gone[k]]);
    graph->nodes[gone[k]] = NULL;
  }
  graph->nodes[l->last] = node;
  return HY_OK;
}

hy_status hy__fold_norm(hy_graph* graph, int* changes) {
  hy__uses* uses = hy__graph_uses(graph);
  if (!uses) return HY_OUT_OF_MEMORY;
  hy_status status = HY_OK;
  for (int i = 0; i < graph->count && status == HY_OK; i++) {
    layer bare, whole;
    if (!hy__is_free_call(graph->nodes[i], HY_OP_linear, uses, true) ||
        !find_norm(graph, uses, i, &bare))
      continue;
    whole = bare;
    bool more = find_gate(graph, uses, &whole) || find_residual(graph, uses, &whole);
    status = more ? fuse(graph, &whole) : HY_UNSUPPORTED;
    if (status == HY_UNSUPPORTED) status = fuse(graph, &bare);
    *changes += status == HY_OK;
    if (status == HY_UNSUPPORTED) status = HY_OK;
  }
  hy__mfree(uses);
  hy__graph_compact(graph);
  return status;
}
