// Whether two views share an element.
#include "ops/overlap.h"

// Looks for an index of both views with the same address: sum(x[i] * step[i]) == target with 0 <=
// x[i] <= limit[i]. The views' dimensions become terms, the second view's with their direction
// turned. Terms are sorted by step, so that the bounds of what the rest can still reach cut the
// search; `budget` bounds it.
typedef struct term {
  int64_t step, limit;
} term;

static bool reachable(const term* terms, int n, const int64_t* reach, int64_t target, int* budget) {
  if (target == 0) return true;
  if (n == 0 || target < 0 || target > reach[0]) return false;
  if (--*budget < 0) return true;
  int64_t most = target / terms[0].step;
  if (most > terms[0].limit) most = terms[0].limit;
  // The rest must cover what this term leaves.
  for (int64_t x = most; x >= 0; x--) {
    int64_t left = target - x * terms[0].step;
    if (left > reach[1]) break;
    if (reachable(terms + 1, n - 1, reach + 1, left, budget)) return true;
  }
  return false;
}

// Appends the dimensions of a view in bytes, all steps made positive, and its elements' own bytes.
static int append_terms(const hy_tensor* t, term* terms, int n) {
  int64_t size = (int64_t)hy_dtype_size(t->dtype);
  for (int d = 0; d < t->ndim; d++) {
    int64_t stride = t->stride[d] < 0 ? -t->stride[d] : t->stride[d];
    if (t->shape[d] > 1 && stride > 0) terms[n++] = (term){stride * size, t->shape[d] - 1};
  }
  if (size > 1) terms[n++] = (term){1, size - 1};
  return n;
}

bool hy__tensors_overlap(const hy_tensor* a, const hy_tensor* b) {
  int64_t a_first, a_last, b_first, b_last;
  hy_tensor_extent(a, &a_first, &a_last);
  hy_tensor_extent(b, &b_first, &b_last);
  a_first += (int64_t)(intptr_t)a->data;
  a_last += (int64_t)(intptr_t)a->data;
  b_first += (int64_t)(intptr_t)b->data;
  b_last += (int64_t)(intptr_t)b->data;
  if (a_first == a_last || b_first == b_last || a_last <= b_first || b_last <= a_first)
    return false;
  if (a->layout != HY_LAYOUT_STRIDED || b->layout != HY_LAYOUT_STRIDED) return true;
  // a_first + A == b_first + B, with A and B sums over the views; with B' = (B's most) - B this is
  // A + B' == b_last - 1 - a_first.
  term terms[2 * HY_MAX_DIMS + 2];
  int n = append_terms(b, terms, append_terms(a, terms, 0));
  for (int i = 1; i < n; i++) {
    term t = terms[i];
    int at = i;
    for (; at > 0 && terms[at - 1].step < t.step; at--) terms[at] = terms[at - 1];
    terms[at] = t;
  }
  int64_t reach[2 * HY_MAX_DIMS + 3];
  reach[n] = 0;
  for (int i = n - 1; i >= 0; i--) reach[i] = reach[i + 1] + terms[i].step * terms[i].limit;
  int budget = 4096;
  return reachable(terms, n, reach, b_last - 1 - a_first, &budget);
}

bool hy__tensor_is_same_view(const hy_tensor* a, const hy_tensor* b) {
  if (a->data != b->data || a->layout != b->layout || a->ndim != b->ndim ||
      hy_dtype_bits(a->dtype) != hy_dtype_bits(b->dtype))
    return false;
  for (int d = 0; d < a->ndim; d++) {
    if (a->shape[d] != b->shape[d]) return false;
    if (a->shape[d] > 1 && a->stride[d] != b->stride[d]) return false;
  }
  return true;
}

bool hy__tensor_overlaps_itself(const hy_tensor* t) {
  if (t->layout != HY_LAYOUT_STRIDED) return false;
  // Sorted by stride, each dimension must step over the whole reach of the smaller ones. Views that
  // interleave without meeting are refused too; none of the view functions makes one.
  int64_t stride[HY_MAX_DIMS], size[HY_MAX_DIMS];
  int n = 0;
  for (int d = 0; d < t->ndim; d++) {
    if (t->shape[d] == 0) return false;
    if (t->shape[d] == 1) continue;
    int64_t s = t->stride[d] < 0 ? -t->stride[d] : t->stride[d];
    int at = n++;
    for (; at > 0 && stride[at - 1] > s; at--) {
      stride[at] = stride[at - 1];
      size[at] = size[at - 1];
    }
    stride[at] = s;
    size[at] = t->shape[d];
  }
  int64_t reach = 0;
  for (int i = 0; i < n; i++) {
    if (stride[i] <= reach) return true;
    reach += stride[i] * (size[i] - 1);
  }
  return false;
}
