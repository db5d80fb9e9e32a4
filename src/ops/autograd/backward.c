// The walk back over the tape.
#include <string.h>

#include "ops/autograd/grad.h"

#define DESCRIBE(t) hy_tensor_describe(t, (char[160]){0}, 160)

// ---- what there is to do ----

// The nodes that roots depend on, latest first. Their output slots are held.
typedef struct plan {
  hy__node** nodes;
  int64_t n, capacity;
} plan;

static void hold_outputs(hy__node* node) {
  for (int i = 0; i < HY_MAX_OUTPUTS; i++) hy__slot_retain(node->out[i]);
}

// Gradients that were on their way go too.
static void let_go_of_outputs(hy__node* node) {
  node->refs++;
  for (int i = 0; i < HY_MAX_OUTPUTS; i++) {
    hy__slot* slot = node->out[i];
    if (!slot) continue;
    if (!slot->keep) {
      hy_array_release(slot->grad);
      slot->grad = NULL;
    }
    hy__slot_release(slot);
  }
  hy__node_release(node);
}

static hy_status plan_add(plan* p, hy__node* node) {
  if (p->n == p->capacity) {
    int64_t capacity = p->capacity ? 2 * p->capacity : 64;
    hy__node** grown = hy__realloc(p->nodes, (size_t)capacity * sizeof *grown);
    if (!grown) return hy_fail(HY_OUT_OF_MEMORY, "no host memory for a backward");
    p->nodes = grown;
    p->capacity = capacity;
  }
  hold_outputs(node);
  p->nodes[p->n++] = node;
  return HY_OK;
}

static const char* node_name(const hy__node* node) {
  return node->op != HY_OP_NONE ? hy_op_name(node->op) : node->rule->name;
}

static hy_status check_saved(const hy__node* node, const hy__saved* saved, const char* kind,
                             int i) {
  if (!saved->storage) return HY_OK;
  unsigned now = atomic_load_explicit(&saved->storage->version, memory_order_relaxed);
  if (now == saved->version) return HY_OK;
  return hy_fail(HY_INVALID_ARGUMENT,
                 "hy_backward: %s %d of %s, %s, was changed in place after it was computed "
                 "(version %u, now %u) and its gradient needs the old values; clone it before "
                 "changing it",
                 kind, i, node_name(node), DESCRIBE(&saved->view), saved->version, now);
}

static hy_status check_node(const hy__node* node) {
  if (node->consumed)
    return hy_fail(HY_INVALID_ARGUMENT,
                   "hy_backward: a backward has been through %s already and freed what it needs; "
                   "compute the result again",
                   node_name(node));
  for (int i = 0; i < node->n_in; i++) HY_TRY(check_saved(node, &node->in[i].saved, "input", i));
  for (int i = 0; i < HY_MAX_OUTPUTS; i++)
    HY_TRY(check_saved(node, &node->saved_out[i], "output", i));
  return HY_OK;
}

static hy_status reach(const hy_tape* tape, const hy__slot* slot, uint64_t floor, uint32_t mark) {
  hy__node* node = slot ? slot->node : NULL;
  if (!node) return HY_OK;
  if (node->tape != tape)
    return hy_fail(HY_INVALID_ARGUMENT, "hy_backward: a result of %s was recorded by %s",
                   node_name(node),
                   node->tape ? "another tape; detach it" : "a tape that has been destroyed");
  if (node->serial <= floor)
    return hy_fail(HY_INVALID_ARGUMENT,
                   "hy_checkpoint: the function used a result of %s that is not among its inputs",
                   node_name(node));
  node->marked = mark;
  return HY_OK;
}

// Nodes are listed in the order they were recorded, so one pass from the end meets every node after
// all that read its outputs.
static hy_status make_plan(hy_tape* tape, hy_array* const* roots, int n_roots, uint64_t floor,
                           plan* p) {
  uint32_t mark = ++tape->backwards;
  for (int i = 0; i < n_roots; i++) HY_TRY(reach(tape, roots[i]->slot, floor, mark));
  for (hy__node* node = tape->last; node; node = node->previous) {
    if (node->marked != mark) continue;
    HY_TRY(check_node(node));
    HY_TRY(plan_add(p, node));
    for (int i = 0; i < node->n_in; i++) HY_TRY(reach(tape, node->in[i].slot, floor, mark));
  }
  return HY_OK;
}

// ---- gathering ----

bool hy__slot_may_add(const hy__slot* slot) {
  return slot->grad && (slot->keep || (hy__array_is_exclusive(slot->grad) &&
                                       hy_tensor_is_contiguous(&slot->grad->view)));
}

