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
#define PUT_LIST(name) HY_TRY(put_list(ins, &n_in, name, n_##name));
#define PUT_OUT(name) outs[n_out++] = name;
#define PUT_ATTR(kind, type, name) attrs.kind.name = name;

static hy_status put_list(hy_array** ins, int* n_in, hy_array* const* list, int n) {
  if (n < 0 || n > HY_MAX_INPUTS - *n_in || (n > 0 && !list))
    return hy_fail(HY_INVALID_ARGUMENT, "a list of %d arrays; at most %d fit in one call",
                   list ? n : 0, HY_MAX_INPUTS - *n_in);
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
    hy_array* ins[HY_MAX_INPUTS];                                                                  \
    hy_array** outs[HY_MAX_OUTPUTS];                                                               \
    hy_attrs attrs;                                                                                \
    int n_in = 0, n_out = 0;                                                                       \
    ins[0] = NULL;                                                                                 \
    memset(&attrs, 0, sizeof attrs);                                                               \
    HY__EACH(PUT, outputs)                                                                         \
    HY__EACH(PUT, inputs)                                                                          \
    HY_ATTRS_##kind(PUT_ATTR, kind) return hy_array_apply(tape, HY_OP_##name, ins, n_in, &attrs,   \
                                                          outs, n_out);                            \
  }
#include "halyard/ops.def"
