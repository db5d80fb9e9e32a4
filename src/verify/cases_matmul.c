// Cases of matrix products and einsum.
#include <string.h>

#include "verify/case.h"

static void with_terms(hy__case* c, int64_t terms) {
  c->terms = terms > 0 ? terms : 1;
  c->scale = c->flavour == HY__FLAVOUR_SPECIAL ? 1e4 : 32;
  c->wide = true;
}

void hy__cases_mm(hy__case* c) {
  int64_t m = hy__draw_size(c), k = hy__draw_size(c), n = hy__draw_size(c);
  hy__add_input(c, c->dtype, 2, (int64_t[]){m, k});
  hy__add_input(c, c->dtype, 2, (int64_t[]){k, n});
  with_terms(c, k);
  if (hy__mistake(c, 1, HY_SHAPE, "inner sizes that differ")) {
    c->call.n_in = 1;
    hy__add_input(c, c->dtype, 2, (int64_t[]){k + 1, n});
  }
  if (hy__mistake(c, 2, HY_SHAPE, "a vector where a matrix is needed")) {
    c->call.n_in = 1;
    hy__add_input(c, c->dtype, 1, (int64_t[]){k});
  }
  if (hy__mistake(c, 3, HY_DTYPE, "two types where one is needed")) {
    c->call.n_in = 1;
    hy__add_input(c, c->dtype == HY_F64 ? HY_F32 : HY_F64, 2, (int64_t[]){k, n});
  }
}

void hy__cases_int_mm(hy__case* c) {
  hy__cases_mm(c);
}

void hy__cases_bmm(hy__case* c) {
  int64_t b = hy__draw_small(c, 4), m = hy__draw_size(c), k = hy__draw_size(c),
          n = hy__draw_size(c);
  hy__add_input(c, c->dtype, 3, (int64_t[]){b, m, k});
  hy__add_input(c, c->dtype, 3, (int64_t[]){b, k, n});
  with_terms(c, k);
  if (hy__mistake(c, 1, HY_SHAPE, "batch sizes that differ")) {
    c->call.n_in = 1;
    hy__add_input(c, c->dtype, 3, (int64_t[]){b + 1, k, n});
  }
  if (hy__mistake(c, 2, HY_SHAPE, "inner sizes that differ")) {
    c->call.n_in = 1;
    hy__add_input(c, c->dtype, 3, (int64_t[]){b, k + 1, n});
  }
}

static hy_scalar draw_factor(hy__case* c) {
  int64_t whole = hy__draw_int(c, -1, 2);
  double real = hy__draw_real(c, -2, 2);
  return hy_dtype_is_float(c->dtype) && hy__draw_bool(c) ? hy_float(real) : hy_int(whole);
}

void hy__cases_addmm(hy__case* c) {
  int64_t m = hy__draw_size(c), k = hy__draw_size(c), n = hy__draw_size(c);
  uint64_t shape = hy__draw(c) % 4;
  if (c->flavour == HY__FLAVOUR_IN_PLACE) shape = 0;
  int64_t full[2] = {shape == 1 ? 1 : m, n};
  hy__add_input(c, c->dtype, shape == 2 ? 1 : shape == 3 ? 0 : 2, shape == 2 ? &full[1] : full);
  hy__add_input(c, c->dtype, 2, (int64_t[]){m, k});
  hy__add_input(c, c->dtype, 2, (int64_t[]){k, n});
  c->call.attrs.addmm.beta = draw_factor(c);
  c->call.attrs.addmm.alpha = draw_factor(c);
  // Whether a product times 0 is computed at all is open, and shows by a NaN in it.
  if (c->flavour == HY__FLAVOUR_SPECIAL) c->call.attrs.addmm.alpha = hy_int(2);
  with_terms(c, 2 * k + 2);
  if (hy__mistake(c, 1, HY_SHAPE, "an x that does not broadcast")) {
    c->call.n_in = 0;
    hy__add_input(c, c->dtype, 2, (int64_t[]){3, 5});
    hy__add_input(c, c->dtype, 2, (int64_t[]){3, 2});
    hy__add_input(c, c->dtype, 2, (int64_t[]){2, 4});
  }
}

