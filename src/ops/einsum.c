// einsum: parsing subscripts.
#include "ops/einsum.h"

#include <ctype.h>
#include <string.h>

#define ELLIPSIS 52  // in a term that has been read but not yet laid over an operand

// A term as it is written: labels, with ELLIPSIS for "...".
typedef struct term {
  int n, ellipses;
  int8_t label[HY_MAX_EQUATION];
} term;

static int label_of(char letter) {
  return letter <= 'Z' ? letter - 'A' : letter - 'a' + 26;
}

static char letter_of(int label) {
  return (char)(label < 26 ? 'A' + label : label < 52 ? 'a' + label - 26 : '.');
}

// Reads a term up to ',', "->" or the end; returns where it stopped, NULL when it is none.
static const char* read_term(const char* p, term* t) {
  t->n = t->ellipses = 0;
  for (; *p && *p != ',' && *p != '-'; p++) {
    if (*p == ' ') continue;
    if (isalpha((unsigned char)*p)) {
      t->label[t->n++] = (int8_t)label_of(*p);
    } else if (strncmp(p, "...", 3) == 0 && t->ellipses == 0) {
      t->label[t->n++] = ELLIPSIS;
      t->ellipses = 1;
      p += 2;
    } else {
      return NULL;
    }
  }
  return p;
}

// The term's labels with the ellipsis spelled out as `width` dimensions.
static bool spell_out(const term* t, int width, hy__subscript* s) {
  s->rank = 0;
  if (width < 0 || t->n - t->ellipses + width * t->ellipses > HY_MAX_DIMS) return false;
  for (int i = 0; i < t->n; i++) {
    if (t->label[i] != ELLIPSIS) {
      s->label[s->rank++] = t->label[i];
    } else {
      for (int d = width - 1; d >= 0; d--) s->label[s->rank++] = (int8_t)(ELLIPSIS + d);
    }
  }
  return true;
}

// Lays operand k's subscripts over its shape.
static hy_status take_operand(const hy_call* call, hy__einsum* e, int k, const term* t,
                              int* ellipsis) {
  const hy_tensor* x = &call->in[k];
  hy__subscript* s = &e->operand[k];
  int width = x->ndim - (t->n - t->ellipses);
  if ((t->ellipses == 0 && width != 0) || !spell_out(t, width, s))
    return hy__call_fail(call, HY_SHAPE, "operand %d has %d dimensions, its subscripts name %d%s",
                         k, x->ndim, t->n - t->ellipses, t->ellipses ? " and an ellipsis" : "");
  if (t->ellipses && width > *ellipsis) *ellipsis = width;
  for (int d = 0; d < s->rank; d++) {
    int64_t size = x->shape[d], *known = &e->size[s->label[d]];
    for (int i = 0; i < d; i++) {
      if (s->label[i] == s->label[d] && x->shape[i] != size)
        return hy__call_fail(call, HY_SHAPE, "operand %d has the sizes %lld and %lld under '%c'", k,
                             (long long)x->shape[i], (long long)size, letter_of(s->label[d]));
    }
    if (*known >= 0 && *known != 1 && size != 1 && *known != size)
      return hy__call_fail(call, HY_SHAPE, "'%c' stands for the sizes %lld and %lld",
                           letter_of(s->label[d]), (long long)*known, (long long)size);
    if (*known < 0 || *known == 1) *known = size;
  }
  return HY_OK;
}

static void imply_output(hy__einsum* e, int ellipsis, term* out) {
  int uses[HY__EINSUM_LABELS] = {0};
  for (int k = 0; k < e->n_operands; k++) {
    for (int d = 0; d < e->operand[k].rank; d++) uses[e->operand[k].label[d]]++;
  }
  out->n = out->ellipses = ellipsis > 0;
  if (ellipsis > 0) out->label[0] = ELLIPSIS;
  for (int label = 0; label < 52; label++) {
    if (uses[label] == 1) out->label[out->n++] = (int8_t)label;
  }
}

static hy_status take_output(const hy_call* call, hy__einsum* e, const term* t, int ellipsis) {
  for (int i = 0; i < t->n; i++) {
    if (t->label[i] == ELLIPSIS) continue;
    if (e->size[t->label[i]] < 0)
      return hy__call_fail(call, HY_INVALID_ARGUMENT, "no operand has the output's '%c'",
                           letter_of(t->label[i]));
    if (memchr(t->label, t->label[i], (size_t)i))
      return hy__call_fail(call, HY_INVALID_ARGUMENT, "the output has '%c' twice",
                           letter_of(t->label[i]));
  }
  if (!spell_out(t, ellipsis, &e->out))
    return hy__call_fail(call, HY_SHAPE, "the output would have more than %d dimensions",
                         HY_MAX_DIMS);
  return HY_OK;
}

hy_status hy__einsum_parse(const hy_call* call, hy__einsum* e) {
  const char* p = call->attrs.equation.equation.text;
  if (!*p || !memchr(p, 0, HY_MAX_EQUATION))
    return hy_fail(HY_INVALID_ARGUMENT,
                   "einsum: the equation is empty or longer than %d characters",
                   HY_MAX_EQUATION - 1);
  term t;
  int ellipsis = 0;
  e->n_operands = 0;
  for (int i = 0; i < HY__EINSUM_LABELS; i++) e->size[i] = -1;
  for (;; p++) {
    p = read_term(p, &t);
    if (!p || (*p == '-' && p[1] != '>'))
      return hy__call_fail(call, HY_INVALID_ARGUMENT,
                           "an equation has letters, \"...\", \",\" and \"->\"");
    if (e->n_operands == call->n_in)
      return hy__call_fail(call, HY_INVALID_ARGUMENT, "the equation has more than %d operands",
                           call->n_in);
    HY_TRY(take_operand(call, e, e->n_operands++, &t, &ellipsis));
    if (*p != ',') break;
  }
  if (e->n_operands != call->n_in)
    return hy__call_fail(call, HY_INVALID_ARGUMENT, "the equation has %d operands, the call %d",
                         e->n_operands, call->n_in);
  if (*p) {
    p = read_term(p + 2, &t);
    if (!p || *p)
      return hy__call_fail(call, HY_INVALID_ARGUMENT,
                           "behind \"->\" an equation has letters and \"...\"");
  } else {
    imply_output(e, ellipsis, &t);
  }
  return take_output(call, e, &t, ellipsis);
}
