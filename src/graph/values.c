// Values: memory that only the graph sees, found among what a capture allocated.
//
// Memory that was taken and given back during the capture holds nothing before a launch and nothing
// after it. Each such allocation is a value of its own, with an address of its own among the
// graph's numbers, also where the allocator handed out the same memory twice.
#include "graph/graph.h"

static bool holds(const hy__value* v, const hy__operand* o) {
  const char *first = o->captured + o->first, *last = o->captured + o->last;
  return first >= v->captured && last <= v->captured + v->bytes;
}

// The allocations that are in use where the sweep is.
typedef struct sweep {
  hy_graph* graph;
  int* active;
  int n_active;
} sweep;

static void pass_event(sweep* s, const hy__memory_event* event) {
  hy_graph* graph = s->graph;
  if (event->taken) {
    s->active[s->n_active++] = graph->n_values;
    graph->values[graph->n_values++] =
        (hy__value){.captured = event->address, .bytes = event->bytes, .now = event->address};
    return;
  }
  for (int i = 0; i < s->n_active; i++) {
    hy__value* v = &graph->values[s->active[i]];
    if (v->captured != event->address) continue;
    v->local = true;
    s->active[i] = s->active[--s->n_active];
    return;
  }
}

// Most bytes of values that were taken and not yet given back.
static uint64_t peak_of(const hy_graph* graph, const hy__memory_event* events, int n) {
  uint64_t now = 0, most = 0;
  int taken = 0;
  for (int i = 0; i < n; i++) {
    if (events[i].taken && graph->values[taken++].local) now += events[i].bytes;
    if (now > most) most = now;
    if (events[i].taken) continue;
    for (int v = taken - 1; v >= 0; v--) {
      if (graph->values[v].now != events[i].address) continue;
      now -= graph->values[v].bytes;
      break;
    }
  }
  return most;
}

hy_status hy__graph_find_values(hy_graph* graph, const hy__memory_event* events, int n) {
  sweep s = {graph, hy__calloc((size_t)n + 1, sizeof *s.active), 0};
  graph->values = hy__calloc((size_t)n + 1, sizeof *graph->values);
  graph->values_capacity = n + 1;
  if (!s.active || !graph->values) {
    hy__mfree(s.active);
    return hy_fail(HY_OUT_OF_MEMORY, "no host memory for the values of a graph");
  }
  int next = 0;
  for (int i = 0; i < graph->count; i++) {
    while (next < n && events[next].at <= i) pass_event(&s, &events[next++]);
    for (int k = 0; k < graph->nodes[i]->n_operands; k++) {
      hy__operand* o = &graph->nodes[i]->operands[k];
      for (int a = 0; a < s.n_active; a++) {
        if (holds(&graph->values[s.active[a]], o)) o->value = s.active[a];
      }
    }
  }
  while (next < n) pass_event(&s, &events[next++]);
  hy__mfree(s.active);
  graph->allocated_peak = peak_of(graph, events, n);
  for (int v = 0; v < graph->n_values; v++) {
    if (graph->values[v].local)
      HY_TRY(hy__graph_take_address(graph, graph->values[v].bytes, &graph->values[v].captured));
  }
  for (int i = 0; i < graph->count; i++) {
    for (int k = 0; k < graph->nodes[i]->n_operands; k++) {
      hy__operand* o = &graph->nodes[i]->operands[k];
      if (o->value < 0) continue;
      const hy__value* v = &graph->values[o->value];
      if (v->local)
        o->captured = v->captured + (o->captured - v->now);
      else
        o->value = -1;
    }
  }
  return HY_OK;
}

void hy__graph_place(const hy_graph* graph, hy__operand* o) {
  *o->now = o->captured;
  if (o->value >= 0) {
    const hy__value* v = &graph->values[o->value];
    if (v->now) *o->now = v->now + (o->captured - v->captured);
    return;
  }
  uintptr_t first = (uintptr_t)o->captured + (uintptr_t)o->first;
  for (int i = 0; i < graph->n_bindings; i++) {
    const hy_binding* b = &graph->bindings[i];
    if (first - (uintptr_t)b->captured >= b->bytes) continue;
    *o->now = (char*)b->now + ((uintptr_t)o->captured - (uintptr_t)b->captured);
    return;
  }
}

hy_status hy__graph_stream(hy_graph* graph, hy_stream** stream) {
  if (!graph->own) HY_TRY(hy_stream_create(graph->device, &graph->own));
  *stream = graph->own;
  return HY_OK;
}