void hy__cases_linear(hy__case* c) {
  int64_t shape[HY_MAX_DIMS], n = hy__draw_size(c);
  int lead = (int)hy__draw_int(c, 0, 2);
  for (int d = 0; d < lead; d++) shape[d] = d ? hy__draw_small(c, 3) : hy__draw_size(c);
  int64_t k = shape[lead] = hy__draw_size(c);
  hy__add_input(c, c->dtype, lead + 1, shape);
  hy__add_input(c, c->dtype, 2, (int64_t[]){n, k});
  if (hy__draw_bool(c))
    hy__add_input(c, c->dtype, 1, &n);
  else
    hy__add_absent(c);
  with_terms(c, k + 1);
  if (hy__mistake(c, 1, HY_SHAPE, "a bias of the wrong size")) {
    c->call.n_in = 2;
    hy__add_input(c, c->dtype, 1, (int64_t[]){n + 1});
  }
  if (hy__mistake(c, 2, HY_SHAPE, "a weight of the wrong size")) {
    c->call.n_in = 1;
    hy__add_input(c, c->dtype, 2, (int64_t[]){n, k + 1});
    hy__add_absent(c);
  }
}

// Equations of every kind: products, transposes, diagonals, traces, sums, broadcasting by an
// ellipsis, chains whose order matters.
static const char* const equations[] = {
    "ij,jk->ik",       "bij,bjk->bik", "ij->ji",
    "ii->i",           "ii",           "ij->",
    "i,i->",           "i,j->ij",      "ij,ij->ij",
    "bij,bkj->bik",    "ij,jk,kl->il", "...ij,...jk->...ik",
    "bhtd,bhsd->bhts", "ij,j->i",      "abc->cb",
    "ij,kj,k->i",      "aij,a->ij",    "ij,jk",
};

void hy__cases_einsum(hy__case* c) {
  const char* text = equations[hy__draw(c) % (sizeof equations / sizeof equations[0])];
  int64_t sizes[128] = {0}, shape[HY_MAX_DIMS], batch = hy__draw_small(c, 3), terms = 1;
  bool large = c->flavour == HY__FLAVOUR_LARGE;
  for (const char* p = text; *p && *p != '>'; p++) {
    if (*p < 'a' || *p > 'z' || sizes[(int)*p] > 0) continue;
    int64_t size = hy__draw_size_from_1(c);
    sizes[(int)*p] = large && size > 24 ? 24 : size;
  }
  int ndim = 0;
  for (const char* p = text;; p++) {
    if (*p >= 'a' && *p <= 'z') {
      shape[ndim++] = sizes[(int)*p];
    } else if (p[0] == '.' && p[1] == '.') {
      shape[ndim++] = batch;
      p += 2;
    } else {
      hy__add_input(c, c->dtype, ndim, shape);
      ndim = 0;
      if (*p != ',') break;
    }
  }
  for (int i = 0; i < 128; i++) terms *= sizes[i] > 0 ? sizes[i] : 1;
  c->call.attrs.equation.equation = hy_einsum_equation(text);
  with_terms(c, terms > 4096 ? 4096 : terms);
  c->scale = c->call.n_in > 2 ? 256 : c->scale;
  if (hy__mistake(c, 1, HY_SHAPE, "a letter with two sizes")) {
    c->call.n_in = 0;
    hy__add_input(c, c->dtype, 2, (int64_t[]){2, 3});
    hy__add_input(c, c->dtype, 2, (int64_t[]){4, 5});
    c->call.attrs.equation.equation = hy_einsum_equation("ij,jk->ik");
  }
  if (hy__mistake(c, 2, HY_INVALID_ARGUMENT, "an output letter that no operand has"))
    c->call.attrs.equation.equation = hy_einsum_equation("ij->iz"), c->call.n_in = 0,
    hy__add_input(c, c->dtype, 2, (int64_t[]){2, 3});
  if (hy__mistake(c, 3, HY_INVALID_ARGUMENT, "an equation that is none"))
    c->call.attrs.equation.equation = hy_einsum_equation("i!j");
  if (hy__mistake(c, 4, HY_INVALID_ARGUMENT, "fewer operands than the equation has")) {
    c->call.n_in = 0;
    hy__add_input(c, c->dtype, 2, (int64_t[]){2, 3});
    c->call.attrs.equation.equation = hy_einsum_equation("ij,jk->ik");
  }
}
