// The op table made data: descriptions, rules and reference kernels by op number.
#include <string.h>

#include "core/internal.h"
#include "ops/internal.h"

// Arguments by row; the closing empty entry keeps the lists of ops without inputs legal C.
#define HY_OUT(name) {#name, HY_ARGUMENT_REQUIRED},
#define HY_OUT_OPT(name) {#name, HY_ARGUMENT_OPTIONAL},
#define HY_IN(name) {#name, HY_ARGUMENT_REQUIRED},
#define HY_IN_OPT(name) {#name, HY_ARGUMENT_OPTIONAL},
#define HY_IN_LIST(name) {#name, HY_ARGUMENT_LIST},
#define HY_OP(id, name, outputs, inputs, ...)                                      \
  static const hy_argument name##_inputs[] = {inputs{NULL, HY_ARGUMENT_REQUIRED}}; \
  static const hy_argument name##_outputs[] = {outputs{NULL, HY_ARGUMENT_REQUIRED}};
#include "halyard/ops.def"

// Fields by attribute kind.
#define HY_AS_FIELD(kind, type, name) {#name, #type, offsetof(hy_attrs_##kind, name)},
#define HY_AS_FIELDS(kind) \
  static const hy_attr_field kind##_fields[] = {HY_ATTRS_##kind(HY_AS_FIELD, kind){NULL, NULL, 0}};
HY_ATTR_KINDS(HY_AS_FIELDS)
HY_AS_FIELDS(none)
#undef HY_AS_FIELDS
#undef HY_AS_FIELD

#define COUNT(list) ((int)(sizeof(list) / sizeof(list)[0]) - 1)
// SECOND(GRAD_IS_##rule, true, ) is false for the rule `none` and for no other. Comparing the
// rules' addresses would say the same, but is no constant to every compiler.
#define SECOND_(first, second, ...) second
#define SECOND(...) SECOND_(__VA_ARGS__)
#define GRAD_IS_none , false

static const hy__row rows[HY_OP_END] = {
#define HY_OP(id, op_name, op_outputs, op_inputs, kind, op_dtypes, op_dtype_rule, op_shape_rule, \
              op_alias, op_kernel, split, op_grad, cases, tolerance)                             \
  [id] = {.info = {.op = HY_OP_##op_name,                                                        \
                   .name = #op_name,                                                             \
                   .inputs = op_name##_inputs,                                                   \
                   .outputs = op_name##_outputs,                                                 \
                   .n_inputs = COUNT(op_name##_inputs),                                          \
                   .n_outputs = COUNT(op_name##_outputs),                                        \
                   .attr_kind = #kind,                                                           \
                   .attrs = kind##_fields,                                                       \
                   .n_attrs = COUNT(kind##_fields),                                              \
                   .dtypes = op_dtypes,                                                          \
                   .alias = HY_ALIAS_##op_alias,                                                 \
                   .differentiable = SECOND(GRAD_IS_##op_grad, true, )},                         \
          .dtype_rule = hy__dtype_##op_dtype_rule,                                               \
          .shape_rule = hy__shape_##op_shape_rule,                                               \
          .kernel = hy__ref_##op_kernel,                                                         \
          .check_attrs = hy__check_attrs_##kind,                                                 \
          .grad = &hy__grad_##op_grad},
#include "halyard/ops.def"
};

// Op numbers in the order of the table, without its gaps.
static const hy_op order[] = {
#define HY_OP(id, name, ...) HY_OP_##name,
#include "halyard/ops.def"
};

const hy__row* hy__op_row(hy_op op) {
  return op > HY_OP_NONE && op < HY_OP_END && rows[op].info.name ? &rows[op] : NULL;
}

const hy_op_info* hy_op_describe(hy_op op) {
  const hy__row* row = hy__op_row(op);
  return row ? &row->info : NULL;
}

const char* hy_op_name(hy_op op) {
  const hy__row* row = hy__op_row(op);
  return row ? row->info.name : "?";
}

hy_op hy_op_from_name(const char* name) {
  for (int i = 0; name && i < hy_op_count(); i++) {
    if (strcmp(rows[order[i]].info.name, name) == 0) return order[i];
  }
  return HY_OP_NONE;
}

int hy_op_count(void) {
  return (int)(sizeof order / sizeof order[0]);
}

const hy_op_info* hy_op_at(int index) {
  return index >= 0 && index < hy_op_count() ? &rows[order[index]].info : NULL;
}

hy_equation hy_einsum_equation(const char* text) {
  hy_equation equation;
  memset(&equation, 0, sizeof equation);
  if (text && strlen(text) < sizeof equation.text) memcpy(equation.text, text, strlen(text));
  return equation;
}
