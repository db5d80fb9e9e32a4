// Attention whose keys fall into parts (split-K), each a block's: which keys are a part's, and how
// the parts of a row meet, in their order.
#ifndef HALYARD_BACKENDS_GPU_KERNELS_SPLIT_KEYS_CUH_
#define HALYARD_BACKENDS_GPU_KERNELS_SPLIT_KEYS_CUH_

struct key_part {
  int begin, end;
};
// Of whole tiles of BKV keys; later parts may be empty.
DEVICE key_part part_of(int keys, int splits, int split) {
  int size = ((keys + splits - 1) / splits + BKV - 1) / BKV * BKV, begin = min(split * size, keys);
  return key_part{begin, min(begin + size, keys)};
}

// By a warp: row `row` of `rows`, of which each part left what it would be without the others,
// partial [splits, rows, size], and its log-sum-exp, lse [splits, rows]. Returns that of the whole.
template <class T>
DEVICE f32 meet_parts(T* out, const f32* partial, const f32* lse, i64 row, i64 rows, int splits,
                      int size) {
  f32 top = -INF_F32, total = 0;
  for (int s = 0; s < splits; s++) top = fmaxf(top, lse[s * rows + row]);
  const f32 base = top == -INF_F32 ? 0 : top;
  for (int s = 0; s < splits; s++) total += expf(lse[s * rows + row] - base);
  for (int d = threadIdx.x % HY_WARP; d < size; d += HY_WARP) {
    f32 sum = 0;
    for (int s = 0; s < splits; s++) {
      f32 share = expf(lse[s * rows + row] - base);
      if (share != 0) sum += share * partial[(s * rows + row) * size + d];
    }
    out[d] = from<T>(total == 0 ? 0 : sum / total);
  }
  return base + logf(total);
}

#endif  // HALYARD_BACKENDS_GPU_KERNELS_SPLIT_KEYS_CUH_
