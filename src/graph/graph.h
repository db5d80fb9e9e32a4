// A graph as src/graph sees it: work as plain data, the memory it is done in, and the backend's own
// graph of the same work where it has one.
//
// Memory is of two kinds. Values are the graph's own: contents that nobody sees before or after a
// launch, which passes may move, merge or do without. Their addresses are numbers of the graph's
// own, beyond any that a processor has. All else is somebody's, reached by the address it had at
// capture or, in a graph that was built, by such a number; bindings say where it is now.
#ifndef HALYARD_GRAPH_GRAPH_H_
#define HALYARD_GRAPH_GRAPH_H_

#include "core/internal.h"
#include "halyard/comm.h"
#include "halyard/graph.h"

// An address in a node that bindings may change.
typedef struct hy__operand {
  char* captured;
  int64_t first, last;  // the bytes used, relative to it: [first, last)
  void** now;           // where the node keeps the address to use
  int32_t value;        // of the graph's own memory; -1: somebody's
  bool reads, writes;
} hy__operand;

typedef struct hy__graph_node {
  hy_graph_node as;             // what is launched; points into this allocation
  const hy_provider* provider;  // CALL, CHAIN: who runs it; NULL: the reference of a host device
  const hy_provider* next;      // who would, once bound: see hy_graph_bind
  int32_t variant;              // of the provider's; 0: what it does unasked
  bool stale;                   // the backend's graph does not know this yet
  bool named;                   // an integer of its attributes has a name
  struct hy__packed* packed;    // what its provider multiplies by, as that reads it; NULL: as it is
  int32_t n_operands;
  hy__operand* operands;
  hy_call call;              // CALL
  hy_launch launch;          // LAUNCH
  hy_chain chain;            // CHAIN
  hy_collective collective;  // COLLECTIVE
  max_align_t data[];        // operands, then tensors, steps or arguments
} hy__graph_node;

// Memory of the graph's own.
typedef struct hy__value {
  char* captured;  // its number
  uint64_t bytes;
  char* now;   // where it is; NULL before hy_graph_finish
  bool local;  // false: it turned out to be somebody's, and is no value
} hy__value;

// Allocations while capturing, in the order of the nodes.
typedef struct hy__memory_event {
  char* address;
  uint64_t bytes;
  int32_t at;  // before this node
  bool taken;  // else given back
} hy__memory_event;

// A named range of somebody's memory, or a constant.
typedef struct hy__graph_argument {
  char* name;  // NULL: a constant without one
  char* captured;
  uint64_t bytes;
  bool bound;
  void* memory;   // of a constant that is the graph's own; else NULL
  bool constant;  // nobody changes it while the graph lives
} hy__graph_argument;

typedef struct hy__graph_integer {
  char* name;
  hy__graph_node* node;
  size_t offset;  // in hy_attrs
} hy__graph_integer;

struct hy_graph {
  hy_device* device;
  hy__graph_node** nodes;
  int count, capacity;
  hy_binding* bindings;  // disjoint
  int n_bindings;
  hy__value* values;
  int n_values, values_capacity;
  hy__graph_argument* arguments;
  int n_arguments, arguments_capacity;
  hy__graph_integer* integers;
  int n_integers;
  struct hy__alloc_cache*
      memory;               // what was allocated during the capture; NULL while it is under way
  uint64_t allocated_peak;  // most that the capture had taken and not given back, of values
  hy_stream* own;           // for memory and copies of the graph's own; made when first needed
  void* arena;              // where planned values are
  uint64_t arena_bytes;
  bool building;    // hy_graph_finish is to come
  bool unplanned;   // a pass failed, and planning after it: there is no memory to run in
  uintptr_t next;   // the next of the graph's own addresses
  bool native;      // the backend captures too
  void* handle;     // the backend's; NULL: replayed by calls, or to be captured at the launch
  bool stale;       // some node is
  bool talks;       // some node is a collective
  bool agreed;      // the ranks have compared their collectives
  hy_event* done;   // of the last launch; NULL on a host device
  hy_stream* last;  // of the last launch; only compared
};

// ---- node.c ----

// A copy of all that the node needs. `call` may name what is gone later.
hy_status hy__graph_node_create(const hy_graph_node* from, const hy_provider* provider,
                                hy__graph_node** node);
void hy__graph_node_destroy(hy__graph_node* node);
// Takes the node over; on failure it is destroyed.
hy_status hy__graph_append(hy_graph* graph, hy__graph_node* node);
// Room for one more in an array of `size`-byte things.
hy_status hy__graph_grow(void** list, int n, int* capacity, size_t size);

// ---- capture.c ----

hy_status hy__graph_new(hy_device* device, hy_graph** graph);

// ---- values.c ----

// Finds the values among what was allocated during the capture.
hy_status hy__graph_find_values(hy_graph* graph, const hy__memory_event* events, int n);
// Where an operand is now.
void hy__graph_place(const hy_graph* graph, hy__operand* operand);
// A stream of the graph's own.
hy_status hy__graph_stream(hy_graph* graph, hy_stream** stream);

// ---- bind.c ----

// Whether the call as it is now may be run, and by whom.
hy_status hy__graph_check_call(const hy_graph* graph, int index, const hy_call* call,
                               const hy_provider** provider);

// ---- packed.c ----

typedef struct hy__packed hy__packed;
void hy__packed_release(hy__packed* packed);  // NULL is fine
const void* hy__packed_data(const hy__packed* packed);
// Gives up the node's copy where that is no longer of the matrix that its call reads.
void hy__packed_check(const hy_graph* graph, hy__graph_node* node);

// ---- build.c ----

enum { HY__GRAPH_ALIGNMENT = 256 };
#define HY__GRAPH_FIRST_ADDRESS ((uintptr_t)1 << 60)
hy_status hy__graph_take_address(hy_graph* graph, uint64_t bytes, char** address);
// Gives each operand its value, and refuses what is not of this graph.
hy_status hy__graph_own_operands(const hy_graph* graph, const hy__graph_node* node);
hy_status hy__graph_add_argument(hy_graph* graph, const char* name, char* captured, uint64_t bytes,
                                 bool bound);
hy_status hy__graph_add_constant(hy_graph* graph, char* captured, uint64_t bytes, void** memory);
hy__graph_argument* hy__graph_argument_at(const hy_graph* graph, const void* captured);
bool hy__graph_is_constant(const hy_graph* graph, const void* captured);
// The first node that writes in a range of somebody's memory; -1: none does.
int hy__graph_writer_of(const hy_graph* graph, const void* captured, uint64_t bytes);
// A value at the next address; -1 with no memory for it.
int32_t hy__graph_add_value(hy_graph* graph, uint64_t bytes);

// ---- replay.c ----

// Gives a node to a stream of the backend, unchecked.
hy_status hy__graph_node_submit(const hy_device* device, void* stream, const hy__graph_node* node);
// The nodes are others than those that the backend knows.
void hy__graph_drop_handle(hy_graph* graph);

#endif  // HALYARD_GRAPH_GRAPH_H_
