// What the kernels of rope_paged_attention share: places in the paged cache, and of the parts of a
// split context.
#ifndef HALYARD_BACKENDS_GPU_KERNELS_ROPE_PAGED_CUH_
#define HALYARD_BACKENDS_GPU_KERNELS_ROPE_PAGED_CUH_

#include "params.h"

struct faults {
  hy_gpu_fault* where;
  int op;
  __device__ __forceinline__ void say(i64 value, i64 size) const {
    fault(where, HY_GPU_FAULT_INDEX, op, value, 0, size);
  }
};

// Where a key of sequence b is in a cache, in elements; -1 for a block that is not there.
DEVICE i64 place_of(const hy_decode& p, const faults& f, int b, int kv_head, int key) {
  i64 block =
      load_index(p.table_dtype, (const char*)p.table, (i64)b * p.most_blocks + key / p.block);
  if (block < 0 || block >= p.blocks) {
    f.say(block, p.blocks);
    return -1;
  }
  return ((block * p.block + key % p.block) * p.kv_heads + kv_head) * p.size;
}

// Where a part of a split context leaves its sums, the largest score and the total.
DEVICE f32* part_of(const hy_decode& p, int b, int head, int split) {
  return p.partial + (((i64)b * p.heads + head) * p.splits + split) * (p.size + 2);
}

#endif  // HALYARD_BACKENDS_GPU_KERNELS_ROPE_PAGED_CUH_
