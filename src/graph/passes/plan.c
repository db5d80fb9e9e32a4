// Memory planning: offsets in one arena, greedy by size, best fit among values that live at once.
#include <stdlib.h>

#include "graph/passes/passes.h"

enum { ALIGNMENT = 64 };  // what allocators promise

static uint64_t rounded(uint64_t bytes) {
  return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

typedef struct lifetime {
  int32_t value, first, last;
  uint64_t bytes, offset;
} lifetime;

static int larger_first(const void* a, const void* b) {
  const lifetime *x = a, *y = b;
  if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
  return x->value - y->value;
}

static int lower_first(const void* a, const void* b) {
  const lifetime *x = *(const lifetime*const*)a, *y = *(const lifetime*const*)b;
  if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
  return x->value - y->value;
}

uint64_t hy__live_bytes(const hy_graph* graph, const hy__uses* uses) {
  int64_t* change = hy__calloc((size_t)graph->count + 2, sizeof *change);
  if (!change) return 0;
  for (int v = 0; v < graph->n_values; v++) {
    if (!graph->values[v].local || uses[v].first > uses[v].last) continue;
    change[uses[v].first] += (int64_t)rounded(graph->values[v].bytes);
    change[uses[v].last + 1] -= (int64_t)rounded(graph->values[v].bytes);
  }
  int64_t live = 0, most = 0;
  for (int i = 0; i <= graph->count; i++) {
    live += change[i];
    if (live > most) most = live;
  }
  hy__mfree(change);
  return (uint64_t)most;
}

// The smallest gap that fits between those that live at the same time; behind them all else.
static uint64_t best_fit(const lifetime* list, int n_placed, const lifetime* now,
                         const lifetime** meeting) {
  int n = 0;
  for (int i = 0; i < n_placed; i++) {
    if (list[i].first <= now->last && now->first <= list[i].last) meeting[n++] = &list[i];
  }
  qsort(meeting, (size_t)n, sizeof(const lifetime*), lower_first);
  uint64_t end = 0, best = 0, best_gap = UINT64_MAX;
  for (int i = 0; i < n; i++) {
    if (meeting[i]->offset > end) {
      uint64_t gap = meeting[i]->offset - end;
      if (gap >= now->bytes && gap < best_gap) {
        best = end;
        best_gap = gap;
      }
    }
    uint64_t until = meeting[i]->offset + meeting[i]->bytes;
    if (until > end) end = until;
  }
  return best_gap == UINT64_MAX ? end : best;
}

// Gives back the memory that values are in until now. Much of a device's own goes back to the
// backend at once: else the device would hold it beside the arena, in segments too small for that.
static hy_status leave_memory(hy_graph* graph) {
  enum { MUCH = 64 << 20 };
  hy__allocator* allocator = graph->device->allocator;
  uint64_t bytes = graph->arena_bytes;
  if (graph->memory) bytes += hy__allocator_private_bytes(allocator, graph->memory);
  hy__allocator_private_release(allocator, graph->memory);
  hy_free(graph->device, graph->arena);
  graph->memory = NULL;
  graph->arena = NULL;
  graph->arena_bytes = 0;
  bool host = hy_device_is_host(graph->device);
  return bytes >= MUCH && !host ? hy_empty_cache(graph->device) : HY_OK;
}

static hy_status assign(hy_graph* graph, const lifetime* list, int n, uint64_t bytes) {
  hy_stream* stream;
  void* arena = NULL;
  HY_TRY(leave_memory(graph));
  if (bytes) {
    HY_TRY(hy__graph_stream(graph, &stream));
    HY_TRY(hy_alloc(stream, bytes, &arena));
  }
  graph->arena = arena;
  graph->arena_bytes = bytes;
  for (int v = 0; v < graph->n_values; v++) graph->values[v].now = arena;
  for (int i = 0; i < n; i++) graph->values[list[i].value].now = (char*)arena + list[i].offset;
  for (int i = 0; i < graph->count; i++) {
    for (int k = 0; k < graph->nodes[i]->n_operands; k++)
      hy__graph_place(graph, &graph->nodes[i]->operands[k]);
    graph->nodes[i]->stale = true;
  }
  graph->stale = true;
  return HY_OK;
}

hy_status hy__pass_plan(hy_graph* graph, hy__plan* plan) {
  hy__plan result = {0};
  size_t room = (size_t)graph->n_values + 1;
  hy__uses* uses = hy__graph_uses(graph);
  lifetime* list = hy__calloc(room, sizeof *list);
  const lifetime** meeting = hy__calloc(room, sizeof(const lifetime*));
  hy_status status = HY_OK;
  if (!uses || !list || !meeting) {
    status = hy_fail(HY_OUT_OF_MEMORY, "no host memory to plan a graph");
    goto done;
  }
  int n = 0;
  for (int v = 0; v < graph->n_values; v++) {
    if (!graph->values[v].local || uses[v].first > uses[v].last) continue;
    uint64_t bytes = rounded(graph->values[v].bytes);
    list[n++] = (lifetime){v, uses[v].first, uses[v].last, bytes, 0};
    result.total += bytes;
  }
  qsort(list, (size_t)n, sizeof *list, larger_first);
  for (int i = 0; i < n; i++) {
    list[i].offset = best_fit(list, i, &list[i], meeting);
    uint64_t end = list[i].offset + list[i].bytes;
    if (end > result.peak) result.peak = end;
  }
  result.lower_bound = hy__live_bytes(graph, uses);
  status = assign(graph, list, n, result.peak);
  if (status == HY_OK && plan) *plan = result;
done:
  hy__mfree(uses);
  hy__mfree(list);
  hy__mfree(meeting);
  return status;
}
