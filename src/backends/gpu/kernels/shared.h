// What the host and the kernels both know: plain C, placed before every kernel source by the build.
#ifndef HALYARD_BACKENDS_GPU_KERNELS_SHARED_H_
#define HALYARD_BACKENDS_GPU_KERNELS_SHARED_H_

#define HY_GPU_DIMS 8

// A tensor: the element at index i is at data + sum(i[d] * stride[d]) elements.
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
  int rounds;     // the number is rounded to the type of computation first
  int attribute;  // rounding, or whether gelu approximates, or which bounds clamp has
  double f[2];
  long long i[2];
  struct hy_gpu_fault* fault;
} hy_gpu_elementwise;

// A reduction: `kept` walks the output (and x, and for argmax the index) over the dimensions that
// stay; shape and stride are x's over those that go.
typedef struct hy_gpu_reduce {
  hy_gpu_walk kept;
  int ndim;  // at least 1
  int divides;
  long long length, splits, part;  // a part's elements: all but the last have as many
  long long shape[HY_GPU_DIMS], stride[HY_GPU_DIMS];
  int vectors;         // what is reduced is one run, in vectors of 16 bytes
  long long out_step;  // from one output to the next of a vector, in elements
  double divisor;
  const char* centre;  // a number for each output, or NULL
  char* partial;
  long long* partial_at;
  unsigned* counters;  // a word of 0 for each output that blocks share
} hy_gpu_reduce;

// A running sum over contiguous tensors.
typedef struct hy_gpu_scan {
  const char* x;
  char *out, *sums;
  int out_dtype, reverse;
  long long lanes, length, inner, chunks;
} hy_gpu_scan;

// Cross entropy over contiguous logits [outer, classes, inner], lanes being outer and inner.
typedef struct hy_gpu_cross_entropy {
  const char *logits, *target, *weight, *dloss;
  char *lane_loss, *lane_weight, *dlogits;
  const char *total_weight, *weight_sum;  // NULL: 1, and the number of classes
  int target_dtype, dloss_dtype, op, vectors;
  int kept;              // vectors of a lane that a backward keeps in shared memory
  long long dloss_step;  // 0: one for all lanes
  long long lanes, classes, inner, ignore_index;
  double smoothing;
  struct hy_gpu_fault* fault;
} hy_gpu_cross_entropy;
// Of cross_entropy_total: the threads of a block, and the lanes whose losses it adds.
#define HY_GPU_TOTAL_THREADS 1024
#define HY_GPU_TOTAL_LANES 16384

// A norm over rows of contiguous memory. Parameters and statistics may be absent; `wide` says which
// parameters have the type of computation instead of x's: bit 0 weight, 1 bias.
typedef struct hy_gpu_norm {
  const char *x, *dy, *weight, *bias;
  char *out, *mean, *rstd;              // out is dx in a backward
  char *partial_weight, *partial_bias;  // [splits, columns] of a backward
  long long rows, columns, splits;
  double eps;
  int centred, wide, vectors;
} hy_gpu_norm;

// Batch norm over contiguous x [outer, channels, inner].
typedef struct hy_gpu_batch_norm {
  const char *x, *dy;
  char *out, *partial;  // partial: [channels, splits, 3]
  hy_gpu_view weight, bias, mean,
      var;                        // vectors, absent ones without data; var is rstd in a backward
  hy_gpu_view out_mean, out_var;  // what is written: statistics, gradients, or running ones
  long long outer, channels, inner, splits;
  double eps, momentum;
  int training;
} hy_gpu_batch_norm;

// Indexing by up to HY_GPU_DIMS index tensors, broadcast to `shape`; `rest` walks the dimensions
// that no index takes, of the output first, then of what is read. Strides are in elements.
typedef struct hy_gpu_index {
  char* out;
  const char* x;  // what is read: the table, or in a scatter the source
  hy_gpu_walk rest;
  int count, ndim, dtype, op, wraps;
  int rest_inner;   // the rest varies fastest
  int adds_to_out;  // sums start with what the output holds
  long long n_indexed, padding, bias;
  long long shape[HY_GPU_DIMS], out_stride[HY_GPU_DIMS], src_stride[HY_GPU_DIMS];
  const char* index[HY_GPU_DIMS];
  int index_dtype[HY_GPU_DIMS], dim[HY_GPU_DIMS];
  long long index_stride[HY_GPU_DIMS][HY_GPU_DIMS];
  long long x_stride[HY_GPU_DIMS];  // of the indexed dimension, in x or in a scatter in the output
  long long size[HY_GPU_DIMS];      // of that dimension
  struct hy_gpu_fault* fault;
} hy_gpu_index;

typedef struct hy_gpu_adamw {
  double lr, beta1, beta2, eps, weight_decay, step_size, root_correction;
  int maximize;
} hy_gpu_adamw;

typedef struct hy_gpu_sgd {
  double lr, momentum, dampening, weight_decay;
  int nesterov, first, maximize;
} hy_gpu_sgd;

// Sampling: logits [rows, tokens], settings [rows, 5], draw [rows], seen [rows, tokens] or none.
typedef struct hy_gpu_sample {
  hy_gpu_view logits, settings, draw, seen;
  char* ids;
  long long ids_stride, rows, tokens;
} hy_gpu_sample;

// The first bad value that a kernel of the stream met; `op` 0 is none.
typedef struct hy_gpu_fault {
  int op;    // hy_op
  int kind;  // hy_gpu_fault_kind
  long long value, dim, size;
} hy_gpu_fault;

enum hy_gpu_fault_kind {
  HY_GPU_FAULT_INDEX = 1,     // `value` is outside dimension `dim`, which has `size`
  HY_GPU_FAULT_TARGET = 2,    // class `value` is none of `size`
  HY_GPU_FAULT_DIVISION = 3,  // an integer was divided by 0
};

#endif  // HALYARD_BACKENDS_GPU_KERNELS_SHARED_H_
