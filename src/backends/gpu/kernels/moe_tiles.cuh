// Tiles of choices that go to one expert.
#ifndef HALYARD_BACKENDS_GPU_KERNELS_MOE_TILES_CUH_
#define HALYARD_BACKENDS_GPU_KERNELS_MOE_TILES_CUH_

#include "params.h"

#define TILE 64

// The expert and the first of its choices for tile `tile` of all experts' tiles; false past the end.
DEVICE bool moe_tile(const hy_moe& p, int tile, int* expert, int* row0, int* rows) {
  for (int e = 0; e < p.experts; e++) {
    int n = p.first[e + 1] - p.first[e], own = (n + TILE - 1) / TILE;
    if (tile < own) {
      *expert = e;
      *row0 = tile * TILE;
      *rows = n;
      return true;
    }
    tile -= own;
  }
  return false;
}

#endif  // HALYARD_BACKENDS_GPU_KERNELS_MOE_TILES_CUH_
