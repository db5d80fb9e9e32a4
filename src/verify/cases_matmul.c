// Cases of matrix products and einsum.
#include <math.h>
#include <string.h>

#include "verify/case.h"

// Sums of products of `factors` inputs, the last ones of the call; and of the other inputs.
static void with_products(hy__case* c, int64_t terms, int first, int factors) {
  c->terms = terms > 0 ? terms : 1;
  c->scale = 2;
  for (int i = first; i < first + factors; i++) c->scale *= hy__largest(&c->in[i]);
  for (int i = 0; i < c->call.n_in; i++) {
    if (i < first || i >= first + factors) c->scale = fmax(c->scale, 2 * hy__largest(&c->in[i]));
  }
  c->wide = true;
}

// Odd sizes next to those of models: K 4,096, vocabularies, batches of tokens.
#define LONG_K 4099
#define LONG_N 131101
#define LONG_M 20011

void hy__cases_mm(hy__case* c) {
  hy__has_sizes_to(c, c->call.op == HY_OP_int_mm ? 4 : 3);
  int64_t m = hy__draw_sized(c, 2, LONG_M), k = hy__draw_sized(c, 0, LONG_K),
          n = hy__draw_sized(c, 1, LONG_N);
  if (c->call.op == HY_OP_int_mm) k = hy__is_model(c, 3) ? hy__draw_sized(c, 3, 131071) : k;
  hy__add_input(c, c->dtype, 2, (int64_t[]){m, k});
  hy__add_input(c, c->dtype, 2, (int64_t[]){k, n});
  with_products(c, k, 0, 2);
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

// One of the sizes sums up to the last numbers that i32 holds.
void hy__cases_int_mm(hy__case* c) {
  hy__cases_mm(c);
  for (int i = 0; i < 2 && hy__is_model(c, 3); i++) hy__fill_ints(c, &c->in[i], -128, -128);
}

void hy__cases_bmm(hy__case* c) {
  int64_t b = hy__draw_small_sized(c, 4, 3, 30011), m = hy__draw_sized(c, 2, LONG_M),
          k = hy__draw_sized(c, 0, LONG_K), n = hy__draw_sized(c, 1, LONG_N);
  hy__add_input(c, c->dtype, 3, (int64_t[]){b, m, k});
  hy__add_input(c, c->dtype, 3, (int64_t[]){b, k, n});
  with_products(c, k, 0, 2);
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
  hy__has_sizes_to(c, 3);
  int64_t m = hy__draw_sized(c, 2, LONG_M), k = hy__draw_sized(c, 0, LONG_K),
          n = hy__draw_sized(c, 1, LONG_N);
  uint64_t shape = hy__draw(c) % 4;
  if (c->flavour == HY__FLAVOUR_IN_PLACE || c->flavour == HY__FLAVOUR_MODEL) shape = 0;
  int64_t full[2] = {shape == 1 ? 1 : m, n};
  hy__add_input(c, c->dtype, shape == 2 ? 1 : shape == 3 ? 0 : 2, shape == 2 ? &full[1] : full);
  hy__add_input(c, c->dtype, 2, (int64_t[]){m, k});
  hy__add_input(c, c->dtype, 2, (int64_t[]){k, n});
  c->call.attrs.addmm.beta = draw_factor(c);
  c->call.attrs.addmm.alpha = draw_factor(c);
  // Whether a product times 0 is computed at all is open, and shows by a NaN in it.
  if (c->flavour == HY__FLAVOUR_SPECIAL) c->call.attrs.addmm.alpha = hy_int(2);
  with_products(c, 2 * k + 2, 1, 2);
  if (hy__mistake(c, 1, HY_SHAPE, "an x that does not broadcast")) {
    c->call.n_in = 0;
    hy__add_input(c, c->dtype, 2, (int64_t[]){3, 5});
    hy__add_input(c, c->dtype, 2, (int64_t[]){3, 2});
    hy__add_input(c, c->dtype, 2, (int64_t[]){2, 4});
  }
}

void hy__cases_linear(hy__case* c) {
  int64_t shape[HY_MAX_DIMS], n = hy__draw_sized(c, 1, LONG_N);
  int lead = (int)hy__draw_int(c, 0, 2);
  if (hy__is_model(c, 2)) lead = 1;
  if (hy__is_model(c, 3)) lead = HY_MAX_DIMS - 1;
  for (int d = 0; d < lead; d++) shape[d] = d ? hy__draw_small(c, 3) : hy__draw_sized(c, 2, LONG_M);
  if (hy__is_model(c, 1)) lead = 0;  // one row, as in decoding
  int64_t k = shape[lead] = hy__draw_sized(c, 0, LONG_K);
  hy__add_input(c, c->dtype, lead + 1, shape);
  hy__add_input(c, c->dtype, 2, (int64_t[]){n, k});
  hy__add_optional(c, c->dtype, 1, &n);
  with_products(c, k + 1, 0, 2);
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
    "ij,jk->ik",
    "bij,bjk->bik",
    "ij->ji",
    "ii->i",
    "ii",
    "ij->",
    "i,i->",
    "i,j->ij",
    "ij,ij->ij",
    "bij,bkj->bik",
    "ij,jk,kl->il",
    "...ij,...jk->...ik",
    "bhtd,bhsd->bhts",
    "ij,j->i",
    "abc->cb",
    "ij,kj,k->i",
    "aij,a->ij",
    "ij,jk",
    "abcdefgh->hgfedcba",
    "ab,bc,cd,de,ef->af",
};

void hy__cases_einsum(hy__case* c) {
  uint64_t which = hy__draw(c) % (sizeof equations / sizeof equations[0]);
  const char* text = equations[c->flavour == HY__FLAVOUR_MODEL && c->model < 2 ? 0 : which];
  int64_t sizes[128] = {0}, shape[HY_MAX_DIMS], batch = hy__draw_small(c, 3), terms = 1;
  bool large = c->flavour == HY__FLAVOUR_LARGE;
  // A diagonal has the square of its elements.
  bool diagonal = strncmp(text, "ii", 2) == 0;
  int64_t letters = 0, most = LONG_N;
  if (diagonal) most = 150;
  if (large) most = c->key.quick ? 12 : 24;
  // The reference visits every combination of the letters.
  if (strchr(text, 'f')) most = strchr(text, 'h') ? 2 : 6;
  for (const char* p = text; *p && *p != '>'; p++) {
    if (*p < 'a' || *p > 'z' || sizes[(int)*p] > 0) continue;
    // The model's size is the n-th letter's; the last one's where there are fewer.
    bool last = !p[1] || p[1] == '-';
    int64_t size = hy__draw_size_from_1(c);
    if (letters++ == c->model || (last && letters <= c->model))
      size = hy__is_model(c, c->model)
                 ? hy__draw_sized(c, c->model, strlen(text) < 10 ? LONG_N : LONG_M)
                 : size;
    sizes[(int)*p] = size > most ? most : size > 0 ? size : 1;
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
  with_products(c, terms, 0, c->call.n_in);
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
