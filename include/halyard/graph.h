// Graphs: a stream's work captured once, or built node by node, and launched many times.
//
// Between hy_capture_begin and hy_capture_end, what is given to the stream (hy_run and its
// wrappers, hy_memcpy between device addresses, hy_memset, hy_kernel_launch) is recorded as plain
// data and not run. The backend captures it too where it can, and a launch is then one piece of
// work for the device; elsewhere a launch replays the calls, without checking or choosing again.
//
// Collectives (comm.h) are nodes where launches replay calls. Passes keep all of them in the order
// of the capture, so that ranks whose graphs differ in the rest still agree. At the first launch
// the ranks compare their lists; where these differ, that launch is an error on each of them, and
// what its other nodes compute is left as it was. The communicator outlives the graph. A rank whose
// launch fails leaves the others to hy_comm_abort and the communicator's time limit.
//
// What cannot be part of a graph is refused where it is tried, with the reason: copies to and from
// the host, waiting, events, calls that would fall back to the cpu, launches of other graphs,
// messages between ranks, and collectives where the device captures graphs of its own. Such a
// refusal spoils the capture: hy_capture_end then returns it. The stream is usable afterwards.
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
// Compares the graph's collectives (kind, type, count, op and root, in order) with those of the
// other ranks, as its first launch does unless this was called: HY_INVALID_ARGUMENT on every rank
// where they differ. All ranks call it; without collectives it does nothing. Waits.
HY_API hy_status hy_graph_agree(hy_graph* graph, hy_stream* stream);
// Waits for its launches; NULL is fine. Before hy_shutdown.
HY_API void hy_graph_destroy(hy_graph* graph);

// ---- Building node by node ----
//
// A graph under construction hands out tensors whose addresses are the graph's own numbers: they
// may be viewed and sliced like any tensor, and mean something only to this graph. Inputs and
// outputs are arguments, known by name, and bound to memory before the first launch; what is
// between them gets its memory from hy_graph_finish.

HY_API hy_status hy_graph_create(hy_device* device, hy_graph** graph);
// Contiguous.
HY_API hy_status hy_graph_input(hy_graph* graph, const char* name, hy_dtype dtype, int ndim,
                                const int64_t* shape, hy_tensor* value);
// Copies contiguous host memory to the device.
HY_API hy_status hy_graph_constant(hy_graph* graph, const hy_tensor* host, hy_tensor* value);
// Checks the call by the op table. Outputs whose data is NULL are made: filled in, as hy_infer
// does, in memory of the graph; an optional output that is not wanted has dtype HY_NONE and a
// non-NULL n_out slot all the same. Others must be in the graph, and are written in place.
HY_API hy_status hy_graph_add(hy_graph* graph, hy_call* call);
// Makes the whole of what hy_graph_add returned an argument.
HY_API hy_status hy_graph_output(hy_graph* graph, const char* name, const hy_tensor* value);
// Gives the values in between their memory. Nothing can be added afterwards.
HY_API hy_status hy_graph_finish(hy_graph* graph);

// ---- Arguments ----

// Names a range of captured addresses, so that it can be bound by name and saved.
HY_API hy_status hy_graph_name(hy_graph* graph, const char* name, const void* captured,
                               size_t bytes);
// hy_graph_bind of a named range.
HY_API hy_status hy_graph_set(hy_graph* graph, const char* name, void* now);
// Says that these bytes stay what they are as long as the graph lives, as a model's weights do:
// HY_PASS_FOLD and the search may compute with them once, and keep what comes of it in memory of
// the graph's. A range of captured addresses, or the whole of a named one that has been bound. It
// is not bound elsewhere afterwards; HY_INVALID_ARGUMENT where a node writes there. A saved graph
// has it as an argument.
HY_API hy_status hy_graph_mark_constant(hy_graph* graph, const void* captured, size_t bytes);
// A small integer: the field `field` of a call's attributes, such as "diagonal". One name may stand
// for fields of several calls; passes leave these calls as they are.
HY_API hy_status hy_graph_name_integer(hy_graph* graph, const char* name, int node,
                                       const char* field);
// From the next launch on, as hy_graph_set_attrs.
HY_API hy_status hy_graph_set_integer(hy_graph* graph, const char* name, int64_t value);

// ---- Passes ----

// In the order in which they run. None changes what a launch leaves in memory that is not the
// graph's own: all to the bit but EPILOGUE, which stays within what the op table allows a linear
// layer or softmax, and FUSE where a provider rounds once at a chain's end (echo in bf16).
typedef enum hy_graph_pass {
  HY_PASS_FOLD = 1,        // calls of constants are run once
  HY_PASS_VIEWS = 2,       // readers of a copy read its source
  HY_PASS_COMMON = 4,      // equal calls are made once
  HY_PASS_DEAD = 8,        // results that nobody reads are not computed
  HY_PASS_EPILOGUE = 16,   // a linear layer adds its bias or residual itself
  HY_PASS_RECOMPUTE = 32,  // elementwise results that wait over the peak are made again
  HY_PASS_FUSE = 64,       // elementwise chains, and a sum behind them, become one loop nest
  HY_PASS_ORDER = 128,     // an order with less memory alive
  HY_PASS_IN_PLACE = 256,  // an output takes over the memory of an input that dies
  HY_PASS_ALL = 511,
} hy_graph_pass;
#define HY_GRAPH_PASSES 9

