// hy_graph_optimize: one choice after another is tried on the best graph so far, and kept where it
// computes the same and is measured to be faster.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/env.h"
#include "graph/search/search.h"
#include "halyard/ops.h"

const hy__rewrite hy__rewrites[HY__REWRITES] = {
    {"join", hy__rule_join}, {"scale", hy__rule_scale},     {"transpose", hy__rule_transpose},
    {"cat", hy__rule_cat},   {"split_k", hy__rule_split_k},
};

// Passes that are worth doing without, where what they save is less than what they cost.
static const struct {
  const char* name;
  uint32_t pass;
} optional[] = {{"no fuse", HY_PASS_FUSE},
                {"no epilogue", HY_PASS_EPILOGUE},
                {"no recompute", HY_PASS_RECOMPUTE},
                {"no order", HY_PASS_ORDER}};
enum { OPTIONAL = sizeof optional / sizeof optional[0], CHOICES = HY__REWRITES + OPTIONAL };

// A gain that is not noise, and how often at least the two are measured in turns.
#define GAIN 0.97
enum { TURNS = 5 };

typedef struct search {
  hy__graph_trial* trial;
  hy_graph* unsearched;
  hy__decision best;
  hy_optimize_report* report;
  int64_t deadline, share;  // nanoseconds
} search;

static hy__decision with_choice(hy__decision d, int choice) {
  if (choice < HY__REWRITES)
    d.rules |= 1u << choice;
  else
    d.passes &= ~optional[choice - HY__REWRITES].pass;
  return d;
}

// `graph` is what the decision made of it.
static void describe(const hy__decision* d, const hy_graph* graph, char* text, size_t size) {
  size_t at = 0;
  text[0] = 0;
  for (int i = 0; i < CHOICES; i++) {
    bool chosen =
        i < HY__REWRITES ? d->rules >> i & 1 : !(d->passes & optional[i - HY__REWRITES].pass);
    const char* name = i < HY__REWRITES ? hy__rewrites[i].name : optional[i - HY__REWRITES].name;
    if (chosen && at < size)
      at += (size_t)snprintf(text + at, size - at, "%s%s", at ? ", " : "", name);
  }
  for (int i = 0; i < d->n_tiles && at < size; i++) {
    const hy__graph_node* node = graph->nodes[d->tiles[i].node];
    const char* op = node->as.kind == HY_NODE_CHAIN ? "chain" : hy_op_name(node->call.op);
    at += (size_t)snprintf(text + at, size - at, "%stile %d of %s", at ? ", " : "",
                           (int)d->tiles[i].variant, op);
  }
}

// Best of many launches of both, in turns, for an even share of the time there is.
static hy_status measure(search* s, hy_graph* candidate, double* before, double* after) {
  int64_t until = hy__now_ns() + s->share;
  *before = *after = INFINITY;
  for (int i = 0; i < TURNS || hy__now_ns() < until; i++) {
    double seconds;
    HY_TRY(hy__trial_time(s->trial, s->unsearched, &seconds));
    *before = fmin(*before, seconds);
    HY_TRY(hy__trial_time(s->trial, candidate, &seconds));
    *after = fmin(*after, seconds);
  }
  return HY_OK;
}

static hy_status try_candidate(search* s, const hy__decision* decision, hy_graph* graph) {
  bool equal;
  HY_TRY(hy__trial_check(s->trial, graph, &equal));
  if (!equal) {
    s->report->refused++;
    return HY_OK;
  }
  double before, after;
  HY_TRY(measure(s, graph, &before, &after));
  s->report->timed++;
  // Beside the unsearched graph, measured at the same time, as the best was.
  if (after / before >= GAIN * (s->best.after / s->best.before)) return HY_OK;
  s->best = *decision;
  s->best.before = before;
  s->best.after = after;
  return HY_OK;
}

static hy_status try_choice(search* s, int choice) {
  hy__decision d = with_choice(s->best, choice);
  hy_graph* graph;
  int changes = 0;
  if (d.rules == s->best.rules && d.passes == s->best.passes) return HY_OK;
  hy_status status = hy__trial_build(s->trial, &d, &graph, &changes);
  if (status == HY_UNSUPPORTED) return HY_OK;
  HY_TRY(status);
  // A rule that found nothing to rewrite makes no candidate.
  if (choice >= HY__REWRITES || changes > 0) {
    s->report->candidates++;
    status = try_candidate(s, &d, graph);
  }
  hy_graph_destroy(graph);
  return status;
}

// ---- tiles ----

static hy_status try_tile(search* s, hy__tile tile) {
  hy__decision d = s->best;
  hy_graph* graph;
  int changes;
  // Of one node the last variant that was better.
  int at = 0;
  while (at < d.n_tiles && d.tiles[at].node != tile.node) at++;
  if (at == HY__MAX_TILES) return HY_OK;
  d.n_tiles += at == d.n_tiles;
  d.tiles[at] = tile;
  hy_status status = hy__trial_build(s->trial, &d, &graph, &changes);
  if (status == HY_UNSUPPORTED) return HY_OK;
  HY_TRY(status);
  s->report->candidates++;
  status = try_candidate(s, &d, graph);
  hy_graph_destroy(graph);
  return status;
}

// What there is to try of a node: nothing where one before is alike.
static int32_t variants_at(const hy_graph* graph, int node) {
  int32_t n = hy__node_variants(graph, graph->nodes[node]);
  return n > 1 && hy__node_like(graph, node) == node ? n : 1;
}

