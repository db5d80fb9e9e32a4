// What the host and the kernels both know: plain C, placed before every kernel source by the build.
#ifndef HALYARD_BACKENDS_GPU_KERNELS_SHARED_H_
#define HALYARD_BACKENDS_GPU_KERNELS_SHARED_H_

#define HY_GPU_DIMS 8

// A tensor: the element at index i lies at data + sum(i[d] * stride[d]) elements.
typedef struct hy_gpu_view {
  char* data;
  int dtype;  // hy_dtype
  int ndim;
  long long shape[HY_GPU_DIMS], stride[HY_GPU_DIMS];
} hy_gpu_view;

// Several tensors broadcast to one shape, gone through together. Dimensions that all of them step
// through evenly are merged; the last is the innermost.
#define HY_GPU_WALK 8
typedef struct hy_gpu_walk {
  long long n;  // elements of the shape
  int ndim;     // at least 1
  int count;
  int dtype[HY_GPU_WALK];
  char* data[HY_GPU_WALK];
  long long shape[HY_GPU_DIMS];
  long long stride[HY_GPU_WALK][HY_GPU_DIMS];
} hy_gpu_walk;

// An elementwise call: the output is the walk's first tensor. Numbers come in both domains.
typedef struct hy_gpu_elementwise {
  hy_gpu_walk walk;
  int op;         // hy_op
  int which;      // the op in two tensors behind one with a number
  int attribute;  // rounding, or whether gelu approximates, or which bounds clamp has
  double f[2];
  long long i[2];
  struct hy_gpu_fault* fault;
} hy_gpu_elementwise;

// The first bad value that a kernel of the stream met; `op` 0 is none.
typedef struct hy_gpu_fault {
  int op;    // hy_op
  int kind;  // hy_gpu_fault_kind
  long long value, dim, size;
} hy_gpu_fault;

enum hy_gpu_fault_kind {
  HY_GPU_FAULT_INDEX = 1,     // `value` lies outside dimension `dim`, which has `size`
  HY_GPU_FAULT_TARGET = 2,    // class `value` is none of `size`
  HY_GPU_FAULT_DIVISION = 3,  // an integer was divided by 0
};

#endif  // HALYARD_BACKENDS_GPU_KERNELS_SHARED_H_
