// A graph as src/graph sees it: captured work as plain data, and the backend's own graph of the
// same work where it has one.
#ifndef HALYARD_GRAPH_GRAPH_H_
#define HALYARD_GRAPH_GRAPH_H_

#include "core/internal.h"
#include "halyard/graph.h"

// An address in a node that bindings may change.
typedef struct hy__operand {
  char* captured;
  int64_t first, last;  // the bytes used, relative to it: [first, last)
  void** now;           // where the node keeps the address to use
} hy__operand;

typedef struct hy__graph_node {
  hy_graph_node as;             // what is launched; points into this allocation
  const hy_provider* provider;  // CALL: who runs it; NULL: the reference of a host device
  const hy_provider* next;      // who would, once bound: see hy_graph_bind
  bool stale;                   // the backend's graph does not know this yet
  int32_t n_operands;
  hy__operand* operands;
  hy_call call;        // CALL
  hy_launch launch;    // LAUNCH
  max_align_t data[];  // operands, then tensors or arguments
} hy__graph_node;

struct hy_graph {
  hy_device* device;
  hy__graph_node** nodes;
  int count, capacity;
  hy_binding* bindings;  // disjoint
  int n_bindings;
  struct hy__alloc_cache*
      memory;       // what was allocated during the capture; NULL while it is under way
  bool native;      // the backend captures too
  void* handle;     // the backend's; NULL: replayed by calls
  bool stale;       // some node is
  hy_event* done;   // of the last launch; NULL on a host device
  hy_stream* last;  // of the last launch; only compared
};

// ---- node.c ----

// A copy of all that the node needs. `call` may name what is gone later.
hy_status hy__graph_node_create(const hy_graph_node* from, const hy_provider* provider,
                                hy__graph_node** node);
void hy__graph_node_destroy(hy__graph_node* node);

// ---- replay.c ----

// Gives a node to a stream of the backend, unchecked.
hy_status hy__graph_node_submit(const hy_device* device, void* stream, const hy__graph_node* node);

#endif  // HALYARD_GRAPH_GRAPH_H_
