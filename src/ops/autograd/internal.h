// What an array is made of, and how the tape remembers where it came from.
//
// Ownership runs one way, from results to what they came from: an array owns its slot, a slot owns
// the node that computed it, a node owns the slots of its inputs. So history lives exactly as long
// as a result that needs it; the tape only lists the nodes in the order they were recorded. Values
// that a backward will need are saved as memory and view, without slots, so that no cycle arises.
#ifndef HALYARD_OPS_AUTOGRAD_INTERNAL_H_
#define HALYARD_OPS_AUTOGRAD_INTERNAL_H_

#include "core/internal.h"
#include "halyard/array.h"
#include "ops/internal.h"

typedef struct hy__node hy__node;

// Device memory that arrays share.
typedef struct hy__storage {
  atomic_int refs;
  atomic_uint version;  // counts the writes
  hy_device* device;
  const hy_stream* stream;  // what it was made for; only compared
  void* address;            // hy_free's, unless wrapped
  bool wrapped;
  void (*release)(void* context);  // of wrapped memory; may be NULL
  void* context;
} hy__storage;

// Where the gradient of an array gathers. Lives as long as the array or a node that read it.
typedef struct hy__slot {
  atomic_int refs;
  bool keep;       // the gradient outlives the backward
  int index;       // which output of `node`
  hy__node* node;  // NULL: a leaf
  hy_array* grad;  // NULL until one arrives
} hy__slot;

struct hy_array {
  atomic_int refs;
  hy__storage* storage;
  hy_tensor view;
  hy__slot* slot;  // NULL: requires no gradient
};

// The shape and type of an input or output, and where a backward needs it, its memory.
typedef struct hy__saved {
  hy__storage* storage;  // NULL: shape and type alone
  unsigned version;
  hy_tensor view;
} hy__saved;

typedef struct hy__edge {
  hy__slot* slot;  // NULL: requires no gradient
  hy__saved saved;
} hy__edge;

typedef struct hy__grad hy__grad;

// What the gradient of one input needs: bits of inputs and outputs.
#define HY__NEED_IN(i) (1u << (i))
#define HY__NEED_LIST (1u << 15)  // all inputs
#define HY__NEED_OUT(i) (1u << (16 + (i)))
#define HY__NO_GRADIENT (1u << 31)  // none is defined: an input that requires one is an error

// One rule of the table's grad column. `needs` is by declared input; the last entry of a row with a
// list stands for all of the list.
typedef struct hy__grad_rule {
  const char* name;
  void (*run)(hy__grad* g);  // NULL: the rule `none`
  uint32_t needs[6];
} hy__grad_rule;

// How a view was made, for its way back.
typedef struct hy__view_step {
  int dims[HY_MAX_DIMS];  // permute: output dimension i was input dimension dims[i]
  bool is_select;
  int dim;
  int64_t start, stop, step;  // slice; select: start
} hy__view_step;

typedef struct hy__checkpoint_step {
  hy_checkpoint_function function;
  int n_outputs;
  void* context;
  void (*release)(void* context);
} hy__checkpoint_step;

struct hy__node {
  int refs;       // live slots of outputs, and holds of a backward
  hy_tape* tape;  // NULL once the tape is gone
  hy__node *previous, *next;
  const hy__grad_rule* rule;
  hy_op op;         // HY_OP_NONE: a view or a checkpoint
  uint64_t serial;  // counts the nodes of the tape, from 1
  bool consumed;    // a backward has been through it
  uint32_t marked;  // the last backward that reached it
  union {
    hy_attrs attrs;
    hy__view_step view;
    hy__checkpoint_step checkpoint;
  } step;
  hy__slot* out[HY_MAX_OUTPUTS];  // not owned; NULL once gone
  hy__saved saved_out[HY_MAX_OUTPUTS];
  int n_in;
  hy__edge in[];
};

struct hy_tape {
  hy_stream* stream;
  bool recording;
  uint64_t skipped;    // calls that would have been recorded while recording was off
  uint32_t backwards;  // how many were started
  uint64_t serial;     // of the last node recorded
  int64_t n_nodes;
  hy__node *first, *last;
};

// Rules of what is not in the op table; ops/internal.h declares those of its grad column.
extern const hy__grad_rule hy__grad_reshape, hy__grad_permute, hy__grad_flip, hy__grad_expand,
    hy__grad_window;
extern const hy__grad_rule hy__grad_checkpoint, hy__grad_linear_cross_entropy,
    hy__grad_add_low_rank, hy__grad_silu_mul;

// ---- arrays ----

// A new array of the shape, type and layout of `like`, contiguous, contents undefined.
hy_status hy__array_new(hy_stream* stream, hy_array** out, const hy_tensor* like);
// A new array over memory that exists; takes a reference to it.
hy_status hy__array_over(hy_array** out, hy__storage* storage, const hy_tensor* view);
hy__storage* hy__storage_retain(hy__storage* storage);
void hy__storage_release(hy__storage* storage);  // NULL is fine
// Nobody but the holder of this one reference sees the memory.
bool hy__array_is_exclusive(const hy_array* array);
// "the array is NULL" and the like, in the name of `what`.
hy_status hy__array_check(const char* what, const hy_array* array);
// Also that it is on the tape's device; tells the allocator where another stream uses it.
hy_status hy__array_check_on(const hy_tape* tape, const char* what, const hy_array* array);

// ---- history ----

hy__slot* hy__slot_new(hy__node* node, int index);  // NULL: no host memory
hy__slot* hy__slot_retain(hy__slot* slot);
void hy__slot_release(hy__slot* slot);  // NULL is fine

// Whether a call with these inputs must be recorded; counts one that recording being off skips.
bool hy__tape_wants(hy_tape* tape, hy_array* const* inputs, int n_inputs);
// A node at the end of the tape, with the inputs' shapes and slots, and nothing saved. The caller
// holds a reference; the slots of attached outputs hold their own.
hy_status hy__node_new(hy_tape* tape, const hy__grad_rule* rule, hy_array* const* inputs,
                       int n_inputs, hy__node** out);
void hy__node_release(hy__node* node);  // NULL is fine
void hy__node_save(hy__saved* saved, const hy_array* array);
// Makes `array`, which has no slot, output `index` of the node.
hy_status hy__node_attach(hy__node* node, int index, hy_array* array);
// Frees what was saved; frees the way to the inputs.
void hy__node_forget_saved(hy__node* node);
void hy__node_forget_inputs(hy__node* node);

// ---- backward ----

// Whether there is a gradient that the next one may be added to in place.
bool hy__slot_may_add(const hy__slot* slot);

// Backward from several arrays, each with its gradient. As hy_backward, but what was recorded up to
// node `floor` may not be touched: reaching it is an error.
hy_status hy__backward_from(hy_tape* tape, hy_array* const* roots, hy_array* const* seeds, int n,
                            uint64_t floor);

#endif  // HALYARD_OPS_AUTOGRAD_INTERNAL_H_
