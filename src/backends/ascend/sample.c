// Sampling of the ascend backend, of plain ops: every setting is data, so that all steps are made
// for every row and those that are off change nothing. The host is not asked.
#include <math.h>

#include "backends/ascend/ascend.h"

static bool is_float(const hy_tensor* t) {
  return t->dtype == HY_F32 || t->dtype == HY_F16 || t->dtype == HY_BF16;
}

// Column i of the settings, [rows, 1].
static hy_tensor setting(const hy_tensor* settings, int i) {
  return hy__ascend_slice(settings, 1, i, 1);
}

static hy_tensor chosen_where(hy__ascend_task* task, const hy_tensor* condition, const hy_tensor* a,
                              const hy_tensor* b) {
  hy_tensor out = hy__ascend_temporary(task, b->dtype, b->ndim, b->shape);
  ASCEND_RUN(task, SWhere, ASCEND_T(condition), ASCEND_T(a), ASCEND_T(b), ASCEND_T(&out));
  return out;
}

// Logits with the repetition penalty, NaN as -inf.
static hy_tensor penalized(hy__ascend_task* task, const hy_call* call, const hy_tensor* settings) {
  const hy_tensor* seen = &call->in[3];
  hy_tensor given = hy__ascend_contiguous(task, &call->in[0], HY_F32);
  hy_tensor logits = hy__ascend_temporary(task, HY_F32, 2, given.shape);
  hy__ascend_copy(task, &logits, &given);
  if (hy__ascend_present(seen)) {
    hy_tensor penalty = setting(settings, 0);
    hy_tensor times = hy__ascend_binary(task, ASCEND_MUL, &logits, &penalty);
    hy_tensor over = hy__ascend_binary(task, ASCEND_DIV, &logits, &penalty);
    hy_tensor below = hy__ascend_compare_to(task, ASCEND_LT, &logits, 0);
    hy_tensor changed = chosen_where(task, &below, &times, &over);
    logits = chosen_where(task, seen, &changed, &logits);
  }
  hy_tensor unknown = hy__ascend_compare(task, ASCEND_NE, &logits, &logits);
  hy__ascend_masked_fill(task, &logits, &unknown, -INFINITY);
  return logits;
}

// The weight of each rank after top-k, top-p and min-p: f32 [rows, V], and which ranks are left.
static hy_tensor weights(hy__ascend_task* task, const hy_tensor* sorted, const hy_tensor* settings,
                         hy_tensor* dropped) {
  hy_tensor largest = hy__ascend_slice(sorted, 1, 0, 1);
  hy_tensor temperature = setting(settings, 1), top_k = setting(settings, 2),
            top_p = setting(settings, 3), min_p = setting(settings, 4);
  hy_tensor below = hy__ascend_binary(task, ASCEND_SUB, sorted, &largest);
  hy_tensor is_largest = hy__ascend_compare(task, ASCEND_EQ, sorted, &largest);
  hy__ascend_masked_fill(task, &below, &is_largest, 0);
  hy_tensor weight = hy__ascend_binary(task, ASCEND_DIV, &below, &temperature);
  ASCEND_RUN(task, Exp, ASCEND_T(&weight), ASCEND_T(&weight));
  hy_tensor ranks = hy__ascend_range(task, HY_F32, sorted->shape[1]);
  hy_tensor never = hy__ascend_compare_to(task, ASCEND_EQ, sorted, -INFINITY);
  hy_tensor beyond = hy__ascend_compare(task, ASCEND_GE, &ranks, &top_k);
  hy_tensor limits = hy__ascend_compare_to(task, ASCEND_GE, &top_k, 1);
  beyond = hy__ascend_compare(task, ASCEND_AND, &beyond, &limits);
  beyond = hy__ascend_compare(task, ASCEND_OR, &beyond, &never);
  hy__ascend_masked_fill(task, &weight, &beyond, 0);
  hy_tensor total = hy__ascend_row_sum(task, &weight);
  hy_tensor before = hy__ascend_temporary(task, HY_F32, 2, weight.shape);
  ASCEND_RUN(task, CumsumV2, ASCEND_T(&weight), 1, true, false, ASCEND_T(&before));
  hy_tensor share = hy__ascend_binary(task, ASCEND_MUL, &total, &top_p);
  hy_tensor enough = hy__ascend_compare(task, ASCEND_GE, &before, &share);
  hy_tensor cuts = hy__ascend_compare_to(task, ASCEND_LT, &top_p, 1);
  enough = hy__ascend_compare(task, ASCEND_AND, &enough, &cuts);
  hy_tensor unlikely = hy__ascend_compare(task, ASCEND_LT, &weight, &min_p);
  hy_tensor drop = hy__ascend_compare(task, ASCEND_OR, &enough, &unlikely);
  hy_tensor not_first = hy__ascend_compare_to(task, ASCEND_GE, &ranks, 1);
  drop = hy__ascend_compare(task, ASCEND_AND, &drop, &not_first);
  *dropped = hy__ascend_compare(task, ASCEND_OR, &drop, &beyond);
  hy__ascend_masked_fill(task, &weight, dropped, 0);
  return weight;
}

