// The provider: which op is whose, and what is promised.
#include <stdio.h>

#include "backends/echo/packets.h"

#define F32 HY_DTYPE_BIT(HY_F32)
#define FLOATS (F32 | HY_DTYPE_BIT(HY_BF16))
#define WORDS HY_ALL_DTYPES
#define WORDS8 (HY_ALL_DTYPES | HY_FLOAT8S)

// Op, kernel, and the types for which every contiguous call of one type runs on the NPU. Where that
// is 0 the kernel runs some calls: those with an attribute, a mask or an index type that it has.
#define KERNELS(X)                                  \
  X(copy, move, WORDS8)                             \
  X(clone, move, WORDS8)                            \
  X(cast, move, 0)                                  \
  X(neg, elementwise, FLOATS)                       \
  X(abs, elementwise, FLOATS)                       \
  X(sqrt, elementwise, FLOATS)                      \
  X(rsqrt, elementwise, FLOATS)                     \
  X(reciprocal, elementwise, FLOATS)                \
  X(exp, elementwise, FLOATS)                       \
  X(log, elementwise, FLOATS)                       \
  X(cos, elementwise, FLOATS)                       \
  X(sin, elementwise, FLOATS)                       \
  X(tanh, elementwise, FLOATS)                      \
  X(sigmoid, elementwise, FLOATS)                   \
  X(silu, elementwise, FLOATS)                      \
  X(gelu, elementwise, FLOATS)                      \
  X(relu, elementwise, FLOATS)                      \
  X(clamp, clamp, FLOATS)                           \
  X(add, elementwise, FLOATS)                       \
  X(sub, elementwise, FLOATS)                       \
  X(mul, elementwise, FLOATS)                       \
  X(div, elementwise, 0)                            \
  X(pow, elementwise, FLOATS)                       \
  X(maximum, elementwise, FLOATS)                   \
  X(minimum, elementwise, FLOATS)                   \
  X(add_scalar, elementwise_scalar, FLOATS)         \
  X(sub_scalar, elementwise_scalar, FLOATS)         \
  X(rsub_scalar, elementwise_scalar, FLOATS)        \
  X(mul_scalar, elementwise_scalar, FLOATS)         \
  X(div_scalar, elementwise_scalar, 0)              \
  X(pow_scalar, elementwise_scalar, FLOATS)         \
  X(rpow_scalar, elementwise_scalar, FLOATS)        \
  X(addcmul, addc, FLOATS)                          \
  X(addcdiv, addc, FLOATS)                          \
  X(sigmoid_backward, elementwise, FLOATS)          \
  X(tanh_backward, elementwise, FLOATS)             \
  X(relu_backward, relu_backward, FLOATS)           \
  X(silu_backward, elementwise, FLOATS)             \
  X(gelu_backward, elementwise, 0)                  \
  X(fill, fill_op, WORDS8)                          \
  X(sum, reduce, FLOATS)                            \
  X(mean, reduce, FLOATS)                           \
  X(max, reduce, FLOATS)                            \
  X(min, reduce, FLOATS)                            \
  X(softmax, softmax, FLOATS)                       \
  X(log_softmax, softmax, FLOATS)                   \
  X(softmax_backward, softmax_backward, FLOATS)     \
  X(log_softmax_backward, softmax_backward, FLOATS) \
  X(layer_norm, norm, FLOATS)                       \
  X(rms_norm, norm, FLOATS)                         \
  X(mm, product, FLOATS)                            \
  X(bmm, product, FLOATS)                           \
  X(int_mm, product, HY_DTYPE_BIT(HY_I8))           \
  X(addmm, addmm, FLOATS)                           \
  X(linear, linear, FLOATS)                         \
  X(sdpa, sdpa, 0)                                  \
  X(rope, rope, FLOATS)                             \
  X(embedding, embedding, 0)                        \
  X(embedding_backward, embedding_backward, 0)      \
  X(index_select, index_select, 0)                  \
  X(index_put, index_put, 0)                        \
  X(paged_attention, paged_attention, FLOATS)       \
  X(cat, join, WORDS)                               \
  X(stack, join, WORDS)

