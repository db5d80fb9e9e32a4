// Passes over a graph: each does one thing, and leaves a graph that computes the same.
//
// They see nodes in the order in which they run, and memory as values (graph.h). Of somebody's
// memory only reads may go away; what is written there stays.
#ifndef HALYARD_GRAPH_PASSES_PASSES_H_
#define HALYARD_GRAPH_PASSES_PASSES_H_

#include "graph/graph.h"

// Who touches a value.
typedef struct hy__uses {
  int32_t writers, readers;  // operands
  int32_t writer;            // the only one, where there is one
  int32_t first, last;       // nodes; first > last: none
} hy__uses;

// For each value; nodes that are NULL are passed over. hy__mfree it. NULL with a message: no host
// memory.
hy__uses* hy__graph_uses(const hy_graph* graph);

// Whether two operands may share bytes.
bool hy__operands_meet(const hy_graph* graph, const hy__operand* a, const hy__operand* b);
// Whether the node writes something that the operand covers.
bool hy__node_writes(const hy_graph* graph, const hy__graph_node* node, const hy__operand* o);
// Whether a node must come before another that follows it.
bool hy__nodes_depend(const hy_graph* graph, const hy__graph_node* before,
                      const hy__graph_node* after);

// The operand of a tensor of the node; NULL where it is absent or empty.
hy__operand* hy__tensor_operand(const hy__graph_node* node, const hy_tensor* t);
// Of input or output k of a call.
hy__operand* hy__input_operand(const hy__graph_node* node, int k);
hy__operand* hy__output_operand(const hy__graph_node* node, int k);
bool hy__same_view(const hy_tensor* a, const hy_tensor* b);  // all but the address
bool hy__same_attrs(const hy_call* a, const hy_call* b);     // of calls of one op

// Whether it does more than write its operands: a compiled kernel, whose reach is not known, and
// what other ranks wait for.
bool hy__node_has_effect(const hy__graph_node* node);

// Takes out the nodes that are NULL in the list.
void hy__graph_compact(hy_graph* graph);

// ---- the passes: `changes` counts what they did ----

// Dead code: nodes whose results nobody reads.
hy_status hy__pass_dead(hy_graph* graph, int* changes);
// Common subexpressions: a call that was made before with the same inputs.
hy_status hy__pass_common(hy_graph* graph, int* changes);
// Constant folding: calls of constants only are run now.
hy_status hy__pass_fold(hy_graph* graph, int* changes);
// View elimination: who reads a copy reads its source.
hy_status hy__pass_views(hy_graph* graph, int* changes);
// Products followed by a bias or a residual become one call with an epilogue, those behind a norm
// one with both, and a softmax that is written out becomes one.
hy_status hy__pass_epilogue(hy_graph* graph, int* changes);
hy_status hy__fold_softmax(hy_graph* graph, int* changes);
hy_status hy__fold_norm(hy_graph* graph, int* changes);
// Elementwise results that wait over the peak are made again for their late readers.
hy_status hy__pass_recompute(hy_graph* graph, int* changes);
// Chains of elementwise calls, with a reduction behind them, become one loop nest.
hy_status hy__pass_fuse(hy_graph* graph, int* changes);
// Order: a topological one with less memory alive, where there is one.
hy_status hy__pass_order(hy_graph* graph, int* changes);
// In place: an output takes over the memory of an input that dies.
hy_status hy__pass_in_place(hy_graph* graph, int* changes);

// What planning did; bytes.
typedef struct hy__plan {
  uint64_t peak;         // of the arena
  uint64_t lower_bound;  // most that is alive at once
  uint64_t total;        // of all values, each with memory of its own
} hy__plan;
// Memory planning: values share an arena where they do not live at once. Needs no launch under way.
hy_status hy__pass_plan(hy_graph* graph, hy__plan* plan);
// Most that is alive at once, as the nodes stand.
uint64_t hy__live_bytes(const hy_graph* graph, const hy__uses* uses);

#endif  // HALYARD_GRAPH_PASSES_PASSES_H_
