// Views: new shapes and strides over the same memory.
#include <string.h>

#include "core/internal.h"

#define DESCRIBE(t) hy_tensor_describe(t, (char[160]){0}, 160)

static hy_status check_view(const char* what, const hy_tensor* out, const hy_tensor* t) {
  if (!out || !t) return hy_fail(HY_INVALID_ARGUMENT, "%s: a tensor is NULL", what);
  HY_TRY(hy_tensor_check(t));
  if (t->layout != HY_LAYOUT_STRIDED)
    return hy_fail(HY_LAYOUT, "%s: a %s tensor has no views", what, hy_layout_name(t->layout));
  return HY_OK;
}

// The dimension's index, or -1 after setting the message.
static int wrap(const char* what, int dim, int ndim, const hy_tensor* t) {
  if (dim < -ndim || dim >= ndim) {
    hy_fail(HY_SHAPE, "%s: dimension %d is none of the %d of %s", what, dim, ndim, DESCRIBE(t));
    return -1;
  }
  return dim < 0 ? dim + ndim : dim;
}

static char* advance(const hy_tensor* t, int64_t elements) {
  return (char*)t->data + elements * (int64_t)hy_dtype_size(t->dtype);
}

// Resolves one -1 in `shape` and checks that the number of elements stays.
static hy_status resolve_shape(const hy_tensor* t, int ndim, const int64_t* shape,
                               int64_t* resolved) {
  if (ndim < 0 || ndim > HY_MAX_DIMS)
    return hy_fail(HY_SHAPE, "view: a tensor has 0 to %d dimensions, not %d", HY_MAX_DIMS, ndim);
  if (ndim > 0 && !shape) return hy_fail(HY_INVALID_ARGUMENT, "view: the shape is NULL");
  int64_t numel = hy_tensor_numel(t), known = 1;
  int open = -1;
  for (int d = 0; d < ndim; d++) {
    resolved[d] = shape[d];
    if (shape[d] == -1 && open < 0) {
      open = d;
    } else if (shape[d] < 0) {
      return hy_fail(HY_SHAPE, "view: size %lld in dimension %d; at most one -1 is allowed",
                     (long long)shape[d], d);
    } else if (__builtin_mul_overflow(known, shape[d], &known)) {
      return hy_fail(HY_SHAPE, "view: the number of elements overflows 64 bits");
    }
  }
  if (open >= 0) {
    if (known == 0)
      return hy_fail(HY_SHAPE, "view: -1 cannot be resolved beside a dimension of size 0");
    resolved[open] = numel / known;
    known *= resolved[open];
  }
  if (known != numel)
    return hy_fail(HY_SHAPE, "view: %s has %lld elements, the new shape has %lld", DESCRIBE(t),
                   (long long)numel, (long long)known);
  return HY_OK;
}

// A view costs nothing, but whoever watches wants to see it.
static hy_status made(const char* name, const hy_tensor* view) {
  int64_t begin = hy__trace_begin();
  if (begin) {
    hy__trace_event event = {.kind = HY__TRACE_VIEW, .name = name, .detail = DESCRIBE(view)};
    hy__trace_end(begin, &event);
  }
  return HY_OK;
}

hy_status hy_view(hy_tensor* out, const hy_tensor* t, int ndim, const int64_t* shape) {
  HY_TRY(check_view("view", out, t));
  hy_tensor view = *t;
  HY_TRY(resolve_shape(t, ndim, shape, view.shape));
  view.ndim = ndim;
  if (hy_tensor_numel(t) == 0 || hy_tensor_is_contiguous(t)) {
    int64_t stride = 1;
    for (int d = ndim - 1; d >= 0; d--) {
      view.stride[d] = stride;
      stride *= view.shape[d] > 1 ? view.shape[d] : 1;
    }
    *out = view;
    return made("view", out);
  }
  // Walk both shapes from the end. `run` is the size of the current stretch of old dimensions that
  // one stride describes; new dimensions must divide it.
  int new_dim = ndim - 1;
  int64_t run = 1, taken = 1, base = t->stride[t->ndim - 1];
  for (int d = t->ndim - 1; d >= 0; d--) {
    run *= t->shape[d];
    bool ends = d == 0 || (t->shape[d - 1] != 1 && t->stride[d - 1] != run * base);
    if (!ends) continue;
    while (new_dim >= 0 && (taken < run || view.shape[new_dim] == 1)) {
      view.stride[new_dim] = taken * base;
      taken *= view.shape[new_dim--];
    }
    if (taken != run)
      return hy_fail(HY_LAYOUT, "view: the strides of %s do not allow this shape; clone it first",
                     DESCRIBE(t));
    if (d > 0) base = t->stride[d - 1];
    run = taken = 1;
  }
  *out = view;
  return made("view", out);
}