// Adds `value` to the slot's gradient; takes the reference over, on failure too. A gradient that
// outlives the backward has memory of its own; one on its way may be a view of another.
static hy_status gather(hy_tape* tape, hy__slot* slot, hy_array* value) {
  hy_status status = HY_OK;
  hy_array* sum = NULL;
  if (!slot->grad) {
    if (slot->keep && !(hy__array_is_exclusive(value) && hy_tensor_is_contiguous(&value->view))) {
      status = hy_array_clone(tape, &sum, value);
      hy_array_release(value);
      value = sum;
    }
    slot->grad = value;
    return status;
  }
  if (hy__slot_may_add(slot)) {
    status = hy_add(tape->stream, &slot->grad->view, &slot->grad->view, &value->view, hy_int(1));
    hy_array_touch(slot->grad);
  } else {
    status = hy_array_add(tape, &sum, slot->grad, value, hy_int(1));
    if (status == HY_OK) {
      hy_array_release(slot->grad);
      slot->grad = sum;
    }
  }
  hy_array_release(value);
  return status;
}

// ---- the walk ----

// Gradients of the node's outputs, moved out of their slots, or shared where they are kept.
static bool take_gradients(hy__node* node, hy_array** dys) {
  bool any = false;
  for (int i = 0; i < HY_MAX_OUTPUTS; i++) {
    hy__slot* slot = node->out[i];
    dys[i] = slot ? slot->grad : NULL;
    if (!dys[i]) continue;
    any = true;
    if (slot->keep) {
      hy_array_retain(dys[i]);
    } else {
      slot->grad = NULL;
    }
  }
  return any;
}

static hy_status run_node(hy_tape* tape, hy__node* node) {
  hy_array* dys[HY_MAX_OUTPUTS];
  hy__grad g;
  hy_scope_begin(&g.scope, tape);
  g.node = node;
  g.dys = dys;
  g.dy = NULL;
  memset(g.dx, 0, (size_t)node->n_in * sizeof g.dx[0]);
  if (take_gradients(node, dys)) {
    g.dy = dys[0];
    node->rule->run(&g);
  }
  // Temporaries and saved values go before gradients are gathered: their memory is free for the
  // sums, and a gradient that nobody else holds any more need not be copied.
  hy_status status = hy_scope_end(&g.scope);
  for (int i = 0; i < HY_MAX_OUTPUTS; i++) hy_array_release(dys[i]);
  hy__node_forget_saved(node);
  node->consumed = true;
  for (int i = 0; i < node->n_in; i++) {
    if (status == HY_OK && g.dx[i]) {
      status = gather(tape, node->in[i].slot, g.dx[i]);
    } else {
      hy_array_release(g.dx[i]);
    }
  }
  hy__node_forget_inputs(node);
  return status;
}

hy_status hy__backward_from(hy_tape* tape, hy_array* const* roots, hy_array* const* seeds, int n,
                            uint64_t floor) {
  plan p = {NULL, 0, 0};
  bool recording = hy_tape_set_recording(tape, false);
  hy_status status = make_plan(tape, roots, n, floor, &p);
  for (int i = 0; i < n && status == HY_OK; i++)
    status = gather(tape, roots[i]->slot, hy_array_retain(seeds[i]));
  for (int64_t i = 0; i < p.n; i++) {
    if (status == HY_OK) status = run_node(tape, p.nodes[i]);
    let_go_of_outputs(p.nodes[i]);
  }
  hy__mfree(p.nodes);
  hy_tape_set_recording(tape, recording);
  return status;
}

hy_status hy_backward(hy_tape* tape, hy_array* array, hy_array* seed) {
  if (!tape) return hy_fail(HY_INVALID_ARGUMENT, "hy_backward: the tape is NULL");
  HY_TRY(hy__array_check("hy_backward", array));
  if (!array->slot)
    return hy_fail(HY_INVALID_ARGUMENT,
                   "hy_backward: %s depends on nothing that requires a gradient, or was computed "
                   "while recording was off",
                   DESCRIBE(&array->view));
  HY_TRY(hy__array_check_on(tape, "hy_backward", array));
  hy_array* one = NULL;
  if (!seed) {
    if (hy_tensor_numel(&array->view) != 1)
      return hy_fail(HY_SHAPE, "hy_backward: %s has more than one element; give its gradient",
                     DESCRIBE(&array->view));
    HY_TRY(hy__array_new(tape->stream, &one, &array->view));
    hy_status status = hy_fill(tape->stream, &one->view, hy_int(1));
    if (status != HY_OK) {
      hy_array_release(one);
      return status;
    }
    seed = one;
  }
  const hy_tensor *s = &seed->view, *a = &array->view;
  bool fits = s->dtype == a->dtype && s->ndim == a->ndim;
  for (int d = 0; fits && d < a->ndim; d++) fits = s->shape[d] == a->shape[d];
  hy_status status = fits ? hy__array_check_on(tape, "hy_backward", seed)
                          : hy_fail(HY_SHAPE, "hy_backward: %s cannot be the gradient of %s",
                                    DESCRIBE(s), DESCRIBE(a));
  if (status == HY_OK) status = hy__backward_from(tape, &array, &seed, 1, 0);
  hy_array_release(one);
  return status;
}
