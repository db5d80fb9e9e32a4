// Zero-padded frames, the implicit im2col of convolutions: images are laid out once with their
// padding, a band of image rows at a time, so that what one tap of the kernel reads at neighbouring
// output positions is contiguous. As B of an indirect GEMM (indirect.h) a frame is the whole column
// matrix, which is never stored.
#ifndef HALYARD_CPU_GEMM_FRAME_H_
#define HALYARD_CPU_GEMM_FRAME_H_

#include "backends/cpu/gemm/kernels.h"
#include "halyard/call.h"

// The planes of one image from some channel on.
typedef struct hy__planes {
  const char* data;
  hy_dtype dtype;
  int64_t plane, row, column;  // strides
  int64_t h, w;
} hy__planes;

// Numbers are f32, or bf16 where the image is and the product is made for it. A plane of words has
// one channel of f32 or the pairs of two of bf16, the second 0 past the last channel.
typedef enum hy__frame_layout { HY__FRAME_F32, HY__FRAME_BF16, HY__FRAME_PAIRS } hy__frame_layout;

// The first element of an image's plane is at `origin`, which may be outside. Image rows and
// columns that differ modulo `step` (the stride) are kept apart, [plane][row mod step][column mod
// step][h][w], so that a step leads to a neighbour. A plane ends with zeros that taps at its last
// row can reach.
typedef struct hy__frame {
  hy__frame_layout layout;
  hy_pair origin, step;
  int64_t channels, h, w;
  int64_t tail;  // zeros behind the last row that are read
  void* data;
} hy__frame;

// Planes of it, and from one to the next in numbers of f32, of bf16, or pairs.
int64_t hy__frame_planes(const hy__frame* f);
int64_t hy__frame_plane(const hy__frame* f);
// What it takes, with what kernels may read behind its end.
size_t hy__frame_bytes(const hy__frame* f);
// Where this row and column of a plane is, from the plane's first element.
int64_t hy__frame_place(const hy__frame* f, int64_t row, int64_t column);

// Copies image planes into it, all of the pool's threads taking part.
void hy__frame_fill(const hy__gemm_kernels* kernels, const hy__frame* f, const hy__planes* from);

// Asks for a row of an image that is read some rows after this one; planes follow one another.
static inline void hy__frame_prefetch(const char* row, int64_t bytes) {
  enum { PREFETCH_BYTES = 1024 };
  for (int64_t at = 0; at < bytes; at += 64) __builtin_prefetch(row + PREFETCH_BYTES + at);
}

#endif  // HALYARD_CPU_GEMM_FRAME_H_
