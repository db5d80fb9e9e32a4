// Loading a graph: a file is somebody else's claim, and every node of it is checked as a call is.
#include <string.h>

#include "base/file.h"
#include "graph/file.h"
#include "graph/graph.h"

typedef struct region {
  char* address;
  uint64_t bytes;
} region;

typedef struct loading {
  hy_graph* graph;
  region* memory;
  int n_memory;
} loading;

#define BAD(...) hy_fail(HY_FORMAT, "a graph file: " __VA_ARGS__)

// ---- memory ----

static int hex(char c) {
  return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static hy_status load_constant(loading* l, const hy__json* from, int64_t bytes, char** address) {
  const hy__json* data = hy__json_get(from, "data");
  if (bytes < 1 || !data || data->kind != HY__JSON_STRING || data->length / 2 != (size_t)bytes ||
      data->length % 2)
    return BAD("a constant of %lld bytes has data of another length", (long long)bytes);
  unsigned char* host = hy__malloc((size_t)bytes);
  if (!host) return hy_fail(HY_OUT_OF_MEMORY, "hy_graph_load: no host memory");
  hy_status status = HY_OK;
  for (int64_t i = 0; i < bytes && status == HY_OK; i++) {
    int high = hex(data->text[2 * i]), low = hex(data->text[2 * i + 1]);
    if (high < 0 || low < 0)
      status = BAD("a constant has a digit that is not hexadecimal");
    else
      host[i] = (unsigned char)(high << 4 | low);
  }
  hy_tensor tensor, value;
  if (status == HY_OK) status = hy_tensor_init(&tensor, host, HY_U8, 1, &bytes);
  if (status == HY_OK) status = hy_graph_constant(l->graph, &tensor, &value);
  if (status == HY_OK) *address = value.data;
  hy__mfree(host);
  return status;
}

static hy_status load_region(loading* l, const hy__json* from) {
  const char *kind, *name;
  int64_t bytes;
  char* address = NULL;
  HY_TRY(hy__json_get_text(from, "kind", "", &kind));
  HY_TRY(hy__json_get_text(from, "name", "", &name));
  HY_TRY(hy__json_get_int(from, "bytes", -1, &bytes));
  if (bytes < 0) return BAD("a piece of memory has no size");
  if (strcmp(kind, "constant") == 0) {
    HY_TRY(load_constant(l, from, bytes, &address));
  } else if (strcmp(kind, "argument") == 0) {
    hy_tensor value;
    HY_TRY(hy_graph_input(l->graph, name, HY_U8, 1, &bytes, &value));
    address = value.data;
  } else if (strcmp(kind, "value") == 0) {
    int32_t v = hy__graph_add_value(l->graph, (uint64_t)bytes);
    if (v < 0) return HY_OUT_OF_MEMORY;
    address = l->graph->values[v].captured;
  } else {
    return BAD("memory of the unknown kind \"%s\"", kind);
  }
  l->memory[l->n_memory++] = (region){address, (uint64_t)bytes};
  return HY_OK;
}

static hy_status load_memory(loading* l, const hy__json* list) {
  if (!list || list->kind != HY__JSON_ARRAY || list->length > 4 * HY__GRAPH_FILE_NODES)
    return BAD("\"memory\" is no list, or has more than %d entries", 4 * HY__GRAPH_FILE_NODES);
  l->memory = hy__calloc(list->length + 1, sizeof *l->memory);
  if (!l->memory) return hy_fail(HY_OUT_OF_MEMORY, "hy_graph_load: no host memory");
  for (const hy__json* m = list->first; m; m = m->next) HY_TRY(load_region(l, m));
  return HY_OK;
}

// ---- nodes ----

static hy_status load_place(const loading* l, const hy__json* from, void** address) {
  int64_t index, at;
  HY_TRY(hy__json_get_int(from, "memory", -1, &index));
  HY_TRY(hy__json_get_int(from, "at", 0, &at));
  if (index < 0 || index >= l->n_memory || at < 0 || (uint64_t)at > l->memory[index].bytes)
    return BAD("a tensor is at byte %lld of memory %lld, which is not there", (long long)at,
               (long long)index);
  *address = l->memory[index].address + at;
  return HY_OK;
}

static hy_status load_sizes(const hy__json* from, int64_t* sizes, int* n) {
  if (!from || from->kind != HY__JSON_ARRAY || from->length > HY_MAX_DIMS)
    return BAD("a tensor has no sizes, or more than %d", HY_MAX_DIMS);
  *n = 0;
  for (const hy__json* m = from->first; m; m = m->next) {
    if (!m->is_integer) return BAD("a size is no integer");
    sizes[(*n)++] = m->integer;
  }
  return HY_OK;
}

static hy_status load_tensor(const loading* l, const hy__json* from, hy_tensor* t) {
  *t = hy_tensor_absent();
  if (from->kind == HY__JSON_NULL) return HY_OK;
  const char* dtype;
  int64_t layout;
  int n_strides = 0;
  HY_TRY(hy__json_get_text(from, "dtype", "", &dtype));
  HY_TRY(hy__json_get_int(from, "layout", HY_LAYOUT_STRIDED, &layout));
  HY_TRY(load_sizes(hy__json_get(from, "shape"), t->shape, &t->ndim));
  HY_TRY(load_sizes(hy__json_get(from, "stride"), t->stride, &n_strides));
  t->dtype = hy_dtype_from_name(dtype);
  if (t->dtype == HY_NONE || n_strides != t->ndim || layout < 0 || layout > 16)
    return BAD("a tensor of the type \"%s\" with %d sizes and %d strides", dtype, t->ndim,
               n_strides);
  t->layout = (hy_layout)layout;
  HY_TRY(hy_tensor_check(t));
  if (hy_tensor_numel(t) == 0) return HY_OK;
  return load_place(l, from, &t->data);
}

static hy_status load_tensors(const loading* l, const hy__json* list, hy_tensor* tensors, int most,
                              int* n) {
  if (!list || list->kind != HY__JSON_ARRAY || list->length > (size_t)most)
    return BAD("a call has no list of tensors, or more than %d", most);
  *n = 0;
  for (const hy__json* m = list->first; m; m = m->next) HY_TRY(load_tensor(l, m, &tensors[(*n)++]));
  return HY_OK;
}

static hy_status load_call(const loading* l, const hy__json* from, const char* name) {
  hy_tensor in[HY_MAX_INPUTS], out[HY_MAX_OUTPUTS];
  hy_call call = {.op = hy_op_from_name(name), .in = in, .out = out};
  if (call.op == HY_OP_NONE) return BAD("\"%s\" is no op", name);
  HY_TRY(load_tensors(l, hy__json_get(from, "in"), in, HY_MAX_INPUTS, &call.n_in));
  HY_TRY(load_tensors(l, hy__json_get(from, "out"), out, HY_MAX_OUTPUTS, &call.n_out));
  HY_TRY(hy__attrs_read(hy__json_get(from, "attrs"), call.op, &call.attrs));
  for (int i = 0; i < call.n_out; i++) {
    if (out[i].dtype != HY_NONE && !out[i].data && hy_tensor_numel(&out[i]) > 0)
      return BAD("an output of %s has no memory", name);
  }
  return hy_graph_add(l->graph, &call);
}

static hy_status load_bytes(const loading* l, const hy__json* from) {
  int64_t bytes, value;
  hy_graph_node node = {.size = sizeof node, .kind = HY_NODE_SET};
  const hy__json* source = hy__json_get(from, "from");
  void* src = NULL;
  HY_TRY(hy__json_get_int(from, "bytes", 0, &bytes));
  HY_TRY(hy__json_get_int(from, "value", 0, &value));
  if (bytes < 1 || value < 0 || value > 255)
    return BAD("a node is no call, and copies or sets %lld bytes", (long long)bytes);
  HY_TRY(load_place(l, hy__json_get(from, "to"), &node.dst));
  if (source) {
    HY_TRY(load_place(l, source, &src));
    node.kind = HY_NODE_COPY;
    node.src = src;
  }
  node.bytes = (uint64_t)bytes;
  node.value = (int32_t)value;
  hy__graph_node* made = NULL;
  HY_TRY(hy__graph_node_create(&node, NULL, &made));
  hy_status status = hy__graph_own_operands(l->graph, made);
  if (status != HY_OK) {
    hy__graph_node_destroy(made);
    return status;
  }
  return hy__graph_append(l->graph, made);
}

static hy_status load_nodes(const loading* l, const hy__json* list) {
  if (!list || list->kind != HY__JSON_ARRAY || list->length > HY__GRAPH_FILE_NODES)
    return BAD("\"nodes\" is no list, or has more than %d entries", HY__GRAPH_FILE_NODES);
  for (const hy__json* m = list->first; m; m = m->next) {
    const char* op;
    HY_TRY(hy__json_get_text(m, "op", "", &op));
    HY_TRY(op[0] ? load_call(l, m, op) : load_bytes(l, m));
  }
  return HY_OK;
}

static hy_status load_integers(const loading* l, const hy__json* list) {
  if (!list) return HY_OK;
  for (const hy__json* m = list->first; m; m = m->next) {
    const char *name, *field;
    int64_t node;
    HY_TRY(hy__json_get_text(m, "name", "", &name));
    HY_TRY(hy__json_get_text(m, "field", "", &field));
    HY_TRY(hy__json_get_int(m, "node", -1, &node));
    if (node < 0 || node >= l->graph->count) return BAD("an integer of a node that is not there");
    HY_TRY(hy_graph_name_integer(l->graph, name, (int)node, field));
  }
  return HY_OK;
}

static hy_status load(loading* l, const hy__json* root) {
  int64_t version;
  HY_TRY(hy__json_get_int(root, "halyard_graph", 0, &version));
  if (version != HY__GRAPH_FILE_VERSION)
    return BAD("its version is %lld; this library reads %d", (long long)version,
               HY__GRAPH_FILE_VERSION);
  HY_TRY(load_memory(l, hy__json_get(root, "memory")));
  HY_TRY(load_nodes(l, hy__json_get(root, "nodes")));
  HY_TRY(load_integers(l, hy__json_get(root, "integers")));
  return hy_graph_finish(l->graph);
}

hy_status hy_graph_load(hy_device* device, const char* path, hy_graph** graph) {
  if (!device || !path || !graph)
    return hy_fail(HY_INVALID_ARGUMENT, "hy_graph_load: an argument is NULL");
  *graph = NULL;
  char* text = NULL;
  size_t size;
  hy__json_document* document = NULL;
  loading l = {0};
  hy_status status = hy__read_file(path, HY_GRAPH_FILE_LIMIT, &text, &size);
  if (status == HY_OK) status = hy__json_parse(path, text, size, &document);
  if (status == HY_OK) status = hy_graph_create(device, &l.graph);
  if (status == HY_OK) status = load(&l, hy__json_root(document));
  if (status == HY_OK)
    *graph = l.graph;
  else
    hy_graph_destroy(l.graph);
  hy__json_free(document);
  hy__mfree(text);
  hy__mfree(l.memory);
  return status;
}
