// One C function per row of the op table: puts its arguments into a call and runs it.
#include <string.h>

#include "ops/internal.h"
#include "ops/wrap.h"

// The same parameters as in ops.h.
#define PARAMETER_A(kind, name) PARAMETER_##kind(name) PARAMETER_B
#define PARAMETER_B(kind, name) PARAMETER_##kind(name) PARAMETER_A
#define PARAMETER_A_END
#define PARAMETER_B_END
#define PARAMETER_IN(name) , const hy_tensor* name
#define PARAMETER_LIST(name) , const hy_tensor *name, int n_##name
#define PARAMETER_OUT(name) , hy_tensor* name
#define PARAMETER_ATTR(kind, type, name) , type name

#define PUT_A(kind, name) PUT_##kind(name) PUT_B
#define PUT_B(kind, name) PUT_##kind(name) PUT_A
#define PUT_A_END
#define PUT_B_END
#define PUT_IN(name) put(&ins[call.n_in++], name);
#define PUT_LIST(name) HY_TRY(put_list(&call, ins, name, n_##name));
#define PUT_OUT(name) put(&outs[call.n_out++], name);
#define PUT_ATTR(kind, type, name) call.attrs.kind.name = name;

static void put(hy_tensor* slot, const hy_tensor* t) {
  *slot = t ? *t : hy_tensor_absent();
}

static hy_status put_list(hy_call* call, hy_tensor* in, const hy_tensor* list, int n) {
  if (n < 0 || (n > 0 && !list))
    return hy_fail(HY_INVALID_ARGUMENT, "%s: a list of %d tensors is NULL", hy_op_name(call->op),
                   n);
  if (hy__joins(call->op)) {
    call->in = list;
    call->n_in = n;
    return HY_OK;
  }
  if (n > HY_MAX_INPUTS - call->n_in)
    return hy_fail(HY_INVALID_ARGUMENT, "%s: a list of %d tensors; at most %d fit in one call",
                   hy_op_name(call->op), n, HY_MAX_INPUTS - call->n_in);
  for (int i = 0; i < n; i++) in[call->n_in++] = list[i];
  return HY_OK;
}

// A call changes memory and never the views, so copies of them serve.
#define HY_OUT(name) (OUT, name)
#define HY_OUT_OPT(name) (OUT, name)
#define HY_IN(name) (IN, name)
#define HY_IN_OPT(name) (IN, name)
#define HY_IN_LIST(name) (LIST, name)
#define HY_OP(id, name, outputs, inputs, kind, ...)                                              \
  hy_status hy_##name(hy_stream* stream HY__EACH(PARAMETER, outputs) HY__EACH(PARAMETER, inputs) \
                          HY_ATTRS_##kind(PARAMETER_ATTR, kind)) {                               \
    hy_tensor ins[HY_MAX_INPUTS], outs[HY_MAX_OUTPUTS];                                          \
    hy_call call;                                                                                \
    call.op = HY_OP_##name;                                                                      \
    call.n_in = call.n_out = call.reserved = 0;                                                  \
    call.in = ins;                                                                               \
    call.out = outs;                                                                             \
    memset(&call.attrs, 0, sizeof call.attrs);                                                   \
    HY__EACH(PUT, outputs)                                                                       \
    HY__EACH(PUT, inputs)                                                                        \
    HY_ATTRS_##kind(PUT_ATTR, kind) return hy_run(stream, &call);                                \
  }
#include "halyard/ops.def"
