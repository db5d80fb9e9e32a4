// Low-rank updates of layers that read one x, as LoRA has them beside q, k and v: x meets the first
// factors of all layers in one product, and the gradients of that product are written side by side.
#include "ops/autograd/grad.h"

// Inputs: low, the layers' y, their b. low has the columns of one layer after the other.
static int count_layers(const hy__grad* g) {
  return (g->node->n_in - 1) / 2;
}

// y + scaling low b'                         dlow = scaling dy b, db = scaling dy' low
HY__RULE(add_low_rank, 0) {
  int n = count_layers(g);
  double scaling = hy_scalar_f(g_attrs(g)->addmm.alpha);
  hy_array* low = g_in(g, 0);
  hy_array* dlow = NULL;
  if (g_wants(g, 0) && low) dlow = hy_s_empty(&g->scope, low->view.dtype, 2, low->view.shape);
  const hy_attrs attrs = {.addmm = {.beta = hy_int(0), .alpha = hy_float(scaling)}};
  int64_t at = 0;
  for (int i = 0; i < n && g->scope.status == HY_OK; i++) {
    hy_array *b = g_in(g, 1 + n + i), *dy = g->dys[i];
    int64_t end = at + b->view.shape[1];
    hy_array* to = dlow ? g_slice(g, dlow, 1, at, end, 1) : NULL;
    if (dy) {
      g_give(g, 1 + i, dy);
      g_give_mm(g, 1 + n + i, g_transpose(g, dy), g_slice(g, low, 1, at, end, 1), scaling);
      if (to) hy_s_apply_into(&g->scope, HY_OP_addmm, (hy_array*[]){to, dy, b}, 3, &attrs, to);
    } else if (to) {
      hy_s_fill(&g->scope, to, hy_int(0));
    }
    at = end;
  }
  if (dlow) g_give(g, 0, dlow);
}

static hy_status check(hy_tape* tape, hy_array** out, hy_array* const* ys, int n, hy_array* low,
                       hy_array* const* bs) {
  const char* what = "hy_array_add_low_rank";
  if (!tape || !out || !ys || !low || !bs)
    return hy_fail(HY_INVALID_ARGUMENT, "%s: an argument is NULL", what);
  if (n < 1 || n > HY_MAX_OUTPUTS)
    return hy_fail(HY_INVALID_ARGUMENT, "%s: 1 to %d layers, not %d", what, HY_MAX_OUTPUTS, n);
  HY_TRY(hy__array_check_on(tape, what, low));
  int64_t columns = 0;
  for (int i = 0; i < n; i++) {
    HY_TRY(hy__array_check_on(tape, what, ys[i]));
    HY_TRY(hy__array_check_on(tape, what, bs[i]));
    if (bs[i]->view.ndim != 2)
      return hy_fail(HY_SHAPE, "%s: b of layer %d is [outputs, rank], not %s", what, i,
                     hy_tensor_describe(&bs[i]->view, (char[160]){0}, 160));
    columns += bs[i]->view.shape[1];
  }
  if (low->view.ndim != 2 || low->view.shape[1] != columns)
    return hy_fail(HY_SHAPE, "%s: low is %s; the layers' ranks add up to %lld columns", what,
                   hy_tensor_describe(&low->view, (char[160]){0}, 160), (long long)columns);
  return HY_OK;
}

static hy_status record(hy_tape* tape, hy_array* const* out, hy_array* const* ys, int n,
                        hy_array* low, hy_array* const* bs, double scaling) {
  hy__node* node;
  hy_array* inputs[1 + 2 * HY_MAX_OUTPUTS] = {low};
  for (int i = 0; i < n; i++) {
    inputs[1 + i] = ys[i];
    inputs[1 + n + i] = bs[i];
  }
  HY_TRY(hy__node_new(tape, &hy__grad_add_low_rank, inputs, 1 + 2 * n, &node));
  node->step.attrs = (hy_attrs){.addmm = {.beta = hy_int(1), .alpha = hy_float(scaling)}};
  hy__node_save(&node->in[0].saved, low);
  hy_status status = HY_OK;
  for (int i = 0; i < n && status == HY_OK; i++) {
    hy__node_save(&node->in[1 + n + i].saved, bs[i]);
    status = hy__node_attach(node, i, out[i]);
  }
  hy__node_release(node);
  return status;
}

hy_status hy_array_add_low_rank(hy_tape* tape, hy_array** out, hy_array* const* ys, int n,
                                hy_array* low, hy_array* const* bs, double scaling) {
  hy_array* made[HY_MAX_OUTPUTS] = {NULL};
  HY_TRY(check(tape, out, ys, n, low, bs));
  bool recorded =
      hy__tape_wants(tape, &low, 1) || hy__tape_wants(tape, ys, n) || hy__tape_wants(tape, bs, n);
  bool was = hy_tape_set_recording(tape, false);
  hy_scope s;
  hy_scope_begin(&s, tape);
  int64_t at = 0;
  for (int i = 0; i < n; i++) {
    int64_t end = at + bs[i]->view.shape[1];
    made[i] = hy_s_addmm(&s, ys[i], hy_s_slice(&s, low, 1, at, end, 1),
                         hy_s_transpose(&s, bs[i], 0, 1), hy_int(1), hy_float(scaling));
    at = end;
  }
  hy_tape_set_recording(tape, was);
  if (recorded) HY_SCOPE_TRY(&s, record(tape, made, ys, n, low, bs, scaling));
  for (int i = 0; i < n; i++) out[i] = hy_scope_give(&s, made[i]);
  return hy_scope_end(&s);
}
