// The gradient of einsum is einsum: y = einsum("ij,jk->ik", a, b) gives da = einsum("ik,jk->ij",
// dy, b). Labels that only one operand has were summed away, so their gradient is repeated; a label
// that an operand has twice is a diagonal.
#include "ops/einsum.h"

#include <string.h>

#include "ops/autograd/grad.h"

static bool has(const hy__subscript* s, int label) {
  return memchr(s->label, label, (size_t)s->rank) != NULL;
}

// Writes an equation in letters of its own, for ellipses are spelled out here.
typedef struct writer {
  hy_equation equation;
  size_t length;
  char letter[HY__EINSUM_LABELS];
} writer;

static void write_text(writer* w, const char* text) {
  for (; *text && w->length + 1 < sizeof w->equation.text; text++)
    w->equation.text[w->length++] = *text;
}

static void write_subscript(writer* w, const hy__subscript* s) {
  for (int d = 0; d < s->rank; d++) write_text(w, (char[]){w->letter[s->label[d]], 0});
}

static void name_labels(writer* w, const hy__einsum* e) {
  const char* next = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  for (int label = 0; label < HY__EINSUM_LABELS; label++) {
    if (e->size[label] >= 0 && *next) w->letter[label] = *next++;
  }
}

// einsum of dy and the other operands, with the labels of `result`.
static hy_array* contract(hy__grad* g, const hy__einsum* e, int i, const hy__subscript* result) {
  writer w = {.length = 0};
  hy_array* in[HY_MAX_INPUTS] = {g->dy};
  int n = 1;
  name_labels(&w, e);
  write_subscript(&w, &e->out);
  for (int j = 0; j < e->n_operands; j++) {
    if (j == i) continue;
    write_text(&w, ",");
    write_subscript(&w, &e->operand[j]);
    in[n++] = g_in(g, j);
  }
  write_text(&w, "->");
  write_subscript(&w, result);
  return g_op(g, HY_OP_einsum, &(hy_attrs){.equation = {w.equation}}, in, n, 0);
}

static void give_operand(hy__grad* g, const hy__einsum* e, int i) {
  const hy__subscript* own = &e->operand[i];
  // The operand's labels, each once, and those of them that dy or another operand has.
  hy__subscript distinct = {.rank = 0}, known = {.rank = 0};
  hy_tensor full = {.ndim = 0};
  for (int d = 0; d < own->rank; d++) {
    int8_t label = own->label[d];
    if (has(&distinct, label)) continue;
    bool elsewhere = has(&e->out, label);
    for (int j = 0; j < e->n_operands; j++) elsewhere |= j != i && has(&e->operand[j], label);
    if (elsewhere) known.label[known.rank++] = label;
    distinct.label[distinct.rank++] = label;
    full.shape[full.ndim++] = e->size[label];
  }
  hy_array* dx = contract(g, e, i, &known);
  if (!dx) return;
  int64_t shape[HY_MAX_DIMS];
  for (int d = 0, k = 0; d < distinct.rank; d++)
    shape[d] = has(&known, distinct.label[d]) ? dx->view.shape[k++] : 1;
  dx = g_expand(g, g_reshape(g, dx, distinct.rank, shape), &full);
  if (distinct.rank == own->rank) {
    g_give(g, i, dx);
    return;
  }
  hy_array* field = g_zeros(g, g_shape(g, i));
  if (!field) return;
  int64_t stride[HY_MAX_DIMS] = {0};
  for (int d = 0; d < own->rank; d++) {
    const int8_t* at = memchr(distinct.label, own->label[d], (size_t)distinct.rank);
    stride[at - distinct.label] += field->view.stride[d];
  }
  g_copy_into(g, g_as_strided(g, field, full.ndim, full.shape, stride), dx);
  g_give(g, i, field);
}

HY__RULE(einsum, LIST) {
  hy_tensor in[HY_MAX_INPUTS];
  hy_call call = {.op = HY_OP_einsum, .n_in = g->node->n_in, .in = in, .attrs = *g_attrs(g)};
  for (int i = 0; i < call.n_in; i++) in[i] = *g_shape(g, i);
  hy__einsum e;
  g->scope.status = hy__einsum_parse(&call, &e);
  for (int i = 0; g->scope.status == HY_OK && i < e.n_operands; i++) {
    if (g_wants(g, i)) give_operand(g, &e, i);
  }
}
