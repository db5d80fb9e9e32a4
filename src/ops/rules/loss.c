// Shapes and types of the cross entropy.
#include "ops/rules/common.h"

// Logits [N, C, d...] with targets [N, d...], or logits [C] with a target of no dimensions.
static hy_status check_inputs(const hy_call* call) {
  const hy_tensor *logits = &call->in[0], *target = &call->in[1];
  hy_attrs_cross_entropy attrs = call->attrs.cross_entropy;
  if (logits->ndim < 1)
    return hy__call_fail(call, HY_SHAPE, "logits are [C] or [N, C, ...], not of 0 dimensions");
  int class_dim = logits->ndim > 1;
  bool fits = target->ndim == logits->ndim - 1;
  for (int d = 0; fits && d < target->ndim; d++)
    fits = target->shape[d] == logits->shape[d < class_dim ? d : d + 1];
  if (!fits)
    return hy__call_fail(call, HY_SHAPE,
                         "the target must have the shape of the logits without dimension %d, "
                         "the classes",
                         class_dim);
  HY_TRY(hy__need_shape(call, 2, 1, &logits->shape[class_dim]));
  if (attrs.reduction < HY_REDUCTION_NONE || attrs.reduction > HY_REDUCTION_SUM)
    return hy__call_fail(call, HY_INVALID_ARGUMENT, "%d is no reduction", (int)attrs.reduction);
  if (!(attrs.label_smoothing >= 0 && attrs.label_smoothing <= 1))
    return hy__call_fail(call, HY_INVALID_ARGUMENT, "label_smoothing must be in [0, 1], not %g",
                         attrs.label_smoothing);
  return HY_OK;
}

static void loss_shape(const hy_call* call, hy_tensor* out) {
  out->ndim = 0;
  if (call->attrs.cross_entropy.reduction == HY_REDUCTION_NONE) hy__copy_shape(out, &call->in[1]);
}

hy_status hy__shape_cross_entropy(const hy_call* call, hy_tensor* out) {
  HY_TRY(check_inputs(call));
  loss_shape(call, out);
  return HY_OK;
}

hy_status hy__shape_cross_entropy_backward(const hy_call* call, hy_tensor* out) {
  HY_TRY(check_inputs(call));
  hy_tensor loss;
  loss_shape(call, &loss);
  HY_TRY(hy__need_shape(call, 3, loss.ndim, loss.shape));
  hy__copy_shape(out, &call->in[0]);
  return HY_OK;
}

// One floating type, but for a loss in f32 of logits of 16 bits, and targets that are indices.
hy_status hy__dtype_loss(const hy_call* call, hy_tensor* out) {
  hy_dtype logits = call->in[0].dtype, loss = call->attrs.cross_entropy.dtype;
  HY_TRY(hy__check_dtypes(call, 0, 1));
  HY_TRY(hy__check_index_dtype(call, 1));
  HY_TRY(hy__check_dtypes_among(call, 2, 3, HY_DTYPE_BIT(logits)));
  if (loss == HY_NONE) loss = logits;
  if (loss != logits && (loss != HY_F32 || hy_dtype_size(logits) != 2))
    return hy__call_fail(call, HY_DTYPE, "the loss of %s logits cannot be %s",
                         hy_dtype_name(logits), hy_dtype_name(loss));
  bool is_backward = call->n_in > 3;
  if (is_backward) HY_TRY(hy__check_dtypes_among(call, 3, 4, HY_DTYPE_BIT(loss)));
  out->dtype = is_backward ? logits : loss;
  return HY_OK;
}
