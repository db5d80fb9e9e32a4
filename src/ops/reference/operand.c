// Operands of elementwise kernels, loaded in the type the op computes in.
#include "ops/reference/operand.h"

void hy__operand_f(const hy__walk* w, int k, hy_dtype from, hy_dtype as, double* row) {
  hy__load_row_f(from, w->at[k], w->step[k], w->n, row);
  if (from == as || as == HY_F64) return;
  bool exact = hy_dtype_is_float(from) && hy_dtype_bits(from) < hy_dtype_bits(as);
  for (int64_t i = 0; !exact && i < w->n; i++) row[i] = hy__round_to(as, row[i]);
}

double hy__number_f(hy_scalar s, hy_dtype as) {
  double value = hy_scalar_f(s);
  return as == HY_F64 ? value : (double)(float)value;
}

static int64_t wrap(hy_dtype dtype, int64_t value) {
  int64_t held = 0;
  hy__store_i(dtype, &held, value);
  return hy__load_i(dtype, &held);
}

void hy__operand_i(const hy__walk* w, int k, hy_dtype from, hy_dtype as, int64_t* row) {
  hy__load_row_i(from, w->at[k], w->step[k], w->n, row);
  if (from == as || hy_promote_dtypes(from, as) == as) return;
  for (int64_t i = 0; i < w->n; i++) row[i] = wrap(as, row[i]);
}

int64_t hy__number_i(hy_scalar s, hy_dtype as) {
  return wrap(as, hy_scalar_i(s));
}

void hy__result_f(const hy__walk* w, hy_dtype as, hy_dtype to, double* row) {
  for (int64_t i = 0; to != as && i < w->n; i++) row[i] = hy__round_to(as, row[i]);
  hy__store_row_f(to, w->at[0], w->step[0], w->n, row);
}

void hy__result_i(const hy__walk* w, hy_dtype as, hy_dtype to, int64_t* row) {
  for (int64_t i = 0; to != as && i < w->n; i++) row[i] = wrap(as, row[i]);
  hy__store_row_i(to, w->at[0], w->step[0], w->n, row);
}
