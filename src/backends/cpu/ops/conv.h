// conv2d and its gradients: what the forward pass and dx (conv.c) share with dweight
// (conv_dweight.c).
#ifndef HALYARD_CPU_OPS_CONV_H_
#define HALYARD_CPU_OPS_CONV_H_

#include <stdatomic.h>

#include "backends/cpu/family.h"
#include "backends/cpu/gemm/frame.h"

enum { HY__CONV_KC = 512 };  // words of a block of k that microkernels take at once

typedef struct hy__conv {
  const hy__cpu_kernels* kernels;
  bool halves;                          // bf16 is multiplied as bf16
  const hy__gemm_kernel* gemm;          // for that type
  const hy__indirect_kernel* indirect;  // likewise; NULL: B is packed
  int64_t images, groups, in, out;      // channels of one group
  int64_t h, w, out_h, out_w, kernel_h, kernel_w;
  hy_pair stride, padding, dilation;
} hy__conv;

// A convolution of planes, forward or turned, with `weights` [group][to][row, column, from].
typedef struct hy__conv_pass {
  const hy__conv* c;
  const hy_tensor *from, *to, *bias;
  int64_t from_channels, to_channels;  // of a group
  int64_t to_h, to_w;
  hy_pair origin, step;
  hy__frame_layout layout;
  int64_t lines, bands;  // of the target, to a band; bands to a plane
  int64_t batch;         // images whose bands are worked on together
  const char* weights;
  int64_t weight_row;  // bytes
  atomic_bool failed;
} hy__conv_pass;

typedef enum hy__conv_outcome {
  HY__CONV_DONE,
  HY__CONV_NO_MEMORY,
  HY__CONV_NONFINITE,  // an operand has numbers that must not meet padding
} hy__conv_outcome;

// What is multiplied: f32 or bf16.
hy_dtype hy__conv_number_type(const hy__conv* c);
hy__planes hy__conv_planes(const hy_tensor* t, int64_t image, int64_t channel);
// From an image to the next, in bytes.
int64_t hy__conv_image_step(const hy_tensor* t);

// Sets `lines`, `bands` and `batch`.
void hy__conv_cut_into_bands(hy__conv_pass* s);
// The frame of lines first .. first + lines - 1 of positions. Where both sides are padded, the
// zeros before a row are those behind the row above.
hy__frame hy__conv_frame(const hy__conv_pass* s, int64_t first, int64_t lines);
// Frames of several images, one after the other, the first being f.
void hy__conv_fill_frames(const hy__conv_pass* s, hy__frame f, int64_t image, int64_t images,
                          int64_t group);
// Where what a tap reads begins in a plane.
int64_t hy__conv_tap_place(const hy__conv* c, const hy__frame* f, int64_t area);

// The gradient of the weights, of a forward pass whose target is dy; changes its layout.
hy__conv_outcome hy__conv_dweight(hy__conv_pass* s, const hy_tensor* dweight);

#endif  // HALYARD_CPU_OPS_CONV_H_
