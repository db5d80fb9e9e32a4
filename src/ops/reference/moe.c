// Mixture of experts: each token goes through a few gated layers, whose results are weighed and
// summed: out = sum of w * down(silu(gate x) * (up x)), with gate the first half of gate_up's rows.
#include <math.h>

#include "ops/reference/scratch.h"
#include "ops/reference/slices.h"

static double dot(int64_t n, const double* a, const double* b) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += a[i] * b[i];
  return sum;
}

// One expert's weights in doubles, and room for what is between its layers.
typedef struct expert {
  int64_t size, hidden;
  double *gate_up, *down, *inner;
} expert;

static void run_expert(const expert* e, const double* x, double weight, double* out) {
  for (int64_t f = 0; f < e->hidden; f++) {
    double gate = dot(e->size, e->gate_up + f * e->size, x);
    double up = dot(e->size, e->gate_up + (e->hidden + f) * e->size, x);
    e->inner[f] = gate / (1 + exp(-gate)) * up;
  }
  for (int64_t d = 0; d < e->size; d++)
    out[d] += weight * dot(e->hidden, e->down + d * e->hidden, e->inner);
}

static hy_status check_ids(const hy_call* call) {
  const hy_tensor* id = &call->in[4];
  int64_t experts = call->in[1].shape[0], n = hy_tensor_numel(id);
  for (int64_t i = 0; i < n; i++) {
    int64_t e = hy__load_i(id->dtype, hy__element(id, i));
    if (e < 0 || e >= experts)
      return hy__call_fail(call, HY_INDEX, "expert_id has %lld; there are %lld experts",
                           (long long)e, (long long)experts);
  }
  return HY_OK;
}

hy_status hy__ref_fused_moe(const hy_call* call) {
  const hy_tensor *x = &call->in[0], *gate_up = &call->in[1], *down = &call->in[2];
  const hy_tensor *weight = &call->in[3], *id = &call->in[4];
  HY_TRY(check_ids(call));
  int64_t choices = hy_tensor_numel(id), per_token = id->shape[1];
  expert e = {.size = x->shape[1], .hidden = down->shape[2]};
  hy_status status = HY_OUT_OF_MEMORY;
  double *tokens = hy__scratch_of(call, x), *out = NULL;
  if (!tokens) goto done;
  out = hy__scratch_zero(call, x->shape[0], e.size);
  if (!out) goto done;
  e.gate_up = hy__scratch(call, 2 * e.hidden, e.size);
  if (!e.gate_up) goto done;
  e.down = hy__scratch(call, e.size + 1, e.hidden);
  if (!e.down) goto done;
  e.inner = e.down + e.size * e.hidden;
  for (int64_t n = 0; n < gate_up->shape[0]; n++) {
    bool loaded = false;
    for (int64_t i = 0; i < choices; i++) {
      if (hy__load_i(id->dtype, hy__element(id, i)) != n) continue;
      if (!loaded) {
        hy_tensor one;
        status = hy_select(&one, gate_up, 0, n);
        if (status == HY_OK) hy__load_all_f(&one, e.gate_up);
        if (status == HY_OK) status = hy_select(&one, down, 0, n);
        if (status != HY_OK) goto done;
        hy__load_all_f(&one, e.down);
        loaded = true;
      }
      int64_t token = i / per_token * e.size;
      run_expert(&e, tokens + token, hy__load_f(weight->dtype, hy__element(weight, i)),
                 out + token);
    }
  }
  hy__store_all_f(&call->out[0], out);
  status = HY_OK;
done:
  hy__mfree(e.down);
  hy__mfree(e.gate_up);
  hy__mfree(out);
  hy__mfree(tokens);
  return status;
}
