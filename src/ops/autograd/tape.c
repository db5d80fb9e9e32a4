// The tape and its nodes: how history is kept and how it goes away.
#include <string.h>

#include "ops/autograd/internal.h"

// ---- slots ----

hy__slot* hy__slot_new(hy__node* node, int index) {
  hy__slot* slot = hy__calloc(1, sizeof *slot);
  if (!slot) return NULL;
  atomic_init(&slot->refs, 1);
  slot->node = node;
  slot->index = index;
  slot->keep = node == NULL;
  return slot;
}

hy__slot* hy__slot_retain(hy__slot* slot) {
  if (slot) atomic_fetch_add_explicit(&slot->refs, 1, memory_order_relaxed);
  return slot;
}

static void unlink_node(hy__node* node) {
  hy_tape* tape = node->tape;
  if (!tape) return;
  *(node->previous ? &node->previous->next : &tape->first) = node->next;
  *(node->next ? &node->next->previous : &tape->last) = node->previous;
  tape->n_nodes--;
  node->tape = NULL;
}

// A node without slots goes to the list of the dead, so that a long history does not go away by
// recursion.
static void drop_node(hy__node* node, hy__node** dead) {
  if (--node->refs > 0) return;
  unlink_node(node);
  node->next = *dead;
  *dead = node;
}

static void drop_slot(hy__slot* slot, hy__node** dead) {
  if (!slot || atomic_fetch_sub_explicit(&slot->refs, 1, memory_order_acq_rel) != 1) return;
  hy_array_release(slot->grad);
  if (slot->node) {
    slot->node->out[slot->index] = NULL;
    drop_node(slot->node, dead);
  }
  hy__mfree(slot);
}

static void drop_inputs(hy__node* node, hy__node** dead) {
  for (int i = 0; i < node->n_in; i++) {
    hy__slot* slot = node->in[i].slot;
    node->in[i].slot = NULL;
    drop_slot(slot, dead);
  }
}

static void bury(hy__node* dead) {
  while (dead) {
    hy__node* node = dead;
    dead = node->next;
    hy__node_forget_saved(node);
    drop_inputs(node, &dead);
    hy__mfree(node);
  }
}

void hy__slot_release(hy__slot* slot) {
  hy__node* dead = NULL;
  drop_slot(slot, &dead);
  bury(dead);
}

// ---- nodes ----

static void forget(hy__saved* saved) {
  hy__storage_release(saved->storage);
  saved->storage = NULL;
}

void hy__node_forget_saved(hy__node* node) {
  for (int i = 0; i < node->n_in; i++) forget(&node->in[i].saved);
  for (int i = 0; i < HY_MAX_OUTPUTS; i++) forget(&node->saved_out[i]);
  if (node->rule == &hy__grad_checkpoint && node->step.checkpoint.release) {
    void (*release)(void*) = node->step.checkpoint.release;
    node->step.checkpoint.release = NULL;
    release(node->step.checkpoint.context);
  }
}

void hy__node_forget_inputs(hy__node* node) {
  hy__node* dead = NULL;
  drop_inputs(node, &dead);
  bury(dead);
}

void hy__node_release(hy__node* node) {
  hy__node* dead = NULL;
  if (node) drop_node(node, &dead);
  bury(dead);
}

hy_status hy__node_new(hy_tape* tape, const hy__grad_rule* rule, hy_array* const* inputs,
                       int n_inputs, hy__node** out) {
  hy__node* node = hy__calloc(1, sizeof *node + (size_t)n_inputs * sizeof node->in[0]);
  if (!node) return hy_fail(HY_OUT_OF_MEMORY, "no host memory for the tape");
  node->refs = 1;
  node->rule = rule;
  node->n_in = n_inputs;
  for (int i = 0; i < n_inputs; i++) {
    if (!inputs[i]) continue;
    node->in[i].slot = hy__slot_retain(inputs[i]->slot);
    node->in[i].saved.view = inputs[i]->view;
    node->in[i].saved.view.data = NULL;
  }
  node->tape = tape;
  node->serial = ++tape->serial;
  node->previous = tape->last;
  *(tape->last ? &tape->last->next : &tape->first) = node;
  tape->last = node;
  tape->n_nodes++;
  *out = node;
  return HY_OK;
}

void hy__node_save(hy__saved* saved, const hy_array* array) {
  if (saved->storage) return;
  saved->storage = hy__storage_retain(array->storage);
  saved->version = atomic_load_explicit(&array->storage->version, memory_order_relaxed);
  saved->view = array->view;
}

hy_status hy__node_attach(hy__node* node, int index, hy_array* array) {
  hy__slot* slot = hy__slot_new(node, index);
  if (!slot) return hy_fail(HY_OUT_OF_MEMORY, "no host memory for the tape");
  node->refs++;
  node->out[index] = slot;
  array->slot = slot;
  return HY_OK;
}

// ---- the tape ----

hy_status hy_tape_create(hy_stream* stream, hy_tape** out) {
  if (!stream || !out)
    return hy_fail(HY_INVALID_ARGUMENT, "hy_tape_create: %s is NULL", stream ? "tape" : "stream");
  *out = NULL;
  hy_tape* tape = hy__calloc(1, sizeof *tape);
  if (!tape) return hy_fail(HY_OUT_OF_MEMORY, "hy_tape_create: no host memory");
  tape->stream = stream;
  tape->recording = true;
  *out = tape;
  return HY_OK;
}

void hy_tape_destroy(hy_tape* tape) {
  if (!tape) return;
  while (tape->last) {
    hy__node* node = tape->last;
    node->refs++;
    unlink_node(node);
    hy__node_forget_saved(node);
    hy__node_forget_inputs(node);
    hy__node_release(node);
  }
  hy__mfree(tape);
}

hy_stream* hy_tape_stream(const hy_tape* tape) {
  return tape ? tape->stream : NULL;
}

bool hy_tape_set_recording(hy_tape* tape, bool recording) {
  if (!tape) return false;
  bool was = tape->recording;
  tape->recording = recording;
  return was;
}

int64_t hy_tape_size(const hy_tape* tape) {
  return tape ? tape->n_nodes : 0;
}

bool hy__tape_wants(hy_tape* tape, hy_array* const* inputs, int n_inputs) {
  bool wanted = false;
  for (int i = 0; i < n_inputs && !wanted; i++) wanted = hy_array_requires_grad(inputs[i]);
  if (wanted && !tape->recording) tape->skipped++;
  return wanted && tape->recording;
}