// How many are true in each row, f32 [rows, 1].
static hy_tensor count(hy__ascend_task* task, const hy_tensor* truths) {
  hy_tensor numbers = hy__ascend_as(task, truths, HY_F32);
  return hy__ascend_row_sum(task, &numbers);
}

hy_support hy__ascend_sample(hy__ascend_task* task, const hy_call* call) {
  const hy_tensor *x = &call->in[0], *out = &call->out[0];
  bool greedy = !hy__ascend_present(&call->in[1]);
  ASCEND_NEED(is_float(x) && out->dtype == HY_I64, NO_DTYPE);
  ASCEND_NEED(greedy || (call->in[1].dtype == HY_F32 && call->in[2].dtype == HY_F32), NO_DTYPE);
  // Ranks are counted in f32.
  ASCEND_NEED(x->shape[1] > 0 && x->shape[1] < 1 << 24, NO_SHAPE);
  hy_tensor settings = hy_tensor_absent();
  if (!greedy) settings = hy__ascend_contiguous(task, &call->in[1], HY_F32);
  hy_tensor logits = penalized(task, call, &settings);
  hy_tensor sorted = hy__ascend_temporary(task, HY_F32, 2, logits.shape);
  hy_tensor ids = hy__ascend_temporary(task, HY_I64, 2, logits.shape), dropped;
  ASCEND_RUN(task, Sort, ASCEND_T(&logits), true, 1, true, ASCEND_T(&sorted), ASCEND_T(&ids));
  if (greedy) {
    hy_tensor best = hy__ascend_slice(&sorted, 1, 0, 1), first = hy__ascend_slice(&ids, 1, 0, 1);
    hy_tensor chosen = hy__ascend_contiguous(task, &first, HY_I64);
    hy_tensor nothing = hy__ascend_compare_to(task, ASCEND_EQ, &best, -INFINITY);
    hy__ascend_masked_fill(task, &chosen, &nothing, -1);
    chosen = hy__ascend_view(&chosen, 1, out->shape);
    hy__ascend_copy(task, out, &chosen);
    return task->answer;
  }
  hy_tensor weight = weights(task, &sorted, &settings, &dropped);
  hy_tensor upto = hy__ascend_temporary(task, HY_F32, 2, weight.shape);
  ASCEND_RUN(task, CumsumV2, ASCEND_T(&weight), 1, false, false, ASCEND_T(&upto));
  hy_tensor draw = call->in[2];
  draw.ndim = 2;
  draw.shape[1] = 1;
  draw.stride[1] = 0;
  hy_tensor total = hy__ascend_row_sum(task, &weight);
  hy_tensor at = hy__ascend_binary(task, ASCEND_MUL, &total, &draw);
  // The rank is how many sums the draw has passed, and no later than the last that is left.
  hy_tensor passed = hy__ascend_compare(task, ASCEND_LE, &upto, &at);
  hy_tensor rank = count(task, &passed), left = hy__ascend_not(task, &dropped);
  hy_tensor last = count(task, &left);
  ASCEND_RUN(task, Adds, ASCEND_T(&last), ASCEND_F(-1), ASCEND_F(1), ASCEND_T(&last));
  ASCEND_RUN(task, Minimum, ASCEND_T(&rank), ASCEND_T(&last), ASCEND_T(&rank));
  hy_tensor temperature = setting(&settings, 1);
  hy_tensor cold = hy__ascend_compare_to(task, ASCEND_LE, &temperature, 0);
  hy__ascend_masked_fill(task, &rank, &cold, 0);
  const hy_scalar zero = hy_float(0), end = hy_float((double)x->shape[1] - 1);
  ASCEND_RUN(task, Clamp, ASCEND_T(&rank), hy__ascend_scalar(task, zero),
             hy__ascend_scalar(task, end), ASCEND_T(&rank));
  hy_tensor index = hy__ascend_as(task, &rank, HY_I64);
  hy_tensor chosen = hy__ascend_temporary(task, HY_I64, 2, index.shape);
  ASCEND_RUN(task, Gather, ASCEND_T(&ids), 1, ASCEND_T(&index), ASCEND_T(&chosen));
  hy_tensor largest = hy__ascend_slice(&sorted, 1, 0, 1);
  hy_tensor nothing = hy__ascend_compare_to(task, ASCEND_EQ, &largest, -INFINITY);
  hy__ascend_masked_fill(task, &chosen, &nothing, -1);
  chosen = hy__ascend_view(&chosen, 1, out->shape);
  hy__ascend_copy(task, out, &chosen);
  return task->answer;
}
