// Sorting along a dimension: stable, with NaN above every number, as PyTorch has it.
#include <math.h>

#include "ops/reference/scratch.h"
#include "ops/reference/slices.h"
#include "ops/rules/common.h"

typedef struct item {
  double f;   // the value, of a floating type
  int64_t i;  // the value, of an integer type
  int64_t at;
} item;

// Whether a must stand before b. Of the two values one is always 0 in both.
static bool before(const item* a, const item* b, bool descending) {
  if (descending) return a->f > b->f || (isnan(a->f) && !isnan(b->f)) || a->i > b->i;
  return a->f < b->f || (!isnan(a->f) && isnan(b->f)) || a->i < b->i;
}

// Merges runs of doubling length, between `items` and `spare` alternately; returns the one that
// holds the result.
static item* merge_sort(item* items, item* spare, int64_t n, bool descending) {
  for (int64_t run = 1; run < n; run *= 2) {
    for (int64_t low = 0; low < n; low += 2 * run) {
      int64_t middle = low + run < n ? low + run : n, high = middle + run < n ? middle + run : n;
      int64_t a = low, b = middle;
      for (int64_t to = low; to < high; to++) {
        bool take_right = a == middle || (b < high && before(&items[b], &items[a], descending));
        spare[to] = items[take_right ? b++ : a++];
      }
    }
    item* sorted = spare;
    spare = items;
    items = sorted;
  }
  return items;
}

// Sorts each slice of x and writes as many as the outputs hold.
static hy_status sort_lanes(const hy_call* call, int64_t dim, bool descending) {
  const hy_tensor *x = &call->in[0], *out = &call->out[0], *index = &call->out[1];
  bool in_double = hy__in_double(x->dtype);
  int wrapped = hy__wrap_dim(dim, x->ndim);
  uint32_t mask = x->ndim > 0 ? 1u << wrapped : 0;
  int64_t n = x->ndim > 0 ? x->shape[wrapped] : 1, kept = x->ndim > 0 ? out->shape[wrapped] : 1;
  item* items = hy__scratch(call, 2 * n, sizeof *items / 8);
  if (!items) return HY_OUT_OF_MEMORY;
  hy__ref_slices l;
  hy__ref_slices_begin(&l, mask, 3, (const hy_tensor*[]){x, out, index});
  while (hy__ref_slices_next(&l)) {
    for (int64_t i = 0; i < n; i++) {
      const char* from = hy__ref_slice_element(&l.slice[0], i);
      items[i] = (item){.f = in_double ? hy__load_f(x->dtype, from) : 0,
                        .i = in_double ? 0 : hy__load_i(x->dtype, from),
                        .at = i};
    }
    const item* sorted = merge_sort(items, items + n, n, descending);
    for (int64_t i = 0; i < kept; i++) {
      char* to = hy__ref_slice_element(&l.slice[1], i);
      if (in_double)
        hy__store_f(x->dtype, to, sorted[i].f);
      else
        hy__store_i(x->dtype, to, sorted[i].i);
      hy__store_i(HY_I64, hy__ref_slice_element(&l.slice[2], i), sorted[i].at);
    }
  }
  hy__mfree(items);
  return HY_OK;
}

hy_status hy__ref_sort(const hy_call* call) {
  return sort_lanes(call, call->attrs.sort.dim, call->attrs.sort.descending);
}

// Always sorted: whoever asks for any order cannot mind this one.
hy_status hy__ref_topk(const hy_call* call) {
  return sort_lanes(call, call->attrs.topk.dim, call->attrs.topk.largest);
}
