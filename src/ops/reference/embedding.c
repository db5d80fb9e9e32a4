// Rows of a table by index, and the gradient of the table.
#include "ops/reference/indices.h"
#include "ops/reference/scratch.h"
#include "ops/reference/slices.h"

// The padding index matters only to the gradient.
hy_status hy__ref_embedding(const hy_call* call) {
  const hy_tensor *weight = &call->in[0], *ids = &call->in[1], *out = &call->out[0];
  HY_TRY(hy__check_indices(call, ids, 0, weight->shape[0], false));
  size_t size = hy_dtype_size(weight->dtype);
  uint32_t last = 1u << (out->ndim - 1);
  hy_tensor id = hy__keep_dims(ids, out->ndim, last);
  hy__ref_slices l;
  hy__ref_slices_begin(&l, last, 2, (const hy_tensor*[]){out, &id});
  while (hy__ref_slices_next(&l)) {
    int64_t row = hy__load_i(ids->dtype, l.slice[1].data);
    const char* from = (char*)weight->data + row * weight->stride[0] * (int64_t)size;
    hy__copy_elements(size, weight->shape[1], l.slice[0].data, l.slice[0].stride[0], from,
                      weight->stride[1]);
  }
  return HY_OK;
}

// Each row sums the slopes of the ids that name it, in their order, and rounds once; the row of the
// padding index, where that is not negative, gets none.
hy_status hy__ref_embedding_backward(const hy_call* call) {
  const hy_tensor *dy = &call->in[0], *ids = &call->in[1], *out = &call->out[0];
  int64_t rows = out->shape[0], columns = out->shape[1], n = hy_tensor_numel(ids);
  HY_TRY(hy__check_indices(call, ids, 0, rows, false));
  // A list for each row: its first id, and for each id the next one of the same row.
  hy_status status = HY_OUT_OF_MEMORY;
  int64_t *id = hy__scratch(call, 2, n), *first = hy__scratch(call, 1, rows);
  double* sum = hy__scratch(call, 2, columns);
  if (!id || !first || !sum) goto done;
  int64_t* next = id + n;
  double* slope = sum + columns;
  hy__load_all_i(ids, id);
  for (int64_t r = 0; r < rows; r++) first[r] = -1;
  for (int64_t i = n - 1; i >= 0; i--) {
    if (id[i] == call->attrs.rows.padding_index) continue;
    next[i] = first[id[i]];
    first[id[i]] = i;
  }
  hy_tensor slopes = *dy;  // one for each id
  slopes.ndim--;
  for (int64_t r = 0; r < rows; r++) {
    for (int64_t c = 0; c < columns; c++) sum[c] = 0;
    for (int64_t i = first[r]; i >= 0; i = next[i]) {
      hy__load_row_f(dy->dtype, hy__element(&slopes, i), dy->stride[dy->ndim - 1], columns, slope);
      for (int64_t c = 0; c < columns; c++) sum[c] += slope[c];
    }
    char* row = (char*)out->data + r * out->stride[0] * (int64_t)hy_dtype_size(out->dtype);
    hy__store_row_f(out->dtype, row, out->stride[1], columns, sum);
  }
  status = HY_OK;
done:
  hy__mfree(sum);
  hy__mfree(first);
  hy__mfree(id);
  return status;
}
