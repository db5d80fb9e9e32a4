// einsum: a planned sequence of pairwise contractions as bmm on any device.
#include "ops/einsum_run.h"

// A view whose dimensions have distinct labels and no size of 1, and memory to free with it.
typedef struct term {
  hy_tensor view;
  hy__subscript at;
  void* memory;
} term;

static hy__labels set_of(const hy__subscript* s) {
  hy__labels set = 0;
  for (int d = 0; d < s->rank; d++) set |= (hy__labels)1 << s->label[d];
  return set;
}

static bool has(hy__labels set, int label) {
  return set >> label & 1;
}

// Which dimension has the label; -1 when none has.
static int find(const hy__subscript* s, int label) {
  for (int d = 0; d < s->rank; d++) {
    if (s->label[d] == label) return d;
  }
  return -1;
}

static void append(hy__subscript* s, int label) {
  s->label[s->rank++] = (int8_t)label;
}

// Appends the labels of `from` that are in the set, in their order.
static void append_all(hy__subscript* s, const hy__subscript* from, hy__labels set) {
  for (int d = 0; d < from->rank; d++) {
    if (has(set, from->label[d])) append(s, from->label[d]);
  }
}

// A tensor under its subscripts: diagonals become strides, sizes of 1 go.
static term term_of(const hy_tensor* t, const hy__subscript* s) {
  term r = {.view = *t};
  for (int d = 0; d < s->rank; d++) {
    if (t->shape[d] == 1) continue;
    int own = find(&r.at, s->label[d]);
    if (own >= 0) {
      r.view.stride[own] += t->stride[d];
      continue;
    }
    r.view.shape[r.at.rank] = t->shape[d];
    r.view.stride[r.at.rank] = t->stride[d];
    append(&r.at, s->label[d]);
  }
  r.view.ndim = r.at.rank;
  return r;
}

// The term's view with its dimensions in another order; labels it lacks become sizes of 1.
static hy_tensor arrange(const term* t, const hy__subscript* order) {
  hy_tensor view = t->view;
  view.ndim = order->rank;
  for (int d = 0; d < order->rank; d++) {
    int own = find(&t->at, order->label[d]);
    view.shape[d] = own < 0 ? 1 : t->view.shape[own];
    view.stride[d] = own < 0 ? 0 : t->view.stride[own];
  }
  return view;
}

// A contiguous term of its own.
static hy_status new_term(hy_stream* stream, const hy__einsum* e, hy_dtype dtype,
                          const hy__subscript* labels, term* t) {
  int64_t shape[HY_MAX_DIMS];
  t->at = *labels;
  for (int d = 0; d < labels->rank; d++) shape[d] = e->size[labels->label[d]];
  HY_TRY(hy_tensor_init(&t->view, NULL, dtype, labels->rank, shape));
  HY_TRY(hy_alloc(stream, hy_tensor_bytes(&t->view), &t->memory));
  t->view.data = t->memory;
  return HY_OK;
}

static void free_term(hy_stream* stream, term* t) {
  if (t->memory) hy_free(hy_stream_device(stream), t->memory);
  t->memory = NULL;
}

// Sums away the dimensions outside `keep` and stores the rest, in whatever order `into` has it.
static hy_status reduce_into(hy_stream* stream, const hy__einsum* e, const term* t, hy__labels keep,
                             const term* into) {
  hy_dims dims = {.n = 0};
  hy__subscript rest = {0};
  append_all(&rest, &t->at, keep);
  for (int d = 0; d < t->at.rank; d++) {
    if (!has(keep, t->at.label[d])) dims.dim[dims.n++] = d;
  }
  hy_tensor out = arrange(into, &rest);
  if (dims.n == 0) return hy_copy(stream, &out, &t->view);
  if (!hy_dtype_is_int(out.dtype)) return hy_sum(stream, &out, &t->view, dims, false);
  // Sums of integers are i64; stored back they wrap, as the products do.
  term wide = {0};
  HY_TRY(new_term(stream, e, HY_I64, &rest, &wide));
  hy_status status = hy_sum(stream, &wide.view, &t->view, dims, false);
  if (status == HY_OK) status = hy_copy(stream, &out, &wide.view);
  free_term(stream, &wide);
  return status;
}

