// A forward pass by graph: captured, its passes run, launched. For prompts on the host, and for all
// passes on a device that captures graphs but cannot choose tokens.
#ifndef HALYARD_MODEL_FORWARD_GRAPH_H_
#define HALYARD_MODEL_FORWARD_GRAPH_H_

#include "model/model.h"

typedef struct hy__forward_graph hy__forward_graph;

// The pass's logits, f32 (batch, V). The graph of a decoding step stays with the model and serves
// the steps that follow, until they need another shape. HY_UNSUPPORTED where something among the
// calls cannot be captured.
hy_status hy__forward_by_graph(hy_model* model, hy__kv_pass* pass, hy_array** logits);
void hy__forward_graph_destroy(hy__forward_graph* graph);  // NULL is fine

#endif  // HALYARD_MODEL_FORWARD_GRAPH_H_
