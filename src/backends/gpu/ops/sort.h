// Sorting pairs of key and place on a GPU.
#ifndef HALYARD_BACKENDS_GPU_OPS_SORT_H_
#define HALYARD_BACKENDS_GPU_OPS_SORT_H_

#include "backends/gpu/gpu.h"

// `lanes` lanes of `length` pairs one after another, each sorted by its keys, stably.
typedef struct hy__gpu_pairs {
  uint64_t keys, places;              // u64 and u32
  uint64_t spare_keys, spare_places;  // as large
} hy__gpu_pairs;

hy__gpu_pairs hy__gpu_pairs_take(hy__gpu_task* task, int64_t n);
// Afterwards keys and places are sorted; they may have changed places with the spare ones.
void hy__gpu_sort_pairs(hy__gpu_task* task, hy__gpu_pairs* pairs, long long lanes,
                        long long length);

#endif  // HALYARD_BACKENDS_GPU_OPS_SORT_H_
