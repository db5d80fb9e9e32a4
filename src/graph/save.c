// Saving a graph: memory first, then nodes, whose tensors name a memory and an offset in it.
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "graph/file.h"
#include "graph/graph.h"

// A piece of memory of the file.
typedef struct piece {
  char *first, *last;
  const char* name;    // of an argument
  const void* memory;  // of a constant, on the device
} piece;

typedef struct saving {
  const hy_graph* graph;
  json_writer j;
  piece* pieces;  // sorted; behind them in the file come the values
  int n_pieces;
} saving;

// ---- memory ----

static int by_address(const void* a, const void* b) {
  const piece *x = a, *y = b;
  if (x->first != y->first) return (uintptr_t)x->first < (uintptr_t)y->first ? -1 : 1;
  return (uintptr_t)x->last > (uintptr_t)y->last ? -1 : (uintptr_t)x->last < (uintptr_t)y->last;
}

// Ranges that overlap become one; names and constants stay whole.
static hy_status merge(saving* s) {
  int n = 0;
  qsort(s->pieces, (size_t)s->n_pieces, sizeof *s->pieces, by_address);
  for (int i = 0; i < s->n_pieces; i++) {
    piece* now = &s->pieces[i];
    piece* before = n > 0 ? &s->pieces[n - 1] : NULL;
    if (!before || now->first >= before->last) {
      s->pieces[n++] = *now;
      continue;
    }
    bool known = before->name || before->memory;
    bool inside = now->last <= before->last;
    if ((now->name || now->memory) && (known || now->first != before->first || !inside)) {
      return hy_fail(HY_INVALID_ARGUMENT, "hy_graph_save: \"%s\" is a part of other memory",
                     now->name ? now->name : "a constant");
    }
    if (known && !inside) {
      return hy_fail(HY_INVALID_ARGUMENT, "hy_graph_save: a tensor reaches past the end of \"%s\"",
                     before->name ? before->name : "a constant");
    }
    if (!inside) before->last = now->last;
    if (now->name) before->name = now->name;
    if (now->memory) before->memory = now->memory;
  }
  s->n_pieces = n;
  return HY_OK;
}

static hy_status collect(saving* s) {
  const hy_graph* graph = s->graph;
  size_t room = (size_t)graph->n_arguments + 1;
  for (int i = 0; i < graph->count; i++) room += (size_t)graph->nodes[i]->n_operands;
  s->pieces = hy__calloc(room, sizeof *s->pieces);
  if (!s->pieces) return hy_fail(HY_OUT_OF_MEMORY, "hy_graph_save: no host memory");
  for (int i = 0; i < graph->n_arguments; i++) {
    const hy__graph_argument* a = &graph->arguments[i];
    if (a->bytes)
      s->pieces[s->n_pieces++] = (piece){a->captured, a->captured + a->bytes, a->name, a->memory};
  }
  for (int i = 0; i < graph->count; i++) {
    for (int k = 0; k < graph->nodes[i]->n_operands; k++) {
      const hy__operand* o = &graph->nodes[i]->operands[k];
      if (o->value >= 0) continue;
      s->pieces[s->n_pieces++] = (piece){o->captured + o->first, o->captured + o->last, NULL, NULL};
    }
  }
  return merge(s);
}

static hy_status write_constant(saving* s, const piece* p) {
  size_t bytes = (size_t)(p->last - p->first);
  unsigned char* host = hy__malloc(bytes);
  char* text = hy__malloc(2 * bytes + 1);
  hy_stream* stream;
  hy_status status = HY_OK;
  if (!host || !text) status = hy_fail(HY_OUT_OF_MEMORY, "hy_graph_save: no host memory");
  if (status == HY_OK) status = hy__graph_stream((hy_graph*)s->graph, &stream);
  if (status == HY_OK) status = hy_memcpy(stream, host, p->memory, bytes, HY_COPY_DEVICE_TO_HOST);
  if (status == HY_OK) status = hy_stream_sync(stream);
  if (status == HY_OK) {
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < bytes; i++) {
      text[2 * i] = digits[host[i] >> 4];
      text[2 * i + 1] = digits[host[i] & 15];
    }
    text[2 * bytes] = 0;
    json_text(&s->j, "data", text);
  }
  hy__mfree(host);
  hy__mfree(text);
  return status;
}

static hy_status write_memory(saving* s) {
  int unnamed = 0;
  json_begin_array(&s->j, "memory");
  for (int i = 0; i < s->n_pieces; i++) {
    const piece* p = &s->pieces[i];
    char name[40];
    snprintf(name, sizeof name, "memory_%d", unnamed);
    fputc('\n', s->j.file);
    json_begin_object(&s->j, NULL);
    json_text(&s->j, "kind", p->memory ? "constant" : "argument");
    json_uint(&s->j, "bytes", (uint64_t)(p->last - p->first));
    if (!p->memory && !p->name) unnamed++;
    if (!p->memory) json_text(&s->j, "name", p->name ? p->name : name);
    if (p->memory) HY_TRY(write_constant(s, p));
    json_end_object(&s->j);
  }
  for (int v = 0; v < s->graph->n_values; v++) {
    fputc('\n', s->j.file);
    json_begin_object(&s->j, NULL);
    json_text(&s->j, "kind", "value");
    json_uint(&s->j, "bytes", s->graph->values[v].local ? s->graph->values[v].bytes : 0);
    json_end_object(&s->j);
  }
  json_end_array(&s->j);
  return HY_OK;
}

// ---- nodes ----

