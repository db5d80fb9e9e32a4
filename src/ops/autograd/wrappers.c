// One C function on arrays per row of the op table: puts its arguments into lists and applies it.
#include <string.h>

#include "ops/autograd/internal.h"
#include "ops/wrap.h"

// The same parameters as in array.h.
#define PARAMETER_A(kind, name) PARAMETER_##kind(name) PARAMETER_B
#define PARAMETER_B(kind, name) PARAMETER_##kind(name) PARAMETER_A
#define PARAMETER_A_END
#define PARAMETER_B_END
#define PARAMETER_IN(name) , hy_array* name
#define PARAMETER_LIST(name) , hy_array *const *name, int n_##name
#define PARAMETER_OUT(name) , hy_array** name
#define PARAMETER_ATTR(kind, type, name) , type name

#define PUT_A(kind, name) PUT_##kind(name) PUT_B
#define PUT_B(kind, name) PUT_##kind(name) PUT_A
#define PUT_A_END
#define PUT_B_END
#define PUT_IN(name) ins[n_in++] = name;
#define PUT_LIST(name) HY_TRY(put_list(op, &in, ins, &n_in, name, n_##name));
#define PUT_OUT(name) outs[n_out++] = name;
#define PUT_ATTR(kind, type, name) attrs.kind.name = name;

// A list that is all the inputs is passed on as it is: it may be longer than a call.
static hy_status put_list(hy_op op, hy_array* const** in, hy_array** ins, int* n_in,
                          hy_array* const* list, int n) {
  if (n < 0 || (n > 0 && !list))
    return hy_fail(HY_INVALID_ARGUMENT, "%s: a list of %d arrays is NULL", hy_op_name(op), n);
  if (hy__joins(op)) {
    *in = list;
    *n_in = n;
    return HY_OK;
  }
  if (n > HY_MAX_INPUTS - *n_in)
    return hy_fail(HY_INVALID_ARGUMENT, "%s: a list of %d arrays; at most %d fit in one call",
                   hy_op_name(op), n, HY_MAX_INPUTS - *n_in);
  for (int i = 0; i < n; i++) ins[(*n_in)++] = list[i];
  return HY_OK;
}

#define HY_OUT(name) (OUT, name)
#define HY_OUT_OPT(name) (OUT, name)
#define HY_IN(name) (IN, name)
#define HY_IN_OPT(name) (IN, name)
#define HY_IN_LIST(name) (LIST, name)
#define HY_OP(id, name, outputs, inputs, kind, ...)                                                \
  hy_status hy_array_##name(hy_tape* tape HY__EACH(PARAMETER, outputs) HY__EACH(PARAMETER, inputs) \
                                HY_ATTRS_##kind(PARAMETER_ATTR, kind)) {                           \
    const hy_op op = HY_OP_##name;                                                                 \
    hy_array *ins[HY_MAX_INPUTS], *const *in = ins;                                                \
    hy_array** outs[HY_MAX_OUTPUTS];                                                               \
    hy_attrs attrs;                                                                                \
    int n_in = 0, n_out = 0;                                                                       \
    ins[0] = NULL;                                                                                 \
    memset(&attrs, 0, sizeof attrs);                                                               \
    HY__EACH(PUT, outputs)                                                                         \
    HY__EACH(PUT, inputs)                                                                          \
    HY_ATTRS_##kind(PUT_ATTR, kind) return hy_array_apply(tape, op, in, n_in, &attrs, outs,        \
                                                          n_out);                                  \
  }
#include "halyard/ops.def"
