// Graphs: a stream's work captured once and launched many times.
//
// Between hy_capture_begin and hy_capture_end, what is given to the stream (hy_run and its
// wrappers, hy_memcpy between device addresses, hy_memset, hy_kernel_launch) is recorded as plain
// data and not run. The backend captures it too where it can, and a launch is then one piece of
// work for the device; elsewhere a launch replays the calls, without checking or choosing again.
//
// What cannot be part of a graph is refused where it is tried, with the reason: copies to and from
// the host, waiting, events, calls that would fall back to the cpu, launches of other graphs. Such
// a refusal spoils the capture: hy_capture_end then returns it. The stream is usable afterwards.
//
// Memory: what the stream allocates during the capture belongs to the graph. hy_free gives it back
// to the graph (a later allocation of the same capture may get it), and only hy_graph_destroy gives
// it to others; what has not been freed by then stays the caller's, as any memory. Memory from
// before the capture must outlive the graph, unless it is bound elsewhere.
//
// Threads: a capture belongs to the thread that uses its stream; others may use other streams, and
// capture on them, at the same time. A graph may be used by one thread at a time. Launches of one
// graph never overlap: each waits, on the device, for the one before.
#ifndef HALYARD_GRAPH_H_
#define HALYARD_GRAPH_H_

#include "halyard/stream.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hy_graph hy_graph;

// Waits for the stream's work, then captures what follows.
HY_API hy_status hy_capture_begin(hy_stream* stream);
// `graph` NULL drops what was captured. After a failure there is no graph.
HY_API hy_status hy_capture_end(hy_stream* stream, hy_graph** graph);

// Enqueues the graph on a stream of its device. Where it is replayed by calls, a failure leaves the
// nodes before it run.
HY_API hy_status hy_graph_launch(hy_graph* graph, hy_stream* stream);
// Waits for its launches; NULL is fine. Before hy_shutdown.
HY_API void hy_graph_destroy(hy_graph* graph);

// ---- Replaying on other memory ----

// Every address that was captured inside [captured, captured + bytes) becomes the one at the same
// distance from `now`. Ranges are named by their captured addresses, also when bound before.
typedef struct hy_binding {
  const void* captured;
  size_t bytes;
  void* now;
} hy_binding;

// From the next launch on; launches under way are not disturbed. All or nothing: an error when a
// range cuts through a tensor or another range, when no node uses it, or when a call is no longer
// valid (its output overlaps an input, say).
HY_API hy_status hy_graph_bind(hy_graph* graph, const hy_binding* bindings, int n);
// New attributes for a call; its outputs must keep their shapes and types.
HY_API hy_status hy_graph_set_attrs(hy_graph* graph, int node, const hy_attrs* attrs);

// ---- Looking at it ----

HY_API int hy_graph_node_count(const hy_graph* graph);
// As it would be launched now. What it points to is the graph's, valid until that changes.
HY_API hy_status hy_graph_node_at(const hy_graph* graph, int index, hy_graph_node* node);
// Whether a launch is one piece of work for the backend, not a replay by calls.
HY_API bool hy_graph_is_native(const hy_graph* graph);
// Bytes of the memory that the graph holds.
HY_API uint64_t hy_graph_memory(const hy_graph* graph);
// One line per node; values are numbered, each address one value. Always terminated; returns the
// length of the whole text, as snprintf does.
HY_API size_t hy_graph_describe(const hy_graph* graph, char* text, size_t size);

#ifdef __cplusplus
}
#endif
#endif  // HALYARD_GRAPH_H_
