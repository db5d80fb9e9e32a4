// Building a graph node by node, and its arguments: named memory, constants, named integers.
//
// Addresses are numbers of the graph's own (graph.h), so that views, checks and rebinding work on
// them as on captured ones.
#include <string.h>

#include "graph/graph.h"
#include "graph/passes/passes.h"
#include "ops/internal.h"

static const uint64_t largest = (uint64_t)1 << 46;  // bytes of all values of a graph

static hy_status check_building(const hy_graph* graph, const char* caller) {
  if (!graph) return hy_fail(HY_INVALID_ARGUMENT, "%s: graph is NULL", caller);
  if (graph->building) return HY_OK;
  return hy_fail(HY_INVALID_ARGUMENT, "%s: the graph is finished, or was captured", caller);
}

hy_status hy_graph_create(hy_device* device, hy_graph** graph) {
  if (!graph || !device) {
    return hy_fail(HY_INVALID_ARGUMENT, "hy_graph_create: %s is NULL", graph ? "device" : "graph");
  }
  *graph = NULL;
  HY_TRY(hy__graph_new(device, graph));
  (*graph)->building = true;
  return HY_OK;
}

// ---- addresses ----

hy_status hy__graph_take_address(hy_graph* graph, uint64_t bytes, char** address) {
  uint64_t room = (bytes + HY__GRAPH_ALIGNMENT) / HY__GRAPH_ALIGNMENT * HY__GRAPH_ALIGNMENT;
  if (bytes > largest || graph->next - HY__GRAPH_FIRST_ADDRESS > largest - room) {
    return hy_fail(HY_OUT_OF_MEMORY, "a graph's values have more than %llu bytes together",
                   (unsigned long long)largest);
  }
  *address = (char*)graph->next;  // NOLINT(performance-no-int-to-ptr): a number, see above
  graph->next += room;
  return HY_OK;
}

int32_t hy__graph_add_value(hy_graph* graph, uint64_t bytes) {
  char* address = NULL;
  if (hy__graph_take_address(graph, bytes, &address) != HY_OK) return -1;
  if (hy__graph_grow((void**)&graph->values, graph->n_values, &graph->values_capacity,
                     sizeof *graph->values) != HY_OK)
    return -1;
  graph->values[graph->n_values] =
      (hy__value){.captured = address, .bytes = bytes, .now = NULL, .local = true};
  return graph->n_values++;
}

hy__graph_argument* hy__graph_argument_at(const hy_graph* graph, const void* captured) {
  for (int i = 0; i < graph->n_arguments; i++) {
    hy__graph_argument* a = &graph->arguments[i];
    if ((uintptr_t)captured - (uintptr_t)a->captured < a->bytes) return a;
  }
  return NULL;
}

bool hy__graph_is_constant(const hy_graph* graph, const void* captured) {
  const hy__graph_argument* a = hy__graph_argument_at(graph, captured);
  return a && a->constant;
}

// The value that holds these bytes; -1: none does.
static int32_t value_at(const hy_graph* graph, const char* first, const char* last) {
  for (int i = graph->n_values - 1; i >= 0; i--) {
    const hy__value* v = &graph->values[i];
    if (v->local && first >= v->captured && last <= v->captured + v->bytes) return i;
  }
  return -1;
}

// ---- arguments ----

static hy__graph_argument* find_argument(const hy_graph* graph, const char* name) {
  for (int i = 0; i < graph->n_arguments; i++) {
    if (graph->arguments[i].name && strcmp(graph->arguments[i].name, name) == 0)
      return &graph->arguments[i];
  }
  return NULL;
}

static hy_status check_name(const hy_graph* graph, const char* caller, const char* name) {
  if (!name || !name[0] || strlen(name) > 200) {
    return hy_fail(HY_INVALID_ARGUMENT, "%s: a name has 1 to 200 bytes", caller);
  }
  if (!find_argument(graph, name)) return HY_OK;
  return hy_fail(HY_INVALID_ARGUMENT, "%s: \"%s\" is named already", caller, name);
}

static hy_status push_argument(hy_graph* graph, const hy__graph_argument* argument) {
  HY_TRY(hy__graph_grow((void**)&graph->arguments, graph->n_arguments, &graph->arguments_capacity,
                        sizeof *graph->arguments));
  graph->arguments[graph->n_arguments++] = *argument;
  return HY_OK;
}

hy_status hy__graph_add_argument(hy_graph* graph, const char* name, char* captured, uint64_t bytes,
                                 bool bound) {
  char* copy = hy__strdup(name);
  if (!copy) return hy_fail(HY_OUT_OF_MEMORY, "no host memory for the name \"%s\"", name);
  hy_status status =
      push_argument(graph, &(hy__graph_argument){copy, captured, bytes, bound, NULL, false});
  if (status != HY_OK) hy__mfree(copy);
  return status;
}

