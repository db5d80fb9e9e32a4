// What rules are written with: tensors of a graph as views, and calls made of them.
#include "graph/search/search.h"
#include "ops/internal.h"

hy__view hy__view_of(const hy__graph_node* node, const hy_tensor* t) {
  const hy__operand* o = hy__tensor_operand(node, t);
  return (hy__view){*t, o ? o->captured : NULL, o ? o->value : -1};
}

hy__view hy__view_slice(const hy__view* v, int dim, int64_t start, int64_t count) {
  hy__view part = *v;
  int64_t offset = start * v->t.stride[dim] * (int64_t)hy_dtype_size(v->t.dtype);
  part.t.shape[dim] = count;
  part.t.data = (char*)v->t.data + offset;
  part.captured += offset;
  return part;
}

hy__view hy__view_new(hy_graph* graph, hy_dtype dtype, int ndim, const int64_t* shape) {
  hy__view v = {.value = -1};
  if (hy_tensor_init(&v.t, NULL, dtype, ndim, shape) != HY_OK) return (hy__view){.value = -1};
  v.value = hy__graph_add_value(graph, hy_tensor_bytes(&v.t));
  if (v.value < 0) return (hy__view){.value = -1};
  v.captured = graph->values[v.value].captured;
  v.t.data = v.captured;
  return v;
}

bool hy__view_is_same(const hy__view* a, const hy__view* b) {
  return a->value == b->value && a->captured == b->captured && hy__same_view(&a->t, &b->t);
}

bool hy__view_is_constant(const hy_graph* graph, const hy__view* v) {
  return v->value < 0 && v->captured && hy_tensor_is_contiguous(&v->t) &&
         hy__graph_is_constant(graph, v->captured);
}

hy_status hy__view_constant(hy_graph* graph, hy_dtype dtype, int ndim, const int64_t* shape,
                            hy__view* out) {
  void* memory;
  *out = (hy__view){.value = -1};
  HY_TRY(hy_tensor_init(&out->t, NULL, dtype, ndim, shape));
  size_t bytes = hy_tensor_bytes(&out->t);
  HY_TRY(hy__graph_take_address(graph, bytes, &out->captured));
  HY_TRY(hy__graph_add_constant(graph, out->captured, bytes, &memory));
  out->t.data = memory;
  return HY_OK;
}

hy_status hy__view_compute(hy_graph* graph, hy_op op, const hy_attrs* attrs, const hy__view* in,
                           int n_in, const hy__view* out) {
  hy_stream* stream;
  hy_tensor tensors[HY_MAX_INPUTS], to = out->t;
  HY_TRY(hy__graph_stream(graph, &stream));
  for (int i = 0; i < n_in; i++) tensors[i] = in[i].t;
  hy_call call = {.op = op, .n_in = n_in, .n_out = 1, .in = tensors, .out = &to};
  if (attrs) call.attrs = *attrs;
  HY_TRY(hy_run(stream, &call));
  return hy_stream_sync(stream);
}

hy_status hy__view_call(hy_graph* graph, hy_op op, const hy_attrs* attrs, const hy__view* in,
                        int n_in, const hy__view* out, hy__graph_node** node) {
  hy_tensor tensors[HY_MAX_INPUTS], to = out->t;
  const hy_provider* provider;
  for (int i = 0; i < n_in; i++) tensors[i] = in[i].t;
  hy_call call = {.op = op, .n_in = n_in, .n_out = 1, .in = tensors, .out = &to};
  if (attrs) call.attrs = *attrs;
  if (hy__graph_check_call(graph, 0, &call, &provider) != HY_OK || !provider) return HY_UNSUPPORTED;
  HY_TRY(
      hy__graph_node_create(&(hy_graph_node){.kind = HY_NODE_CALL, .call = &call}, provider, node));
  for (int i = 0; i <= n_in; i++) {
    const hy__view* v = i < n_in ? &in[i] : out;
    hy__operand* o =
        hy__tensor_operand(*node, i < n_in ? &(*node)->call.in[i] : &(*node)->call.out[0]);
    if (!o) continue;
    o->captured = v->captured;
    o->value = v->value;
    hy__graph_place(graph, o);
  }
  (*node)->stale = graph->stale = true;
  return HY_OK;
}

bool hy__view_changes(const hy_graph* graph, const hy__view* v, int first, int last) {
  hy__operand o = {.captured = v->captured, .value = v->value, .reads = true};
  hy_tensor_extent(&v->t, &o.first, &o.last);
  for (int i = first + 1; i < last; i++) {
    if (graph->nodes[i] && hy__node_writes(graph, graph->nodes[i], &o)) return true;
  }
  return false;
}

bool hy__is_free_call(const hy__graph_node* node, hy_op op, const hy__uses* uses, bool seen) {
  if (!node || node->as.kind != HY_NODE_CALL || node->named || node->call.op != op) return false;
  const hy__operand* out = hy__output_operand(node, 0);
  if (!out) return false;
  return out->value < 0 ? seen : uses[out->value].writers == 1;
}

hy_status hy__insert_node(hy_graph* graph, int index, hy__graph_node* node) {
  HY_TRY(hy__graph_append(graph, node));
  for (int i = graph->count - 1; i > index + 1; i--) graph->nodes[i] = graph->nodes[i - 1];
  graph->nodes[index + 1] = node;
  hy__graph_drop_handle(graph);
  return HY_OK;
}

hy_status hy__split_product(hy_graph* graph, int index, const hy__view x_parts[2],
                            const hy__view w_parts[2]) {
  const hy__graph_node* layer = graph->nodes[index];
  hy__view out = hy__view_of(layer, &layer->call.out[0]);
  hy__view bias =
      layer->call.n_in > 2 ? hy__view_of(layer, &layer->call.in[2]) : (hy__view){.value = -1};
  hy__view sum = hy__view_new(graph, out.t.dtype, out.t.ndim, out.t.shape);
  if (sum.t.dtype == HY_NONE) return HY_OUT_OF_MEMORY;
  hy__view across = w_parts[1];
  HY_TRY(hy_transpose(&across.t, &w_parts[1].t, 0, 1));
  const hy_attrs plain = {.addmm = {hy_int(1), hy_int(1)}};
  hy__graph_node *first = NULL, *second = NULL;
  HY_TRY(hy__view_call(graph, HY_OP_linear, NULL, (hy__view[]){x_parts[0], w_parts[0], bias}, 3,
                       &sum, &first));
  hy_status status = hy__view_call(graph, HY_OP_addmm, &plain,
                                   (hy__view[]){sum, x_parts[1], across}, 3, &out, &second);
  if (status != HY_OK) {
    hy__graph_node_destroy(first);
    return status;
  }
  hy__graph_node_destroy(graph->nodes[index]);
  graph->nodes[index] = first;
  return hy__insert_node(graph, index, second);
}
