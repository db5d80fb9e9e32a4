// Chains of elementwise calls as one kernel: what a step makes stays in registers, rounded to T as
// the call's own kernel rounds it. All tensors are of T and of one shape, and contiguous, or STRIDED:
// rows of `columns` vectors. Options: T, STRIDED, INPUTS, STEPS, and for each step s its STEP<s>: the
// op's number and three decimal digits, the operands x and y + 4 (k >= 0 is input k, -1 - s the
// result of step s) and the output + 1 that holds the result, or 0.
//
// options: -DT=bf16 -DSTRIDED=1 -DINPUTS=2 -DSTEPS=2 -DSTEP0=27441 -DSTEP1=42352
// options: -DT=f32 -DSTRIDED=0 -DINPUTS=3 -DSTEPS=2 -DSTEP0=42450 -DSTEP1=103361
// options: -DT=bf16 -DSTRIDED=0 -DINPUTS=3 -DSTEPS=4 -DSTEP0=27440 -DSTEP1=42531 -DSTEP2=42560 -DSTEP3=103142
#include "params.h"
#include "sigmoid.cuh"

#ifndef STEP1
#define STEP1 0
#endif
#ifndef STEP2
#define STEP2 0
#endif
#ifndef STEP3
#define STEP3 0
#endif

typedef traits<T>::math M;
enum { N = lanes16<T>::n };
typedef vec<T, N> V;

// The expressions of unary.cu and binary.cu.
DEVICE M apply(int op, M x, M y) {
  switch (op) {
    case OP_silu: return x * sigmoid(x);
    case OP_silu_backward: return x * (sigmoid(y) * (1 + y * (1 - sigmoid(y))));
    default: return x * y;
  }
}

KERNEL void chain(hy_chain_tensors c) {
  constexpr int steps[] = {STEP0, STEP1, STEP2, STEP3};
  GRID_STRIDE(i, c.n / N) {
    const i64 row = STRIDED ? i / c.columns : 0, column = STRIDED ? i % c.columns : i;
    V value[STEPS + INPUTS];  // results from the last to the first, then inputs
#pragma unroll
    for (int k = 0; k < INPUTS; k++) value[STEPS + k] = ((const V*)c.in[k])[row * c.in_row[k] + column];
#pragma unroll
    for (int s = 0; s < STEPS; s++) {
      const int x = steps[s] / 100 % 10 - 4, y = steps[s] / 10 % 10 - 4, out = steps[s] % 10 - 1;
      V made;
#pragma unroll
      for (int k = 0; k < N; k++)
        made.at[k] = from<T>(
            apply(steps[s] / 1000, to<M>(value[STEPS + x].at[k]), to<M>(value[STEPS + y].at[k])));
      value[STEPS - 1 - s] = made;
      if (out >= 0) ((V*)c.out[out])[row * c.out_row[out] + column] = made;
    }
  }
}