hy_status hy_graph_input(hy_graph* graph, const char* name, hy_dtype dtype, int ndim,
                         const int64_t* shape, hy_tensor* value) {
  HY_TRY(check_building(graph, "hy_graph_input"));
  HY_TRY(check_name(graph, "hy_graph_input", name));
  if (!value) return hy_fail(HY_INVALID_ARGUMENT, "hy_graph_input: value is NULL");
  HY_TRY(hy_tensor_init(value, NULL, dtype, ndim, shape));
  char* address = NULL;
  HY_TRY(hy__graph_take_address(graph, hy_tensor_bytes(value), &address));
  HY_TRY(hy__graph_add_argument(graph, name, address, hy_tensor_bytes(value),
                                hy_tensor_bytes(value) == 0));
  value->data = address;
  return HY_OK;
}

hy_status hy__graph_add_constant(hy_graph* graph, char* captured, uint64_t bytes, void** memory) {
  hy_stream* stream;
  HY_TRY(hy__graph_stream(graph, &stream));
  hy_binding* bindings =
      hy__realloc(graph->bindings, ((size_t)graph->n_bindings + 1) * sizeof *bindings);
  if (!bindings) return hy_fail(HY_OUT_OF_MEMORY, "no host memory for a constant of a graph");
  graph->bindings = bindings;
  HY_TRY(hy_alloc(stream, bytes, memory));
  hy_status status =
      push_argument(graph, &(hy__graph_argument){NULL, captured, bytes, true, *memory, true});
  if (status != HY_OK) {
    hy_free(graph->device, *memory);
    return status;
  }
  bindings[graph->n_bindings++] = (hy_binding){captured, bytes, *memory};
  return HY_OK;
}

hy_status hy_graph_constant(hy_graph* graph, const hy_tensor* host, hy_tensor* value) {
  HY_TRY(check_building(graph, "hy_graph_constant"));
  if (!host || !value) return hy_fail(HY_INVALID_ARGUMENT, "hy_graph_constant: a tensor is NULL");
  HY_TRY(hy_tensor_check(host));
  size_t bytes = hy_tensor_bytes(host);
  if (host->layout == HY_LAYOUT_STRIDED && !hy_tensor_is_contiguous(host))
    return hy_fail(HY_LAYOUT, "hy_graph_constant: the tensor is not contiguous");
  if (bytes == 0) return hy_fail(HY_SHAPE, "hy_graph_constant: the tensor has no elements");
  char* address = NULL;
  void* memory;
  hy_stream* stream;
  HY_TRY(hy__graph_take_address(graph, bytes, &address));
  HY_TRY(hy__graph_add_constant(graph, address, bytes, &memory));
  HY_TRY(hy__graph_stream(graph, &stream));
  HY_TRY(hy_memcpy(stream, memory, host->data, bytes, HY_COPY_HOST_TO_DEVICE));
  HY_TRY(hy_stream_sync(stream));
  *value = *host;
  value->data = address;
  return HY_OK;
}

hy_status hy_graph_name(hy_graph* graph, const char* name, const void* captured, size_t bytes) {
  if (!graph || !captured || bytes == 0) {
    return hy_fail(HY_INVALID_ARGUMENT, "hy_graph_name: %s",
                   graph ? "the range is empty" : "graph is NULL");
  }
  HY_TRY(check_name(graph, "hy_graph_name", name));
  if (graph->building) {
    return hy_fail(HY_INVALID_ARGUMENT, "hy_graph_name: a graph that is built has its names");
  }
  return hy__graph_add_argument(graph, name, (char*)captured, bytes, true);
}

hy_status hy_graph_set(hy_graph* graph, const char* name, void* now) {
  if (!graph || !name || !now) {
    return hy_fail(HY_INVALID_ARGUMENT, "hy_graph_set: %s is NULL",
                   !graph ? "graph"
                   : name ? "the address"
                          : "name");
  }
  hy__graph_argument* a = find_argument(graph, name);
  if (!a) return hy_fail(HY_NOT_FOUND, "hy_graph_set: the graph has no argument \"%s\"", name);
  hy_status status = hy_graph_bind(graph, &(hy_binding){a->captured, a->bytes, now}, 1);
  if (status == HY_NOT_FOUND) status = HY_OK;  // no node uses it, or no longer
  if (status == HY_OK) a->bound = true;
  return status;
}

// ---- constants of somebody's memory ----

static bool meet(const char* first, uint64_t bytes, const char* other, uint64_t other_bytes) {
  return (uintptr_t)first < (uintptr_t)other + other_bytes &&
         (uintptr_t)other < (uintptr_t)first + bytes;
}

