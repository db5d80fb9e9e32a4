// nditer: loops over tensors that broadcast together. Dimensions that every tensor steps through
// evenly are collapsed into one, and long loops are spread over the threads in chunks.
#ifndef HALYARD_CPU_ROWS_NDITER_H_
#define HALYARD_CPU_ROWS_NDITER_H_

#include "halyard/call.h"

enum { HY__NDITER_TENSORS = 13 };

typedef struct hy__nditer {
  int count, ndim;
  int64_t shape[HY_MAX_DIMS];  // collapsed, the last dimension innermost
  char* data[HY__NDITER_TENSORS];
  int64_t stride[HY__NDITER_TENSORS][HY_MAX_DIMS];  // bytes
} hy__nditer;

// `count` tensors, each of which broadcasts to the shape of the first. No size is 0.
void hy__nditer_init(hy__nditer* loop, int count, const hy_tensor* const* tensors);

// n elements of each tensor, the first at at[k], neighbours step[k] bytes apart.
typedef void hy__nditer_body(const void* context, int64_t n, char* const* at, const int64_t* step);
// Calls the body for pieces that together are every element once. `cost` is the work of an element
// as a multiple of an addition's: it decides from which size on threads are worth their wake-up.
void hy__nditer_run(const hy__nditer* loop, hy__nditer_body* body, const void* context, int cost);

// Whether the first output is so much larger than the caches that its stores should pass them by:
// otherwise its lines are read before they are written, and gone before anyone reads them.
bool hy__use_nontemporal(const hy_call* call);

#endif  // HALYARD_CPU_ROWS_NDITER_H_
