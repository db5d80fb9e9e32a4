// The sequences of a paged call, with every index checked where it is read.
#ifndef HALYARD_BACKENDS_GPU_KERNELS_PAGED_ROWS_CUH_
#define HALYARD_BACKENDS_GPU_KERNELS_PAGED_ROWS_CUH_

#include "params.h"

// Keys of a block, where the kernel is compiled for a power of 2: it saves a division a row.
#ifndef BLOCK
#define BLOCK p.block
#endif

struct paged_faults {
  hy_gpu_fault* where;
  int op;
  __device__ __forceinline__ void say(i64 value, i64 dim, i64 size) const {
    fault(where, HY_GPU_FAULT_INDEX, op, value, dim, size);
  }
};

// The new tokens first .. first + queries of a sequence, the last of its `keys`.
struct paged_sequence {
  int number, first, queries, keys;
};

// A sequence without queries stands for one whose indices are bad, which is reported.
DEVICE paged_sequence sequence_at(const hy_paged& p, const paged_faults& faults, int b) {
  i64 first = load_index(p.start_dtype, (const char*)p.start, b);
  i64 next = load_index(p.start_dtype, (const char*)p.start, b + 1);
  i64 keys = load_index(p.length_dtype, (const char*)p.length, b);
  bool last = b + 1 == p.sequences;
  if (first < 0 || next < first || next > p.tokens || (b == 0 && first != 0) ||
      (last && next != p.tokens)) {
    faults.say(next, 0, p.tokens);
    return paged_sequence{b, 0, 0, 0};
  }
  if (keys < next - first || keys > (i64)p.most_blocks * p.block) {
    faults.say(keys, 0, (i64)p.most_blocks * p.block);
    return paged_sequence{b, 0, 0, 0};
  }
  return paged_sequence{b, (int)first, (int)(next - first), (int)keys};
}

// Where a key's row is in a cache, or NULL for a block that is not there.
template <class T>
DEVICE const T* cached_row(const hy_paged& p, const paged_faults& faults, int sequence, int key,
                           const void* cache, i64 block_step, i64 row_step) {
  i64 block = load_index(p.table_dtype, (const char*)p.table,
                         (i64)sequence * p.most_blocks + key / BLOCK);
  if (block < 0 || block >= p.blocks) {
    faults.say(block, 0, p.blocks);
    return 0;
  }
  return (const T*)cache + block * block_step + key % BLOCK * row_step;
}

#endif  // HALYARD_BACKENDS_GPU_KERNELS_PAGED_ROWS_CUH_
