// Cross entropy of logits with class indices.
//
// With p = softmax(logits), w the class weights and s the smoothing over C classes, the loss of a
// slice with target t is  -(1 - s) w[t] log p[t] - s / C sum(w[c] log p[c]);  a slice whose target
// is ignore_index loses nothing. The mean divides by the sum of w[t] over the slices that count.
#include <math.h>

#include "ops/reference/scratch.h"
#include "ops/reference/slices.h"

typedef struct problem {
  int64_t classes;
  uint32_t mask;     // the dimension of the classes
  hy_tensor target;  // with all dimensions of the logits
  double* v;         // a slice of logits, then of what is made of them
  double* weight;
  double weight_sum;
  double total;  // what a mean divides by; 1 otherwise
} problem;

// Checks every target and sums their weights. On success p->v is to be freed.
static hy_status begin(const hy_call* call, problem* p) {
  const hy_tensor *logits = &call->in[0], *target = &call->in[1], *weight = &call->in[2];
  hy_attrs_cross_entropy attrs = call->attrs.cross_entropy;
  int class_dim = logits->ndim > 1;
  p->classes = logits->shape[class_dim];
  p->mask = 1u << class_dim;
  p->target = hy__keep_dims(target, logits->ndim, p->mask);
  p->v = hy__scratch(call, 2, p->classes);
  if (!p->v) return HY_OUT_OF_MEMORY;
  p->weight = p->v + p->classes;
  for (int64_t c = 0; c < p->classes; c++) p->weight[c] = 1;
  if (hy__present(weight)) hy__load_all_f(weight, p->weight);
  p->weight_sum = 0;
  for (int64_t c = 0; c < p->classes; c++) p->weight_sum += p->weight[c];
  double total = 0;
  hy__walk w;
  hy__walk_begin(&w, target, 1, (const hy_tensor*[]){target});
  while (hy__walk_next(&w)) {
    int64_t row[HY__ROW];
    hy__load_row_i(target->dtype, w.at[0], w.step[0], w.n, row);
    for (int64_t i = 0; i < w.n; i++) {
      if (row[i] == attrs.ignore_index) continue;
      if (row[i] < 0 || row[i] >= p->classes) {
        hy__mfree(p->v);
        return hy__call_fail(call, HY_INDEX, "target %lld is none of the %lld classes",
                             (long long)row[i], (long long)p->classes);
      }
      total += p->weight[row[i]];
    }
  }
  p->total = attrs.reduction == HY_REDUCTION_MEAN ? total : 1;
  return HY_OK;
}

// Turns logits into the logarithms of their softmax.
static void log_softmax(double* v, int64_t n) {
  double most = -INFINITY, sum = 0;
  for (int64_t c = 0; c < n; c++) most = isnan(v[c]) || v[c] > most ? v[c] : most;
  for (int64_t c = 0; c < n; c++) sum += exp(v[c] - most);
  for (int64_t c = 0; c < n; c++) v[c] = v[c] - most - log(sum);
}

hy_status hy__ref_cross_entropy(const hy_call* call) {
  hy_attrs_cross_entropy attrs = call->attrs.cross_entropy;
  bool reduces = attrs.reduction != HY_REDUCTION_NONE;
  problem p;
  HY_TRY(begin(call, &p));
  static const hy_tensor absent;
  hy_tensor each = reduces ? absent : hy__keep_dims(&call->out[0], call->in[0].ndim, p.mask);
  double sum = 0;
  hy__ref_slices l;
  hy__ref_slices_begin(&l, p.mask, 3, (const hy_tensor*[]){&call->in[0], &p.target, &each});
  while (hy__ref_slices_next(&l)) {
    int64_t t = hy__load_i(p.target.dtype, l.slice[1].data);
    double loss = 0;
    if (t != attrs.ignore_index) {
      hy__load_all_f(&l.slice[0], p.v);
      log_softmax(p.v, p.classes);
      double smooth = 0;
      for (int64_t c = 0; c < p.classes; c++) smooth -= p.weight[c] * p.v[c];
      loss = -p.weight[t] * p.v[t];
      if (attrs.label_smoothing > 0)
        loss =
            (1 - attrs.label_smoothing) * loss + attrs.label_smoothing / (double)p.classes * smooth;
    }
    if (!reduces) hy__store_f(each.dtype, l.slice[2].data, loss);
    sum += loss;
  }
  if (reduces) hy__store_f(call->out[0].dtype, call->out[0].data, sum / p.total);
  hy__mfree(p.v);
  return HY_OK;
}

hy_status hy__ref_cross_entropy_backward(const hy_call* call) {
  const hy_tensor *logits = &call->in[0], *dloss = &call->in[3], *dlogits = &call->out[0];
  hy_attrs_cross_entropy attrs = call->attrs.cross_entropy;
  double hard = 1 - attrs.label_smoothing;
  problem p;
  HY_TRY(begin(call, &p));
  double soft = attrs.label_smoothing / (double)p.classes;
  bool reduces = attrs.reduction != HY_REDUCTION_NONE;
  hy_tensor each = hy__keep_dims(dloss, logits->ndim, reduces ? ~0u : p.mask);
  hy__ref_slices l;
  hy__ref_slices_begin(&l, p.mask, 4, (const hy_tensor*[]){logits, &p.target, &each, dlogits});
  while (hy__ref_slices_next(&l)) {
    int64_t t = hy__load_i(p.target.dtype, l.slice[1].data);
    double g = hy__load_f(each.dtype, l.slice[2].data) / p.total;
    if (t != attrs.ignore_index) {
      hy__load_all_f(&l.slice[0], p.v);
      log_softmax(p.v, p.classes);
    }
    for (int64_t c = 0; c < p.classes; c++) {
      if (t == attrs.ignore_index) {
        p.v[c] = 0;
        continue;
      }
      double probability = exp(p.v[c]);
      p.v[c] = g * (hard * p.weight[t] * (probability - (c == t)) +
                    soft * (p.weight_sum * probability - p.weight[c]));
    }
    hy__store_all_f(&l.slice[3], p.v);
  }
  hy__mfree(p.v);
  return HY_OK;
}
