// Descriptors of tensors for Hopper's copy engine (TMA), a kernel's parameter each.
#ifndef HALYARD_BACKENDS_GPU_OPS_TENSOR_MAP_H_
#define HALYARD_BACKENDS_GPU_OPS_TENSOR_MAP_H_

#include <stdalign.h>

#include "backends/gpu/gpu.h"

typedef struct hy__gpu_tensor_map {
  alignas(64) uint64_t opaque[16];  // CUtensorMap
} hy__gpu_tensor_map;

// A tensor of halves, innermost dimension first, with stride 1 there and the others' strides in
// elements, copied in boxes of `columns` by `lines`: 64 columns have the swizzle of 128 bytes, less
// (a multiple of 8) lie line after line. A dimension of size 1 may have any stride. False where the
// copy engine could not read it: it wants addresses and strides at multiples of 16 bytes.
static inline bool hy__gpu_map_boxes(hy__gpu_task* task, hy__gpu_tensor_map* map, hy_dtype dtype,
                                     const void* data, int rank, const int64_t* shape,
                                     const int64_t* stride, int columns, int lines) {
  enum { F16 = 6, BF16 = 9, NO_INTERLEAVE = 0, PROMOTE_L2_256B = 3, ZEROS = 0 };
  enum { NO_SWIZZLE = 0, SWIZZLE_128B = 3 };
  uint64_t size[5], bytes[5];
  uint32_t box[5], step[5];
  int64_t reach = (shape[0] + 7) / 8 * 8;
  for (int d = 0; d < rank; d++) {
    int64_t own = d == 0 ? 1 : shape[d] == 1 ? reach : stride[d];
    if (shape[d] < 1 || own < 1 || (d > 0 && own % 8 != 0)) return false;
    if (d > 0 && own * shape[d] > reach) reach = own * shape[d];
    size[d] = (uint64_t)shape[d];
    if (d > 0) bytes[d - 1] = (uint64_t)own * 2;
    box[d] = d == 0 ? (uint32_t)columns : d == 1 ? (uint32_t)lines : 1;
    step[d] = 1;
  }
  return (uintptr_t)data % 16 == 0 &&
         task->device->api->driver.tensor_map_encode(
             map, dtype == HY_F16 ? F16 : BF16, (uint32_t)rank, (void*)(uintptr_t)data, size, bytes,
             box, step, NO_INTERLEAVE, columns == 64 ? SWIZZLE_128B : NO_SWIZZLE, PROMOTE_L2_256B,
             ZEROS) == 0;
}

static inline bool hy__gpu_map_tensor(hy__gpu_task* task, hy__gpu_tensor_map* map, hy_dtype dtype,
                                      const void* data, int rank, const int64_t* shape,
                                      const int64_t* stride, int lines) {
  return hy__gpu_map_boxes(task, map, dtype, data, rank, shape, stride, 64, lines);
}

// Whether the device has the copy engine and wgmma.
static inline bool hy__gpu_is_hopper(const hy__gpu_task* task) {
  return task->device->compute_major == 9 && task->device->api->driver.tensor_map_encode;
}

#endif  // HALYARD_BACKENDS_GPU_OPS_TENSOR_MAP_H_
