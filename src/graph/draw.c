// Pictures of a graph: DOT for Graphviz, and SVG with a layered layout (longest paths give the
// layers, barycentres the order within one).
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "graph/passes/passes.h"
#include "ops/internal.h"

typedef struct edge {
  int from, to;
} edge;

// A node where it is sorted.
typedef struct spot {
  int node, layer;
  double weight;
} spot;

typedef struct picture {
  const hy_graph* graph;
  edge* edges;
  int n_edges, capacity;
  int* layer;
  double *x, *weight;  // centre, and what nodes of a layer are sorted by
  spot* spots;
} picture;

// ---- edges ----

// The last node before `index` that wrote what the operand covers; -1: it comes from outside.
static int producer(const hy_graph* graph, int index, const hy__operand* o) {
  for (int i = index - 1; i >= 0; i--) {
    if (hy__node_writes(graph, graph->nodes[i], o)) return i;
  }
  return -1;
}

static hy_status add_edge(picture* p, int from, int to) {
  for (int i = p->n_edges - 1; i >= 0 && p->edges[i].to == to; i--) {
    if (p->edges[i].from == from) return HY_OK;
  }
  HY_TRY(hy__graph_grow((void**)&p->edges, p->n_edges, &p->capacity, sizeof *p->edges));
  p->edges[p->n_edges++] = (edge){from, to};
  return HY_OK;
}

static hy_status find_edges(picture* p) {
  for (int i = 0; i < p->graph->count; i++) {
    const hy__graph_node* node = p->graph->nodes[i];
    for (int k = 0; k < node->n_operands; k++) {
      int from = node->operands[k].reads ? producer(p->graph, i, &node->operands[k]) : -1;
      if (from >= 0) HY_TRY(add_edge(p, from, i));
    }
  }
  return HY_OK;
}

// ---- words ----

// A chain is named by its steps, as far as they fit.
static const char* title(const hy__graph_node* node, char* text, size_t size) {
  size_t used = 0;
  switch (node->as.kind) {
    case HY_NODE_CALL: return hy_op_name(node->call.op);
    case HY_NODE_COPY: return "copy";
    case HY_NODE_SET: return "set";
    case HY_NODE_LAUNCH: return "kernel";
    case HY_NODE_COLLECTIVE: return hy_collective_name(node->collective.kind);
    case HY_NODE_CHAIN:
      for (int i = 0; i < node->chain.n_steps && used < size; i++)
        used += (size_t)snprintf(text + used, size - used, "%s%s", i ? " " : "",
                                 hy_op_name(node->chain.steps[i].op));
      return text;
  }
  return "?";
}

static const char* result(const hy__graph_node* node, char* text, size_t size) {
  if (node->as.kind == HY_NODE_CALL && node->call.n_out > 0)
    return hy_tensor_describe(&node->call.out[0], text, size);
  if (node->as.kind == HY_NODE_CHAIN) return hy_tensor_describe(&node->chain.out[0], text, size);
  if (node->as.kind == HY_NODE_COLLECTIVE)
    snprintf(text, size, "%lld %s, %d ranks", (long long)node->collective.count,
             hy_dtype_name(node->collective.dtype), hy_comm_size(node->collective.comm));
  else
    snprintf(text, size, "%llu bytes", (unsigned long long)node->as.bytes);
  return text;
}

// ---- layout ----

enum { WIDTH = 150, HEIGHT = 34, COLUMN = 170, ROW = 64, MARGIN = 20, SWEEPS = 6 };

static int by_layer(const void* a, const void* b) {
  const spot *x = a, *y = b;
  if (x->layer != y->layer) return x->layer - y->layer;
  if (x->weight != y->weight) return x->weight < y->weight ? -1 : 1;
  return x->node - y->node;
}

static void place_nodes(picture* p) {
  int n = p->graph->count;
  for (int i = 0; i < n; i++) p->spots[i] = (spot){i, p->layer[i], p->weight[i]};
  qsort(p->spots, (size_t)n, sizeof *p->spots, by_layer);
  for (int i = 0, at = 0; i < n; i++) {
    at = i > 0 && p->spots[i].layer == p->spots[i - 1].layer ? at + 1 : 0;
    p->x[p->spots[i].node] = at * COLUMN + WIDTH / 2.0;
  }
}

static void lay_out(picture* p) {
  int n = p->graph->count;
  for (int e = 0; e < p->n_edges; e++) {
    int* to = &p->layer[p->edges[e].to];
    if (*to <= p->layer[p->edges[e].from]) *to = p->layer[p->edges[e].from] + 1;
  }
  for (int sweep = 0; sweep < SWEEPS; sweep++) {
    place_nodes(p);
    for (int i = 0; i < n; i++) p->weight[i] = p->x[i];
    // Each node goes to the mean of those above it; edges are sorted by their ends.
    for (int e = 0; e < p->n_edges;) {
      int to = p->edges[e].to, count = 0;
      double sum = 0;
      for (; e < p->n_edges && p->edges[e].to == to; e++, count++) sum += p->x[p->edges[e].from];
      p->weight[to] = sum / count;
    }
  }
  place_nodes(p);
}

