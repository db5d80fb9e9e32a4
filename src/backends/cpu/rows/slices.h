// Slices of a tensor: its elements along some neighbouring dimensions, one slice for each index of
// the others. Ops along an axis (softmax, norms) read and write slices as rows of floats.
#ifndef HALYARD_CPU_ROWS_SLICES_H_
#define HALYARD_CPU_ROWS_SLICES_H_

#include "backends/cpu/family.h"

typedef struct hy__slices {
  const hy_tensor* t;
  int first, dims;      // the dimensions that a slice runs over
  int64_t n, step;      // elements of a slice, and from one to the next
  int64_t count, size;  // slices, and bytes of an element
} hy__slices;

// False where the dimensions cannot be stepped through evenly. An absent tensor has no slices.
bool hy__slices_init(hy__slices* s, const hy_tensor* t, int first, int dims);
char* hy__slice_at(const hy__slices* s, int64_t i);

// Slice i as contiguous floats: in place where it is, else in `buffer`.
const float* hy__slice_read(const hy__cpu_kernels* kernels, const hy__slices* s, int64_t i,
                            float* buffer);
// Where to compute slice i: in place, or `buffer`; hy__slice_write brings it from there.
float* hy__slice_target(const hy__slices* s, int64_t i, float* buffer);
void hy__slice_write(const hy__cpu_kernels* kernels, const hy__slices* s, int64_t i,
                     const float* row);

// Whether the slices are contiguous rows of f32 or bf16, which kernels take in place.
bool hy__slices_are_rows(const hy__slices* s);
// The bytes from slice i to the next, where rows are so short that the next should be brought
// nearer while one is worked on; else 0.
int64_t hy__slice_next(const hy__slices* s, int64_t i);

// Calls task(context, first, last) for ranges of 0 .. count - 1, by several threads where that much
// work of `n` elements each is worth it. The ranges do not depend on the number of threads.
typedef void hy__range_task(void* context, int64_t first, int64_t last);
void hy__each_range(int64_t count, int64_t n, hy__range_task* task, void* context);

#endif  // HALYARD_CPU_ROWS_SLICES_H_
