// bench_matmul - float32, bf16 and int8 matrix multiply on the functional model, GFLOP/s of the
// host. Usage: bench_matmul [m n k [repeats]]
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "echo_cmodel.h"
#include "echo_npu_hw.h"

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static const struct {
  const char* name;
  uint32_t flags;
} forms[] = {
    {"f32", 0},
    {"f32, B transposed", ECHO_NPU_FLAG_TRANS_B},
    {"bf16, B transposed", ECHO_NPU_BF16 << ECHO_NPU_FLAG_T1_SHIFT |
                               ECHO_NPU_BF16 << ECHO_NPU_FLAG_T2_SHIFT | ECHO_NPU_FLAG_TRANS_B},
    {"int8, B transposed", ECHO_NPU_I8 << ECHO_NPU_FLAG_T1_SHIFT |
                               ECHO_NPU_I8 << ECHO_NPU_FLAG_T2_SHIFT |
                               ECHO_NPU_I32 << ECHO_NPU_FLAG_TD_SHIFT | ECHO_NPU_FLAG_TRANS_B},
};

int main(int argc, char** argv) {
  uint32_t m = 1024, n = 1024, k = 1024;
  int repeats = 5;
  if (argc >= 4) {
    m = (uint32_t)atoi(argv[1]);
    n = (uint32_t)atoi(argv[2]);
    k = (uint32_t)atoi(argv[3]);
  }
  if (argc >= 5) repeats = atoi(argv[4]);
  const uint64_t high = ECHO_NPU_HIGH_BASE, span = (uint64_t)4 << 30;
  const echo_area areas[ECHO_NPU_AREAS] = {
      {0, 0}, {ECHO_NPU_ACT_BASE, ECHO_NPU_ACT_BASE + 65536}, {high, high + 3 * span}};
  echo_cmodel* model = echo_cmodel_create(areas, -1);
  if (!model) return 1;
  float* a = echo_cmodel_memory(model, high, (uint64_t)m * k * 4);
  float* b = echo_cmodel_memory(model, high + span, (uint64_t)n * k * 4);
  if (!a || !b) return 1;
  for (uint64_t i = 0; i < (uint64_t)m * k; ++i) a[i] = (float)(i % 17) - 8;
  for (uint64_t i = 0; i < (uint64_t)n * k; ++i) b[i] = (float)(i % 13) - 6;
  echo_cmodel_write(model, ECHO_NPU_REG_RING_BASE_LO, ECHO_NPU_ACT_BASE);
  echo_cmodel_write(model, ECHO_NPU_REG_RING_LOG2, 4);
  echo_cmodel_write(model, ECHO_NPU_REG_CONTROL, ECHO_NPU_CONTROL_ENABLE);
  uint32_t tail = 0;
  for (size_t f = 0; f < sizeof forms / sizeof *forms; ++f) {
    double best = 1e30;
    for (int r = 0; r < repeats; ++r) {
      echo_npu_packet p = {
          .opcode = ECHO_NPU_OP_MATMUL,
          .flags = forms[f].flags,
          .src1 = high,
          .src2 = high + span,
          .dst = high + 2 * span,
          .param = {m, n, k, forms[f].flags & ECHO_NPU_FLAG_TRANS_B ? k : n, n, k}};
      memcpy(echo_cmodel_memory(model, ECHO_NPU_ACT_BASE + 64 * (tail & 15), 64), &p, 64);
      double start = now();
      echo_cmodel_write(model, ECHO_NPU_REG_RING_TAIL, ++tail);
      echo_cmodel_run(model, 0);
      double took = now() - start;
      if (took < best) best = took;
    }
    uint64_t cycles = echo_cmodel_read(model, ECHO_NPU_REG_LAST_CYCLES);
    printf("%-20s %ux%ux%u  %8.2f ms  %7.1f GFLOP/s  %llu device cycles, %.1f%% of the array\n",
           forms[f].name, m, n, k, best * 1e3, 2e-9 * m * n * k / best, (unsigned long long)cycles,
           100.0 * m * n * k / 256 / (double)cycles);
    if (echo_cmodel_read(model, ECHO_NPU_REG_FAULT_CODE)) return 1;
  }
  echo_cmodel_destroy(model);
  return 0;
}
