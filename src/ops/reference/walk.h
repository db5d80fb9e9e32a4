// Walking several tensors together, row by row.
#ifndef HALYARD_REFERENCE_WALK_H_
#define HALYARD_REFERENCE_WALK_H_

#include "halyard/tensor.h"

#define HY__WALK_MAX 8
// Rows are at most this long, so that kernels can keep them in arrays on the stack.
#define HY__ROW 256

// Broadcasts its tensors to one shape, merges dimensions that all of them step through evenly, and
// yields rows:
//
//   hy__walk w;
//   hy__walk_begin(&w, shape_of, 3, (const hy_tensor*[]){out, a, b});
//   while (hy__walk_next(&w)) ... w.at[k] is row w.n long with w.step[k] elements between
//   neighbours
typedef struct hy__walk {
  int count, ndim;
  bool started;
  int64_t shape[HY_MAX_DIMS], index[HY_MAX_DIMS];
  int64_t stride[HY__WALK_MAX][HY_MAX_DIMS];  // elements
  int64_t size[HY__WALK_MAX];                 // bytes of an element
  int64_t inner;                              // position in the innermost dimension
  // The current row.
  int64_t n;
  char* at[HY__WALK_MAX];
  int64_t step[HY__WALK_MAX];
  int64_t first;  // index of the row's first element in row-major order of the shape
} hy__walk;

// Every tensor must broadcast to the shape of `shape_of`.
void hy__walk_begin(hy__walk* w, const hy_tensor* shape_of, int count,
                    const hy_tensor* const* tensors);
bool hy__walk_next(hy__walk* w);

// Address of the element that row-major index `i` over the tensor's own shape means.
char* hy__element(const hy_tensor* t, int64_t i);
// Address of row i, rows being the views over the last dimension.
char* hy__row_address(const hy_tensor* t, int64_t i);
// As hy__element, in elements from t->data.
int64_t hy__offset(const hy_tensor* t, int64_t i);

#endif  // HALYARD_REFERENCE_WALK_H_