int hy__graph_writer_of(const hy_graph* graph, const void* captured, uint64_t bytes) {
  for (int i = 0; i < graph->count; i++) {
    for (int k = 0; k < graph->nodes[i]->n_operands; k++) {
      const hy__operand* o = &graph->nodes[i]->operands[k];
      if (o->value < 0 && o->writes &&
          meet(captured, bytes, o->captured + o->first, (uint64_t)(o->last - o->first)))
        return i;
    }
  }
  return -1;
}

hy_status hy_graph_mark_constant(hy_graph* graph, const void* captured, size_t bytes) {
  static const char caller[] = "hy_graph_mark_constant";
  if (!graph || !captured || bytes == 0 || graph->building)
    return hy_fail(HY_INVALID_ARGUMENT, "%s: %s", caller,
                   !graph             ? "graph is NULL"
                   : !graph->building ? "the range is empty"
                                      : "the graph is under construction; call hy_graph_finish");
  char* first = (char*)captured;
  int writer = hy__graph_writer_of(graph, first, bytes);
  if (writer >= 0) return hy_fail(HY_INVALID_ARGUMENT, "%s: node %d writes there", caller, writer);
  for (int i = 0; i < graph->n_arguments; i++) {
    hy__graph_argument* a = &graph->arguments[i];
    if (!meet(first, bytes, a->captured, a->bytes)) continue;
    bool inside = first >= a->captured && first + bytes <= a->captured + a->bytes;
    if (a->constant && inside) return HY_OK;
    if (a->constant || !inside || bytes != a->bytes)
      return hy_fail(HY_INVALID_ARGUMENT, "%s: the range is neither \"%s\" nor apart from it",
                     caller, a->name ? a->name : "a constant");
    if (!a->bound)
      return hy_fail(HY_INVALID_ARGUMENT, "%s: \"%s\" has no memory yet", caller, a->name);
    a->constant = true;
    return HY_OK;
  }
  return push_argument(graph, &(hy__graph_argument){NULL, first, bytes, true, NULL, true});
}

// ---- integers ----

static const hy_attr_field* find_field(const hy_call* call, const char* field) {
  const hy_op_info* info = hy_op_describe(call->op);
  for (int i = 0; i < info->n_attrs; i++) {
    const hy_attr_field* f = &info->attrs[i];
    if (strcmp(f->name, field) != 0) continue;
    return strcmp(f->type, "int64_t") == 0 || strcmp(f->type, "uint64_t") == 0 ? f : NULL;
  }
  return NULL;
}

hy_status hy_graph_name_integer(hy_graph* graph, const char* name, int node, const char* field) {
  if (!graph || !name || !name[0] || !field) {
    return hy_fail(HY_INVALID_ARGUMENT, "hy_graph_name_integer: an argument is NULL or empty");
  }
  if (node < 0 || node >= graph->count || graph->nodes[node]->as.kind != HY_NODE_CALL) {
    return hy_fail(HY_INVALID_ARGUMENT, "hy_graph_name_integer: node %d of %d is no call", node,
                   graph->count);
  }
  const hy_call* call = graph->nodes[node]->as.call;
  const hy_attr_field* f = find_field(call, field);
  if (!f) {
    return hy_fail(HY_NOT_FOUND, "hy_graph_name_integer: %s has no integer attribute \"%s\"",
                   hy_op_name(call->op), field);
  }
  hy__graph_integer* list =
      hy__realloc(graph->integers, ((size_t)graph->n_integers + 1) * sizeof *list);
  if (list) graph->integers = list;
  char* copy = list ? hy__strdup(name) : NULL;
  if (!copy) return hy_fail(HY_OUT_OF_MEMORY, "no host memory for the name \"%s\"", name);
  list[graph->n_integers++] = (hy__graph_integer){copy, graph->nodes[node], f->offset};
  graph->nodes[node]->named = true;
  return HY_OK;
}

static int index_of(const hy_graph* graph, const hy__graph_node* node) {
  int i = 0;
  while (graph->nodes[i] != node) i++;
  return i;
}

hy_status hy_graph_set_integer(hy_graph* graph, const char* name, int64_t value) {
  if (!graph || !name) {
    return hy_fail(HY_INVALID_ARGUMENT, "hy_graph_set_integer: %s is NULL",
                   graph ? "name" : "graph");
  }
  bool found = false;
  for (int i = 0; i < graph->n_integers; i++) {
    const hy__graph_integer* integer = &graph->integers[i];
    if (strcmp(integer->name, name) != 0) continue;
    found = true;
    hy_attrs attrs = integer->node->call.attrs;
    memcpy((char*)&attrs + integer->offset, &value, sizeof value);
    HY_TRY(hy_graph_set_attrs(graph, index_of(graph, integer->node), &attrs));
  }
  if (found) return HY_OK;
  return hy_fail(HY_NOT_FOUND, "hy_graph_set_integer: the graph has no integer \"%s\"", name);
}

