// Sampling composed of plain ops: every setting is data, so that all steps are made
// for every row and those that are off change nothing. The host is not asked.
#include <math.h>

#include "backends/common/composed.h"

// Column i of the settings, [rows, 1].
static hy_tensor setting(const hy_tensor* settings, int i) {
  return hy__slice(settings, 1, i, 1);
}

static hy_tensor chosen_where(hy__task* task, const hy_tensor* condition, const hy_tensor* a,
                              const hy_tensor* b) {
  hy_tensor out = hy__task_temporary(task, b->dtype, b->ndim, b->shape);
  hy__task_where(task, condition, a, b, &out);
  return out;
}

// Logits with the repetition penalty, NaN as -inf.
static hy_tensor penalized(hy__task* task, const hy_call* call, const hy_tensor* settings) {
  const hy_tensor* seen = &call->in[3];
  hy_tensor given = hy__task_contiguous(task, &call->in[0], HY_F32);
  hy_tensor logits = hy__task_temporary(task, HY_F32, 2, given.shape);
  hy__task_copy(task, &logits, &given);
  if (hy__present(seen)) {
    hy_tensor penalty = setting(settings, 0);
    hy_tensor times = hy__task_binary(task, HY_OP_mul, &logits, &penalty);
    hy_tensor over = hy__task_binary(task, HY_OP_div, &logits, &penalty);
    hy_tensor below = hy__task_compare_to(task, HY_OP_lt_scalar, &logits, 0);
    hy_tensor changed = chosen_where(task, &below, &times, &over);
    logits = chosen_where(task, seen, &changed, &logits);
  }
  hy_tensor unknown = hy__task_compare(task, HY_OP_ne, &logits, &logits);
  hy__task_masked_fill(task, &logits, &unknown, -INFINITY);
  return logits;
}

static hy_tensor running_sum(hy__task* task, const hy_tensor* t) {
  hy_tensor sum = hy__task_temporary(task, HY_F32, 2, t->shape);
  hy__task_call(task, HY_OP_cumsum, 1, t, &sum, (hy_attrs){.scan = {1, false}});
  return sum;
}

// What stands before each: the running sum, moved one place on.
static hy_tensor sum_before(hy__task* task, const hy_tensor* upto) {
  hy_tensor before = hy__task_temporary(task, HY_F32, 2, upto->shape);
  hy_tensor first = hy__slice(&before, 1, 0, 1);
  hy_tensor to = hy__slice(&before, 1, 1, upto->shape[1] - 1);
  hy_tensor from = hy__slice(upto, 1, 0, upto->shape[1] - 1);
  hy__task_fill(task, &first, hy_float(0));
  hy__task_copy(task, &to, &from);
  return before;
}

// The weight of each rank after top-k, top-p and min-p: f32 [rows, V], and which ranks are left.
static hy_tensor weights(hy__task* task, const hy_tensor* sorted, const hy_tensor* settings,
                         hy_tensor* dropped) {
  hy_tensor largest = hy__slice(sorted, 1, 0, 1);
  hy_tensor temperature = setting(settings, 1), top_k = setting(settings, 2),
            top_p = setting(settings, 3), min_p = setting(settings, 4);
  hy_tensor below = hy__task_binary(task, HY_OP_sub, sorted, &largest);
  hy_tensor is_largest = hy__task_compare(task, HY_OP_eq, sorted, &largest);
  hy__task_masked_fill(task, &below, &is_largest, 0);
  hy_tensor weight = hy__task_binary(task, HY_OP_div, &below, &temperature);
  hy__task_unary(task, HY_OP_exp, &weight, &weight);
  hy_tensor ranks = hy__task_range(task, HY_F32, sorted->shape[1]);
  hy_tensor never = hy__task_compare_to(task, HY_OP_eq_scalar, sorted, -INFINITY);
  hy_tensor beyond = hy__task_compare(task, HY_OP_ge, &ranks, &top_k);
  hy_tensor limits = hy__task_compare_to(task, HY_OP_ge_scalar, &top_k, 1);
  beyond = hy__task_compare(task, HY_OP_logical_and, &beyond, &limits);
  beyond = hy__task_compare(task, HY_OP_logical_or, &beyond, &never);
  hy__task_masked_fill(task, &weight, &beyond, 0);
  hy_tensor total = hy__task_row_sum(task, &weight);
  hy_tensor upto = running_sum(task, &weight), before = sum_before(task, &upto);
  hy_tensor share = hy__task_binary(task, HY_OP_mul, &total, &top_p);
  hy_tensor enough = hy__task_compare(task, HY_OP_ge, &before, &share);
  hy_tensor cuts = hy__task_compare_to(task, HY_OP_lt_scalar, &top_p, 1);
  enough = hy__task_compare(task, HY_OP_logical_and, &enough, &cuts);
  hy_tensor unlikely = hy__task_compare(task, HY_OP_lt, &weight, &min_p);
  hy_tensor drop = hy__task_compare(task, HY_OP_logical_or, &enough, &unlikely);
  hy_tensor not_first = hy__task_compare_to(task, HY_OP_ge_scalar, &ranks, 1);
  drop = hy__task_compare(task, HY_OP_logical_and, &drop, &not_first);
  *dropped = hy__task_compare(task, HY_OP_logical_or, &drop, &beyond);
  hy__task_masked_fill(task, &weight, dropped, 0);
  return weight;
}