// Behind rules and passes, on the graph that they have made; what is left of the time is shared.
static hy_status try_tiles(search* s) {
  hy_graph* graph;
  int changes, tries = 0;
  HY_TRY(hy__trial_build(s->trial, &s->best, &graph, &changes));
  for (int i = 0; i < graph->count; i++) tries += variants_at(graph, i) - 1;
  s->share = (s->deadline - hy__now_ns()) / (tries + 1);
  hy_status status = HY_OK;
  for (int i = 0; i < graph->count && status == HY_OK; i++) {
    int32_t n = variants_at(graph, i);
    for (int32_t v = 1; v < n && status == HY_OK && hy__now_ns() < s->deadline; v++)
      status = try_tile(s, (hy__tile){i, v});
  }
  hy_graph_destroy(graph);
  return status;
}

static bool is_plain(const hy__decision* d) {
  return d->rules == 0 && d->passes == HY_PASS_ALL && d->n_tiles == 0;
}

static hy_status run_search(search* s) {
  const hy__decision plain = {.passes = HY_PASS_ALL};
  bool equal;
  int changes;
  HY_TRY(hy__trial_build(s->trial, &plain, &s->unsearched, &changes));
  HY_TRY(hy__trial_check(s->trial, s->unsearched, &equal));
  HY_TRY(hy__trial_time(s->trial, s->unsearched, &s->best.before));
  s->best.after = s->best.before;
  for (int i = 0; i < CHOICES && hy__now_ns() < s->deadline; i++) HY_TRY(try_choice(s, i));
  if (hy__now_ns() < s->deadline) HY_TRY(try_tiles(s));
  if (is_plain(&s->best)) return HY_OK;
  // Once more, so that no lucky measurement decides.
  hy_graph* graph;
  double before, after;
  HY_TRY(hy__trial_build(s->trial, &s->best, &graph, &changes));
  hy_status status = measure(s, graph, &before, &after);
  hy_graph_destroy(graph);
  HY_TRY(status);
  s->best.before = before;
  s->best.after = after;
  if (after > before)
    s->best = (hy__decision){.passes = HY_PASS_ALL, .before = before, .after = before};
  return HY_OK;
}

// Whether a decision from the disk still gives the same values.
static hy_status check_cached(search* s, const hy__decision* d, bool* good) {
  const hy__decision plain = {.passes = HY_PASS_ALL};
  hy_graph* graph = NULL;
  int changes;
  *good = false;
  HY_TRY(hy__trial_build(s->trial, &plain, &s->unsearched, &changes));
  HY_TRY(hy__trial_check(s->trial, s->unsearched, good));
  hy_status status = hy__trial_build(s->trial, d, &graph, &changes);
  if (status == HY_OK) status = hy__trial_check(s->trial, graph, good);
  hy_graph_destroy(graph);
  if (status == HY_UNSUPPORTED) *good = false;
  return status == HY_UNSUPPORTED ? HY_OK : status;
}

// Copies of it cannot be tried on this rank alone, or on other memory.
static bool has_effects(const hy_graph* graph) {
  for (int i = 0; i < graph->count; i++) {
    if (hy__node_has_effect(graph->nodes[i])) return true;
  }
  return false;
}

// The best decision: from the disk, or searched for.
static hy_status decide(const hy_graph* graph, double seconds, hy_optimize_report* report,
                        hy__decision* decision) {
  uint64_t key = hy__graph_key(graph);
  hy__decision cached;
  bool found = hy__decision_load(key, &cached);
  if (!found && !(seconds > 0)) return HY_OK;
  search s = {.best = {.passes = HY_PASS_ALL}, .report = report};
  int64_t budget = (int64_t)(1e9 * fmin(seconds, 1e9));
  s.deadline = hy__now_ns() + budget;
  s.share = budget / 2 / (CHOICES + 2);  // the other half is for tiles
  hy_status status = hy__trial_create(graph, &s.trial);
  bool good = false;
  if (status == HY_OK && found) status = check_cached(&s, &cached, &good);
  if (status == HY_OK && good) {
    s.best = cached;
    report->cached = true;
  } else if (status == HY_OK && seconds > 0) {
    hy_graph_destroy(s.unsearched);
    s.unsearched = NULL;
    status = run_search(&s);
    if (status == HY_OK) hy__decision_store(key, &s.best);
  }
  hy_graph_destroy(s.unsearched);
  hy__trial_destroy(s.trial);
  if (status == HY_OK) *decision = s.best;
  return status;
}

hy_status hy_graph_optimize(hy_graph* graph, double seconds, hy_optimize_report* report) {
  hy_optimize_report own;
  if (!graph || !(seconds >= 0))
    return hy_fail(HY_INVALID_ARGUMENT, "hy_graph_optimize: %s",
                   graph ? "the budget is no number of seconds" : "graph is NULL");
  if (graph->building)
    return hy_fail(HY_INVALID_ARGUMENT,
                   "hy_graph_optimize: the graph is under construction; call hy_graph_finish");
  if (!report) report = &own;
  *report = (hy_optimize_report){.size = sizeof *report};
  if (graph->done) HY_TRY(hy_event_sync(graph->done));
  hy__decision decision = {.passes = HY_PASS_ALL};
  if (!hy_deterministic() && !has_effects(graph)) HY_TRY(decide(graph, seconds, report, &decision));
  report->seconds_before = decision.before;
  report->seconds_after = decision.after;
  HY_TRY(hy__decision_apply(&decision, graph, NULL, &report->passes));
  describe(&decision, graph, report->choices, sizeof report->choices);
  return HY_OK;
}
