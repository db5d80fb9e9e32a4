// Ops: running a call, one wrapper per row of the op table, placement and fallback.
#ifndef HALYARD_OPS_H_
#define HALYARD_OPS_H_

#include "halyard/stream.h"

#ifdef __cplusplus
extern "C" {
#endif

// Checks the call against the op table, then runs it on the stream's device: with the first
// provider that supports it, else as a composition of other ops (einsum), else with the reference
// if the device is the host, else by falling back to the host. The caller supplies the output
// tensors; hy_infer says what they must be.
HY_API hy_status hy_run(hy_stream* stream, const hy_call* call);

// Fills dtype, layout, shape and contiguous strides of each output of the op from the inputs and
// attributes (`call->out` is read only by ops without inputs, such as fill). `out` has room for
// HY_MAX_OUTPUTS tensors.
HY_API hy_status hy_infer(const hy_call* call, hy_tensor* out);

// hy_add(stream, &out, &a, &b, hy_int(1)) and so on: outputs, inputs, attributes. Optional tensors
// may be NULL; a list of inputs is an array and its length.
#define HY_OUT(name) , hy_tensor* name
#define HY_OUT_OPT(name) , hy_tensor* name
#define HY_IN(name) , const hy_tensor* name
#define HY_IN_OPT(name) , const hy_tensor* name
#define HY_IN_LIST(name) , const hy_tensor *name, int n_##name
#define HY_AS_PARAMETER(kind, type, name) , type name
#define HY_OP(id, name, outputs, inputs, attrs, ...) \
  HY_API hy_status hy_##name(                        \
      hy_stream* stream outputs inputs HY_ATTRS_##attrs(HY_AS_PARAMETER, attrs));
#include "halyard/ops.def"
#undef HY_AS_PARAMETER

// "ij,jk->ik" as an attribute; text that is too long gives an equation that einsum rejects.
HY_API hy_equation hy_einsum_equation(const char* text);

// ---- The table, for tools ----

typedef enum hy_argument_kind {
  HY_ARGUMENT_REQUIRED,
  HY_ARGUMENT_OPTIONAL,
  HY_ARGUMENT_LIST
} hy_argument_kind;

typedef struct hy_argument {
  const char* name;
  hy_argument_kind kind;
} hy_argument;

typedef struct hy_attr_field {
  const char* name;
  const char* type;  // the C type's name: "hy_scalar", "int64_t", "bool" ...
  size_t offset;     // inside hy_attrs
} hy_attr_field;

typedef enum hy_alias { HY_ALIAS_NONE, HY_ALIAS_ANY, HY_ALIAS_SLOT } hy_alias;

typedef struct hy_op_info {
  hy_op op;
  const char* name;
  const hy_argument* inputs;
  const hy_argument* outputs;
  int n_inputs, n_outputs;  // as declared; a list counts as one
  const char* attr_kind;
  const hy_attr_field* attrs;
  int n_attrs;
  uint32_t dtypes;
  hy_alias alias;
  bool differentiable;
} hy_op_info;

HY_API const hy_op_info* hy_op_describe(hy_op op);  // NULL for a number that is no op
HY_API const char* hy_op_name(hy_op op);            // "?" for a number that is no op
HY_API hy_op hy_op_from_name(const char* name);     // HY_OP_NONE for an unknown name
HY_API int hy_op_count(void);
HY_API const hy_op_info* hy_op_at(int index);  // in the order of the table
// "add(f32[2, 3], f32[3]; alpha=1) -> f32[2, 3]". Always terminated; returns `buffer`.
HY_API const char* hy_call_describe(const hy_call* call, char* buffer, size_t size);

// ---- Placement and fallback ----

typedef struct hy_placement {
  // What would run the call: "avx512", "opt_einsum" (a composition of products), "reference"; NULL
  // if it would fall back.
  const char* provider;
  hy_support reason;  // why the first provider refused; YES if it runs there
} hy_placement;

// Where hy_run would run this call, without running it; a call that hy_run would refuse is refused.
HY_API hy_status hy_place(hy_device* device, const hy_call* call, hy_placement* placement);
// Where calls of this op and type run, according to what the device's providers declare.
HY_API hy_status hy_place_op(hy_device* device, hy_op op, hy_dtype dtype, hy_placement* placement);
// Whether layers of quantised weights and many rows are faster on the device by dequantize and a
// product of floats than by linear_int8. False without a device.
HY_API bool hy_prefers_unpacked(const hy_device* device);
HY_API const char* hy_support_text(hy_support reason);  // "the op has no kernel"

typedef struct hy_fallback_entry {
  hy_op op;
  hy_dtype dtype;
  hy_support reason;
  uint64_t count;
  uint64_t bytes_staged;
  char device[32];
  char example[160];  // the first such call
} hy_fallback_entry;

// What has fallen back to the cpu since the start or the last clear. Fills up to `capacity` entries
// and returns how many there are.
HY_API int hy_fallback_report(hy_fallback_entry* entries, int capacity);
HY_API uint64_t hy_fallback_count(void);
HY_API void hy_fallback_clear(void);
// In strict mode every fallback is the error HY_FALLBACK_REFUSED. Also set by HALYARD_STRICT=1.
HY_API void hy_set_strict(bool strict);

// Deterministic mode: kernels whose results depend on timing or thread count are not used. Also set
// by HALYARD_DETERMINISTIC=1.
HY_API void hy_set_deterministic(bool deterministic);
HY_API bool hy_deterministic(void);

#ifdef __cplusplus
}
#endif
#endif  // HALYARD_OPS_H_
