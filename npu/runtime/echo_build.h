// echo_build.h - a list of packets under construction, for operations that need several.
//
// Each adding function notes the first error and does nothing after it; echo__build_submit reports
// it. Scratch memory is released when the stream has passed the packets.
#ifndef ECHO_BUILD_H
#define ECHO_BUILD_H

#include "echo_runtime.h"

#define ECHO_BUILD_MAX 64
#define ECHO_BUILD_SCRATCH 4

typedef struct echo_build {
  echoNpuStream stream;
  echoNpuError error;
  size_t count;
  echo_npu_packet packets[ECHO_BUILD_MAX];
  uint64_t scratch[ECHO_BUILD_SCRATCH];
  int scratch_count;
} echo_build;

void echo__build_begin(echo_build* b, echoNpuStream stream);
// Physical address of `bytes` bytes of the stream's device; 0 and an error when it is not such
// memory.
uint64_t echo__build_address(echo_build* b, const void* ptr, uint64_t bytes);
// Device memory for the time of these packets.
uint64_t echo__build_scratch(echo_build* b, uint64_t bytes);
void echo__build_packet(echo_build* b, echo_npu_packet packet);
void echo__build_repeat(echo_build* b, const uint64_t outer[4], const uint64_t inner[4]);
echoNpuError echo__build_submit(echo_build* b);

typedef struct echo_vector_args {
  uint32_t opcode;  // 0: VECTOR; ADD_TENSOR has no function
  uint32_t fn, flags;
  uint64_t dst, x, y;
  uint64_t rows, cols, stride_x, stride_y, stride_dst;
  float alpha, beta;
} echo_vector_args;
void echo__build_vector(echo_build* b, const echo_vector_args* v);

typedef struct echo_matmul_args {
  uint32_t flags;
  uint64_t c, a, b;
  uint64_t m, n, k, lda, ldb, ldc;
} echo_matmul_args;
void echo__build_matmul(echo_build* b, const echo_matmul_args* a);

static inline uint32_t echo__bits(float f) {
  union {
    float f;
    uint32_t i;
  } u = {f};
  return u.i;
}

#endif  // ECHO_BUILD_H
