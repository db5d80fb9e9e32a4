// The op table as the op layer sees it: descriptions, rules, reference kernels.
#ifndef HALYARD_OPS_INTERNAL_H_
#define HALYARD_OPS_INTERNAL_H_

#include "halyard/ops.h"

// Fills dtype (and layout, where not strided) or ndim and shape of each declared output. Absent
// optional outputs are filled too. May use call->in and call->attrs, and call->out only in the
// rules `output`, `vector` and `random`.
typedef hy_status (*hy__rule)(const hy_call* call, hy_tensor* out);
// Computes a checked call whose tensors are in host memory.
typedef hy_status (*hy__kernel)(const hy_call* call);

typedef struct hy__row {
  hy_op_info info;
  hy__rule dtype_rule, shape_rule;
  hy__kernel kernel;
  hy_status (*check_attrs)(const hy_call* call);  // that the attributes mean something
  const struct hy__grad_rule* grad;               // &hy__grad_none: not differentiable
} hy__row;

const hy__row* hy__op_row(hy_op op);  // NULL for a number that is no op

// The reference kernel of a call that has been checked.
hy_status hy__reference_checked(const hy_call* call);
// Checks, then runs the reference: hy_host.reference.
hy_status hy__reference(const hy_call* call);
// Counts, absent tensors, dtypes, shapes, aliasing: everything hy_run promises its providers.
hy_status hy__check_call(const hy_call* call);
// The same, and running it, with the outputs that hy_infer gave for the call.
hy_status hy__check_inferred(const hy_call* call, const hy_tensor* expected);
hy_status hy__run_inferred(hy_stream* stream, const hy_call* call, const hy_tensor* expected);
// The first provider that supports the call, or NULL and the first one's reason why not.
const hy_provider* hy__choose_provider(const hy_device* device, const hy_call* call,
                                       hy_support* reason);
// Whether a declaration of the device's providers promises the call, which is one of its op and
// type with contiguous tensors.
bool hy__is_promised(const hy_device* device, const hy_call* call);
// Runs a checked call by that provider, and of its variants by that one; NULL: by the reference, on
// a host device. `packed` is NULL, or the weight as that provider packed it.
hy_status hy__run_by(hy_stream* stream, const hy_call* call, const hy_provider* provider,
                     int32_t variant, const void* packed);

// By attribute kind: the kinds of numbers, the values of enums (check_attrs.c).
#define HY_AS_CHECK(kind) hy_status hy__check_attrs_##kind(const hy_call* call);
HY_ATTR_KINDS(HY_AS_CHECK)
HY_AS_CHECK(none)
#undef HY_AS_CHECK

// The declarations of every rule and kernel named in the table.
extern const struct hy__grad_rule hy__grad_none;
#define HY_OP(id, name, outputs, inputs, attrs, dtypes, dtype_rule, shape_rule, alias, kernel, \
              split, grad, ...)                                                                \
  hy_status hy__dtype_##dtype_rule(const hy_call* call, hy_tensor* out);                       \
  hy_status hy__shape_##shape_rule(const hy_call* call, hy_tensor* out);                       \
  hy_status hy__ref_##kernel(const hy_call* call);                                             \
  extern const struct hy__grad_rule hy__grad_##grad;
#include "halyard/ops.def"

static inline bool hy__present(const hy_tensor* t) {
  return t->dtype != HY_NONE;
}

// Index of dimension `dim` (negative counts from the end) or -1 when it is none of `ndim`; a
// 0-dimensional tensor takes 0 and -1, as in PyTorch.
static inline int hy__wrap_dim(int64_t dim, int ndim) {
  int n = ndim > 0 ? ndim : 1;
  if (dim < -n || dim >= n) return -1;
  return (int)(dim < 0 ? dim + n : dim);
}

// cat and stack take any number of inputs; a provider never sees more than HY_MAX_INPUTS.
static inline bool hy__joins(hy_op op) {
  return op == HY_OP_cat || op == HY_OP_stack;
}
// Runs a checked call of more than HY_MAX_INPUTS inputs as several, into parts of its output.
hy_status hy__join_many(hy_stream* stream, const hy_call* call);

// hy_fail with the op's name, and the whole call in words behind the message.
hy_status hy__call_fail(const hy_call* call, hy_status status, const char* format, ...)
    __attribute__((format(printf, 3, 4)));

#endif  // HALYARD_OPS_INTERNAL_H_