// ---- nodes ----

hy_status hy__graph_own_operands(const hy_graph* graph, const hy__graph_node* node) {
  for (int i = 0; i < node->n_operands; i++) {
    hy__operand* o = &node->operands[i];
    o->value = value_at(graph, o->captured + o->first, o->captured + o->last);
    if (o->value >= 0) continue;
    const hy__graph_argument* a = hy__graph_argument_at(graph, o->captured + o->first);
    if (a && o->captured + o->last <= a->captured + a->bytes && (a->name || !o->writes)) continue;
    return hy_fail(
        HY_INVALID_ARGUMENT, "hy_graph_add: %s: operand %d %s", hy_op_name(node->call.op), i,
        a ? "writes a constant, or passes the end of an argument" : "is no tensor of this graph");
  }
  return HY_OK;
}

// Memory for outputs that have none.
static hy_status make_outputs(hy_graph* graph, hy_call* call) {
  const hy_op_info* info = hy_op_describe(call->op);
  hy_tensor expected[HY_MAX_OUTPUTS];
  HY_TRY(hy_infer(call, expected));
  if (call->n_out != info->n_outputs || !call->out) {
    return hy_fail(HY_INVALID_ARGUMENT, "hy_graph_add: %s has %d outputs, not %d", info->name,
                   info->n_outputs, call->n_out);
  }
  for (int i = 0; i < call->n_out; i++) {
    bool absent = call->out[i].dtype == HY_NONE && info->outputs[i].kind == HY_ARGUMENT_OPTIONAL;
    if (absent || call->out[i].data) continue;
    int32_t v = hy__graph_add_value(graph, hy_tensor_bytes(&expected[i]));
    if (v < 0) return HY_OUT_OF_MEMORY;
    call->out[i] = expected[i];
    call->out[i].data = graph->values[v].captured;
  }
  return HY_OK;
}

// Nothing to run, as in hy_run.
static bool is_empty(const hy_call* call) {
  for (int i = 0; i < call->n_out; i++) {
    if (hy__present(&call->out[i]) && hy_tensor_numel(&call->out[i]) > 0) return false;
  }
  return true;
}

hy_status hy_graph_add(hy_graph* graph, hy_call* call) {
  HY_TRY(check_building(graph, "hy_graph_add"));
  if (!call) return hy_fail(HY_INVALID_ARGUMENT, "hy_graph_add: call is NULL");
  if (!hy_op_describe(call->op)) return hy_fail(HY_NOT_FOUND, "%d is no op", (int)call->op);
  const hy_provider* provider;
  hy__graph_node* node = NULL;
  HY_TRY(make_outputs(graph, call));
  if (is_empty(call)) return hy__check_call(call);
  HY_TRY(hy__graph_check_call(graph, graph->count, call, &provider));
  HY_TRY(
      hy__graph_node_create(&(hy_graph_node){.kind = HY_NODE_CALL, .call = call}, provider, &node));
  hy_status status = hy__graph_own_operands(graph, node);
  if (status != HY_OK) {
    hy__graph_node_destroy(node);
    return status;
  }
  return hy__graph_append(graph, node);
}

hy_status hy_graph_output(hy_graph* graph, const char* name, const hy_tensor* value) {
  HY_TRY(check_building(graph, "hy_graph_output"));
  HY_TRY(check_name(graph, "hy_graph_output", name));
  int32_t v = -1;
  for (int i = 0; value && i < graph->n_values; i++) {
    if (graph->values[i].local && graph->values[i].captured == value->data) v = i;
  }
  if (v < 0) {
    return hy_fail(HY_INVALID_ARGUMENT,
                   "hy_graph_output: \"%s\" is nothing that hy_graph_add has made, or is an "
                   "output already",
                   name);
  }
  hy__value* now = &graph->values[v];
  HY_TRY(hy__graph_add_argument(graph, name, now->captured, now->bytes, now->bytes == 0));
  now->local = false;
  for (int i = 0; i < graph->count; i++) {
    for (int k = 0; k < graph->nodes[i]->n_operands; k++) {
      if (graph->nodes[i]->operands[k].value == v) graph->nodes[i]->operands[k].value = -1;
    }
  }
  return HY_OK;
}

hy_status hy_graph_finish(hy_graph* graph) {
  HY_TRY(check_building(graph, "hy_graph_finish"));
  HY_TRY(hy__pass_plan(graph, NULL));
  graph->building = false;
  return HY_OK;
}