// ---- files ----

static void write_dot(FILE* file, const picture* p) {
  char text[200], name[200];
  fprintf(file, "digraph halyard {\n  node [shape=box, fontname=\"sans-serif\"];\n");
  for (int i = 0; i < p->graph->count; i++) {
    fprintf(file, "  n%d [label=\"%s\\n%s\"];\n", i, title(p->graph->nodes[i], name, sizeof name),
            result(p->graph->nodes[i], text, sizeof text));
  }
  for (int e = 0; e < p->n_edges; e++)
    fprintf(file, "  n%d -> n%d;\n", p->edges[e].from, p->edges[e].to);
  fprintf(file, "}\n");
}

static double top(const picture* p, int node) {
  return MARGIN + p->layer[node] * (double)ROW;
}

static void write_svg(FILE* file, const picture* p) {
  double width = 0, height = 0;
  char text[200], name[32];
  for (int i = 0; i < p->graph->count; i++) {
    if (p->x[i] > width) width = p->x[i];
    if (top(p, i) > height) height = top(p, i);
  }
  fprintf(file,
          "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
          "font-family=\"sans-serif\" text-anchor=\"middle\">\n"
          "<g stroke=\"#888\" fill=\"none\">\n",
          width + WIDTH / 2.0 + 2 * MARGIN, height + HEIGHT + MARGIN);
  for (int e = 0; e < p->n_edges; e++) {
    int from = p->edges[e].from, to = p->edges[e].to;
    double x0 = MARGIN + p->x[from], y0 = top(p, from) + HEIGHT, x1 = MARGIN + p->x[to],
           y1 = top(p, to), bend = (y1 - y0) / 2;
    fprintf(file, "<path d=\"M%.1f %.1fC%.1f %.1f %.1f %.1f %.1f %.1f\"/>\n", x0, y0, x0, y0 + bend,
            x1, y1 - bend, x1, y1);
  }
  fprintf(file, "</g>\n");
  for (int i = 0; i < p->graph->count; i++) {
    double x = MARGIN + p->x[i], y = top(p, i);
    fprintf(file,
            "<rect x=\"%.1f\" y=\"%.1f\" width=\"%d\" height=\"%d\" rx=\"5\" fill=\"#eef3fa\" "
            "stroke=\"#46608a\"/>\n"
            "<text x=\"%.1f\" y=\"%.1f\" font-size=\"13\">%s</text>\n"
            "<text x=\"%.1f\" y=\"%.1f\" font-size=\"10\" fill=\"#555\">%s</text>\n",
            x - WIDTH / 2.0, y, WIDTH, HEIGHT, x, y + 15,
            title(p->graph->nodes[i], name, sizeof name), x, y + 28,
            result(p->graph->nodes[i], text, sizeof text));
  }
  fprintf(file, "</svg>\n");
}

static hy_status draw(const hy_graph* graph, const char* path, const char* caller,
                      void (*write)(FILE* file, const picture* p)) {
  if (!graph || !path)
    return hy_fail(HY_INVALID_ARGUMENT, "%s: %s is NULL", caller, graph ? "path" : "graph");
  size_t n = (size_t)graph->count + 1;
  picture p = {.graph = graph,
               .layer = hy__calloc(n, sizeof *p.layer),
               .x = hy__calloc(n, sizeof *p.x),
               .weight = hy__calloc(n, sizeof *p.weight),
               .spots = hy__calloc(n, sizeof *p.spots)};
  hy_status status = HY_OK;
  if (!p.layer || !p.x || !p.weight || !p.spots)
    status = hy_fail(HY_OUT_OF_MEMORY, "%s: no host memory", caller);
  if (status == HY_OK) status = find_edges(&p);
  hy__writer writer;
  if (status == HY_OK) status = hy__write_begin(path, &writer);
  if (status == HY_OK) {
    lay_out(&p);
    write(writer.file, &p);
    status = hy__write_commit(&writer);
  }
  hy__mfree(p.edges);
  hy__mfree(p.layer);
  hy__mfree(p.x);
  hy__mfree(p.weight);
  hy__mfree(p.spots);
  return status;
}

hy_status hy_graph_write_dot(const hy_graph* graph, const char* path) {
  return draw(graph, path, "hy_graph_write_dot", write_dot);
}

hy_status hy_graph_write_svg(const hy_graph* graph, const char* path) {
  return draw(graph, path, "hy_graph_write_svg", write_svg);
}