typedef struct hy_graph_report {
  size_t size;
  int32_t nodes_before, nodes_after;
  int32_t changes[HY_GRAPH_PASSES];      // by each pass, in their order
  uint64_t memory_before, memory_after;  // bytes the graph holds for values
  // Most bytes of values that were allocated at once while capturing; of a planned graph, its plan.
  uint64_t allocated_before;
  uint64_t lower_bound;   // most bytes that are alive at once
  uint64_t values_total;  // if no two values shared memory
} hy_graph_report;

// Runs those passes, then plans the memory of values anew. Waits for launches. `report` may be
// NULL. On failure the graph computes the same as before, unless memory for the plan was lacking:
// launches say so then.
HY_API hy_status hy_graph_run_passes(hy_graph* graph, uint32_t passes, hy_graph_report* report);

// ---- Packed weights ----

// Says what the bytes in a range of captured addresses hold: `contents` is a number of the
// caller's, not 0, that stands for no other bytes at the same place, ever. Products that multiply
// by a matrix in the range keep it in the form in which their kernels read it, where their provider
// has one that pays: memory for time, the bits stay. Graphs of one hy_device share a copy of equal
// contents. 0: the contents are about to change, copies are given up. So does hy_graph_bind where
// it moves the matrix, and each pass gives up copies of the nodes that it replaces: pack after the
// passes. `bytes_packed` may be NULL and gets what the copies of the range take, also what they
// would take where contents are 0. Waits for launches. HY_INVALID_ARGUMENT where a node writes in
// the range; after another failure there are no copies, and launches do without.
HY_API hy_status hy_graph_pack(hy_graph* graph, const void* captured, size_t bytes,
                               uint64_t contents, uint64_t* bytes_packed);

// ---- Search ----

typedef struct hy_optimize_report {
  size_t size;
  int32_t candidates;     // equivalent graphs that were built
  int32_t refused;        // of them, whose values were not those of the unsearched graph
  int32_t timed;          // of them, that were measured
  bool cached;            // the decision comes from the disk
  double seconds_before;  // a launch after HY_PASS_ALL, in turns with the chosen one; 0: no search
  double seconds_after;   // a launch of what was chosen
  char choices[160];      // beside HY_PASS_ALL: "join, tile 2 of linear"; "" for nothing
  hy_graph_report passes;
} hy_optimize_report;

// In place of hy_graph_run_passes: searches among equivalent graphs for as many seconds. Rules join
// layers of one input, fold factors into constant weights, absorb transposes and concatenations,
// and split long products; passes are tried without; then other variants of kernels, where their
// provider has some (hy_provider.variants). Each candidate is compared with the graph
// after HY_PASS_ALL on random inputs, in memory of its own, before it is timed; what is chosen is
// never slower than that in the last measurement of both. Decisions are kept in $HALYARD_CACHE_DIR
// by graph, device and version. Without seconds, in deterministic mode, and of a graph with
// compiled kernels or collectives: HY_PASS_ALL, or with no seconds what is kept. `report` may be
// NULL.
HY_API hy_status hy_graph_optimize(hy_graph* graph, double seconds, hy_optimize_report* report);

// ---- Files ----

// JSON with a version: values, calls, copies and sets; constants by their bytes. Memory from before
// a capture becomes an input, called by its name or "memory_0", "memory_1" ... HY_UNSUPPORTED for a
// graph with launches of compiled kernels, with collectives, or with fused nodes: save it before
// the passes.
HY_API hy_status hy_graph_save(const hy_graph* graph, const char* path);
// A finished graph with its arguments to be set. Files are checked as calls are: HY_FORMAT, or what
// the op table says, for a file that is not a graph. At most HY_GRAPH_FILE_LIMIT bytes.
#define HY_GRAPH_FILE_LIMIT ((size_t)64 << 20)
HY_API hy_status hy_graph_load(hy_device* device, const char* path, hy_graph** graph);

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
// A picture: nodes in layers, edges where one reads what another wrote. DOT for Graphviz, or SVG
// laid out here.
HY_API hy_status hy_graph_write_dot(const hy_graph* graph, const char* path);
HY_API hy_status hy_graph_write_svg(const hy_graph* graph, const char* path);

#ifdef __cplusplus
}
#endif
#endif  // HALYARD_GRAPH_H_
