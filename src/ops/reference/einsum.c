// Einsum as it is defined: for each output element, the sum over all other labels of the product of
// the operands' elements. Slow, and the oracle for everything faster.
#include "ops/einsum.h"
#include "ops/reference/element.h"

// Loops over labels, those of the output first; the operands' places move along.
typedef struct loops {
  int n, n_operands;
  int64_t size[HY__EINSUM_LABELS], index[HY__EINSUM_LABELS];
  int64_t stride[HY_MAX_INPUTS + 1][HY__EINSUM_LABELS];  // bytes; the last is the output's
  char* at[HY_MAX_INPUTS + 1];
} loops;

static void add_loop(loops* l, const hy__einsum* e, int label, const hy_call* call) {
  l->size[l->n] = e->size[label];
  l->index[l->n] = 0;
  for (int k = 0; k <= e->n_operands; k++) {
    const hy_tensor* t = k < e->n_operands ? &call->in[k] : &call->out[0];
    const hy__subscript* s = k < e->n_operands ? &e->operand[k] : &e->out;
    int64_t stride = 0;  // stays 0 where the operand lacks the label or broadcasts it
    for (int d = 0; d < s->rank; d++) {
      if (s->label[d] == label && t->shape[d] != 1) stride += t->stride[d];
    }
    l->stride[k][l->n] = stride * (int64_t)hy_dtype_size(t->dtype);
  }
  l->n++;
}

// Steps the loops first .. last - 1, the last one fastest; false when they are through and back at
// their start.
static bool step(loops* l, int first, int last) {
  for (int i = last - 1; i >= first; i--) {
    bool wraps = ++l->index[i] == l->size[i];
    int64_t by = wraps ? 1 - l->size[i] : 1;
    if (wraps) l->index[i] = 0;
    for (int k = 0; k <= l->n_operands; k++) l->at[k] += by * l->stride[k][i];
    if (!wraps) return true;
  }
  return false;
}

static double product_f(const loops* l, hy_dtype dtype) {
  double product = 1;
  for (int k = 0; k < l->n_operands; k++) product *= hy__load_f(dtype, l->at[k]);
  return product;
}

static uint64_t product_i(const loops* l, hy_dtype dtype) {
  uint64_t product = 1;
  for (int k = 0; k < l->n_operands; k++) product *= (uint64_t)hy__load_i(dtype, l->at[k]);
  return product;
}

hy_status hy__ref_einsum(const hy_call* call) {
  hy__einsum e;
  HY_TRY(hy__einsum_parse(call, &e));
  hy_dtype dtype = call->out[0].dtype;
  loops l = {.n_operands = e.n_operands};
  bool in_output[HY__EINSUM_LABELS] = {false}, empty_sum = false;
  for (int d = 0; d < e.out.rank; d++) {
    in_output[e.out.label[d]] = true;
    add_loop(&l, &e, e.out.label[d], call);
  }
  for (int label = 0; label < HY__EINSUM_LABELS; label++) {
    if (e.size[label] < 0 || in_output[label]) continue;
    add_loop(&l, &e, label, call);
    empty_sum = empty_sum || e.size[label] == 0;
  }
  for (int k = 0; k <= e.n_operands; k++)
    l.at[k] = k < e.n_operands ? call->in[k].data : call->out[0].data;
  if (hy_tensor_numel(&call->out[0]) == 0) return HY_OK;
  do {
    double sum_f = 0;
    uint64_t sum_i = 0;
    if (!empty_sum) {
      do {
        if (hy__in_double(dtype))
          sum_f += product_f(&l, dtype);
        else
          sum_i += product_i(&l, dtype);
      } while (step(&l, e.out.rank, l.n));
    }
    if (hy__in_double(dtype))
      hy__store_f(dtype, l.at[e.n_operands], sum_f);
    else
      hy__store_i(dtype, l.at[e.n_operands], (int64_t)sum_i);
  } while (step(&l, 0, e.out.rank));
  return HY_OK;
}
