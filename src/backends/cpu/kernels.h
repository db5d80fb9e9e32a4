// What an instruction set gives the cpu's kernels, and the families of ops built on it.
#ifndef HALYARD_CPU_KERNELS_H_
#define HALYARD_CPU_KERNELS_H_

#include "backends/cpu/gemm.h"
#include "halyard/plugin.h"

typedef struct hy__cpu_kernels {
  const hy__gemm_kernel* gemm;
  // Dot products of `lines` (1 to HY__DOT_LINES) rows of float32 x, k apart, with rows first ..
  // last - 1 of w, whose column stride is 1: out[line * out_line + row - first]. NULL where the
  // instruction set has none.
  void (*dot)(const hy__matrix* w, int64_t first, int64_t last, int64_t k, const float* x,
              int lines, float* out, int64_t out_line);
} hy__cpu_kernels;

enum { HY__DOT_LINES = 4 };

extern const hy_host* hy__cpu_host_services;  // set when the backend is queried

// A family of ops: what it runs, and running it. `run` is called only for calls it supports.
typedef struct hy__cpu_family {
  hy_support (*supports)(const hy_call* call);
  hy_status (*run)(const hy__cpu_kernels* kernels, const hy_call* call);
} hy__cpu_family;

extern const hy__cpu_family hy__cpu_matmul;

#endif  // HALYARD_CPU_KERNELS_H_
