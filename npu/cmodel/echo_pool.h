// echo_pool.h - threads shared by all simulated devices of the process.
#ifndef ECHO_POOL_H
#define ECHO_POOL_H

#include "echo_kernels.h"

// Blocking of the matrix kernels; a thread's scratch holds one block of each operand.
#define ECHO_KC 256
#define ECHO_NC 512
#define ECHO_MC 1120

typedef struct echo_scratch {
  float a[ECHO_MAX_MR * ECHO_KC];
  float b[ECHO_KC * ECHO_NC];
  float c[ECHO_MC * ECHO_NC];
  float tile[ECHO_MAX_MR * ECHO_MAX_NR];
  float wide[ECHO_SKINNY_COLS * ECHO_KC];
  echo_lanes lanes;
} __attribute__((aligned(64))) echo_scratch;

typedef void (*echo_task)(void* context, int index, echo_scratch* scratch);

// The pool lives while anyone holds it. Returns 0, or -1 when memory or threads cannot be had.
int echo_pool_hold(void);
void echo_pool_release(void);
int echo_pool_threads(void);

// Runs task(context, 0..count-1) and returns when all are done. The caller takes part with `own`;
// when another device is using the pool the caller does all of it alone.
void echo_pool_run(echo_task task, void* context, int count, echo_scratch* own);

#endif  // ECHO_POOL_H
