// What the op table says of a call that has been checked, as kernels need it: the type an op
// computes in, numbers of that type, dimensions, and where indices stand. A backend sees no more of
// the library than a plugin does.
#ifndef HALYARD_BACKENDS_GPU_RULES_H_
#define HALYARD_BACKENDS_GPU_RULES_H_

#include "halyard/plugin.h"

// Tensors with dimensions decide; those without only raise the category (bool < integers < floats).
hy_dtype hy__gpu_promote_tensors(const hy_tensor* tensors, int n);
// f32 for integers and bool, the type itself for floats.
hy_dtype hy__gpu_to_float(hy_dtype dtype);
// The type in which an elementwise call computes, before comparison makes bool of it.
hy_dtype hy__gpu_compute_dtype(const hy_call* call);
// A number as the op computes with it: in f32 unless the type is f64; an integer as the type's own,
// where -1 in u8 is 255.
double hy__gpu_number_f(hy_scalar s, hy_dtype as);
int64_t hy__gpu_number_i(hy_scalar s, hy_dtype as);

// Dimension `dim`, counted from the front; a tensor without dimensions takes 0 and -1.
int hy__gpu_wrap_dim(int64_t dim, int ndim);
// Bit d for each dimension d that `dims` names; none named are all.
uint32_t hy__gpu_dims_mask(const hy_dims* dims, int ndim);

// x[i, :, j]: the indices, broadcast together, and the result's dimensions: which of x each is, -1
// for those of the indices.
typedef struct hy__gpu_index_plan {
  hy_tensor indexed, result;  // shapes
  int dim_of[HY_MAX_DIMS];
} hy__gpu_index_plan;
// The indices are the inputs from `first` on; an absent one takes the whole dimension.
hy__gpu_index_plan hy__gpu_plan_index(const hy_call* call, int first);

#endif  // HALYARD_BACKENDS_GPU_RULES_H_
