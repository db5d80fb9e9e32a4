// Search among equivalent graphs: rules that rewrite a graph by algebra, and choices of passes.
// A decision says which; it is checked on random inputs, timed, and kept on disk.
#ifndef HALYARD_GRAPH_SEARCH_SEARCH_H_
#define HALYARD_GRAPH_SEARCH_SEARCH_H_

#include "graph/passes/passes.h"

// ---- rules: each alone, wherever it fits; `changes` counts where ----

// Layers of one input become one, whose weight has the rows of both.
hy_status hy__rule_join(hy_graph* graph, int* changes);
// A factor before or behind a layer goes into its constant weight.
hy_status hy__rule_scale(hy_graph* graph, int* changes);
// A product reads a transposed matrix instead of a contiguous copy of it.
hy_status hy__rule_transpose(hy_graph* graph, int* changes);
// A layer of concatenated inputs becomes a layer of one plus a product with the other.
hy_status hy__rule_cat(hy_graph* graph, int* changes);
// A long product becomes the sum of two halves of it.
hy_status hy__rule_split_k(hy_graph* graph, int* changes);

typedef struct hy__rewrite {
  const char* name;
  hy_status (*apply)(hy_graph* graph, int* changes);
} hy__rewrite;
enum { HY__REWRITES = 5 };
extern const hy__rewrite hy__rewrites[HY__REWRITES];

// A tile choice: the variant by which a provider runs a node, and those like it, once rules and
// passes have made the graph what it is.
typedef struct hy__tile {
  int32_t node, variant;
} hy__tile;
enum { HY__MAX_TILES = 16 };

// What was chosen: rules by their bits, the passes that run behind them, and tiles behind those.
typedef struct hy__decision {
  uint32_t rules, passes;
  int n_tiles;
  hy__tile tiles[HY__MAX_TILES];
  double before, after;  // seconds of a launch when it was measured
} hy__decision;

// Applies the rules, then the passes, then plans memory: hy_graph_run_passes with rules before it.
hy_status hy__graph_rewrite(hy_graph* graph, uint32_t rules, uint32_t passes, int* rule_changes,
                            hy_graph_report* report);
// The same of a decision, and then its tiles. HY_UNSUPPORTED for one that the graph has not.
hy_status hy__decision_apply(const hy__decision* decision, hy_graph* graph, int* rule_changes,
                             hy_graph_report* report);

// ---- tiles (tiles.c) ----

// In how many ways the node can be run.
int32_t hy__node_variants(const hy_graph* graph, const hy__graph_node* node);
// The first node of the same work: op, shapes, strides, types, attributes and provider.
int hy__node_like(const hy_graph* graph, int index);
hy_status hy__tiles_apply(hy_graph* graph, const hy__tile* tiles, int n);

// ---- what rules are written with (view.c) ----

// A tensor of a graph, and whose memory it is in.
typedef struct hy__view {
  hy_tensor t;
  char* captured;
  int32_t value;
} hy__view;

hy__view hy__view_of(const hy__graph_node* node, const hy_tensor* t);
// Part of a dimension.
hy__view hy__view_slice(const hy__view* v, int dim, int64_t start, int64_t count);
// Fresh memory of the graph's own, contiguous. Its dtype is HY_NONE where there is no host memory.
hy__view hy__view_new(hy_graph* graph, hy_dtype dtype, int ndim, const int64_t* shape);
bool hy__view_is_same(const hy__view* a, const hy__view* b);
bool hy__view_is_constant(const hy_graph* graph, const hy__view* v);
// A new constant with the view's type, of that shape.
hy_status hy__view_constant(hy_graph* graph, hy_dtype dtype, int ndim, const int64_t* shape,
                            hy__view* out);
// Runs a call on constants now.
hy_status hy__view_compute(hy_graph* graph, hy_op op, const hy_attrs* attrs, const hy__view* in,
                           int n_in, const hy__view* out);
// A node that is checked as a call is. HY_UNSUPPORTED where no provider runs it.
hy_status hy__view_call(hy_graph* graph, hy_op op, const hy_attrs* attrs, const hy__view* in,
                        int n_in, const hy__view* out, hy__graph_node** node);
// Whether a node between the two (not among them) writes the view.
bool hy__view_changes(const hy_graph* graph, const hy__view* v, int first, int last);
// A call of that op that rules may take apart: not named, with one output that only the graph sees
// (`seen`: or somebody).
bool hy__is_free_call(const hy__graph_node* node, hy_op op, const hy__uses* uses, bool seen);
// In the place of node `index`, out = x w^T [+ bias] by parts of k: x_parts and w_parts are the two
// halves of each. HY_UNSUPPORTED, and nothing has changed, where a provider will not.
hy_status hy__split_product(hy_graph* graph, int index, const hy__view x_parts[2],
                            const hy__view w_parts[2]);
// Puts a node behind `index`; the list moves.
hy_status hy__insert_node(hy_graph* graph, int index, hy__graph_node* node);

// ---- trials (trial.c) ----

typedef struct hy__graph_trial hy__graph_trial;

// Random inputs in memory of their own, of a graph as it was given.
hy_status hy__trial_create(const hy_graph* graph, hy__graph_trial** trial);
void hy__trial_destroy(hy__graph_trial* trial);  // NULL is fine
// A copy of the graph by that decision, bound to the trial's memory. `changes` counts what the
// rules did.
hy_status hy__trial_build(hy__graph_trial* trial, const hy__decision* decision, hy_graph** graph,
                          int* changes);
// Runs it on the inputs; the first is what others are compared with. *equal: within what the types
// allow.
hy_status hy__trial_check(hy__graph_trial* trial, hy_graph* graph, bool* equal);
// Seconds of a launch.
hy_status hy__trial_time(hy__graph_trial* trial, hy_graph* graph, double* seconds);

// ---- the disk (cache.c) ----

// Of what a graph computes, the device it is on, and the version of this library.
uint64_t hy__graph_key(const hy_graph* graph);
// False where there is none, or it cannot be read; what is corrupt is logged and ignored.
bool hy__decision_load(uint64_t key, hy__decision* decision);
void hy__decision_store(uint64_t key, const hy__decision* decision);
// HY_FORMAT for a text that is no decision of that key.
hy_status hy__decision_parse(const char* text, size_t size, uint64_t key, hy__decision* decision);

#endif  // HALYARD_GRAPH_SEARCH_SEARCH_H_
