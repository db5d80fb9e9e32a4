// The gradient of einsum is einsum: y = einsum("ij,jk->ik", a, b) gives da = einsum("ik,jk->ij",
// dy, b). Labels that only one operand has were summed away, so their gradient is repeated; a label
// that an operand has twice is a diagonal.
#include <ctype.h>
#include <string.h>

#include "ops/autograd/grad.h"

// Labels of a term, one letter per dimension, ellipses spelled out.
typedef struct term {
  char label[HY_MAX_DIMS + 1];
  int n;
} term;

typedef struct equation {
  term out;
  term in[HY_MAX_INPUTS];
} equation;

static bool has(const term* t, char label) {
  return memchr(t->label, label, (size_t)t->n) != NULL;
}

static void append(term* t, char label) {
  if (t->n < HY_MAX_DIMS) t->label[t->n++] = label;
}

// Reads one term up to `,`, `-` or the end. `dims` is its rank, or -1 where the ellipsis has
// `ellipsis` dimensions. Letters that the equation does not use name the ellipsis' dimensions, the
// last one first, so that terms agree from the right.
static const char* read_term(const char* text, const char* spare, int dims, int ellipsis, term* t) {
  int letters = 0;
  for (const char* p = text; *p && *p != ',' && *p != '-'; p++)
    letters += isalpha((unsigned char)*p);
  if (dims >= 0) ellipsis = dims - letters;
  t->n = 0;
  for (; *text && *text != ',' && *text != '-'; text++) {
    if (isalpha((unsigned char)*text)) {
      append(t, *text);
    } else if (strncmp(text, "...", 3) == 0) {
      for (int d = ellipsis - 1; d >= 0; d--) append(t, spare[d]);
      text += 2;
    }
  }
  return text;
}

// Without an arrow: the ellipsis, then the letters that occur once, in order.
static void implied_output(equation* e, int n_in, const char* spare, int ellipsis) {
  e->out.n = 0;
  for (int d = ellipsis - 1; d >= 0; d--) append(&e->out, spare[d]);
  for (int label = 'A'; label <= 'z'; label++) {
    int count = 0;
    for (int i = 0; i < n_in; i++) {
      for (int d = 0; d < e->in[i].n; d++) count += e->in[i].label[d] == label;
    }
    if (count == 1 && !memchr(spare, label, (size_t)ellipsis)) append(&e->out, (char)label);
  }
}

// The equation has been accepted by the forward call.
static void parse(const hy__grad* g, equation* e) {
  const char* text = g_attrs(g)->equation.equation.text;
  char spare[HY_MAX_DIMS + 1];
  int n_spare = 0, ellipsis = 0;
  for (char label = 'z'; n_spare < HY_MAX_DIMS; label--) {
    if (isalpha((unsigned char)label) && !strchr(text, label)) spare[n_spare++] = label;
  }
  const char* p = text;
  for (int i = 0; i < g->node->n_in; i++) {
    int dims = g_shape(g, i)->ndim;
    p = read_term(p, spare, dims, 0, &e->in[i]);
    int rank = 0;
    for (int d = 0; d < e->in[i].n; d++)
      rank += memchr(spare, e->in[i].label[d], (size_t)n_spare) != NULL;
    if (rank > ellipsis) ellipsis = rank;
    if (*p == ',') p++;
  }
  const char* arrow = strstr(text, "->");
  if (arrow) {
    read_term(arrow + 2, spare, -1, ellipsis, &e->out);
  } else {
    implied_output(e, g->node->n_in, spare, ellipsis);
  }
}

static size_t write_term(hy_equation* e, size_t at, const term* t) {
  for (int d = 0; d < t->n && at + 4 < sizeof e->text; d++) e->text[at++] = t->label[d];
  return at;
}

// einsum(dy and the other operands) with the labels in `result`.
static hy_array* contract(hy__grad* g, const equation* e, int i, const term* result) {
  hy_attrs attrs = {0};
  hy_array* in[HY_MAX_INPUTS] = {g->dy};
  int n = 1;
  size_t at = write_term(&attrs.equation.equation, 0, &e->out);
  for (int j = 0; j < g->node->n_in; j++) {
    if (j == i) continue;
    attrs.equation.equation.text[at++] = ',';
    at = write_term(&attrs.equation.equation, at, &e->in[j]);
    in[n++] = g_in(g, j);
  }
  memcpy(attrs.equation.equation.text + at, "->", 2);
  write_term(&attrs.equation.equation, at + 2, result);
  return g_op(g, HY_OP_einsum, &attrs, in, n, 0);
}

static void give_operand(hy__grad* g, const equation* e, int i) {
  const hy_tensor* x = g_shape(g, i);
  const term* own = &e->in[i];
  // The operand's labels, each once; those that dy or another operand has; and their sizes.
  term distinct = {.n = 0}, known = {.n = 0};
  hy_tensor sizes = {.ndim = 0};
  int64_t with_gaps[HY_MAX_DIMS];
  for (int d = 0; d < own->n; d++) {
    char label = own->label[d];
    if (has(&distinct, label)) continue;
    append(&distinct, label);
    bool elsewhere = has(&e->out, label);
    for (int j = 0; j < g->node->n_in; j++) elsewhere |= j != i && has(&e->in[j], label);
    if (elsewhere) append(&known, label);
    with_gaps[sizes.ndim] = elsewhere ? 0 : 1;
    sizes.shape[sizes.ndim++] = x->shape[d];
  }
  hy_array* dx = contract(g, e, i, &known);
  if (!dx) return;
  for (int d = 0, k = 0; d < sizes.ndim; d++) {
    if (with_gaps[d] == 0) with_gaps[d] = dx->view.shape[k++];
    if (sizes.shape[d] == 1) sizes.shape[d] = with_gaps[d];
  }
  dx = g_expand(g, g_reshape(g, dx, sizes.ndim, with_gaps), &sizes);
  if (distinct.n == own->n) {
    g_give(g, i, dx);
    return;
  }
  hy_array* field = g_zeros(g, x);
  if (!field) return;
  int64_t stride[HY_MAX_DIMS] = {0};
  for (int d = 0; d < own->n; d++) {
    const char* at = memchr(distinct.label, own->label[d], (size_t)distinct.n);
    stride[at - distinct.label] += field->view.stride[d];
  }
  g_copy_into(g, g_as_strided(g, field, sizes.ndim, sizes.shape, stride), dx);
  g_give(g, i, field);
}

HY__RULE(einsum, LIST) {
  equation e;
  parse(g, &e);
  for (int i = 0; i < g->node->n_in; i++) {
    if (g_wants(g, i)) give_operand(g, &e, i);
  }
}