// ---- contraction of two terms ----

// The term as a batch of matrices: each of the three lists of labels merged into one dimension.
// Where strides do not allow that, a contiguous copy is made, which `copy` then owns.
typedef struct grouping {
  hy__subscript list[3];
} grouping;

static bool merge(const term* t, const grouping* g, hy_tensor* out) {
  out->ndim = 3;
  int64_t next = 1;  // what a contiguous view's stride would be, for sizes of 1
  for (int i = 2; i >= 0; i--) {
    const hy__subscript* s = &g->list[i];
    int64_t size = 1, stride = next;
    for (int d = s->rank - 1; d >= 0; d--) {
      int own = find(&t->at, s->label[d]);
      if (size == 1)
        stride = t->view.stride[own];
      else if (t->view.stride[own] != stride * size)
        return false;
      size *= t->view.shape[own];
    }
    out->shape[i] = size;
    out->stride[i] = stride;
    next = size * stride;
  }
  return true;
}

static hy__subscript join(const grouping* g) {
  hy__subscript all = {0};
  for (int i = 0; i < 3; i++) append_all(&all, &g->list[i], ~(hy__labels)0);
  return all;
}

static hy_status as_matrices(hy_stream* stream, const hy__einsum* e, const term* t,
                             const grouping* g, hy_tensor* out, term* copy) {
  *out = t->view;
  if (merge(t, g, out)) return HY_OK;
  hy__subscript order = join(g);
  hy_tensor view = arrange(t, &order);
  HY_TRY(new_term(stream, e, t->view.dtype, &order, copy));
  HY_TRY(hy_copy(stream, &copy->view, &view));
  *out = copy->view;
  merge(copy, g, out);
  return HY_OK;
}

// Labels that both have and nobody needs are summed over; with none of those it is an elementwise
// product.
static hy_status contract_into(hy_stream* stream, const hy__einsum* e, const term* a, const term* b,
                               const term* into) {
  hy__labels in_a = set_of(&a->at), in_b = set_of(&b->at), kept = set_of(&into->at);
  hy__labels inner = in_a & in_b & ~kept;
  if (!inner) {
    hy_tensor x = arrange(a, &into->at), y = arrange(b, &into->at), out = into->view;
    return hy_mul(stream, &out, &x, &y);
  }
  grouping left = {0}, right = {0}, result = {0};
  append_all(&left.list[0], &into->at, in_a & in_b);
  append_all(&left.list[1], &into->at, in_a & ~in_b);
  append_all(&left.list[2], &a->at, inner);
  right.list[0] = result.list[0] = left.list[0];
  right.list[1] = left.list[2];
  append_all(&right.list[2], &into->at, in_b & ~in_a);
  result.list[1] = left.list[1];
  result.list[2] = right.list[2];
  term left_copy = {0}, right_copy = {0}, product = {0};
  hy_tensor x, y, out = into->view;
  hy_status status = as_matrices(stream, e, a, &left, &x, &left_copy);
  if (status == HY_OK) status = as_matrices(stream, e, b, &right, &y, &right_copy);
  bool direct = merge(into, &result, &out);
  if (status == HY_OK && !direct) {
    hy__subscript order = join(&result);
    status = new_term(stream, e, into->view.dtype, &order, &product);
    out = product.view;
    if (status == HY_OK) merge(&product, &result, &out);
  }
  if (status == HY_OK) status = hy_bmm(stream, &out, &x, &y);
  if (status == HY_OK && !direct) {
    hy_tensor to = arrange(into, &product.at);
    status = hy_copy(stream, &to, &product.view);
  }
  free_term(stream, &product);
  free_term(stream, &right_copy);
  free_term(stream, &left_copy);
  return status;
}

// ---- the plan ----

