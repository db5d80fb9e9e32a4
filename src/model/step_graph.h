// A step of a model as a graph: captured once over memory that stays, then launched for every step.
// Token, position, length and the draws of the sampler are on the device; a decoding step moves
// them on itself, so that one launch can follow another without the host.
#ifndef HALYARD_MODEL_STEP_GRAPH_H_
#define HALYARD_MODEL_STEP_GRAPH_H_

#include "halyard/graph.h"
#include "model/model.h"

typedef struct hy__step_graph hy__step_graph;

// `tokens` new ones a step, 1 to decode, of one sequence of at most `positions`; the keys and
// values are the step's own. Sampling is by `options`; a repetition penalty is HY_UNSUPPORTED.
// Where the device cannot choose tokens, its graph is the forward pass, and a launch makes the
// calls around it, which fall back.
hy_status hy__step_graph_create(hy_model* model, int64_t tokens, int64_t positions,
                                const hy_generate_options* options, hy__step_graph** out);
void hy__step_graph_destroy(hy__step_graph* g);  // NULL is fine
hy_graph* hy__step_graph_get(const hy__step_graph* g);
// Marks the model's weights as constant in the graph, for hy_graph_optimize. They may not be
// trained or merged as long as it lives.
hy_status hy__step_graph_fix_weights(hy__step_graph* g);

// A new sequence: runs all of the prompt but its last token by calls, and sets that as what the
// next step runs. The draws begin anew. For decoding.
hy_status hy__step_graph_prompt(hy__step_graph* g, const int32_t* ids, int64_t n);
// Sets what the next step runs: `tokens` ids from position `length` on.
hy_status hy__step_graph_begin(hy__step_graph* g, int64_t length, const int32_t* ids);
// Whether the graph is the whole step, so that a launch waits for nothing.
bool hy__step_graph_is_whole(const hy__step_graph* g);
// Enqueues the step; a decoding one may be enqueued again without a begin.
hy_status hy__step_graph_launch(hy__step_graph* g);
// The same step by calls, checked and chosen each time.
hy_status hy__step_graph_run(hy__step_graph* g);
// Of decoding steps: the tokens chosen at positions first .. first + n - 1. Waits.
hy_status hy__step_graph_history(hy__step_graph* g, int64_t first, int64_t n, int32_t* tokens);
// The token that the last step chose. Waits.
hy_status hy__step_graph_token(hy__step_graph* g, int64_t* token);

#endif  // HALYARD_MODEL_STEP_GRAPH_H_