hy_status hy_transpose(hy_tensor* out, const hy_tensor* t, int dim0, int dim1) {
  HY_TRY(check_view("transpose", out, t));
  int a = wrap("transpose", dim0, t->ndim, t), b = a < 0 ? -1 : wrap("transpose", dim1, t->ndim, t);
  if (a < 0 || b < 0) return HY_SHAPE;
  hy_tensor view = *t;
  view.shape[a] = t->shape[b];
  view.stride[a] = t->stride[b];
  view.shape[b] = t->shape[a];
  view.stride[b] = t->stride[a];
  *out = view;
  return made("transpose", out);
}

hy_status hy_permute(hy_tensor* out, const hy_tensor* t, const int* dims) {
  HY_TRY(check_view("permute", out, t));
  if (t->ndim > 0 && !dims) return hy_fail(HY_INVALID_ARGUMENT, "permute: the order is NULL");
  hy_tensor view = *t;
  unsigned seen = 0;
  for (int i = 0; i < t->ndim; i++) {
    int d = wrap("permute", dims[i], t->ndim, t);
    if (d < 0) return HY_SHAPE;
    if (seen & (1u << d)) return hy_fail(HY_SHAPE, "permute: dimension %d is named twice", d);
    seen |= 1u << d;
    view.shape[i] = t->shape[d];
    view.stride[i] = t->stride[d];
  }
  *out = view;
  return made("permute", out);
}

hy_status hy_squeeze(hy_tensor* out, const hy_tensor* t, int dim) {
  HY_TRY(check_view("squeeze", out, t));
  int at = wrap("squeeze", dim, t->ndim, t);
  if (at < 0) return HY_SHAPE;
  hy_tensor view = *t;
  if (t->shape[at] == 1) {
    view.ndim--;
    for (int d = at; d < view.ndim; d++) {
      view.shape[d] = t->shape[d + 1];
      view.stride[d] = t->stride[d + 1];
    }
  }
  *out = view;
  return made("squeeze", out);
}

hy_status hy_unsqueeze(hy_tensor* out, const hy_tensor* t, int dim) {
  HY_TRY(check_view("unsqueeze", out, t));
  if (t->ndim == HY_MAX_DIMS)
    return hy_fail(HY_SHAPE, "unsqueeze: a tensor has at most %d dimensions", HY_MAX_DIMS);
  int at = wrap("unsqueeze", dim, t->ndim + 1, t);
  if (at < 0) return HY_SHAPE;
  hy_tensor view = *t;
  for (int d = t->ndim; d > at; d--) {
    view.shape[d] = t->shape[d - 1];
    view.stride[d] = t->stride[d - 1];
  }
  view.shape[at] = 1;
  view.stride[at] = at < t->ndim ? t->shape[at] * t->stride[at] : 1;
  view.ndim++;
  *out = view;
  return made("unsqueeze", out);
}

hy_status hy_expand(hy_tensor* out, const hy_tensor* t, int ndim, const int64_t* shape) {
  HY_TRY(check_view("expand", out, t));
  if (ndim < t->ndim || ndim > HY_MAX_DIMS)
    return hy_fail(HY_SHAPE, "expand: %d dimensions from %s", ndim, DESCRIBE(t));
  if (ndim > 0 && !shape) return hy_fail(HY_INVALID_ARGUMENT, "expand: the shape is NULL");
  hy_tensor view = *t;
  view.ndim = ndim;
  int lead = ndim - t->ndim;
  for (int d = 0; d < ndim; d++) {
    int64_t have = d < lead ? 1 : t->shape[d - lead];
    int64_t want = shape[d] == -1 && d >= lead ? have : shape[d];
    if (want < 0 || (want != have && have != 1))
      return hy_fail(HY_SHAPE, "expand: size %lld cannot become %lld in dimension %d of %s",
                     (long long)have, (long long)shape[d], d, DESCRIBE(t));
    view.shape[d] = want;
    view.stride[d] = d < lead || (have == 1 && want != 1) ? 0 : t->stride[d - lead];
  }
  HY_TRY(hy_tensor_check(&view));
  *out = view;
  return made("expand", out);
}

