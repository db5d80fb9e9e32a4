// Running the passes: what a user calls, and the order they help one another in.
#include <string.h>

#include "graph/search/search.h"

typedef struct pass {
  hy_graph_pass flag;
  hy_status (*run)(hy_graph* graph, int* changes);
} pass;

static const pass passes[HY_GRAPH_PASSES] = {
    {HY_PASS_FOLD, hy__pass_fold},         {HY_PASS_VIEWS, hy__pass_views},
    {HY_PASS_COMMON, hy__pass_common},     {HY_PASS_DEAD, hy__pass_dead},
    {HY_PASS_EPILOGUE, hy__pass_epilogue}, {HY_PASS_RECOMPUTE, hy__pass_recompute},
    {HY_PASS_FUSE, hy__pass_fuse},         {HY_PASS_ORDER, hy__pass_order},
    {HY_PASS_IN_PLACE, hy__pass_in_place},
};

// Values at numbers of their own while passes run, so that checks see who overlaps whom.
static void spread_out(const hy_graph* graph) {
  for (int v = 0; v < graph->n_values; v++) {
    if (graph->values[v].local) graph->values[v].now = NULL;
  }
  for (int i = 0; i < graph->count; i++) {
    for (int k = 0; k < graph->nodes[i]->n_operands; k++)
      hy__graph_place(graph, &graph->nodes[i]->operands[k]);
  }
}

hy_status hy__graph_rewrite(hy_graph* graph, uint32_t rules, uint32_t which, int* rule_changes,
                            hy_graph_report* report) {
  hy_graph_report r = {.size = sizeof r};
  if (graph->done) HY_TRY(hy_event_sync(graph->done));
  r.nodes_before = graph->count;
  r.memory_before = hy_graph_memory(graph);
  r.allocated_before = graph->arena ? graph->arena_bytes : graph->allocated_peak;
  hy_status status = HY_OK;
  spread_out(graph);
  for (int i = 0; i < HY__REWRITES && status == HY_OK; i++) {
    int changes = 0;
    if (rules >> i & 1) status = hy__rewrites[i].apply(graph, &changes);
    if (rule_changes) *rule_changes += changes;
  }
  for (int i = 0; i < HY_GRAPH_PASSES && status == HY_OK; i++) {
    if (which & (uint32_t)passes[i].flag) status = passes[i].run(graph, &r.changes[i]);
  }
  hy__plan plan = {0};
  hy_status planned = hy__pass_plan(graph, &plan);
  graph->unplanned = planned != HY_OK;
  if (status == HY_OK) status = planned;
  r.nodes_after = graph->count;
  r.memory_after = plan.peak;
  r.lower_bound = plan.lower_bound;
  r.values_total = plan.total;
  if (report) *report = r;
  return status;
}

hy_status hy_graph_run_passes(hy_graph* graph, uint32_t which, hy_graph_report* report) {
  if (!graph) return hy_fail(HY_INVALID_ARGUMENT, "hy_graph_run_passes: graph is NULL");
  if (graph->building) {
    return hy_fail(HY_INVALID_ARGUMENT,
                   "hy_graph_run_passes: the graph is under construction; call hy_graph_finish");
  }
  return hy__graph_rewrite(graph, 0, which, NULL, report);
}