static const hy__echo_kernel kernels[HY_OP_END] = {
#define AS_KERNEL(op, family, dtypes) [HY_OP_##op] = hy__echo_##family,
    KERNELS(AS_KERNEL)
#undef AS_KERNEL
};

static const hy_declaration declarations[] = {
#define AS_DECLARATION(op, family, dtypes) {HY_OP_##op, dtypes},
    KERNELS(AS_DECLARATION)
#undef AS_DECLARATION
};

// The host's share of the debug output that the SDK is asked for.
static void tell(int level, echoNpuDebugTag tag, const hy_call* call, const char* what) {
  if (echoNpuGetDebugLevel() < level) return;
  char line[160];
  const hy_tensor* t = call->n_in > 0 ? &call->in[0] : &call->out[0];
  int n = snprintf(line, sizeof line, "%s [", hy__backend_host->op_name(call->op));
  for (int d = 0; d < t->ndim && n < 100; d++)
    n += snprintf(line + n, sizeof line - (size_t)n, d ? ", %lld" : "%lld", (long long)t->shape[d]);
  snprintf(line + n, sizeof line - (size_t)n, "]%s%.40s", *what ? ": " : "", what);
  echoNpuDebugLog(level, tag, line);
}

static hy_support supports(void* device, const hy_call* call) {
  (void)device;
  if (call->op <= HY_OP_NONE || call->op >= HY_OP_END || !kernels[call->op])
    return HY_SUPPORT_NO_OP;
  hy__echo_batch question;
  hy__echo_begin(&question, NULL, call->op);
  return kernels[call->op](&question, call);
}

static hy_support supports_and_tells(void* device, const hy_call* call) {
  static const char* const reasons[] = {
#define AS_TEXT(name, value, text) text,
      HY_SUPPORT_MAP(AS_TEXT)
#undef AS_TEXT
  };
  hy_support answer = supports(device, call);
  if (answer != HY_SUPPORT_YES) tell(1, ECHO_NPU_DEBUG_CPU, call, reasons[answer]);
  return answer;
}

static hy_status run(void* device, void* stream, const hy_call* call) {
  (void)device;
  HY_TRY(hy__echo_stream_status(stream));
  if (((hy__echo_stream*)stream)->capture)
    return hy__echo_record(stream, &(hy_graph_node){.kind = HY_NODE_CALL, .call = call});
  tell(1, ECHO_NPU_DEBUG_NPU, call, "");
  hy__echo_batch batch;
  hy__echo_begin(&batch, stream, call->op);
  hy_support answer = kernels[call->op](&batch, call);
  if (answer != HY_SUPPORT_YES)
    return hy__backend_host->fail(HY_INTERNAL, "echo: %s was accepted and cannot be run",
                                  hy__backend_host->op_name(call->op));
  return hy__echo_end(&batch);
}

// ---- Chains ----

static hy_support supports_chain(void* device, const hy_chain* chain) {
  (void)device;
  hy__echo_batch question;
  hy__echo_begin(&question, NULL, chain->steps[0].op);
  return hy__echo_chain(&question, chain);
}

static hy_status run_chain(void* device, void* stream, const hy_chain* chain) {
  (void)device;
  HY_TRY(hy__echo_stream_status(stream));
  if (((hy__echo_stream*)stream)->capture)
    return hy__echo_record(stream, &(hy_graph_node){.kind = HY_NODE_CHAIN, .chain = chain});
  hy__echo_batch batch;
  hy__echo_begin(&batch, stream, chain->steps[0].op);
  if (hy__echo_chain(&batch, chain) != HY_SUPPORT_YES)
    return hy__backend_host->fail(HY_INTERNAL, "echo: a chain was accepted and cannot be run");
  return hy__echo_end(&batch);
}

const hy_provider hy__echo_provider = {
    .size = sizeof(hy_provider),
    .name = "echo",
    .version = HY_VERSION_STRING,
    .declares = declarations,
    .n_declares = (int)(sizeof declarations / sizeof declarations[0]),
    .supports = supports_and_tells,
    .run = run,
    .supports_chain = supports_chain,
    .run_chain = run_chain,
};