hy_status hy_slice(hy_tensor* out, const hy_tensor* t, int dim, int64_t start, int64_t stop,
                   int64_t step) {
  HY_TRY(check_view("slice", out, t));
  int d = wrap("slice", dim, t->ndim, t);
  if (d < 0) return HY_SHAPE;
  if (step < 1)
    return hy_fail(HY_INVALID_ARGUMENT, "slice: the step is at least 1, not %lld", (long long)step);
  int64_t size = t->shape[d];
  if (start < 0) start += size;
  if (stop < 0) stop += size;
  start = start < 0 ? 0 : start > size ? size : start;
  stop = stop < start ? start : stop > size ? size : stop;
  hy_tensor view = *t;
  int64_t length = stop - start;
  view.shape[d] = length / step + (length % step != 0);
  if (view.shape[d] > 1 && __builtin_mul_overflow(t->stride[d], step, &view.stride[d]))
    return hy_fail(HY_SHAPE, "slice: the stride overflows 64 bits");
  view.data = advance(t, length > 0 ? start * t->stride[d] : 0);
  *out = view;
  return made("slice", out);
}

hy_status hy_select(hy_tensor* out, const hy_tensor* t, int dim, int64_t index) {
  HY_TRY(check_view("select", out, t));
  int at = wrap("select", dim, t->ndim, t);
  if (at < 0) return HY_SHAPE;
  int64_t size = t->shape[at];
  if (index < -size || index >= size)
    return hy_fail(HY_INDEX, "select: index %lld in dimension %d of %s", (long long)index, at,
                   DESCRIBE(t));
  hy_tensor view = *t;
  view.data = advance(t, (index < 0 ? index + size : index) * t->stride[at]);
  view.ndim--;
  for (int d = at; d < view.ndim; d++) {
    view.shape[d] = t->shape[d + 1];
    view.stride[d] = t->stride[d + 1];
  }
  *out = view;
  return made("select", out);
}

hy_status hy_flip(hy_tensor* out, const hy_tensor* t, int dim) {
  HY_TRY(check_view("flip", out, t));
  int d = wrap("flip", dim, t->ndim, t);
  if (d < 0) return HY_SHAPE;
  hy_tensor view = *t;
  view.data = advance(t, t->shape[d] > 1 ? (t->shape[d] - 1) * t->stride[d] : 0);
  view.stride[d] = t->shape[d] > 1 ? -t->stride[d] : t->stride[d];
  *out = view;
  return made("flip", out);
}

hy_status hy_as_strided(hy_tensor* out, const hy_tensor* t, int ndim, const int64_t* shape,
                        const int64_t* stride, int64_t offset) {
  HY_TRY(check_view("as_strided", out, t));
  if (ndim < 0 || ndim > HY_MAX_DIMS)
    return hy_fail(HY_SHAPE, "as_strided: a tensor has 0 to %d dimensions, not %d", HY_MAX_DIMS,
                   ndim);
  if (ndim > 0 && (!shape || !stride))
    return hy_fail(HY_INVALID_ARGUMENT, "as_strided: shape or stride is NULL");
  hy_tensor view = *t;
  view.ndim = ndim;
  for (int d = 0; d < ndim; d++) {
    view.shape[d] = shape[d];
    view.stride[d] = stride[d];
  }
  HY_TRY(hy_tensor_check(&view));
  int64_t first, last, own_first, own_last, shift, size = (int64_t)hy_dtype_size(t->dtype);
  hy_tensor_extent(&view, &first, &last);
  hy_tensor_extent(t, &own_first, &own_last);
  if (__builtin_mul_overflow(offset, size, &shift) ||
      __builtin_add_overflow(first, shift, &first) || __builtin_add_overflow(last, shift, &last) ||
      (hy_tensor_numel(&view) > 0 && (first < own_first || last > own_last)))
    return hy_fail(HY_INDEX, "as_strided: the view would leave the memory of %s", DESCRIBE(t));
  view.data = (char*)t->data + (hy_tensor_numel(&view) > 0 ? shift : 0);
  *out = view;
  return made("as_strided", out);
}