static hy_status run_steps(hy_stream* stream, const hy_call* call, const hy__einsum* e,
                           const hy__einsum_plan* plan, term* terms) {
  int n = e->n_operands;
  term out = term_of(&call->out[0], &e->out);
  for (int k = 0; k < n; k++) {
    terms[k] = term_of(&call->in[k], &e->operand[k]);
    if (n == 1) return reduce_into(stream, e, &terms[0], plan->out, &out);
    if (plan->kept[k] == plan->given[k]) continue;
    term reduced = {0};
    hy__subscript labels = {0};
    append_all(&labels, &terms[k].at, plan->kept[k]);
    HY_TRY(new_term(stream, e, call->out[0].dtype, &labels, &reduced));
    hy_status status = reduce_into(stream, e, &terms[k], plan->kept[k], &reduced);
    terms[k] = reduced;
    HY_TRY(status);
  }
  for (int i = 0; i < plan->n_steps; i++) {
    term *a = &terms[plan->step[i].a], *b = &terms[plan->step[i].b], *result = &terms[n + i];
    if (i == plan->n_steps - 1) return contract_into(stream, e, a, b, &out);
    hy__labels kept = plan->kept[n + i];
    hy__subscript labels = {0};
    append_all(&labels, &a->at, kept & set_of(&b->at));
    append_all(&labels, &a->at, kept & ~set_of(&b->at));
    append_all(&labels, &b->at, kept & ~set_of(&a->at));
    HY_TRY(new_term(stream, e, call->out[0].dtype, &labels, result));
    HY_TRY(contract_into(stream, e, a, b, result));
    free_term(stream, a);
    free_term(stream, b);
  }
  return HY_OK;
}

static hy_status run_plan(hy_stream* stream, const hy_call* call, const hy__einsum* e,
                          const hy__einsum_plan* plan) {
  term terms[2 * HY_MAX_INPUTS];
  for (int i = 0; i < 2 * HY_MAX_INPUTS; i++) terms[i].memory = NULL;
  hy_status status = run_steps(stream, call, e, plan, terms);
  for (int i = 0; i < 2 * HY_MAX_INPUTS; i++) free_term(stream, &terms[i]);
  return status;
}

// Whether results of steps would be rounded to a half type before the last one.
static bool loses_bits(const hy_call* call, const hy__einsum* e, const hy__einsum_plan* plan) {
  hy_dtype dtype = call->out[0].dtype;
  bool between = plan->n_steps > 1;
  for (int k = 0; k < e->n_operands && e->n_operands > 1; k++)
    between |= plan->kept[k] != plan->given[k];
  return between && (dtype == HY_F16 || dtype == HY_BF16);
}

// The same plan over copies in f32.
static hy_status run_widened(hy_stream* stream, const hy_call* call, const hy__einsum* e,
                             const hy__einsum_plan* plan) {
  hy_tensor in[HY_MAX_INPUTS], out;
  term wide[HY_MAX_INPUTS + 1];
  hy_call widened = *call;
  hy_status status = HY_OK;
  int n = e->n_operands, made = 0;
  for (; made <= n && status == HY_OK; made++) {
    const hy_tensor* t = made < n ? &call->in[made] : &call->out[0];
    wide[made].memory = NULL;
    status = hy_tensor_init(&wide[made].view, NULL, HY_F32, t->ndim, t->shape);
    if (status == HY_OK)
      status = hy_alloc(stream, hy_tensor_bytes(&wide[made].view), &wide[made].memory);
    wide[made].view.data = wide[made].memory;
    if (status == HY_OK && made < n) status = hy_copy(stream, &wide[made].view, t);
    if (made < n)
      in[made] = wide[made].view;
    else
      out = wide[made].view;
  }
  widened.in = in;
  widened.out = &out;
  if (status == HY_OK) status = run_plan(stream, &widened, e, plan);
  if (status == HY_OK) status = hy_copy(stream, &call->out[0], &out);
  for (int i = 0; i < made; i++) free_term(stream, &wide[i]);
  return status;
}

hy_status hy__einsum_run(hy_stream* stream, const hy_call* call, const hy__einsum* e,
                         const hy__einsum_plan* plan) {
  // A label of size 0 in the output would leave nothing to do; elsewhere it is an empty sum.
  for (int i = 0; i < HY__EINSUM_LABELS; i++) {
    if (e->size[i] == 0) return hy_fill(stream, &call->out[0], hy_int(0));
  }
  if (loses_bits(call, e, plan)) return run_widened(stream, call, e, plan);
  return run_plan(stream, call, e, plan);
}