static void write_place(saving* s, const hy__operand* o) {
  const char* first = o->captured + o->first;
  if (o->value >= 0) {
    json_int(&s->j, "memory", s->n_pieces + o->value);
    json_int(&s->j, "at", o->captured - s->graph->values[o->value].captured);
    return;
  }
  int i = s->n_pieces - 1;
  while (i > 0 && first < s->pieces[i].first) i--;
  json_int(&s->j, "memory", i);
  json_int(&s->j, "at", o->captured - s->pieces[i].first);
}

static const hy__operand* operand_of(const hy__graph_node* node, void* const* now) {
  for (int k = 0; k < node->n_operands; k++) {
    if ((void* const*)node->operands[k].now == now) return &node->operands[k];
  }
  return NULL;
}

static void write_sizes(json_writer* j, const char* key, const int64_t* list, int n) {
  json_begin_array(j, key);
  for (int i = 0; i < n; i++) json_int(j, NULL, list[i]);
  json_end_array(j);
}

static void write_tensors(saving* s, const char* key, const hy__graph_node* node,
                          const hy_tensor* list, int n) {
  json_begin_array(&s->j, key);
  for (int i = 0; i < n; i++) {
    const hy_tensor* t = &list[i];
    if (t->dtype == HY_NONE) {
      json_null(&s->j, NULL);
      continue;
    }
    json_begin_object(&s->j, NULL);
    const hy__operand* o = operand_of(node, &t->data);
    if (o) write_place(s, o);
    json_text(&s->j, "dtype", hy_dtype_name(t->dtype));
    if (t->layout != HY_LAYOUT_STRIDED) json_int(&s->j, "layout", (int64_t)t->layout);
    write_sizes(&s->j, "shape", t->shape, t->ndim);
    write_sizes(&s->j, "stride", t->stride, t->ndim);
    json_end_object(&s->j);
  }
  json_end_array(&s->j);
}

static hy_status write_node(saving* s, int index) {
  const hy__graph_node* node = s->graph->nodes[index];
  fputc('\n', s->j.file);
  json_begin_object(&s->j, NULL);
  switch (node->as.kind) {
    case HY_NODE_CALL:
      json_text(&s->j, "op", hy_op_name(node->call.op));
      write_tensors(s, "out", node, node->call.out, node->call.n_out);
      write_tensors(s, "in", node, node->call.in, node->call.n_in);
      hy__attrs_write(&s->j, "attrs", &node->call);
      break;
    case HY_NODE_COPY:
    case HY_NODE_SET:
      json_uint(&s->j, "bytes", node->as.bytes);
      json_begin_object(&s->j, "to");
      write_place(s, operand_of(node, &node->as.dst));
      json_end_object(&s->j);
      if (node->as.kind == HY_NODE_SET) {
        json_int(&s->j, "value", node->as.value & 0xff);
        break;
      }
      json_begin_object(&s->j, "from");
      write_place(s, operand_of(node, (void**)&node->as.src));
      json_end_object(&s->j);
      break;
    case HY_NODE_COLLECTIVE:
      return hy_fail(
          HY_UNSUPPORTED,
          "hy_graph_save: node %d is %s, whose communicator exists only in this process; "
          "capture it again where it is needed",
          index, hy_collective_name(node->collective.kind));
    default:
      return hy_fail(HY_UNSUPPORTED,
                     "hy_graph_save: node %d is a compiled kernel or a fused chain, which exist "
                     "only in this process; save the graph before its passes",
                     index);
  }
  json_end_object(&s->j);
  return HY_OK;
}

static int index_of(const hy_graph* graph, const hy__graph_node* node) {
  int i = 0;
  while (graph->nodes[i] != node) i++;
  return i;
}

static const char* field_at(const hy__graph_integer* integer) {
  const hy_op_info* info = hy_op_describe(integer->node->call.op);
  int i = 0;
  while (info->attrs[i].offset != integer->offset) i++;
  return info->attrs[i].name;
}

static hy_status write_graph(saving* s) {
  json_begin_object(&s->j, NULL);
  json_int(&s->j, "halyard_graph", HY__GRAPH_FILE_VERSION);
  HY_TRY(write_memory(s));
  json_begin_array(&s->j, "nodes");
  for (int i = 0; i < s->graph->count; i++) HY_TRY(write_node(s, i));
  json_end_array(&s->j);
  json_begin_array(&s->j, "integers");
  for (int i = 0; i < s->graph->n_integers; i++) {
    const hy__graph_integer* integer = &s->graph->integers[i];
    json_begin_object(&s->j, NULL);
    json_text(&s->j, "name", integer->name);
    json_int(&s->j, "node", index_of(s->graph, integer->node));
    json_text(&s->j, "field", field_at(integer));
    json_end_object(&s->j);
  }
  json_end_array(&s->j);
  json_end_object(&s->j);
  json_newline(&s->j);
  return HY_OK;
}

hy_status hy_graph_save(const hy_graph* graph, const char* path) {
  if (!graph || !path) {
    return hy_fail(HY_INVALID_ARGUMENT, "hy_graph_save: %s is NULL", graph ? "path" : "graph");
  }
  saving s = {.graph = graph};
  hy__writer writer;
  hy_status status = collect(&s);
  if (status == HY_OK) status = hy__write_begin(path, &writer);
  if (status == HY_OK) {
    s.j = json_to(writer.file);
    status = write_graph(&s);
    if (status == HY_OK)
      status = hy__write_commit(&writer);
    else
      hy__write_abandon(&writer);
  }
  hy__mfree(s.pieces);
  return status;
}