// How many are true in each row, f32 [rows, 1].
static hy_tensor count(hy__task* task, const hy_tensor* truths) {
  hy_tensor numbers = hy__task_as(task, truths, HY_F32);
  return hy__task_row_sum(task, &numbers);
}

hy_support hy__composed_sample(hy__task* task, const hy_call* call) {
  const hy_tensor *x = &call->in[0], *out = &call->out[0];
  bool greedy = !hy__present(&call->in[1]);
  TASK_NEED(hy__is_half_or_f32(x) && out->dtype == HY_I64, NO_DTYPE);
  TASK_NEED(greedy || (call->in[1].dtype == HY_F32 && call->in[2].dtype == HY_F32), NO_DTYPE);
  // Ranks are counted in f32.
  TASK_NEED(x->shape[1] > 0 && x->shape[1] < 1 << 24, NO_SHAPE);
  hy_tensor settings = hy_tensor_absent();
  if (!greedy) settings = hy__task_contiguous(task, &call->in[1], HY_F32);
  hy_tensor logits = penalized(task, call, &settings);
  hy_tensor sorted = hy__task_temporary(task, HY_F32, 2, logits.shape);
  hy_tensor ids = hy__task_temporary(task, task->rules->index, 2, logits.shape), dropped;
  hy__task_sort(task, &logits, &sorted, &ids);
  if (greedy) {
    hy_tensor best = hy__slice(&sorted, 1, 0, 1), first = hy__slice(&ids, 1, 0, 1);
    hy_tensor chosen = hy__task_contiguous(task, &first, first.dtype);
    hy_tensor nothing = hy__task_compare_to(task, HY_OP_eq_scalar, &best, -INFINITY);
    hy__task_masked_fill(task, &chosen, &nothing, -1);
    chosen = hy__view(&chosen, 1, out->shape);
    hy__task_copy(task, out, &chosen);
    return task->answer;
  }
  hy_tensor weight = weights(task, &sorted, &settings, &dropped);
  hy_tensor upto = running_sum(task, &weight);
  hy_tensor draw = call->in[2];
  draw.ndim = 2;
  draw.shape[1] = 1;
  draw.stride[1] = 0;
  hy_tensor total = hy__task_row_sum(task, &weight);
  hy_tensor at = hy__task_binary(task, HY_OP_mul, &total, &draw);
  // The rank is how many sums the draw has passed, and no later than the last that is left.
  hy_tensor passed = hy__task_compare(task, HY_OP_le, &upto, &at);
  hy_tensor rank = count(task, &passed), left = hy__task_not(task, &dropped);
  hy_tensor last = count(task, &left);
  hy__task_shift(task, &last, -1);
  hy__task_binary_to(task, HY_OP_minimum, &rank, &last, &rank);
  hy_tensor temperature = setting(&settings, 1);
  hy_tensor cold = hy__task_compare_to(task, HY_OP_le_scalar, &temperature, 0);
  hy__task_masked_fill(task, &rank, &cold, 0);
  hy__task_clamp(task, &rank, hy_float(0), hy_float((double)x->shape[1] - 1), &rank);
  hy_tensor index = hy__task_index(task, &rank);
  hy_tensor chosen = hy__task_temporary(task, task->rules->index, 2, index.shape);
  const hy_tensor in[] = {ids, index};
  task->trusts = true;
  hy__task_call(task, HY_OP_gather, 2, in, &chosen, (hy_attrs){.dim = {1}});
  hy_tensor largest = hy__slice(&sorted, 1, 0, 1);
  hy_tensor nothing = hy__task_compare_to(task, HY_OP_eq_scalar, &largest, -INFINITY);
  hy__task_masked_fill(task, &chosen, &nothing, -1);
  chosen = hy__view(&chosen, 1, out->shape);
  hy__task_copy(task, out, &chosen);
  return task->answer;
}
