// Common subexpressions: who reads the second of two equal calls reads the first, unless that would
// have to be kept for long: a backward that computes a block again does so to save memory.
#include <string.h>

#include "graph/passes/passes.h"
#include "ops/internal.h"

static size_t size_of(const char* type) {
#define SIZE(name) \
  if (strcmp(type, #name) == 0) return sizeof(name);
  SIZE(hy_scalar)
  SIZE(int64_t)
  SIZE(uint64_t)
  SIZE(double)
  SIZE(bool)
  SIZE(hy_pair)
  SIZE(hy_dims)
  SIZE(hy_equation)
#undef SIZE
  return sizeof(int32_t);  // an enum
}

bool hy__same_attrs(const hy_call* a, const hy_call* b) {
  const hy_op_info* info = hy_op_describe(a->op);
  for (int i = 0; i < info->n_attrs; i++) {
    const hy_attr_field* f = &info->attrs[i];
    if (memcmp((const char*)&a->attrs + f->offset, (const char*)&b->attrs + f->offset,
               size_of(f->type)) != 0)
      return false;
  }
  return true;
}

static bool same_tensor(const hy__operand* a, const hy_tensor* x, const hy__operand* b,
                        const hy_tensor* y) {
  if (!hy__same_view(x, y) || !a != !b) return false;
  return !a || (a->value == b->value && a->captured == b->captured);
}

// Each output the only contents of a value, and read by nobody's leave but the graph's.
static bool makes_values(const hy__graph_node* node, const hy__uses* uses) {
  if (node->as.kind != HY_NODE_CALL || node->named) return false;
  for (int k = 0; k < node->call.n_out; k++) {
    if (node->call.out[k].dtype == HY_NONE) continue;
    const hy__operand* o = hy__output_operand(node, k);
    if (!o || o->value < 0 || uses[o->value].writers != 1) return false;
  }
  return true;
}

static bool same_call(const hy_graph* graph, const hy__graph_node* a, const hy__graph_node* b) {
  const hy_call *x = &a->call, *y = &b->call;
  if (x->op != y->op || x->n_in != y->n_in || a->provider != b->provider) return false;
  for (int k = 0; k < x->n_in; k++) {
    if (!same_tensor(hy__input_operand(a, k), &x->in[k], hy__input_operand(b, k), &y->in[k]))
      return false;
  }
  for (int k = 0; k < x->n_out; k++) {
    if (!hy__same_view(&x->out[k], &y->out[k])) return false;
    if (x->out[k].dtype == HY_NONE) continue;
    const hy__operand *p = hy__output_operand(a, k), *q = hy__output_operand(b, k);
    if (p->captured - graph->values[p->value].captured !=
        q->captured - graph->values[q->value].captured)
      return false;
  }
  return hy__same_attrs(x, y);
}

static bool inputs_change(const hy_graph* graph, int first, int last) {
  const hy__graph_node* node = graph->nodes[last];
  for (int i = first + 1; i < last; i++) {
    for (int k = 0; k < node->n_operands; k++) {
      if (graph->nodes[i] && node->operands[k].reads &&
          hy__node_writes(graph, graph->nodes[i], &node->operands[k]))
        return true;
    }
  }
  return false;
}

enum { NEAR = 16, SMALL = 4096 };  // nodes that a result may wait for; bytes that may wait for ever

static bool is_worth_keeping(const hy_graph* graph, const hy__uses* uses,
                             const hy__graph_node* before, int until) {
  for (int k = 0; k < before->call.n_out; k++) {
    if (before->call.out[k].dtype == HY_NONE) continue;
    int32_t v = hy__output_operand(before, k)->value;
    if (graph->values[v].bytes > SMALL && uses[v].last + NEAR < until) return false;
  }
  return true;
}

// Everyone who names the value of the one names that of the other.
static void redirect(hy_graph* graph, int from_value, int to_value) {
  const hy__value *from = &graph->values[from_value], *to = &graph->values[to_value];
  for (int i = 0; i < graph->count; i++) {
    for (int k = 0; graph->nodes[i] && k < graph->nodes[i]->n_operands; k++) {
      hy__operand* o = &graph->nodes[i]->operands[k];
      if (o->value != from_value) continue;
      o->captured = to->captured + (o->captured - from->captured);
      o->value = to_value;
      hy__graph_place(graph, o);
    }
  }
}

hy_status hy__pass_common(hy_graph* graph, int* changes) {
  hy__uses* uses = hy__graph_uses(graph);
  if (!uses) return HY_OUT_OF_MEMORY;
  for (int i = 1; i < graph->count; i++) {
    hy__graph_node* node = graph->nodes[i];
    if (!makes_values(node, uses)) continue;
    for (int j = i - 1; j >= 0; j--) {
      const hy__graph_node* before = graph->nodes[j];
      if (!before || !makes_values(before, uses) || !same_call(graph, before, node)) continue;
      if (inputs_change(graph, j, i) || !is_worth_keeping(graph, uses, before, i)) break;
      int from[HY_MAX_OUTPUTS], to[HY_MAX_OUTPUTS], n = 0;
      for (int k = 0; k < node->call.n_out; k++) {
        if (node->call.out[k].dtype == HY_NONE) continue;
        from[n] = hy__output_operand(node, k)->value;
        to[n++] = hy__output_operand(before, k)->value;
      }
      hy__graph_node_destroy(node);
      graph->nodes[i] = NULL;
      for (int k = 0; k < n; k++) {
        redirect(graph, from[k], to[k]);
        if (uses[to[k]].last < uses[from[k]].last) uses[to[k]].last = uses[from[k]].last;
      }
      ++*changes;
      break;
    }
  }
  hy__mfree(uses);
  hy__graph_compact(graph);
  return HY_OK;
}
